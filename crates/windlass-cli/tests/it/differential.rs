//! The proof by running: lines made at random are run in the kernel sandbox when they are classed as looking, with
//! leave to write, and must write nothing. Everything that can be written there is looked at: the workspace after every
//! line, byte for byte, and the private folders for temporary files at the end; the rest of the view is read-only.
//! The vocabulary has no absolute path, nothing that leads upwards, nothing that removes or ends anything.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use windlass_sandbox::{Access, Helper, SandboxSession, Spec, Standard};

use crate::place::BINARY;
use windlass_needs::{Need, lacks};

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const PROGRAMS: &[&str] = &[
    "ls",
    "cat",
    "echo",
    "head",
    "tail",
    "sort",
    "uniq",
    "wc",
    "grep",
    "cut",
    "sed",
    "awk",
    "find",
    "touch",
    "tee",
    "test",
    "[",
    "printf",
    "diff",
    "stat",
    "du",
    "nl",
    "xxd",
    "true",
    "tr",
    "comm",
    "paste",
    "xargs",
    "env",
    "timeout",
    "nice",
    "command",
    "for i in a b; do echo",
    "if true; then cat",
    "cd d &&",
    "mkdir",
    "cp",
    "ln",
    "eval",
    "sh -c",
    "read -r x;",
    "set",
];
const OPTIONS: &[&str] = &[
    "-n",
    "-l",
    "-r",
    "-c",
    "-o",
    "-i",
    "-u",
    "-k1",
    "-nE",
    "-ni",
    "-on",
    "-uo",
    "--output=new",
    "--outp=new",
    "-e",
    "-f",
    "-x",
    "-a",
    "-v",
    "-s",
    "-w",
    "--",
    "-d",
    "-t",
    "-m",
    "-I{}",
    "-0",
    "-1",
    "-5",
    "5",
    "-name",
    "-type",
    "-print",
    "-fprint",
    "-exec",
    "-maxdepth",
    "--in-place",
    "--in-pl",
    "--quiet",
    "-O",
    "-A1",
    "--include=a",
    "-S",
    "-p",
    "-P",
    "-L",
    "-R",
    "-h",
];
const WORDS: &[&str] = &[
    "a",
    "b",
    "c",
    "new",
    "d",
    "d/e",
    "*",
    "d/*",
    "?",
    "[ab]",
    "'a'",
    "\"b\"",
    "$x",
    "\"$x\"",
    "${x:-a}",
    "${x:=new}",
    "$(cat a)",
    "`cat b`",
    "$(touch new)",
    "<(cat a)",
    "$((1+2))",
    "$((x=1))",
    "'s/a/b/'",
    "'s/a/b/w new'",
    "'w new'",
    "p",
    "'1p'",
    "'1,2p;q'",
    "'{print $1}'",
    "'{print > \"new\"}'",
    "'/a/'",
    "x",
    "'a b'",
    ".",
    "{a,new}",
    "-",
    "]",
    "=",
    "-f",
    "-o",
    "f",
    "1",
    "{}",
    "\\;",
    "+",
    "touch",
    "'touch new'",
    "cat",
    "$'new'",
    "''",
    "!",
    "a=b",
    "'$(touch new)'",
    "%s",
    "+%s",
];
const JOINTS: &[&str] = &[" ; ", " && ", " || ", " | ", "\n", " |& ", " ; ! "];
const ENDS: &[&str] = &[
    "",
    "",
    "",
    "",
    " > new",
    " >> a",
    " 2> new",
    " < a",
    " 2>&1",
    " &> new",
    " <<< x",
    " > /dev/null",
    " 2>/dev/null",
    " >| b",
    " <> new",
    " ; done",
    " ; fi",
    " <<E\n$(touch new)\nE",
    " <<'E'\n$(touch new)\nE",
    " <<E\ntext $x\nE",
    " # c",
    " >&new",
];

fn command(dice: &mut Dice) -> String {
    let mut line = if dice.below(12) == 0 {
        "x=1 ".to_owned()
    } else {
        String::new()
    };
    line.push_str(dice.pick(PROGRAMS));
    for _ in 0..dice.below(3) {
        line.push(' ');
        line.push_str(dice.pick(OPTIONS));
    }
    for _ in 0..dice.below(4) {
        line.push(' ');
        line.push_str(dice.pick(WORDS));
    }
    line.push_str(dice.pick(ENDS));
    line
}

fn line(dice: &mut Dice) -> String {
    let mut line = command(dice);
    for _ in 0..dice.below(3) {
        line.push_str(dice.pick(JOINTS));
        line.push_str(&command(dice));
    }
    match dice.below(10) {
        0 => format!("( {line} )"),
        1 => format!("echo \"$({line})\""),
        2 => format!("{{ {line}\n}}"),
        _ => line,
    }
}

