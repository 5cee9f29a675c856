//! The parameters of sequences that select styles and colours.

use crate::line::{TextStyle, Tone};

/// Changes a style by the parameters of one sequence. Unknown parameters are skipped.
pub(super) fn apply(parameters: &str, style: &mut TextStyle) {
    if parameters
        .bytes()
        .any(|byte| !matches!(byte, b'0'..=b'9' | b';' | b':'))
    {
        return;
    }
    let mut rest = parameters.split(';');
    while let Some(parameter) = rest.next() {
        // Colons separate the parts of one parameter.
        if parameter.contains(':') {
            extended(parameter, style);
            continue;
        }
        let Some(code) = number(parameter) else {
            continue;
        };
        match code {
            38 | 48 => {
                let color = match rest.next() {
                    Some("5") => rest.next().and_then(number).map(Tone::Indexed),
                    Some("2") => {
                        let mut part = || rest.next().and_then(number);
                        match (part(), part(), part()) {
                            (Some(red), Some(green), Some(blue)) => {
                                Some(Tone::Rgb(red, green, blue))
                            }
                            _ => None,
                        }
                    }
                    _ => None,
                };
                set_color(style, code, color);
            }
            // The colour of the underline; its parts must not count as codes.
            58 => {
                let count = match rest.next() {
                    Some("5") => 1,
                    Some("2") => 3,
                    _ => 0,
                };
                for _ in 0..count {
                    rest.next();
                }
            }
            _ => simple(code, style),
        }
    }
}

/// An empty parameter is 0; one that is too large has no meaning.
fn number(text: &str) -> Option<u8> {
    if text.is_empty() {
        return Some(0);
    }
    text.parse().ok()
}

fn simple(code: u8, style: &mut TextStyle) {
    match code {
        0 => *style = TextStyle::default(),
        1 => style.bold = true,
        2 => style.dim = true,
        3 => style.italic = true,
        4 | 21 => style.underline = true,
        7 => style.reversed = true,
        9 => style.strikethrough = true,
        22 => (style.bold, style.dim) = (false, false),
        23 => style.italic = false,
        24 => style.underline = false,
        27 => style.reversed = false,
        29 => style.strikethrough = false,
        30..=37 => style.tone = Tone::Indexed(code - 30),
        39 => style.tone = Tone::Text,
        40..=47 => style.background = Some(Tone::Indexed(code - 40)),
        49 => style.background = None,
        90..=97 => style.tone = Tone::Indexed(code - 90 + 8),
        100..=107 => style.background = Some(Tone::Indexed(code - 100 + 8)),
        // Blinking and hidden text are shown as ordinary text.
        _ => {}
    }
}

/// A parameter with parts, such as `4:3`, `38:5:1` or `38:2::1:2:3`.
fn extended(parameter: &str, style: &mut TextStyle) {
    let parts: Vec<&str> = parameter.split(':').take(8).collect();
    let at = |index: usize| parts.get(index).copied().and_then(number);
    match (at(0), at(1)) {
        (Some(4), Some(kind)) => style.underline = kind != 0,
        (Some(code @ (38 | 48)), Some(5)) => set_color(style, code, at(2).map(Tone::Indexed)),
        (Some(code @ (38 | 48)), Some(2)) => {
            // The colour space before the three parts is optional.
            let first = if parts.len() > 5 { 3 } else { 2 };
            if let (Some(red), Some(green), Some(blue)) = (at(first), at(first + 1), at(first + 2))
            {
                set_color(style, code, Some(Tone::Rgb(red, green, blue)));
            }
        }
        _ => {}
    }
}

fn set_color(style: &mut TextStyle, code: u8, color: Option<Tone>) {
    match color {
        None => {}
        Some(color) if code == 38 => style.tone = color,
        Some(color) => style.background = Some(color),
    }
}
