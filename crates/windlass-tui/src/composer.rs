//! The composer: the editor of prompts, with history, completion and attachments.
//!
//! It does no terminal IO: [`Composer::key`] and [`Composer::paste`] take the input, [`Composer::view`] and
//! [`Composer::popup_view`] return rows. Only the stores of the history and of drafts, and the thread of the
//! [`FileIndex`], use files.
//!
//! - `text_buffer`: the text, the cursor and every edit; `edit_log`: undo; `kill_ring`, `motions`: Emacs keys
//! - `vi`, `vi_motions`, `vi_edits`: the optional vi mode
//! - `rows`, `glyphs`, `view`: wrapping and drawing
//! - `folds`: long pastes as one character; `submission`: the meaning of a submitted text
//! - `history`, `recall`: earlier prompts; `drafts`: the text after a crash
//! - `completion`, `file_index`, `file_search`: the list for `/` and `@`
//! - `list_picker`: a list that the user filters, for other parts of the interface
//! - `keys`: the table of keys

mod actions;
mod completion;
mod drafts;
mod edit_log;
mod file_index;
mod file_search;
mod files;
mod folds;
mod glyphs;
mod history;
mod history_file;
mod keys;
mod kill_ring;
mod list_picker;
mod motions;
mod popup_rows;
mod recall;
mod rows;
mod submission;
mod text_buffer;
mod vi;
mod vi_edits;
mod vi_motions;
mod view;

use std::io;
use std::time::Instant;

use windlass_text::StyledLine;

pub use self::completion::{ArgumentChoice, ArgumentSource, SlashCommand};
pub use self::drafts::{DraftStore, FileDraftStore};
pub use self::file_index::FileIndex;
pub use self::folds::FoldedText;
pub use self::history::{HistoryStore, PromptHistory};
pub use self::history_file::FileHistoryStore;
pub use self::keys::{ComposerAction, KeyBinding, ViKeyHelp, key_bindings, vi_key_help};
pub use self::list_picker::{ListPicker, PickerItem, PickerOutcome};
pub use self::submission::{PromptAttachment, Submission, SubmissionKind, file_mention};
pub use self::text_buffer::TextBuffer;
pub use self::view::{ComposerView, InputMode};

use self::completion::Completion;
use self::drafts::DraftSaver;
use self::folds::{clean, is_foldable};
use self::recall::HistorySearch;
use self::submission::pasted_image;
use self::vi::{ViMode, ViState};

/// The notice for a text above a limit.
const TOO_LARGE: &str = "the text is too large; put it into a file and mention the file with `@`";

/// The effect of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ComposerOutcome {
    /// The key has no meaning here; the application may use it.
    Ignored,
    /// The view may have changed.
    Handled,
    /// The user submitted the text. The composer is empty and the history contains the text.
    Submit(Submission),
    /// The user wants to edit this text in an editor; [`Composer::set_text`] takes the result.
    OpenEditor(String),
    /// Ctrl-C cleared the text. The history contains it.
    Cleared,
    /// The user pressed Ctrl-C without text.
    Interrupt,
    /// The user pressed Ctrl-D without text.
    Quit,
}

/// The parts that the application gives to a composer.
#[derive(Default)]
pub struct ComposerOptions {
    /// Shown while there is no text.
    pub placeholder: String,
    pub vi_mode: bool,
    pub commands: Vec<SlashCommand>,
    pub arguments: Option<ArgumentSource>,
    pub files: Option<FileIndex>,
    pub history: PromptHistory,
    pub drafts: Option<Box<dyn DraftStore>>,
}

/// The editor of prompts.
pub struct Composer {
    buffer: TextBuffer,
    placeholder: String,
    vi: Option<ViState>,
    completion: Completion,
    history: PromptHistory,
    search: Option<HistorySearch>,
    drafts: DraftSaver,
    /// The version of the text that the history put into the composer.
    recalled: Option<u64>,
    /// An error for the user, until the next key.
    notice: Option<String>,
    /// The position of the first visible row.
    top: usize,
}

impl std::fmt::Debug for Composer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Composer")
            .field("text", &self.buffer.text())
            .finish_non_exhaustive()
    }
}

impl Composer {
    /// A composer without a text. [`Self::restore_draft`] brings the last draft back.
    #[must_use]
    pub fn new(options: ComposerOptions) -> Self {
        let completion = Completion::new(options.commands, options.arguments, options.files);
        Self {
            buffer: TextBuffer::default(),
            placeholder: options.placeholder,
            vi: options.vi_mode.then(ViState::default),
            completion,
            history: options.history,
            search: None,
            drafts: options.drafts.map(DraftSaver::new).unwrap_or_default(),
            recalled: None,
            notice: None,
            top: 0,
        }
    }

    /// The text with every paste in full.
    #[must_use]
    pub fn text(&self) -> String {
        self.buffer.folds.expanded(self.buffer.text())
    }

