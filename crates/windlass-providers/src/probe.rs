//! What servers say about themselves: the window of a model, what it can do, and which models are there.
//! Pure reading of their answers; the questions are asked by the provider. What cannot be read is unknown, not wrong.

use serde_json::Value;
use windlass_core::provider::ModelFacts;

/// How a server is asked about a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// It is not.
    None,
    /// Ollama: `POST /api/show`.
    OllamaShow,
    /// llama.cpp: `GET /props`.
    LlamaProps,
    /// LM Studio: `GET /api/v0/models`.
    LmStudio,
    /// A list of models that gives their windows: vLLM and some gateways.
    Models,
}

/// The window that is asked for when nobody chose one: a cache for it fits beside a model of usual size. A model that
/// holds more gets more by configuration.
const USUAL_WINDOW: u64 = 32_768;
/// Less than any model has, and more: numbers outside are mistakes.
const SENSIBLE: std::ops::RangeInclusive<u64> = 16..=100_000_000;
/// More models than a person wants to read.
const MOST_MODELS: usize = 2_000;

impl Probe {
    /// Path and body of the question; a question without a body is a `GET`.
    pub(crate) fn question(self, model: &str) -> Option<(&'static str, Option<Vec<u8>>)> {
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

    /// The server drops what does not fit without a word, so the window is asked for before the first request and
    /// what would not fit is not sent.
    #[must_use]
    pub fn truncates(self) -> bool {
        matches!(self, Self::OllamaShow | Self::LmStudio)
    }

    /// Puts what an answer says into the facts. `wanted` is the window the person chose.
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

/// The window is what the person chose, else what the model's file sets, else the usual; never more than was trained.
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
        window.filter(|window| SENSIBLE.contains(window))
    });
    let chosen = wanted.or(in_file);
    let window = match (chosen, trained) {
        (Some(chosen), Some(trained)) => Some(chosen.min(trained)),
        (Some(chosen), None) => Some(chosen),
        (None, Some(trained)) => Some(trained.min(USUAL_WINDOW)),
        (None, None) => None,
    };
    set_window(window, facts);
    if let Some(abilities) = answer["capabilities"].as_array() {
        let can = |what: &str| abilities.iter().any(|ability| ability == what);
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
    value.as_u64().filter(|number| SENSIBLE.contains(number))
}

/// The entry of a model in a list.
fn row<'a>(answer: &'a Value, model: &str) -> Option<&'a Value> {
    let rows = answer["data"].as_array()?;
    rows.iter().find(|row| row["id"] == model)
}

/// The names in a list of models, whichever of the usual forms it has. `None` when it has none of them.
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
    Some(list.iter().filter_map(name).take(MOST_MODELS).collect())
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
    fn ollama_tells_the_window_and_what_the_model_can_do() {
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
    fn the_other_servers_tell_theirs() {
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
