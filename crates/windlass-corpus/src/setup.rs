//! The operations that prepare a case. All files are created in the scratch directory; an unknown operation is an
//! error.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::fixture::{CaseFixture, random};
use crate::listen::TrapListener;
use crate::product;
use crate::tar::{TarEntry, archive};

/// Performs one operation of a case's `setup`.
pub(crate) fn apply(fixture: &mut CaseFixture, op: &Value) -> Result<(), String> {
    let name = op["op"].as_str().ok_or("a setup step has no `op`")?;
    let text = |key: &str| {
        op[key]
            .as_str()
            .ok_or_else(|| format!("setup `{name}` needs `{key}`"))
    };
    let io = |err: std::io::Error| format!("setup `{name}`: {err}");
    match name {
        "git_init" => git_init(fixture, &fixture.own_path(text("path")?)?),
        "git_config" => {
            let folder = fixture.own_path(text("path")?)?;
            git(
                fixture,
                &folder,
                &["config", text("key")?, &fixture.filled(text("value")?)],
            )
            .map(drop)
        }
        "listen" => listen(fixture, text("proto")?).map_err(|why| format!("setup `listen`: {why}")),
        "canary" => {
            let mut command = Command::new("sleep");
            command
                .arg("300")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let child = command.spawn().map_err(io)?;
            fixture.set("@CANARY@", child.id().to_string());
            fixture.canaries.push(child);
            Ok(())
        }
        "env" => {
            let value = fixture.filled(text("value")?);
            for name in product::variable(text("name")?) {
                fixture.env.push((name, value.clone()));
            }
            Ok(())
        }
        "cwd" => {
            fixture.cwd = fixture.own_path(text("path")?)?;
            Ok(())
        }
        "trust" => {
            let path = fixture.own_path(text("path")?)?;
            std::fs::create_dir_all(&path).map_err(io)?;
            fixture.trusted.push(path);
            Ok(())
        }
        "small_disk" => {
            let path = fixture.own_path(text("path")?)?;
            let bytes = op["bytes"]
                .as_u64()
                .ok_or("setup `small_disk` needs `bytes`")?;
            small_disk(fixture, path, bytes)
        }
        "race" => {
            fixture.races.push(op.clone());
            Ok(())
        }
        "while_pending" => {
            let steps = op["do"]
                .as_array()
                .ok_or("setup `while_pending` needs `do`")?
                .clone();
            fixture.while_pending =
                Some((steps, op["then"].as_str().unwrap_or("approve").to_owned()));
            Ok(())
        }
        other => apply_files(fixture, other, op),
    }
}

/// Performs the operations that only create files.
fn apply_files(fixture: &CaseFixture, name: &str, op: &Value) -> Result<(), String> {
    let text = |key: &str| {
        op[key]
            .as_str()
            .ok_or_else(|| format!("setup `{name}` needs `{key}`"))
    };
    let io = |err: std::io::Error| format!("setup `{name}`: {err}");
    match name {
        "file" => {
            let path = fixture.write(text("path")?, text("text")?)?;
            if let Some(mode) = op["mode"].as_str() {
                let mode = u32::from_str_radix(mode, 8)
                    .map_err(|_| format!("`{mode}` is not a file mode"))?;
                std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).map_err(io)?;
            }
            product::translate_file(fixture, &path)
        }
        "bytes" => {
            let bytes = STANDARD
                .decode(text("b64")?)
                .map_err(|err| format!("setup `bytes`: {err}"))?;
            fixture.write_bytes(text("path")?, &bytes).map(drop)
        }
        "dir" => std::fs::create_dir_all(fixture.own_path(text("path")?)?).map_err(io),
        "replace_dir" => {
            let path = fixture.own_path(text("path")?)?;
            if path.exists() {
                std::fs::rename(&path, path.with_extension("replaced")).map_err(io)?;
            }
            match op["target"].as_str() {
                Some(target) => {
                    std::os::unix::fs::symlink(fixture.filled(target), path).map_err(io)
                }
                None => std::fs::create_dir_all(path).map_err(io),
            }
        }
        "symlink" => {
            let (path, target) = (
                fixture.own_path(text("path")?)?,
                fixture.filled(text("target")?),
            );
            clear_path(&path).map_err(io)?;
            std::os::unix::fs::symlink(target, path).map_err(io)
        }
        "hardlink" => {
            let (path, target) = (
                fixture.own_path(text("path")?)?,
                fixture.own_path(text("target")?)?,
            );
            clear_path(&path).map_err(io)?;
            std::fs::hard_link(target, path).map_err(io)
        }
        "fifo" => {
            let path = fixture.own_path(text("path")?)?;
            clear_path(&path).map_err(io)?;
            let mode = rustix::fs::Mode::from_raw_mode(0o644);
            rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).map_err(|err| io(err.into()))
        }
        "sparse" => {
            let path = fixture.write_bytes(text("path")?, b"")?;
            let size = op["bytes"].as_u64().ok_or("setup `sparse` needs `bytes`")?;
            std::fs::OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|file| file.set_len(size))
                .map_err(io)
        }
        "tar" => {
            let bytes = packed(fixture, &op["entries"])?;
            fixture.write_bytes(text("path")?, &bytes).map(drop)
        }
        other => Err(format!("`{other}` is not a known setup operation")),
    }
}

