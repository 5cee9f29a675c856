//! Tests at a pseudo-terminal: approvals, progress, chat and interrupts.

use parking_lot::Mutex;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

use crate::cli_fixture::{BINARY, CliFixture};
use crate::exit_codes::wait_until;

/// The binary in a pseudo-terminal of 80×24.
pub(crate) struct PtySession {
    writer: Box<dyn Write + Send>,
    screen: Arc<Mutex<Vec<u8>>>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
    _master: Box<dyn portable_pty::MasterPty + Send>,
}

impl PtySession {
    pub(crate) fn start(fixture: &CliFixture, args: &[&str]) -> Self {
        Self::start_with(fixture, args, &[])
    }

    /// Like [`PtySession::start`] on a terminal without a cursor, which gets lines instead of the interface.
    pub(crate) fn start_dumb(fixture: &CliFixture, args: &[&str]) -> Self {
        Self::start_with(fixture, args, &[("TERM", "dumb")])
    }

    /// Like [`PtySession::start`], with more environment variables.
    fn start_with(fixture: &CliFixture, args: &[&str], env: &[(&str, &str)]) -> Self {
        let size = PtySize {
            rows: 24,
            cols: 80,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(BINARY);
        command.args(args);
        command.cwd(fixture.work());
        command.env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", fixture.home());
        command.env("TERM", "xterm-256color");
        for (name, value) in env {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let seen = screen.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n) = reader.read(&mut piece) {
                if n == 0 {
                    break;
                }
                seen.lock().extend_from_slice(&piece[..n]);
            }
        });
        Self {
            writer: pair.master.take_writer().unwrap(),
            screen,
            child,
            _master: pair.master,
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock()).into_owned()
    }

    /// Waits until this text appears after the last expected text.
    #[track_caller]
    pub(crate) fn expect(&self, text: &str) {
        let began = Instant::now();
        loop {
            let mut screen = self.screen.lock();
            if let Some(at) = screen
                .windows(text.len())
                .position(|piece| piece == text.as_bytes())
            {
                screen.drain(..at + text.len());
                return;
            }
            drop(screen);
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "{text:?} never came:\n{}",
                self.text()
            );
            std::thread::yield_now();
        }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    #[track_caller]
    pub(crate) fn ends_with(&mut self, code: u32) {
        let status = self.child.wait().unwrap();
        assert_eq!(status.exit_code(), code, "{}", self.text());
    }
}

const TWO_COMMANDS: &str = r#"
[[step]]
calls = [{ name = "bash", args = { command = "touch one" } }]
[[step]]
calls = [{ name = "bash", args = { command = "touch two" } }]
[[step]]
text = "all done"
"#;

#[test]
fn an_answer_is_rendered_as_markdown() {
    let fixture = CliFixture::new();
    let script = fixture.script("[[step]]\ntext = \"It uses `sort` **now**.\"\n");
    let mut terminal = PtySession::start(&fixture, &["run", "--script", &script, "go"]);
    terminal.expect("It uses \u{1b}[36msort\u{1b}[0m \u{1b}[1mnow\u{1b}[0m.");
    terminal.ends_with(0);
}

#[test]
fn a_terminal_without_colours_gets_no_escape_sequences() {
    let fixture = CliFixture::new();
    let script = fixture.script(
        "[[step]]\ncalls = [{ name = \"write_file\", args = { path = \"a.rs\", content = \"fn a() {}\\n\" } }]\n\
         [[step]]\ntext = \"It uses `sort` **now**.\"\n",
    );
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let args = ["run", "--in-place", "--yes", "--script", &script, "go"];
        let mut terminal = PtySession::start_with(&fixture, &args, &[variable]);
        terminal.ends_with(0);
        wait_until(|| terminal.text().contains("completed"));
        let text = terminal.text();
        assert!(text.contains("    1 │ +fn a() {}"), "{text}");
        assert!(text.contains("It uses sort now."), "{text}");
        assert!(!text.contains('\u{1b}'), "{variable:?}: {text:?}");
        std::fs::remove_file(fixture.work().join("a.rs")).unwrap();
    }
}

