//! Completion of commands, their arguments and files, in a list next to the composer.

use std::ops::Range;

use nucleo_matcher::{Config, Matcher, Utf32Str};
use windlass_text::StyledLine;

use super::file_index::FileIndex;
use super::file_search::FileSearch;
use super::popup_rows::{ListRow, column_widths, draw, hint, visible};
use super::submission::file_mention;

/// Entries of one list.
const MAX_ITEMS: usize = 200;
/// Files in the list behind `@`.
const MAX_FILES: usize = 50;
/// Bytes before the cursor in which `@` is searched.
const MAX_TOKEN: usize = 1_024;

/// A command of the interface, such as `/model`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlashCommand {
    /// The name without the slash.
    pub name: String,
    /// The arguments as the user should read them, for example `[name]`; empty if the command takes none.
    pub arguments: String,
    pub summary: String,
}

/// A value for the argument of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArgumentChoice {
    pub value: String,
    pub summary: String,
}

/// Returns the values for the argument of a command from the command's name and the typed argument. It is called for
/// every key, so it must be fast.
pub type ArgumentSource = Box<dyn Fn(&str, &str) -> Vec<ArgumentChoice> + Send>;

/// The kind of the list that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompletionKind {
    Commands,
    Arguments,
    Files,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CompletionItem {
    row: ListRow,
    insert: String,
    /// The inserted text is complete, so that Enter may submit it.
    is_complete: bool,
}

/// The list and the part of the text that an item replaces.
#[derive(Debug, Clone)]
struct CompletionList {
    kind: CompletionKind,
    range: Range<usize>,
    items: Vec<CompletionItem>,
    selected: usize,
    /// The user moved the selection.
    was_moved: bool,
    top: usize,
}

/// The effect of an accepted item on the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompletionEdit {
    pub(super) range: Range<usize>,
    pub(super) text: String,
    pub(super) kind: CompletionKind,
    pub(super) is_complete: bool,
}

#[derive(Default)]
pub(super) struct Completion {
    pub(super) commands: Vec<SlashCommand>,
    pub(super) arguments: Option<ArgumentSource>,
    pub(super) files: Option<FileIndex>,
    search: FileSearch,
    list: Option<CompletionList>,
    /// The beginning of the word for which the user closed the list.
    closed_at: Option<usize>,
}

impl Completion {
    pub(super) fn new(
        commands: Vec<SlashCommand>,
        arguments: Option<ArgumentSource>,
        files: Option<FileIndex>,
    ) -> Self {
        Self {
            commands,
            arguments,
            files,
            ..Self::default()
        }
    }

    /// Finds the items for the word at the cursor. `is_forced` opens a list that the user closed.
    pub(super) fn refresh(&mut self, text: &str, cursor: usize, is_forced: bool) {
        let found = if let Some(range) = command_word(text, cursor) {
            self.command_list(text, range)
        } else if let Some((name, range)) = argument_text(text, cursor) {
            self.argument_list(name, &text[range.clone()], range)
        } else if let Some((range, query)) = file_word(text, cursor) {
            self.file_list(range, query)
        } else {
            None
        };
        let Some(mut list) = found else {
            self.list = None;
            self.closed_at = None;
            return;
        };
        if self.closed_at.is_some_and(|at| at == list.range.start) && !is_forced {
            self.list = None;
            return;
        }
        self.closed_at = None;
        if let Some(earlier) = &self.list
            && earlier.range.start == list.range.start
            && earlier.items == list.items
        {
            list.selected = earlier.selected;
            list.was_moved = earlier.was_moved;
            list.top = earlier.top;
        }
        self.list = Some(list);
    }

    pub(super) fn is_open(&self) -> bool {
        self.list.is_some()
    }

    /// Closes the list. With `until_next_word`, it stays closed while the user types in this word.
    pub(super) fn close(&mut self, until_next_word: bool) {
        let list = self.list.take();
        self.closed_at = list
            .filter(|_| until_next_word)
            .map(|list| list.range.start);
    }

    /// Moves the selection; the ends are connected for single steps.
    pub(super) fn select(&mut self, step: isize) {
        if let Some(list) = &mut self.list {
            list.selected = stepped(list.selected, step, list.items.len());
            list.was_moved = true;
        }
    }

