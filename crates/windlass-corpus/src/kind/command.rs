//! Kinds that are a command line of the product: restore, export, install, and any arguments at all. A feature that
//! is not there is shown to be not there by asking for it.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Value, json};

use super::calls;
use crate::case::Decision;
use crate::child::{self, Ran, Watch};
use crate::facts::Facts;
use crate::fixture::Stat;
use crate::product;

fn line(args: &[&str]) -> Vec<String> {
    args.iter().map(|&arg| arg.to_owned()).collect()
}

fn run(facts: &mut Facts<'_>, args: &[String]) -> Result<Ran, String> {
    let ran = facts
        .product
        .run(facts.place, &facts.case.mode, args, &Watch::default())?;
    facts.hear(&ran);
    Ok(ran)
}

/// Plays a script to have a session, in a mode in which edits run.
fn play(facts: &mut Facts<'_>, steps: &[Value]) -> Result<(), String> {
    let script = product::script(facts.place, steps)?;
    let args = facts
        .product
        .scripted(&facts.case.mode, &script, &["-o", "stream-json"]);
    let ran = run(facts, &args)?;
    crate::holds(ran.code == 0, || {
        format!("the session before could not be made: {}", ran.err.trim())
    })?;
    facts.events = product::events(&ran.out);
    facts.main = ran;
    Ok(())
}

/// The command was refused because there is none of that name.
fn not_there(facts: &mut Facts<'_>, name: &str, ran: &Ran) -> bool {
    let absent = !facts.product.has_command(name) && ran.code == product::USAGE;
    if absent {
        facts.absent = Some(format!("there is no command `{name}`"));
        facts.reached = vec![Decision::Deny];
    }
    absent
}

/// Changes a file in a session, plants what the case wants at its place, and takes the change back.
pub(super) fn restore(facts: &mut Facts<'_>) -> Result<(), String> {
    let planted = facts.case.input["planted"].clone();
    let path = facts
        .place
        .path(planted["path"].as_str().unwrap_or("README.md"));
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let old = text
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned();
    let name = path
        .strip_prefix(facts.place.workspace())
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
        crate::setup::apply_later(facts.place, &planted)?;
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

/// A session that read everything that was planted, in every form it can be taken away.
pub(super) fn export(facts: &mut Facts<'_>) -> Result<(), String> {
    let root = facts.place.workspace();
    let files = crate::fixture::Fixture::files(&root);
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
    let session = product::sessions(facts.place)
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

/// Asks for a bundle to be installed, by every name such a command could have.
pub(super) fn install(facts: &mut Facts<'_>) -> Result<(), String> {
    let folder = facts.place.base.join("bundle");
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
                let path = facts.place.own_path(&path)?;
                std::os::unix::fs::symlink(facts.place.filled(target), path).map_err(io)?;
            }
            None => drop(
                facts
                    .place
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

/// Exactly these arguments.
pub(super) fn argv(facts: &mut Facts<'_>) -> Result<(), String> {
    let args: Vec<String> = crate::words(&facts.case.input["argv"])
        .map(|word| facts.place.filled(word))
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

/// Runs the product with a `git` before the real one that takes its arguments down; gives back what was taken down.
pub(super) fn taken_down(
    facts: &mut Facts<'_>,
    args: &[String],
) -> Result<Vec<Vec<String>>, String> {
    let place = facts.place;
    let (folder, list) = (place.base.join("shim"), place.base.join("shim/list"));
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
    place.write(&shim, &text)?;
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&shim, runs).map_err(|err| format!("{shim}: {err}"))?;
    let mut command = facts.product.command(place, &facts.case.mode, args);
    let path = std::env::join_paths(
        std::iter::once(folder).chain(std::env::split_paths(&product::search_path())),
    );
    command.env("PATH", path.map_err(|err| err.to_string())?);
    let ran = child::run(command, &Watch::default())?;
    facts.judge(ran);
    let bytes = std::fs::read(&list).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let runs = text.split("\0\0").filter(|run| !run.is_empty());
    Ok(runs
        .map(|run| run.split('\0').map(str::to_owned).collect())
        .collect())
}

/// Runs the same once more with a link planted at every temporary name the first run used: no name may come twice,
/// and no link may be followed.
pub(super) fn temporary_names(facts: &mut Facts<'_>, script: &Path) -> Result<(), String> {
    let place = facts.place;
    let victim = place.path("@OUT@/victim.txt");
    let before = Stat::of(&victim);
    let args = facts
        .product
        .scripted(&facts.case.mode, script, &["-o", "stream-json"]);
    let mut seen: Vec<HashSet<String>> = Vec::new();
    for round in 0..2 {
        let folder = place.base.join(format!("tmp-{round}"));
        let io = |err: std::io::Error| format!("a temporary directory cannot be made: {err}");
        std::fs::create_dir_all(&folder).map_err(io)?;
        for name in seen.iter().flatten() {
            std::os::unix::fs::symlink(&victim, folder.join(name)).map_err(io)?;
        }
        let mut command = facts.product.command(place, &facts.case.mode, &args);
        command.env("TMPDIR", &folder);
        let (ran, names) = watched(&folder, || child::run(command, &Watch::default()))?;
        let ran = ran?;
        facts.hear(&ran);
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

/// The names that are made in a folder, and in the shared one by the product's own name, while something runs.
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
        // Others use the shared folder too: only what bears the product's name is its own there.
        if event.wd() == own || (name.contains("windlass") && !name.starts_with("windlass-corpus-"))
        {
            names.insert(name);
        }
    }
    Ok((ran, names))
}

/// Elsewhere only what is left behind can be seen.
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
