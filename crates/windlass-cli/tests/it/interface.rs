//! The interface at a terminal: runs, approvals and questions.

use crate::cli_fixture::CliFixture;
use crate::interface_fixture::{DOWN, ENTER, ESC, Ui};

/// A run that reads, edits and runs a command with live output.
const WORK: &str = r#"
[[step]]
text = "I'll look at **the file** first:\n\n- it has `three` lines\n- the second one changes\n"
calls = [{ name = "read_file", args = { path = "numbers.txt" } }]
usage = { input = 1200, output = 40 }
[[step]]
calls = [{ name = "edit_file", args = { path = "numbers.txt", old = "two", new = "zwei" } }]
usage = { input = 1300, output = 40 }
[[step]]
calls = [{ name = "bash", args = { command = "seq 1000 1040; until test -e go; do sleep 0.02; done" } }]
usage = { input = 1400, output = 40 }
[[step]]
text = "The second line is **German** now.\n\n```sh\ncat numbers.txt\n```\n"
usage = { input = 1500, output = 40 }
"#;

/// A step with one command.
pub(crate) fn bash(command: &str) -> String {
    format!("[[step]]\ncalls = [{{ name = \"bash\", args = {{ command = '''{command}''' }} }}]\n")
}

pub(crate) fn says(text: &str) -> String {
    format!("[[step]]\ntext = '''{text}'''\n")
}

/// A command that ends when the workspace has this file. It needs `--sandbox full`: in a sandbox, files that appear later
/// are not seen.
pub(crate) fn until_exists(name: &str) -> String {
    format!("until test -e {name}; do sleep 0.02; done")
}

pub(crate) const FULL_ACCESS: [&str; 2] = ["--sandbox", "full"];

#[test]
fn a_run_is_shown_from_the_prompt_to_its_end() {
    for size in [(80, 24), (40, 12), (200, 60)] {
        let fixture = CliFixture::new();
        fixture.write("numbers.txt", "one\ntwo\nthree\n");
        let mut ui = Ui::chat_sized(&fixture, WORK, size, &FULL_ACCESS);
        let name = |part: &str| format!("{part}_{}x{}", size.0, size.1);
        ui.snapshot(&name("first_frame"));
        ui.submit("translate it");
        ui.wait_armed();
        ui.snapshot(&name("approval"));
        ui.keys("y");
        ui.wait("     1038");
        ui.snapshot(&name("live_output"));
        fixture.write("go", "");
        ui.wait("Changed 1 file");
        ui.snapshot(&name("end_of_run"));
        let all = ui.quit();
        assert!(all.contains("continue with `windlass resume"), "{all}");
        assert_eq!(fixture.read("numbers.txt"), "one\nzwei\nthree\n");
    }
}

#[test]
fn asks_are_answered_with_the_keys_of_the_panel() {
    let fixture = CliFixture::new();
    fixture.write("Makefile", "made:\n\techo made $(V) >> made.log\n");
    let script = [
        bash("touch one"),
        "[[step]]\nexpect_new = \"touch a file called zwei\"\ncalls = [{ name = \"bash\", args = { command = \"make made\" } }]\n".to_owned(),
        bash("make made V=2"),
        bash("make other"),
        bash("make another"),
        says("the end"),
    ]
    .concat();
    let mut ui = Ui::chat(&fixture, &script);
    ui.submit("go");
    ui.wait("touch one");
    ui.answer("n");
    ui.wait("reason for the agent");
    // Esc goes back to the choice.
    ui.keys(ESC);
    ui.wait("y once");
    ui.answer("n");
    ui.wait("reason for the agent");
    ui.keys("touch a file called zwei");
    ui.snapshot("refusal");
    ui.keys(ENTER);
    ui.wait("make made");
    // The rule of the offer covers the next call, too.
    ui.answer("a");
    ui.wait("make other");
    ui.answer("e");
    ui.wait("always allow >");
    ui.snapshot("pattern");
    for _ in 0.."other *)".len() {
        ui.keys("\u{7f}");
    }
    ui.keys("*)");
    ui.wait("always allow > bash(make *)");
    ui.keys(ENTER);
    ui.wait("the end");
    ui.wait_idle();
    assert!(!fixture.work().join("one").exists());
    assert_eq!(fixture.read("made.log"), "made\nmade 2\n");
    let rules: Vec<String> = fixture
        .log()
        .iter()
        .filter(|event| event["kind"] == "answered")
        .map(|event| event["data"].to_string())
        .collect();
    assert_eq!(rules.len(), 3, "{rules:?}");
    assert!(rules[2].contains("bash(make *)"), "{rules:?}");
    ui.quit();
}

#[test]
fn keys_typed_before_a_panel_appeared_do_not_answer() {
    let fixture = CliFixture::new();
    let script = [
        bash(&format!("touch began; {}", until_exists("typed"))),
        bash("touch unseen"),
        says("the end"),
    ]
    .concat();
    let mut ui = Ui::chat_sized(&fixture, &script, (80, 24), &FULL_ACCESS);
    ui.submit("go");
    ui.answer("y");
    ui.wait("● Run");
    ui.keys("my next");
    ui.wait(" > my next");
    fixture.write("typed", "");
    ui.wait("touch unseen");
    let appeared = std::time::Instant::now();
    ui.keys("y");
    let in_time = appeared.elapsed().as_millis() < 300;
    ui.wait_armed();
    if in_time {
        assert!(!fixture.work().join("unseen").exists());
        ui.keys("n");
        ui.wait("reason for the agent");
        ui.keys(ENTER);
        ui.wait_idle();
        ui.wait(" > my nexty");
        ui.snapshot("type_ahead");
    }
    ui.quit();
}

