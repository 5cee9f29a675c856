//! Answers requests from recorded exchanges, in order, instead of the network. By default a request must equal the
//! recorded one; otherwise the error names the first difference. For foreign agents, [`CassettePlayer::loosely`]
//! compares less. The player never opens a connection.

use parking_lot::Mutex;
use std::sync::Arc;

use serde_json::Value;
use windlass_core::workspace::Redactor;

use super::record::SentRequest;
use super::{CassetteError, RecordedExchange};

/// Answers requests from a cassette. Clones share the position in it.
#[derive(Clone)]
pub struct CassettePlayer {
    rows: Arc<Vec<RecordedExchange>>,
    next: Arc<Mutex<usize>>,
    /// In loose mode: for each exchange, whether it was played.
    played: Option<Arc<Mutex<Vec<bool>>>>,
    redactor: Arc<dyn Redactor>,
}

impl std::fmt::Debug for CassettePlayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CassettePlayer")
            .field("rows", &self.rows.len())
            .finish_non_exhaustive()
    }
}

/// A recorded response, decoded for playback.
pub(crate) struct PlayedResponse {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

impl CassettePlayer {
    /// Parses a cassette, one exchange per line. Pass the redactor that was used for recording: it is applied to each
    /// request before the comparison, so that removed secrets do not count as differences.
    pub fn parse(text: &str, redactor: Arc<dyn Redactor>) -> Result<Self, CassetteError> {
        let mut rows = Vec::new();
        for (at, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let row = RecordedExchange::parse(line).map_err(|err| CassetteError::Line {
                line: at + 1,
                why: err.to_string(),
            })?;
            row.body()?;
            rows.push(row);
        }
        if rows.is_empty() {
            return Err(CassetteError::Empty);
        }
        Ok(Self {
            rows: Arc::new(rows),
            next: Arc::default(),
            played: None,
            redactor,
        })
    }

    /// Returns a player for foreign agents. These put a session id, a directory and the time into every request, and
    /// send several requests at once. So a request is answered by the first unplayed exchange with the same method,
    /// path and model.
    #[must_use]
    pub fn loosely(self) -> Self {
        let played = vec![false; self.rows.len()];
        Self {
            played: Some(Arc::new(Mutex::new(played))),
            ..self
        }
    }

    /// Returns the first exchange whose request names a model, and the name.
    #[must_use]
    pub fn first_model(&self) -> Option<(&RecordedExchange, String)> {
        self.rows.iter().find_map(|row| {
            let body: Value = serde_json::from_str(&row.request.body).ok()?;
            Some((row, body.get("model")?.as_str()?.to_owned()))
        })
    }

    /// Returns the number of exchanges that were not played yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.rows.len() - *self.next.lock()
    }

    /// Plays the first unplayed exchange with the same method, path and model.
    fn loose_answer(
        &self,
        played: &Mutex<Vec<bool>>,
        sent: &SentRequest<'_>,
    ) -> Result<PlayedResponse, String> {
        let sent = sent.recorded(self.redactor.as_ref());
        let mut played = played.lock();
        let model = model_of(&sent.body);
        let fits = |row: &RecordedExchange| {
            let same_place = (&row.request.method, &row.request.path) == (&sent.method, &sent.path);
            same_place && model_of(&row.request.body) == model
        };
        let found = self
            .rows
            .iter()
            .enumerate()
            .find(|(at, row)| !played[*at] && fits(row));
        let Some((at, row)) = found else {
            let (method, path) = (&sent.method, &sent.path);
            let with = model.map_or(String::new(), |model| format!(" with the model `{model}`"));
            return Err(format!(
                "the cassette contains no unplayed exchange for {method} {path}{with}; record it again"
            ));
        };
        played[at] = true;
        *self.next.lock() += 1;
        Ok(answer_of(row))
    }

