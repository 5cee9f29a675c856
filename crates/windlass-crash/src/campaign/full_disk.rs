//! Real disks that fill up: the data directory or the project is on a tmpfs that is too small by another amount each
//! time, in bytes or in files. A command may fail then; nothing may be lost, and once there is space again, undo
//! restores the original bytes.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use super::{Tally, oracle, task};
use crate::WorkMode;
use crate::scratch::{ScratchDir, Template, Tree};

/// Mounts a small file system, runs the steps, and removes the size limit before the last ones. `$1` is the mount
/// point, `$2` its free space, `$3` the command that runs on the full disk.
const STEPS: &str = r#"
set -u
windlass=$WINDLASS
mkdir -p "$1"
mv "$1" "$1.first" && mkdir "$1" && mount -t tmpfs -o size=64m none "$1" && cp -a "$1.first/." "$1/" || exit 99
cd "$PROJECT"
say() { "$windlass" "$@" > ../said/out 2>> ../said/err; echo "$?" >> ../said/codes; }
run() { say run 'Do it.' $PLACE --script ../script.toml --approval auto --output-format stream-json --validate none; }
limit() {
  used=$(df --output=used -B4096 "$1" | tail -1); files=$(df --output=iused "$1" | tail -1)
  case $2 in
    files:*) mount -o "remount,nr_inodes=$((files + ${2#files:}))" "$1" ;;
    *) mount -o "remount,size=$(( (used + 1 + $2) * 4096 ))" "$1" ;;
  esac || exit 99
}
if [ "$3" = undo ]; then run; limit "$1" "$2"; say undo --yes; else limit "$1" "$2"; run; fi
mount -o remount,size=64m,nr_inodes=100000 "$1" || exit 99
cd "$PROJECT"
say status
mkdir -p ../out/now ../out/undone
cp -a . ../out/now/
for try in 1 2 3 4; do "$windlass" undo --yes > ../said/undo 2>&1 || break; done
cp -a . ../out/undone/
cp -a "$DATA" ../out/data
"#;

/// The unit of the free space, which grows by one page or file with each case.
#[derive(Clone, Copy)]
enum SpaceUnit {
    Pages,
    Files,
}

pub(super) fn run(binary: &Path, points: usize, take: &mut dyn FnMut(Tally)) -> Result<()> {
    let mut variants = Vec::new();
    for mode in WorkMode::ALL {
        for command in ["run", "undo"] {
            for disk in ["data", "project"] {
                variants.push((mode, command, disk, SpaceUnit::Pages));
                variants.push((mode, command, disk, SpaceUnit::Files));
            }
        }
    }
    let each = points.div_ceil(variants.len());
    for (mode, command, disk, room) in variants {
        take(variant(binary, (mode, command, disk, room), each)?);
    }
    Ok(())
}

fn variant(
    binary: &Path,
    (mode, command, disk, room): (WorkMode, &str, &str, SpaceUnit),
    points: usize,
) -> Result<Tally> {
    let template = Template::with(task::files(), false)?;
    let what = match room {
        SpaceUnit::Pages => "bytes",
        SpaceUnit::Files => "files",
    };
    let mut tally = Tally {
        part: format!(
            "a full disk ({what}) of the {disk} directory, {} {command}",
            mode.word()
        ),
        ..Tally::default()
    };
    let after = after(binary, &template, mode)?;
    let (mut failed, mut passed) = (0, 0);
    for nth in 0..points {
        let scratch = ScratchDir::new(binary, &template)?;
        let before = oracle::files(&scratch.project())?;
        // The amounts grow faster and faster: the first pages and files are the interesting ones, and the last cases
        // have enough space.
        let pages = nth * (1 + nth * nth / 8);
        let size = match room {
            SpaceUnit::Pages => pages.to_string(),
            SpaceUnit::Files => format!("files:{pages}"),
        };
        let code = case(&scratch, (mode, command, disk), &size)?;
        tally.cases += 1;
        if code == Some(0) {
            passed += 1
        } else {
            failed += 1
        }
        let wrong = judge(&scratch, (&before, &after), code, (mode, command))?;
        tally.wrong.extend(
            wrong
                .into_iter()
                .map(|why| format!("free space {size}: {why}")),
        );
    }
    tally.seen = format!("{failed} failed without loss, {passed} had enough space");
    Ok(tally)
}

