//! The colours of the built-in themes, and the nearest colours of smaller palettes.

use super::{NAMES, ThemeColor};

use ThemeColor::{Default, Dim, Indexed, Reversed};

/// The colours of one theme, in the order of the names.
type Palette = [ThemeColor; NAMES.len()];

const fn rgb(color: u32) -> ThemeColor {
    let [_, red, green, blue] = color.to_be_bytes();
    ThemeColor::Rgb(red, green, blue)
}

pub(super) const TERMINAL: Palette = [
    Default,    // text
    Dim,        // muted
    Indexed(6), // accent
    Indexed(2), // ok
    Indexed(3), // warn
    Indexed(1), // bad
    Indexed(2), // added
    Indexed(1), // removed
    Reversed,   // added-emphasis
    Reversed,   // removed-emphasis
    Default,    // surface
    Default,    // raised
    Dim,        // line
    Indexed(6), // focus
    Indexed(5), // keyword
    Indexed(2), // literal
    Indexed(3), // number
    Dim,        // comment
    Indexed(6), // function
    Indexed(3), // type
];

pub(super) const DARK: Palette = [
    rgb(0xd7_da_e0), // text
    rgb(0x9a_a1_ac), // muted
    rgb(0x7a_a7_ff), // accent
    rgb(0x7f_d1_8c), // ok
    rgb(0xe5_c0_7b), // warn
    rgb(0xff_8a_85), // bad
    rgb(0x85_d9_96), // added
    rgb(0xff_9a_95), // removed
    rgb(0x1f_4d_2e), // added-emphasis
    rgb(0x5c_23_27), // removed-emphasis
    rgb(0x16_18_1d), // surface
    rgb(0x21_25_2c), // raised
    rgb(0x3b_41_4b), // line
    rgb(0x8a_b4_ff), // focus
    rgb(0xc4_9b_ff), // keyword
    rgb(0x9f_d5_9b), // literal
    rgb(0xe8_b2_7a), // number
    rgb(0x94_9b_a6), // comment
    rgb(0x79_bf_ff), // function
    rgb(0x6f_d1_c7), // type
];

pub(super) const LIGHT: Palette = [
    rgb(0x1f_23_28), // text
    rgb(0x59_63_6e), // muted
    rgb(0x0a_58_ca), // accent
    rgb(0x11_63_29), // ok
    rgb(0x7a_4b_00), // warn
    rgb(0xb3_26_1e), // bad
    rgb(0x11_63_29), // added
    rgb(0xa8_20_1a), // removed
    rgb(0xc8_f0_d0), // added-emphasis
    rgb(0xff_d7_d5), // removed-emphasis
    rgb(0xff_ff_ff), // surface
    rgb(0xf3_f4_f6), // raised
    rgb(0xd0_d7_de), // line
    rgb(0x0a_58_ca), // focus
    rgb(0x7a_3f_d0), // keyword
    rgb(0x0a_61_30), // literal
    rgb(0x8a_46_00), // number
    rgb(0x59_63_6e), // comment
    rgb(0x05_50_ae), // function
    rgb(0x0b_6a_75), // type
];

pub(super) const CONTRAST: Palette = [
    rgb(0xff_ff_ff), // text
    rgb(0xc8_c8_c8), // muted
    rgb(0x8f_c1_ff), // accent
    rgb(0x7d_ff_9b), // ok
    rgb(0xff_d7_5f), // warn
    rgb(0xff_a1_9c), // bad
    rgb(0x8d_ff_a8), // added
    rgb(0xff_b8_b3), // removed
    rgb(0x00_3d_14), // added-emphasis
    rgb(0x5a_00_08), // removed-emphasis
    rgb(0x00_00_00), // surface
    rgb(0x10_10_10), // raised
    rgb(0xc8_c8_c8), // line
    rgb(0xff_ff_5f), // focus
    rgb(0xdc_b8_ff), // keyword
    rgb(0xb5_f5_b0), // literal
    rgb(0xff_cf_9e), // number
    rgb(0xc0_c0_c0), // comment
    rgb(0x9c_d3_ff), // function
    rgb(0x8a_f0_e6), // type
];

/// The usual values of the sixteen colours; the user's may differ.
const ANSI_16: [(u8, u8, u8); 16] = [
    (0, 0, 0),
    (205, 0, 0),
    (0, 205, 0),
    (205, 205, 0),
    (0, 0, 238),
    (205, 0, 205),
    (0, 205, 205),
    (229, 229, 229),
    (127, 127, 127),
    (255, 0, 0),
    (0, 255, 0),
    (255, 255, 0),
    (92, 92, 255),
    (255, 0, 255),
    (0, 255, 255),
    (255, 255, 255),
];

/// The values of the colour cube among the 256 colours.
const CUBE: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// The nearest of the sixteen colours to a colour of the palette of 256 colours.
pub(crate) fn nearest_16_of(index: u8) -> u8 {
    match index {
        0..=15 => index,
        16..=231 => {
            let at = usize::from(index - 16);
            nearest_16((CUBE[at / 36], CUBE[at / 6 % 6], CUBE[at % 6]))
        }
        232..=255 => {
            let gray = 8 + 10 * (index - 232);
            nearest_16((gray, gray, gray))
        }
    }
}

/// The nearest of the sixteen colours.
pub(crate) fn nearest_16(color: (u8, u8, u8)) -> u8 {
    let nearest = (0..16).min_by_key(|at| distance(color, ANSI_16[usize::from(*at)]));
    nearest.unwrap_or(7)
}

/// The nearest of the colour cube and of the grays among 256 colours.
pub(crate) fn nearest_256(color: (u8, u8, u8)) -> u8 {
    let step = |value: u8| {
        let nearest = (0..6).min_by_key(|at| CUBE[usize::from(*at)].abs_diff(value));
        nearest.unwrap_or(0)
    };
    let (red, green, blue) = (step(color.0), step(color.1), step(color.2));
    let at = |step: u8| CUBE[usize::from(step)];
    let cube = (at(red), at(green), at(blue));
    let mean = (u16::from(color.0) + u16::from(color.1) + u16::from(color.2)) / 3;
    let gray_step = (mean.saturating_sub(3) / 10).min(23) as u8;
    let gray = 8 + 10 * gray_step;
    if distance(color, (gray, gray, gray)) < distance(color, cube) {
        232 + gray_step
    } else {
        16 + 36 * red + 6 * green + blue
    }
}

fn distance(one: (u8, u8, u8), other: (u8, u8, u8)) -> u32 {
    let square = |one: u8, other: u8| u32::from(one.abs_diff(other)).pow(2);
    // The eye sees differences of green best.
    2 * square(one.0, other.0) + 4 * square(one.1, other.1) + 3 * square(one.2, other.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_of_smaller_palettes_are_near() {
        for (color, of_16, of_256) in [
            ((0, 0, 0), 0, 16),
            ((255, 255, 255), 15, 231),
            ((250, 5, 5), 9, 196),
            ((128, 128, 128), 8, 244),
            ((0, 200, 10), 2, 40),
        ] {
            assert_eq!(nearest_16(color), of_16, "{color:?}");
            assert_eq!(nearest_256(color), of_256, "{color:?}");
        }
        assert_eq!(nearest_16_of(196), 9);
        assert_eq!(nearest_16_of(255), 7);
        assert_eq!(nearest_16_of(3), 3);
    }
}
