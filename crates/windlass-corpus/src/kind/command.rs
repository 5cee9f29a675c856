//! Kinds of input that are a command line of the product: restore, export, install, and arbitrary arguments. If the
//! product lacks a feature, that is found out by asking for it.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Value, json};

use super::calls;
use crate::case::Decision;
use crate::child::{self, ChildResult, ChildWatch};
use crate::facts::CaseFacts;
use crate::fixture::Stat;
use crate::product;

fn line(args: &[&str]) -> Vec<String> {
    args.iter().map(|&arg| arg.to_owned()).collect()
}

fn run(facts: &mut CaseFacts<'_>, args: &[String]) -> Result<ChildResult, String> {
    let ran = facts.product.run(
        facts.fixture,
        &facts.case.mode,
        args,
        &ChildWatch::default(),
    )?;
    facts.keep_output(&ran);
    Ok(ran)
}

/// Plays a script to create a session, in a mode in which edits run.
fn play(facts: &mut CaseFacts<'_>, steps: &[Value]) -> Result<(), String> {
    let script = product::script(facts.fixture, steps)?;
    let args = facts
        .product
        .scripted(&facts.case.mode, &script, &["-o", "stream-json"]);
    let ran = run(facts, &args)?;
    crate::holds(ran.code == 0, || {
        format!("the first session could not be created: {}", ran.err.trim())
    })?;
    facts.events = product::events(&ran.out);
    facts.main = ran;
    Ok(())
}

/// Returns whether the command was refused because it does not exist.
fn not_there(facts: &mut CaseFacts<'_>, name: &str, ran: &ChildResult) -> bool {
    let absent = !facts.product.has_command(name) && ran.code == product::USAGE;
    if absent {
        facts.absent = Some(format!("there is no command `{name}`"));
        facts.reached = vec![Decision::Deny];
    }
    absent
}

/// Changes a file in a session, plants a file of the case at its path, and undoes the change.
pub(super) fn restore(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let planted = facts.case.input["planted"].clone();
    let path = facts
        .fixture
        .path(planted["path"].as_str().unwrap_or("README.md"));
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let old = text
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned();
    let name = path
        .strip_prefix(facts.fixture.workspace())
        .unwrap_or(&path)
        .display()
        .to_string();
    let edit = json!({ "path": name, "old": old, "new": "changed" });
    play(
        facts,
        &[calls(&[
            ("read_file", json!({ "path": name })),
            ("edit_file", edit),
        ])],
    )?;
    if planted["op"].is_string() {
        crate::setup::apply_later(facts.fixture, &planted)?;
    }
    let ran = run(facts, &line(&["undo"]))?;
    if !not_there(facts, "undo", &ran) {
        facts.reached = vec![if ran.code == 0 {
            Decision::Allow
        } else {
            Decision::Deny
        }];
    }
    facts.main = ran;
    Ok(())
}

/// Exports a session that read every planted file, in every format.
pub(super) fn export(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let root = facts.fixture.workspace();
    let files = crate::fixture::CaseFixture::files(&root);
    let names = files
        .iter()
        .filter(|path| path.is_file() && !path.starts_with(root.join(".git")));
    let names: Vec<String> = names
        .filter_map(|path| Some(path.strip_prefix(&root).ok()?.display().to_string()))
        .take(20)
        .collect();
    let reads: Vec<(&str, Value)> = names
        .iter()
        .map(|name| ("read_file", json!({ "path": name })))
        .collect();
    play(facts, &[calls(&reads)])?;
    facts.call = "call-1-1".to_owned();
    let session = product::sessions(facts.fixture)
        .pop()
        .ok_or("there is no session")?;
    let id = session
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    for args in [
        line(&["sessions", "export", &id]),
        line(&["sessions", "export", &id, "--format", "markdown"]),
        line(&["sessions", "show", &id]),
    ] {
        let ran = run(facts, &args)?;
        crate::holds(ran.code == 0 && !ran.out.is_empty(), || {
            format!("{args:?}: {}", ran.err.trim())
        })?;
    }
    facts.reached = vec![Decision::Allow];
    Ok(())
}

/// Tries to install a bundle with every command that could do it.
pub(super) fn install(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let folder = facts.fixture.base.join("bundle");
    let io = |err: std::io::Error| format!("the bundle cannot be made: {err}");
    std::fs::create_dir_all(&folder).map_err(io)?;
    for entry in facts.case.input["bundle"]
        .as_array()
        .ok_or("`input.bundle` is missing")?
    {
        let name = entry["name"]
            .as_str()
            .ok_or("an entry of the bundle has no `name`")?;
        let path = format!("{}/{name}", folder.display());
        match entry["link"].as_str() {
            Some(target) => {
                let path = facts.fixture.own_path(&path)?;
                std::os::unix::fs::symlink(facts.fixture.filled(target), path).map_err(io)?;
            }
            None => drop(
                facts
                    .fixture
                    .write(&path, entry["text"].as_str().unwrap_or_default())?,
            ),
        }
    }
    let bundle = folder.display().to_string();
    let mut absent = true;
    for name in ["skills", "ext"] {
        let ran = run(facts, &line(&[name, "install", &bundle]))?;
        absent &= not_there(facts, name, &ran);
        facts.reached = vec![if ran.code == 0 {
            Decision::Allow
        } else {
            Decision::Deny
        }];
        facts.main = ran;
    }
    facts.absent = absent.then(|| "there is no command that installs bundles".to_owned());
    Ok(())
}

