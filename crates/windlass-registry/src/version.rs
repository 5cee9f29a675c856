//! Finds the version of an installed program in files next to it, without starting it. If no file contains the version,
//! the program runs with `--version`, in a sandbox and with a timeout.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use windlass_host::sandbox::{Helper, Sandbox, SandboxPlan, Standard};

use crate::program::AgentProgram;

/// Maximum size of a metadata file in bytes.
const MAX_METADATA: u64 = 1 << 20;
/// Maximum number of packages of an environment that are searched.
const MAX_PACKAGES: usize = 5_000;
/// Maximum size of the output of `--version` in bytes.
const MAX_OUTPUT: u64 = 8 << 10;
/// Timeout of `--version`.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The version from files next to the program. `package` is the name of its PyPI package, if it has one.
pub(crate) fn read_installed(program: &Path, package: Option<&str>) -> Option<String> {
    of_npm(program)
        .or_else(|| package.and_then(|package| of_python(program.parent()?.parent()?, package)))
        .or_else(|| of_name(program))
}

/// The version of the npm package that contains a program.
fn of_npm(program: &Path) -> Option<String> {
    let name = |folder: &Path| {
        folder
            .file_name()
            .map(|name| name.as_encoded_bytes().to_vec())
    };
    let is_packages = |folder: &Path| name(folder).is_some_and(|name| name == b"node_modules");
    let is_scope = |folder: &Path| name(folder).is_some_and(|name| name.starts_with(b"@"));
    let package = program.ancestors().skip(1).find(|folder| {
        let above = folder.parent();
        above.is_some_and(is_packages) && !is_scope(folder)
            || above.is_some_and(|above| is_scope(above) && above.parent().is_some_and(is_packages))
    })?;
    let metadata: serde_json::Value =
        serde_json::from_str(&text_of(&package.join("package.json"))?).ok()?;
    parse_version(metadata.get("version")?.as_str()?)
}

/// The version of a Python package in the environment `base`; `None` if there are several versions.
fn of_python(base: &Path, package: &str) -> Option<String> {
    let inside = |folder: &Path| {
        std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .take(MAX_PACKAGES)
    };
    let of_python = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"python");
    let libraries = inside(&base.join("lib")).filter(|entry| of_python(&entry.file_name()));
    let folders = libraries
        .flat_map(|entry| ["site-packages", "dist-packages"].map(|below| entry.path().join(below)));
    let wanted = normalized(package);
    let mut found: Vec<String> = Vec::new();
    for entry in folders.flat_map(|folder| inside(&folder).collect::<Vec<_>>()) {
        let name = entry.file_name();
        let Some((name, _)) = name
            .to_str()
            .and_then(|name| name.strip_suffix(".dist-info")?.split_once('-'))
        else {
            continue;
        };
        if normalized(name) != wanted {
            continue;
        }
        let metadata = text_of(&entry.path().join("METADATA"))?;
        let head = metadata.lines().take_while(|line| !line.is_empty());
        found.extend(
            head.filter_map(|line| line.strip_prefix("Version:"))
                .find_map(|version| parse_version(version.trim())),
        );
    }
    found.dedup();
    found.pop().filter(|_| found.is_empty())
}

