//! Lines as text with escape sequences for the colour depth of a terminal. Styles change with as few bytes as possible.

use std::fmt::Write as _;

use crate::line::{StyledLine, TextStyle};
use crate::sanitize::span_text;
use crate::theme::{ColorTheme, ThemeColor, nearest_16, nearest_16_of, nearest_256};

/// The colours that a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ColorDepth {
    /// No escape sequences at all.
    #[default]
    None,
    Ansi16,
    Ansi256,
    TrueColor,
}

/// The longest link target that is written, in bytes. Terminals ignore longer ones.
const MAX_TARGET: usize = 2_000;

/// Encodes lines for one terminal.
#[derive(Debug, Clone)]
pub struct LineEncoder<'a> {
    pub theme: &'a ColorTheme,
    pub depth: ColorDepth,
    /// Writes bold, underlined and other text without colours if the depth is [`ColorDepth::None`]. Off by default.
    pub attributes: bool,
    /// Writes `http` and `https` targets of links as escape sequences that a terminal opens on a click. Off by default.
    pub links: bool,
}

/// The line with escape sequences. It ends without an open style.
#[must_use]
pub fn encode(line: &StyledLine, theme: &ColorTheme, depth: ColorDepth) -> String {
    let mut out = String::new();
    encode_into(&mut out, line, theme, depth);
    out
}

/// Like [`encode`], and appends to a text.
pub fn encode_into(out: &mut String, line: &StyledLine, theme: &ColorTheme, depth: ColorDepth) {
    LineEncoder::new(theme, depth).line(out, line);
}

/// The state of a terminal after escape sequences for styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct SgrState {
    foreground: Option<SgrColor>,
    background: Option<SgrColor>,
    /// In the order of [`ATTRIBUTES`].
    attributes: [bool; ATTRIBUTES.len()],
}

/// The codes of bold, dim, italic, underlined, reversed and struck text.
const ATTRIBUTES: [u8; 6] = [1, 2, 3, 4, 7, 9];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SgrColor {
    Indexed(u8),
    Rgb(u8, u8, u8),
}

impl<'a> LineEncoder<'a> {
    /// An encoder without links, and without attributes if there are no colours.
    #[must_use]
    pub fn new(theme: &'a ColorTheme, depth: ColorDepth) -> Self {
        Self {
            theme,
            depth,
            attributes: false,
            links: false,
        }
    }

    /// Appends a line without a newline.
    pub fn line(&self, out: &mut String, line: &StyledLine) {
        let escapes = self.depth != ColorDepth::None || self.attributes;
        let mut state = SgrState::default();
        let mut column = 0;
        for span in &line.spans {
            let text = span_text(&span.text, column);
            if span.text.contains('\t') {
                column += crate::width::columns(&text);
            }
            if !escapes {
                out.push_str(&text);
                continue;
            }
            let next = self.resolve(span.style);
            change(out, state, next);
            state = next;
            let target = span.link.as_deref().filter(|_| self.links);
            match target.and_then(safe_target) {
                Some(target) => {
                    let _ = write!(out, "\u{1b}]8;;{target}\u{1b}\\{text}\u{1b}]8;;\u{1b}\\");
                }
                None => out.push_str(&text),
            }
        }
        change(out, state, SgrState::default());
    }

    fn resolve(&self, style: TextStyle) -> SgrState {
        let foreground = self.theme.color(style.tone);
        let background = style.background.map(|tone| self.theme.color(tone));
        let reversed = style.reversed || background == Some(ThemeColor::Reversed);
        SgrState {
            foreground: self.reduce(foreground),
            background: background.and_then(|color| self.reduce(color)),
            attributes: [
                style.bold,
                style.dim || foreground == ThemeColor::Dim,
                style.italic,
                style.underline,
                reversed,
                style.strikethrough,
            ],
        }
    }