    /// Plays the next exchange, if the request equals the recorded one.
    pub(crate) fn answer(&self, sent: &SentRequest<'_>) -> Result<PlayedResponse, String> {
        if let Some(played) = &self.played {
            return self.loose_answer(played, sent);
        }
        let mut next = self.next.lock();
        let total = self.rows.len();
        let Some(row) = self.rows.get(*next) else {
            return Err(format!(
                "the cassette contains {total} exchanges, but a further request was sent; record it again"
            ));
        };
        let sent = sent.recorded(self.redactor.as_ref());
        let recorded = &row.request;
        let different = |what: &str, was: &str, is: &str| {
            let number = *next + 1;
            format!(
                "exchange {number} of {total} (`{}`) was recorded with another {what}: recorded {was}, sent {is}; \
                             record it again, or run it as it was recorded",
                row.id
            )
        };
        if !recorded.method.is_empty() && recorded.method != sent.method {
            return Err(different("method", &recorded.method, &sent.method));
        }
        if !recorded.path.is_empty() && recorded.path != sent.path {
            return Err(different("path", &recorded.path, &sent.path));
        }
        if let Some((place, was, is)) = first_difference(&recorded.body, &sent.body) {
            return Err(different(&format!("body at `{place}`"), &was, &is));
        }
        *next += 1;
        Ok(answer_of(row))
    }
}

fn answer_of(row: &RecordedExchange) -> PlayedResponse {
    PlayedResponse {
        status: row.response.status,
        content_type: row.response.content_type.clone(),
        body: row.body().unwrap_or_default(), // was valid when the cassette was parsed
    }
}

/// Returns the model that a request body names.
fn model_of(body: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct ModelField {
        model: Option<String>,
    }
    serde_json::from_str::<ModelField>(body).ok()?.model
}

/// Returns the JSON pointer of the first difference between two bodies and both values there, or `None` if they are
/// equal.
pub(super) fn first_difference(was: &str, is: &str) -> Option<(String, String, String)> {
    if was == is {
        return None;
    }
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    match (parse(was), parse(is)) {
        (Some(was), Some(is)) => different_value("", &was, &is),
        _ => Some(("/".to_owned(), brief(was), brief(is))),
    }
}

fn different_value(place: &str, was: &Value, is: &Value) -> Option<(String, String, String)> {
    let named = |key: &str| format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"));
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => {
            let changed = was.iter().find_map(|(key, value)| match is.get(key) {
                Some(other) => different_value(&named(key), value, other),
                None => Some((named(key), brief(&value.to_string()), "nothing".to_owned())),
            });
            let added = || is.iter().find(|(key, _)| !was.contains_key(*key));
            changed.or_else(|| {
                added().map(|(key, value)| {
                    (named(key), "nothing".to_owned(), brief(&value.to_string()))
                })
            })
        }
        (Value::Array(was), Value::Array(is)) => {
            let pairs = was.iter().zip(is).enumerate();
            let changed = pairs
                .into_iter()
                .find_map(|(at, (a, b))| different_value(&named(&at.to_string()), a, b));
            changed.or_else(|| {
                let at = was.len().min(is.len());
                let excerpt = |list: &[Value]| {
                    list.get(at)
                        .map_or("nothing".to_owned(), |v| brief(&v.to_string()))
                };
                (was.len() != is.len()).then(|| (named(&at.to_string()), excerpt(was), excerpt(is)))
            })
        }
        (Value::String(was), Value::String(is)) if was != is => {
            let (was, is) = around_difference(was, is);
            Some((place.to_owned(), was, is))
        }
        (was, is) if was != is => Some((
            place.to_owned(),
            brief(&was.to_string()),
            brief(&is.to_string()),
        )),
        _ => None,
    }
}

/// Returns an excerpt of both texts around their first difference.
fn around_difference(was: &str, is: &str) -> (String, String) {
    let same = was
        .chars()
        .zip(is.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let excerpt = |text: &str| {
        let from: String = text
            .chars()
            .skip(same.saturating_sub(20))
            .take(80)
            .collect();
        format!("{}{from:?}", if same > 20 { "…" } else { "" })
    };
    (excerpt(was), excerpt(is))
}

fn brief(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
