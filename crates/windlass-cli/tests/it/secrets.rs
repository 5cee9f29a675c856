//! Plants a key wherever a run could find it: it must appear in no file and no output of the run.

use std::path::Path;

use serde_json::json;
use windlass_scripted::{Act, ByteServer, http};

use crate::cli_fixture::CliFixture;
use crate::model_server::{events, serve};

const ENV_KEY: &str = "planted-in-env-1f9a7c55";
const FILE_KEY: &str = "planted-in-credentials-77ab21";
const SHAPED: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

/// Reads every file below a directory.
fn files(dir: &Path, found: &mut Vec<(std::path::PathBuf, Vec<u8>)>) {
    // The sandbox removes its overlays asynchronously: ignore files that vanish.
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if let Ok(bytes) = std::fs::read(&path) {
            found.push((path, bytes));
        }
    }
}

#[track_caller]
fn check_absent(fixture: &CliFixture, shown: &str) {
    let mut workspace = Vec::new();
    files(&fixture.work(), &mut workspace);
    // The undo data contains files of the workspace unchanged.
    let is_of_workspace = |path: &Path, bytes: &Vec<u8>| {
        path.to_string_lossy().contains("/undo/contents/")
            && workspace.iter().any(|(_, there)| there == bytes)
    };
    for secret in [ENV_KEY, FILE_KEY, SHAPED] {
        assert!(!shown.contains(secret), "{secret} was shown: {shown}");
        let mut all = Vec::new();
        files(&fixture.home().join(".local/share"), &mut all);
        assert!(!all.is_empty());
        for (path, bytes) in all {
            if is_of_workspace(&path, &bytes) {
                continue;
            }
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(secret), "{secret} is in {}", path.display());
        }
    }
}