#[test]
fn approvals_are_asked_once_always_and_no_with_a_reason() {
    let fixture = CliFixture::new();
    fixture.write("Makefile", "made:\n\techo made $(V) >> made.log\n");
    let bash = |command: &str| {
        format!("calls = [{{ name = \"bash\", args = {{ command = \"{command}\" }} }}]\n")
    };
    let script = fixture.script(&format!(
        "[[step]]\n{}[[step]]\n{}[[step]]\nexpect_new = \"not that one\"\n{}[[step]]\n{}[[step]]\ntext = \"all done\"\n",
        bash("touch one"),
        bash("touch two"),
        bash("make made"),
        bash("make made V=2"),
    ));
    let mut terminal =
        PtySession::start(&fixture, &["run", "--in-place", "--script", &script, "go"]);
    terminal.expect("lways allow bash(touch one)");
    terminal.type_in("maybe\r");
    terminal.expect("please answer with one of the options");
    terminal.type_in("y\r");
    terminal.expect("touch two");
    terminal.expect("add a reason): ");
    terminal.type_in("n not that one\r");
    terminal.expect("lways allow bash(make made *)");
    terminal.expect("add a reason): ");
    terminal.type_in("a\r");
    terminal.expect("all done");
    terminal.ends_with(0);
    assert!(fixture.work().join("one").exists());
    assert!(!fixture.work().join("two").exists());
    assert_eq!(
        fixture.read("made.log"),
        "made\nmade 2\n",
        "the second make was not asked about"
    );
    // "Always" applies to the next session of this workspace, and is stored outside it.
    let script = fixture.script(&format!(
        "[[step]]\n{}[[step]]\ntext = \"ok\"\n",
        bash("make made V=3")
    ));
    assert_eq!(
        fixture
            .run(&["run", "--in-place", "--script", &script, "go"])
            .code,
        0
    );
    assert_eq!(fixture.read("made.log"), "made\nmade 2\nmade 3\n");
    assert!(!fixture.work().join(".windlass").exists());
}

#[test]
fn type_ahead_does_not_answer_a_question() {
    let fixture = CliFixture::new();
    let script = fixture.script(
        "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"touch began; while ! test -e typed; do true; done\" } }]\n\
         [[step]]\ncalls = [{ name = \"bash\", args = { command = \"touch unseen\" } }]\n[[step]]\ntext = \"end\"\n",
    );
    // Without a sandbox: in a sandbox, the writes of a command land only when it has ended.
    let args = [
        "run",
        "--in-place",
        "--sandbox",
        "full",
        "--script",
        &script,
        "go",
    ];
    let mut terminal = PtySession::start(&fixture, &args);
    terminal.expect("add a reason): ");
    terminal.type_in("y\r");
    wait_until(|| fixture.work().join("began").exists());
    terminal.type_in("y\r");
    fixture.write("typed", "");
    terminal.expect("touch unseen");
    terminal.expect("add a reason): ");
    terminal.type_in("n\r");
    terminal.expect("end");
    terminal.ends_with(0);
    assert!(!fixture.work().join("unseen").exists());
}

#[test]
fn the_yes_flag_answers_approvals_and_progress_is_shown() {
    let fixture = CliFixture::new();
    let script = fixture.script(TWO_COMMANDS);
    let mut terminal = PtySession::start(
        &fixture,
        &["run", "--in-place", "--yes", "--script", &script, "go"],
    );
    terminal.expect("completed");
    terminal.ends_with(0);
    assert!(fixture.work().join("two").exists());

    let fixture = CliFixture::new();
    let script = fixture.script("[[step]]\ntext = \"wait\"\nhang = true\n");
    let mut terminal =
        PtySession::start(&fixture, &["run", "--in-place", "--script", &script, "go"]);
    // The status line shows the incomplete line.
    terminal.expect("wait");
    terminal.type_in("\u{3}");
    terminal.expect("cancelling");
    terminal.ends_with(130);
}

#[test]
fn the_status_line_shows_step_tokens_cost_and_time() {
    let fixture = CliFixture::new();
    let script = fixture.script(
        "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"sleep 20\" } }]\nusage = { input = 1200, output = 34 }\n",
    );
    let mut terminal = PtySession::start(
        &fixture,
        &["run", "--in-place", "--yes", "--script", &script, "go"],
    );
    terminal.expect("step 1 · 1,234 tokens · $0.0000 · 0:0");
    terminal.type_in("\u{3}");
    terminal.ends_with(130);
}

