use proptest::prelude::*;

use super::*;

fn text_of(lines: &[StyledLine]) -> String {
    let lines: Vec<String> = lines.iter().map(StyledLine::plain).collect();
    lines.join("\n")
}

fn streamed(markdown: &str, options: &MarkdownOptions, ends: &[usize]) -> Vec<StyledLine> {
    let mut stream = MarkdownStream::new(options.clone());
    let mut lines = Vec::new();
    let mut start = 0;
    for end in ends.iter().copied().chain([markdown.len()]) {
        let end = markdown.floor_char_boundary(end.max(start));
        lines.append(&mut stream.push(&markdown[start..end]));
        start = end;
    }
    lines.append(&mut stream.finish());
    lines
}

#[track_caller]
fn check(markdown: &str, expect: &str) {
    let options = MarkdownOptions::with_width(40);
    let lines = render(markdown, &options);
    assert_eq!(text_of(&lines), expect, "{markdown}");
    let ends: Vec<usize> = (0..markdown.len()).collect();
    assert_eq!(streamed(markdown, &options, &ends), lines);
}

#[test]
fn text_is_wrapped_between_words() {
    check(
        "one two three four five six seven eight nine ten",
        "one two three four five six seven eight\nnine ten",
    );
    check("a\n\nb\n", "a\n\nb");
    check("a\n\n\n\nb\n", "a\n\nb");
    check("\n\na", "a");
    check(
        "line one\nline two  \nline three",
        "line one\nline two\nline three",
    );
    check("", "");
}

#[test]
fn lists_and_quotes_are_aligned() {
    check(
        "- first item that is longer than one line is\n  - inner\n3. third\n> said",
        "• first item that is longer than one\n  line is\n  • inner\n3. third\n│ said",
    );
    check("1. a\n1. b\n\n1. c", "1. a\n2. b\n\n3. c");
    check("3) a\n4) b", "3. a\n4. b");
    check(
        "- a\n\n  more\n\n      code\n- b\n\nend",
        "• a\n\n  more\n\n      code\n• b\n\nend",
    );
    check(
        "1. a\n  - b\n    - c\n\n  - d\n2. e",
        "1. a\n   • b\n     • c\n\n   • d\n2. e",
    );
    check("- [x] done\n- [ ] open", "☑ done\n☐ open");
    check("- a\nlazy\n- b", "• a\n  lazy\n• b");
    check("-\n- b", "•\n• b");
    check("text\n- a\n- b\ntext", "text\n• a\n• b\n  text");
    check(
        "> a\n>\n> - b\n>\n> > c\n\nd",
        "│ a\n│\n│ • b\n│\n│ │ c\n\nd",
    );
    check(
        "> a quote that is longer than one line of forty columns",
        "│ a quote that is longer than one line\n│ of forty columns",
    );
    check("> [!WARNING]\n> careful", "│ Warning\n│ careful");
}

#[test]
fn code_in_lists_keeps_its_place() {
    check(
        "1. a\n   ```sh\n   x\n\n   y\n   ```\n2. b",
        "1. a\n       x\n\n       y\n2. b",
    );
    check("1. a\n```sh\nx\n```\n2. b", "1. a\n    x\n2. b");
}

#[test]
fn emphasis_markers_are_removed() {
    check(
        "## Done\n**all** of `a_b` *is* ~~not~~ well",
        "Done\nall of a_b is not well",
    );
    check("Title\n=====\ntext", "Title\ntext");
    check(
        "2 * 3 * 4 and snake_case_name",
        "2 * 3 * 4 and snake_case_name",
    );
    check("a\n\n---\n\nb", &format!("a\n\n{}\n\nb", "─".repeat(40)));
}

#[test]
fn links_show_their_target() {
    check("see [the docs](docs/a.md)", "see the docs (docs/a.md)");
    check(
        "<https://a.example> <a@b.example>",
        "https://a.example a@b.example",
    );
    check("![a cat](cat.png)", "image: a cat (cat.png)");
    check(
        "[a]: http://x.example\n\nsee [A][a]",
        "see A (http://x.example)",
    );
    check(
        "a[^1]\n\n[^1]: note\n    more\n\nend",
        "a[^1]\n\n[^1]: note\n    more\n\nend",
    );
}

