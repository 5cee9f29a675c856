//! Tests of settings in layers, independent of the settings of this machine.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use super::*;
use crate::flags::Cap;

fn load(user: &str, project: &str) -> Result<Settings, Error> {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join(".config/windlass");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("config.toml"), user).unwrap();
    let root = home.path().join("project");
    std::fs::create_dir_all(root.join(".windlass")).unwrap();
    std::fs::write(root.join(".windlass/config.toml"), project).unwrap();
    Settings::load(Some(&root), Environment::empty().with("HOME", home.path()))
}

#[test]
fn an_untrusted_project_may_only_tighten() {
    let settings = load(
        "max_steps = 20",
        "max_steps = 5\nmodel = \"evil\"\napproval = \"plan\"",
    )
    .unwrap();
    assert_eq!(settings.budget().unwrap().steps, Some(5));
    assert_eq!(
        settings.gate(Mode::Ask, &["bash"]).unwrap().mode,
        Mode::Plan
    );
    assert_eq!(settings.layers.text("model"), None);
    assert_eq!(settings.warnings.len(), 1);
    let loose = load(
        "max_steps = 5",
        "max_steps = 500\napproval = \"auto\"\nmax_tokens = \"unlimited\"",
    )
    .unwrap();
    assert_eq!(loose.budget().unwrap().steps, Some(5));
    assert_eq!(loose.budget().unwrap().tokens, Some(500_000));
    assert_eq!(loose.gate(Mode::Ask, &["bash"]).unwrap().mode, Mode::Ask);
    let rules = load("", "[rules]\nallow = [\"bash\"]\ndeny = [\"bash(rm *)\"]").unwrap();
    let rules = rules.gate(Mode::Ask, &["bash"]).unwrap().rules;
    assert_eq!(
        rules.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["bash(rm *)"]
    );
    let own = load(
        "",
        "rules.deny = [\"greet(x*)\"]\n[tools.greet]\ncommand = [\"true\"]",
    )
    .unwrap();
    assert_eq!(own.gate(Mode::Ask, &["bash"]).unwrap().rules.len(), 1);
}

#[test]
fn a_runtime_may_have_a_mode_of_its_own() {
    #[track_caller]
    fn check(user: &str, project: &str, flags: AgentFlags, expect: Mode) {
        let user = format!(
            "{user}\n[runtimes.codex]\napproval = \"auto\"\n[runtimes.acp]\napproval = \"plan\""
        );
        let mut settings = load(&user, project).unwrap();
        settings.add_flags(&flags, &LimitFlags::default()).unwrap();
        assert_eq!(settings.mode(Mode::Ask), expect);
    }
    let none = AgentFlags::default;
    check("", "", none(), Mode::Ask);
    check(
        "runtime = \"codex\"\napproval = \"edit\"",
        "",
        none(),
        Mode::Auto,
    );
    check("runtime = \"acp:goose acp\"", "", none(), Mode::Plan);
    check(
        "runtime = \"codex\"",
        "approval = \"plan\"",
        none(),
        Mode::Plan,
    );
    check(
        "runtime = \"codex\"",
        "",
        AgentFlags {
            approval: Some(Mode::Ask),
            ..none()
        },
        Mode::Ask,
    );
}

#[test]
fn the_mode_of_the_chosen_runtime_applies_unless_a_stronger_layer_sets_the_mode() {
    #[track_caller]
    fn check(all: Option<SettingsLayer>, one: SettingsLayer, chosen: Option<&str>, expect: Mode) {
        let mut settings = load("runtime = \"auto\"", "").unwrap();
        settings.chosen = chosen.map(str::to_owned);
        if let Some(all) = all {
            settings.layers.add(all, "approval", "ask", "here").unwrap();
        }
        settings
            .layers
            .add(one, "runtimes.codex.approval", "auto", "there")
            .unwrap();
        assert_eq!(settings.mode(Mode::Edit), expect);
    }
    let codex = Some("codex");
    check(None, SettingsLayer::User, codex, Mode::Auto);
    check(None, SettingsLayer::User, None, Mode::Edit);
    check(None, SettingsLayer::User, Some("native"), Mode::Edit);
    check(
        Some(SettingsLayer::User),
        SettingsLayer::User,
        codex,
        Mode::Auto,
    );
    for stronger in [
        SettingsLayer::Project,
        SettingsLayer::Environment,
        SettingsLayer::Flag,
        SettingsLayer::Managed,
    ] {
        check(Some(stronger), SettingsLayer::User, codex, Mode::Ask);
    }
    check(
        Some(SettingsLayer::Flag),
        SettingsLayer::Managed,
        codex,
        Mode::Auto,
    );
}

#[test]
fn errors_contain_the_file_the_line_and_a_suggestion() {
    let text = load("modle = \"x\"", "").err().unwrap().text();
    assert!(
        text.contains("config.toml") && text.contains("model"),
        "{text}"
    );
    let text = load("max_steps = 0", "").err().unwrap().text();
    assert!(
        text.contains("max_steps") && text.contains("unlimited"),
        "{text}"
    );
    let text = load("model = ", "").err().unwrap().text();
    assert!(text.contains('^'), "{text}");
    let settings = load("[rules]\ndeny = [\"bash(\"]", "").unwrap();
    let text = settings.gate(Mode::Ask, &["bash"]).err().unwrap().text();
    assert!(text.contains("config.toml:2"), "{text}");
    let settings = load("[rules]\ndeny = [\"bahs\"]", "").unwrap();
    let text = settings.gate(Mode::Ask, &["bash"]).err().unwrap().text();
    assert!(text.contains("did you mean `bash`?"), "{text}");
    assert!(load("max_steps = 0.5", "").unwrap().budget().is_err());
}

