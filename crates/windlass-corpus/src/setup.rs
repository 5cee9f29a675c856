//! The operations that prepare a case. Everything is made in the scratch directory; an operation that is not known is
//! an error.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::fixture::{Fixture, random};
use crate::listen::Listener;
use crate::product;
use crate::tar::{Entry, archive};

/// Does one operation.
pub(crate) fn apply(place: &mut Fixture, op: &Value) -> Result<(), String> {
    let name = op["op"].as_str().ok_or("a setup step has no `op`")?;
    let text = |key: &str| {
        op[key]
            .as_str()
            .ok_or_else(|| format!("setup `{name}` needs `{key}`"))
    };
    let io = |err: std::io::Error| format!("setup `{name}`: {err}");
    match name {
        "git_init" => git_init(place, &place.own_path(text("path")?)?),
        "git_config" => {
            let folder = place.own_path(text("path")?)?;
            git(
                place,
                &folder,
                &["config", text("key")?, &place.filled(text("value")?)],
            )
            .map(drop)
        }
        "listen" => listen(place, text("proto")?).map_err(|why| format!("setup `listen`: {why}")),
        "canary" => {
            let mut command = Command::new("sleep");
            command
                .arg("300")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let child = command.spawn().map_err(io)?;
            place.set("@CANARY@", child.id().to_string());
            place.canaries.push(child);
            Ok(())
        }
        "env" => {
            let value = place.filled(text("value")?);
            for name in product::variable(text("name")?) {
                place.env.push((name, value.clone()));
            }
            Ok(())
        }
        "cwd" => {
            place.cwd = place.own_path(text("path")?)?;
            Ok(())
        }
        "trust" => {
            let path = place.own_path(text("path")?)?;
            std::fs::create_dir_all(&path).map_err(io)?;
            place.trusted.push(path);
            Ok(())
        }
        "small_disk" => {
            let path = place.own_path(text("path")?)?;
            let bytes = op["bytes"]
                .as_u64()
                .ok_or("setup `small_disk` needs `bytes`")?;
            small_disk(place, path, bytes)
        }
        "race" => {
            place.races.push(op.clone());
            Ok(())
        }
        "while_pending" => {
            let steps = op["do"]
                .as_array()
                .ok_or("setup `while_pending` needs `do`")?
                .clone();
            place.while_pending =
                Some((steps, op["then"].as_str().unwrap_or("approve").to_owned()));
            Ok(())
        }
        other => apply_files(place, other, op),
    }
}

/// The operations that only make files.
fn apply_files(place: &Fixture, name: &str, op: &Value) -> Result<(), String> {
    let text = |key: &str| {
        op[key]
            .as_str()
            .ok_or_else(|| format!("setup `{name}` needs `{key}`"))
    };
    let io = |err: std::io::Error| format!("setup `{name}`: {err}");
    match name {
        "file" => {
            let path = place.write(text("path")?, text("text")?)?;
            if let Some(mode) = op["mode"].as_str() {
                let mode = u32::from_str_radix(mode, 8)
                    .map_err(|_| format!("`{mode}` is no file mode"))?;
                std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).map_err(io)?;
            }
            product::translate_file(place, &path)
        }
        "bytes" => {
            let bytes = STANDARD
                .decode(text("b64")?)
                .map_err(|err| format!("setup `bytes`: {err}"))?;
            place.write_bytes(text("path")?, &bytes).map(drop)
        }
        "dir" => std::fs::create_dir_all(place.own_path(text("path")?)?).map_err(io),
        "replace_dir" => {
            let path = place.own_path(text("path")?)?;
            if path.exists() {
                std::fs::rename(&path, path.with_extension("replaced")).map_err(io)?;
            }
            match op["target"].as_str() {
                Some(target) => std::os::unix::fs::symlink(place.filled(target), path).map_err(io),
                None => std::fs::create_dir_all(path).map_err(io),
            }
        }
        "symlink" => {
            let (path, target) = (
                place.own_path(text("path")?)?,
                place.filled(text("target")?),
            );
            make_way(&path).map_err(io)?;
            std::os::unix::fs::symlink(target, path).map_err(io)
        }
        "hardlink" => {
            let (path, target) = (
                place.own_path(text("path")?)?,
                place.own_path(text("target")?)?,
            );
            make_way(&path).map_err(io)?;
            std::fs::hard_link(target, path).map_err(io)
        }
        "fifo" => {
            let path = place.own_path(text("path")?)?;
            make_way(&path).map_err(io)?;
            let mode = rustix::fs::Mode::from_raw_mode(0o644);
            rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).map_err(|err| io(err.into()))
        }
        "sparse" => {
            let path = place.write_bytes(text("path")?, b"")?;
            let size = op["bytes"].as_u64().ok_or("setup `sparse` needs `bytes`")?;
            std::fs::OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|file| file.set_len(size))
                .map_err(io)
        }
        "tar" => {
            let bytes = packed(place, &op["entries"])?;
            place.write_bytes(text("path")?, &bytes).map(drop)
        }
        other => Err(format!(
            "`{other}` is not a setup operation that is known here"
        )),
    }
}