/// Names, kinds, modes and contents.
fn look(dir: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let meta = entry.path().symlink_metadata().unwrap();
            let bytes = if meta.is_file() {
                std::fs::read(entry.path()).unwrap()
            } else {
                Vec::new()
            };
            if meta.is_dir() {
                folders.push(entry.path());
            }
            all.insert(
                entry.path().display().to_string(),
                (meta.permissions().mode(), bytes),
            );
        }
    }
    all
}

/// A sandbox around a scratch directory.
struct Bench {
    session: SandboxSession,
    _scratch: tempfile::TempDir,
    dir: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().canonicalize().unwrap();
        let spec = Spec::around(dir.clone());
        let helper = Helper::new(BINARY);
        let bench = Self {
            session: SandboxSession::open(&helper, &spec).unwrap().session,
            _scratch: scratch,
            dir,
        };
        bench.lay_out();
        bench
    }

    fn lay_out(&self) {
        let files = [
            ("a", "a 1\nb 2\na 1\n"),
            ("b", "one\ntwo\n"),
            ("c", "x"),
            ("d/e", "deep\n"),
            ("-o", "o\n"),
        ];
        for (name, text) in files {
            let path = self.dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    /// Runs a line to its end; its exit code.
    fn run(&self, line: &str) -> Option<i32> {
        let null = || {
            std::fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/null")
                .unwrap()
                .into()
        };
        let standard = Standard {
            input: null(),
            output: null(),
            error: null(),
        };
        let argv = [
            "/usr/bin/timeout",
            "10",
            "bash",
            "--norc",
            "--noprofile",
            "-c",
            line,
        ]
        .map(Into::into);
        let env = [
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("HOME".into(), self.dir.clone().into()),
        ];
        let (done, ended) = mpsc::channel();
        let started = self.session.start(
            &argv,
            &env,
            &self.dir,
            Access::Write,
            standard,
            move |result| {
                drop(done.send(result));
            },
        );
        let _child = started.unwrap();
        ended.recv().unwrap().unwrap().status.code()
    }

    /// Whether a line changes anything in the workspace.
    fn changes(&self, line: &str) -> bool {
        let before = look(&self.dir);
        self.run(line);
        before != look(&self.dir)
    }

    /// Nothing is left in any other place that could have been written.
    fn nothing_elsewhere(&self) -> bool {
        let own = self.dir.display();
        let left =
            format!("find /tmp /dev/shm -mindepth 1 -not -path '{own}*' -print -quit | grep -q .");
        self.run(&left) == Some(1)
    }
}

#[test]
fn the_check_sees_what_is_written() {
    if lacks(Need::Namespaces) {
        return;
    }
    for line in [
        "touch new",
        "echo x > new",
        "sort -o a b",
        "echo x | tee d/e",
        "sed -i s/a/b/ a",
    ] {
        assert!(Bench::new().changes(line), "{line}");
    }
    let bench = Bench::new();
    assert!(!bench.changes("cat a | sort") && bench.nothing_elsewhere());
    assert!(!bench.changes("echo x > /tmp/x") && !bench.nothing_elsewhere());
}

#[test]
fn what_is_classed_as_looking_leaves_everything_as_it_was() {
    if lacks(Need::Namespaces) {
        return;
    }
    let (mut dice, bench) = (Dice(20_260_101), Bench::new());
    let mut run = 0;
    for _ in 0..20_000 {
        let line = line(&mut dice);
        if windlass_shell::read(&line).only_looks() {
            run += 1;
            assert!(
                !bench.changes(&line),
                "{line:?} was classed as looking and writes"
            );
        }
    }
    assert!(bench.nothing_elsewhere());
    assert!(
        run >= 150,
        "only {run} lines were classed as looking; the vocabulary proves too little"
    );
}

/// Everyday lines with a word put in or taken out somewhere: what a flag or an operand turns into a writer.
#[test]
fn everyday_lines_with_a_word_more_or_less_are_not_mistaken() {
    if lacks(Need::Namespaces) {
        return;
    }
    let (mut dice, bench) = (Dice(7), Bench::new());
    let usable = |line: &&str| {
        !["##", "sleep", "timeout"]
            .iter()
            .any(|word| line.contains(word))
            && !line.contains(" /")
    };
    let lines: Vec<&str> = include_str!("../../../windlass-shell/tests/data/looks.txt")
        .lines()
        .filter(usable)
        .collect();
    let mut run = 0;
    for _ in 0..4_000 {
        let line = dice.pick(&lines).replace('␤', "\n");
        let mut words: Vec<&str> = line.split(' ').collect();
        let at = dice.below(words.len());
        match dice.below(4) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, dice.pick(OPTIONS)),
            2 => words.insert(at + 1, dice.pick(WORDS)),
            _ => words.insert(at + 1, dice.pick(ENDS).trim_start()),
        }
        let line = words.join(" ");
        if windlass_shell::read(&line).only_looks() {
            run += 1;
            assert!(
                !bench.changes(&line),
                "{line:?} was classed as looking and writes"
            );
        }
    }
    assert!(bench.nothing_elsewhere());
    assert!(run >= 500, "only {run} lines were classed as looking");
}
