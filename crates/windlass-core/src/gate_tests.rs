use super::*;

/// Judges `write path` or `read path` and compares the verdict and the rule. Command lines are tested in
/// `windlass-shell`.
#[track_caller]
fn check_in(gate: &PermissionGate, place: CallProtection, call: &str, expect: &str) {
    let (verb, rest) = call.split_once(' ').unwrap_or((call, ""));
    let inside = !rest.starts_with('/') && !rest.starts_with('~');
    let (tool, effect, touch) = match verb {
        "read" => (
            "read_file",
            Effect::Read,
            Touch::Read {
                path: rest.into(),
                inside,
            },
        ),
        "write" => (
            "write_file",
            Effect::Write,
            Touch::Write {
                path: rest.into(),
                inside,
                new: false,
            },
        ),
        other => panic!("no verb {other}"),
    };
    let got = gate.judge(&Proposal {
        tool,
        effect,
        touches: &[touch],
        place,
    });
    let shown = format!(
        "{}: {}",
        format!("{:?}", got.verdict).to_lowercase(),
        got.rule
    );
    assert_eq!(shown, expect, "{call}");
}

#[track_caller]
fn check(mode: Mode, call: &str, expect: &str) {
    check_in(
        &PermissionGate {
            mode,
            ..PermissionGate::default()
        },
        CallProtection::default(),
        call,
        expect,
    );
}

/// The most permissive gate: auto mode, and a managed rule that allows everything.
fn loosest() -> PermissionGate {
    PermissionGate {
        mode: Mode::Auto,
        rules: vec![Rule {
            tool: "*".into(),
            pattern: None,
            verdict: Verdict::Allow,
            level: Level::Managed,
        }],
        ..PermissionGate::default()
    }
}

#[test]
fn modes_decide_by_effect() {
    check(Mode::Plan, "read src/lib.rs", "allow: mode plan");
    check(Mode::Plan, "write src/lib.rs", "deny: mode plan");
    check(Mode::Ask, "read src/lib.rs", "allow: mode ask");
    check(Mode::Ask, "write src/lib.rs", "ask: mode ask");
    check(Mode::Edit, "write src/lib.rs", "allow: mode edit");
}

#[test]
fn nothing_loosens_the_floor() {
    let table = [
        (
            "write /etc/hosts",
            "deny: floor: writing outside the workspace",
        ),
        (
            "write /home/u/x",
            "deny: floor: writing outside the workspace",
        ),
        (
            "read /home/u/notes.txt",
            "person: floor: reading outside the workspace",
        ),
        ("read /usr/include/stdio.h", "allow: managed rule *"),
        ("write .git/config", "deny: floor: git internals"),
        (
            "write sub/.GIT/hooks/pre-commit",
            "deny: floor: git internals",
        ),
        ("write .git./config", "deny: floor: git internals"),
        (
            "write .windlass/config.toml",
            "person: floor: agent configuration",
        ),
        ("write .mcp.json", "person: floor: agent configuration"),
        (
            "write .vscode/tasks.json",
            "person: floor: runs on this machine later",
        ),
        (
            "write .github/workflows/ci.yml",
            "person: floor: runs on this machine later",
        ),
        (
            "write .cargo/config.toml",
            "person: floor: runs on this machine later",
        ),
        ("write .bashrc", "deny: floor: shell start-up files"),
        ("read .env", "deny: floor: credentials"),
        ("write app/.env.production", "deny: floor: credentials"),
        ("read /home/u/.ssh/config", "deny: floor: credentials"),
    ];
    for (call, expect) in table {
        check_in(&loosest(), CallProtection::default(), call, expect);
    }
}

#[test]
fn an_isolated_run_may_write_files_that_the_landing_checks() {
    let place = CallProtection {
        isolation: Isolation::Isolated,
        sandboxed: true,
        has_jobs: false,
    };
    check_in(
        &loosest(),
        place,
        "write .github/workflows/ci.yml",
        "allow: managed rule *",
    );
    check_in(
        &loosest(),
        place,
        "write .git/hooks/x",
        "deny: floor: git internals",
    );
}

#[test]
fn the_floor_recognises_devices_and_disguised_names() {
    let table = [
        ("read /proc/42/environ", "deny: floor: credentials"),
        ("read /dev/zero", "deny: floor: devices and processes"),
        ("write git~1/config", "deny: floor: git internals"),
        ("write .g\u{200c}it/config", "deny: floor: git internals"),
        (
            "write .git::$INDEX_ALLOCATION/config",
            "deny: floor: git internals",
        ),
        ("read /home/u/.config/gcloud", "deny: floor: credentials"),
        (
            "read /home/u/.mozilla/firefox/p/key4.db",
            "deny: floor: credentials",
        ),
    ];
    for (call, expect) in table {
        check_in(&loosest(), CallProtection::default(), call, expect);
    }
}

