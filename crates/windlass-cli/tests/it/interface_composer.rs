//! The composer in the interface: shell commands, notes, files, pastes, the editor and drafts.

use rustix::process::Signal;

use crate::cli_fixture::CliFixture;
use crate::exit_codes::wait_until;
use crate::interface::says;
use crate::interface_fixture::{CTRL_C, CTRL_G, CTRL_U, ENTER, UP, Ui, UiOptions};

#[test]
fn shell_commands_keep_their_directory_and_notes_reach_the_session() {
    let fixture = CliFixture::new();
    fixture.write("sub/file.txt", "");
    let script = "follow = \"history\"\n[[step]]\ntext = \"first\"\n[[step]]\ntext = \"second\"\n";
    let mut ui = Ui::chat(&fixture, script);
    ui.keys("!cd sub");
    ui.wait("runs in your own shell");
    ui.keys(ENTER);
    ui.wait("`cd sub` printed nothing");
    ui.submit("!basename $PWD; exit_code() { return 3; }; exit_code");
    ui.wait("exit 3");
    ui.submit("!printf 'a\\033[2Jb'");
    ui.wait_times("! printf", 1);
    ui.snapshot("shell");
    ui.submit("# prefer tabs");
    ui.wait("notes belong to a session");
    ui.keys(CTRL_U);
    ui.submit("go");
    ui.wait("first");
    ui.wait_idle();
    ui.submit("# prefer tabs");
    // The line below the composer says that it will be added.
    ui.wait("\n added to the notes");
    let log = fixture.log();
    let noted = log.iter().find(|event| event["kind"] == "noted");
    assert_eq!(
        noted.expect("a note")["data"]["text"],
        "prefer tabs",
        "{log:?}"
    );
    ui.quit();
}

#[test]
fn files_are_chosen_after_an_at_sign() {
    let fixture = CliFixture::new();
    for name in ["src/parser.rs", "src/printer.rs", "docs/guide.md"] {
        fixture.write(name, "some text\n");
    }
    let mut ui = Ui::chat(
        &fixture,
        "[[step]]\nexpect = \"some text\"\ntext = \"the end\"\n",
    );
    ui.keys("read @pars");
    ui.wait("src/parser.rs");
    ui.snapshot("files");
    ui.keys("\t");
    ui.wait(" > read @src/parser.rs");
    ui.keys(ENTER);
    ui.wait("the end");
    ui.wait_idle();
    // A file that is missing: the prompt is not sent, and its text stays.
    ui.keys("read @missing.txt ");
    ui.keys(ENTER);
    ui.wait_idle();
    ui.quit();
}

#[test]
fn large_pastes_are_folded_and_sent_in_full() {
    let fixture = CliFixture::new();
    let line = |number: usize| format!("pasted line {number}");
    let text: Vec<String> = (0..2_000).map(line).collect();
    let script = "[[step]]\nexpect = [\"pasted line 0\", \"pasted line 1999\", \"explain this\"]\ntext = \"the end\"\n";
    let mut ui = Ui::chat(&fixture, script);
    ui.keys("explain this: ");
    ui.paste(&text.join("\r"));
    ui.wait("2000 lines");
    ui.snapshot("folded_paste");
    ui.keys(ENTER);
    ui.wait("the end");
    ui.wait_idle();
    let lines = ui.emulator().all().matches("pasted line").count();
    assert!(lines <= 41, "{lines} lines of the paste are shown");
    // A mebibyte arrives complete, while keys are taken afterwards.
    ui.paste(&"0123456789abcde\r".repeat(1 << 16));
    ui.wait("65536 lines");
    ui.keys("x");
    ui.keys(CTRL_C);
    ui.wait("cleared");
    ui.wait_gone("65536 lines");
    ui.quit();
}

#[test]
fn the_editor_changes_the_prompt() {
    let fixture = CliFixture::new();
    let editor = fixture.home().join("editor.sh");
    std::fs::write(
        &editor,
        "#!/bin/sh\nprintf 'the editor has the terminal\\n'\nread key\n[ \"$key\" = fail ] && exit 1\nsed -i 's/draft/edited text/' \"$1\"\n",
    )
    .unwrap();
    let script = fixture.script(&says("the end"));
    let editor = format!("sh {}", editor.display());
    let mut ui = Ui::start(
        &fixture,
        &UiOptions {
            args: &["chat", "--script", &script],
            env: &[("EDITOR", &editor)],
            ..UiOptions::default()
        },
    );
    ui.wait("ask for a change");
    ui.keys("a draft");
    ui.wait(" > a draft");
    ui.keys(CTRL_G);
    ui.wait("the editor has the terminal");
    ui.keys("fail\r");
    ui.wait("unchanged");
    ui.wait(" > a draft");
    ui.keys(CTRL_G);
    ui.wait_times("the editor has the terminal", 2);
    ui.keys("go\r");
    ui.wait(" > a edited text");
    ui.keys("!");
    ui.wait(" > a edited text!");
    ui.quit();
}

#[test]
fn ctrl_c_keeps_the_text_and_quits_twice() {
    let fixture = CliFixture::new();
    let mut ui = Ui::chat(&fixture, &says("the end"));
    ui.keys("a long thought");
    ui.wait(" > a long thought");
    ui.keys(CTRL_C);
    ui.wait("brings the text back");
    ui.wait_gone("> a long thought");
    ui.keys(UP);
    ui.wait(" > a long thought");
    ui.keys(CTRL_U);
    ui.keys(CTRL_C);
    ui.wait("press Ctrl-C again to quit");
    ui.snapshot("quit_hint");
    ui.keys(CTRL_C);
    assert_eq!(ui.ends(), 0);
}

#[test]
fn a_draft_survives_kill() {
    let fixture = CliFixture::new();
    let mut ui = Ui::chat(&fixture, &says("the end"));
    ui.keys("a long thought");
    wait_until(|| ui.draft().contains("a long thought"));
    ui.signal(Signal::KILL);
    ui.ends();
    let script = fixture.script(&says("the end"));
    let mut ui = Ui::start(
        &fixture,
        &UiOptions {
            args: &["chat", "--script", &script],
            ..UiOptions::default()
        },
    );
    ui.wait(" > a long thought");
    ui.keys(ENTER);
    ui.wait("the end");
    ui.wait_idle();
    wait_until(|| !ui.draft().contains("a long thought"));
    ui.quit();
}

#[test]
fn keys_before_the_first_frame_are_not_lost() {
    let fixture = CliFixture::new();
    let script = fixture.script(&says("the end"));
    let mut ui = Ui::start(
        &fixture,
        &UiOptions {
            args: &["chat", "--script", &script],
            ..UiOptions::default()
        },
    );
    ui.keys("an early prompt\r");
    ui.wait("the end");
    ui.wait_idle();
    ui.quit();
}
