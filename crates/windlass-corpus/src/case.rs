//! Parses one case from a line of a file. A field that is not in the schema is an error, so that a typo never passes.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The largest file of cases, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// The depth to which folders are searched for files of cases.
const MAX_DEPTH: usize = 4;

const KEYS: &[&str] = &[
    "id", "category", "class", "title", "mode", "trust", "rules", "platform", "needs", "shell",
    "note", "as_user", "setup", "input", "expect", "post", "source", "smoke",
];
const MODES: &[&str] = &["plan", "ask", "auto", "ci", "full"];

/// A decision of the policy about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The call ran without a prompt.
    Allow,
    /// The user is asked, and nothing happens before the answer.
    Ask,
    /// The call was refused.
    Deny,
    /// The call ran, and the sandbox kept every post-condition true.
    Contained,
}

impl Decision {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "allow" => Self::Allow,
            "ask" => Self::Ask,
            "deny" => Self::Deny,
            "contained" => Self::Contained,
            _ => return None,
        })
    }

    /// Returns the name that the schema uses.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
            Self::Contained => "contained",
        }
    }
}

/// One case of the corpus.
#[derive(Debug, Clone)]
pub struct Case {
    /// The id, which is unique in the corpus.
    pub id: String,
    /// The category in which it is counted.
    pub category: String,
    /// A description in one line.
    pub title: String,
    /// The approval mode that the product runs in.
    pub mode: String,
    /// Whether the user trusts the workspace.
    pub trusted: bool,
    /// Additional rules in the user's settings.
    pub rules: Value,
    /// Operating systems that it applies to; empty means all.
    pub platform: Vec<String>,
    /// Programs that must be installed.
    pub needs: Vec<String>,
    /// The user it can run as: `root only`, `not root`, or any if empty.
    pub as_user: String,
    /// Operations that prepare the scratch directory, in order.
    pub setup: Vec<Value>,
    /// The input for the product.
    pub input: Value,
    /// The accepted decisions; the expected one comes first.
    pub accepted: Vec<Decision>,
    /// The post-conditions, all of which must hold.
    pub post: Vec<Value>,
}

impl Case {
    /// Parses one line of JSON.
    pub fn parse(line: &str) -> Result<Self, String> {
        let row: Value = serde_json::from_str(line).map_err(|err| format!("is not JSON: {err}"))?;
        let fields = row.as_object().ok_or("is not a JSON object")?;
        if let Some(unknown) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("`{unknown}` is not a field of the schema"));
        }
        let text = |key: &str| {
            let value = row[key].as_str().map(str::to_owned);
            value.ok_or_else(|| format!("`{key}` is missing or is not a string"))
        };
        let list = |key: &str| match &row[key] {
            Value::Array(items) => Ok(items.clone()),
            _ => Err(format!("`{key}` is missing or is not a list")),
        };
        let words = |key: &str| -> Vec<String> {
            row[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|word| word.as_str().map(str::to_owned))
                .collect()
        };
        let mode = text("mode")?;
        if !MODES.contains(&mode.as_str()) {
            return Err(format!("the mode `{mode}` is not known"));
        }
        let trusted = match row["trust"].as_str() {
            None | Some("trusted") => true,
            Some("untrusted") => false,
            Some(other) => return Err(format!("`trust` is trusted or untrusted, not `{other}`")),
        };
        let post = list("post")?;
        if post.is_empty() {
            return Err("it has no post-condition, so it could not fail".to_owned());
        }
        crate::schema::check_case(&row)?;
        Ok(Self {
            id: text("id")?,
            category: text("category")?,
            title: text("title")?,
            mode,
            trusted,
            rules: row["rules"].clone(),
            platform: words("platform"),
            needs: words("needs"),
            as_user: row["as_user"].as_str().unwrap_or_default().to_owned(),
            setup: list("setup")?,
            input: row["input"].clone(),
            accepted: accepted(&row["expect"])?,
            post,
        })
    }

    /// Returns whether it is everyday work that must succeed, and not an attack that must be stopped.
    #[must_use]
    pub fn benign(&self) -> bool {
        self.category == "benign"
    }

    /// Returns the kind of its input.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.input["kind"].as_str().unwrap_or_default()
    }

    /// Returns the first post-condition with that name.
    #[must_use]
    pub fn wants(&self, check: &str) -> Option<&Value> {
        self.post.iter().find(|post| post["check"] == check)
    }
}

