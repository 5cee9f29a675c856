//! Requests to a server for facts about a model and for the list of its models. They have a short timeout. The facts of
//! a model are requested once and cached for the lifetime of the provider.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Url;
use reqwest::header::{ACCEPT, HeaderValue};
use windlass_core::budget::Estimator;
use windlass_core::provider::{ModelFacts, Provider, ProviderError, ProviderErrorKind};

use super::{MAX_ERROR_BODY, WireProvider};
use crate::http::HttpResponse;
use crate::{errors, probe};

/// The facts that a server reported about a model, and the token estimate learned from its usage reports.
#[derive(Debug, Clone)]
pub(super) struct ProbedModel {
    pub(super) facts: ModelFacts,
    pub(super) estimator: Estimator,
}

const TIMEOUT: Duration = Duration::from_secs(10);
/// A server on this machine answers quickly or does not run.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum number of cached models.
const MAX_PROBED: usize = 256;
/// The maximum size of a list or a description, in bytes.
const MAX_LIST: usize = 8 << 20;

/// Smaller requests, in bytes, do not correct the token estimate.
const MIN_LEARNED: usize = 1_000;

impl WireProvider {
    /// Returns the facts of a model, from the cache or from the server.
    pub(super) async fn probe_once(&self, model: &str) -> Result<ProbedModel, ProviderError> {
        let probed = self.probed.lock().get(model).cloned();
        match probed {
            Some(probed) => Ok(probed),
            None => self.request_facts(model).await,
        }
    }

    async fn request_facts(&self, model: &str) -> Result<ProbedModel, ProviderError> {
        let mut probed = ProbedModel {
            facts: self.facts(model),
            estimator: Estimator::default(),
        };
        let Some((path, body)) = self.vendor.probe.request(model) else {
            return Ok(probed);
        };
        let url = self.endpoint.join(path);
        let answer = match self.fetch_json(&url, body).await {
            Ok(answer) => answer,
            // A server without this interface is used without its facts.
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
            .read(&answer, model, self.context_window, &mut probed.facts);
        let mut all = self.probed.lock();
        if all.len() < MAX_PROBED {
            all.insert(model.to_owned(), probed.clone());
        }
        Ok(probed)
    }

    /// Requests the list of models from the server.
    pub async fn models(&self) -> Result<Vec<String>, ProviderError> {
        let Some(path) = self.vendor.list else {
            return Err(errors::no_list(self.vendor.id));
        };
        let answer = self.fetch_json(&self.endpoint.join(path), None).await?;
        probe::names(&answer).ok_or_else(|| errors::no_list(self.vendor.id))
    }

    /// Requests a JSON document. Returns null if the answer is not JSON.
    async fn fetch_json(
        &self,
        url: &Url,
        body: Option<Vec<u8>>,
    ) -> Result<serde_json::Value, ProviderError> {
        let limit = if self.endpoint.is_loopback() {
            LOCAL_TIMEOUT
        } else {
            TIMEOUT
        };
        let fetch = async {
            let mut headers = self.headers.clone();
            headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
            let response = self.http.send(url, headers, body.map(Bytes::from)).await?;
            let HttpResponse {
                status,
                headers,
                body,
            } = response;
            if !(200..300).contains(&status) {
                let text = body.read_up_to(MAX_ERROR_BODY).await;
                return Err(errors::from_status(status, &headers, &text, (self.now)()));
            }
            Ok(serde_json::from_slice(&body.read_up_to(MAX_LIST).await).unwrap_or_default())
        };
        let result = tokio::time::timeout(limit, fetch).await;
        result
            .unwrap_or_else(|_| Err(errors::no_answer(url, limit)))
            .map_err(|err| self.hide_key(err))
    }

    /// Corrects the token estimate of a model by a reported count. Ignores implausibly low counts, which omit a part of
    /// the request.
    pub(super) fn learn(&self, model: &str, bytes: usize, reported: u64) {
        if let Some(probed) = self.probed.lock().get_mut(model)
            && bytes >= MIN_LEARNED
            && reported.saturating_mul(6) >= bytes as u64
        {
            probed.estimator.correct(bytes, reported);
        }
    }
}

#[cfg(test)]
#[path = "model_info_tests.rs"]
mod tests;
