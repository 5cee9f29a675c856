//! Themes: the colour of each tone.

mod palette;

use crate::line::Tone;

pub(crate) use palette::{nearest_16, nearest_16_of, nearest_256};

use palette::{CONTRAST, DARK, LIGHT, TERMINAL};

/// The tones that a theme has a colour for, with the names that settings use.
const NAMES: [(&str, Tone); 20] = [
    ("text", Tone::Text),
    ("muted", Tone::Muted),
    ("accent", Tone::Accent),
    ("ok", Tone::Ok),
    ("warn", Tone::Warn),
    ("bad", Tone::Bad),
    ("added", Tone::Added),
    ("removed", Tone::Removed),
    ("added-emphasis", Tone::AddedEmphasis),
    ("removed-emphasis", Tone::RemovedEmphasis),
    ("surface", Tone::Surface),
    ("raised", Tone::Raised),
    ("line", Tone::Line),
    ("focus", Tone::Focus),
    ("keyword", Tone::Keyword),
    ("literal", Tone::Literal),
    ("number", Tone::Number),
    ("comment", Tone::Comment),
    ("function", Tone::Function),
    ("type", Tone::Type),
];

/// The names of the sixteen colours of a terminal, in the order of their numbers.
const ANSI_NAMES: [&str; 16] = [
    "black",
    "red",
    "green",
    "yellow",
    "blue",
    "magenta",
    "cyan",
    "white",
    "bright-black",
    "bright-red",
    "bright-green",
    "bright-yellow",
    "bright-blue",
    "bright-magenta",
    "bright-cyan",
    "bright-white",
];

const BUILT_IN: [&str; 4] = ["terminal", "dark", "light", "contrast"];

/// One colour of a theme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ThemeColor {
    /// The terminal's own colour of text or background.
    Default,
    /// The terminal's own colour, fainter. Legible on dark and on light terminals.
    Dim,
    /// For backgrounds: swaps the colours of the text and of the background.
    Reversed,
    /// A colour of the terminal's palette.
    Indexed(u8),
    Rgb(u8, u8, u8),
}

/// A value or name in a theme that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThemeError {
    #[error("the theme has no colour named `{name}`{}", hint(.suggestion.as_deref()))]
    UnknownName {
        name: String,
        suggestion: Option<&'static str>,
    },
    #[error("there is no theme named `{name}`{}", hint(.suggestion.as_deref()))]
    UnknownBase {
        name: String,
        suggestion: Option<&'static str>,
    },
    #[error(
        "`{value}` is not a colour for `{name}`; use `#rrggbb`, a number from 0 to 255, `default`, `dim` or a name such as `bright-red`{}",
        hint(.suggestion.as_deref())
    )]
    InvalidColor {
        name: String,
        value: String,
        suggestion: Option<&'static str>,
    },
}

fn hint(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// Maps each tone to a colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColorTheme {
    /// In the order of [`NAMES`].
    colors: [ThemeColor; NAMES.len()],
}

impl Default for ColorTheme {
    fn default() -> Self {
        Self::terminal()
    }
}

impl ColorTheme {
    /// The sixteen colours of the user's terminal.
    #[must_use]
    pub fn terminal() -> Self {
        Self { colors: TERMINAL }
    }

    /// Light text on a dark background.
    #[must_use]
    pub fn dark() -> Self {
        Self { colors: DARK }
    }

    /// Dark text on a white background.
    #[must_use]
    pub fn light() -> Self {
        Self { colors: LIGHT }
    }

    /// Text on black with a contrast of at least 7:1.
    #[must_use]
    pub fn contrast() -> Self {
        Self { colors: CONTRAST }
    }

    /// The built-in theme with a name: `terminal`, `dark`, `light` or `contrast`.
    pub fn built_in(name: &str) -> Result<Self, ThemeError> {
        match name {
            "terminal" => Ok(Self::terminal()),
            "dark" => Ok(Self::dark()),
            "light" => Ok(Self::light()),
            "contrast" => Ok(Self::contrast()),
            _ => Err(ThemeError::UnknownBase {
                name: name.to_owned(),
                suggestion: closest(name, BUILT_IN),
            }),
        }
    }