/// A word that is typed while a panel is open must not answer with one of its letters.
#[test]
fn a_word_that_is_typed_below_an_open_panel_does_not_answer() {
    let fixture = CliFixture::new();
    let mut ui = Ui::chat(&fixture, &[bash("touch one"), says("the end")].concat());
    ui.submit("go");
    ui.wait_armed();
    ui.keys("why not");
    ui.until("a panel that waits again", |emulator| {
        !emulator.is_bold("y once")
    });
    ui.wait_armed();
    ui.keys("y");
    ui.wait("the end");
    ui.wait(" > why not");
    ui.quit();
}

#[test]
fn esc_interrupts_a_run_that_asks() {
    let fixture = CliFixture::new();
    let mut ui = Ui::chat(&fixture, &[bash("touch one"), says("the end")].concat());
    ui.submit("go");
    ui.wait_armed();
    ui.keys(ESC);
    ui.wait_idle();
    ui.wait_gone("Allow this command?");
    ui.snapshot("interrupted");
    assert!(!fixture.work().join("one").exists());
    ui.quit();
}

#[test]
fn several_asks_are_answered_one_after_the_other() {
    let fixture = CliFixture::new();
    let calls = r#"
[[step]]
calls = [
  { name = "bash", args = { command = "touch one" } },
  { name = "bash", args = { command = "touch two" } },
]
"#;
    let mut ui = Ui::chat(&fixture, &format!("{calls}{}", says("the end")));
    ui.submit("go");
    ui.wait("touch one");
    ui.answer("y");
    ui.until("the second ask", |emulator| {
        emulator.screen().contains("│ touch two") && emulator.is_bold("y once")
    });
    ui.keys("y");
    ui.wait("the end");
    ui.wait_idle();
    assert!(fixture.work().join("one").exists() && fixture.work().join("two").exists());
    ui.quit();
}

#[test]
fn questions_are_answered_with_a_number_or_a_text() {
    let ask = |question: &str| {
        format!(
            "[[step]]\ncalls = [{{ name = \"ask_user\", args = {{ question = \"{question}\", options = [\"red\", \"blue\"] }} }}]\n"
        )
    };
    let fixture = CliFixture::new();
    let script = [
        ask("Which colour?"),
        format!("{}expect_new = \"blue\"\n", ask("And the second?")),
        "[[step]]\nexpect_new = \"green, of course\"\ntext = \"the end\"\n".to_owned(),
    ]
    .concat();
    let mut ui = Ui::chat(&fixture, &script);
    ui.submit("go");
    for (question, answer) in [
        ("Which colour?", "2"),
        ("And the second?", "green, of course"),
    ] {
        ui.until("a question that takes keys", |emulator| {
            emulator.screen().contains(question) && emulator.is_bold(" > ")
        });
        if answer == "2" {
            ui.snapshot("question");
        }
        ui.keys(answer);
        ui.wait(&format!(" > {answer}"));
        ui.keys(ENTER);
    }
    ui.wait("the end");
    ui.quit();
}

#[test]
fn a_long_command_is_shown_in_parts_until_tab() {
    for size in [(80, 24), (40, 12)] {
        let fixture = CliFixture::new();
        let lines: Vec<String> = (1..40).map(|line| format!("touch file{line}")).collect();
        let script = [bash(&lines.join("\n")), says("the end")].concat();
        let mut ui = Ui::chat_sized(&fixture, &script, size, &[]);
        ui.submit("go");
        ui.wait_armed();
        ui.snapshot(&format!("long_command_{}x{}", size.0, size.1));
        ui.keys("n");
        ui.wait("reason for the agent");
        ui.keys(ENTER);
        ui.wait("the end");
        ui.quit();
    }
}

#[test]
fn the_text_of_a_model_cannot_control_the_terminal() {
    let fixture = CliFixture::new();
    let script = "[[step]]\ntext = \"a\\u001b]0;owned\\u0007b\\u009b2Jc\\u001b[2Jd\"\n\
                  calls = [{ name = \"bash\", args = { command = \"printf '\\\\033]0;owned\\\\007 \\\\033[2J end'\" } }]\n\
                  [[step]]\ntext = \"the end\"\n";
    let mut ui = Ui::chat_sized(&fixture, script, (80, 24), &["--approval", "auto"]);
    ui.submit("go");
    ui.wait("the end");
    ui.wait_idle();
    let bytes = ui.emulator().bytes.clone();
    let text = String::from_utf8(bytes).unwrap();
    assert!(!text.contains("\u{1b}]0;owned") && !text.contains("\u{1b}[2J"));
    assert!(!text.contains('\u{9b}'));
    ui.quit();
}

/// A list that is open while an ask arrives stays open; the panel of the ask follows.
#[test]
fn an_ask_waits_for_an_open_list() {
    let fixture = CliFixture::new();
    let script = [
        bash(&until_exists("go")),
        bash("touch one"),
        says("the end"),
    ]
    .concat();
    let more = [&FULL_ACCESS[..], &["--approval", "ask"]].concat();
    let mut ui = Ui::chat_sized(&fixture, &script, (80, 24), &more);
    ui.submit("go");
    ui.wait("● Run");
    ui.command("/mode");
    ui.wait("Choose the approval mode");
    ui.keys(DOWN);
    fixture.write("go", "");
    ui.wait("waiting for you");
    ui.wait("Choose the approval mode");
    ui.keys(ESC);
    ui.wait("touch one");
    ui.answer("y");
    ui.wait("the end");
    ui.quit();
}
