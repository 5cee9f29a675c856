//! The proof by running: lines made at random from words that can do no harm outside of a scratch directory are run
//! there by bash, when they are classed as looking, and must leave the directory as it was, byte for byte.
//! The vocabulary has no absolute path, nothing that leads upwards, nothing that removes or ends anything.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
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
    let mut line = if dice.below(12) == 0 { "x=1 ".to_owned() } else { String::new() };
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
            let bytes = if meta.is_file() { std::fs::read(entry.path()).unwrap() } else { Vec::new() };
            if meta.is_dir() {
                folders.push(entry.path());
            }
            all.insert(entry.path().display().to_string(), (meta.permissions().mode(), bytes));
        }
    }
    all
}

/// Whether running a line in a fresh directory changes anything there.
fn changes(line: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("a", "a 1\nb 2\na 1\n"), ("b", "one\ntwo\n"), ("c", "x"), ("d/e", "deep\n"), ("-o", "o\n")] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let before = look(dir.path());
    let mut bash = Command::new("timeout");
    bash.args(["10", "bash", "--norc", "--noprofile", "-c", line]).current_dir(dir.path()).env_clear();
    bash.env("PATH", "/usr/bin:/bin").env("HOME", dir.path()).stdin(Stdio::null());
    bash.stdout(Stdio::null()).stderr(Stdio::null());
    bash.status().unwrap();
    before != look(dir.path())
}

#[test]
fn the_check_sees_what_is_written() {
    for line in ["touch new", "echo x > new", "sort -o a b", "echo x | tee d/e", "sed -i s/a/b/ a"] {
        assert!(changes(line), "{line}");
    }
    assert!(!changes("cat a | sort"));
}

#[test]
fn what_is_classed_as_looking_leaves_everything_as_it_was() {
    let mut dice = Dice(20_260_101);
    let mut run = 0;
    for _ in 0..20_000 {
        let line = line(&mut dice);
        if windlass_shell::read(&line).only_looks() {
            run += 1;
            assert!(!changes(&line), "{line:?} was classed as looking and writes");
        }
    }
    assert!(run >= 150, "only {run} lines were classed as looking; the vocabulary proves too little");
}

/// Everyday lines with a word put in or taken out somewhere: what a flag or an operand turns into a writer.
#[test]
fn everyday_lines_with_a_word_more_or_less_are_not_mistaken() {
    let mut dice = Dice(7);
    let usable =
        |line: &&str| !["##", "sleep", "timeout"].iter().any(|word| line.contains(word)) && !line.contains(" /");
    let lines: Vec<&str> = include_str!("data/looks.txt").lines().filter(usable).collect();
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
            assert!(!changes(&line), "{line:?} was classed as looking and writes");
        }
    }
    assert!(run >= 500, "only {run} lines were classed as looking");
}