#[test]
fn a_rule_about_a_directory_applies_to_everything_below_it() {
    let rule = |text, verdict| {
        Rule::parse(text, verdict, Level::User).unwrap_or_else(|err| panic!("{err}"))
    };
    let gate = PermissionGate {
        mode: Mode::Ask,
        rules: vec![
            rule("read_file(private/)", Verdict::Deny),
            rule("read_file(keep)", Verdict::Deny),
            rule("write_file(docs/)", Verdict::Allow),
            rule("write_file(src)", Verdict::Allow),
        ],
        ..PermissionGate::default()
    };
    let check = |call, expect| check_in(&gate, CallProtection::default(), call, expect);
    check(
        "read private/deep/key.txt",
        "deny: user rule read_file(private/)",
    );
    check("read private", "deny: user rule read_file(private/)");
    check("read keep/x", "deny: user rule read_file(keep)");
    check("read keeper/x", "allow: mode ask");
    check("write docs/a/b.md", "allow: user rule write_file(docs/)");
    check("write src/lib.rs", "ask: mode ask");
}

#[test]
fn ordinary_files_are_free() {
    for call in [
        "read .env.example",
        "read src/credentials.rs",
        "read docs/secrets.md",
        "write src/key.rs",
        "write .gitignore",
        "write keys.ts",
        "read src/keyrings/mod.rs",
    ] {
        check_in(
            &loosest(),
            CallProtection::default(),
            call,
            "allow: managed rule *",
        );
    }
}

#[test]
fn the_strictest_matching_rule_applies_and_is_named() {
    let rule = |text, verdict, level| {
        Rule::parse(text, verdict, level).unwrap_or_else(|err| panic!("{err}"))
    };
    let gate = PermissionGate {
        mode: Mode::Ask,
        rules: vec![
            rule("write_file(tests/**)", Verdict::Allow, Level::Project),
            rule("Write(tests/golden/**)", Verdict::Deny, Level::User),
            rule("Bash(cargo test*)", Verdict::Allow, Level::Session),
        ],
        ..PermissionGate::default()
    };
    let check = |call, expect| check_in(&gate, CallProtection::default(), call, expect);
    check(
        "write tests/a.rs",
        "allow: project rule write_file(tests/**)",
    );
    check(
        "write tests/golden/a",
        "deny: user rule write_file(tests/golden/**)",
    );
    check("write tests/../../x", "ask: mode ask");
    check("write src/a.rs", "ask: mode ask");
}

#[test]
fn the_error_for_an_invalid_rule_shows_the_format() {
    for bad in ["", "bash(", "bash(x", "(x)", "a b(c)", "bash()"] {
        let err = Rule::parse(bad, Verdict::Allow, Level::User)
            .map(|_| ())
            .map_err(|err| err.to_string());
        assert!(
            err.is_err_and(|text| text.contains("write_file(docs/**)")),
            "{bad}"
        );
    }
    assert_eq!(
        Rule::parse("bash(*)", Verdict::Deny, Level::User).map(|r| r.removes("bash")),
        Ok(true)
    );
}

#[test]
fn always_offers_exactly_the_file_that_was_asked_about() {
    let write = [Touch::Write {
        path: "src/a.rs".into(),
        inside: true,
        new: false,
    }];
    let proposal = Proposal {
        tool: "write_file",
        effect: Effect::Write,
        touches: &write,
        place: CallProtection::default(),
    };
    assert_eq!(
        PermissionGate::always_rule(&proposal).as_deref(),
        Some("write_file(src/a.rs)")
    );
}

#[test]
fn an_unparsed_command_needs_a_person() {
    let touches = [Touch::Execute {
        command: "ls".into(),
        script: None,
    }];
    for place in [
        CallProtection::default(),
        CallProtection {
            isolation: Isolation::Isolated,
            sandboxed: true,
            has_jobs: false,
        },
    ] {
        let got = loosest().judge(&Proposal {
            tool: "bash",
            effect: Effect::Execute,
            touches: &touches,
            place,
        });
        assert_eq!(
            (got.verdict, got.rule.as_str()),
            (Verdict::Person, "floor: a command that cannot be read")
        );
    }
}

