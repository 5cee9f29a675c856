//! Agents of the ACP registry: listed, installed from a file and an archive on loopback, run under the contract, and removed.

use serde_json::{Value, json};
use windlass_scripted::{Act, ByteServer, http::whole};

use crate::cli_fixture::{CliFixture, CliOutput};

/// A minimal ACP agent that writes its arguments and the initialize request to a file.
const AGENT: &str = r#"#!/bin/sh
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
  case $line in
    *'"method":"initialize"'*) answer '{"protocolVersion":1,"agentCapabilities":{}}' ;;
    *'"method":"session/new"'*) answer '{"sessionId":"s"}' ;;
    *'"method":"session/prompt"'*)
      printf '%s %s %s' "$*" "$GREETING" "$NAME" > greeting.txt
      printf '%s\n' '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"done"}}}}'
      answer '{"stopReason":"end_turn"}' ;;
  esac
done
"#;

/// A fixture whose settings name a registry with one agent, and the server that hosts it.
fn with_registry() -> (CliFixture, ByteServer) {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let server = ByteServer::start(|_, _| vec![Act::Say(whole(200, "", AGENT))]).unwrap();
    let target = json!({
        "archive": format!("{}/greeter", server.url),
        "cmd": "./greeter",
        "args": ["acp", "--now"],
        "env": { "GREETING": "hello", "NAME": "nobody" },
    });
    let binary = json!({ "linux-x86_64": target, "linux-aarch64": target });
    let registry = json!({ "version": "1.0.0", "agents": [
        { "id": "greeter", "name": "Greeter", "version": "1.2.3", "distribution": { "binary": binary } },
        { "id": "elsewhere", "name": "Elsewhere", "version": "2.0.0", "distribution": {} },
    ]});
    let file = fixture.home().join("registry.json");
    std::fs::write(&file, registry.to_string()).unwrap();
    let set = ["config", "set", "acp_registry", file.to_str().unwrap()];
    assert_eq!(fixture.run(&set).code, 0);
    (fixture, server)
}

fn run(fixture: &CliFixture) -> CliOutput {
    let mut command = fixture.command(&["run", "--runtime", "acp:greeter", "greet"]);
    command.env("ANTHROPIC_API_KEY", "a-key");
    fixture.run_with(command, "")
}

fn rows(output: &CliOutput) -> Vec<Value> {
    let lines = output.out.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_registry_agent_is_installed_run_and_removed() {
    let (fixture, server) = with_registry();
    let before = run(&fixture);
    assert_eq!(before.code, 2, "{}", before.err);
    assert!(
        before.err.contains("windlass runtimes install acp:greeter"),
        "{}",
        before.err
    );
    let installed = fixture.run(&["runtimes", "install", "acp:greeter"]);
    assert_eq!(installed.code, 0, "{}", installed.err);
    assert!(installed.out.contains("1.2.3"), "{}", installed.out);
    assert!(installed.err.contains("no checksum"), "{}", installed.err);
    assert_eq!(server.requests().len(), 1);

    // Settings of the user take precedence over the registry.
    let set = ["config", "set", "runtimes.acp-greeter.env.NAME", "ada"];
    assert_eq!(fixture.run(&set).code, 0);
    let output = run(&fixture);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.read("greeting.txt"), "acp --now hello ada");

    let listed = rows(&fixture.run(&["runtimes", "--json"]));
    let row = listed.iter().find(|row| row["name"] == "acp:greeter");
    let row = row.unwrap_or_else(|| panic!("{listed:?}"));
    assert_eq!(
        (&row["version"], &row["found"]),
        (&json!("1.2.3"), &json!(true))
    );

    let removed = fixture.run(&["runtimes", "remove", "acp:greeter"]);
    assert!(removed.out.contains("removed"), "{}", removed.out);
    assert_eq!(run(&fixture).code, 2);
}

#[test]
fn the_registry_is_listed_with_what_is_installed() {
    let (fixture, _server) = with_registry();
    assert_eq!(fixture.run(&["runtimes", "install", "acp:greeter"]).code, 0);
    let listed = rows(&fixture.run(&["runtimes", "--registry", "--json"]));
    assert_eq!(
        listed,
        [
            json!({ "id": "greeter", "name": "Greeter", "version": "1.2.3", "source": "binary", "installed": "1.2.3",
                "built_in": null }),
            json!({ "id": "elsewhere", "name": "Elsewhere", "version": "2.0.0", "source": null, "installed": null,
                "built_in": null }),
        ]
    );
    let nothing = fixture.run(&["runtimes", "install", "acp:elsewhere"]);
    assert_eq!(nothing.code, 2);
    assert!(
        nothing.err.contains("it has no source for"),
        "{}",
        nothing.err
    );
    let unknown = fixture.run(&["runtimes", "install", "acp:greter"]);
    assert!(
        unknown.err.contains("did you mean `acp:greeter`?"),
        "{}",
        unknown.err
    );
    // Without a registry file of the user, the built-in copy is used.
    let shipped = CliFixture::new().run(&["runtimes", "--registry"]);
    assert!(
        shipped.out.contains("acp:cline") && shipped.out.contains("`gemini-cli`"),
        "{}",
        shipped.out
    );
}
