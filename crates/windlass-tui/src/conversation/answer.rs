//! The answer of the model while it streams. Complete blocks are finished at once; the open block is rendered when it is
//! shown.

use windlass_text::markdown::{MarkdownOptions, MarkdownStream};
use windlass_text::{StyledLine, Tone};

/// A streamed answer.
pub(super) struct AnswerStream {
    markdown: MarkdownStream,
    /// The text that was streamed and shown.
    shown: String,
    /// Deltas are ignored until the complete answer arrives, because some were lost.
    paused: bool,
}

impl AnswerStream {
    pub(super) fn new() -> Self {
        Self {
            markdown: stream(),
            shown: String::new(),
            paused: false,
        }
    }

    /// Ignores deltas until the answer is complete.
    pub(super) fn pause(&mut self) {
        self.paused = true;
    }

    /// Adds a piece of the answer. Returns the lines that do not change any more.
    pub(super) fn push(&mut self, text: &str) -> Vec<StyledLine> {
        if self.paused {
            return Vec::new();
        }
        self.shown.push_str(text);
        indented(self.markdown.push(text))
    }

    /// The lines of the open block.
    pub(super) fn tail(&self) -> Vec<StyledLine> {
        indented(self.markdown.tail())
    }

    /// Ends the answer, whose complete text is known unless the run ended before. Returns the lines that were not finished
    /// before.
    pub(super) fn finish(&mut self, text: Option<&str>) -> Vec<StyledLine> {
        let mut markdown = std::mem::replace(&mut self.markdown, stream());
        let shown = std::mem::take(&mut self.shown);
        self.paused = false;
        let Some(text) = text else {
            return indented(markdown.finish());
        };
        let mut lines = match text.strip_prefix(shown.as_str()) {
            Some(rest) => markdown.push(rest),
            // A retry gave another answer than the one that was streamed: show it completely.
            None => {
                let mut lines = markdown.finish();
                markdown = stream();
                lines.extend(markdown.push(text));
                lines
            }
        };
        lines.extend(markdown.finish());
        indented(lines)
    }
}

/// Lines that begin in the same column as those of calls.
fn indented(lines: Vec<StyledLine>) -> Vec<StyledLine> {
    let indent = |line: StyledLine| {
        if line.is_empty() {
            return line;
        }
        let mut indented = StyledLine::of(" ", Tone::Text).with_indent(line.indent + 1);
        indented.extend(&line);
        indented
    };
    lines.into_iter().map(indent).collect()
}

/// Lines are not wrapped: the terminal or the pane does that.
fn stream() -> MarkdownStream {
    MarkdownStream::new(MarkdownOptions::default())
}