    pub(super) fn was_moved(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.was_moved)
    }

    /// The edit of the selected item.
    pub(super) fn selected_edit(&self) -> Option<CompletionEdit> {
        let list = self.list.as_ref()?;
        let item = list.items.get(list.selected)?;
        Some(CompletionEdit {
            range: list.range.clone(),
            text: item.insert.clone(),
            kind: list.kind,
            is_complete: item.is_complete,
        })
    }

    /// The rows of the list, at most `max_rows`. No rows if the list is closed.
    pub(super) fn view(&mut self, width: usize, max_rows: usize) -> Vec<StyledLine> {
        let is_indexing = self
            .files
            .as_ref()
            .is_some_and(|files| !files.is_complete());
        let Some(list) = &mut self.list else {
            return Vec::new();
        };
        let has_hint = max_rows > 2;
        let room = max_rows - usize::from(has_hint);
        let range = visible(list.items.len(), list.selected, room, list.top);
        list.top = range.start;
        let rows: Vec<ListRow> = list.items[range.clone()]
            .iter()
            .map(|item| item.row.clone())
            .collect();
        let widths = column_widths(&rows, width);
        let mut lines: Vec<StyledLine> = rows
            .iter()
            .zip(range)
            .map(|(row, number)| draw(row, &widths, width, number == list.selected))
            .collect();
        if has_hint {
            let position = match list.items.len() {
                0 if list.kind == CompletionKind::Files && is_indexing => {
                    "looking for files…".to_owned()
                }
                0 => "no match".to_owned(),
                count => format!("{} of {count}", list.selected + 1),
            };
            let text = format!("{position} · tab inserts · esc closes");
            lines.push(hint(&text, width));
        }
        lines
    }

    fn command_list(&mut self, text: &str, range: Range<usize>) -> Option<CompletionList> {
        let query = &text[1..range.end];
        let names = self.commands.iter().map(|command| command.name.as_str());
        let ranked = fuzzy_ranked(query, names, MAX_ITEMS);
        let items: Vec<CompletionItem> = ranked
            .into_iter()
            .filter_map(|(index, matched)| Some((self.commands.get(index)?, matched)))
            .map(|(command, matched)| {
                let has_arguments = !command.arguments.is_empty();
                let label = format!("/{} {}", command.name, command.arguments);
                CompletionItem {
                    row: ListRow {
                        label: label.trim_end().to_owned(),
                        matched: matched.into_iter().map(|at| at + 1).collect(),
                        details: vec![command.summary.clone()],
                    },
                    insert: format!("/{}{}", command.name, if has_arguments { " " } else { "" }),
                    is_complete: !has_arguments,
                }
            })
            .collect();
        list_of(CompletionKind::Commands, range, items)
    }

    fn argument_list(
        &self,
        name: &str,
        typed: &str,
        range: Range<usize>,
    ) -> Option<CompletionList> {
        let source = self.arguments.as_ref()?;
        if !self.commands.iter().any(|command| command.name == name) {
            return None;
        }
        let choices = source(name, typed);
        let values = choices.iter().map(|choice| choice.value.as_str());
        let items: Vec<CompletionItem> = fuzzy_ranked(typed.trim(), values, MAX_ITEMS)
            .into_iter()
            .filter_map(|(index, matched)| Some((choices.get(index)?, matched)))
            .map(|(choice, matched)| CompletionItem {
                row: ListRow {
                    label: choice.value.clone(),
                    matched,
                    details: vec![choice.summary.clone()],
                },
                insert: choice.value.clone(),
                is_complete: true,
            })
            .collect();
        // A finished argument needs no list.
        if items.len() == 1 && items.first().is_some_and(|item| item.insert == typed) {
            return None;
        }
        list_of(CompletionKind::Arguments, range, items)
    }

    fn file_list(&mut self, range: Range<usize>, query: &str) -> Option<CompletionList> {
        let files = self.files.as_ref()?;
        let is_indexing = !files.is_complete();
        let items: Vec<CompletionItem> = self
            .search
            .find(files, query, MAX_FILES)
            .into_iter()
            .map(|found| {
                let is_file = !found.path.ends_with('/');
                let mention = file_mention(&found.path);
                let insert = if is_file {
                    format!("{mention} ")
                } else {
                    // The quote stays open, so that the user can choose a file of the directory.
                    mention.trim_end_matches('"').to_owned()
                };
                CompletionItem {
                    insert,
                    row: ListRow {
                        label: found.path,
                        matched: found.matched,
                        details: Vec::new(),
                    },
                    is_complete: is_file,
                }
            })
            .collect();
        if items.is_empty() && is_indexing {
            // The list says that the search is not complete.
            return Some(CompletionList {
                kind: CompletionKind::Files,
                range,
                items,
                selected: 0,
                was_moved: false,
                top: 0,
            });
        }
        list_of(CompletionKind::Files, range, items)
    }
}

