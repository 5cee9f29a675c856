//! Exports of sessions as HTML pages, audit logs and traces, and search in sessions.

use serde_json::Value;

use crate::cli_fixture::{CliFixture, HELLO, id_of};

const WORK: &str = r#"
[[step]]
text = "<script>alert('model')</script> & more"
calls = [
  { name = "edit_file", args = { path = "a.txt", old = "one", new = "<img src=x onerror=alert(1)>" } },
  { name = "bash", args = { command = "echo the-content-of-the-command; exit 3" } },
  { name = "write_file", args = { path = "../outside.txt", content = "content-of-a-file" } },
]
[[step]]
text = "content-of-the-answer"
"#;

fn worked(fixture: &CliFixture) -> String {
    fixture.write("a.txt", "one\n");
    let output = fixture.play(WORK, &["--approval", "auto", "--on-ask", "deny"]);
    assert_eq!(output.code, 0, "{}", output.err);
    id_of(&fixture.sessions()[0])
}

#[test]
fn an_html_page_is_self_contained_and_escapes_text() {
    let fixture = CliFixture::new();
    let id = worked(&fixture);
    let to = fixture.home().join("page.html");
    let output = fixture.run(&[
        "sessions",
        "export",
        &id,
        "--format",
        "html",
        "--to",
        to.to_str().unwrap(),
    ]);
    assert_eq!(output.code, 0, "{}", output.err);
    let page = std::fs::read_to_string(&to).unwrap();
    for part in [
        "<!doctype html>",
        "default-src 'none'",
        "prefers-color-scheme: dark",
        "<details",
        "Totals",
        "</html>",
    ] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    for said in [
        "&lt;script&gt;alert(&#39;model&#39;)&lt;/script&gt; &amp; more",
        "content-of-the-answer",
        "exception ·",
    ] {
        assert!(page.contains(said), "{said} is not in\n{page}");
    }
    assert!(
        page.contains("<span class=\"add\">+&lt;img src=x onerror=alert(1)&gt;</span>"),
        "{page}"
    );
    let lower = page.to_lowercase();
    for never in [
        "<script", "<img", "<link", "<iframe", "<object", "http://", "https://", "url(", "@import",
        " href=",
    ] {
        assert!(!lower.contains(never), "{never} is in\n{page}");
    }
    // A second export is refused: existing files are not overwritten.
    assert_eq!(
        fixture
            .run(&[
                "sessions",
                "export",
                &id,
                "--format",
                "html",
                "--to",
                to.to_str().unwrap()
            ])
            .code,
        2
    );
    assert_eq!(std::fs::read_to_string(&to).unwrap(), page);
}

#[test]
fn a_damaged_session_leaves_no_partial_export() {
    let fixture = CliFixture::new();
    let id = worked(&fixture);
    let log = fixture.sessions()[0].join("events.jsonl");
    let text = std::fs::read_to_string(&log).unwrap().replacen(
        "\"kind\":\"call_started\"",
        "\"kind\":\"call_st",
        1,
    );
    std::fs::write(&log, text).unwrap();
    let to = fixture.home().join("page.html");
    let output = fixture.run(&[
        "sessions",
        "export",
        &id,
        "--format",
        "html",
        "--to",
        to.to_str().unwrap(),
    ]);
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(!to.exists());
    let output = fixture.run(&["sessions", "search", "answer"]);
    assert!(
        output.err.contains("skipped") && output.err.contains(&id),
        "{}",
        output.err
    );
    assert_eq!(fixture.run(&["stats", "--all"]).code, 0);
}