#[test]
fn a_rule_about_reading_applies_to_every_tool() {
    let rule = Rule::parse("read_file(private/)", Verdict::Deny, Level::User).expect("a rule");
    let gate = PermissionGate {
        mode: Mode::Auto,
        rules: vec![rule],
        ..PermissionGate::default()
    };
    let touches = [Touch::Read {
        path: "private/x".into(),
        inside: true,
    }];
    let judge = |tool| {
        gate.judge(&Proposal {
            tool,
            effect: Effect::Read,
            touches: &touches,
            place: CallProtection::default(),
        })
    };
    for tool in ["read_file", "grep", "git_diff", "bash", "mcp__x__y"] {
        assert_eq!(judge(tool).rule, "user rule read_file(private/)", "{tool}");
    }
    assert_eq!(gate.hidden_paths(), ["private/"]);
}

#[test]
fn every_stage_reports_its_decision() {
    let rule = |text, verdict| Rule::parse(text, verdict, Level::User).expect("a rule");
    let gate = PermissionGate {
        mode: Mode::Ask,
        rules: vec![
            rule("write_file(**)", Verdict::Allow),
            rule("write_file(docs/**)", Verdict::Ask),
            rule("write_file(docs/law.md)", Verdict::Deny),
        ],
        ..PermissionGate::default()
    };
    let shown = |path: &str, inside| {
        let touches = [Touch::Write {
            path: path.into(),
            inside,
            new: false,
        }];
        let proposal = Proposal {
            tool: "write_file",
            effect: Effect::Write,
            touches: &touches,
            place: CallProtection::default(),
        };
        let explained = gate.explain(&proposal);
        assert_eq!(explained.decision, gate.judge(&proposal));
        let says = |says: Option<Decision>| {
            says.map_or("-".into(), |says| {
                format!("{:?}", says.verdict).to_lowercase()
            })
        };
        let stages: Vec<String> = explained
            .stages
            .into_iter()
            .map(|stage| says(stage.says))
            .collect();
        format!("{} = {}", stages.join(" "), says(Some(explained.decision)))
    };
    // The order is: deny rules, ask rules, allow rules, floor, mode, capability = decision.
    assert_eq!(shown("src/a.rs", true), "- - allow - ask - = allow");
    assert_eq!(shown("docs/a.md", true), "- ask allow - ask - = ask");
    assert_eq!(shown("docs/law.md", true), "deny ask allow - ask - = deny");
    assert_eq!(shown(".vscode/x", true), "- - allow person ask - = person");
    assert_eq!(shown("/etc/x", false), "- - allow deny ask - = deny");
}

#[test]
fn connections_that_the_sandbox_blocks_are_denied_in_advance() {
    let judge = |reach: Reach, sandboxed: bool, host: &str| {
        let gate = PermissionGate {
            mode: Mode::Auto,
            reach,
            ..PermissionGate::default()
        };
        let touches = [Touch::Connect { host: host.into() }];
        let place = CallProtection {
            sandboxed,
            ..CallProtection::default()
        };
        gate.judge(&Proposal {
            tool: "bash",
            effect: Effect::Execute,
            touches: &touches,
            place,
        })
    };
    let denied = judge(Reach::Nothing, true, "a.example");
    assert_eq!(
        (denied.verdict, denied.rule.as_str()),
        (Verdict::Deny, "sandbox: network")
    );
    assert!(
        denied.reason.contains("--net allow:a.example"),
        "{}",
        denied.reason
    );
    assert!(
        judge(Reach::Nothing, true, "localhost")
            .reason
            .contains("--net loopback")
    );
    assert_eq!(
        judge(Reach::Loopback, true, "127.0.0.1").verdict,
        Verdict::Allow
    );
    assert_eq!(
        judge(Reach::Loopback, true, "a.example").verdict,
        Verdict::Deny
    );
    assert_eq!(
        judge(Reach::Something, true, "a.example").verdict,
        Verdict::Allow
    );
    // Without a sandbox nothing would block the connection, so the mode asks.
    assert_eq!(
        judge(Reach::Nothing, false, "a.example").verdict,
        Verdict::Ask
    );
}

#[test]
fn the_private_loopback_is_allowed_if_something_may_listen() {
    let judge = |line: usize, has_jobs: bool| {
        let gate = PermissionGate {
            mode: Mode::Auto,
            reach: Reach::Loopback,
            ..PermissionGate::default()
        };
        let script = ShellScript {
            commands: vec![Simple::default(); line],
            ..ShellScript::default()
        };
        let touches = [
            Touch::Execute {
                command: "curl localhost".into(),
                script: Some(std::sync::Arc::new(script)),
            },
            Touch::Connect {
                host: "localhost".into(),
            },
        ];
        let place = CallProtection {
            isolation: Isolation::Isolated,
            sandboxed: true,
            has_jobs,
        };
        let decision = gate.judge(&Proposal {
            tool: "bash",
            effect: Effect::Execute,
            touches: &touches,
            place,
        });
        decision.rule == "sandbox: network"
    };
    assert!(judge(1, false), "nothing of the run listens");
    assert!(!judge(1, true), "a job may listen");
    assert!(!judge(2, false), "the line may start a server first");
}

