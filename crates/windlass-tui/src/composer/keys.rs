//! The keys of the composer: one table for the dispatch and for `/help`.

use std::collections::HashMap;
use std::sync::OnceLock;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// An action of the composer that has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ComposerAction {
    Submit,
    LineBreak,
    Left,
    Right,
    WordLeft,
    WordRight,
    Up,
    Down,
    LineStart,
    LineEnd,
    TextStart,
    TextEnd,
    DeleteBackward,
    DeleteForward,
    DeleteOrQuit,
    KillWordBackward,
    KillBigWordBackward,
    KillWordForward,
    KillToLineEnd,
    KillToLineStart,
    Yank,
    YankPop,
    Transpose,
    Undo,
    Redo,
    HistoryPrevious,
    HistoryNext,
    HistoryPrefix,
    HistorySearch,
    Unfold,
    OpenEditor,
    Interrupt,
    Complete,
    Escape,
}

/// The keys of one action. The keys are separated by commas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyBinding {
    pub keys: &'static str,
    pub action: ComposerAction,
    pub help: &'static str,
}

const fn binding(keys: &'static str, action: ComposerAction, help: &'static str) -> KeyBinding {
    KeyBinding { keys, action, help }
}

static KEY_BINDINGS: &[KeyBinding] = &[
    binding("enter", ComposerAction::Submit, "Send the prompt"),
    binding(
        "shift-enter, alt-enter, ctrl-j",
        ComposerAction::LineBreak,
        "Insert a line break; a backslash before enter does the same",
    ),
    binding(
        "tab",
        ComposerAction::Complete,
        "Complete the command, its argument or the file after @",
    ),
    binding("left, ctrl-b", ComposerAction::Left, "Move left"),
    binding("right, ctrl-f", ComposerAction::Right, "Move right"),
    binding(
        "alt-b, alt-left, ctrl-left",
        ComposerAction::WordLeft,
        "Move to the beginning of the word",
    ),
    binding(
        "alt-f, alt-right, ctrl-right",
        ComposerAction::WordRight,
        "Move to the end of the word",
    ),
    binding(
        "up",
        ComposerAction::Up,
        "Move up; in the first row, show the prompt before that begins with the typed text",
    ),
    binding(
        "down",
        ComposerAction::Down,
        "Move down; in the last row, show the next prompt",
    ),
    binding(
        "home, ctrl-a",
        ComposerAction::LineStart,
        "Move to the beginning of the line",
    ),
    binding(
        "end, ctrl-e",
        ComposerAction::LineEnd,
        "Move to the end of the line",
    ),
    binding(
        "ctrl-home, alt-<",
        ComposerAction::TextStart,
        "Move to the beginning of the text",
    ),
    binding(
        "ctrl-end, alt->",
        ComposerAction::TextEnd,
        "Move to the end of the text",
    ),
    binding(
        "backspace, shift-backspace, ctrl-h",
        ComposerAction::DeleteBackward,
        "Delete the character before the cursor",
    ),
    binding(
        "delete",
        ComposerAction::DeleteForward,
        "Delete the character at the cursor",
    ),
    binding(
        "ctrl-d",
        ComposerAction::DeleteOrQuit,
        "Delete the character at the cursor; quit if there is no text",
    ),
    binding(
        "ctrl-w",
        ComposerAction::KillBigWordBackward,
        "Cut the text before the cursor up to a space",
    ),
    binding(
        "alt-backspace, ctrl-backspace",
        ComposerAction::KillWordBackward,
        "Cut the word before the cursor",
    ),
    binding(
        "alt-d, alt-delete, ctrl-delete",
        ComposerAction::KillWordForward,
        "Cut the word after the cursor",
    ),
    binding(
        "ctrl-k",
        ComposerAction::KillToLineEnd,
        "Cut up to the end of the line",
    ),
    binding(
        "ctrl-u",
        ComposerAction::KillToLineStart,
        "Cut up to the beginning of the line",
    ),
    binding("ctrl-y", ComposerAction::Yank, "Insert the text cut last"),
    binding(
        "alt-y",
        ComposerAction::YankPop,
        "After ctrl-y, replace the text by the one cut before",
    ),
    binding(
        "ctrl-t",
        ComposerAction::Transpose,
        "Exchange the characters around the cursor",
    ),
    binding(
        "ctrl-_, ctrl-7, ctrl-/",
        ComposerAction::Undo,
        "Undo the last edit",
    ),
    binding(
        "alt-_, alt-/, ctrl-shift-z",
        ComposerAction::Redo,
        "Redo the edit that was undone",
    ),
    binding(
        "ctrl-p",
        ComposerAction::HistoryPrevious,
        "Show the prompt before",
    ),
    binding(
        "ctrl-n",
        ComposerAction::HistoryNext,
        "Show the next prompt",
    ),
    binding(
        "alt-p",
        ComposerAction::HistoryPrefix,
        "Show the prompt before that begins with the text left of the cursor",
    ),
    binding(
        "ctrl-r",
        ComposerAction::HistorySearch,
        "Search the prompts; again for an older match",
    ),
    binding(
        "alt-o",
        ComposerAction::Unfold,
        "Show the folded paste at the cursor in full",
    ),
    binding(
        "ctrl-g",
        ComposerAction::OpenEditor,
        "Edit the text in your editor",
    ),
    binding(
        "ctrl-c",
        ComposerAction::Interrupt,
        "Clear the text and keep it in the history; without text, stop",
    ),
    binding(
        "esc",
        ComposerAction::Escape,
        "Close the list or the search; in vi mode, leave insert mode",
    ),
];