#[test]
fn a_chat_runs_prompts_until_quit() {
    let fixture = CliFixture::new();
    let script = fixture
        .script("[[step]]\ntext = \"first answer\"\n[[step]]\nexpect = \"first answer\"\ntext = \"second answer\"\n");
    let mut terminal = PtySession::start_dumb(&fixture, &["chat", "--script", &script]);
    terminal.expect("> ");
    terminal.type_in("hello\r");
    terminal.expect("first answer");
    terminal.expect("> ");
    terminal.type_in("/nonsense\r");
    terminal.expect("/help lists the commands");
    terminal.expect("> ");
    terminal.type_in("again\r");
    terminal.expect("second answer");
    terminal.expect("> ");
    terminal.type_in("/quit\r");
    terminal.ends_with(0);
}

#[test]
fn the_text_of_a_model_cannot_control_the_terminal() {
    let fixture = CliFixture::new();
    let script = fixture.script("[[step]]\ntext = \"a\\u001b]0;owned\\u0007b\\u009b2Jc\"\n");
    let mut terminal =
        PtySession::start(&fixture, &["run", "--in-place", "--script", &script, "go"]);
    terminal.ends_with(0);
    let began = Instant::now();
    while !terminal.text().contains("completed") && began.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    let text = terminal.text();
    assert!(
        !text.contains("\u{1b}]") && !text.contains('\u{7}') && !text.contains('\u{9b}'),
        "{text:?}"
    );
}

#[test]
fn windlass_asks_once_about_a_project_that_loosens_settings() {
    let fixture = CliFixture::new();
    fixture.write(
        ".windlass/config.toml",
        "temperature = 0.5\n[rules]\nallow = [\"bash\"]\n",
    );
    let script = fixture.script(crate::cli_fixture::HELLO);
    let args = ["run", "--in-place", "--script", script.as_str(), "go"];
    let mut terminal = PtySession::start(&fixture, &args);
    terminal.expect("wants to change the settings of windlass");
    terminal.expect("LOOSENS");
    terminal.expect("[n]o, apply only values that tighten: ");
    terminal.type_in("y\r");
    terminal.expect("hello there");
    terminal.ends_with(0);
    assert!(fixture.run(&["config"]).out.contains("temperature"));
    let mut terminal = PtySession::start(&fixture, &args);
    terminal.expect("hello there");
    terminal.ends_with(0);
}

#[test]
fn a_file_outside_the_workspace_is_read_after_approval() {
    let fixture = CliFixture::new();
    std::fs::write(fixture.home().join("diary.txt"), "dear diary\n").unwrap();
    let diary = fixture
        .home()
        .join("diary.txt")
        .canonicalize()
        .unwrap()
        .display()
        .to_string();
    let script = fixture.script(&format!(
        "[[step]]\ncalls = [{{ name = \"read_file\", args = {{ path = \"{diary}\" }} }}]\n[[step]]\nexpect_new = \"dear diary\"\ntext = \"all done\"\n"
    ));
    let mut terminal = PtySession::start(
        &fixture,
        &["run", "--in-place", "--yes", "--script", &script, "go"],
    );
    terminal.expect("outside the workspace");
    terminal.expect("add a reason): ");
    terminal.type_in("y\r");
    terminal.expect("all done");
    terminal.ends_with(0);
}

#[test]
fn a_prompt_after_an_answer_is_a_new_run_without_the_earlier_flags() {
    let fixture = CliFixture::new();
    let asks = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"ask_user\", args = { question = \"red?\" } }]\n[[step]]\ntext = \"red it is\"\n\
                [[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\" } }]\n[[step]]\ntext = \"ok\"\n";
    let script = fixture.script(asks);
    assert_eq!(
        fixture
            .run(&["run", "--in-place", "--script", &script, "--yes", "go"])
            .code,
        5
    );
    let mut terminal = PtySession::start_dumb(&fixture, &["resume", "--script", &script]);
    terminal.expect("red?");
    terminal.type_in("certainly\n");
    terminal.expect("red it is");
    terminal.expect("/quit ends");
    terminal.expect("> ");
    terminal.type_in("and now write it\n");
    terminal.expect("b.txt");
    terminal.expect("[y]es, once");
    assert!(!fixture.work().join("b.txt").exists());
    terminal.type_in("n\n");
    terminal.expect("completed");
    terminal.expect("> ");
    terminal.type_in("/quit\n");
    terminal.ends_with(0);
    assert!(!fixture.work().join("b.txt").exists());
}
