//! Events of a pseudo-terminal, around another program that reads from it.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::{Read, Write};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use windlass_tui::terminal::{RawTerminal, TerminalEvent, TerminalEvents, TerminalModes};

/// Tells the test in the new process that it is the program in the terminal.
const IN_TERMINAL: &str = "WINDLASS_TEST_IN_TERMINAL";

async fn print_next(events: &mut TerminalEvents) {
    let event = events.next().await.unwrap().unwrap();
    match event {
        TerminalEvent::Key(key) => print!("<key {}>", key.code),
        TerminalEvent::Paste(paste) => print!("<paste {:?}>", paste.text),
        TerminalEvent::Resize(size) => print!("<size {}x{}>", size.columns, size.rows),
        other => print!("<{other:?}>"),
    }
    std::io::stdout().flush().unwrap();
}

fn print_marker(text: &str) {
    print!("<{text}>");
    std::io::stdout().flush().unwrap();
}

async fn program_in_the_terminal() {
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let terminal = RawTerminal::enter(&stdin, &stdout, TerminalModes::default()).unwrap();
    let mut events = TerminalEvents::new();
    print_marker("ready");
    for _ in 0..3 {
        print_next(&mut events).await;
    }
    // More bytes than one read of the terminal returns.
    for _ in 0..3_000 {
        let event = events.next().await.unwrap().unwrap();
        assert!(matches!(event, TerminalEvent::Key(_)), "{event:?}");
    }
    print_marker("many");
    for _ in 0..3 {
        drop(events);
        terminal.leave().unwrap();
        print_marker("editor");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        print_marker(&format!("edited {}", line.trim_end()));
        terminal.resume().unwrap();
        events = TerminalEvents::new();
        print_marker("back");
        print_next(&mut events).await;
    }
    print_marker("end");
}

struct TypedDialogue {
    reader: Box<dyn Read + Send>,
    writer: Box<dyn Write + Send>,
    shown: Vec<u8>,
}

impl TypedDialogue {
    /// Reads until the program shows this text. The text after it is kept.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        let mut buffer = [0; 1_024];
        loop {
            let mut parts = self.shown.windows(text.len());
            if let Some(at) = parts.position(|part| part == text.as_bytes()) {
                self.shown.drain(..at + text.len());
                return;
            }
            let count = self.reader.read(&mut buffer).unwrap_or(0);
            let shown = String::from_utf8_lossy(&self.shown);
            assert!(count > 0, "ended without {text:?}: {shown:?}");
            self.shown.extend_from_slice(&buffer[..count]);
        }
    }

    fn send(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }
}

#[test]
fn another_program_gets_its_keys_and_the_events_continue() {
    if std::env::var_os(IN_TERMINAL).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        return runtime.block_on(program_in_the_terminal());
    }
    let pair = native_pty_system().openpty(PtySize::default()).unwrap();
    let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
    let name = "another_program_gets_its_keys_and_the_events_continue";
    command.args(["--exact", name, "--nocapture"]);
    command.env(IN_TERMINAL, "1");
    let mut child = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let mut dialogue = TypedDialogue {
        reader: pair.master.try_clone_reader().unwrap(),
        writer: pair.master.take_writer().unwrap(),
        shown: Vec::new(),
    };
    dialogue.expect("<ready>");
    dialogue.send("a");
    dialogue.expect("<key a>");
    dialogue.send("\x1b[200~one\r\ntwo\rthree\x1b[201~");
    dialogue.expect(r#"<paste "one\ntwo\nthree">"#);
    let size = PtySize {
        rows: 40,
        cols: 100,
        ..PtySize::default()
    };
    pair.master.resize(size).unwrap();
    dialogue.expect("<size 100x40>");
    dialogue.send(&"x".repeat(3_000));
    dialogue.expect("<many>");
    for round in 0..3 {
        dialogue.expect("<editor>");
        dialogue.send(&format!("text {round}\n"));
        dialogue.expect(&format!("<edited text {round}>"));
        dialogue.expect("<back>");
        dialogue.send("c");
        dialogue.expect("<key c>");
    }
    dialogue.expect("<end>");
    assert!(child.wait().unwrap().success());
}
