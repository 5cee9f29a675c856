//! The meaning of a text that the user submits: a prompt, a shell command, a note or a command of the interface.

use super::folds::FoldedText;

/// A text that the user submitted, with its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    pub kind: SubmissionKind,
    /// The whole text with every paste in full, including a prefix such as `!`.
    pub text: String,
    /// The text as it was shown, with labels in the place of folded pastes.
    pub shown: String,
    /// The paths of images that the text mentions as `@path`, each once.
    pub attachments: Vec<PromptAttachment>,
}

/// The kind of a submitted text. A space before the prefix makes a text a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmissionKind {
    Prompt,
    /// The command line after `!`.
    Shell(String),
    /// The text after `#`.
    Note(String),
    /// A known command. The name has no slash.
    Command {
        name: String,
        arguments: String,
    },
}

/// A file that goes with a prompt. The path is as typed: absolute, below the home directory, or below the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptAttachment {
    pub path: String,
}

/// The reason why a text cannot be submitted. The user can correct it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SubmissionError {
    Empty,
    Invalid(String),
}

/// Images in one prompt that become attachments.
const MAX_ATTACHMENTS: usize = 100;
/// Characters of a mentioned path.
const MAX_PATH_CHARS: usize = 4_096;
const IMAGE_ENDINGS: &[&str] = &["png", "jpg", "jpeg", "gif", "webp"];

/// Reads the prefix of a text. `commands` are the names of the known commands.
pub(super) fn parse<'a>(
    folded: &FoldedText,
    shown: String,
    commands: impl Iterator<Item = &'a str> + Clone,
) -> Result<Submission, SubmissionError> {
    let text = folded.expanded();
    if text.trim().is_empty() {
        return Err(SubmissionError::Empty);
    }
    // A prefix counts only if it was typed, not if it is the beginning of a folded paste.
    let typed = folded.text.chars().next();
    let kind = match typed {
        Some('!') => SubmissionKind::Shell(after_prefix(&text, "type a shell command after `!`")?),
        Some('#') => SubmissionKind::Note(after_prefix(&text, "type a note after `#`")?),
        Some('/') => command(&text, commands)?,
        _ => SubmissionKind::Prompt,
    };
    let attachments = image_mentions(&folded.text);
    Ok(Submission {
        kind,
        text,
        shown,
        attachments,
    })
}

fn after_prefix(text: &str, missing: &str) -> Result<String, SubmissionError> {
    let rest = text[1..].trim();
    if rest.is_empty() {
        return Err(SubmissionError::Invalid(missing.to_owned()));
    }
    Ok(rest.to_owned())
}

fn command<'a>(
    text: &str,
    commands: impl Iterator<Item = &'a str> + Clone,
) -> Result<SubmissionKind, SubmissionError> {
    let rest = &text[1..];
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if commands.clone().any(|known| known == name) {
        return Ok(SubmissionKind::Command {
            name: name.to_owned(),
            arguments: arguments.trim().to_owned(),
        });
    }
    if name.contains('/') {
        return Ok(SubmissionKind::Prompt);
    }
    let shown: String = name.chars().take(40).collect();
    let hint = match nearest(&shown, commands) {
        Some(near) => format!("did you mean `/{near}`?"),
        None => "`/help` lists the commands; a space before `/` makes it a prompt".to_owned(),
    };
    Err(SubmissionError::Invalid(format!(
        "unknown command `/{shown}`; {hint}"
    )))
}

/// The known name with the fewest different letters, at most a third of them.
fn nearest<'a>(name: &str, commands: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    commands
        .map(|known| {
            let distance = if !name.is_empty() && known.starts_with(name) {
                0
            } else {
                edit_distance(name, known)
            };
            (distance, known)
        })
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, known)| known)
}

/// Inserted, deleted, replaced and exchanged letters between two short words.
fn edit_distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(64).collect();
    let right: Vec<char> = right.chars().take(64).collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=right.len()).collect()];
    for (i, a) in left.iter().enumerate() {
        let above = &rows[i];
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let replaced = above[j] + usize::from(a != b);
            let mut best = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or(0)
}

/// The mention of a file in a prompt, with quotes if the path needs them.
#[must_use]
pub fn file_mention(path: &str) -> String {
    if path.contains(|c: char| c.is_whitespace() || c == '"') {
        let escaped = path.replace('\\', "\\\\").replace('"', "\\\"");
        format!("@\"{escaped}\"")
    } else {
        format!("@{path}")
    }
}

/// The path of an image if `paste` is nothing but one: terminals insert the paths of dropped files, quoted or escaped.
pub(super) fn pasted_image(paste: &str) -> Option<String> {
    let paste = paste.trim();
    if paste.len() > MAX_PATH_CHARS || paste.contains('\n') {
        return None;
    }
    let quoted = |quote: char| paste.strip_prefix(quote)?.strip_suffix(quote);
    let path = match quoted('\'').or_else(|| quoted('"')) {
        Some(inner) => inner.to_owned(),
        None => match paste.strip_prefix("file://") {
            Some(url) => decoded_url_path(url)?,
            None if has_bare_space(paste) => return None,
            None => unescaped(paste),
        },
    };
    let is_place = path.starts_with('/') || path.starts_with("~/");
    (is_place && is_image(&path) && !path.contains(char::is_control)).then_some(path)
}

/// The images among the mentions in a text.
fn image_mentions(text: &str) -> Vec<PromptAttachment> {
    let mut found: Vec<PromptAttachment> = Vec::new();
    let mut before = ' ';
    let mut next = 0;
    for (at, c) in text.char_indices() {
        let begins_word = before.is_whitespace() || before == '(';
        before = c;
        if c != '@' || !begins_word || at < next || found.len() >= MAX_ATTACHMENTS {
            continue;
        }
        let (path, len) = mentioned_path(&text[at + 1..]);
        next = at + 1 + len;
        if is_image(&path) && found.iter().all(|other| other.path != path) {
            found.push(PromptAttachment { path });
        }
    }
    found
}

/// The path at the beginning of a text and the bytes that it takes. A quote without an end is no path.
fn mentioned_path(text: &str) -> (String, usize) {
    let mut path = String::new();
    if let Some(quoted) = text.strip_prefix('"') {
        let mut chars = quoted.char_indices().take(MAX_PATH_CHARS);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => return (path, at + 2),
                '\\' => path.extend(chars.next().map(|(_, escaped)| escaped)),
                '\n' => break,
                _ => path.push(c),
            }
        }
        return (String::new(), 0);
    }
    path.extend(
        text.chars()
            .take(MAX_PATH_CHARS)
            .take_while(|c| !c.is_whitespace()),
    );
    let len = path.len();
    let trimmed = path.trim_end_matches(['.', ',', ';', ':', ')', '?', '!']);
    (trimmed.to_owned(), len)
}

fn is_image(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(name, ending)| {
        !name.is_empty()
            && IMAGE_ENDINGS
                .iter()
                .any(|image| ending.eq_ignore_ascii_case(image))
    })
}

fn has_bare_space(text: &str) -> bool {
    let mut before = ' ';
    text.chars().any(|c| {
        let bare = c.is_whitespace() && before != '\\';
        before = c;
        bare
    })
}

fn unescaped(text: &str) -> String {
    let mut chars = text.chars();
    let mut path = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => path.extend(chars.next()),
            _ => path.push(c),
        }
    }
    path
}

fn decoded_url_path(url: &str) -> Option<String> {
    let path = &url[url.find('/')?..];
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[path = "submission_tests.rs"]
mod tests;
