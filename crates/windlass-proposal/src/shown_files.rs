//! Shows files of the workspace to a model without tools: a list of the files, those that the task names, and those that
//! the model asks for. All sizes are limited. Credentials and files that rules hide are never shown.

use std::sync::Arc;

use windlass_core::CancellationToken;
use windlass_core::gate::is_credential;
use windlass_core::workspace::{Files, FindQuery};

/// At most this many files are listed.
const MAX_LISTED: usize = 400;
/// At most this many files are shown in one message.
const MAX_SHOWN: usize = 12;
/// At most this many lines of one file in one message; the model can ask for more.
const MAX_LINES: usize = 600;
/// A larger file, in bytes, is not shown.
const MAX_FILE: u64 = 2 << 20;
/// The maximum size of one message in bytes.
const MAX_MESSAGE: usize = 160_000;

/// A list of the files of the workspace, and the content of those that the prompt names.
pub(crate) async fn overview(
    files: &Arc<dyn Files>,
    prompt: &str,
    cancel: &CancellationToken,
) -> String {
    let (files, prompt, cancel) = (Arc::clone(files), prompt.to_owned(), cancel.clone());
    blocking(move || {
        let query = FindQuery {
            under: String::new(),
            glob: "**/*".to_owned(),
            max: MAX_LISTED,
        };
        let found = files.find(&query, &cancel).unwrap_or_default();
        let paths: Vec<&str> = found
            .paths
            .iter()
            .map(String::as_str)
            .filter(|path| !is_credential(path))
            .collect();
        let more = if found.more { "\n(there are more)" } else { "" };
        let named: Vec<String> = paths
            .iter()
            .filter(|path| names(&prompt, path))
            .map(|path| (*path).to_owned())
            .collect();
        let mut out = format!("Files of the workspace:\n{}{more}\n", paths.join("\n"));
        out.push_str(&show_all(files.as_ref(), &named));
        out
    })
    .await
}

/// The content of the files that the model asked for, each as `path` or `path:first-last`.
pub(crate) async fn asked_for(files: &Arc<dyn Files>, wanted: &[String]) -> String {
    let (files, wanted) = (Arc::clone(files), wanted.to_vec());
    blocking(move || show_all(files.as_ref(), &wanted)).await
}

async fn blocking(look: impl FnOnce() -> String + Send + 'static) -> String {
    tokio::task::spawn_blocking(look)
        .await
        .unwrap_or_else(|err| format!("the files could not be read: {err}"))
}

fn show_all(files: &dyn Files, wanted: &[String]) -> String {
    let mut out = String::new();
    for (index, one) in wanted.iter().enumerate() {
        let shown = if index < MAX_SHOWN {
            show(files, one)
        } else {
            String::new()
        };
        if shown.is_empty() || out.len() + shown.len() > MAX_MESSAGE {
            out.push_str(&format!(
                "\n(not shown, because this message is full: {}; ask for them next)\n",
                wanted[index..].join(", ")
            ));
            break;
        }
        out.push_str(&shown);
    }
    out
}

fn show(files: &dyn Files, wanted: &str) -> String {
    let (path, first, last) = range(wanted);
    if is_credential(path) {
        return format!("\n{path} names credentials and is not shown.\n");
    }
    let bytes = match files.read(path, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(err) => return format!("\n{path}: {}\n", err.message),
    };
    let Ok(text) = String::from_utf8(bytes) else {
        return format!("\n{path} is not text.\n");
    };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let from = first.saturating_sub(1).min(lines.len());
    let until = last
        .min(from.saturating_add(MAX_LINES))
        .clamp(from, lines.len());
    let body: String = lines[from..until].concat();
    let body = &body[..body.floor_char_boundary(MAX_MESSAGE / 2)];
    let open = if body.ends_with('\n') || body.is_empty() {
        ""
    } else {
        "\n"
    };
    format!(
        "\n===== {path}, lines {} to {until} of {} =====\n{body}{open}===== end of {path} =====\n",
        from + 1,
        lines.len()
    )
}

/// Parses `src/a.rs:10-80` as a path and a range of lines; without a range, the whole file is meant.
fn range(wanted: &str) -> (&str, usize, usize) {
    let whole = (wanted.trim(), 1, usize::MAX);
    let Some((path, lines)) = wanted.trim().rsplit_once(':') else {
        return whole;
    };
    let Some((first, last)) = lines.split_once('-') else {
        return whole;
    };
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) => (path, first, last),
        _ => whole,
    }
}

/// Whether a text contains this path as a separate word.
fn names(text: &str, path: &str) -> bool {
    let part = |character: char| character.is_alphanumeric() || "_-/".contains(character);
    text.match_indices(path).any(|(at, _)| {
        !text[..at].ends_with(|before: char| part(before) || before == '.')
            && !text[at + path.len()..].starts_with(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_only_as_a_separate_word() {
        assert!(names("fix `src/a.rs`.", "src/a.rs"));
        assert!(!names("fix other/src/a.rs", "src/a.rs"));
        assert!(!names("see a.rsx", "a.rs"));
    }

    #[test]
    fn a_range_of_lines_is_parsed() {
        assert_eq!(range("a.rs:10-80"), ("a.rs", 10, 80));
        assert_eq!(range(" a:b.rs "), ("a:b.rs", 1, usize::MAX));
    }
}
