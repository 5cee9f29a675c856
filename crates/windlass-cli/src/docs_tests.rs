//! Checks that clap accepts every `windlass` command in the docs.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser as _;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

use crate::args::Cli;

/// Finds the lines of shell blocks that begin with `windlass`, also after variable assignments. In `console` blocks,
/// commands are the lines after a `$`.
fn commands(markdown: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut shell: Option<String> = None;
    let mut has_output = false;
    for event in Parser::new(markdown) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                has_output = &*language == "console";
                shell = matches!(&*language, "sh" | "bash" | "console").then(String::new);
            }
            Event::Text(text) => {
                if let Some(shell) = &mut shell {
                    shell.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                let block = shell.take().unwrap_or_default().replace("\\\n", " ");
                let lines = block.lines();
                let typed = lines.filter_map(|line| match has_output {
                    true => line.strip_prefix("$ "),
                    false => Some(line),
                });
                found.extend(typed.filter_map(command));
            }
            _ => {}
        }
    }
    found
}

fn command(line: &str) -> Option<String> {
    let line = line.trim();
    let is_variable = |word: &&str| word.contains('=') && !word.starts_with('-');
    let program = line.split_whitespace().find(|word| !is_variable(word))?;
    // An ellipsis is a placeholder for words of the reader.
    let filled = line.replace('…', "words");
    (program == "windlass").then_some(filled)
}

/// Splits a command into words with a real shell.
fn words(command: &str) -> Vec<String> {
    let script = format!("windlass() {{ printf '%s\\0' windlass \"$@\"; }}\n{command} < /dev/null");
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.split_terminator('\0');
    words.map(str::to_owned).collect()
}

fn pages(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

#[test]
fn clap_accepts_every_command_in_the_docs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    pages(&root.join("docs"), &mut paths);
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in paths {
        for command in commands(&std::fs::read_to_string(&path).unwrap()) {
            count += 1;
            if let Err(err) = <Cli>::try_parse_from(words(&command)) {
                wrong.push(format!("{}: {command}\n{err}", path.display()));
            }
        }
    }
    assert!(count > 30, "only {count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_are_found_only_in_shell_blocks() {
    let text = "```sh\nA=1 windlass run \\\n  \"x y\"  # note\ncargo test\n```\n\n```text\nwindlass no\n```\n\n```console\n$ windlass status\nout\n```\n";
    let found = commands(text);
    assert_eq!(
        found,
        ["A=1 windlass run    \"x y\"  # note", "windlass status"]
    );
    assert_eq!(words(&found[0]), ["windlass", "run", "x y"]);
}
