//! Parses the descriptions that servers give of their models: context window, capabilities, and the list of models.
//! Pure; the provider sends the requests. Values that cannot be parsed are treated as unknown, not as errors.

use serde_json::Value;
use windlass_core::provider::ModelFacts;

/// The request with which a server describes a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// The server describes no models.
    None,
    /// `POST /api/show` of Ollama.
    OllamaShow,
    /// `GET /props` of llama.cpp.
    LlamaProps,
    /// `GET /api/v0/models` of LM Studio.
    LmStudio,
    /// `GET /models` of vLLM and some gateways, which lists the models with their context windows.
    Models,
}

/// The default window for Ollama, in tokens. Its cache fits into memory together with a model of common size. Users can
/// configure a larger window.
const DEFAULT_WINDOW: u64 = 32_768;
/// Plausible windows, in tokens. Numbers outside this range are ignored.
const PLAUSIBLE: std::ops::RangeInclusive<u64> = 16..=100_000_000;
/// The maximum length of a list of models.
const MAX_MODELS: usize = 2_000;

impl Probe {
    /// Returns path and body of the request; a request without a body is a `GET`.
    pub(crate) fn request(self, model: &str) -> Option<(&'static str, Option<Vec<u8>>)> {
        match self {
            Self::None => None,
            Self::OllamaShow => {
                let body = serde_json::json!({ "model": model }).to_string();
                Some(("/api/show", Some(body.into_bytes())))
            }
            Self::LlamaProps => Some(("/props", None)),
            Self::LmStudio => Some(("/api/v0/models", None)),
            Self::Models => Some(("/models", None)),
        }
    }

    /// Returns whether the server silently truncates a prompt that does not fit. For such servers the provider requests
    /// the window before the first model request, and rejects requests that would not fit.
    #[must_use]
    pub fn truncates(self) -> bool {
        matches!(self, Self::OllamaShow | Self::LmStudio)
    }

    /// Merges the server's description into the facts. `wanted` is the window from the user's settings.
    pub(crate) fn read(
        self,
        answer: &Value,
        model: &str,
        wanted: Option<u64>,
        facts: &mut ModelFacts,
    ) {
        match self {
            Self::None => {}
            Self::OllamaShow => ollama(answer, wanted, facts),
            Self::LlamaProps => {
                let window = number(&answer["default_generation_settings"]["n_ctx"]);
                set_window(window.or_else(|| number(&answer["n_ctx"])), facts);
                if let Some(images) = answer["modalities"]["vision"].as_bool() {
                    facts.images = images;
                }
            }
            Self::LmStudio | Self::Models => {
                let Some(row) = row(answer, model) else {
                    return;
                };
                let fields = [
                    "loaded_context_length",
                    "max_model_len",
                    "context_length",
                    "max_context_length",
                ];
                let window = fields.iter().find_map(|name| number(&row[*name]));
                set_window(window, facts);
                if let Some(kind) = row["type"].as_str().filter(|_| self == Self::LmStudio) {
                    facts.images = kind == "vlm";
                }
            }
        }
    }
}

/// Sets the window from the user's settings, the model file or the default, in this order, limited to the window that
/// the model was trained with.
fn ollama(answer: &Value, wanted: Option<u64>, facts: &mut ModelFacts) {
    let trained = answer["model_info"]
        .as_object()
        .into_iter()
        .flatten()
        .find(|(name, _)| name.ends_with(".context_length"))
        .and_then(|(_, value)| number(value));
    let in_file = answer["parameters"].as_str().and_then(|text| {
        let mut lines = text.lines().map(str::trim);
        let value = lines.find_map(|line| line.strip_prefix("num_ctx"))?;
        let window = value.trim().parse().ok();
        window.filter(|window| PLAUSIBLE.contains(window))
    });
    let chosen = wanted.or(in_file);
    let window = match (chosen, trained) {
        (Some(chosen), Some(trained)) => Some(chosen.min(trained)),
        (Some(chosen), None) => Some(chosen),
        (None, Some(trained)) => Some(trained.min(DEFAULT_WINDOW)),
        (None, None) => None,
    };
    set_window(window, facts);
    if let Some(capabilities) = answer["capabilities"].as_array() {
        let can = |what: &str| capabilities.iter().any(|capability| capability == what);
        facts.tools = can("tools");
        facts.images = can("vision");
    }
}

