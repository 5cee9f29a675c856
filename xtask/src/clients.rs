//! `cargo xtask clients`: checks the packages for programs that call the server. The TypeScript package is installed and
//! tested in a copy below the target directory, so that the source tree stays clean.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo;

/// The command line that runs it alone.
pub(crate) const REPEAT: &str = "cargo xtask clients";
const PACKAGE: &str = "clients/typescript";
/// The files that are generated from the OpenAPI document.
const GENERATED: [&str; 2] = ["src/api.ts", "src/operations.ts"];
/// The oldest Node that the package supports.
const MIN_NODE: u32 = 20;
/// Directories that commands of npm create. They are not copied; `node_modules` is kept between runs.
const CREATED: [&str; 3] = ["node_modules", "dist", "build"];
/// The lock file of the last complete installation.
const INSTALLED_LOCK: &str = "node_modules/.installed-lock.json";

/// Installs the development dependencies, compares the generated types with the OpenAPI document, compiles the package and
/// runs its tests against the built binary. Without Node and npm, it only says so.
pub(crate) fn run(root: &Path) -> Result<()> {
    if !has_node() {
        println!("    not run: {PACKAGE} needs Node {MIN_NODE} or later and npm");
        return Ok(());
    }
    let binary = cargo::build(root, &["--workspace"])?.join("windlass");
    let copy = prepare_copy(root)?;
    let mut check = npm(&["run", "--silent", "check"]);
    check.env("WINDLASS_SOURCE", root);
    output_of(check, &copy)?;
    let mut test = npm(&["test", "--silent"]);
    test.env("WINDLASS_SOURCE", root)
        .env("WINDLASS_BIN", binary);
    let output = output_of(test, &copy)?;
    println!("    {}", totals(&output));
    Ok(())
}

/// Generates the types of the package from the OpenAPI document.
pub(crate) fn write(root: &Path) -> Result<()> {
    ensure!(
        has_node(),
        "{PACKAGE} needs Node {MIN_NODE} or later and npm"
    );
    let copy = prepare_copy(root)?;
    let mut generate = npm(&["run", "--silent", "generate"]);
    generate.env("WINDLASS_SOURCE", root);
    print!("{}", output_of(generate, &copy)?);
    for file in GENERATED {
        let (from, to) = (copy.join(file), root.join(PACKAGE).join(file));
        fs::copy(from, &to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

fn has_node() -> bool {
    node_version().is_some_and(|version| version >= MIN_NODE) && cargo::answers(npm(&["--version"]))
}

/// Returns a copy of the package with its development dependencies.
fn prepare_copy(root: &Path) -> Result<PathBuf> {
    let copy = cargo::target_directory(root)?.join(PACKAGE);
    copy_package(&root.join(PACKAGE), &copy)?;
    install(&copy)?;
    Ok(copy)
}

/// The major version of Node; `None` if it is not installed.
fn node_version() -> Option<u32> {
    let output = Command::new("node").arg("--version").output().ok()?;
    major_version(&String::from_utf8_lossy(&output.stdout))
}

fn major_version(text: &str) -> Option<u32> {
    text.trim()
        .strip_prefix('v')?
        .split('.')
        .next()?
        .parse()
        .ok()
}

fn npm(args: &[&str]) -> Command {
    let mut npm = Command::new("npm");
    npm.args(args).stdin(std::process::Stdio::null());
    npm
}

/// Replaces the copy by the current files, except for the installed dependencies.
fn copy_package(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if entry.file_name() == "node_modules" {
            continue;
        }
        let path = entry.path();
        let removed = match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.with_context(|| format!("cannot delete {}", path.display()))?;
    }
    copy_dir(from, to)
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if CREATED.iter().any(|created| name == OsStr::new(created)) {
            continue;
        }
        let target = to.join(&name);
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("cannot write {}", target.display()))?;
        }
    }
    Ok(())
}

/// Installs the dependencies of the lock file, unless the last installation had the same one.
fn install(copy: &Path) -> Result<()> {
    let lock =
        fs::read(copy.join("package-lock.json")).context("cannot read the lock file of npm")?;
    let installed = copy.join(INSTALLED_LOCK);
    if fs::read(&installed).is_ok_and(|before| before == lock) {
        return Ok(());
    }
    println!(
        "    installing the development dependencies into {}",
        copy.display()
    );
    output_of(
        npm(&["ci", "--prefer-offline", "--no-audit", "--no-fund"]),
        copy,
    )?;
    fs::write(&installed, lock).with_context(|| format!("cannot write {}", installed.display()))
}

/// Runs a command that must succeed, and returns its output. It is printed only if the command fails.
fn output_of(mut command: Command, dir: &Path) -> Result<String> {
    let output = command
        .current_dir(dir)
        .output()
        .context("npm could not be started")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        print!("{text}{}", String::from_utf8_lossy(&output.stderr));
        let args: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
        bail!(
            "`npm {}` failed ({})\n  to repeat it: {REPEAT}",
            args.join(" "),
            output.status
        );
    }
    Ok(text)
}

/// The totals at the end of the output of Node's test runner, for example "45 tests, 45 passed, 0 skipped".
fn totals(output: &str) -> String {
    let count = |name: &str| {
        output
            .lines()
            .filter_map(|line| line.trim_start_matches(['#', 'ℹ', ' ']).strip_prefix(name))
            .find_map(|rest| rest.trim().parse::<u32>().ok())
            .unwrap_or(0)
    };
    format!(
        "{} tests, {} passed, {} skipped",
        count("tests "),
        count("pass "),
        count("skipped ")
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_totals_are_read_in_both_formats_of_node() {
        let expect = "45 tests, 44 passed, 1 skipped";
        assert_eq!(
            totals("ok 1 - tests 3 things\n# tests 45\n# pass 44\n# skipped 1\n"),
            expect
        );
        assert_eq!(totals("ℹ tests 45\nℹ pass 44\nℹ skipped 1\n"), expect);
        assert_eq!(totals(""), "0 tests, 0 passed, 0 skipped");
    }

    #[test]
    fn the_version_of_node_is_read() {
        assert_eq!(major_version("v20.11.1\n"), Some(20));
        assert_eq!(major_version("20"), None);
        assert_eq!(major_version(""), None);
    }

    #[test]
    fn the_copy_has_the_current_files_and_keeps_the_dependencies() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("src")).unwrap();
        fs::create_dir_all(from.join("dist")).unwrap();
        fs::write(from.join("src/a.ts"), "new").unwrap();
        fs::create_dir_all(to.join("node_modules/x")).unwrap();
        fs::create_dir_all(to.join("src")).unwrap();
        fs::write(to.join("src/old.ts"), "old").unwrap();
        copy_package(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("src/a.ts")).unwrap(), "new");
        assert!(to.join("node_modules/x").is_dir());
        assert!(!to.join("src/old.ts").exists() && !to.join("dist").exists());
    }
}
