//! Plays recorded exchanges in the place of the network, in order. Strict: a request that is not the recorded one is
//! an error that names the first difference. For agents that are not ours it can be told to be less so. It never connects
//! to anything.

use parking_lot::Mutex;
use std::sync::Arc;

use serde_json::Value;
use windlass_core::workspace::Redactor;

use super::record::Asked;
use super::{CassetteError, Row};

/// Plays a cassette. Clones play the same one.
#[derive(Clone)]
pub struct Player {
    rows: Arc<Vec<Row>>,
    next: Arc<Mutex<usize>>,
    /// Rows that were played, where they are played in any order.
    played: Option<Arc<Mutex<Vec<bool>>>>,
    redactor: Arc<dyn Redactor>,
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Player")
            .field("rows", &self.rows.len())
            .finish_non_exhaustive()
    }
}

/// A recorded answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

impl Player {
    /// Reads a cassette, one row a line. The redactor is the one it was recorded with, so that what was taken out
    /// then is taken out of what is asked now.
    pub fn parse(text: &str, redactor: Arc<dyn Redactor>) -> Result<Self, CassetteError> {
        let mut rows = Vec::new();
        for (at, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let row = Row::parse(line).map_err(|err| CassetteError::Line {
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

    /// The same for an agent that is not ours, which says its session, its folder and the time in every request and asks
    /// several things at once: a request is answered by the first exchange left that went to the same place with the same
    /// model.
    #[must_use]
    pub fn loosely(self) -> Self {
        let played = vec![false; self.rows.len()];
        Self {
            played: Some(Arc::new(Mutex::new(played))),
            ..self
        }
    }

    /// The first exchange in which a model was named, and its name.
    #[must_use]
    pub fn first_model(&self) -> Option<(&Row, String)> {
        self.rows.iter().find_map(|row| {
            let body: Value = serde_json::from_str(&row.request.body).ok()?;
            Some((row, body.get("model")?.as_str()?.to_owned()))
        })
    }

    /// Exchanges that have not been played.
    #[must_use]
    pub fn left(&self) -> usize {
        self.rows.len() - *self.next.lock()
    }

    /// The first exchange left that went to the same place with the same model.
    fn loose_answer(&self, played: &Mutex<Vec<bool>>, asked: &Asked<'_>) -> Result<Answer, String> {
        let asked = asked.row(self.redactor.as_ref());
        let mut played = played.lock();
        let model = model_of(&asked.body);
        let fits = |row: &Row| {
            let there = (&row.request.method, &row.request.path) == (&asked.method, &asked.path);
            there && model_of(&row.request.body) == model
        };
        let found = self
            .rows
            .iter()
            .enumerate()
            .find(|(at, row)| !played[*at] && fits(row));
        let Some((at, row)) = found else {
            let (method, path) = (&asked.method, &asked.path);
            let with = model.map_or(String::new(), |model| format!(" with the model `{model}`"));
            return Err(format!(
                "the cassette holds no exchange that is left for {method} {path}{with}; record it anew"
            ));
        };
        played[at] = true;
        *self.next.lock() += 1;
        Ok(answer_of(row))
    }

    /// The next answer, if this is the next request.
    pub(crate) fn answer(&self, asked: &Asked<'_>) -> Result<Answer, String> {
        if let Some(played) = &self.played {
            return self.loose_answer(played, asked);
        }
        let mut next = self.next.lock();
        let total = self.rows.len();
        let Some(row) = self.rows.get(*next) else {
            return Err(format!(
                "the cassette holds {total} exchanges, and one more was asked for; record it anew"
            ));
        };
        let asked = asked.row(self.redactor.as_ref());
        let recorded = &row.request;
        let different = |what: &str, was: &str, is: &str| {
            let number = *next + 1;
            format!(
                "exchange {number} of {total} (`{}`) was recorded with another {what}: recorded {was}, asked {is}; \
                 record it anew, or run it as it was recorded",
                row.id
            )
        };
        if !recorded.method.is_empty() && recorded.method != asked.method {
            return Err(different("method", &recorded.method, &asked.method));
        }
        if !recorded.path.is_empty() && recorded.path != asked.path {
            return Err(different("path", &recorded.path, &asked.path));
        }
        if let Some((place, was, is)) = first_difference(&recorded.body, &asked.body) {
            return Err(different(&format!("body at `{place}`"), &was, &is));
        }
        *next += 1;
        Ok(answer_of(row))
    }
}

fn answer_of(row: &Row) -> Answer {
    Answer {
        status: row.response.status,
        content_type: row.response.content_type.clone(),
        body: row.body().unwrap_or_default(), // was readable when the cassette was read
    }
}

/// The model that a body names.
fn model_of(body: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        model: Option<String>,
    }
    serde_json::from_str::<Named>(body).ok()?.model
}

/// Where two bodies differ first, and what stands there; `None` when they say the same.
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
                let shown = |list: &[Value]| {
                    list.get(at)
                        .map_or("nothing".to_owned(), |v| brief(&v.to_string()))
                };
                (was.len() != is.len()).then(|| (named(&at.to_string()), shown(was), shown(is)))
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

/// The words of two texts from a little before they part.
fn around_difference(was: &str, is: &str) -> (String, String) {
    let same = was
        .chars()
        .zip(is.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let shown = |text: &str| {
        let from: String = text
            .chars()
            .skip(same.saturating_sub(20))
            .take(80)
            .collect();
        format!("{}{from:?}", if same > 20 { "…" } else { "" })
    };
    (shown(was), shown(is))
}

fn brief(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
