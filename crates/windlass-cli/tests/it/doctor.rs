//! `doctor`: its verdict, its short and long lists, its JSON, and its refusals to change AppArmor.

use std::process::Command;

use serde_json::Value;

use crate::cli_fixture::{CliFixture, CliOutput};

fn with_key(fixture: &CliFixture, args: &[&str]) -> Command {
    let mut command = fixture.command(args);
    command
        .env("ANTHROPIC_API_KEY", "a-key")
        .env("PATH", "/usr/bin:/bin");
    command
}

fn json(output: &CliOutput) -> Value {
    serde_json::from_str(&output.out).unwrap()
}

#[track_caller]
fn finding<'a>(report: &'a Value, what: &str) -> &'a Value {
    let findings = report["findings"].as_array().unwrap();
    findings
        .iter()
        .find(|finding| finding["what"] == what)
        .unwrap_or_else(|| panic!("{what}: {report}"))
}

#[test]
fn doctor_begins_with_a_verdict() {
    let fixture = CliFixture::new();
    let mut command = fixture.command(&["doctor"]);
    command.env("PATH", "/usr/bin:/bin");
    let without = fixture.run_with(command, "");
    let first = without.out.lines().next().unwrap();
    assert!(first.starts_with("not ready: "), "{first}");
    let report = json(&fixture.run_with(with_key(&fixture, &["doctor", "--json"]), ""));
    let with = fixture.run_with(with_key(&fixture, &["doctor"]), "").out;
    let first = with.lines().next().unwrap();
    // Whether a sandbox works depends on this machine; the verdict and the fields must agree.
    match report["ready"].as_bool().unwrap() {
        true => {
            let tier = report["sandbox"]["tier"].as_str().unwrap();
            assert!(
                first.starts_with(&format!("ready: commands run in the {tier} sandbox")),
                "{first}"
            );
            assert!(report["todo"].is_null(), "{report}");
            let why = "not ready: no model is configured; set ANTHROPIC_API_KEY";
            assert!(without.out.starts_with(why), "{}", without.out);
        }
        false => {
            assert!(first.starts_with("not ready: "), "{first}");
            assert!(
                first.ends_with(report["todo"].as_str().unwrap()),
                "{first}: {report}"
            );
        }
    }
}

#[test]
fn doctor_has_a_short_list_and_a_long_one() {
    let fixture = CliFixture::new();
    let short = fixture.run_with(with_key(&fixture, &["doctor"]), "").out;
    assert!(short.lines().count() < 30, "{short}");
    for says in [
        "\nmachine\n",
        "\nsandbox\n",
        "\nmodels\n",
        "\nagents\n",
        "key is set",
        "doctor --all",
    ] {
        assert!(short.contains(says), "{says}: {short}");
    }
    assert!(
        !short.contains("GROQ_API_KEY") && !short.contains("qwen-code"),
        "{short}"
    );
    for flag in ["--all", "--verbose", "-a"] {
        let long = fixture
            .run_with(with_key(&fixture, &["doctor", flag]), "")
            .out;
        assert!(
            long.contains("GROQ_API_KEY") && long.contains("qwen-code"),
            "{long}"
        );
    }
}

#[test]
fn doctor_reports_the_sandbox_as_json() {
    let fixture = CliFixture::new();
    let report = json(&fixture.run(&["doctor", "--json"]));
    let sandbox = &report["sandbox"];
    for tier in ["namespaces", "broker", "landlock"] {
        let (ok, why) = (
            sandbox[tier]["ok"].as_bool().unwrap(),
            &sandbox[tier]["why"],
        );
        assert_eq!(ok, why.is_null(), "{tier}: {sandbox}");
        assert_eq!(finding(&report, tier)["ok"], ok);
    }
    assert!(
        sandbox["not_held"].is_array() && sandbox["landlock_version"].is_u64(),
        "{sandbox}"
    );
}

#[test]
fn doctor_reports_a_missing_settings_file() {
    let fixture = CliFixture::new();
    let settings = |fixture: &CliFixture| {
        finding(&json(&fixture.run(&["doctor", "--json"])), "settings")["detail"].to_string()
    };
    let absent = settings(&fixture);
    assert!(
        absent.contains("no settings file") && absent.contains("defaults apply"),
        "{absent}"
    );
    assert_eq!(fixture.run(&["config", "set", "max_steps", "7"]).code, 0);
    let present = settings(&fixture);
    assert!(
        present.ends_with("config.toml\"") && !present.contains("defaults"),
        "{present}"
    );
}

#[test]
fn doctor_checks_local_servers() {
    let fixture = CliFixture::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    assert_eq!(
        fixture
            .run(&["config", "set", "providers.vllm.base_url", &url])
            .code,
        0
    );
    let state = |fixture: &CliFixture| {
        let mut command = fixture.command(&["doctor", "--json"]);
        command.env("PATH", "/usr/bin:/bin");
        let report = json(&fixture.run_with(command, ""));
        (
            finding(&report, "vllm")["ok"].as_bool().unwrap(),
            report["todo"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let (answers, todo) = state(&fixture);
    assert!(answers, "the server listens");
    assert!(
        todo.contains("windlass config set model vllm/MODEL") || !todo.contains("model"),
        "{todo}"
    );
    drop(listener);
    assert_eq!(
        fixture
            .run(&["config", "set", "model", "vllm/a-model"])
            .code,
        0
    );
    let (answers, todo) = state(&fixture);
    assert!(!answers, "no server listens");
    assert!(
        todo.contains("start vllm") || !todo.contains("model"),
        "{todo}"
    );
}

#[test]
fn doctor_reports_a_certificate_file_that_is_missing() {
    let fixture = CliFixture::new();
    assert_eq!(
        fixture
            .run(&["config", "set", "ca_file", "/nowhere/own.pem"])
            .code,
        0
    );
    let report = json(&fixture.run(&["doctor", "--json"]));
    let path = finding(&report, "network path");
    assert!(
        path["ok"] == false
            && path["detail"]
                .as_str()
                .unwrap()
                .contains("/nowhere/own.pem"),
        "{path}"
    );
}

#[test]
fn doctor_fails_on_settings_that_cannot_be_read() {
    let fixture = CliFixture::new();
    let dir = fixture.home().join(".config/windlass");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("config.toml"), "max_steps = [").unwrap();
    let output = fixture.run(&["doctor"]);
    assert!(
        output.code == 1 && output.out.starts_with("not ready: settings: "),
        "{}",
        output.out
    );
    assert_eq!(json(&fixture.run(&["doctor", "--json"]))["ready"], false);
}

#[test]
fn doctor_changes_no_profile_without_confirmation() {
    let fixture = CliFixture::new();
    let file = std::path::Path::new("/etc/apparmor.d/windlass");
    let before = std::fs::read(file).ok();
    // Never use `--yes` here: it would change the profiles of a machine with AppArmor.
    for flag in ["--install-apparmor", "--remove-apparmor"] {
        let output = fixture.run(&["doctor", flag]);
        assert!(
            output.code == 2 && output.err.starts_with("error: "),
            "{}",
            output.err
        );
    }
    assert_eq!(std::fs::read(file).ok(), before);
}