#[test]
fn an_audit_log_has_actors_and_actions_and_no_content() {
    let fixture = CliFixture::new();
    let id = worked(&fixture);
    let audit = fixture
        .run(&["sessions", "export", &id, "--format", "audit"])
        .out;
    let rows: Vec<Value> = audit
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let find = |did: &str| {
        let row = rows.iter().find(|row| row["did"] == did);
        row.unwrap_or_else(|| panic!("nobody {did}:\n{audit}"))
    };
    assert_eq!(find("asked")["who"], "person");
    let allowed = find("let a call run");
    assert_eq!(
        (&allowed["verdict"], &allowed["rule"], &allowed["path"]),
        (&"allow".into(), &"mode auto".into(), &"a.txt".into())
    );
    let changed = find("changed a file");
    assert_eq!(
        (
            &changed["path"],
            &changed["added"],
            &changed["images"]["after"]["is"]
        ),
        (&"a.txt".into(), &1.into(), &"file".into())
    );
    assert_eq!(find("saw a command end")["end"]["code"], 3);
    assert_eq!(find("ran a command")["bytes"], 39);
    let denied = find("denied a call");
    assert!(denied["rule"].is_string(), "{denied}");
    assert_eq!(find("ended the run")["outcome"], "completed");
    assert!(
        rows.iter()
            .all(|row| row["at"].is_string() && row["seq"].is_u64() && row["who"].is_string())
    );
    for content in [
        "content-of-the-answer",
        "content-of-a-file",
        "<script>",
        "onerror",
        "one\\n",
    ] {
        assert!(!audit.contains(content), "{content} is in\n{audit}");
    }
}

#[test]
fn a_trace_is_a_directory_in_the_order_of_the_log() {
    let fixture = CliFixture::new();
    let id = worked(&fixture);
    let to = fixture.home().join("trace");
    let to = to.to_str().unwrap();
    assert_eq!(
        fixture
            .run(&["sessions", "export", &id, "--format", "trace"])
            .code,
        2,
        "no folder was named"
    );
    assert_eq!(
        fixture
            .run(&[
                "sessions", "export", "nothing", "--format", "trace", "--to", to
            ])
            .code,
        2
    );
    assert!(
        !std::path::Path::new(to).exists(),
        "a wrong id leaves no folder"
    );
    let output = fixture.run(&["sessions", "export", &id, "--format", "trace", "--to", to]);
    assert_eq!(output.code, 0, "{}", output.err);
    let mut names: Vec<String> = std::fs::read_dir(to)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let kinds: Vec<&str> = names
        .iter()
        .map(|name| name.split_once('-').unwrap().1)
        .collect();
    let expect = [
        "prompt.txt",
        "answer.txt",
        "call-1-edit_file.json",
        "call-2-bash.json",
        "call-3-write_file.json",
        "result-edit_file.txt",
        "result-bash.txt",
        "result-write_file.txt",
        "answer.txt",
        "end.json",
    ];
    assert_eq!(kinds, expect);
    assert_eq!(
        std::fs::read_to_string(format!("{to}/{}", names[0])).unwrap(),
        "go"
    );
    assert_eq!(
        fixture
            .run(&["sessions", "export", &id, "--format", "trace", "--to", to])
            .code,
        2,
        "it is there"
    );
}

#[test]
fn search_finds_text_in_all_parts_of_all_sessions() {
    let fixture = CliFixture::new();
    worked(&fixture);
    assert_eq!(fixture.play(HELLO, &[]).code, 0);
    for (words, who) in [
        ("GO", "person"),
        ("content-OF-the-answer", "model"),
        ("the-content-of-the-command", "call"),
        ("exit code 3", "result"),
        ("hello there", "model"),
    ] {
        let output = fixture.run(&["sessions", "search", words, "--json"]);
        assert_eq!(output.code, 0, "{words}: {}", output.err);
        let hits: Vec<Value> = output
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(
            hits.iter()
                .any(|hit| hit["who"] == who && hit["seq"].is_u64()),
            "{words}: {}",
            output.out
        );
    }
    let output = fixture.run(&["sessions", "search", "go", "-n", "1"]);
    assert_eq!(output.out.lines().count(), 1);
    assert!(output.err.contains("--limit"), "{}", output.err);
    assert_eq!(
        fixture
            .run(&["sessions", "search", "Hello There", "--case"])
            .code,
        1
    );
    assert_eq!(fixture.run(&["sessions", "search", ""]).code, 2);
}