/// The normalized name of a Python package: `-`, `_` and `.` are equivalent, and so are upper and lower case.
fn normalized(package: &str) -> String {
    package
        .chars()
        .map(|c| {
            if matches!(c, '_' | '.') {
                '-'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

/// The version, if it is the name of the program's file or of its directory.
fn of_name(program: &Path) -> Option<String> {
    let folder = program.parent().and_then(Path::file_name);
    [program.file_name(), folder]
        .into_iter()
        .flatten()
        .find_map(|name| parse_version(name.to_str()?))
}

fn text_of(file: &Path) -> Option<String> {
    let bytes = windlass_host::workspace::read_file(file, MAX_METADATA).ok()?;
    String::from_utf8(bytes).ok()
}

/// Accepts a text that is only a version: at least two numbers with dots between them, and an optional suffix.
fn parse_version(text: &str) -> Option<String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts = text.split('.');
    let number = |part: Option<&str>| {
        part.is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let second = |part: Option<&str>| {
        part.is_some_and(|part| part.bytes().next().is_some_and(|b| b.is_ascii_digit()))
    };
    let letters = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+'));
    (text.len() <= 64 && letters && number(parts.next()) && second(parts.next()))
        .then(|| text.to_owned())
}

/// The first version in the output of a program.
fn find_version(text: &str) -> Option<String> {
    let trim = |word: &str| parse_version(word.trim_matches(|c: char| !c.is_ascii_alphanumeric()));
    text.lines()
        .take(20)
        .flat_map(str::split_whitespace)
        .find_map(trim)
}

/// Runs the program with `--version`, in a sandbox without network, with an empty home directory and a timeout.
pub(crate) async fn run_version_flag(program: &AgentProgram, helper: Helper) -> Option<String> {
    let folder = tempfile::Builder::new()
        .prefix("windlass-version-")
        .tempdir()
        .ok()?;
    let root = folder.path().canonicalize().ok()?.join("root");
    std::fs::create_dir(&root).ok()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = program.path.iter().cloned();
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&path))).ok()?;
    let env = vec![
        ("PATH".into(), path),
        ("HOME".into(), root.clone().into()),
        ("LANG".into(), "C.UTF-8".into()),
    ];
    let plan = SandboxPlan {
        root: root.clone(),
        data_dir: folder.path().join("data"),
        read: program.visible_paths.clone(),
        ..SandboxPlan::default()
    };
    let sandbox = Sandbox::new(plan, helper, env, windlass_transaction::copy_workspace);
    let null = || {
        std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
    };
    let (reader, writer) = std::io::pipe().ok()?;
    let standard = Standard {
        input: null().ok()?.into(),
        output: writer.into(),
        error: null().ok()?.into(),
    };
    let argv = [program.file.clone().into_os_string(), "--version".into()];
    let output = tokio::task::spawn_blocking(move || {
        let mut text = Vec::new();
        let _ = reader.take(MAX_OUTPUT).read_to_end(&mut text);
        text
    });
    let status = tokio::time::timeout(TIMEOUT, sandbox.run(&argv, &root, standard)).await;
    // Dropping the sandbox ends processes that the program left behind, so the pipe is closed.
    drop(sandbox);
    status.ok()?.ok()?;
    let text = tokio::time::timeout(TIMEOUT, output).await.ok()?.ok()?;
    find_version(&String::from_utf8_lossy(&text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], program: &str, package: Option<&str>, version: Option<&str>) {
        let dir = tree(files);
        assert_eq!(
            read_installed(&dir.path().join(program), package).as_deref(),
            version,
            "{program}"
        );
    }

    #[test]
    fn a_version_is_read_from_an_npm_package_or_a_path() {
        let agent = (
            "lib/node_modules/agent/package.json",
            r#"{"name":"agent","version":"1.18.33"}"#,
        );
        check(
            &[agent],
            "lib/node_modules/agent/bin/agent",
            None,
            Some("1.18.33"),
        );
        let scoped = (
            "node_modules/@who/agent/package.json",
            r#"{"version":"0.166.0"}"#,
        );
        check(
            &[scoped],
            "node_modules/@who/agent/bin/deep/agent.js",
            None,
            Some("0.166.0"),
        );
        // A nested package has its own version; a package.json outside of node_modules is ignored.
        let inner = (
            "lib/node_modules/agent/node_modules/inner/package.json",
            r#"{"version":"9.9.9"}"#,
        );
        check(
            &[agent, inner],
            "lib/node_modules/agent/node_modules/inner/run",
            None,
            Some("9.9.9"),
        );
        check(
            &[("package.json", r#"{"version":"5.0.0"}"#)],
            "bin/agent",
            None,
            None,
        );
        check(
            &[("node_modules/agent/package.json", r#"{"version":"; rm"}"#)],
            "node_modules/agent/x",
            None,
            None,
        );
        check(&[], "share/claude/versions/2.1.325", None, Some("2.1.325"));
        check(
            &[],
            "agents/v0.4.0-beta.1/agent",
            None,
            Some("0.4.0-beta.1"),
        );
        check(&[], "versions/3.12.1/bin/agent", None, None);
    }

    #[test]
    fn a_version_is_read_from_the_metadata_of_a_python_package() {
        let metadata = "Metadata-Version: 2.4\nName: aider-chat\nVersion: 0.86.3\n\nVersion: 1.0\n";
        let dist = (
            "venv/lib/python3.12/site-packages/aider_chat-0.86.3.dist-info/METADATA",
            metadata,
        );
        let other = (
            "venv/lib/python3.12/site-packages/aider-9.9.dist-info/METADATA",
            "Version: 9.9\n",
        );
        check(
            &[dist, other],
            "venv/bin/aider",
            Some("aider-chat"),
            Some("0.86.3"),
        );
        check(&[other], "venv/bin/aider", Some("aider-chat"), None);
        check(&[dist], "venv/bin/aider", None, None);
        let second = (
            "venv/lib/python3.11/site-packages/aider_chat-0.80.0.dist-info/METADATA",
            "Version: 0.80.0\n",
        );
        check(&[dist, second], "venv/bin/aider", Some("aider-chat"), None);
    }

    #[test]
    fn a_version_is_found_in_the_output_of_a_program() {
        let check = |text: &str, version: Option<&str>| {
            assert_eq!(find_version(text).as_deref(), version, "{text}")
        };
        check("2.1.325 (Claude Code)\n", Some("2.1.325"));
        check("codex-cli 0.166.0", Some("0.166.0"));
        check(" 1.10.0\n", Some("1.10.0"));
        check(
            "agent, version v3.2.1-rc.1, built today",
            Some("3.2.1-rc.1"),
        );
        check("usage: agent FILE\nno version here", None);
        check("", None);
    }
}
