//! Hostile text from a model, a command and a file name, in every kind of output.

use crate::cli_fixture::CliFixture;

fn terminal_safe(text: &str) -> bool {
    text.chars().all(|c| {
        c == '\n' || c == '\t' || (!c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c))
    })
}

#[test]
fn the_output_of_a_run_cannot_control_a_terminal() {
    let fixture = CliFixture::new();
    std::fs::write(fixture.work().join("a\u{1b}[2Kb.txt"), "x\n").unwrap();
    // `printf` writes escapes, 8-bit controls, invalid UTF-8 and a forged line, in octal.
    let hostile = "text = \"Here \\u001B]52;c;ZXZpbA==\\u0007\\u202E\\u009B2J done\"\n";
    let call = "[[step.calls]]\nname = \"bash\"\n[step.calls.args]\ncommand = \"printf '\\\\033[2J\\\\302\\\\233\\\\377\\\\r\\\\177ok\\\\n{}\\\\n'; ls; false\"\n";
    let script = format!("[[step]]\n{hostile}{call}\n[[step]]\n{hostile}");
    for format in ["text", "json", "stream-json"] {
        let output = fixture.play(&script, &["--yes", "-v", "-o", format]);
        assert_eq!(output.code, 0, "{}{}", output.out, output.err);
        assert!(terminal_safe(&output.out), "{format}: {:?}", output.out);
        assert!(terminal_safe(&output.err), "{format}: {:?}", output.err);
        assert!(output.out.contains("done"), "{}", output.out);
    }
    let session = crate::cli_fixture::id_of(&fixture.sessions().pop().unwrap());
    for args in [
        vec!["sessions", "show", &session],
        vec!["sessions", "export", &session],
        vec!["sessions", "list", "--json"],
    ] {
        let output = fixture.run(&args);
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
        let output = fixture.run(&args);
        assert!(
            terminal_safe(&output.out) && terminal_safe(&output.err),
            "{args:?}: {:?}",
            output.err
        );
        assert_eq!(output.code, 2);
    }
}

/// Files outside the workspace that the floor allows can be read: system files freely, others with approval, symlinks
/// never.
#[test]
fn files_outside_the_workspace_are_read_only_if_allowed() {
    let fixture = CliFixture::new();
    std::fs::write(fixture.home().join("diary.txt"), "dear diary\n").unwrap();
    let diary = fixture.home().join("diary.txt").display().to_string();
    let call = |path: &str| {
        format!("[[step]]\ncalls = [{{ name = \"read_file\", args = {{ path = \"{path}\" }} }}]\n")
    };
    let script = format!(
        "{}{}[[step]]\ntext = \"end\"\n",
        call("/etc/passwd"),
        call(&diary)
    );
    let output = fixture.play(&script, &["--yes", "--on-ask", "deny"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let results: Vec<String> = fixture
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

/// Every command that takes a session accepts an id, never a path.
#[test]
fn a_session_id_that_is_a_path_is_refused_by_every_command() {
    let fixture = CliFixture::new();
    assert_eq!(fixture.play(crate::cli_fixture::HELLO, &[]).code, 0);
    let script = fixture.script(crate::cli_fixture::HELLO);
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
            let output = fixture.run(&args);
            assert_eq!(output.code, 2, "{args:?}: {}", output.err);
            assert!(!output.out.contains("root:"), "{args:?}");
        }
    }
    assert_eq!(fixture.sessions().len(), 1);
}
