//! Real disks that fill up: the data directory or the project is on a file system in memory that is too small by another
//! amount each time, in bytes or in files. A command may fail then; nothing may be lost, and with room again undo gives
//! the bytes from before.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use super::{Tally, oracle, task};
use crate::Where;
use crate::place::{Place, Template, Tree};

/// Mounts a small file system, runs the steps, and gives it room again before the last ones. `$1` is the place to mount,
/// `$2` its size while it is full, `$3` the command that meets the full disk.
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

/// The room that a case has, one more page or file each time.
#[derive(Clone, Copy)]
enum Room {
    Pages,
    Files,
}

pub(super) fn run(binary: &Path, points: usize, take: &mut dyn FnMut(Tally)) -> Result<()> {
    let mut variants = Vec::new();
    for place in Where::ALL {
        for command in ["run", "undo"] {
            for disk in ["data", "project"] {
                variants.push((place, command, disk, Room::Pages));
                variants.push((place, command, disk, Room::Files));
            }
        }
    }
    let each = points.div_ceil(variants.len());
    for (place, command, disk, room) in variants {
        take(variant(binary, (place, command, disk, room), each)?);
    }
    Ok(())
}

fn variant(
    binary: &Path,
    (place, command, disk, room): (Where, &str, &str, Room),
    points: usize,
) -> Result<Tally> {
    let template = Template::with(task::files(), false)?;
    let what = match room {
        Room::Pages => "bytes",
        Room::Files => "files",
    };
    let mut tally = Tally {
        part: format!(
            "a full disk ({what}) of the {disk} directory, {} {command}",
            place.word()
        ),
        ..Tally::default()
    };
    let after = after(binary, &template, place)?;
    let (mut failed, mut passed) = (0, 0);
    for nth in 0..points {
        let here = Place::new(binary, &template)?;
        let before = oracle::files(&here.project())?;
        // The steps become larger: the first pages and files are the interesting ones, and the last have enough room.
        let pages = nth * (1 + nth * nth / 8);
        let size = match room {
            Room::Pages => pages.to_string(),
            Room::Files => format!("files:{pages}"),
        };
        let code = case(&here, (place, command, disk), &size)?;
        tally.cases += 1;
        if code == Some(0) {
            passed += 1
        } else {
            failed += 1
        }
        let wrong = judge(&here, (&before, &after), code, (place, command))?;
        tally
            .wrong
            .extend(wrong.into_iter().map(|why| format!("room {size}: {why}")));
    }
    tally.seen = format!("{failed} failed and lost nothing, {passed} had enough room");
    Ok(tally)
}

/// The tree after the task on a disk with enough room.
fn after(binary: &Path, template: &Template, place: Where) -> Result<Tree> {
    let here = Place::new(binary, template)?;
    std::fs::write(here.base().join("script.toml"), task::script())?;
    let ran = task::run(&here, place, None)?;
    ensure!(ran.code == Some(0), "the run alone failed: {}", ran.err);
    oracle::files(&here.project())
}

/// Runs one case; gives the exit code of the command that met the full disk.
fn case(
    here: &Place,
    (place, command, disk): (Where, &str, &str),
    size: &str,
) -> Result<Option<i32>> {
    std::fs::write(here.base().join("script.toml"), task::script())?;
    std::fs::create_dir_all(here.data())?;
    let mount = match disk {
        "data" => here.data(),
        _ => here.project(),
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
    let mut unshare = here.command(Path::new("unshare"), args);
    unshare.arg(mount).arg(size).arg(command);
    unshare
        .env("WINDLASS", here.binary())
        .env("PROJECT", here.project())
        .env("DATA", here.data())
        .env("PLACE", format!("--{}", place.word()))
        .current_dir(here.base())
        .stdout(Stdio::null());
    let ended = unshare.output().context("unshare cannot be started")?;
    ensure!(
        ended.status.code() != Some(99),
        "no small file system can be mounted: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let codes = std::fs::read_to_string(here.base().join("said/codes")).unwrap_or_default();
    let codes: Vec<i32> = codes.lines().filter_map(|line| line.parse().ok()).collect();
    // The last is that of the status.
    Ok(codes
        .len()
        .checked_sub(2)
        .and_then(|at| codes.get(at))
        .copied())
}

fn judge(
    here: &Place,
    (before, after): (&Tree, &Tree),
    code: Option<i32>,
    (place, command): (Where, &str),
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let out = here.base().join("out");
    let said = std::fs::read_to_string(here.base().join("said/err")).unwrap_or_default();
    let undo = std::fs::read_to_string(here.base().join("said/undo")).unwrap_or_default();
    if said.contains("panicked at") || code.is_none_or(|code| !(0..=8).contains(&code)) {
        wrong.push(format!("it ended with {code:?}: {said}"));
    }
    let (now, undone) = (
        oracle::files(&out.join("now"))?,
        oracle::files(&out.join("undone"))?,
    );
    if let Some(why) = oracle::difference(before, &undone) {
        wrong.push(format!("after undo: {why} ({undo})"));
    }
    if code == Some(0) && command == "undo" && now != *before {
        wrong.push("the undo says that it worked, and it did not".to_owned());
    }
    let changed = oracle::difference(before, &now).is_some();
    let logs = Place::logs_in(&out.join("data"))?;
    if code == Some(0) && command == "run" {
        let why = oracle::difference(after, &now);
        wrong.extend(why.map(|why| format!("the run says that it worked: {why}")));
    }
    if place == Where::Isolated && command == "run" && code != Some(0) && changed {
        wrong.push("the run failed and something of it is in the tree".to_owned());
    }
    for (session, log) in logs {
        let ends = oracle::wrong_in_log(&log).into_iter();
        let ends = ends.filter(|why| !why.ends_with("has 0 ends"));
        wrong.extend(ends.map(|why| format!("{session}: {why}")));
    }
    Ok(wrong)
}