/// Runs the product with exactly these arguments.
pub(super) fn argv(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let args: Vec<String> = crate::words(&facts.case.input["argv"])
        .map(|word| facts.fixture.filled(word))
        .collect();
    let name = args.first().cloned().ok_or("`input.argv` is missing")?;
    let ran = run(facts, &args)?;
    if !not_there(facts, &name, &ran) {
        facts.reached = vec![if ran.code == 0 {
            Decision::Allow
        } else {
            Decision::Deny
        }];
    }
    facts.main = ran;
    Ok(())
}

/// Runs the product with a wrapper for `git` first in the PATH, which records its arguments; returns them.
pub(super) fn record_git_arguments(
    facts: &mut CaseFacts<'_>,
    args: &[String],
) -> Result<Vec<Vec<String>>, String> {
    let fixture = facts.fixture;
    let (folder, list) = (fixture.base.join("shim"), fixture.base.join("shim/list"));
    let real = std::env::split_paths(&product::search_path())
        .map(|dir| dir.join("git"))
        .find(|path| path.is_file());
    let real = real.ok_or("needs git")?;
    let shim = folder.join("git").display().to_string();
    let text = format!(
        "#!/bin/sh\n{{ printf '%s\\0' \"$@\"; printf '\\0'; }} >> '{}' 2>/dev/null\nexec '{}' \"$@\"\n",
        list.display(),
        real.display()
    );
    fixture.write(&shim, &text)?;
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&shim, runs).map_err(|err| format!("{shim}: {err}"))?;
    let mut command = facts.product.command(fixture, &facts.case.mode, args);
    let path = std::env::join_paths(
        std::iter::once(folder).chain(std::env::split_paths(&product::search_path())),
    );
    command.env("PATH", path.map_err(|err| err.to_string())?);
    let ran = child::run(command, &ChildWatch::default())?;
    facts.set_checked_run(ran);
    let bytes = std::fs::read(&list).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let runs = text.split("\0\0").filter(|run| !run.is_empty());
    Ok(runs
        .map(|run| run.split('\0').map(str::to_owned).collect())
        .collect())
}

/// Runs the script twice and plants a symlink at every temporary name of the first run. No name may be used again, and
/// no symlink may be followed.
pub(super) fn temporary_names(facts: &mut CaseFacts<'_>, script: &Path) -> Result<(), String> {
    let fixture = facts.fixture;
    let victim = fixture.path("@OUT@/victim.txt");
    let before = Stat::of(&victim);
    let args = facts
        .product
        .scripted(&facts.case.mode, script, &["-o", "stream-json"]);
    let mut seen: Vec<HashSet<String>> = Vec::new();
    for round in 0..2 {
        let folder = fixture.base.join(format!("tmp-{round}"));
        let io = |err: std::io::Error| format!("a temporary directory cannot be made: {err}");
        std::fs::create_dir_all(&folder).map_err(io)?;
        for name in seen.iter().flatten() {
            std::os::unix::fs::symlink(&victim, folder.join(name)).map_err(io)?;
        }
        let mut command = facts.product.command(fixture, &facts.case.mode, &args);
        command.env("TMPDIR", &folder);
        let (ran, names) = watched(&folder, || child::run(command, &ChildWatch::default()))?;
        let ran = ran?;
        facts.keep_output(&ran);
        crate::holds(ran.code == 0, || {
            format!("the second run failed: {}", ran.err.trim())
        })?;
        seen.push(names);
    }
    let twice: Vec<&String> = seen[0].intersection(&seen[1]).collect();
    crate::holds(twice.is_empty(), || {
        format!("these temporary names come again: {twice:?}")
    })?;
    crate::holds(before == Stat::of(&victim), || {
        "a link at a temporary name was followed".to_owned()
    })?;
    facts
        .notes
        .push(format!("{} temporary names were used", seen[0].len()));
    Ok(())
}

/// Returns the names that are created while something runs: all in `folder`, and those with the product's name in the
/// shared folder for temporary files.
#[cfg(target_os = "linux")]
fn watched<T>(folder: &Path, run: impl FnOnce() -> T) -> Result<(T, HashSet<String>), String> {
    use rustix::fs::inotify;
    let io = |err: rustix::io::Errno| format!("a folder cannot be watched: {err}");
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)
        .map_err(io)?;
    let flags = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
    let own = inotify::add_watch(&watch, folder, flags).map_err(io)?;
    let shared = Path::new("/tmp");
    if shared.is_dir() {
        inotify::add_watch(&watch, shared, flags).map_err(io)?;
    }
    let ran = run();
    let mut names = HashSet::new();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 64 << 10];
    let mut reader = inotify::Reader::new(&watch, &mut buffer);
    while let Ok(event) = reader.next() {
        let Some(name) = event
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
        else {
            continue;
        };
        // Other programs use the shared folder as well, so only names with the product's name count there.
        if event.wd() == own || (name.contains("windlass") && !name.starts_with("windlass-corpus-"))
        {
            names.insert(name);
        }
    }
    Ok((ran, names))
}

/// On other systems only leftover files can be seen.
#[cfg(not(target_os = "linux"))]
fn watched<T>(folder: &Path, run: impl FnOnce() -> T) -> Result<(T, HashSet<String>), String> {
    let ran = run();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    Ok((
        ran,
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect(),
    ))
}
