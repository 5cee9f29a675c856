//! The output of programs as styled lines. Colours are kept, and text that a program overwrites on its line is replaced,
//! as on a terminal. All other control sequences are dropped, so that a program cannot control the user's terminal.

mod sgr;

use crate::line::{StyledLine, TextStyle};
use crate::sanitize::{is_plain, joins_emoji};

/// The most characters of a line. A longer line is continued on the next one.
const MAX_LINE: usize = 16 * 1024;
/// The most characters of an escape sequence. After more, the text counts as text again.
const MAX_SEQUENCE: usize = 4 * 1024;
/// The distance of tab stops of terminals.
const TAB_STOP: usize = 8;

/// Reads the output of a program in pieces, which may end within an escape sequence.
///
/// Each character takes one cell, also a combining mark. Memory is bounded by the longest line.
#[derive(Debug, Clone, Default)]
pub struct AnsiText {
    cells: Vec<AnsiCell>,
    /// The index of the cell that the next character replaces.
    cursor: usize,
    style: TextStyle,
    state: EscapeState,
    /// The parameters of the open control sequence.
    parameters: String,
    /// The characters of the open escape sequence.
    length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AnsiCell {
    symbol: char,
    style: TextStyle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum EscapeState {
    #[default]
    Text,
    /// After the escape character.
    Escape,
    /// After the escape character and an intermediate one, for example of a character set.
    Intermediate,
    /// A control sequence, such as a colour or a move of the cursor.
    Control,
    /// A title, link or other string, up to its terminator.
    String,
    /// An escape character within a string.
    StringEscape,
}

impl AnsiText {
    /// Begins with an empty line without styles.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends output and returns the lines that are complete now.
    pub fn push(&mut self, text: &str) -> Vec<StyledLine> {
        let mut out = Vec::new();
        for c in text.chars() {
            self.character(c, &mut out);
        }
        out
    }

    /// The last, incomplete line.
    #[must_use]
    pub fn tail(&self) -> StyledLine {
        line_of(&self.cells)
    }

    /// Ends the output and returns the last line, if it has text. The reader is as new afterwards.
    pub fn finish(&mut self) -> Option<StyledLine> {
        let line = self.tail();
        *self = Self::default();
        (!line.is_empty()).then_some(line)
    }

    fn character(&mut self, c: char, out: &mut Vec<StyledLine>) {
        if self.state != EscapeState::Text {
            self.length += 1;
            // A newline or too long a sequence means that its end is missing; the text after it must not be lost.
            if c == '\n' || self.length > MAX_SEQUENCE {
                self.state = EscapeState::Text;
            } else {
                return self.escape(c);
            }
        }
        match c {
            '\n' => {
                out.push(line_of(&self.cells));
                self.cells.clear();
                self.cursor = 0;
            }
            '\r' => self.cursor = 0,
            '\u{8}' => self.cursor = self.cursor.saturating_sub(1),
            '\t' => {
                let blanks = TAB_STOP - self.cursor % TAB_STOP;
                for _ in 0..blanks {
                    match self.cells.get(self.cursor) {
                        Some(_) => self.cursor += 1,
                        None => self.put(' ', out),
                    }
                }
            }
            '\u{1b}' => self.begin(EscapeState::Escape),
            '\u{9b}' => self.begin(EscapeState::Control),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => self.begin(EscapeState::String),
            // Joiners are decided when the line is complete, because they need the next character.
            c if is_plain(c) || c == '\u{200d}' => self.put(c, out),
            _ => {}
        }
    }

    fn put(&mut self, symbol: char, out: &mut Vec<StyledLine>) {
        if self.cursor >= MAX_LINE {
            out.push(line_of(&self.cells));
            self.cells.clear();
            self.cursor = 0;
        }
        let style = self.style;
        self.fill(self.cursor);
        match self.cells.get_mut(self.cursor) {
            Some(cell) => *cell = AnsiCell { symbol, style },
            None => self.cells.push(AnsiCell { symbol, style }),
        }
        self.cursor += 1;
    }

    /// Adds blanks so that the line has at least `length` cells.
    fn fill(&mut self, length: usize) {
        if self.cells.len() < length {
            let blank = AnsiCell {
                symbol: ' ',
                style: TextStyle::default(),
            };
            self.cells.resize(length, blank);
        }
    }

    fn begin(&mut self, state: EscapeState) {
        self.state = state;
        self.parameters.clear();
        self.length = 0;
    }

    fn escape(&mut self, c: char) {
        self.state = match (self.state, c) {
            // The cancel characters end every sequence.
            (_, '\u{18}' | '\u{1a}') => EscapeState::Text,
            (EscapeState::String, '\u{7}' | '\u{9c}') => EscapeState::Text,
            (EscapeState::String, '\u{1b}') => EscapeState::StringEscape,
            (EscapeState::String, _) => EscapeState::String,
            (EscapeState::StringEscape, '\\') => EscapeState::Text,
            (_, '\u{1b}') => return self.begin(EscapeState::Escape),
            (EscapeState::Escape | EscapeState::StringEscape, c) => {
                return self.begin(match c {
                    '[' => EscapeState::Control,
                    ']' | 'P' | 'X' | '^' | '_' => EscapeState::String,
                    ' '..='/' => EscapeState::Intermediate,
                    _ => EscapeState::Text,
                });
            }
            (EscapeState::Intermediate, ' '..='/') => EscapeState::Intermediate,
            (EscapeState::Intermediate | EscapeState::Text, _) => EscapeState::Text,
            (EscapeState::Control, '@'..='~') => {
                self.control(c);
                EscapeState::Text
            }
            (EscapeState::Control, ' '..='?') => {
                self.parameters.push(c);
                EscapeState::Control
            }
            (EscapeState::Control, _) => EscapeState::Text,
        };
    }

    /// Applies a control sequence that changes the style or the current line.
    fn control(&mut self, last: char) {
        let parameters = std::mem::take(&mut self.parameters);
        let number = |default: usize| match parameters.parse::<usize>() {
            Ok(0) | Err(_) => default,
            Ok(number) => number.min(MAX_LINE),
        };
        match last {
            'm' => sgr::apply(&parameters, &mut self.style),
            'G' => self.cursor = number(1) - 1,
            'C' => self.cursor = (self.cursor + number(1)).min(MAX_LINE - 1),
            'D' => self.cursor = self.cursor.saturating_sub(number(1)),
            'K' => match parameters.as_str() {
                "" | "0" => self.cells.truncate(self.cursor),
                "1" => {
                    let end = self.cells.len().min(self.cursor + 1);
                    for cell in &mut self.cells[..end] {
                        cell.symbol = ' ';
                        cell.style = TextStyle::default();
                    }
                }
                "2" => self.cells.clear(),
                _ => {}
            },
            _ => {}
        }
        self.parameters = parameters;
    }
}

/// The line of some cells, without blanks at its end.
fn line_of(cells: &[AnsiCell]) -> StyledLine {
    let visible = |cell: &AnsiCell| {
        let style = cell.style;
        cell.symbol != ' ' || style.background.is_some() || style.reversed || style.underline
    };
    let end = cells.iter().rposition(visible).map_or(0, |at| at + 1);
    let mut line = StyledLine::default();
    let mut text = String::new();
    let mut style = TextStyle::default();
    for (at, cell) in cells[..end].iter().enumerate() {
        let symbol = cell.symbol;
        let before = at.checked_sub(1).and_then(|at| cells.get(at));
        let after = cells.get(at + 1).map(|cell| cell.symbol);
        if !is_plain(symbol) && !joins_emoji(before.map(|cell| cell.symbol), symbol, after) {
            continue;
        }
        if cell.style != style {
            line.append(&text, style, None);
            text.clear();
            style = cell.style;
        }
        text.push(symbol);
    }
    line.append(&text, style, None);
    line
}

#[cfg(test)]
mod tests;
