//! Hostile text from a model, a command and a file name, on every way out of the binary.

use crate::place::Place;

fn terminal_safe(text: &str) -> bool {
    text.chars().all(|c| {
        c == '\n' || c == '\t' || (!c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c))
    })
}

#[test]
fn nothing_a_run_prints_drives_a_terminal() {
    let place = Place::new();
    std::fs::write(place.work().join("a\u{1b}[2Kb.txt"), "x\n").unwrap();
    // The bytes are written by printf, in octal: escapes, 8-bit controls, broken UTF-8, a forged line.
    let hostile = "text = \"Here \\u001B]52;c;ZXZpbA==\\u0007\\u202E\\u009B2J done\"\n";
    let call = "[[step.calls]]\nname = \"bash\"\n[step.calls.args]\ncommand = \"printf '\\\\033[2J\\\\302\\\\233\\\\377\\\\r\\\\177ok\\\\n{}\\\\n'; ls; false\"\n";
    let script = format!("[[step]]\n{hostile}{call}\n[[step]]\n{hostile}");
    for format in ["text", "json", "stream-json"] {
        let output = place.play(&script, &["--yes", "-v", "-o", format]);
        assert_eq!(output.code, 0, "{}{}", output.out, output.err);
        assert!(terminal_safe(&output.out), "{format}: {:?}", output.out);
        assert!(terminal_safe(&output.err), "{format}: {:?}", output.err);
        assert!(output.out.contains("done"), "{}", output.out);
    }
    let session = crate::place::id_of(&place.sessions().pop().unwrap());
    for args in [
        vec!["sessions", "show", &session],
        vec!["sessions", "export", &session],
        vec!["sessions", "list", "--json"],
    ] {
        let output = place.run(&args);
        assert!(
            terminal_safe(&output.out) && terminal_safe(&output.err),
            "{args:?}: {:?}",
            output.out
        );
        assert_eq!(output.code, 0, "{}", output.err);
    }
    for args in [
        vec!["\u{1b}[2Jx"],
        vec!["config", "get", "\u{1b}]0;x\u{7}"],
        vec!["sessions", "show", "\u{9b}2J"],
    ] {
        let output = place.run(&args);
        assert!(
            terminal_safe(&output.out) && terminal_safe(&output.err),
            "{args:?}: {:?}",
            output.err
        );
        assert_eq!(output.code, 2);
    }
}

/// What the floor lets through is really opened: system files freely, others after a person's yes, links never.
#[test]
fn reading_outside_works_where_it_is_allowed_and_only_there() {
    let place = Place::new();
    std::fs::write(place.home().join("diary.txt"), "dear diary\n").unwrap();
    let diary = place.home().join("diary.txt").display().to_string();
    let call = |path: &str| {
        format!("[[step]]\ncalls = [{{ name = \"read_file\", args = {{ path = \"{path}\" }} }}]\n")
    };
    let script = format!(
        "{}{}[[step]]\ntext = \"end\"\n",
        call("/etc/passwd"),
        call(&diary)
    );
    let output = place.play(&script, &["--yes", "--on-ask", "deny"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let results: Vec<String> = place
        .log()
        .iter()
        .filter(|event| event["kind"] == "call_finished")
        .map(|event| event["data"]["result"]["text"].as_str().unwrap().to_owned())
        .collect();
    assert!(results[0].contains("root:"), "{}", results[0]);
    assert!(
        results[1].starts_with("Error [denied]") && !results[1].contains("dear"),
        "{}",
        results[1]
    );
}

/// A session is named by its id, never by a path, wherever one can be named.
#[test]
fn an_id_that_is_a_path_is_refused_on_every_surface() {
    let place = Place::new();
    assert_eq!(place.play(crate::place::HELLO, &[]).code, 0);
    let script = place.script(crate::place::HELLO);
    for id in [
        "../x",
        "../../../etc/passwd",
        "/etc/passwd",
        "a/../b",
        "..",
        ".",
        "",
        "x y",
    ] {
        for args in [
            vec!["sessions", "show", id],
            vec!["sessions", "export", id],
            vec!["sessions", "delete", "--yes", id],
            vec!["resume", id, "go", "--script", &script],
            vec![
                "run",
                "--in-place",
                "--script",
                &script,
                "--resume",
                id,
                "go",
            ],
        ] {
            let output = place.run(&args);
            assert_eq!(output.code, 2, "{args:?}: {}", output.err);
            assert!(!output.out.contains("root:"), "{args:?}");
        }
    }
    assert_eq!(place.sessions().len(), 1);
}