/// Creates the parent folder and removes what is at the path, unless it is a folder that is not empty.
fn clear_path(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir(path),
        Ok(_) => std::fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// Builds an archive of entries with a text or a link.
pub(crate) fn packed(fixture: &CaseFixture, entries: &Value) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    for entry in entries.as_array().ok_or("an archive needs `entries`")? {
        let name = entry["name"]
            .as_str()
            .ok_or("an entry of an archive needs a `name`")?;
        let text = entry["text"].as_str().map(|text| fixture.filled(text));
        let link = entry["link"].as_str().map(|link| fixture.filled(link));
        all.push((name, text.unwrap_or_default(), link));
    }
    let entries: Vec<TarEntry<'_>> = all
        .iter()
        .map(|(name, text, link)| match link {
            Some(target) => TarEntry::Link { name, target },
            None => TarEntry::File {
                name,
                content: text.as_bytes(),
            },
        })
        .collect();
    archive(&entries)
}

/// Mounts a file system of this size over a folder and copies the folder's content into it.
fn small_disk(
    fixture: &mut CaseFixture,
    path: std::path::PathBuf,
    bytes: u64,
) -> Result<(), String> {
    let cannot = |err: &dyn std::fmt::Display| format!("setup `small_disk`: {err}");
    std::fs::create_dir_all(&path).map_err(|err| cannot(&err))?;
    let mut held = Vec::new();
    for file in CaseFixture::files(&path)
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
    fixture.mounts.push(path);
    for (bytes, file) in held {
        let folder = file.parent().unwrap_or(&file);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&file, bytes))
            .and_then(|()| std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)))
            .map_err(|err| cannot(&err))?;
    }
    Ok(())
}

/// Returns whether this process may mount a file system.
pub(crate) fn may_mount() -> bool {
    const SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|held| u64::from_str_radix(held.trim(), 16).ok());
    held.is_some_and(|held| held & (1 << SYS_ADMIN) != 0)
}

/// Returns the commit that is checked out.
pub(crate) fn head(fixture: &CaseFixture, folder: &Path) -> Result<String, String> {
    git(fixture, folder, &["rev-parse", "HEAD"])
}

/// Returns the stored text of a file in a commit.
pub(crate) fn blob(
    fixture: &CaseFixture,
    folder: &Path,
    revision: &str,
    file: &Path,
) -> Result<String, String> {
    git(
        fixture,
        folder,
        &[
            "cat-file",
            "blob",
            &format!("{revision}:{}", file.display()),
        ],
    )
}

fn git_init(fixture: &CaseFixture, folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|err| format!("setup `git_init`: {err}"))?;
    for args in [
        &["init", "-q"] as &[&str],
        &["config", "user.name", "t"],
        &["config", "user.email", "t@example.invalid"],
        &["add", "-A"],
        &["commit", "-qm", "first", "--allow-empty"],
    ] {
        git(fixture, folder, args)?;
    }
    Ok(())
}

/// Runs git without the machine's own settings; returns its output.
fn git(fixture: &CaseFixture, folder: &Path, args: &[&str]) -> Result<String, String> {
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
        .env("HOME", fixture.value("@HOME@"))
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

fn listen(fixture: &mut CaseFixture, proto: &str) -> Result<(), String> {
    let io = |err: std::io::Error| err.to_string();
    let listener = match proto {
        "tcp" => {
            let (listener, port) = TrapListener::tcp().map_err(io)?;
            fixture.set("@PORT@", port.to_string());
            listener
        }
        "udp" => {
            let (listener, port) = TrapListener::udp().map_err(io)?;
            fixture.set("@UPORT@", port.to_string());
            listener
        }
        "unix" => {
            let path = fixture.path("@OUT@/d.sock");
            let listener = TrapListener::unix(&path).map_err(io)?;
            fixture.set("@SOCK@", path.display().to_string());
            listener
        }
        "abstract" => {
            let name = format!("abs{}", random()?);
            let listener = TrapListener::abstract_socket(&name).map_err(io)?;
            fixture.set("@ABS@", name);
            listener
        }
        other => return Err(format!("`{other}` is not a known protocol")),
    };
    fixture.listeners.push(listener);
    Ok(())
}

/// Performs an operation while the case is running; only operations that change files are allowed.
pub(crate) fn apply_later(fixture: &CaseFixture, op: &Value) -> Result<(), String> {
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
    apply_files(fixture, name, op)
}
