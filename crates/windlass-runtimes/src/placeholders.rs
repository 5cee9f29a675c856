//! Texts of the user or of a profile with placeholders in braces, for values that are known when an agent is started:
//! the address of its model, its home, the workspace.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::agent::{AgentAttempt, ModelAccess};

/// The variables of all common clients. An agent that needs others gets them through its options.
pub(crate) const COMMON_CLIENT_ENV: &[(&str, &str)] = &[
    ("ANTHROPIC_BASE_URL", "{url}"),
    ("ANTHROPIC_API_KEY", "{key}"),
    ("OPENAI_BASE_URL", "{url}/v1"),
    ("OPENAI_API_BASE", "{url}/v1"),
    ("OPENAI_API_KEY", "{key}"),
    ("GOOGLE_GEMINI_BASE_URL", "{url}"),
    ("GEMINI_API_KEY", "{key}"),
];

pub(crate) type Texts = BTreeMap<String, String>;

/// Copies the texts of a profile.
pub(crate) fn owned(pairs: &[(&str, &str)]) -> Texts {
    let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    pairs.iter().map(owned).collect()
}

/// Environment and files for the start of a program.
#[derive(Debug, Clone, Default)]
pub struct LaunchTexts {
    pub env: Texts,
    /// Variables for the model endpoint; not set if the agent uses its own login.
    pub point_at: Texts,
    /// Contents of files in the agent's home, by their path there.
    pub home_files: Texts,
    /// Files and directories of the home that are removed before each start.
    pub clear: Vec<String>,
}

impl LaunchTexts {
    /// All texts that are used with or without a metered endpoint.
    pub(crate) fn used(&self, metered: bool) -> impl Iterator<Item = &String> {
        let pointing = self.point_at.values().filter(move |_| metered);
        let others = self.env.values().chain(self.home_files.values());
        pointing.chain(others)
    }
}

/// Values for the placeholders in braces.
pub(crate) struct PlaceholderValues<'a> {
    /// The name of the agent, for error messages.
    pub(crate) of: &'a str,
    pub(crate) access: &'a ModelAccess,
    pub(crate) model: Option<&'a str>,
    pub(crate) home: Cow<'a, str>,
    pub(crate) workspace: Cow<'a, str>,
    /// Further placeholders, with their braces.
    pub(crate) words: &'a [(&'a str, &'a str)],
}

impl<'a> PlaceholderValues<'a> {
    pub(crate) fn new(
        attempt: &'a AgentAttempt<'_>,
        of: &'a str,
        model: Option<&'a str>,
        words: &'a [(&'a str, &'a str)],
    ) -> Self {
        Self {
            of,
            access: &attempt.model,
            model,
            home: attempt.enclosure.home().to_string_lossy(),
            workspace: attempt.job.files.root().to_string_lossy(),
            words,
        }
    }

    /// Fills a word of the command. Unlike other texts, it cannot be omitted.
    pub(crate) fn word(&self, word: &str) -> Result<String, String> {
        let filled = self.fill_or_omit("the command", word)?;
        filled.ok_or_else(|| {
            let of = self.of;
            format!("the command of {of} contains the model endpoint, but this run has none")
        })
    }

    /// Writes the files into the agent's home, and returns its variables.
    pub(crate) fn prepare(
        &self,
        attempt: &AgentAttempt<'_>,
        texts: &LaunchTexts,
    ) -> Result<Vec<(String, String)>, String> {
        let mut env = Texts::new();
        let pointing = texts.point_at.iter().filter(|_| self.access.is_metered());
        for (name, text) in pointing.chain(&texts.env) {
            if let Some(text) = self.fill_or_omit(name, text)? {
                env.insert(name.clone(), text);
            }
        }
        attempt.clear_home(&texts.clear)?;
        for (path, text) in &texts.home_files {
            if let Some(text) = self.fill_or_omit(path, text)? {
                attempt.put_home(path, &text)?;
            }
        }
        Ok(env.into_iter().collect())
    }

    /// Fills a text. `None` if the text needs a model endpoint and this run has none; any other missing value is an
    /// error.
    fn fill_or_omit(&self, what: &str, text: &str) -> Result<Option<String>, String> {
        let filled = self.fill(text);
        if filled.is_none() && self.model.is_none() && text.contains("{model}") {
            let of = self.of;
            return Err(format!("{what} of {of} needs a model; name one"));
        }
        Ok(filled)
    }

    /// Fills a text; `None` if a value is missing in this run. In a text that is a JSON object, values are escaped as
    /// parts of JSON strings.
    pub(crate) fn fill(&self, text: &str) -> Option<String> {
        let json = text.starts_with("{\"");
        let (url, key) = match self.access {
            ModelAccess::Metered { url, key } => (Some(url.as_str()), Some(key.as_str())),
            ModelAccess::Own => (None, None),
        };
        let known = [
            ("{url}", url),
            ("{key}", key),
            ("{model}", self.model),
            ("{home}", Some(self.home.as_ref())),
            ("{workspace}", Some(self.workspace.as_ref())),
        ];
        let known = known
            .into_iter()
            .chain(self.words.iter().map(|(word, value)| (*word, Some(*value))));
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            match known.clone().find(|(word, _)| rest.starts_with(word)) {
                Some((word, value)) => {
                    match serde_json::to_string(value?) {
                        Ok(quoted) if json => filled.push_str(&quoted[1..quoted.len() - 1]),
                        _ => filled.push_str(value?),
                    }
                    rest = &rest[word.len()..];
                }
                None => {
                    filled.push('{');
                    rest = &rest[1..];
                }
            }
        }
        filled.push_str(rest);
        Some(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(access: &ModelAccess, text: &str, filled: Option<&str>) {
        let values = PlaceholderValues {
            of: "a",
            access,
            model: Some("m{url}"),
            home: "/h".into(),
            workspace: "/w".into(),
            words: &[("{path}", "/v1")],
        };
        assert_eq!(values.fill(text).as_deref(), filled);
    }

    #[test]
    fn placeholders_are_filled_once_and_a_missing_value_omits_the_text() {
        let metered = ModelAccess::Metered {
            url: "http://127.0.0.1:9".into(),
            key: "k".into(),
        };
        check(&metered, "{url}{path}", Some("http://127.0.0.1:9/v1"));
        check(
            &metered,
            "{\"a\":{\"b\":\"{model}\"}}",
            Some("{\"a\":{\"b\":\"m{url}\"}}"),
        );
        check(&metered, "{key}", Some("k"));
        check(&ModelAccess::Own, "{key}", None);
        check(
            &metered,
            "{home}:{workspace}:{other}:{",
            Some("/h:/w:{other}:{"),
        );
    }
}
