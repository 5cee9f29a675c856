//! Questions to a server beside the requests: what a model can hold, and which models are there. Each is asked once,
//! with a short limit, and what was learnt is kept for the life of the provider.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Url;
use reqwest::header::{ACCEPT, HeaderValue};
use windlass_core::budget::Estimator;
use windlass_core::provider::{ModelFacts, Provider, ProviderError, ProviderErrorKind};

use super::{MOST_OF_AN_ERROR, WireProvider};
use crate::http::HttpResponse;
use crate::{errors, probe};

/// What is known of a model from asking for it and from using it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) facts: ModelFacts,
    pub(super) estimator: Estimator,
}

/// How long a question about models may take; a server on this machine is quick or not there.
const QUESTION: Duration = Duration::from_secs(10);
const LOCAL_QUESTION: Duration = Duration::from_secs(3);
/// More models than a provider is used for.
const MOST_KNOWN: usize = 256;
/// How much of a list or a description is read.
const MOST_OF_A_LIST: usize = 8 << 20;

/// Requests that are too short to say how many tokens our bytes have.
const LEAST_LEARNED: usize = 1_000;

impl WireProvider {
    /// What the server says about a model; asked once.
    pub(super) async fn ask_once(&self, model: &str) -> Result<Known, ProviderError> {
        let known = self.known.lock().get(model).cloned();
        match known {
            Some(known) => Ok(known),
            None => self.ask(model).await,
        }
    }

    async fn ask(&self, model: &str) -> Result<Known, ProviderError> {
        let mut known = Known {
            facts: self.facts(model),
            estimator: Estimator::default(),
        };
        let Some((path, body)) = self.vendor.probe.question(model) else {
            return Ok(known);
        };
        let url = self.endpoint.join(path);
        let answer = match self.question(&url, body).await {
            Ok(answer) => answer,
            // A server that does not know the question is used as it is.
            Err(err)
                if matches!(err.status, Some(404 | 405 | 501))
                    && err.kind != ProviderErrorKind::ModelNotFound =>
            {
                serde_json::Value::Null
            }
            Err(err) => return Err(err),
        };
        self.vendor
            .probe
            .read(&answer, model, self.context_window, &mut known.facts);
        let mut all = self.known.lock();
        if all.len() < MOST_KNOWN {
            all.insert(model.to_owned(), known.clone());
        }
        Ok(known)
    }

    /// The models this server has, by asking it.
    pub async fn models(&self) -> Result<Vec<String>, ProviderError> {
        let Some(path) = self.vendor.list else {
            return Err(errors::no_list(self.vendor.id));
        };
        let answer = self.question(&self.endpoint.join(path), None).await?;
        probe::names(&answer).ok_or_else(|| errors::no_list(self.vendor.id))
    }

    /// Asks for a JSON document. A server of one's own is there at once or not at all.
    async fn question(
        &self,
        url: &Url,
        body: Option<Vec<u8>>,
    ) -> Result<serde_json::Value, ProviderError> {
        let limit = if self.endpoint.is_loopback() {
            LOCAL_QUESTION
        } else {
            QUESTION
        };
        let asked = async {
            let mut headers = self.headers.clone();
            headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
            let response = self.http.send(url, headers, body.map(Bytes::from)).await?;
            let HttpResponse {
                status,
                headers,
                body,
            } = response;
            if !(200..300).contains(&status) {
                let text = body.read_up_to(MOST_OF_AN_ERROR).await;
                return Err(errors::from_status(status, &headers, &text, (self.now)()));
            }
            Ok(serde_json::from_slice(&body.read_up_to(MOST_OF_A_LIST).await).unwrap_or_default())
        };
        let answered = tokio::time::timeout(limit, asked).await;
        answered
            .unwrap_or_else(|_| Err(errors::no_answer(url, limit)))
            .map_err(|err| self.hide_key(err))
    }

    /// A reported count of tokens makes the next guess better. Counts far below the usual leave something out.
    pub(super) fn learn(&self, model: &str, bytes: usize, reported: u64) {
        if let Some(known) = self.known.lock().get_mut(model)
            && bytes >= LEAST_LEARNED
            && reported.saturating_mul(6) >= bytes as u64
        {
            known.estimator.correct(bytes, reported);
        }
    }
}

#[cfg(test)]
#[path = "ask_tests.rs"]
mod tests;