/// Returns the tree after the task on a disk with enough space.
fn after(binary: &Path, template: &Template, mode: WorkMode) -> Result<Tree> {
    let scratch = ScratchDir::new(binary, template)?;
    std::fs::write(scratch.base().join("script.toml"), task::script())?;
    let ran = task::run(&scratch, mode, None)?;
    ensure!(
        ran.code == Some(0),
        "the run without faults failed: {}",
        ran.err
    );
    oracle::files(&scratch.project())
}

/// Runs one case. Returns the exit code of the command that ran on the full disk.
fn case(
    scratch: &ScratchDir,
    (mode, command, disk): (WorkMode, &str, &str),
    size: &str,
) -> Result<Option<i32>> {
    std::fs::write(scratch.base().join("script.toml"), task::script())?;
    std::fs::create_dir_all(scratch.data())?;
    let mount = match disk {
        "data" => scratch.data(),
        _ => scratch.project(),
    };
    let args = [
        "--mount",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        STEPS,
        "steps",
    ];
    let mut unshare = scratch.command(Path::new("unshare"), args);
    unshare.arg(mount).arg(size).arg(command);
    unshare
        .env("WINDLASS", scratch.binary())
        .env("PROJECT", scratch.project())
        .env("DATA", scratch.data())
        .env("PLACE", format!("--{}", mode.word()))
        .current_dir(scratch.base())
        .stdout(Stdio::null());
    let ended = unshare.output().context("cannot start unshare")?;
    ensure!(
        ended.status.code() != Some(99),
        "cannot mount a small file system: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let codes = std::fs::read_to_string(scratch.base().join("said/codes")).unwrap_or_default();
    let codes: Vec<i32> = codes.lines().filter_map(|line| line.parse().ok()).collect();
    // The last code is that of `status`.
    Ok(codes
        .len()
        .checked_sub(2)
        .and_then(|at| codes.get(at))
        .copied())
}

fn judge(
    scratch: &ScratchDir,
    (before, after): (&Tree, &Tree),
    code: Option<i32>,
    (mode, command): (WorkMode, &str),
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let out = scratch.base().join("out");
    let said = std::fs::read_to_string(scratch.base().join("said/err")).unwrap_or_default();
    let undo = std::fs::read_to_string(scratch.base().join("said/undo")).unwrap_or_default();
    if said.contains("panicked at") || code.is_none_or(|code| !(0..=8).contains(&code)) {
        wrong.push(format!("the exit code is {code:?}: {said}"));
    }
    let (now, undone) = (
        oracle::files(&out.join("now"))?,
        oracle::files(&out.join("undone"))?,
    );
    if let Some(why) = oracle::difference(before, &undone) {
        wrong.push(format!("after undo: {why} ({undo})"));
    }
    if code == Some(0) && command == "undo" && now != *before {
        wrong.push("the undo reported success, but it is not complete".to_owned());
    }
    let changed = oracle::difference(before, &now).is_some();
    let logs = ScratchDir::logs_in(&out.join("data"))?;
    if code == Some(0) && command == "run" {
        let why = oracle::difference(after, &now);
        wrong.extend(why.map(|why| format!("the run reported success: {why}")));
    }
    if mode == WorkMode::Isolated && command == "run" && code != Some(0) && changed {
        wrong.push("the run failed, but a part of its changes is in the tree".to_owned());
    }
    for (session, log) in logs {
        let ends = oracle::wrong_in_log(&log).into_iter();
        let ends = ends.filter(|why| !why.ends_with("has 0 ends"));
        wrong.extend(ends.map(|why| format!("{session}: {why}")));
    }
    Ok(wrong)
}
