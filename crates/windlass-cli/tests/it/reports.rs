//! `stats`, computed from the log, and `diagram`, which shows the configuration.

use serde_json::{Value, json};

use crate::cli_fixture::{CliFixture, id_of};

const WORK: &str = r#"
[[step]]
usage = { input = 100, cache_read = 300, output = 20 }
calls = [
  { name = "edit_file", args = { path = "a.txt", old = "one", new = "two" } },
  { name = "bash", args = { command = "exit 3" } },
]
[[step]]
usage = { input = 50, cache_read = 350, output = 5 }
text = "done"
"#;

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn stats_on_a_copied_log_equal_the_live_totals() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let live = json_of(
        &fixture
            .play(WORK, &["--yes", "--json", "--validate", "true"])
            .out,
    );
    let id = id_of(&fixture.sessions()[0]);
    let stats = json_of(&fixture.run(&["stats", "--json"]).out);
    assert_eq!(stats["total"]["spent"], live["totals"]);
    assert_eq!(stats["total"]["spent"]["steps"], 2);
    assert_eq!(stats["total"]["ms"], live["ms"]);
    assert_eq!(stats["total"]["calls"]["count"], 2);
    assert_eq!(stats["tools"]["bash"]["failed"], 1);
    assert_eq!(
        stats["total"]["commands"],
        json!({ "count": 1, "failed": 1, "bytes": 0, "ms": stats["total"]["commands"]["ms"] })
    );
    assert_eq!(
        stats["total"]["files"].as_u64().unwrap(),
        live["files"].as_array().unwrap().len() as u64
    );
    assert_eq!(stats["runs"][0]["outcome"], live["status"]);

    // Copy only the log, to a machine that has nothing else.
    let elsewhere = CliFixture::new();
    let folder = elsewhere
        .home()
        .join(".local/share/windlass/sessions")
        .join(&id);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(
        fixture.sessions()[0].join("events.jsonl"),
        folder.join("events.jsonl"),
    )
    .unwrap();
    assert_eq!(
        json_of(&elsewhere.run(&["stats", &id, "--json"]).out),
        stats
    );
    let all = json_of(&elsewhere.run(&["stats", "--all", "--json"]).out);
    assert_eq!(all["total"]["spent"], live["totals"]);
}

#[test]
fn the_cost_between_runs_is_counted_and_a_fork_is_not_counted_twice() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    assert_eq!(fixture.play(WORK, &["--yes"]).code, 0);
    let id = id_of(&fixture.sessions()[0]);
    let script = fixture.script(
        "[[step]]\ntext = \"## Goal\\nx\"\nusage = { input = 1000, output = 10 }\nrepeat = 2\n",
    );
    let input = |args: &[&str]| {
        json_of(&fixture.run(args).out)["total"]["spent"]["usage"]["input"]
            .as_u64()
            .unwrap()
    };
    let before = input(&["stats", &id, "--json"]);
    // One model call writes the summary between the runs, the other one answers.
    assert_eq!(
        fixture
            .run(&["resume", "--summary", "--script", &script, &id, "go on"])
            .code,
        0
    );
    assert_eq!(input(&["stats", &id, "--json"]), before + 2_000);
    let fork = fixture.run(&["fork", &id]).out;
    assert_eq!(
        input(&["stats", fork.trim(), "--json"]),
        before + 2_000,
        "a copy tells of what it is a copy of"
    );
    assert_eq!(
        input(&["stats", "--all", "--json"]),
        before + 2_000,
        "and was not paid twice"
    );
}

#[test]
fn stats_have_a_row_for_each_step_tool_model_and_run() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    assert_eq!(fixture.play(WORK, &["--yes"]).code, 0);
    for (by, rows, says) in [
        ("step", 2, "model"),
        ("tool", 2, "edit_file"),
        ("model", 1, "scripted"),
        ("run", 1, "r1"),
    ] {
        let text = fixture.run(&["stats", "--by", by]).out;
        assert_eq!(text.lines().count(), rows, "{by}: {text}");
        assert!(text.contains(says), "{by}: {text}");
        let lines = fixture.run(&["stats", "--by", by, "--json"]).out;
        assert_eq!(lines.lines().map(json_of).count(), rows, "{by}: {lines}");
    }
    let text = fixture.run(&["stats"]).out;
    for says in [
        "runs       1 (1 completed)",
        "cost",
        "checks",
        "asks",
        "bash",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert_eq!(fixture.run(&["stats", "../x"]).code, 2);
    assert_eq!(
        CliFixture::new().run(&["stats"]).code,
        2,
        "there are no sessions yet"
    );
}

#[test]
fn a_diagram_shows_the_real_configuration() {
    let fixture = CliFixture::new();
    for (key, value) in [
        ("model", "ollama/qwen3"),
        ("rules.deny", "bash(rm *),python"),
        ("rules.ask", "write_file(docs/**)"),
        ("sandbox.net", "loopback"),
        ("max_steps", "7"),
    ] {
        assert_eq!(fixture.run(&["config", "set", key, value]).code, 0);
    }
    let output = fixture.run(&["diagram", "--validate", "test -e \"a\""]);
    assert_eq!(output.code, 0, "{}", output.err);
    let chart = output.out;
    assert!(chart.starts_with("flowchart LR\n"), "{chart}");
    for says in [
        "runtime: native",
        "provider: ollama",
        "model: qwen3",
        "mode: auto",
        "deny bash#40;rm #42;#41;",
        "ask write_file#40;docs/#42;#42;#41;",
        "tool_bash[",
        "tool_read_file[",
        "sandbox: workspace-write",
        "network: loopback",
        "steps: 7",
        "test -e #34;a#34;<br/>must pass",
        "sessions<br/>",
        "a private copy of",
    ] {
        assert!(chart.contains(says), "{says} is not in\n{chart}");
    }
    assert!(
        !chart.contains("tool_python"),
        "a tool that a rule hides is not on offer:\n{chart}"
    );
    // The chart is valid Mermaid: quotes are paired, groups are closed, and both ends of every arrow exist.
    assert_eq!(
        chart.matches("subgraph ").count(),
        chart.lines().filter(|line| line.trim() == "end").count()
    );
    for line in chart.lines() {
        assert_eq!(line.matches('"').count() % 2, 0, "{line}");
    }
    let ids: Vec<&str> = chart
        .lines()
        .filter_map(|line| line.trim().strip_prefix("subgraph ").or(Some(line.trim())))
        .filter_map(|line| line.split_once('[').map(|(id, _)| id.trim()))
        .collect();
    for arrow in chart.lines().filter(|line| line.contains("->")) {
        let words: Vec<&str> = arrow.split_whitespace().collect();
        for end in [words.first().unwrap(), words.last().unwrap()] {
            assert!(
                ids.contains(end),
                "{end} of `{arrow}` is nowhere in\n{chart}"
            );
        }
    }
    let chart = fixture
        .run(&["diagram", "--in-place", "--sandbox", "full"])
        .out;
    for says in [
        "mode: ask",
        "in place:",
        "no checks",
        "no sandbox at all",
        "network: open",
    ] {
        assert!(chart.contains(says), "{says} is not in\n{chart}");
    }
}