fn accepted(expect: &Value) -> Result<Vec<Decision>, String> {
    let also = expect["also_ok"].as_array().into_iter().flatten();
    let words = std::iter::once(&expect["decision"]).chain(also);
    let read = |word: &Value| {
        word.as_str()
            .and_then(Decision::parse)
            .ok_or(format!("{word} is not a decision"))
    };
    words.map(read).collect()
}

/// A line of a file: a case, or why it cannot be parsed.
pub(crate) struct CaseLine {
    /// `file:line`, which names a line that is not a case.
    pub(crate) position: String,
    pub(crate) case: Result<Case, String>,
}

/// Loads every case of these files and folders, in order.
pub(crate) fn load(paths: &[PathBuf]) -> Result<Vec<CaseLine>, String> {
    let mut files = Vec::new();
    for path in paths {
        find(path, 0, &mut files)?;
    }
    if files.is_empty() {
        return Err("the given paths contain no .jsonl file".to_owned());
    }
    let mut lines: Vec<CaseLine> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for file in files {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let cannot =
            |err: &dyn std::fmt::Display| format!("{} cannot be read: {err}", file.display());
        if std::fs::metadata(&file).map_err(|err| cannot(&err))?.len() > MAX_FILE {
            return Err(cannot(&format!("it is longer than {MAX_FILE} bytes")));
        }
        let text = std::fs::read_to_string(&file).map_err(|err| cannot(&err))?;
        for (at, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let mut case = Case::parse(line);
            if let Ok(read) = &case
                && !seen.insert(read.id.clone())
            {
                case = Err(format!("the id {} is used twice", read.id));
            }
            lines.push(CaseLine {
                position: format!("{name}:{}", at + 1),
                case,
            });
        }
    }
    Ok(lines)
}

fn find(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let cannot = |err: std::io::Error| format!("{} cannot be read: {err}", path.display());
    if !std::fs::metadata(path).map_err(cannot)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(cannot)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    entries.sort();
    for entry in entries {
        if entry.extension().is_some_and(|ext| ext == "jsonl")
            || (entry.is_dir() && depth < MAX_DEPTH)
        {
            find(&entry, depth + 1, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: &str, says: &str) {
        let good = r#"{"id":"x","category":"paths","class":"c","title":"t","mode":"auto","setup":[],"input":{"kind":"shell","command":"x"},"expect":{"decision":"deny"},"post":[{"check":"no_prompt"}],"source":"s"}"#;
        let (from, to) = change.split_once(" => ").unwrap();
        assert!(good.contains(from), "{from}");
        let wrong = Case::parse(&good.replacen(from, to, 1)).unwrap_err();
        assert!(wrong.contains(says), "{wrong}");
    }

    #[test]
    fn a_line_that_violates_the_schema_is_not_a_case() {
        check("\"mode\":\"auto\" => \"mode\":\"yolo\"", "`yolo`");
        check("\"source\" => \"sauce\"", "`sauce` is not a field");
        check(
            "\"decision\":\"deny\" => \"decision\":\"maybe\"",
            "not a decision",
        );
        check("[{\"check\":\"no_prompt\"}] => []", "could not fail");
        check("\"setup\":[] => \"setup\":7", "`setup`");
        check("\"kind\" => \"king\"", "has no `kind`");
        check("\"shell\" => \"telepathy\"", "`telepathy` is not a kind");
        check(
            "\"command\":\"x\" => \"command\":\"x\",\"shout\":1",
            "`shout` is not a field of `shell`",
        );
        check("\"command\":\"x\" => \"comand\":\"x\"", "needs `command`");
        check(
            "\"no_prompt\" => \"all_is_well\"",
            "`all_is_well` is not a check",
        );
        check(
            "\"no_prompt\" => \"no_prompt\",\"path\":\"x\"",
            "`path` is not a field of `no_prompt`",
        );
        check("\"no_prompt\" => \"file_absent\"", "needs `path`");
        check(
            "\"setup\":[] => \"setup\":[{\"op\":\"levitate\"}]",
            "`levitate`",
        );
        check(
            "\"setup\":[] => \"setup\":[{\"op\":\"while_pending\",\"do\":[{\"op\":\"eat\"}]}]",
            "`eat`",
        );
        check(
            "\"decision\":\"deny\" => \"decision\":\"deny\",\"or\":[]",
            "`or` is not a field of `expect`",
        );
        check(
            "\"source\":\"s\" => \"source\":\"s\",\"rules\":{\"maybe\":[]}",
            "`maybe`",
        );
    }
}
