//! Texts of a person's or a profile's with words in braces that stand for what is known when an agent is started: where
//! its model is asked, its home, the tree. Nothing here knows whose texts they are.

use crate::agent::ModelAccess;

/// Every client's own variables: whoever needs another kind says so in its options.
pub(crate) const EVERY_CLIENT: &[(&str, &str)] = &[
    ("ANTHROPIC_BASE_URL", "{url}"),
    ("ANTHROPIC_API_KEY", "{key}"),
    ("OPENAI_BASE_URL", "{url}/v1"),
    ("OPENAI_API_BASE", "{url}/v1"),
    ("OPENAI_API_KEY", "{key}"),
    ("GOOGLE_GEMINI_BASE_URL", "{url}"),
    ("GEMINI_API_KEY", "{key}"),
];

/// Values that stand for words in braces.
pub(crate) struct Values<'a> {
    /// Where its model is asked.
    pub(crate) access: &'a ModelAccess,
    pub(crate) model: Option<&'a str>,
    pub(crate) home: &'a str,
    pub(crate) workspace: &'a str,
    /// Further ones, with their braces.
    pub(crate) words: &'a [(&'a str, &'a str)],
}

impl Values<'_> {
    /// The text with its values; `None` where one of them is not there in this run. In a text that is a JSON object they
    /// are written as parts of JSON strings.
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
            ("{home}", Some(self.home)),
            ("{workspace}", Some(self.workspace)),
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
        let values = Values {
            access,
            model: Some("m{url}"),
            home: "/h",
            workspace: "/w",
            words: &[("{path}", "/v1")],
        };
        assert_eq!(values.fill(text).as_deref(), filled);
    }

    #[test]
    fn words_in_braces_are_filled_once_and_what_is_missing_leaves_the_text_out() {
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
