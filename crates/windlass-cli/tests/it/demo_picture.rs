//! Draws `docs/demo.svg`, the picture in the README, from the real output of `windlass demo`. The test fails if the output
//! differs from the picture. `cargo xtask docs` runs the test with `WINDLASS_WRITE_REFERENCE` set, which updates the file.

use std::fmt::Write as _;
use std::path::Path;

use windlass_text::Tone;
use windlass_text::ansi::AnsiText;

use crate::cli_fixture::CliFixture;
use crate::exit_codes::wait_until;
use crate::terminal::PtySession;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/demo.svg");
/// The last line of the picture.
const LAST: &str = "M median.sh";
const LINE_HEIGHT: usize = 19;

#[test]
fn the_picture_in_the_readme_matches_the_demo() {
    let fixture = CliFixture::new();
    let mut terminal = PtySession::start(&fixture, &["demo", "--pace", "0"]);
    terminal.ends_with(0);
    wait_until(|| terminal.text().contains("what to try next"));
    let picture = draw(&screen(&terminal.text()));
    let path = Path::new(FILE);
    if std::env::var_os("WINDLASS_WRITE_REFERENCE").is_some() {
        return std::fs::write(path, picture).unwrap();
    }
    let drawn = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        drawn == picture,
        "docs/demo.svg is not what the demo shows: run `cargo xtask docs`\n{picture}"
    );
}

/// The final lines of the screen, with values that differ between runs replaced.
fn screen(output: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    // The sandbox of this machine takes one line or two.
    let mut about_machine = false;
    for line in output.split("\r\n") {
        // The progress line is erased before anything else is written.
        let stays = line.rsplit("\u{1b}[2K").next().unwrap_or_default();
        let stays = stays.trim_end_matches('\r');
        about_machine =
            stays.contains("sandbox: ") || (about_machine && stays.starts_with("  \u{1b}[2m"));
        if about_machine || is_duration(stays) {
            continue;
        }
        lines.push(fixed(stays));
        if stays.contains(LAST) {
            break;
        }
    }
    lines
}

/// Whether a line has only the duration of a slow call.
fn is_duration(line: &str) -> bool {
    let plain = line.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
    let mut words = plain.split_whitespace();
    let number = words.next().is_some_and(|word| word.parse::<f64>().is_ok());
    number && words.next().is_some_and(|unit| matches!(unit, "ms" | "s")) && words.next().is_none()
}

/// Replaces directories, ids, names of copies and times, which differ in each run, with examples.
fn fixed(line: &str) -> String {
    if let Some((before, _)) = line.split_once("/tmp/windlass-demo-") {
        return format!("{before}/tmp/windlass-demo/project");
    }
    if line.trim_start().starts_with("session ") {
        return "  session 20261118-092142-4ffad6".to_owned();
    }
    if line.contains("completed") {
        let (before, _) = line.rsplit_once(" · ").unwrap_or((line, ""));
        return format!("{before} · 385 ms");
    }
    line.to_owned()
}

fn draw(lines: &[String]) -> String {
    let (width, height) = (790, (lines.len() + 2) * LINE_HEIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"Output of windlass demo\">\n\
         <style>text {{ font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #d6d6d6; \
         white-space: pre }} .b {{ font-weight: bold }} .d {{ fill: #8a8a8a }} .r {{ fill: #ff7b72 }} .g {{ fill: #7ee787 }} \
         .y {{ fill: #e3b341 }} .c {{ fill: #79c0ff }} .m {{ fill: #d2a8ff }} \
         .w {{ text-decoration: underline }}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\"/>\n"
    );
    for (at, line) in lines.iter().enumerate() {
        let y = (at + 1) * LINE_HEIGHT + 8;
        writeln!(
            svg,
            "<text x=\"16\" y=\"{y}\" xml:space=\"preserve\">{}</text>",
            spans(line)
        )
        .unwrap();
    }
    svg.push_str("</svg>\n");
    svg
}

/// Converts the colours of a line to spans.
fn spans(line: &str) -> String {
    let mut reader = AnsiText::new();
    reader.push(line);
    let mut out = String::new();
    for span in reader.finish().unwrap_or_default().spans {
        let style = span.style;
        let color = match style.tone {
            Tone::Indexed(1) => "r",
            Tone::Indexed(2) => "g",
            Tone::Indexed(3) => "y",
            Tone::Indexed(5) => "m",
            Tone::Indexed(6) => "c",
            _ if style.dim => "d",
            _ => "",
        };
        let bold = if style.bold { "b" } else { "" };
        let word = if style.reversed { "w" } else { "" };
        let classes = [color, bold, word]
            .into_iter()
            .filter(|class| !class.is_empty());
        let classes = classes.collect::<Vec<_>>().join(" ");
        let text = escaped(&span.text);
        match classes.as_str() {
            "" => out.push_str(&text),
            _ => write!(out, "<tspan class=\"{classes}\">{text}</tspan>").unwrap(),
        }
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
