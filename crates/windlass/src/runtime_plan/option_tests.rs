//! Each option in the settings works with the agents that its description names, and is an error with all others.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;

use windlass_host::config::{Layers, SettingKind as ValueKind, SettingsLayer, Value};
use windlass_registry::agent_settings::AgentSettings;
use windlass_registry::{AgentProgram, AgentSetup, adapter};
use windlass_runtimes::acp::profile::AcpProfile;
use windlass_runtimes::agents::{AGENTS, ANY_ACP, ANY_CLI, AgentKind, AgentSpec, Login};

use crate::settings::KEYS;

/// A valid value for a key.
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

/// Further settings that an option requires.
fn required_with(path: &str) -> &'static [(&'static str, &'static str)] {
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

fn accept(known: &'static AgentSpec, file: &Path, path: &str, value: &Value) -> Result<(), String> {
    let mut text = format!("runtimes.{}.{path} = {value}\n", known.name);
    for (path, value) in required_with(path) {
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
        program: AgentProgram {
            file: file.to_owned(),
            ..AgentProgram::default()
        },
        words: Vec::new(),
        model: Some("m".to_owned()),
        protocol: None,
        masked_dirs: Vec::new(),
        state_dirs: Vec::new(),
        instruction_files: Vec::new(),
        options: AgentSettings::read(known.name, &layers).unwrap().options,
    };
    adapter(&setup)
        .map(drop)
        .map_err(|failure| failure.message().to_owned())
}

/// Two agents connect to no MCP server in an untrusted directory, and their adapters reject the option.
fn is_supported(name: &str, field: &str) -> bool {
    !(["gemini-cli", "qwen-code"].contains(&name) && field == "mcp_servers")
}

#[test]
fn each_option_works_with_its_agents_and_is_an_error_with_others() {
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
            .chain(required_with(&path).iter().map(|(path, _)| *path));
        let fields: Vec<&str> = given.map(|path| path.split('.').next().unwrap()).collect();
        let mut accepted = Vec::new();
        for known in &agents {
            match accept(known, &file, &path, &value) {
                Ok(()) => accepted.push(known.name),
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
        // The description of a key begins with its agents; without such a list, it applies to all agents.
        let listed = key
            .doc
            .split_once(": ")
            .map(|(listed, _)| listed.split(", ").collect::<Vec<_>>());
        let words = |known: &AgentSpec| match known.kind {
            AgentKind::Acp => [known.name, "ACP"],
            AgentKind::Sidecar(_) => [known.name, "SDKs"],
            _ => [known.name; 2],
        };
        let all: Vec<&str> = agents.iter().flat_map(|known| words(known)).collect();
        let listed = listed.filter(|listed| listed.iter().all(|one| all.contains(one)));
        let is_listed = |known: &AgentSpec| {
            listed
                .as_ref()
                .is_none_or(|listed| words(known).iter().any(|w| listed.contains(w)))
        };
        let is_documented =
            |known: &&&'static AgentSpec| is_listed(known) && is_supported(known.name, fields[0]);
        let documented: Vec<&str> = agents
            .iter()
            .filter(is_documented)
            .map(|known| known.name)
            .collect();
        assert_eq!(accepted, documented, "{}", key.name);
    }
}

/// Each field of a known agent must have a setting, or be listed here as an exception.
#[test]
fn settings_have_all_fields_of_known_agents() {
    let AgentSpec {
        // The name of the table in the settings.
        name: _,
        kind: _,
        program: _,
        protocols: _,
        vendors: _,
        instruction_files: _,
        masked_dirs: _,
        needs_model: _,
        // Users install their own agents; an entry of the ACP registry describes its installation.
        install: _,
        login: _,
        // ACP and one-shot programs have no fields for these; the user can pass them in arguments or options.
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
    let Login {
        file: _,
        hosts: _,
        // Only `windlass auth login` uses these, for agents of the table.
        args: _,
    } = ANY_ACP.login.unwrap();
    let keys = "kind command protocols vendors instruction_files masked_dirs needs_model login_file login_hosts about \
                calls_itself args env.* point_at.* home_files.* words.* auth_method session_meta mode fs terminal mcp asks \
                reports_cost turn_usage kinds.* keeps_directory steered_by";
    for key in keys.split_whitespace() {
        let key = format!("runtimes.*.{key}");
        assert!(KEYS.iter().any(|known| known.name == key), "{key}");
    }
}