#[test]
fn a_profile_overrides_settings_and_flags_override_it() {
    let user = "model = \"a/x\"\nmax_steps = 9\n[profiles.fast]\nmodel = \"ollama/small\"\nmax_steps = 3\n";
    let mut settings = load(user, "").unwrap();
    let agent = AgentFlags {
        profile: Some("fast".into()),
        ..AgentFlags::default()
    };
    let limits = LimitFlags {
        max_steps: Some(Cap::At(5)),
        ..LimitFlags::default()
    };
    settings.add_flags(&agent, &limits).unwrap();
    assert_eq!(settings.layers.text("model"), Some("ollama/small"));
    assert_eq!(
        settings.layers.get("model").unwrap().origin.place,
        "profile fast"
    );
    assert_eq!(settings.budget().unwrap().steps, Some(5));
    let unknown = AgentFlags {
        profile: Some("fats".into()),
        ..AgentFlags::default()
    };
    let text = load(user, "")
        .unwrap()
        .add_flags(&unknown, &limits)
        .err()
        .unwrap()
        .text();
    assert!(text.contains("did you mean `fast`?"), "{text}");
}

#[test]
fn the_error_of_an_unknown_profile_lists_each_profile_once() {
    let user = "[profiles.plan]\nmax_steps = 3\n[profiles.\"a.b\"]\nmax_steps = 3\nmodel = \"x\"\n";
    let agent = AgentFlags {
        profile: Some("something".into()),
        ..AgentFlags::default()
    };
    let text = load(user, "")
        .unwrap()
        .add_flags(&agent, &LimitFlags::default())
        .err()
        .unwrap()
        .text();
    let list = "the profiles are plan, review, implement, verify, a.b;";
    assert!(text.contains(list), "{text}");
}

#[test]
fn limits_can_be_unlimited() {
    let settings = load("max_tokens = \"unlimited\"\nmax_budget_usd = 0.5", "").unwrap();
    assert_eq!(settings.budget().unwrap().tokens, None);
    assert_eq!(settings.budget().unwrap().tokens_uncached, None);
    assert_eq!(settings.budget().unwrap().cost_micros, Some(500_000));
    assert!(settings.explicit_cost_limit());
}

#[test]
fn a_trusted_project_overrides_the_user_and_flags_override_it() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("project");
    std::fs::create_dir_all(root.join(".windlass")).unwrap();
    let config = home.path().join(".config/windlass");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(
        config.join("config.toml"),
        "model = \"user\"\nmax_steps = 5\n",
    )
    .unwrap();
    let text = "model = \"project\"\nmax_steps = 9\n[providers.groq]\nbase_url = \"http://127.0.0.1:1\"\n[rules]\nallow = [\"bash\"]\n";
    std::fs::write(root.join(".windlass/config.toml"), text).unwrap();
    std::fs::write(
        root.join(".windlass/config.local.toml"),
        "temperature = 0.5\n",
    )
    .unwrap();
    let path = home.path().as_os_str().to_owned();
    let load =
        || Settings::load(Some(&root), Environment::empty().with("HOME", path.clone())).unwrap();
    let before = load();
    assert_eq!(before.layers.text("model"), Some("user"));
    assert_eq!(before.layers.text("providers.groq.base_url"), None);
    assert!(before.gate(Mode::Ask, &["bash"]).unwrap().rules.is_empty());
    assert_eq!((before.untrusted.len(), before.warnings.len()), (2, 5));
    let store = TrustStore::new(before.places.trust_dir());
    store
        .keep(&root, &before.untrusted[0], TrustDecision::Trusted)
        .unwrap();
    store
        .keep(&root, &before.untrusted[1], TrustDecision::Refused)
        .unwrap();
    let mut after = load();
    assert_eq!((after.untrusted.len(), after.warnings.len()), (0, 0));
    assert_eq!(after.layers.text("model"), Some("project"));
    assert!(
        after
            .layers
            .get("model")
            .unwrap()
            .origin
            .place
            .ends_with(".windlass/config.toml:1")
    );
    assert_eq!(after.budget().unwrap().steps, Some(9));
    assert_eq!(after.layers.number("temperature"), None);
    assert_eq!(after.gate(Mode::Ask, &["bash"]).unwrap().rules.len(), 1);
    let agent = AgentFlags {
        model: Some("flag".into()),
        ..AgentFlags::default()
    };
    after.add_flags(&agent, &LimitFlags::default()).unwrap();
    assert_eq!(after.layers.text("model"), Some("flag"));
    std::fs::write(root.join(".windlass/config.toml"), format!("{text} ")).unwrap();
    let changed = load();
    assert_eq!(
        (changed.layers.text("model"), changed.untrusted.len()),
        (Some("user"), 1)
    );
}

#[test]
fn two_lists_of_hosts_are_intersected() {
    use windlass_core::gate::Reach;
    let net = |user: &str, project: &str| {
        let line = |net: &str| format!("sandbox.net = \"{net}\"");
        sandboxing::reach(&load(&line(user), &line(project)).unwrap()).unwrap()
    };
    assert_eq!(
        net("allow:a.example,b.example", "allow:b.example"),
        Reach::Something
    );
    assert_eq!(net("allow:a.example", "allow:b.example"), Reach::Nothing);
    assert_eq!(net("loopback", "open"), Reach::Loopback);
}