    /// The nearest colour that the terminal can show.
    fn reduce(&self, color: ThemeColor) -> Option<SgrColor> {
        match (color, self.depth) {
            (_, ColorDepth::None)
            | (ThemeColor::Default | ThemeColor::Dim | ThemeColor::Reversed, _) => None,
            (ThemeColor::Indexed(index), ColorDepth::Ansi16) => {
                Some(SgrColor::Indexed(nearest_16_of(index)))
            }
            (ThemeColor::Indexed(index), _) => Some(SgrColor::Indexed(index)),
            (ThemeColor::Rgb(red, green, blue), ColorDepth::TrueColor) => {
                Some(SgrColor::Rgb(red, green, blue))
            }
            (ThemeColor::Rgb(red, green, blue), ColorDepth::Ansi256) => {
                Some(SgrColor::Indexed(nearest_256((red, green, blue))))
            }
            (ThemeColor::Rgb(red, green, blue), ColorDepth::Ansi16) => {
                Some(SgrColor::Indexed(nearest_16((red, green, blue))))
            }
        }
    }
}

/// Appends the shortest sequence that changes the style of a terminal.
fn change(out: &mut String, from: SgrState, to: SgrState) {
    if from == to {
        return;
    }
    if to == SgrState::default() {
        out.push_str("\u{1b}[0m");
        return;
    }
    // Single attributes have codes to end them, but a reset with the new style is as short and more widely supported.
    let ends = from
        .attributes
        .iter()
        .zip(to.attributes)
        .any(|(before, after)| *before && !after);
    let ends = ends
        || (from.foreground.is_some() && to.foreground.is_none())
        || (from.background.is_some() && to.background.is_none());
    let from = if ends { SgrState::default() } else { from };
    out.push_str("\u{1b}[");
    if ends {
        out.push_str("0;");
    }
    for (at, code) in ATTRIBUTES.into_iter().enumerate() {
        if to.attributes[at] && !from.attributes[at] {
            let _ = write!(out, "{code};");
        }
    }
    if to.foreground != from.foreground {
        push_color(out, to.foreground, 30);
    }
    if to.background != from.background {
        push_color(out, to.background, 40);
    }
    // The last separator becomes the end of the sequence.
    out.pop();
    out.push('m');
}

fn push_color(out: &mut String, color: Option<SgrColor>, base: u8) {
    let _ = match color {
        None => Ok(()),
        Some(SgrColor::Indexed(index @ 0..=7)) => write!(out, "{};", base + index),
        Some(SgrColor::Indexed(index @ 8..=15)) => write!(out, "{};", base + 60 + index - 8),
        Some(SgrColor::Indexed(index)) => write!(out, "{};5;{index};", base + 8),
        Some(SgrColor::Rgb(red, green, blue)) => {
            write!(out, "{};2;{red};{green};{blue};", base + 8)
        }
    };
}