#[test]
fn environment_variables_with_secrets_are_withheld() {
    for secret in [
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "DB_PASSWORD",
        "MYAPIKEY",
        "AUTH",
        "npm_config_auth",
    ] {
        assert!(keeps_secret(secret), "{secret}");
    }
    for free in [
        "PATH",
        "GIT_AUTHOR_NAME",
        "XDG_SESSION_ID",
        "KEYBOARD",
        "DBUS_SESSION_BUS_ADDRESS",
        "TOKENIZERS_PARALLELISM",
    ] {
        assert!(!keeps_secret(free), "{free}");
    }
}

#[test]
fn a_credential_path_from_the_settings_needs_a_person() {
    let gate = PermissionGate {
        exposed: vec!["test/*.pem".into()],
        ..loosest()
    };
    check_in(
        &gate,
        CallProtection::default(),
        "read test/server.pem",
        "person: floor: credentials",
    );
    check_in(
        &gate,
        CallProtection::default(),
        "read prod/server.pem",
        "deny: floor: credentials",
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_gate_panic_and_nothing_loosens_git_internals(text in "\\PC{0,60}") {
        let _ = Rule::parse(&text, Verdict::Deny, Level::User);
        let _ = glob_match(&text, "a/b") || glob_match("**/x", &text);
        let touches = [Touch::Execute { command: text.clone(), script: None }, Touch::Write { path: format!(".git/{text}"), inside: true, new: false }];
        let proposal = Proposal { tool: "bash", effect: Effect::Execute, touches: &touches, place: CallProtection::default() };
        proptest::prop_assert_eq!(loosest().judge(&proposal).verdict, Verdict::Deny);
    }
}

#[test]
fn auto_mode_gives_the_true_reason_for_asking() {
    let gate = PermissionGate {
        mode: Mode::Auto,
        reach: Reach::Something,
        ..PermissionGate::default()
    };
    let judge = |effect: Effect, sandboxed: bool| {
        let place = CallProtection {
            sandboxed,
            ..CallProtection::default()
        };
        gate.judge(&Proposal {
            tool: "own",
            effect,
            touches: &[],
            place,
        })
    };
    assert_eq!(judge(Effect::Execute, true).verdict, Verdict::Allow);
    for (effect, sandboxed, says) in [
        (Effect::Execute, false, "no kernel sandbox is in force"),
        (Effect::External, false, "no kernel sandbox is in force"),
        (
            Effect::External,
            true,
            "the sandbox cannot contain the effects of this call",
        ),
    ] {
        let asked = judge(effect, sandboxed);
        assert_eq!(asked.verdict, Verdict::Ask);
        assert!(
            asked.reason.contains(says),
            "{effect:?} {sandboxed}: {}",
            asked.reason
        );
    }
}

#[test]
fn rules_about_writing_apply_to_changed_files() {
    let check = |rule: &str, verdict: Verdict, change: &Change, expect: bool| {
        let rules = vec![Rule::parse(rule, verdict, Level::User).expect("a rule")];
        let gate = PermissionGate {
            rules,
            ..PermissionGate::default()
        };
        let found = gate.rule_about_change("docs/a.md", change, CallProtection::default());
        assert_eq!(found.is_some(), expect, "{rule} {change:?}");
    };
    let (deny, ask) = (Verdict::Deny, Verdict::Ask);
    let moved = Change::MovedFrom("src/lib.rs".to_owned());
    check("write_file(docs/**)", deny, &Change::Created, true);
    check("edit_file(docs/)", ask, &Change::Modified, true);
    check("write_file(docs/**)", deny, &Change::Deleted, true);
    check("delete_file", deny, &Change::Deleted, true);
    check("write_file(src/**)", deny, &moved, true);
    check("edit_file", deny, &Change::Modified, true);
    check("write_file(src/**)", deny, &Change::Modified, false);
    check("read_file(docs/**)", deny, &Change::Modified, false);
    check("bash", deny, &Change::Modified, false);
    check(
        "write_file(docs/**)",
        Verdict::Allow,
        &Change::Modified,
        false,
    );
}