/// What stands where something else is to be; a folder that holds something stays.
fn make_way(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir(path),
        Ok(_) => std::fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// An archive of entries with a text or a link.
pub(crate) fn packed(place: &Fixture, entries: &Value) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    for entry in entries.as_array().ok_or("an archive needs `entries`")? {
        let name = entry["name"]
            .as_str()
            .ok_or("an entry of an archive needs a `name`")?;
        let text = entry["text"].as_str().map(|text| place.filled(text));
        let link = entry["link"].as_str().map(|link| place.filled(link));
        all.push((name, text.unwrap_or_default(), link));
    }
    let entries: Vec<Entry<'_>> = all
        .iter()
        .map(|(name, text, link)| match link {
            Some(target) => Entry::Link { name, target },
            None => Entry::File {
                name,
                content: text.as_bytes(),
            },
        })
        .collect();
    archive(&entries)
}

/// A file system of that size over a folder; what is in the folder is carried over.
fn small_disk(place: &mut Fixture, path: std::path::PathBuf, bytes: u64) -> Result<(), String> {
    let cannot = |err: &dyn std::fmt::Display| format!("setup `small_disk`: {err}");
    std::fs::create_dir_all(&path).map_err(|err| cannot(&err))?;
    let mut held = Vec::new();
    for file in Fixture::files(&path)
        .into_iter()
        .filter(|file| file.is_file())
    {
        held.push((std::fs::read(&file).map_err(|err| cannot(&err))?, file));
    }
    let options =
        std::ffi::CString::new(format!("size={bytes},mode=700")).map_err(|err| cannot(&err))?;
    rustix::mount::mount(
        "corpus",
        &path,
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        Some(options.as_c_str()),
    )
    .map_err(|err| cannot(&err))?;
    place.mounts.push(path);
    for (bytes, file) in held {
        let folder = file.parent().unwrap_or(&file);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&file, bytes))
            .and_then(|()| std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)))
            .map_err(|err| cannot(&err))?;
    }
    Ok(())
}

/// Whether this process may mount a file system.
pub(crate) fn may_mount() -> bool {
    const SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|held| u64::from_str_radix(held.trim(), 16).ok());
    held.is_some_and(|held| held & (1 << SYS_ADMIN) != 0)
}

/// The commit that is checked out.
pub(crate) fn head(place: &Fixture, folder: &Path) -> Result<String, String> {
    git(place, folder, &["rev-parse", "HEAD"])
}

/// The text of a file in a commit, as it is stored.
pub(crate) fn blob(
    place: &Fixture,
    folder: &Path,
    revision: &str,
    file: &Path,
) -> Result<String, String> {
    git(
        place,
        folder,
        &[
            "cat-file",
            "blob",
            &format!("{revision}:{}", file.display()),
        ],
    )
}

fn git_init(place: &Fixture, folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|err| format!("setup `git_init`: {err}"))?;
    for args in [
        &["init", "-q"] as &[&str],
        &["config", "user.name", "t"],
        &["config", "user.email", "t@example.invalid"],
        &["add", "-A"],
        &["commit", "-qm", "first", "--allow-empty"],
    ] {
        git(place, folder, args)?;
    }
    Ok(())
}

/// Git, with nothing of this machine's own settings; what it prints.
fn git(place: &Fixture, folder: &Path, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    command
        .args([
            "-c",
            "init.defaultBranch=main",
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.fsmonitor=false",
        ])
        .args(args);
    command.current_dir(folder).env_clear().stdin(Stdio::null());
    command
        .env("PATH", product::search_path())
        .env("HOME", place.value("@HOME@"))
        .env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command
        .output()
        .map_err(|err| format!("git cannot be started: {err}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    crate::holds(output.status.success(), || {
        format!("git {}: {}", args.join(" "), said.trim())
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn listen(place: &mut Fixture, proto: &str) -> Result<(), String> {
    let io = |err: std::io::Error| err.to_string();
    let listener = match proto {
        "tcp" => {
            let (listener, port) = Listener::tcp().map_err(io)?;
            place.set("@PORT@", port.to_string());
            listener
        }
        "udp" => {
            let (listener, port) = Listener::udp().map_err(io)?;
            place.set("@UPORT@", port.to_string());
            listener
        }
        "unix" => {
            let path = place.path("@OUT@/d.sock");
            let listener = Listener::unix(&path).map_err(io)?;
            place.set("@SOCK@", path.display().to_string());
            listener
        }
        "abstract" => {
            let name = format!("abs{}", random()?);
            let listener = Listener::unnamed(&name).map_err(io)?;
            place.set("@ABS@", name);
            listener
        }
        other => return Err(format!("`{other}` is no protocol that is known here")),
    };
    place.listeners.push(listener);
    Ok(())
}

/// An operation after the case began: only what changes files.
pub(crate) fn apply_later(place: &Fixture, op: &Value) -> Result<(), String> {
    let known = [
        "file",
        "bytes",
        "dir",
        "replace_dir",
        "symlink",
        "hardlink",
        "fifo",
        "sparse",
    ];
    let name = op["op"].as_str().unwrap_or_default();
    crate::holds(known.contains(&name), || {
        format!("`{name}` cannot be done after the case began")
    })?;
    apply_files(place, name, op)
}
