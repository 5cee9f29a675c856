//! The display modes, terminals without colours, and sessions of a server.

use crate::cli_fixture::CliFixture;
use crate::interface::{FULL_ACCESS, bash, says, until_exists};
use crate::interface_fixture::{CTRL_T, ENTER, ESC, Ui, UiOptions, masked};
use crate::model_server::serve;
use crate::remote::TestServer;

#[test]
fn the_full_screen_shows_the_same_conversation() {
    for size in [(80, 24), (200, 60)] {
        let fixture = CliFixture::new();
        fixture.write("a.txt", "one\n");
        let script = [
            "[[step]]\ncalls = [{ name = \"edit_file\", args = { path = \"a.txt\", old = \"one\", new = \"two\" } }]\n",
            "[[step]]\ntext = \"It **is** two.\"\n",
        ]
        .concat();
        let mut ui = Ui::chat_sized(&fixture, &script, size, &[]);
        ui.keys(CTRL_T);
        ui.until("the full screen", |emulator| {
            emulator.styled.screen().alternate_screen()
        });
        ui.submit("change it");
        ui.answer("y");
        ui.wait("Changed 1 file");
        ui.wait_idle();
        ui.snapshot(&format!("full_{}x{}", size.0, size.1));
        for (key, pane) in [
            ("2", "changes"),
            ("3", "checks"),
            ("4", "log"),
            ("1", "conversation"),
        ] {
            ui.keys(&format!("{ESC}{key}"));
            ui.snapshot(&format!("full_{pane}_{}x{}", size.0, size.1));
        }
        ui.resize(60, 20);
        ui.wait("It is two.");
        ui.resize(size.0, size.1);
        ui.wait("It is two.");
        ui.keys(CTRL_T);
        ui.until("the inline mode", |emulator| {
            !emulator.styled.screen().alternate_screen()
        });
        // The lines of the full screen are in the scrollback now.
        ui.wait("Changed 1 file");
        ui.wait("ask for a change");
        ui.snapshot(&format!("after_full_{}x{}", size.0, size.1));
        assert_eq!(ui.emulator().all().matches("It is two.").count(), 1);
        ui.quit();
    }
}

#[test]
fn plain_mode_has_labels_and_no_moving_parts() {
    let fixture = CliFixture::new();
    let script = [bash(&until_exists("go")), says("It **is** done.")].concat();
    let more = [&FULL_ACCESS[..], &["--approval", "auto"]].concat();
    let mut ui = Ui::chat_sized(&fixture, &script, (80, 24), &more);
    ui.command("/screen plain");
    ui.wait_gone("───");
    ui.submit("do it");
    ui.wait("You: > do it");
    // Nothing changes while the command works.
    ui.wait("Note:");
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    let bytes = ui.emulator().bytes.len();
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert_eq!(ui.emulator().bytes.len(), bytes);
    fixture.write("go", "");
    ui.wait("Result:");
    let all = ui.emulator().all();
    for label in ["You:", "Agent:", "Call:", "Result:"] {
        assert!(all.contains(label), "{all}");
    }
    ui.quit();
}

#[test]
fn no_color_has_no_colours() {
    let fixture = CliFixture::new();
    let script = fixture.script("[[step]]\ntext = \"some **bold** `code`\"\n");
    let mut ui = Ui::start(
        &fixture,
        &UiOptions {
            args: &["chat", "--script", &script],
            env: &[("NO_COLOR", "1")],
            ..UiOptions::default()
        },
    );
    ui.wait("ask for a change");
    ui.submit("go");
    ui.wait("some bold code");
    ui.wait_idle();
    ui.command("/help");
    ui.wait_times("Close the list or the search", 1);
    let bytes = ui.emulator().bytes.clone();
    let text = String::from_utf8(bytes).unwrap();
    for part in text.split("\u{1b}[").skip(1) {
        let Some((parameters, _)) = part.split_once('m') else {
            continue;
        };
        if !parameters.chars().all(|c| c.is_ascii_digit() || c == ';') {
            continue;
        }
        let colour = parameters
            .split(';')
            .filter_map(|number| number.parse::<u8>().ok());
        assert!(
            !colour
                .into_iter()
                .any(|number| (30..=49).contains(&number) || number >= 90),
            "{parameters}"
        );
    }
    ui.quit();
}

#[test]
fn a_dumb_terminal_gets_the_line_mode() {
    let fixture = CliFixture::new();
    let script = fixture.script(&says("the end"));
    let mut ui = Ui::start(
        &fixture,
        &UiOptions {
            args: &["chat", "--script", &script],
            env: &[("TERM", "dumb")],
            ..UiOptions::default()
        },
    );
    ui.wait("/quit ends the chat");
    ui.keys("go\r");
    ui.wait("completed");
    ui.until("the prompt after the run", |emulator| {
        emulator.screen().ends_with("\n>")
    });
    ui.keys("/quit\r");
    assert_eq!(ui.ends(), 0);
    let emulator = ui.emulator();
    assert!(!emulator.all().contains("───"), "{}", emulator.all());
    assert!(!emulator.bytes.windows(3).any(|bytes| bytes == b"\x1b[?"));
}

#[test]
fn windlass_without_a_command_opens_the_interface() {
    let fixture = CliFixture::new();
    let mut ui = Ui::start(&fixture, &UiOptions::default());
    ui.wait("ask for a change");
    ui.snapshot("without_model");
    ui.keys("hello");
    ui.wait(" > hello");
    ui.keys(ENTER);
    ui.wait("✗");
    ui.snapshot("no_model_error");
    ui.quit();
}

#[test]
fn terminals_that_show_one_session_of_a_server_show_the_same() {
    let says = crate::remote::says;
    let model = serve(vec![says("hello there"), says("second answer")]);
    let server = TestServer::start(&model.url, "model = \"openai-chat/some-model\"");
    assert_eq!(server.run(&["greet me"]).code, 0);
    let attach = || {
        let options = UiOptions {
            args: &["attach"],
            ..UiOptions::default()
        };
        let ui = Ui::start(&server.fixture, &options);
        ui.wait("hello there");
        ui.wait("ask for a change");
        ui
    };
    let (mut first, second) = (attach(), attach());
    first.snapshot("attached");
    first.submit("go on");
    for ui in [&first, &second] {
        ui.wait("second answer");
        ui.wait_times("Done ·", 2);
        ui.wait_idle();
    }
    assert_eq!(
        masked(&first.emulator().all()),
        masked(&second.emulator().all())
    );
    first.quit();
    second.quit();
}
