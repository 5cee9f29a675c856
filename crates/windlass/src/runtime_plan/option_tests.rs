//! Every option of the settings is honoured by the agents that its words name, and an error on all others.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;

use windlass_host::config::{Layers, SettingKind as ValueKind, SettingsLayer, Value};
use windlass_registry::options::Given;
use windlass_registry::{AgentSetup, Program, adapter};
use windlass_runtimes::acp::profile::AcpProfile;
use windlass_runtimes::agents::{AGENTS, ANY_ACP, ANY_CLI, AgentKind, AgentSpec, Login};

use crate::settings::KEYS;

/// A value that a key may have.
fn sample(path: &str, kind: ValueKind) -> Value {
    match kind {
        ValueKind::Integer => Value::Integer(3),
        ValueKind::Boolean => Value::Boolean(true),
        ValueKind::Texts => {
            let word = match path {
                "setting_sources" => "project",
                "tools" => "terminal",
                "resume_args" => "{session}",
                _ => "word",
            };
            Value::Texts(vec![word.to_owned()])
        }
        ValueKind::Choice(words) => Value::Text(words[0].to_owned()),
        _ if path == "agents" => Value::Text(
            r#"[{"name":"reviewer","description":"Reviews.","instructions":"Review what was done."}]"#.to_owned(),
        ),
        _ if path == "calls_itself" => Value::Text("goose".to_owned()),
        _ if path == "mcp_servers" => Value::Text(r#"{"docs":{"command":"docs"}}"#.to_owned()),
        _ => Value::Text("high".to_owned()),
    }
}

/// What else has to be set, so that a value makes sense.
fn beside(path: &str) -> &'static [(&'static str, &'static str)] {
    match path {
        "fields.text" => &[("output", "jsonl")],
        "resume_args" => &[
            ("output", "jsonl"),
            ("fields.text", "text"),
            ("fields.session", "session"),
        ],
        _ => &[],
    }
}

fn takes(known: &'static AgentSpec, file: &Path, path: &str, value: &Value) -> Result<(), String> {
    let mut text = format!("runtimes.{}.{path} = {value}\n", known.name);
    for (path, value) in beside(path) {
        text.push_str(&format!("runtimes.{}.{path} = \"{value}\"\n", known.name));
    }
    let mut layers = Layers::new(KEYS);
    layers
        .add_text(SettingsLayer::User, Path::new("config.toml"), &text)
        .unwrap();
    let setup = AgentSetup {
        known,
        name: known.name.to_owned(),
        settings: known.name.to_owned(),
        program: Program {
            file: file.to_owned(),
            ..Program::default()
        },
        words: Vec::new(),
        model: Some("m".to_owned()),
        protocol: None,
        masked_dirs: Vec::new(),
        instruction_files: Vec::new(),
        options: Given::read(known.name, &layers).unwrap().options,
    };
    adapter(&setup)
        .map(drop)
        .map_err(|failure| failure.message().to_owned())
}

/// Two agents connect to no server in a folder that they do not trust, and say so.
fn takes_it(name: &str, field: &str) -> bool {
    !(["gemini-cli", "qwen-code"].contains(&name) && field == "mcp_servers")
}

#[test]
fn every_option_is_honoured_by_an_agent_and_an_error_on_those_that_cannot() {
    let agents: Vec<&'static AgentSpec> = AGENTS
        .iter()
        .filter(|known| known.program.is_some())
        .chain([&ANY_ACP, &ANY_CLI])
        .collect();
    let of_runtimes: Vec<_> = KEYS
        .iter()
        .filter(|key| key.name.starts_with("runtimes.*."))
        .collect();
    assert!(of_runtimes.len() > 20);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent");
    std::fs::write(&file, "#!/usr/bin/python3\n").unwrap();
    for key in of_runtimes {
        let name = if key.name.contains(".fields.") {
            ".text"
        } else if key.name.contains(".words.") {
            ".name"
        } else {
            ".NAME"
        };
        let path = key
            .name
            .trim_start_matches("runtimes.*.")
            .replace(".*", name);
        let value = sample(&path, key.kind);
        let given = [path.as_str()]
            .into_iter()
            .chain(beside(&path).iter().map(|(path, _)| *path));
        let fields: Vec<&str> = given.map(|path| path.split('.').next().unwrap()).collect();
        let mut honoured = Vec::new();
        for known in &agents {
            match takes(known, &file, &path, &value) {
                Ok(()) => honoured.push(known.name),
                Err(why) => {
                    let unknown = fields
                        .iter()
                        .any(|field| why.contains(&format!("no option `{field}`")));
                    assert!(
                        unknown || why.contains("does not support MCP servers"),
                        "{}: {why}",
                        known.name
                    );
                }
            }
        }
        // The words of a key say whose it is; without such words it is everybody's.
        let whose = key
            .doc
            .split_once(": ")
            .map(|(whose, _)| whose.split(", ").collect::<Vec<_>>());
        let words = |known: &AgentSpec| match known.kind {
            AgentKind::Acp => [known.name, "ACP"],
            AgentKind::Sidecar(_) => [known.name, "SDKs"],
            _ => [known.name; 2],
        };
        let all: Vec<&str> = agents.iter().flat_map(|known| words(known)).collect();
        let whose = whose.filter(|whose| whose.iter().all(|one| all.contains(one)));
        let meant = |known: &AgentSpec| {
            whose
                .as_ref()
                .is_none_or(|whose| words(known).iter().any(|w| whose.contains(w)))
        };
        let theirs = |known: &&&'static AgentSpec| meant(known) && takes_it(known.name, fields[0]);
        let says: Vec<&str> = agents
            .iter()
            .filter(theirs)
            .map(|known| known.name)
            .collect();
        assert_eq!(honoured, says, "{}", key.name);
    }
}

/// The settings that say what a field of a built-in row says; a field that is added has to be named here.
#[test]
fn a_row_of_the_settings_can_say_what_a_built_in_row_says() {
    let AgentSpec {
        // The name is that of the table.
        name: _,
        kind: _,
        program: _,
        protocols: _,
        vendors: _,
        instruction_files: _,
        masked_dirs: _,
        needs_model: _,
        // A user installs an agent of their own; one of the ACP registry says how in its entry.
        install: _,
        login: _,
        // No protocol of an agent of the settings has a field for these: a text with `{model}` or an option of its own.
        sampling_options: _,
        about: _,
        acp,
    } = &ANY_ACP;
    let AcpProfile {
        calls_itself: _,
        command: _,
        env: _,
        point_at: _,
        home_files: _,
        words: _,
        auth_method: _,
        session_meta: _,
        mode: _,
        fs: _,
        terminal: _,
        mcp: _,
        asks: _,
        reports_cost: _,
        turn_usage: _,
        kinds: _,
        keeps_directory: _,
        steered_by: _,
    } = acp;
    let Login { file: _, hosts: _ } = ANY_ACP.login.unwrap();
    let keys = "kind command wires vendors instruction_files masked_dirs needs_model login_file login_hosts about \
                calls_itself args env.* point_at.* home_files.* words.* auth_method session_meta mode fs terminal mcp asks \
                reports_cost turn_usage kinds.* keeps_directory steered_by";
    for key in keys.split_whitespace() {
        let key = format!("runtimes.*.{key}");
        assert!(KEYS.iter().any(|known| known.name == key), "{key}");
    }
}
