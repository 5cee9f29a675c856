//! Converts the HTTP status that an agent reports for its model into the end of a turn.

use serde_json::Value;
use windlass_core::provider::{ProviderError, ProviderErrorKind};

use crate::agent::TurnEndReason;

/// The end of a turn whose model answered with this status; `null` if it did not answer.
pub(crate) fn model_failed(status: &Value, message: String) -> TurnEndReason {
    let status = status.as_u64();
    let status = status.and_then(|status| u16::try_from(status).ok());
    TurnEndReason::Provider(ProviderError {
        kind: kind(status),
        message,
        status,
    })
}

/// The end of a turn whose model failed with this kind of error.
pub(crate) fn model_error(kind: ProviderErrorKind, message: String) -> TurnEndReason {
    let status = None;
    TurnEndReason::Provider(ProviderError {
        kind,
        message,
        status,
    })
}

fn kind(status: Option<u16>) -> ProviderErrorKind {
    match status {
        Some(401 | 403) => ProviderErrorKind::Authentication,
        Some(404) => ProviderErrorKind::ModelNotFound,
        Some(429) => ProviderErrorKind::RateLimited { retry_after: None },
        Some(413) => ProviderErrorKind::ContextLength,
        Some(400..=499) => ProviderErrorKind::InvalidRequest,
        Some(_) => ProviderErrorKind::Unavailable { retry_after: None },
        None => ProviderErrorKind::Network {
            transient: true,
            sent: false,
        },
    }
}
