//! At a real terminal: approvals, progress, chat, interrupts.

use parking_lot::Mutex;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

use crate::codes::wait_until;
use crate::place::{BINARY, Place};

/// The binary in a terminal of 80×24, typed to and read from.
pub(crate) struct Terminal {
    writer: Box<dyn Write + Send>,
    screen: Arc<Mutex<Vec<u8>>>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
    _master: Box<dyn portable_pty::MasterPty + Send>,
}

impl Terminal {
    pub(crate) fn start(place: &Place, args: &[&str]) -> Self {
        let size = PtySize {
            rows: 24,
            cols: 80,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(BINARY);
        command.args(args);
        command.cwd(place.work());
        command.env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", place.home());
        command.env("TERM", "xterm-256color");
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

    /// Waits until the screen has shown this since it was last looked at.
    #[track_caller]
    fn expect(&self, text: &str) {
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

    fn type_in(&mut self, text: &str) {
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
    let place = Place::new();
    let script = place.script("[[step]]\ntext = \"It uses `sort` **now**.\"\n");
    let mut terminal = Terminal::start(&place, &["run", "--script", &script, "go"]);
    terminal.expect("It uses \u{1b}[36msort\u{1b}[0m \u{1b}[1mnow\u{1b}[0m.");
    terminal.ends_with(0);
}

#[test]
fn approvals_are_asked_once_always_and_no_with_a_reason() {
    let place = Place::new();
    place.write("Makefile", "made:\n\techo made $(V) >> made.log\n");
    let bash = |command: &str| {
        format!("calls = [{{ name = \"bash\", args = {{ command = \"{command}\" }} }}]\n")
    };
    let script = place.script(&format!(
        "[[step]]\n{}[[step]]\n{}[[step]]\nexpect_new = \"not that one\"\n{}[[step]]\n{}[[step]]\ntext = \"all done\"\n",
        bash("touch one"),
        bash("touch two"),
        bash("make made"),
        bash("make made V=2"),
    ));
    let mut terminal = Terminal::start(&place, &["run", "--in-place", "--script", &script, "go"]);
    terminal.expect("always for bash(touch one)");
    terminal.type_in("maybe\r");
    terminal.expect("please answer with one of the options");
    terminal.type_in("y\r");
    terminal.expect("touch two");
    terminal.expect("if you like: ");
    terminal.type_in("n not that one\r");
    terminal.expect("always for bash(make made *)");
    terminal.expect("if you like: ");
    terminal.type_in("a\r");
    terminal.expect("all done");
    terminal.ends_with(0);
    assert!(place.work().join("one").exists());
    assert!(!place.work().join("two").exists());
    assert_eq!(
        place.read("made.log"),
        "made\nmade 2\n",
        "the second make was not asked about"
    );
    // "Always" holds for the next session of this workspace, and is written outside of it.
    let script = place.script(&format!(
        "[[step]]\n{}[[step]]\ntext = \"ok\"\n",
        bash("make made V=3")
    ));
    assert_eq!(
        place
            .run(&["run", "--in-place", "--script", &script, "go"])
            .code,
        0
    );
    assert_eq!(place.read("made.log"), "made\nmade 2\nmade 3\n");
    assert!(!place.work().join(".windlass").exists());
}

#[test]
fn what_was_typed_before_a_question_does_not_answer_it() {
    let place = Place::new();
    let script = place.script(
        "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"touch began; while ! test -e typed; do true; done\" } }]\n\
         [[step]]\ncalls = [{ name = \"bash\", args = { command = \"touch unseen\" } }]\n[[step]]\ntext = \"end\"\n",
    );
    // Without a sandbox: what a command in one writes is seen only when it has ended.
    let args = [
        "run",
        "--in-place",
        "--sandbox",
        "full",
        "--script",
        &script,
        "go",
    ];
    let mut terminal = Terminal::start(&place, &args);
    terminal.expect("if you like: ");
    terminal.type_in("y\r");
    wait_until(|| place.work().join("began").exists());
    terminal.type_in("y\r");
    place.write("typed", "");
    terminal.expect("touch unseen");
    terminal.expect("if you like: ");
    terminal.type_in("n\r");
    terminal.expect("end");
    terminal.ends_with(0);
    assert!(!place.work().join("unseen").exists());
}

#[test]
fn yes_answers_what_a_flag_may_and_progress_is_shown() {
    let place = Place::new();
    let script = place.script(TWO_COMMANDS);
    let mut terminal = Terminal::start(
        &place,
        &["run", "--in-place", "--yes", "--script", &script, "go"],
    );
    terminal.expect("completed");
    terminal.ends_with(0);
    assert!(place.work().join("two").exists());

    let place = Place::new();
    let script = place.script("[[step]]\ntext = \"wait\"\nhang = true\n");
    let mut terminal = Terminal::start(&place, &["run", "--in-place", "--script", &script, "go"]);
    // The line is not whole yet: the status line shows its words.
    terminal.expect("wait");
    terminal.type_in("\u{3}");
    terminal.expect("cancelling");
    terminal.ends_with(130);
}

#[test]
fn the_status_line_shows_step_tokens_cost_and_time() {
    let place = Place::new();
    let script = place.script(
        "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"sleep 20\" } }]\nusage = { input = 1200, output = 34 }\n",
    );
    let mut terminal = Terminal::start(
        &place,
        &["run", "--in-place", "--yes", "--script", &script, "go"],
    );
    terminal.expect("step 1 · 1,234 tokens · $0.0000 · 0:0");
    terminal.type_in("\u{3}");
    terminal.ends_with(130);
}

#[test]
fn a_chat_takes_prompts_until_it_is_told_to_quit() {
    let place = Place::new();
    let script = place
        .script("[[step]]\ntext = \"first answer\"\n[[step]]\nexpect = \"first answer\"\ntext = \"second answer\"\n");
    let mut terminal = Terminal::start(&place, &["chat", "--script", &script]);
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
fn what_a_model_says_cannot_drive_the_terminal() {
    let place = Place::new();
    let script = place.script("[[step]]\ntext = \"a\\u001b]0;owned\\u0007b\\u009b2Jc\"\n");
    let mut terminal = Terminal::start(&place, &["run", "--in-place", "--script", &script, "go"]);
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
fn a_project_that_would_loosen_is_asked_about_once() {
    let place = Place::new();
    place.write(
        ".windlass/config.toml",
        "temperature = 0.5\n[rules]\nallow = [\"bash\"]\n",
    );
    let script = place.script(crate::place::HELLO);
    let args = ["run", "--in-place", "--script", script.as_str(), "go"];
    let mut terminal = Terminal::start(&place, &args);
    terminal.expect("wants to change the settings of windlass");
    terminal.expect("LOOSENS");
    terminal.expect("[n]o, apply only values that tighten: ");
    terminal.type_in("y\r");
    terminal.expect("hello there");
    terminal.ends_with(0);
    assert!(place.run(&["config"]).out.contains("temperature"));
    let mut terminal = Terminal::start(&place, &args);
    terminal.expect("hello there");
    terminal.ends_with(0);
}

#[test]
fn a_file_outside_is_read_after_a_person_said_yes() {
    let place = Place::new();
    std::fs::write(place.home().join("diary.txt"), "dear diary\n").unwrap();
    let diary = place
        .home()
        .join("diary.txt")
        .canonicalize()
        .unwrap()
        .display()
        .to_string();
    let script = place.script(&format!(
        "[[step]]\ncalls = [{{ name = \"read_file\", args = {{ path = \"{diary}\" }} }}]\n[[step]]\nexpect_new = \"dear diary\"\ntext = \"all done\"\n"
    ));
    let mut terminal = Terminal::start(
        &place,
        &["run", "--in-place", "--yes", "--script", &script, "go"],
    );
    terminal.expect("outside the workspace");
    terminal.expect("if you like: ");
    terminal.type_in("y\r");
    terminal.expect("all done");
    terminal.ends_with(0);
}

#[test]
fn what_is_typed_after_an_answer_is_another_run_without_the_flags_of_the_first() {
    let place = Place::new();
    let asks = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"ask_user\", args = { question = \"red?\" } }]\n[[step]]\ntext = \"red it is\"\n\
                [[step]]\ncalls = [{ name = \"write_file\", args = { path = \"b.txt\", content = \"x\" } }]\n[[step]]\ntext = \"ok\"\n";
    let script = place.script(asks);
    assert_eq!(
        place
            .run(&["run", "--in-place", "--script", &script, "--yes", "go"])
            .code,
        5
    );
    let mut terminal = Terminal::start(&place, &["resume", "--script", &script]);
    terminal.expect("red?");
    terminal.type_in("certainly\n");
    terminal.expect("red it is");
    terminal.expect("/quit ends");
    terminal.expect("> ");
    terminal.type_in("and now write it\n");
    terminal.expect("b.txt");
    terminal.expect("[y]es, once");
    assert!(!place.work().join("b.txt").exists());
    terminal.type_in("n\n");
    terminal.expect("completed");
    terminal.expect("> ");
    terminal.type_in("/quit\n");
    terminal.ends_with(0);
    assert!(!place.work().join("b.txt").exists());
}