    /// Whether there is no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Replaces the text, for example by the result of an editor. The user can undo it. A text that did not change
    /// keeps its folded pastes.
    pub fn set_text(&mut self, text: &str) {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let size = self.buffer.folds.expanded_size(self.buffer.text());
        if size != text.len() || text != self.text() {
            self.buffer.set_text(text.to_owned());
        }
        self.completion.close(false);
    }

    /// Inserts a pasted text. A long text is folded, the path of an image becomes a mention.
    pub fn paste(&mut self, text: String) -> ComposerOutcome {
        self.notice = None;
        let text = clean(text);
        if self.search.is_some() {
            self.search_paste(&text);
            return ComposerOutcome::Handled;
        }
        let version = self.buffer.version();
        let is_blank = text.is_empty();
        if let Some(path) = pasted_image(&text) {
            let mention = format!("{} ", file_mention(&path));
            self.buffer.insert_text(mention);
        } else if is_foldable(&text) {
            self.buffer.insert_fold(text);
        } else {
            self.buffer.insert_text(text);
        }
        if self.buffer.version() == version && !is_blank {
            self.notice = Some(TOO_LARGE.to_owned());
        }
        self.refresh_completion(false);
        ComposerOutcome::Handled
    }

    /// The list of the completion, at most `max_rows` rows; no rows if it is closed.
    pub fn popup_view(&mut self, width: usize, max_rows: usize) -> Vec<StyledLine> {
        if self.search.is_some() {
            return Vec::new();
        }
        self.completion.view(width, max_rows)
    }

    /// Whether the list of the completion or the search of the history is shown. They take Esc and Tab.
    #[must_use]
    pub fn has_popup(&self) -> bool {
        self.completion.is_open() || self.search.is_some()
    }

    /// Shows an error below the text until the next key.
    pub fn set_notice(&mut self, notice: impl Into<String>) {
        self.notice = Some(notice.into());
    }

    /// Replaces the text that is shown while there is none.
    pub fn set_placeholder(&mut self, placeholder: impl Into<String>) {
        self.placeholder = placeholder.into();
    }

    /// Switches the keys of vi on or off. The text stays.
    pub fn set_vi_mode(&mut self, is_on: bool) {
        if is_on != self.vi.is_some() {
            self.buffer.close_group();
            self.vi = is_on.then(ViState::default);
        }
    }

    /// Replaces the commands that the completion of `/` offers.
    pub fn set_commands(&mut self, commands: Vec<SlashCommand>) {
        self.completion.commands = commands;
        self.completion.close(false);
    }

    /// The earlier prompts, for example to add one.
    pub fn history_mut(&mut self) -> &mut PromptHistory {
        &mut self.history
    }

    /// The index of files, for example to refresh it after a run.
    pub fn files_mut(&mut self) -> Option<&mut FileIndex> {
        self.completion.files.as_mut()
    }

    /// Whether the index is still growing, so that the application should call [`Self::poll_files`] soon.
    #[must_use]
    pub fn is_indexing(&self) -> bool {
        let files = self.completion.files.as_ref();
        files.is_some_and(|files| !files.is_complete())
    }

    /// Takes over files that the index found. Returns whether the view may have changed.
    pub fn poll_files(&mut self) -> bool {
        let has_changed = self.completion.files.as_mut().is_some_and(FileIndex::poll);
        if has_changed {
            self.refresh_completion(false);
        }
        has_changed && self.completion.is_open()
    }

    /// Puts the stored draft into the composer. Returns whether there was one.
    pub fn restore_draft(&mut self) -> io::Result<bool> {
        let Some(draft) = self.drafts.load()? else {
            return Ok(false);
        };
        self.buffer.set_folded(&draft);
        self.drafts.mark_saved(self.buffer.version());
        Ok(true)
    }

    /// Whether the text differs from the stored draft, so that [`Self::save_draft`] should be called within 500 ms.
    #[must_use]
    pub fn draft_changed(&self) -> bool {
        self.drafts.is_changed(self.buffer.version())
    }

    /// Stores the draft if it changed and the last write is at least 500 ms ago. Returns whether it is stored.
    pub fn save_draft(&mut self, now: Instant) -> io::Result<bool> {
        if !self.draft_changed() {
            return Ok(true);
        }
        if !self.drafts.is_due(now) {
            return Ok(false);
        }
        self.flush_draft(now)?;
        Ok(true)
    }

    /// Stores the draft now, for example before the application ends.
    pub fn flush_draft(&mut self, now: Instant) -> io::Result<()> {
        if !self.draft_changed() {
            return Ok(());
        }
        let version = self.buffer.version();
        self.drafts.save(version, &self.buffer.folded(), now)
    }

    fn vi_indicator(&self) -> Option<&'static str> {
        self.vi.as_ref().map(|vi| match vi.mode() {
            ViMode::Insert => "INSERT",
            ViMode::Normal => "NORMAL",
        })
    }

    fn refresh_completion(&mut self, is_forced: bool) {
        let (text, cursor) = (self.buffer.text(), self.buffer.cursor());
        self.completion.refresh(text, cursor, is_forced);
    }
}

#[cfg(test)]
#[path = "composer/composer_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "composer/property_tests.rs"]
mod property_tests;