fn set_window(window: Option<u64>, facts: &mut ModelFacts) {
    if let Some(window) = window {
        facts.context_window = Some(window);
        facts.max_output = facts.max_output.min(window);
    }
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().filter(|number| PLAUSIBLE.contains(number))
}

/// Finds a model in a list.
fn row<'a>(answer: &'a Value, model: &str) -> Option<&'a Value> {
    let rows = answer["data"].as_array()?;
    rows.iter().find(|row| row["id"] == model)
}

/// Returns the names in a list of models, in any of the common formats, or `None` if the format is unknown.
pub(crate) fn names(answer: &Value) -> Option<Vec<String>> {
    let list = answer
        .get("data")
        .or_else(|| answer.get("models"))?
        .as_array()?;
    let name = |row: &Value| {
        let name = row
            .get("id")
            .or_else(|| row.get("model"))
            .or_else(|| row.get("name"))?
            .as_str()?;
        let name = name.strip_prefix("models/").unwrap_or(name);
        (!name.is_empty() && name.len() <= 300 && !name.chars().any(char::is_control))
            .then(|| name.to_owned())
    };
    Some(list.iter().filter_map(name).take(MAX_MODELS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(probe: Probe, answer: Value, wanted: Option<u64>, window: Option<u64>) -> ModelFacts {
        let mut facts = ModelFacts::default();
        probe.read(&answer, "m", wanted, &mut facts);
        assert_eq!(facts.context_window, window, "{answer}");
        facts
    }

    #[test]
    fn ollama_reports_the_window_and_the_capabilities() {
        let show = |trained: u64, parameters: &str| {
            json!({ "model_info": { "general.architecture": "qwen3", "qwen3.context_length": trained },
                    "parameters": parameters, "capabilities": ["completion", "tools"] })
        };
        let facts = check(Probe::OllamaShow, show(4_096, ""), None, Some(4_096));
        assert_eq!(
            (facts.tools, facts.images, facts.max_output),
            (true, false, 4_096)
        );
        check(
            Probe::OllamaShow,
            show(131_072, "stop x"),
            None,
            Some(32_768),
        );
        check(
            Probe::OllamaShow,
            show(131_072, "temperature 1\nnum_ctx     65536"),
            None,
            Some(65_536),
        );
        check(
            Probe::OllamaShow,
            show(131_072, "num_ctx 8192"),
            Some(100_000),
            Some(100_000),
        );
        check(
            Probe::OllamaShow,
            show(2_048, "num_ctx 8192"),
            Some(100_000),
            Some(2_048),
        );
        check(
            Probe::OllamaShow,
            json!({ "model_info": { "a.context_length": -1 } }),
            None,
            None,
        );
        check(Probe::OllamaShow, json!([]), Some(5_000), Some(5_000));
    }

    #[test]
    fn the_other_servers_report_the_window() {
        check(
            Probe::LlamaProps,
            json!({ "default_generation_settings": { "n_ctx": 512 } }),
            None,
            Some(512),
        );
        check(Probe::LlamaProps, json!({ "n_ctx": "many" }), None, None);
        let list = json!({ "data": [{ "id": "x", "max_context_length": 1 }, { "id": "m", "type": "vlm",
            "max_context_length": 32_768, "loaded_context_length": 4_096 }] });
        assert!(check(Probe::LmStudio, list, None, Some(4_096)).images);
        check(
            Probe::Models,
            json!({ "data": [{ "id": "m", "max_model_len": 8_192 }] }),
            None,
            Some(8_192),
        );
        check(
            Probe::Models,
            json!({ "data": [{ "id": "other", "max_model_len": 8_192 }] }),
            None,
            None,
        );
    }

    #[test]
    fn lists_of_models_have_several_forms() {
        for (answer, expect) in [
            (
                json!({ "data": [{ "id": "a" }, { "id": "" }, { "object": "x" }] }),
                Some(vec!["a"]),
            ),
            (
                json!({ "models": [{ "name": "qwen3:4b", "model": "qwen3:4b" }] }),
                Some(vec!["qwen3:4b"]),
            ),
            (
                json!({ "models": [{ "name": "models/gemini" }] }),
                Some(vec!["gemini"]),
            ),
            (json!({ "error": "no" }), None),
        ] {
            let expect =
                expect.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(names(&answer), expect, "{answer}");
        }
    }
}
