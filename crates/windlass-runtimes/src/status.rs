//! What the HTTP status means that an agent says its model answered with.

use windlass_core::provider::ProviderErrorKind;

/// What kind of error an HTTP status is.
pub(crate) fn kind(status: Option<u16>) -> ProviderErrorKind {
    match status {
        Some(401 | 403) => ProviderErrorKind::Authentication,
        Some(404) => ProviderErrorKind::ModelNotFound,
        Some(429) => ProviderErrorKind::RateLimited { retry_after: None },
        Some(413) => ProviderErrorKind::ContextLength,
        Some(400..=499) => ProviderErrorKind::InvalidRequest,
        Some(_) => ProviderErrorKind::Unavailable { retry_after: None },
        None => ProviderErrorKind::Network { transient: true },
    }
}
