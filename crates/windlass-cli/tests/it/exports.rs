//! Sessions as pages, audit logs and folders, and words found in all of them.

use serde_json::Value;

use crate::place::{HELLO, Place, id_of};

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

fn worked(place: &Place) -> String {
    place.write("a.txt", "one\n");
    let output = place.play(WORK, &["--approval", "auto", "--on-ask", "deny"]);
    assert_eq!(output.code, 0, "{}", output.err);
    id_of(&place.sessions()[0])
}

#[test]
fn a_page_needs_nothing_else_and_nothing_said_is_code() {
    let place = Place::new();
    let id = worked(&place);
    let to = place.home().join("page.html");
    let output = place.run(&[
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
    // The same again is refused: nothing is written over.
    assert_eq!(
        place
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
fn a_damaged_session_leaves_no_half_export() {
    let place = Place::new();
    let id = worked(&place);
    let log = place.sessions()[0].join("events.jsonl");
    let text = std::fs::read_to_string(&log).unwrap().replacen(
        "\"kind\":\"call_started\"",
        "\"kind\":\"call_st",
        1,
    );
    std::fs::write(&log, text).unwrap();
    let to = place.home().join("page.html");
    let output = place.run(&[
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
    let output = place.run(&["sessions", "search", "answer"]);
    assert!(
        output.err.contains("passed over") && output.err.contains(&id),
        "{}",
        output.err
    );
    assert_eq!(place.run(&["stats", "--all"]).code, 0);
}

#[test]
fn an_audit_tells_who_did_what_and_no_content() {
    let place = Place::new();
    let id = worked(&place);
    let audit = place
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
fn a_trace_is_a_folder_in_the_order_of_the_log() {
    let place = Place::new();
    let id = worked(&place);
    let to = place.home().join("trace");
    let to = to.to_str().unwrap();
    assert_eq!(
        place
            .run(&["sessions", "export", &id, "--format", "trace"])
            .code,
        2,
        "no folder was named"
    );
    assert_eq!(
        place
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
    let output = place.run(&["sessions", "export", &id, "--format", "trace", "--to", to]);
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
        place
            .run(&["sessions", "export", &id, "--format", "trace", "--to", to])
            .code,
        2,
        "it is there"
    );
}

#[test]
fn words_are_found_in_all_sessions_wherever_they_were_said() {
    let place = Place::new();
    worked(&place);
    assert_eq!(place.play(HELLO, &[]).code, 0);
    for (words, who) in [
        ("GO", "person"),
        ("content-OF-the-answer", "model"),
        ("the-content-of-the-command", "call"),
        ("exit code 3", "result"),
        ("hello there", "model"),
    ] {
        let output = place.run(&["sessions", "search", words, "--json"]);
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
    let output = place.run(&["sessions", "search", "go", "-n", "1"]);
    assert_eq!(output.out.lines().count(), 1);
    assert!(output.err.contains("--limit"), "{}", output.err);
    assert_eq!(
        place
            .run(&["sessions", "search", "Hello There", "--case"])
            .code,
        1
    );
    assert_eq!(place.run(&["sessions", "search", ""]).code, 2);
}
