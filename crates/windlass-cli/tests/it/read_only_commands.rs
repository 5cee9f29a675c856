//! Tests the classification of read-only commands by running them: random command lines that are classified as read-only
//! run in the kernel sandbox with write permission, and must write nothing. The test compares the workspace after every
//! line, byte for byte, and the private temporary directories at the end; everything else is mounted read-only. The
//! vocabulary has no absolute paths, no parent directories, and no commands that delete files or kill processes.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use windlass_sandbox::{Access, Helper, SandboxSession, Spec, Standard};

use crate::cli_fixture::BINARY;
use windlass_needs::{Need, lacks};

/// A deterministic random number generator.
struct SeededRandom(u64);

impl SeededRandom {
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

fn command(random: &mut SeededRandom) -> String {
    let mut line = if random.below(12) == 0 {
        "x=1 ".to_owned()
    } else {
        String::new()
    };
    line.push_str(random.pick(PROGRAMS));
    for _ in 0..random.below(3) {
        line.push(' ');
        line.push_str(random.pick(OPTIONS));
    }
    for _ in 0..random.below(4) {
        line.push(' ');
        line.push_str(random.pick(WORDS));
    }
    line.push_str(random.pick(ENDS));
    line
}

fn line(random: &mut SeededRandom) -> String {
    let mut line = command(random);
    for _ in 0..random.below(3) {
        line.push_str(random.pick(JOINTS));
        line.push_str(&command(random));
    }
    match random.below(10) {
        0 => format!("( {line} )"),
        1 => format!("echo \"$({line})\""),
        2 => format!("{{ {line}\n}}"),
        _ => line,
    }
}

/// A snapshot of a directory: names, kinds, modes and contents.
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
struct SandboxFixture {
    session: SandboxSession,
    _scratch: tempfile::TempDir,
    dir: PathBuf,
}

impl SandboxFixture {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().canonicalize().unwrap();
        let spec = Spec::around(dir.clone());
        let helper = Helper::new(BINARY);
        let fixture = Self {
            session: SandboxSession::open(&helper, &spec).unwrap().session,
            _scratch: scratch,
            dir,
        };
        fixture.lay_out();
        fixture
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

    /// Runs a line and returns its exit code.
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

    /// Whether the private temporary directories are empty.
    fn temp_dirs_are_empty(&self) -> bool {
        let own = self.dir.display();
        let left =
            format!("find /tmp /dev/shm -mindepth 1 -not -path '{own}*' -print -quit | grep -q .");
        self.run(&left) == Some(1)
    }
}

#[test]
fn the_check_detects_writes() {
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
        assert!(SandboxFixture::new().changes(line), "{line}");
    }
    let fixture = SandboxFixture::new();
    assert!(!fixture.changes("cat a | sort") && fixture.temp_dirs_are_empty());
    assert!(!fixture.changes("echo x > /tmp/x") && !fixture.temp_dirs_are_empty());
}

#[test]
fn commands_classified_as_read_only_change_nothing() {
    if lacks(Need::Namespaces) {
        return;
    }
    let (mut random, fixture) = (SeededRandom(20_260_101), SandboxFixture::new());
    let mut run = 0;
    for _ in 0..20_000 {
        let line = line(&mut random);
        if windlass_shell::read(&line).only_looks() {
            run += 1;
            assert!(
                !fixture.changes(&line),
                "{line:?} was classed as looking and writes"
            );
        }
    }
    assert!(fixture.temp_dirs_are_empty());
    assert!(
        run >= 150,
        "only {run} lines were classed as looking; the vocabulary proves too little"
    );
}

/// Inserts a word into everyday lines or removes one, because a flag or operand can turn a read-only command into a write.
#[test]
fn mutated_everyday_commands_are_classified_correctly() {
    if lacks(Need::Namespaces) {
        return;
    }
    let (mut random, fixture) = (SeededRandom(7), SandboxFixture::new());
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
        let line = random.pick(&lines).replace('␤', "\n");
        let mut words: Vec<&str> = line.split(' ').collect();
        let at = random.below(words.len());
        match random.below(4) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, random.pick(OPTIONS)),
            2 => words.insert(at + 1, random.pick(WORDS)),
            _ => words.insert(at + 1, random.pick(ENDS).trim_start()),
        }
        let line = words.join(" ");
        if windlass_shell::read(&line).only_looks() {
            run += 1;
            assert!(
                !fixture.changes(&line),
                "{line:?} was classed as looking and writes"
            );
        }
    }
    assert!(fixture.temp_dirs_are_empty());
    assert!(run >= 500, "only {run} lines were classed as looking");
}
