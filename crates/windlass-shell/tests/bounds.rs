//! No input makes the parser panic or take long.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::{Duration, Instant};

/// The time limit for one line, with a margin for a slow machine under load.
const LONGEST: Duration = Duration::from_secs(10);

#[track_caller]
fn check(line: &str) {
    let begun = Instant::now();
    let script = windlass_shell::read(line);
    let took = begun.elapsed();
    let shown: String = line.chars().take(40).collect();
    assert!(
        took < LONGEST,
        "{shown:?} of {} bytes took {took:?}",
        line.len()
    );
    assert!(script.commands.len() <= 2_000, "{shown:?}");
}

#[test]
fn the_longest_and_deepest_lines_are_parsed_in_time() {
    for piece in [
        "$(",
        "`",
        "${a:-",
        "\"$(",
        "(",
        "{ ",
        "<(",
        "((",
        "$((",
        "[[ ",
        "if ",
        "for i in ",
        "case a in a) ",
        "a=(",
        "<<E ",
        "<<E\n",
        "'",
        "\"",
        "\\",
        "\\\n",
        ";",
        "ls;",
        "ls|",
        "ls&&",
        "a ",
        "a=b ",
        ">x ",
        "2>&1 ",
        "{a,",
        "*",
        "[",
        "eval ",
        "sh -c '",
        "env ",
        "xargs ",
        "timeout 5 ",
        "command ",
        "find -exec ",
        "git -c a.pager=b ",
        "\n",
        "\t",
        "#\n",
        "é",
        "a[",
        "${",
        "$'\\x41",
        "! ",
        "f() { ",
        "function f ",
        "&",
        "<",
        ">",
        "}",
        ")",
        "]]",
        "esac ",
        "done ",
        "$",
        "~/",
        "x<<<y ",
    ] {
        for count in [10, 1_000, 70_000 / piece.len()] {
            check(&piece.repeat(count));
            check(&format!(
                "{}x",
                piece.repeat(count.min(60_000 / piece.len()))
            ));
        }
    }
    check(&("eval ".repeat(3_000) + "x"));
    check(&("$(".repeat(400) + &")".repeat(400)));
    check(&("sh -c ".to_owned() + &"'sh -c ".repeat(500)));
}

#[test]
fn too_long_or_too_deep_lines_are_refused() {
    let unclear = |line: &str| windlass_shell::read(line).unclear.is_some();
    assert!(unclear(&"a".repeat(70_000)));
    assert!(unclear(&("$(".repeat(50) + &")".repeat(50))));
    assert!(unclear(&("true;".repeat(1_200))));
    assert!(unclear("ls \u{1b}[2J"));
    assert!(unclear("ls\0"));
    assert!(unclear("ls\r\ntouch x"));
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(line in "\\PC{0,120}") {
        let _ = windlass_shell::read(&line);
    }

    #[test]
    fn any_line_of_operators_is_read_or_refused(line in "[a-z$(){}<>|&;'\"`\\\\# \n=\\[\\]!*?~/:,.@%+-]{0,80}") {
        let _ = windlass_shell::read(&line);
    }

    #[test]
    fn truncated_lines_are_read_or_refused(pieces in proptest::collection::vec(
        proptest::sample::select(vec![
            "ls", " ", "\n", ";", "|", "&&", "$(", ")", "`", "'", "\"", "${", "}", "<<E", "E", "\nE\n", "case a in", " a) ", ";;",
            " esac", "if ", "then ", "fi", "for i in ", "do ", "done", "{ ", "(", "((", "))", "[[ ", " ]]", "a=", "\\", ">", "<", "#",
            "é", "git ", "-c ", "sed ", "xargs ", "find ", "-exec ", "eval ", "sh -c ", "awk ", "timeout ", "env ",
        ]), 0..40)) {
        let _ = windlass_shell::read(&pieces.concat());
    }
}