fn list_of(
    kind: CompletionKind,
    range: Range<usize>,
    items: Vec<CompletionItem>,
) -> Option<CompletionList> {
    (!items.is_empty()).then_some(CompletionList {
        kind,
        range,
        items,
        selected: 0,
        was_moved: false,
        top: 0,
    })
}

/// The position after a step. A single step connects the ends; a longer one stops there.
pub(super) fn stepped(selected: usize, step: isize, count: usize) -> usize {
    let last = count.saturating_sub(1);
    match step {
        1 if selected >= last => 0,
        -1 if selected == 0 => last,
        _ => selected.saturating_add_signed(step).min(last),
    }
}

/// The texts that fit the query with their matched characters, best first.
pub(super) fn fuzzy_ranked<'a>(
    query: &str,
    texts: impl Iterator<Item = &'a str>,
    limit: usize,
) -> Vec<(usize, Vec<u32>)> {
    let mut config = Config::DEFAULT;
    config.prefer_prefix = true;
    config.normalize = query.is_ascii();
    let mut matcher = Matcher::new(config);
    let lower = query.to_lowercase();
    let mut needle_buffer = Vec::new();
    let needle = Utf32Str::new(&lower, &mut needle_buffer);
    let mut buffer = Vec::new();
    let mut found: Vec<(u16, usize, Vec<u32>)> = Vec::new();
    for (index, text) in texts.enumerate() {
        if needle.is_empty() {
            found.push((0, index, Vec::new()));
            continue;
        }
        let mut matched = Vec::new();
        let haystack = Utf32Str::new(text, &mut buffer);
        if let Some(score) = matcher.fuzzy_indices(haystack, needle, &mut matched) {
            found.push((score, index, matched));
        }
    }
    // The order of the caller decides between equal scores.
    found.sort_by_key(|(score, index, _)| (std::cmp::Reverse(*score), *index));
    found
        .into_iter()
        .take(limit)
        .map(|(_, index, matched)| (index, matched))
        .collect()
}

/// The first word if it begins with a slash and contains the cursor.
fn command_word(text: &str, cursor: usize) -> Option<Range<usize>> {
    if cursor == 0 || !text.starts_with('/') {
        return None;
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (cursor <= end && !text[1..end].contains('/')).then_some(0..end)
}

/// The name of the command and the argument before the cursor.
fn argument_text(text: &str, cursor: usize) -> Option<(&str, Range<usize>)> {
    let end = text.strip_prefix('/')?.find(' ')? + 1;
    (cursor > end && !text.contains('\n')).then(|| (&text[1..end], end + 1..cursor))
}

/// The word at the cursor that begins with `@`, and the path in it.
fn file_word(text: &str, cursor: usize) -> Option<(Range<usize>, &str)> {
    let mut from = cursor.saturating_sub(MAX_TOKEN);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let before = &text[from..cursor];
    let at = before.rfind('@')?;
    let is_word = before[..at]
        .chars()
        .next_back()
        .is_none_or(|c| c.is_whitespace() || c == '(');
    if !is_word {
        return None;
    }
    let typed = &before[at + 1..];
    let query = match typed.strip_prefix('"') {
        // The quote is still open.
        Some(quoted) if !quoted.contains(['"', '\n']) => quoted,
        Some(_) => return None,
        None if typed.contains(char::is_whitespace) => return None,
        None => typed,
    };
    Some((from + at..cursor, query))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_at_the_cursor_opens_a_list() {
        assert_eq!(command_word("/mo x", 3), Some(0..3));
        assert_eq!(command_word("/mo x", 5), None);
        assert_eq!(command_word("/usr/bin", 3), None);
        assert_eq!(argument_text("/mo x", 5), Some(("mo", 4..5)));
        assert_eq!(argument_text("/mo x", 3), None);
        assert_eq!(file_word("see @src/m", 10), Some((4..10, "src/m")));
        assert_eq!(file_word("me@src", 6), None);
        assert_eq!(file_word("@a b", 4), None);
        assert_eq!(file_word("@\"a b", 5), Some((0..5, "a b")));
        assert_eq!(file_word("@\"a b\" ", 7), None);
    }

    #[test]
    fn steps_stay_in_the_list() {
        assert_eq!(stepped(2, 1, 3), 0);
        assert_eq!(stepped(0, -1, 3), 2);
        assert_eq!(stepped(1, 8, 3), 2);
        assert_eq!(stepped(0, 1, 0), 0);
    }
}