/// All keys of the composer, in the order of `/help`.
#[must_use]
pub fn key_bindings() -> &'static [KeyBinding] {
    KEY_BINDINGS
}

/// A key of vi's normal mode, for `/help` if the mode is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViKeyHelp {
    pub keys: &'static str,
    pub help: &'static str,
}

const fn vi(keys: &'static str, help: &'static str) -> ViKeyHelp {
    ViKeyHelp { keys, help }
}

static VI_KEYS: &[ViKeyHelp] = &[
    vi(
        "h j k l",
        "Move by characters and rows; in the first and last row, show other prompts",
    ),
    vi("w b e W B E", "Move by words"),
    vi(
        "0 ^ $ gg G",
        "Move to the ends of the line and of the text; 3G moves to line 3",
    ),
    vi(
        "f F t T ; ,",
        "Move to a character in the line, again, and back",
    ),
    vi(
        "i a I A o O",
        "Insert before, after, at the ends of the line, or in a new line",
    ),
    vi(
        "d c y",
        "Delete, change or copy up to a motion; twice for the line",
    ),
    vi(
        "x X s S D C Y",
        "Delete, change or copy a character or a line",
    ),
    vi("p P", "Insert the text that was deleted or copied last"),
    vi(
        "r ~ J",
        "Replace a character, exchange the case, join lines",
    ),
    vi("u, ctrl-r", "Undo and redo"),
    vi(
        "esc",
        "Cancel a command; in insert mode, return to normal mode",
    ),
];

/// The keys of vi's normal mode, in the order of `/help`.
#[must_use]
pub fn vi_key_help() -> &'static [ViKeyHelp] {
    VI_KEYS
}

/// The action of a key.
pub(super) fn action_of(key: KeyEvent) -> Option<ComposerAction> {
    static ACTIONS: OnceLock<HashMap<(KeyCode, KeyModifiers), ComposerAction>> = OnceLock::new();
    let actions = ACTIONS.get_or_init(|| {
        let keys = KEY_BINDINGS.iter().flat_map(|binding| {
            let keys = binding.keys.split(", ").filter_map(parse_key);
            keys.map(|key| (key, binding.action))
        });
        keys.collect()
    });
    actions.get(&normalized(key)).copied()
}

/// The key without modifiers that terminals report differently: Shift of a character, and states of locks.
fn normalized(key: KeyEvent) -> (KeyCode, KeyModifiers) {
    let known = KeyModifiers::SHIFT | KeyModifiers::ALT | KeyModifiers::CONTROL;
    let mut modifiers = key.modifiers & known;
    match key.code {
        KeyCode::Char(c) => {
            let with_control = modifiers.contains(KeyModifiers::CONTROL);
            if c.is_ascii_alphabetic() && with_control {
                // Some terminals report Ctrl-Shift-Z as an upper-case letter only.
                if c.is_ascii_uppercase() {
                    modifiers |= KeyModifiers::SHIFT;
                }
                return (KeyCode::Char(c.to_ascii_lowercase()), modifiers);
            }
            (key.code, modifiers - KeyModifiers::SHIFT)
        }
        _ => (key.code, modifiers),
    }
}

pub(super) fn parse_key(name: &str) -> Option<(KeyCode, KeyModifiers)> {
    let mut modifiers = KeyModifiers::NONE;
    let mut rest = name;
    loop {
        let (modifier, tail) = match rest {
            _ if rest.starts_with("ctrl-") => (KeyModifiers::CONTROL, &rest[5..]),
            _ if rest.starts_with("alt-") => (KeyModifiers::ALT, &rest[4..]),
            _ if rest.starts_with("shift-") => (KeyModifiers::SHIFT, &rest[6..]),
            _ => break,
        };
        modifiers |= modifier;
        rest = tail;
    }
    let code = match rest {
        "enter" => KeyCode::Enter,
        "tab" => KeyCode::Tab,
        "left" => KeyCode::Left,
        "right" => KeyCode::Right,
        "up" => KeyCode::Up,
        "down" => KeyCode::Down,
        "home" => KeyCode::Home,
        "end" => KeyCode::End,
        "backspace" => KeyCode::Backspace,
        "delete" => KeyCode::Delete,
        "esc" => KeyCode::Esc,
        _ => {
            let mut chars = rest.chars();
            let c = chars.next()?;
            if chars.next().is_some() {
                return None;
            }
            KeyCode::Char(c)
        }
    };
    Some((code, modifiers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_table_has_one_action() {
        let mut seen = HashMap::new();
        for binding in key_bindings() {
            for name in binding.keys.split(", ") {
                let key = parse_key(name);
                assert!(key.is_some(), "`{name}` is no key");
                let other = seen.insert(key, name);
                assert_eq!(other, None, "`{name}` has two actions");
                let event = key.map(|(code, modifiers)| KeyEvent::new(code, modifiers));
                assert_eq!(event.and_then(action_of), Some(binding.action), "{name}");
            }
        }
    }

    #[test]
    fn states_of_the_shift_key_do_not_matter_for_characters() {
        let key = KeyEvent::new(KeyCode::Char('<'), KeyModifiers::ALT | KeyModifiers::SHIFT);
        assert_eq!(action_of(key), Some(ComposerAction::TextStart));
        let upper = KeyEvent::new(KeyCode::Char('Z'), KeyModifiers::CONTROL);
        assert_eq!(action_of(upper), Some(ComposerAction::Redo));
    }
}
