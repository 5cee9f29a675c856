//! The commands after `/`.

use crate::cli_fixture::CliFixture;
use crate::interface_fixture::{CTRL_U, DOWN, ENTER, ESC, SHIFT_TAB, Ui};

const TWO_RUNS: &str = r#"
follow = "history"
[[step]]
calls = [{ name = "read_file", args = { path = "a.txt" } }]
usage = { input = 1200, output = 40 }
[[step]]
text = "It has **one** line."
usage = { input = 1300, output = 20 }
[[step]]
text = "second answer"
"#;

fn after_a_run(more: &[&str]) -> (CliFixture, Ui) {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let mut ui = Ui::chat_sized(&fixture, TWO_RUNS, (100, 50), more);
    ui.submit("read it");
    ui.wait("Done ·");
    ui.wait_idle();
    (fixture, ui)
}

#[test]
fn reports_are_shown_as_lines() {
    let (fixture, mut ui) = after_a_run(&[]);
    let reports = [
        ("/context", "Context: about", "context"),
        ("/cost", "output tokens", "cost"),
        ("/permissions", "approval mode", "permissions"),
        ("/diff", "there are no changes", "no_diff"),
    ];
    for (command, text, name) in reports {
        ui.command(command);
        ui.wait(text);
        ui.snapshot(name);
    }
    ui.command("/doctor");
    ui.wait_times("✓ bash", 1);
    let screen = ui.emulator().all();
    for fact in ["✓ git", "✓ bash", "✓ workspace"] {
        assert!(screen.contains(fact), "{screen}");
    }
    ui.command("/event 1");
    ui.wait("\"kind\": \"session_opened\"");
    ui.keys("#2");
    ui.keys(ENTER);
    ui.wait("\"seq\": 2");
    ui.command("/event 9999");
    ui.wait("the session has no event #9999");
    ui.command("/event x");
    ui.wait("name the number of an event");
    let files = || {
        let entries = std::fs::read_dir(fixture.work()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    ui.command("/export chat.md");
    ui.wait("wrote chat.md");
    assert!(fixture.read("chat.md").contains("It has **one** line."));
    ui.command("/export chat.md");
    ui.wait("chat.md cannot be written");
    ui.command("/share chat.html");
    ui.wait("wrote chat.html");
    assert!(fixture.read("chat.html").contains("<html"));
    assert_eq!(files(), ["a.txt", "chat.html", "chat.md"]);
    ui.command("/copy");
    ui.wait("copied ");
    // The text is in the clipboard sequence.
    let bytes = ui.emulator().bytes.clone();
    let text = String::from_utf8(bytes).unwrap();
    let (_, copied) = text.rsplit_once("\u{1b}]52;c;").unwrap();
    assert!(copied.starts_with("SXQgaGFzIG9uZSBsaW5lLg"), "{copied:?}");
    ui.command("/compact");
    ui.wait("compacted the conversation:");
    ui.command("/clear");
    ui.wait("cleared the conversation");
    ui.quit();
}

#[test]
fn the_help_names_all_commands_and_keys() {
    let (_fixture, mut ui) = after_a_run(&[]);
    ui.command("/help");
    ui.wait_times("Close the list or the search", 1);
    let all = ui.emulator().all();
    for word in [
        "/model [NAME]",
        "/undo",
        "/rewind",
        "!command",
        "#text",
        "@path",
        "Shift-Tab",
        "Esc Esc",
        "/quit",
    ] {
        assert!(all.contains(word), "{word}\n{all}");
    }
    ui.quit();
}

#[test]
fn commands_change_the_next_run() {
    let (fixture, mut ui) = after_a_run(&[]);
    let checks: &[(&str, &str)] = &[
        ("/mode auto", "· auto ·"),
        (
            "/mode wrong",
            "`wrong` is no approval mode; use plan, ask, edit, auto",
        ),
        ("/isolated", "· isolated"),
        ("/in-place", "· in place"),
        ("/agent patch", "· patch ·"),
        ("/agent native", "· native ·"),
        ("/budget 2.50", "the limit applies from the next run on"),
        ("/budget much", "name an amount in US dollars"),
        (
            "/budget unlimited",
            "the limit applies from the next run on",
        ),
        ("/checks", "uses the checks that are found in the project"),
        (
            "/checks sh test.sh; true",
            "the checks apply from the next run on",
        ),
        ("/checks", "checks of the next run: sh test.sh · true"),
        (
            "/screen wrong",
            "choose `/screen inline`, `/screen full` or `/screen plain`",
        ),
        ("/theme wrong", "⚠"),
        ("/vi", "use `/vi on` or `/vi off`"),
        ("/land", "this session has no kept run"),
        ("/discard", "this session has no kept run"),
        ("/keep", "no landing waits for an answer"),
        ("/queue", "no prompt waits"),
    ];
    for (command, text) in checks {
        ui.command(command);
        ui.wait(text);
    }
    ui.command("/checks none");
    ui.wait("the checks apply");
    // Shift-Tab goes through the modes.
    for mode in ["plan", "ask", "edit", "auto"] {
        ui.keys(SHIFT_TAB);
        ui.wait(&format!("· {mode} ·"));
    }
    ui.command("/mode");
    ui.wait("Choose the approval mode");
    ui.snapshot("modes");
    ui.keys("pl");
    ui.wait("1 of 1");
    ui.keys(ENTER);
    ui.wait("· plan ·");
    ui.command("/model");
    ui.wait("Choose the model of the next run");
    ui.keys("haiku");
    ui.wait_gone("gpt");
    ui.keys(ESC);
    ui.wait_gone("Choose the model of");
    ui.command("/agent");
    ui.wait("Choose the agent of the next run");
    ui.wait("claude-code");
    ui.keys(ESC);
    ui.wait_gone("Choose the agent");
    // The changes apply.
    ui.submit("again");
    ui.wait("second answer");
    ui.wait_idle();
    let mut started = fixture
        .log()
        .into_iter()
        .filter(|event| event["kind"] == "run_started");
    let flags = started.next_back().unwrap()["data"]["flags"].clone();
    assert_eq!(flags["approval"], "plan", "{flags}");
    assert_eq!(flags["max_budget_usd"], "unlimited", "{flags}");
    assert_eq!(flags["validate"], serde_json::json!(["none"]), "{flags}");
    ui.quit();
}

#[test]
fn the_checks_of_the_command_line_are_named() {
    let (_fixture, mut ui) = after_a_run(&["--validate", "sh test.sh"]);
    ui.command("/checks");
    ui.wait("checks of the next run: sh test.sh");
    ui.quit();
}

#[test]
fn an_unknown_command_stays_in_the_composer() {
    let (_fixture, mut ui) = after_a_run(&[]);
    ui.keys("/nonsense");
    ui.wait(" > /nonsense");
    ui.keys(ENTER);
    ui.wait("unknown command `/nonsense`");
    ui.wait(" > /nonsense");
    ui.keys(CTRL_U);
    ui.wait_gone("> /nonsense");
    // A list of commands, the chosen one with Enter.
    ui.keys("/con");
    ui.wait("show what the next request contains");
    ui.snapshot("completion");
    ui.keys(ESC);
    ui.wait_gone("show what the next request contains");
    ui.quit();
}

#[test]
fn themes_change_the_colours() {
    let (_fixture, mut ui) = after_a_run(&[]);
    ui.command("/theme");
    ui.wait("Choose the colours");
    ui.keys(DOWN);
    ui.keys(ENTER);
    ui.wait_gone("Choose the colours");
    ui.command("/help");
    ui.wait_times("Close the list or the search", 1);
    let text = String::from_utf8(ui.emulator().bytes.clone()).unwrap();
    assert!(
        text.contains("\u{1b}[38;5;") || text.contains(";38;5;"),
        "no colour of the theme"
    );
    ui.quit();
}

#[test]
fn vi_keys_edit_the_prompt() {
    let (_fixture, mut ui) = after_a_run(&[]);
    ui.command("/vi on");
    ui.keys("one two");
    ui.wait(" > one two");
    ui.keys(ESC);
    ui.wait("NORMAL");
    ui.keys("bcwthree");
    ui.wait(" > one three");
    ui.keys(ESC);
    ui.wait("NORMAL");
    ui.keys("dd");
    ui.wait_gone("> one three");
    ui.keys("i/vi off");
    ui.wait(" > /vi off");
    ui.keys(ENTER);
    ui.wait_gone("INSERT");
    ui.quit();
}
