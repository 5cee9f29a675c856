//! Agents of the ACP registry: listed, installed from a file and an archive on loopback, run under the contract, and removed.

use serde_json::{Value, json};
use windlass_scripted::{Act, ByteServer, http::whole};

use crate::place::{Output, Place};

/// An agent that speaks just enough ACP to write its words and its greeting into a file.
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

/// A place whose settings name a registry with one agent, and the server that has it.
fn with_registry() -> (Place, ByteServer) {
    let place = Place::new();
    place.write("a.txt", "one\n");
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
    let file = place.home().join("registry.json");
    std::fs::write(&file, registry.to_string()).unwrap();
    let set = ["config", "set", "acp_registry", file.to_str().unwrap()];
    assert_eq!(place.run(&set).code, 0);
    (place, server)
}

fn run(place: &Place) -> Output {
    let mut command = place.command(&["run", "--runtime", "acp:greeter", "greet"]);
    command.env("ANTHROPIC_API_KEY", "a-key");
    place.run_with(command, "")
}

fn rows(output: &Output) -> Vec<Value> {
    let lines = output.out.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn an_agent_of_the_registry_is_installed_runs_and_goes() {
    let (place, server) = with_registry();
    let before = run(&place);
    assert_eq!(before.code, 2, "{}", before.err);
    assert!(
        before.err.contains("windlass runtimes install acp:greeter"),
        "{}",
        before.err
    );
    let installed = place.run(&["runtimes", "install", "acp:greeter"]);
    assert_eq!(installed.code, 0, "{}", installed.err);
    assert!(installed.out.contains("1.2.3"), "{}", installed.out);
    assert!(installed.err.contains("no checksum"), "{}", installed.err);
    assert_eq!(server.requests().len(), 1);

    // Settings of the user take precedence over the registry.
    let set = ["config", "set", "runtimes.acp-greeter.env.NAME", "ada"];
    assert_eq!(place.run(&set).code, 0);
    let output = run(&place);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(place.read("greeting.txt"), "acp --now hello ada");

    let listed = rows(&place.run(&["runtimes", "--json"]));
    let row = listed.iter().find(|row| row["name"] == "acp:greeter");
    let row = row.unwrap_or_else(|| panic!("{listed:?}"));
    assert_eq!(
        (&row["version"], &row["found"]),
        (&json!("1.2.3"), &json!(true))
    );

    let removed = place.run(&["runtimes", "remove", "acp:greeter"]);
    assert!(removed.out.contains("removed"), "{}", removed.out);
    assert_eq!(run(&place).code, 2);
}

#[test]
fn the_registry_is_listed_with_what_is_installed() {
    let (place, _server) = with_registry();
    assert_eq!(place.run(&["runtimes", "install", "acp:greeter"]).code, 0);
    let listed = rows(&place.run(&["runtimes", "--registry", "--json"]));
    assert_eq!(
        listed,
        [
            json!({ "id": "greeter", "name": "Greeter", "version": "1.2.3", "source": "binary", "installed": "1.2.3",
                "built_in": null }),
            json!({ "id": "elsewhere", "name": "Elsewhere", "version": "2.0.0", "source": null, "installed": null,
                "built_in": null }),
        ]
    );
    let nothing = place.run(&["runtimes", "install", "acp:elsewhere"]);
    assert_eq!(nothing.code, 2);
    assert!(
        nothing.err.contains("it has nothing for"),
        "{}",
        nothing.err
    );
    let unknown = place.run(&["runtimes", "install", "acp:greter"]);
    assert!(
        unknown.err.contains("did you mean `acp:greeter`?"),
        "{}",
        unknown.err
    );
    // Without a file of the user's, the copy that is part of the program is read.
    let shipped = Place::new().run(&["runtimes", "--registry"]);
    assert!(
        shipped.out.contains("acp:cline") && shipped.out.contains("use `gemini-cli`"),
        "{}",
        shipped.out
    );
}