fn call(id: &str, tool: &str, args: serde_json::Value) -> String {
    let arguments = args.to_string();
    let call = json!({"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "id": id, "function": {"name": tool, "arguments": arguments}}]}}]});
    events(&[
        &call.to_string(),
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ])
}

#[test]
fn a_planted_key_appears_nowhere() {
    let fixture = CliFixture::new();
    let text = format!("a {SHAPED}\nb {ENV_KEY}\nc {FILE_KEY}\n");
    fixture.write("notes.txt", &text);
    let config = fixture.home().join(".config/windlass");
    std::fs::create_dir_all(&config).unwrap();
    let credentials = config.join("credentials.toml");
    std::fs::write(&credentials, format!("openai = \"{FILE_KEY}\"\n")).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&credentials, private).unwrap();

    let said = format!("the keys are {SHAPED} and {ENV_KEY} and {FILE_KEY}");
    let pieces: Vec<String> = said
        .as_bytes()
        .chunks(5)
        .map(|piece| {
            json!({"choices": [{"index": 0, "delta": {"content": std::str::from_utf8(piece).unwrap()}}]}).to_string()
        })
        .collect();
    let mut last: Vec<&str> = pieces.iter().map(String::as_str).collect();
    last.push(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#);
    last.push("[DONE]");
    let half = SHAPED.len() / 2;
    let split = format!(
        "printf %s {}; printf '%s\\n' {}; cat notes.txt; env",
        &SHAPED[..half],
        &SHAPED[half..]
    );
    let answers = vec![
        call("t1", "read_file", json!({"path": "notes.txt"})),
        call("t2", "bash", json!({"command": split})),
        call(
            "t3",
            "write_file",
            json!({"path": "new.txt", "content": format!("x\nkey = {SHAPED}\n")}),
        ),
        call(
            "t4",
            "write_file",
            json!({"path": "bad.txt", "content": "key = [redacted by windlass: secret]\n"}),
        ),
        events(&last),
    ];
    let server = serve(answers);
    let prompt = format!("use {SHAPED} and {ENV_KEY}");
    let args = [
        "run",
        "--in-place",
        "--yes",
        "-m",
        "groq/some-model",
        "--base-url",
        &server.url,
        "-o",
        "stream-json",
        &prompt,
    ];
    let mut command = fixture.command(&args);
    command.env("GROQ_API_KEY", ENV_KEY);
    let output = fixture.run_with(command, "");
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    check_absent(&fixture, &format!("{}{}", output.out, output.err));
    let deltas: String = output
        .out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["kind"] == "delta" && event["data"]["of"] == "text")
        .map(|event| event["data"]["text"].as_str().unwrap().to_owned())
        .collect();
    let gone = "[redacted by windlass: secret]";
    assert_eq!(
        deltas,
        format!("the keys are [redacted by windlass: github token] and {gone} and {gone}")
    );
    for request in server.requests() {
        let body = request.split("\r\n\r\n").nth(1).unwrap();
        assert!(
            !body.contains(SHAPED) && !body.contains(FILE_KEY) && !body.contains(ENV_KEY),
            "{body}"
        );
    }
    // The write succeeded and was reported: the file contains the key, and no file contains the placeholder.
    assert!(
        std::fs::read_to_string(fixture.work().join("new.txt"))
            .unwrap()
            .contains(SHAPED)
    );
    assert!(!fixture.work().join("bad.txt").exists());
    let log = fixture.log();
    let warned: Vec<_> = log
        .iter()
        .filter(|event| event["data"]["code"] == "key_in_file")
        .map(|event| &event["data"]["text"])
        .collect();
    assert_eq!(warned, ["new.txt:2: this looks like a github token"]);
    for command in [vec!["sessions", "show", "--last"], vec!["sessions", "list"]] {
        let output = fixture.run(&command);
        check_absent(&fixture, &format!("{}{}", output.out, output.err));
    }
}

#[test]
fn errors_show_neither_keys_nor_passwords_in_urls() {
    let fixture = CliFixture::new();
    let args = [
        "run",
        "--in-place",
        "-m",
        "groq/some-model",
        "--base-url",
        "http://user:planted-in-env-1f9a7c55@127.0.0.1:1/",
        "go",
    ];
    let mut command = fixture.command(&args);
    command.env("GROQ_API_KEY", "some-other-key-123");
    let output = fixture.run_with(command, "");
    assert_ne!(output.code, 0);
    assert!(
        !format!("{}{}", output.out, output.err).contains(ENV_KEY),
        "{}",
        output.err
    );
}

#[test]
fn a_key_in_a_server_error_is_redacted() {
    let fixture = CliFixture::new();
    let body = format!(
        "{{\"error\":{{\"message\":\"Incorrect API key provided: {ENV_KEY} or {SHAPED}\"}}}}"
    );
    let server = ByteServer::saying(vec![Act::Say(http::whole(401, "", body))]).unwrap();
    let mut command = fixture.command(&[
        "run",
        "--in-place",
        "-m",
        "groq/m",
        "--base-url",
        &server.url,
        "-v",
        "go",
    ]);
    command.env("GROQ_API_KEY", ENV_KEY);
    let output = fixture.run_with(command, "");
    assert_eq!(server.requests().len(), 1);
    assert_eq!(output.code, 7, "{}", output.err);
    assert!(output.err.contains("Incorrect API key"), "{}", output.err);
    check_absent(&fixture, &format!("{}{}", output.out, output.err));
}

#[test]
fn files_of_a_session_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = CliFixture::new();
    let server = serve(vec![
        call("t", "bash", json!({"command": "seq 1 40000"})),
        events(&["[DONE]"]),
    ]);
    let mut command = fixture.command(&[
        "run",
        "--in-place",
        "--yes",
        "-m",
        "groq/m",
        "--base-url",
        &server.url,
        "go",
    ]);
    command.env("GROQ_API_KEY", ENV_KEY);
    fixture.run_with(command, "");
    drop(server);
    let mut waiting = vec![fixture.home().join(".local/share/windlass")];
    let mut seen = 0;
    while let Some(path) = waiting.pop() {
        // The sandbox removes its scratch directory shortly after the run, maybe during this walk.
        let found = match path.symlink_metadata() {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => continue,
            found => found.unwrap(),
        };
        let most = if found.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(
            found.permissions().mode() & 0o777 & !most,
            0,
            "{}",
            path.display()
        );
        seen += 1;
        if found.is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten();
            waiting.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    assert!(seen > 3);
}

#[test]
fn a_key_written_by_a_command_is_reported_like_one_written_by_a_tool() {
    let fixture = CliFixture::new();
    let half = SHAPED.len() / 2;
    // In two pieces, so that the command line contains no key.
    let key = format!("'{}''{}'", &SHAPED[..half], &SHAPED[half..]);
    let bash = |line: &str| {
        format!(
            "[[step]]\ncalls = [{{ name = \"bash\", args = {{ command = {} }} }}]\n",
            json!(line)
        )
    };
    let write = json!(format!("x\nkey = {SHAPED}\n"));
    let script = [
        bash(&format!("printf 'a\\nb %s\\n' {key} > made.txt")),
        bash(&format!("printf 'a\\0b %s\\n' {key} > made.bin")),
        format!(
            "[[step]]\ncalls = [{{ name = \"write_file\", args = {{ path = \"new.txt\", content = {write} }} }}]\n"
        ),
        "[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"more.txt\", content = \"x\\n\" } }]\n"
            .to_owned(),
        bash(&format!("printf '%s\\n' {key} >> more.txt")),
        "[[step]]\ntext = \"done\"\n".to_owned(),
    ];
    let output = fixture.play(&script.concat(), &["--yes"]);
    assert_eq!(output.code, 0, "{}", output.err);
    for name in ["made.txt", "made.bin", "new.txt", "more.txt"] {
        assert!(
            String::from_utf8_lossy(&std::fs::read(fixture.work().join(name)).unwrap())
                .contains(SHAPED),
            "{name}"
        );
    }
    let log = fixture.log();
    let warned = log
        .iter()
        .filter(|event| event["data"]["code"] == "key_in_file")
        .map(|event| event["data"]["text"].as_str().unwrap());
    let says = |at: &str| format!("{at}: this looks like a github token");
    assert_eq!(
        warned.collect::<Vec<_>>(),
        [says("new.txt:2"), says("made.txt:2"), says("more.txt:2")]
    );
    assert_eq!(log.last().unwrap()["kind"], "run_finished");
    assert!(
        !output.err.contains(SHAPED) && !log.iter().any(|event| event.to_string().contains(SHAPED))
    );
}
