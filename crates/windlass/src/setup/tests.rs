#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;

use windlass_host::secret::Secret;
use windlass_needs::{Need, lacks};

use super::*;
use crate::environment::Environment;

/// A home with a file for each row.
fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let mode = if text.starts_with("#!") { 0o755 } else { 0o600 };
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, mode).unwrap();
    }
    home
}

fn settings_of(home: &Path, variables: &[(&str, &str)]) -> Settings {
    let environment = Environment::empty()
        .with("HOME", home)
        .with("PATH", "/usr/bin:/bin");
    let environment = variables
        .iter()
        .fold(environment, |all, (name, value)| all.with(*name, *value));
    Settings::load(None, environment).unwrap()
}

async fn report(home: &Path, variables: &[(&str, &str)]) -> SetupReport {
    gather_setup(None, &settings_of(home, variables))
        .await
        .unwrap()
}

fn config(home: &Path) -> String {
    std::fs::read_to_string(home.join(".config/windlass/config.toml")).unwrap()
}

fn offered(report: &SetupReport) -> Vec<(SetupAction, Option<&str>)> {
    let all = report.choices.iter();
    // Servers on the machine of the developer are not part of the test.
    all.filter(|choice| choice.action != SetupAction::LocalServer)
        .map(|choice| (choice.action, choice.name.as_deref()))
        .collect()
}

#[tokio::test]
async fn an_empty_home_can_watch_the_demo_or_enter_a_key() {
    let home = home(&[]);
    let report = report(home.path(), &[]).await;
    assert!(!report.ready && report.with.is_none());
    assert!(
        report.why.as_ref().unwrap().contains("no key"),
        "{report:?}"
    );
    assert_eq!(
        offered(&report),
        [(SetupAction::Demo, None), (SetupAction::EnterKey, None)]
    );
}

#[tokio::test]
async fn a_key_is_usable_at_once_and_is_never_in_the_report() {
    let home = home(&[]);
    let key = "sk-ant-0123456789abcdef";
    let report = report(home.path(), &[("ANTHROPIC_API_KEY", key)]).await;
    assert!(report.ready && report.why.is_none(), "{report:?}");
    assert_eq!(report.keys[0].place, "ANTHROPIC_API_KEY");
    assert_eq!(
        offered(&report)[0],
        (SetupAction::VendorKey, Some("anthropic"))
    );
    let text = serde_json::to_string(&report).unwrap();
    assert!(!text.contains("0123456789"), "{text}");
}

#[tokio::test]
async fn a_local_server_that_does_not_answer_is_not_usable() {
    let home = home(&[(
        ".config/windlass/config.toml",
        "model = \"vllm/m\"\nproviders.vllm.base_url = \"http://127.0.0.1:9/v1\"\n",
    )]);
    let report = report(home.path(), &[]).await;
    assert!(!report.ready);
    assert_eq!(
        report.why.as_deref(),
        Some("`vllm` does not answer at http://127.0.0.1:9/v1")
    );
}

#[tokio::test]
async fn a_signed_in_agent_is_preferred_and_applying_keeps_the_file() {
    if lacks(Need::Namespaces) {
        return;
    }
    let home = home(&[
        ("claude", "#!/bin/sh\necho '2.1.325 (Claude Code)'\n"),
        (".claude/.credentials.json", "hunter2"),
    ]);
    let program = home.path().join("claude");
    let text = format!(
        "# mine\nmax_steps = 7 # few\n\n[runtimes.claude-code]\ncommand = \"{}\"\n",
        program.display()
    );
    let file = home.path().join(".config/windlass/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, &text).unwrap();
    let settings = settings_of(home.path(), &[("OPENAI_API_KEY", "sk-0123456789abcdef")]);
    let found = gather_setup(None, &settings).await.unwrap();
    let claude = found.agents.iter().find(|one| one.name == "claude-code");
    assert!(
        claude.is_some_and(|one| one.signed_in && !one.usable),
        "{found:?}"
    );
    assert_eq!(
        offered(&found)[..2],
        [
            (SetupAction::AgentLogin, Some("claude-code")),
            (SetupAction::VendorKey, Some("openai"))
        ]
    );
    let selection = SetupSelection {
        name: Some("claude-code".into()),
        ..SetupSelection::of(SetupAction::AgentLogin)
    };
    let change = apply_setup(&selection, &settings).unwrap();
    assert_eq!(change.settings.len(), 3);
    let now = config(home.path());
    assert!(now.starts_with("# mine\nmax_steps = 7 # few\n"), "{now}");
    let settings = settings_of(home.path(), &[]);
    assert_eq!(settings.layers.text("runtime"), Some("claude-code"));
    let found = gather_setup(None, &settings).await.unwrap();
    assert!(found.ready, "{found:?}");
    assert_eq!(found.with.as_deref(), Some("uses its own sign-in"));

    // The key replaces the agent again.
    let settings = settings_of(home.path(), &[("OPENAI_API_KEY", "sk-0123456789abcdef")]);
    let selection = SetupSelection {
        name: Some("openai".into()),
        ..SetupSelection::of(SetupAction::VendorKey)
    };
    apply_setup(&selection, &settings).unwrap();
    let settings = settings_of(home.path(), &[]);
    assert_eq!(settings.layers.text("runtime"), Some("native"));
    assert!(
        settings
            .layers
            .text("model")
            .unwrap()
            .starts_with("openai/")
    );
}

#[test]
fn an_entered_key_is_stored_only_if_it_can_be_used() {
    let home = home(&[(".config/windlass/config.toml", "# mine\nmax_steps = 7\n")]);
    let settings = settings_of(home.path(), &[("WINDLASS_MODEL", "openai/other")]);
    let enter = |name: &str, key: &str| SetupSelection {
        name: Some(name.into()),
        key: Some(Secret::new(key)),
        ..SetupSelection::of(SetupAction::EnterKey)
    };
    let text = |selection: &SetupSelection| apply_setup(selection, &settings).unwrap_err().text();
    assert!(text(&enter("openai", "sk-ant-0123456789")).contains("of anthropic"));
    assert!(text(&enter("groq", "gsk_0123456789")).contains("no default model"));
    assert!(text(&enter("ollama", "0123456789")).contains("needs no key"));
    assert!(text(&SetupSelection::of(SetupAction::EnterKey)).contains("the name of a vendor"));
    assert!(text(&SetupSelection::of(SetupAction::Demo)).contains("windlass demo"));
    let none = SetupSelection {
        name: Some("anthropic".into()),
        ..SetupSelection::of(SetupAction::VendorKey)
    };
    assert!(text(&none).contains("windlass auth login anthropic"));
    let agent = SetupSelection {
        name: Some("claude-code".into()),
        ..SetupSelection::of(SetupAction::AgentLogin)
    };
    assert!(!text(&agent).is_empty());
    assert!(!settings.places.credentials_file().exists());
    assert_eq!(config(home.path()), "# mine\nmax_steps = 7\n");

    let change = apply_setup(&enter("anthropic", "sk-ant-0123456789"), &settings).unwrap();
    assert!(change.warnings[0].contains("WINDLASS_MODEL"), "{change:?}");
    assert!(config(home.path()).starts_with("# mine\nmax_steps = 7\nmodel = \"anthropic/"));
    let stored = Credentials::read(&settings.places.credentials_file()).unwrap();
    assert_eq!(
        stored.get("anthropic").unwrap().expose(),
        "sk-ant-0123456789"
    );
    assert!(!format!("{:?}", enter("anthropic", "sk-ant-0123456789")).contains("0123"));
}
