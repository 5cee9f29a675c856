//! The interface and its terminal: resizes, restoration, idling, and random input.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cli_fixture::{BINARY, CliFixture};
use crate::interface::{FULL_ACCESS, bash, says, until_exists};
use crate::interface_fixture::{
    CTRL_C, CTRL_D, CTRL_T, CTRL_U, CTRL_Z, DOWN, ENTER, ESC, SHIFT_TAB, UP, Ui, UiOptions, masked,
    modes_left_on,
};

fn many_lines() -> String {
    let line = |number: usize| {
        let tail = "and a longer tail that the terminal has to wrap ".repeat(number % 4);
        format!("line {number} {tail}\n\n")
    };
    says(&(1..30).map(line).collect::<String>())
}

/// The lines above the composer.
fn committed(ui: &Ui) -> Vec<String> {
    let lines = ui.emulator().lines();
    let rule = lines
        .iter()
        .rposition(|line| line.starts_with("───"))
        .unwrap();
    let lines = lines.into_iter().take(rule);
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn a_drag_of_sixty_steps_leaves_one_composer_and_all_lines() {
    let fixture = CliFixture::new();
    let mut ui = Ui::chat(&fixture, &many_lines());
    ui.submit("go");
    ui.wait("Done ·");
    ui.wait_idle();
    ui.keys("a draft");
    ui.wait(" > a draft");
    let before = committed(&ui);
    assert!(before.len() > 30, "{before:?}");
    for step in 0..60_u16 {
        ui.resize(40 + (step * 7) % 90, 10 + (step * 3) % 25);
    }
    ui.resize(80, 24);
    ui.until("one composer after the drag", |emulator| {
        let lines = emulator.lines();
        let rules = lines.iter().filter(|line| line.starts_with("───"));
        rules.count() == 1
            && lines.iter().any(|line| line == &"─".repeat(79))
            && emulator.screen().contains(" > a draft")
            && emulator.all().matches(" > a draft").count() == 1
    });
    assert_eq!(
        committed(&ui)
            .iter()
            .map(|line| masked(line))
            .collect::<Vec<_>>(),
        before.iter().map(|line| masked(line)).collect::<Vec<_>>()
    );
    check_updates(&ui);
    ui.quit();
}

/// In the inline mode, the bytes never erase the whole screen or the scrollback, and each draw is one synchronized update.
#[track_caller]
fn check_updates(ui: &Ui) {
    let text = String::from_utf8(ui.emulator().bytes.clone()).unwrap();
    for erasing in ["\u{1b}[2J", "\u{1b}[3J", "\u{1b}[H", "\u{1b}c"] {
        assert!(!text.contains(erasing), "{erasing:?}");
    }
    let mut outside = String::new();
    let mut rest = text.as_str();
    while let Some((before, update)) = rest.split_once("\u{1b}[?2026h") {
        outside.push_str(before);
        let (update, after) = update.split_once("\u{1b}[?2026l").unwrap();
        assert!(!update.contains("\u{1b}[?2026h"), "{update:?}");
        rest = after;
    }
    outside.push_str(rest);
    // Only modes, the title and the like are outside: nothing that prints or moves.
    let mut printed = String::new();
    let mut parts = outside.split('\u{1b}');
    printed.push_str(parts.next().unwrap());
    for part in parts {
        let end = match part.strip_prefix(']') {
            Some(_) => part.find('\u{7}').map(|at| at + 1),
            None => part
                .find(|c: char| c.is_ascii_alphabetic())
                .map(|at| at + 1),
        };
        let (sequence, after) = part.split_at(end.unwrap_or(part.len()));
        let is_mode = sequence.starts_with("[?") || sequence.starts_with(']');
        assert!(
            is_mode || ["[>1u", "[<u", "[m", "[0m", "\\"].contains(&sequence),
            "{sequence:?}"
        );
        printed.push_str(after);
    }
    assert_eq!(printed, "");
}

#[test]
fn every_draw_is_a_synchronized_update() {
    let fixture = CliFixture::new();
    let script = [bash("echo one; echo two"), many_lines()].concat();
    let mut ui = Ui::chat(&fixture, &script);
    ui.submit("go");
    ui.wait("Done ·");
    ui.wait_idle();
    for command in ["/help", "/context", "/cost"] {
        ui.command(command);
    }
    ui.wait("Cost:");
    check_updates(&ui);
    ui.quit();
}

/// The ways in which the interface ends.
#[test]
fn the_terminal_is_restored() {
    let fixture = CliFixture::new();
    let script = fixture.script(&[bash(&until_exists("never")), says("the end")].concat());
    let args = [
        "chat",
        "--script",
        &script,
        "--approval",
        "auto",
        "--sandbox",
        "full",
    ];
    type EndInterface = fn(&mut Ui);
    let ends: [(&str, EndInterface); 5] = [
        ("/quit", |ui| {
            ui.keys("/quit");
            ui.wait(" > /quit");
            ui.keys(ENTER);
        }),
        ("Ctrl-C twice", |ui| {
            ui.keys(CTRL_C);
            ui.wait("press Ctrl-C again");
            ui.keys(CTRL_C);
        }),
        ("Ctrl-D", |ui| ui.keys(CTRL_D)),
        ("SIGTERM", |ui| ui.signal(Signal::TERM)),
        ("SIGTERM in the full screen", |ui| {
            ui.keys(CTRL_T);
            ui.wait("conversation");
            ui.signal(Signal::TERM);
        }),
    ];
    for (name, end) in ends {
        for runs in [false, true] {
            let mut ui = Ui::start(
                &fixture,
                &UiOptions {
                    args: &args,
                    ..UiOptions::default()
                },
            );
            let before = ui.master().get_termios();
            assert!(before.is_some());
            ui.wait("ask for a change");
            if runs {
                ui.submit("go");
                ui.wait("● Run");
            }
            assert!(ui.master().get_termios() != before);
            end(&mut ui);
            ui.ends();
            assert!(ui.master().get_termios() == before, "{name}");
            ui.until(name, |emulator| {
                emulator.all().contains("windlass resume") || !runs
            });
            let emulator = ui.emulator();
            assert_eq!(
                modes_left_on(&emulator.bytes),
                Vec::<String>::new(),
                "{name}"
            );
            assert!(!emulator.styled.screen().alternate_screen(), "{name}");
            assert!(!emulator.all().contains("ask for a change"), "{name}");
        }
    }
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_until_fg() {
    let fixture = CliFixture::new();
    let script = fixture.script(&says("the end"));
    let mut ui = Ui::start(
        &fixture,
        &UiOptions {
            program: Some("/bin/sh"),
            args: &["-i"],
            env: &[("PS1", "shell$ ")],
            ..UiOptions::default()
        },
    );
    ui.wait("shell$");
    ui.keys(&format!("{BINARY} chat --script {script}\r"));
    ui.wait("ask for a change");
    ui.keys("draft");
    ui.wait(" > draft");
    for round in 0..2 {
        ui.keys(CTRL_Z);
        ui.until("the prompt of the shell", |emulator| {
            emulator.screen().trim_end().ends_with("shell$")
        });
        assert_eq!(modes_left_on(&ui.emulator().bytes), Vec::<String>::new());
        ui.keys(&format!("echo in the shell {round}\r"));
        ui.wait_times(&format!("in the shell {round}"), 2);
        ui.keys("fg\r");
        ui.wait(" > draft");
    }
    ui.keys(CTRL_U);
    ui.wait("ask for a change");
    ui.submit("go");
    ui.wait("the end");
    ui.wait_idle();
    ui.keys("/quit");
    ui.wait(" > /quit");
    ui.keys(ENTER);
    ui.wait("windlass resume");
    ui.keys("exit\r");
    ui.ends();
}

#[test]
fn the_process_ends_with_its_terminal() {
    let fixture = CliFixture::new();
    let script = [bash(&until_exists("never")), says("the end")].concat();
    let more = [&FULL_ACCESS[..], &["--approval", "auto"]].concat();
    let mut ui = Ui::chat_sized(&fixture, &script, (80, 24), &more);
    ui.submit("go");
    ui.wait("● Run");
    ui.close_terminal();
    ui.ends();
}

/// The processor time of a process in clock ticks.
fn processor_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = fields.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn an_idle_interface_uses_no_processor_and_writes_nothing() {
    let fixture = CliFixture::new();
    let mut ui = Ui::chat(&fixture, &says("the end"));
    ui.submit("go");
    ui.wait("the end");
    ui.wait_idle();
    ui.keys("a draft");
    ui.wait(" > a draft");
    // Time is what this test is about: caches may still be written for a moment.
    std::thread::sleep(Duration::from_secs(2));
    let (before, bytes) = (processor_time(ui.pid()), ui.emulator().bytes.len());
    std::thread::sleep(Duration::from_secs(2));
    // A tick may be the rest of earlier work.
    let used = processor_time(ui.pid()) - before;
    assert!(used <= 1, "{used} ticks of processor time");
    assert_eq!(ui.emulator().bytes.len(), bytes);
    ui.quit();
}

/// The state of a generator of pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Keys that neither leave the interface nor stop the process.
const RANDOM_KEYS: &[&str] = &[
    "a",
    "y",
    "n",
    "e",
    " ",
    "ü",
    "漢",
    "👍🏽",
    "@",
    "#",
    "/",
    "!",
    ENTER,
    ENTER,
    ESC,
    UP,
    DOWN,
    "\t",
    SHIFT_TAB,
    CTRL_T,
    CTRL_U,
    "\u{1}",
    "\u{5}",
    "\u{b}",
    "\u{c}",
    "\u{12}",
    "\u{17}",
    "\u{19}",
    "\u{1f}",
    "\u{7f}",
    "\u{1b}b",
    "\u{1b}f",
    "\u{1b}d",
    "\u{1b}\r",
    "\u{1b}[D",
    "\u{1b}[C",
    "\u{1b}[5~",
    "\u{1b}[6~",
    "\u{1b}[H",
    "\u{1b}[F",
    "\u{1b}[I",
    "\u{1b}[O",
    "\u{1b}2",
    "\u{1b}3",
    "\u{1b}1",
    "\u{1b}[200~pasted\rtext\u{1b}[201~",
    "/help\r",
    "/vi on\r",
    "/vi off\r",
    "/theme dark\r",
    "/screen plain\r",
    "/screen inline\r",
    "/context\r",
    "/queue\r",
    "/mode ask\r",
    "/mode auto\r",
];

#[test]
fn random_keys_and_resizes_do_no_harm() {
    let steps = std::env::var("WINDLASS_RANDOM_KEYS").map_or(2_000, |steps| steps.parse().unwrap());
    let fixture = CliFixture::new();
    fixture.write("some/file.txt", "text\n");
    let script = "[[step]]\nrepeat = 100000\ntext = \"some **text** and `code`\\n\\n- a list\\n\"\ncalls = [{ name = \"bash\", args = { command = \"touch x; echo 1\" } }]\n";
    let mut ui = Ui::chat_sized(&fixture, script, (80, 24), &["--max-steps", "100000"]);
    let seed = 0x5EED_1234_ABCD_0001;
    let mut random = Random(seed);
    ui.submit("go");
    let began = Instant::now();
    for step in 0..steps {
        match random.below(40) {
            0 => ui.resize(10 + random.below(200) as u16, 3 + random.below(60) as u16),
            _ => ui.keys(RANDOM_KEYS[random.below(RANDOM_KEYS.len())]),
        }
        if step % 100 == 0 {
            assert!(ui.is_alive(), "step {step}:\n{}", ui.emulator().all());
        }
    }
    assert!(ui.is_alive());
    // The interface still takes keys: everything that is open is closed, and a draft is typed.
    ui.resize(80, 24);
    let shown = (0..50).any(|_| {
        ui.keys(ESC);
        ui.paste("the draft stays");
        ui.drafts_soon("the draft stays")
    });
    assert!(shown, "{}", ui.emulator().all());
    eprintln!("{steps} steps in {:?}", began.elapsed());
    ui.signal(Signal::TERM);
    ui.ends();
    let emulator = ui.emulator();
    assert_eq!(modes_left_on(&emulator.bytes), Vec::<String>::new());
    assert!(
        !emulator.all().contains("internal error"),
        "{}",
        emulator.all()
    );
    drop(emulator);
    assert!(ui.draft().contains("the draft stays"), "{}", ui.draft());
}