#[test]
fn a_link_that_is_defined_later_shows_its_definition_in_a_stream() {
    let markdown = "see [A][a]\n\n[a]: http://x.example\n";
    let options = MarkdownOptions::default();
    assert_eq!(
        text_of(&render(markdown, &options)),
        "see A (http://x.example)"
    );
    assert_eq!(
        text_of(&streamed(markdown, &options, &[])),
        "see [A][a]\n\n[a]: http://x.example"
    );
}

#[test]
fn code_blocks_keep_their_lines() {
    check(
        "```sh\nif true; then   echo x; fi\n\n\tend\n```\nafter",
        "    if true; then   echo x; fi\n\n        end\nafter",
    );
    check("```\nnever closed", "    never closed");
    check("~~~\n```\n~~~\na", "    ```\na");
    check(
        "a\n\n    code\n\n    more\n\nb",
        "a\n\n    code\n\n    more\n\nb",
    );
    check(
        "```\n0123456789012345678901234567890123456789\n```",
        "    012345678901234567890123456789012345\n    6789",
    );
}

#[test]
fn html_is_text() {
    check(
        "<details>\n<summary>x</summary>\n\n- a\n\n</details>",
        "<details>\n<summary>x</summary>\n\n• a\n\n</details>",
    );
    check("a<br>b <b>c</b>", "a\nb <b>c</b>");
    check("<!-- a\n\nb -->\nc", "<!-- a\n\nb -->\nc");
}

#[test]
fn tables_fit_the_width() {
    check(
        "| name | size |\n|:--|--:|\n| a | 1 |\n| long name | 1000 |\n",
        "name       size\n─────────  ────\na             1\nlong name  1000",
    );
    check(
        "| a | b |\n|---|---|\n| short | this cell is much longer than the row has columns |",
        "a      b\n─────  ─────────────────────────────────\nshort  this cell is much longer than the\n       row has columns",
    );
    check(
        "|a|b|c|d|e|f|g|\n|-|-|-|-|-|-|-|\n|1 long text|2 long text|3 long text|4|5|6|7|",
        "a: 1 long text\nb: 2 long text\nc: 3 long text\nd: 4\ne: 5\nf: 6\ng: 7",
    );
}

#[test]
fn escapes_of_a_model_do_not_reach_the_terminal() {
    check("a\u{1b}[2Jb `c\u{1b}]0;x\u{7}`", "a[2Jb c]0;x");
    check("red &#27;[31m &#8238; and `code`\r\n", "red [31m  and code");
    check("[a](<x&#27;y>)", "a (xy)");
}

#[test]
fn complete_blocks_are_returned_once() {
    let mut stream = MarkdownStream::new(MarkdownOptions::default());
    for (piece, committed, tail) in [
        ("# Ti", "", "Ti"),
        ("tle\n", "Title", ""),
        ("\nsome **te", "", "\nsome **te"),
        ("xt**", "", "\nsome text"),
        ("\n\n- a\n", "\nsome text", "\n• a"),
        ("- b", "", "\n• a\n• b"),
        ("\n", "\n• a", "• b"),
        ("\n```rust\nlet", "• b", "\n    let"),
        (" a;\n``", "\n    let a;", ""),
        ("`\n", "", ""),
        ("end", "", "end"),
    ] {
        let lines = stream.push(piece);
        assert_eq!(text_of(&lines), committed, "{piece:?}");
        assert_eq!(text_of(&stream.tail()), tail, "{piece:?}");
    }
    assert_eq!(text_of(&stream.finish()), "end");
    assert!(stream.finish().is_empty());
}

#[test]
fn the_open_block_is_bounded() {
    let mut stream = MarkdownStream::new(MarkdownOptions::with_width(80));
    let mut lines = Vec::new();
    for _ in 0..50_000 {
        lines.append(&mut stream.push("word "));
    }
    assert!(text_of(&stream.tail()).len() < 20_000);
    lines.append(&mut stream.finish());
    assert_eq!(text_of(&lines).split_whitespace().count(), 50_000);
    for piece in ["- item\n  text\n", "> quote\n", "| a | b |\n", "<!-- x\n"] {
        let mut stream = MarkdownStream::new(MarkdownOptions::with_width(80));
        for _ in 0..20_000 {
            stream.push(piece);
        }
        assert!(text_of(&stream.tail()).len() < 300_000, "{piece}");
    }
}

