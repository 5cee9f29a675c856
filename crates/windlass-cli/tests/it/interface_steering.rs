//! The interface during a run: steering, the queue, and interrupts; and afterwards: going back.

use crate::cli_fixture::CliFixture;
use crate::interface::{FULL_ACCESS, bash, until_exists};
use crate::interface_fixture::{CTRL_U, DOWN, ENTER, ESC, Ui};

#[test]
fn prompts_during_a_run_steer_it_or_wait_for_its_end() {
    let fixture = CliFixture::new();
    let script = [
        "follow = \"history\"\n".to_owned(),
        bash(&until_exists("go")),
        "[[step]]\nexpect_new = \"use tabs\"\ntext = \"with tabs\"\n".to_owned(),
        "[[step]]\nexpect_new = \"then test\"\ntext = \"tested\"\n".to_owned(),
    ]
    .concat();
    let more = [&FULL_ACCESS[..], &["--approval", "auto"]].concat();
    let mut ui = Ui::chat_sized(&fixture, &script, (80, 24), &more);
    ui.submit("go");
    ui.wait("● Run");
    ui.keys("use tabs");
    ui.wait("enter sends it to the run");
    ui.keys(ENTER);
    ui.wait("↳ next step: use tabs");
    for text in ["then test", "then lint"] {
        ui.keys("\t");
        ui.wait("enter queues it");
        ui.submit(text);
        ui.wait(&format!("↳ queued: {text}"));
    }
    ui.snapshot("queue");
    // The last prompt is taken back into the composer.
    ui.command("/queue");
    ui.wait("Take a queued prompt back");
    ui.snapshot("queue_picker");
    ui.keys("lint");
    ui.wait("1 of 1");
    ui.keys(ENTER);
    ui.wait(" > then lint");
    ui.wait_gone("↳ queued: then lint");
    ui.keys(CTRL_U);
    fixture.write("go", "");
    ui.wait("with tabs");
    ui.wait("tested");
    ui.wait_idle();
    let prompts: Vec<String> = ui
        .emulator()
        .lines()
        .iter()
        .filter(|line| line.starts_with(" > "))
        .map(|line| line.trim_end().to_owned())
        .collect();
    assert_eq!(prompts[..3], [" > go", " > use tabs", " > then test"]);
    ui.quit();
}

#[test]
fn esc_interrupts_and_esc_esc_goes_back() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let script = r#"
follow = "history"
[[step]]
calls = [{ name = "edit_file", args = { path = "a.txt", old = "one", new = "two" } }]
[[step]]
text = "it is two"
[[step]]
text = "I am waiting"
hang = true
"#;
    let mut ui = Ui::chat_sized(&fixture, script, (80, 24), &["--approval", "auto"]);
    ui.submit("first");
    ui.wait("it is two");
    ui.wait_idle();
    ui.submit("second");
    ui.wait("I am waiting");
    ui.keys(ESC);
    ui.wait_idle();
    ui.snapshot("cancelled");
    ui.keys(ESC);
    // Both at once would be one key.
    assert!(!ui.shows_soon("Go back to before this prompt"));
    ui.keys(ESC);
    ui.wait("Go back to before this prompt");
    ui.snapshot("points");
    ui.keys(DOWN);
    ui.keys(ENTER);
    ui.wait("files and conversation");
    ui.snapshot("rewinds");
    ui.keys(ENTER);
    ui.wait("continuing in the new session");
    ui.wait("undone: a.txt");
    ui.wait_idle();
    assert_eq!(fixture.read("a.txt"), "one\n");
    // The new session begins before the first prompt, so that the script begins again.
    ui.submit("again");
    ui.wait_times("it is two", 2);
    ui.wait_idle();
    assert_eq!(fixture.read("a.txt"), "two\n");
    assert_eq!(fixture.sessions().len(), 2);
    ui.quit();
}

#[test]
fn undo_redo_fork_and_resume() {
    let fixture = CliFixture::new();
    fixture.write("a.txt", "one\n");
    let script = r#"
follow = "history"
[[step]]
calls = [{ name = "edit_file", args = { path = "a.txt", old = "one", new = "two" } }]
[[step]]
text = "it is two"
[[step]]
text = "in the fork"
"#;
    let mut ui = Ui::chat_sized(&fixture, script, (80, 24), &["--approval", "auto"]);
    ui.command("/undo");
    ui.wait("there is no session yet");
    ui.submit("change it");
    ui.wait("it is two");
    ui.wait_idle();
    ui.command("/undo");
    ui.wait("undone: a.txt");
    assert_eq!(fixture.read("a.txt"), "one\n");
    ui.command("/redo");
    ui.wait("redone: a.txt");
    assert_eq!(fixture.read("a.txt"), "two\n");
    ui.command("/redo");
    ui.wait("✗");
    ui.command("/fork");
    ui.wait("continuing in the new session");
    ui.wait("forked from");
    ui.snapshot("fork");
    ui.submit("go on");
    ui.wait("in the fork");
    ui.wait_idle();
    ui.command("/fork #abc");
    ui.wait("name the number of an event");
    ui.command("/resume");
    ui.wait("Resume a session");
    ui.snapshot("sessions");
    ui.keys(DOWN);
    ui.keys(ENTER);
    ui.wait_gone("Resume a session");
    ui.wait_idle();
    ui.quit();
    assert_eq!(fixture.sessions().len(), 2);
}

#[test]
fn resume_opens_the_newest_session_and_its_draft() {
    let fixture = CliFixture::new();
    let script = "follow = \"history\"\n[[step]]\ntext = \"first answer\"\n[[step]]\nexpect = \"first answer\"\ntext = \"second answer\"\n";
    let mut ui = Ui::chat(&fixture, script);
    ui.submit("hello");
    ui.wait("first answer");
    ui.wait_idle();
    ui.quit();
    let script = fixture.script(script);
    for args in [
        &["resume", "--script", &script],
        &["chat", "--continue", "--script"],
    ] {
        let args = if args[0] == "chat" {
            vec!["chat", "--continue", "--script", &script]
        } else {
            args.to_vec()
        };
        let ui = Ui::start(
            &fixture,
            &crate::interface_fixture::UiOptions {
                args: &args,
                ..Default::default()
            },
        );
        ui.wait("first answer");
        ui.wait_idle();
        ui.snapshot("resumed");
        ui.quit();
    }
    let args = ["resume", "--script", &script];
    let mut ui = Ui::start(
        &fixture,
        &crate::interface_fixture::UiOptions {
            args: &args,
            ..Default::default()
        },
    );
    ui.wait("first answer");
    ui.submit("again");
    ui.wait("second answer");
    ui.wait_idle();
    ui.quit();
    assert_eq!(fixture.sessions().len(), 1);
}