/// The target, if a terminal may open it. Other schemes, such as `file`, could start programs.
fn safe_target(target: &str) -> Option<&str> {
    let web = target.starts_with("https://") || target.starts_with("http://");
    let printable = target.bytes().all(|byte| byte.is_ascii_graphic());
    (web && printable && target.len() <= MAX_TARGET).then_some(target)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::line::{Span, Tone};

    #[track_caller]
    fn check(line: &StyledLine, theme: &ColorTheme, depth: ColorDepth, expect: &str) {
        assert_eq!(encode(line, theme, depth), expect, "{line:?}");
    }

    #[test]
    fn styles_change_with_few_bytes() {
        let terminal = ColorTheme::terminal();
        let line = StyledLine::of("a", Tone::Text)
            .with("b", Tone::Accent.bold())
            .with("c", Tone::Ok.bold())
            .with("d", Tone::Ok)
            .with("e", Tone::Text);
        check(
            &line,
            &terminal,
            ColorDepth::Ansi16,
            "a\u{1b}[1;36mb\u{1b}[32mc\u{1b}[0;32md\u{1b}[0me",
        );
        check(&line, &terminal, ColorDepth::None, "abcde");
        check(&StyledLine::default(), &terminal, ColorDepth::TrueColor, "");
    }

    #[test]
    fn colours_fit_the_depth() {
        let mut theme = ColorTheme::from_table([("accent", "#ff0000"), ("raised", "236")]);
        let theme = theme.as_mut().map(std::mem::take).unwrap_or_default();
        let style = TextStyle {
            background: Some(Tone::Raised),
            ..Tone::Accent.into()
        };
        let line = StyledLine::of("x", style);
        for (depth, expect) in [
            (ColorDepth::None, "x"),
            (ColorDepth::Ansi16, "\u{1b}[91;40mx\u{1b}[0m"),
            (ColorDepth::Ansi256, "\u{1b}[38;5;196;48;5;236mx\u{1b}[0m"),
            (
                ColorDepth::TrueColor,
                "\u{1b}[38;2;255;0;0;48;5;236mx\u{1b}[0m",
            ),
        ] {
            check(&line, &theme, depth, expect);
        }
    }

    #[test]
    fn the_terminal_theme_uses_dim_and_reversed_text() {
        let style = TextStyle {
            background: Some(Tone::AddedEmphasis),
            ..Tone::Added.into()
        };
        let line = StyledLine::of("m", Tone::Muted).with("x", style);
        check(
            &line,
            &ColorTheme::terminal(),
            ColorDepth::Ansi16,
            "\u{1b}[2mm\u{1b}[0;7;32mx\u{1b}[0m",
        );
    }

    #[test]
    fn attributes_need_no_colours() {
        let theme = ColorTheme::terminal();
        let mut encoder = LineEncoder::new(&theme, ColorDepth::None);
        encoder.attributes = true;
        let mut out = String::new();
        encoder.line(&mut out, &StyledLine::of("b", Tone::Bad.bold()));
        assert_eq!(out, "\u{1b}[1mb\u{1b}[0m");
    }

    #[test]
    fn only_web_targets_become_links() {
        let theme = ColorTheme::terminal();
        let mut encoder = LineEncoder::new(&theme, ColorDepth::Ansi16);
        encoder.links = true;
        for (target, expect) in [
            (
                "https://a.example",
                "\u{1b}]8;;https://a.example\u{1b}\\a\u{1b}]8;;\u{1b}\\",
            ),
            ("file:///etc/passwd", "a"),
            ("https://a\u{7}b", "a"),
        ] {
            let mut line = StyledLine::default();
            line.push_linked("a", TextStyle::default(), Some(&Arc::from(target)));
            let mut out = String::new();
            encoder.line(&mut out, &line);
            assert_eq!(out, expect, "{target}");
        }
    }

    proptest! {
        #[test]
        fn foreign_spans_cannot_control_the_terminal(texts in prop::collection::vec("(?s).{0,20}", 0..5)) {
            let spans = texts.iter().map(|text| Span { text: text.clone(), ..Span::default() }).collect();
            let line = StyledLine { spans, indent: 0 };
            let out = encode(&line, &ColorTheme::dark(), ColorDepth::None);
            prop_assert!(!out.chars().any(char::is_control), "{:?}", out);
        }

        #[test]
        fn a_terminal_shows_the_text_of_the_line(parts in prop::collection::vec(("[a-z漢 ]{1,6}", any::<[bool; 8]>()), 0..6)) {
            let mut line = StyledLine::default();
            for (text, [red, raised, bold, dim, italic, underline, strikethrough, reversed]) in &parts {
                let style = TextStyle {
                    tone: if *red { Tone::Bad } else { Tone::Text },
                    background: raised.then_some(Tone::Raised),
                    bold: *bold,
                    dim: *dim,
                    italic: *italic,
                    underline: *underline,
                    strikethrough: *strikethrough,
                    reversed: *reversed,
                };
                line.push(text, style);
            }
            let theme = ColorTheme::from_table([("bad", "1"), ("raised", "8")]).unwrap_or_default();
            let mut reader = crate::ansi::AnsiText::new();
            let shown = reader.push(&(encode(&line, &theme, ColorDepth::Ansi256) + "|\n"));
            let mut expect = StyledLine::default();
            for span in &line.spans {
                let indexed = |tone| match tone {
                    Tone::Bad => Tone::Indexed(1),
                    Tone::Raised => Tone::Indexed(8),
                    other => other,
                };
                let mut style = span.style;
                (style.tone, style.background) = (indexed(style.tone), style.background.map(indexed));
                expect.push(&span.text, style);
            }
            expect.push("|", TextStyle::default());
            prop_assert_eq!(shown, vec![expect]);
        }
    }
}