    /// A theme from the rows of a settings table. `base` names the built-in theme for the tones that have no row; the
    /// default is `terminal`.
    pub fn from_table<K: AsRef<str>, V: AsRef<str>>(
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ThemeError> {
        let mut base = Self::terminal();
        let mut colors: Vec<(usize, ThemeColor)> = Vec::new();
        for (name, value) in rows {
            let (name, value) = (name.as_ref(), value.as_ref());
            if name == "base" {
                base = Self::built_in(value)?;
                continue;
            }
            let same = |known: &str| known == name.replace('_', "-");
            let Some(at) = NAMES.iter().position(|(known, _)| same(known)) else {
                let names = NAMES.iter().map(|(known, _)| *known).chain(["base"]);
                return Err(ThemeError::UnknownName {
                    name: name.to_owned(),
                    suggestion: closest(name, names),
                });
            };
            let color = parse_color(value).ok_or_else(|| ThemeError::InvalidColor {
                name: name.to_owned(),
                value: value.to_owned(),
                suggestion: closest(value, ANSI_NAMES),
            })?;
            colors.push((at, color));
        }
        for (at, color) in colors {
            base.colors[at] = color;
        }
        Ok(base)
    }

    /// The colour of a tone.
    #[must_use]
    pub fn color(&self, tone: Tone) -> ThemeColor {
        match tone {
            Tone::Indexed(index) => ThemeColor::Indexed(index),
            Tone::Rgb(red, green, blue) => ThemeColor::Rgb(red, green, blue),
            _ => {
                let at = NAMES.iter().position(|(_, known)| *known == tone);
                at.map_or(ThemeColor::Default, |at| self.colors[at])
            }
        }
    }

    /// The tones that a theme has a colour for, each with its name in settings.
    pub fn tones() -> impl Iterator<Item = (&'static str, Tone)> {
        NAMES.into_iter()
    }
}

fn closest(name: &str, known: impl IntoIterator<Item = &'static str>) -> Option<&'static str> {
    // The distance takes the product of both lengths; no name is that long.
    let short = |name: &str| name.len() <= 40;
    let distance = |known: &'static str| (strsim::damerau_levenshtein(name, known), known);
    let (best, known) = known
        .into_iter()
        .filter(|_| short(name))
        .map(distance)
        .min()?;
    (best <= 3 && best < known.len()).then_some(known)
}

fn parse_color(value: &str) -> Option<ThemeColor> {
    let value = value.trim().to_ascii_lowercase();
    match value.as_str() {
        "default" => return Some(ThemeColor::Default),
        "dim" => return Some(ThemeColor::Dim),
        "reversed" => return Some(ThemeColor::Reversed),
        _ => {}
    }
    if let Some(digits) = value.strip_prefix('#') {
        let number = u32::from_str_radix(digits, 16).ok()?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let [_, red, green, blue] = number.to_be_bytes();
        return match digits.len() {
            6 => Some(ThemeColor::Rgb(red, green, blue)),
            3 => {
                let nibble = |shift: u32| ((number >> shift & 0xf) * 0x11) as u8;
                Some(ThemeColor::Rgb(nibble(8), nibble(4), nibble(0)))
            }
            _ => None,
        };
    }
    if let Ok(index) = value.parse() {
        return Some(ThemeColor::Indexed(index));
    }
    let name = value.replace('_', "-");
    let index = ANSI_NAMES.iter().position(|known| *known == name)?;
    Some(ThemeColor::Indexed(index as u8))
}

/// The contrast ratio of two colours as the Web Content Accessibility Guidelines define it: 1 for the same colour, 21
/// for black and white.
#[must_use]
pub fn contrast(one: (u8, u8, u8), other: (u8, u8, u8)) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

fn luminance((red, green, blue): (u8, u8, u8)) -> f64 {
    let linear = |value: u8| {
        let value = f64::from(value) / 255.0;
        if value <= 0.04045 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rgb(color: ThemeColor) -> (u8, u8, u8) {
        match color {
            ThemeColor::Rgb(red, green, blue) => (red, green, blue),
            other => panic!("{other:?} is no fixed colour"),
        }
    }

    #[track_caller]
    fn check(theme: &ColorTheme, least: f64) {
        let decoration = [
            Tone::Surface,
            Tone::Raised,
            Tone::Line,
            Tone::AddedEmphasis,
            Tone::RemovedEmphasis,
        ];
        for (name, tone) in ColorTheme::tones() {
            if decoration.contains(&tone) {
                continue;
            }
            for background in [Tone::Surface, Tone::Raised] {
                let ratio = contrast(rgb(theme.color(tone)), rgb(theme.color(background)));
                assert!(ratio >= least, "{name} on {background:?}: {ratio:.2}");
            }
        }
        for (tone, background) in [
            (Tone::Added, Tone::AddedEmphasis),
            (Tone::Text, Tone::AddedEmphasis),
            (Tone::Removed, Tone::RemovedEmphasis),
            (Tone::Text, Tone::RemovedEmphasis),
        ] {
            let ratio = contrast(rgb(theme.color(tone)), rgb(theme.color(background)));
            assert!(ratio >= least, "{tone:?} on {background:?}: {ratio:.2}");
        }
    }

    #[test]
    fn each_text_is_legible() {
        check(&ColorTheme::dark(), 4.5);
        check(&ColorTheme::light(), 4.5);
        check(&ColorTheme::contrast(), 7.0);
    }

    #[test]
    fn the_ratio_is_that_of_the_guidelines() {
        assert!((contrast((0, 0, 0), (255, 255, 255)) - 21.0).abs() < 0.001);
        assert!((contrast((9, 9, 9), (9, 9, 9)) - 1.0).abs() < 0.001);
    }

    #[test]
    fn a_table_changes_colours_of_its_base() {
        let theme = ColorTheme::from_table([
            ("accent", "#f80"),
            ("base", "dark"),
            ("bad", "bright-red"),
            ("removed_emphasis", "52"),
            ("muted", "dim"),
        ]);
        let theme = theme.unwrap_or_default();
        for (tone, expect) in [
            (Tone::Accent, ThemeColor::Rgb(0xff, 0x88, 0)),
            (Tone::Bad, ThemeColor::Indexed(9)),
            (Tone::RemovedEmphasis, ThemeColor::Indexed(52)),
            (Tone::Muted, ThemeColor::Dim),
            (Tone::Ok, ColorTheme::dark().color(Tone::Ok)),
        ] {
            assert_eq!(theme.color(tone), expect, "{tone:?}");
        }
    }

    #[test]
    fn errors_suggest_a_name() {
        for (name, value, expect) in [
            (
                "accents",
                "red",
                "the theme has no colour named `accents`; did you mean `accent`?",
            ),
            (
                "base",
                "drak",
                "there is no theme named `drak`; did you mean `dark`?",
            ),
            (
                "ok",
                "gren",
                "`gren` is not a colour for `ok`; use `#rrggbb`, a number from 0 to 255, `default`, `dim` or a name such as \
                 `bright-red`; did you mean `green`?",
            ),
            (
                "something",
                "red",
                "the theme has no colour named `something`",
            ),
        ] {
            let error = ColorTheme::from_table([(name, value)]).err();
            assert_eq!(
                error.map(|error| error.to_string()).as_deref(),
                Some(expect)
            );
        }
    }

    proptest! {
        #[test]
        fn any_value_is_a_colour_or_an_error(name in ".{0,12}", value in "(#[0-9a-fé]{0,8}|.{0,9}|[0-9]{0,4})") {
            let _ = ColorTheme::from_table([(name.as_str(), "red"), ("text", value.as_str())]);
            if let Ok(theme) = ColorTheme::from_table([("text", value.as_str())]) {
                prop_assert!(!matches!(theme.color(Tone::Text), ThemeColor::Rgb(..)) || value.trim().starts_with('#'));
            }
        }
    }
}