#[test]
fn hostile_texts_are_rendered_in_time() {
    let options = MarkdownOptions::with_width(80);
    for text in [
        ">".repeat(30_000),
        "- ".repeat(30_000),
        "*a ".repeat(30_000),
        "[".repeat(30_000),
        "`".repeat(30_000),
        "[a](".repeat(20_000),
        format!(
            "{}\n{}\n{}",
            "|".repeat(5_000),
            "|-".repeat(5_000),
            "|\n".repeat(5_000)
        ),
        "> ".repeat(200) + "a\n" + &"> \n".repeat(10_000),
        "<b ".repeat(20_000),
        "a\n".repeat(30_000),
        "1. ".repeat(5_000),
    ] {
        let lines = render(&text, &options);
        assert!(lines.len() < 100_000);
        assert!(lines.iter().all(|line| line.width() <= 80));
    }
}

/// Texts as models write them, in pieces.
fn documents() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z ]{1,30}",
        Just("\n".to_owned()),
        Just("\n\n".to_owned()),
        Just("- ".to_owned()),
        Just("  - ".to_owned()),
        Just("1. ".to_owned()),
        Just("```rust\n".to_owned()),
        Just("```\n".to_owned()),
        Just("> ".to_owned()),
        Just("    ".to_owned()),
        Just("## ".to_owned()),
        Just("**".to_owned()),
        Just("`".to_owned()),
        Just("| a | b |\n|---|---|\n| ".to_owned()),
        Just("[a](b)".to_owned()),
        Just("[^1]: ".to_owned()),
        Just("<!-- ".to_owned()),
        Just("-->\n".to_owned()),
        Just("---\n".to_owned()),
        Just("\t".to_owned()),
        Just("漢字".to_owned()),
        "\\PC{0,5}",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn the_pieces_do_not_change_the_lines(markdown in documents(), ends in prop::collection::vec(0_usize..400, 0..12), width in 1_usize..60) {
        let mut ends = ends;
        ends.sort_unstable();
        let options = MarkdownOptions::with_width(width);
        let whole = streamed(&markdown, &options, &[]);
        prop_assert_eq!(streamed(&markdown, &options, &ends), whole.clone());
        prop_assert_eq!(render(&markdown, &options), whole);
    }

    #[test]
    fn the_tail_completes_the_returned_lines(markdown in documents(), end in 0_usize..400) {
        let options = MarkdownOptions::with_width(40);
        let start = &markdown[..markdown.floor_char_boundary(end)];
        let mut stream = MarkdownStream::new(options.clone());
        let mut lines = stream.push(start);
        lines.append(&mut stream.tail());
        // The tail hides a line that may become the end of a code block.
        if !start.trim_end().ends_with('`') {
            prop_assert_eq!(lines, streamed(start, &options, &[]));
        }
    }

    #[test]
    fn lines_fit_and_have_no_control_characters(markdown in "(?s)(.|[\\-#>`|*_ \n\u{1b}\u{202e}]){0,200}", width in 2_usize..60) {
        let options = MarkdownOptions::with_width(width);
        for line in render(&markdown, &options) {
            let text = line.plain();
            prop_assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{:?}", text);
            prop_assert!(line.width() <= width, "{:?}", text);
        }
    }

    #[test]
    fn no_word_is_lost(words in prop::collection::vec("[a-z]{1,8}", 0..30), marks in prop::collection::vec(0_usize..8, 30)) {
        let names = ["", "- ", "1. ", "> ", "# ", "  - ", "\n", "    "];
        let markdown: String = words.iter().enumerate().map(|(at, word)| format!("{}{word}\n", names[marks[at]])).collect();
        let shown = text_of(&render(&markdown, &MarkdownOptions::default()));
        for word in &words {
            prop_assert!(shown.contains(word.as_str()), "{word} in {shown}");
        }
    }
}
