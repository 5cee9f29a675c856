//! The sandbox tier without namespaces, with the kernel's namespaces switched off for the measured programs: a command
//! compared with plain exec, a connection compared with a plain one, and an isolated run compared with a copy.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::lab::Lab;
use super::measure::Spread;
use super::report::{Row, Target, Unit};
use super::rows::wall;

/// Folders of the tree that an isolated run opens, and files in each.
const FOLDERS: usize = 100;
const FILES: usize = 100;
const PLAINLY: &str = "the same program plainly";

/// The figures of this tier.
pub(crate) fn rows(lab: &Lab) -> Result<Vec<Row>> {
    let mut rows = commands(lab)?;
    rows.extend(connections(lab)?);
    rows.push(opening(lab)?);
    Ok(rows)
}

fn commands(lab: &Lab) -> Result<Vec<Row>> {
    let found = columns(lab, &mut lab.without_namespaces("sandbox-speed")?, 300)?;
    let row = |name, at| -> Result<Row> {
        Ok(Row::new(name, Unit::Ms, spread(&found, at)?).floor(PLAINLY, spread(&found, 0)?))
    };
    Ok(vec![
        row("a program in the sandbox without namespaces", 1)?.target(Target::Ratio(4.0)),
        row("the first one, with making that sandbox", 2)?,
    ])
}

fn connections(lab: &Lab) -> Result<Vec<Row>> {
    let with = columns(lab, &mut lab.without_namespaces("connect-speed")?, 100)?;
    let first = columns(lab, &mut lab.program("connect-speed"), 100)?;
    let row = |name, found: &[Vec<f64>], at| -> Result<Row> {
        Ok(Row::new(name, Unit::Us, spread(found, at + 1)?)
            .floor("the same call plainly", spread(found, at)?))
    };
    Ok(vec![
        row("`connect` on loopback through the broker", &with, 2)?.target(Target::Over(100.0)),
        row("`socket` and `connect` through the broker", &with, 0)?,
        row("`connect` on loopback in the first tier", &first, 2)?,
    ])
}

/// Opening an isolated run of a tree until its first command ended, compared with a copy of that tree.
fn opening(lab: &Lab) -> Result<Row> {
    let (tree, made, figures) = (
        lab.dir().join("medium"),
        lab.dir().join("medium-copy"),
        lab.dir().join("figures"),
    );
    make_tree(&tree)?;
    let (mut ours, mut copies) = (Vec::new(), Vec::new());
    for at in 0..=lab.times(20) {
        let copy = lab.once(
            Command::new("cp")
                .args(["-a", "--reflink=auto"])
                .args([&tree, &made]),
        )?;
        let reflinks = reflinks(&tree, &made);
        std::fs::remove_dir_all(&made).context("a copy of the tree cannot be removed")?;
        let mut command = lab.without_namespaces("isolated-speed")?;
        places(lab, &mut command, &tree).arg("--file").arg(&figures);
        lab.once(command.args(["--strategy", if reflinks { "reflink" } else { "copy" }]))?;
        let text = std::fs::read_to_string(&figures).context("isolated-speed left no figures")?;
        let open = text
            .split(' ')
            .next()
            .and_then(|time| time.parse::<f64>().ok());
        // The first repetition brings the tree into the cache.
        if at > 0 {
            ours.push(open.with_context(|| format!("isolated-speed left `{text}`"))?);
            copies.push(copy);
        }
    }
    let row = Row::new(
        "opening an isolated run on a copy, 10,000 files",
        Unit::Ms,
        Spread::of(ours)?,
    );
    Ok(row
        .floor("`cp -a --reflink=auto`", wall(&copies)?)
        .target(Target::Ratio(1.5)))
}

/// Whether `cp` can share blocks between these two folders.
fn reflinks(tree: &Path, made: &Path) -> bool {
    let mut command = Command::new("cp");
    let from = tree.join("part-00/file-00.txt");
    command
        .arg("--reflink=always")
        .arg(from)
        .arg(made.join("reflink"));
    crate::cargo::answers(command)
}

fn make_tree(tree: &Path) -> Result<()> {
    for folder in 0..FOLDERS {
        let dir = tree.join(format!("part-{folder:02}"));
        std::fs::create_dir_all(&dir).context("the tree cannot be made")?;
        for file in 0..FILES {
            let text = format!("file {file} of folder {folder}\n");
            std::fs::write(dir.join(format!("file-{file:02}.txt")), text)
                .context("the tree cannot be made")?;
        }
    }
    Ok(())
}

/// The flags that every program of the sandbox takes.
fn places<'a>(lab: &Lab, command: &'a mut Command, workspace: &Path) -> &'a mut Command {
    command
        .arg("--helper")
        .arg(lab.binary("windlass"))
        .arg("--workspace")
        .arg(workspace);
    command.arg("--home").arg(lab.dir().join("home"))
}

/// The columns of figures that a program prints.
fn columns(lab: &Lab, command: &mut Command, times: usize) -> Result<Vec<Vec<f64>>> {
    places(lab, command, &lab.dir().join("workspace"))
        .args(["--times", &lab.times(times).to_string()]);
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    anyhow::ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let mut columns: Vec<Vec<f64>> = Vec::new();
    for line in text.lines() {
        for (at, word) in line.split(' ').enumerate() {
            if columns.len() <= at {
                columns.push(Vec::new());
            }
            columns[at].extend(word.parse::<f64>());
        }
    }
    Ok(columns)
}

fn spread(columns: &[Vec<f64>], at: usize) -> Result<Spread> {
    Spread::of(columns.get(at).context("a column is missing")?.clone())
}
