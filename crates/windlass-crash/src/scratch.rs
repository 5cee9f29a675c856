//! A scratch directory with a home, a project and the script, in which the binary runs as for a user. All files of a
//! case are below it, and it is removed with the case.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::op::Op;
use crate::script;
use crate::supervise::{self, FaultPoint};

/// A project before the task, with a repository; created once and copied for each case.
pub(crate) struct Template {
    dir: TempDir,
    /// The patches of the task change two files each.
    wide_patches: bool,
}

impl Template {
    pub(crate) fn new(wide_patches: bool) -> Result<Self> {
        Self::with(
            script::FILES.iter().map(|(path, text)| (*path, *text)),
            wide_patches,
        )
    }

    /// Creates a project with these files.
    pub(crate) fn with<P: AsRef<Path>, T: AsRef<[u8]>>(
        files: impl IntoIterator<Item = (P, T)>,
        wide_patches: bool,
    ) -> Result<Self> {
        let dir = TempDir::new().context("cannot create a scratch directory")?;
        for (path, text) in files {
            let path = dir.path().join(path);
            path.parent().map(std::fs::create_dir_all).transpose()?;
            std::fs::write(path, text)?;
        }
        let git = |args: &[&str]| -> Result<()> {
            let mut command = Command::new("git");
            command
                .args([
                    "-c",
                    "user.name=A Person",
                    "-c",
                    "user.email=person@example.invalid",
                ])
                .args(args);
            command
                .current_dir(dir.path())
                .env("HOME", dir.path())
                .env("GIT_CONFIG_NOSYSTEM", "1");
            let ended = command
                .stdout(Stdio::null())
                .status()
                .context("cannot start git")?;
            ensure!(ended.success(), "git {} failed", args.join(" "));
            Ok(())
        };
        git(&["init", "--quiet", "--template=", "."])?;
        git(&["add", "."])?;
        git(&["commit", "--quiet", "-m", "first"])?;
        Ok(Self { dir, wide_patches })
    }
}

/// The scratch directory of one case.
pub(crate) struct ScratchDir {
    dir: TempDir,
    binary: PathBuf,
}

/// The result of one call of the binary.
pub(crate) struct FinishedRun {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) ops: Vec<Op>,
    pub(crate) hit: Option<Op>,
    pub(crate) hung: bool,
    pub(crate) left: Vec<String>,
}

/// Files by path, each with its permissions and content.
pub(crate) type Tree = BTreeMap<String, String>;

impl ScratchDir {
    pub(crate) fn new(binary: &Path, template: &Template) -> Result<Self> {
        let dir =
            TempDir::with_prefix("windlass-crash-").context("cannot create a scratch directory")?;
        for name in ["home", "tmp", "said"] {
            std::fs::create_dir(dir.path().join(name))?;
        }
        std::fs::write(
            dir.path().join("script.toml"),
            script::script(template.wide_patches),
        )?;
        std::fs::write(dir.path().join("next.toml"), script::NEXT)?;
        copy(template.dir.path(), &dir.path().join("project"))?;
        Ok(Self {
            dir,
            binary: binary.to_owned(),
        })
    }

    /// Makes all stored files two days older.
    pub(crate) fn next_day(&self) -> Result<()> {
        let then = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
        let Ok(data) = self.data().canonicalize() else {
            return Ok(());
        };
        walk(&data, "", &mut |_, full| {
            // Setting the time of a file does not change the times of its directories.
            for path in full.ancestors().take_while(|path| path.starts_with(&data)) {
                if std::fs::symlink_metadata(path)
                    .is_ok_and(|about| about.is_file() || about.is_dir())
                {
                    std::fs::File::open(path)?.set_modified(then)?;
                }
            }
            Ok(())
        })
    }

    /// Keeps the directory on disk.
    pub(crate) fn keep(self) -> PathBuf {
        self.dir.keep()
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    /// Returns the data directory of the binary.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("home/.local/share/windlass")
    }

    /// Runs the binary in the project, with or without a fault.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        fault: Option<FaultPoint>,
    ) -> Result<FinishedRun> {
        let said = self.dir.path().join("said");
        let (out, err) = (said.join("out"), said.join("err"));
        let mut command = self.command(&self.binary, args);
        command
            .stdout(std::fs::File::create(&out)?)
            .stderr(std::fs::File::create(&err)?);
        let seen = supervise::run(&mut command, &said, fault)?;
        let text = |path: &Path| {
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
        };
        Ok(FinishedRun {
            code: seen.status.code(),
            out: text(&out)?,
            err: text(&err)?,
            ops: seen.ops.into_iter().map(|op| self.neutral_op(op)).collect(),
            hit: seen.hit.map(|op| self.neutral_op(op)),
            hung: seen.hung,
            left: seen.left,
        })
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// Returns the scratch directory itself.
    pub(crate) fn base(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a command in the project, with a minimal environment.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        program: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Command {
        let base = self.dir.path();
        let mut command = Command::new(program);
        command.args(args).current_dir(self.project()).env_clear();
        command.env(
            "PATH",
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
        );
        command
            .env("HOME", base.join("home"))
            .env("TMPDIR", base.join("tmp"));
        command.envs([
            ("LANG", "C.UTF-8"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("NO_COLOR", "1"),
        ]);
        command.stdin(Stdio::null());
        command
    }

    /// Replaces the path of this scratch directory in a text.
    pub(crate) fn neutral(&self, text: &str) -> String {
        text.replace(&self.dir.path().display().to_string(), "~")
    }

    fn neutral_op(&self, op: Op) -> Op {
        Op {
            path: self.neutral(&op.path),
            ..op
        }
    }

    /// Returns the project's files. Of the repository it includes only locks, which must not be left.
    pub(crate) fn tree(&self) -> Result<Tree> {
        Self::tree_in(&self.project())
    }

    /// Returns the files of a copy of the project.
    pub(crate) fn tree_in(project: &Path) -> Result<Tree> {
        let mut tree = Tree::new();
        walk(project, "", &mut |path, full| {
            if path.starts_with(".git/") && !path.ends_with(".lock") {
                return Ok(());
            }
            let about = std::fs::symlink_metadata(full)?;
            let bytes = if about.is_file() {
                std::fs::read(full)?
            } else {
                Vec::new()
            };
            let rights = about.permissions().mode() & 0o7777;
            tree.insert(
                path.to_owned(),
                format!("{rights:o} {}", String::from_utf8_lossy(&bytes)),
            );
            Ok(())
        })?;
        Ok(tree)
    }

    /// Returns the patterns of all stored paths, with a star for each random name.
    pub(crate) fn shapes(&self) -> Result<BTreeMap<String, usize>> {
        let mut shapes = BTreeMap::new();
        for (root, name) in [(self.data(), "data"), (self.dir.path().join("tmp"), "tmp")] {
            if root.exists() {
                walk(&root, "", &mut |path, full| {
                    // A process that dies before the first event leaves the directory of an empty session. It needs
                    // almost no space, and all lists skip it.
                    let never_begun = path
                        .split_once('/')
                        .is_some_and(|(top, _)| top == "sessions")
                        && full.ancestors().take(2).all(|dir| {
                            std::fs::metadata(dir.join("events.jsonl")).map_or(0, |log| log.len())
                                == 0
                        });
                    if never_begun {
                        return Ok(());
                    }
                    *shapes.entry(format!("{name}/{}", shape(path))).or_default() += 1;
                    Ok(())
                })?;
            }
        }
        Ok(shapes)
    }

    /// Returns the logs of all sessions, by id. A session with an empty log does not count.
    pub(crate) fn logs(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        Self::logs_in(&self.data())
    }

    /// Returns the logs in a copy of the data directory.
    pub(crate) fn logs_in(data: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut logs = BTreeMap::new();
        let sessions = data.join("sessions");
        if !sessions.exists() {
            return Ok(logs);
        }
        for entry in std::fs::read_dir(sessions)? {
            let entry = entry?;
            let log = std::fs::read(entry.path().join("events.jsonl")).unwrap_or_default();
            if !log.is_empty() {
                logs.insert(entry.file_name().to_string_lossy().into_owned(), log);
            }
        }
        Ok(logs)
    }
}

/// Replaces each random name of a path with a star.
fn shape(path: &str) -> String {
    let names = path.split('/').collect::<Vec<_>>();
    let drawn = |at: usize| match names[0] {
        "sessions" | "transactions" | "boxes" => at == 1,
        "undo" => at >= 2 && names[at] != "lock",
        _ => false,
    };
    let shaped = names
        .iter()
        .enumerate()
        .map(|(at, name)| if drawn(at) { "*" } else { name });
    shaped.collect::<Vec<_>>().join("/")
}

/// Visits each file and each empty directory below a directory.
fn walk(dir: &Path, below: &str, each: &mut impl FnMut(&str, &Path) -> Result<()>) -> Result<()> {
    let mut entries = std::fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{below}{}", entry.file_name().to_string_lossy());
        let is_full =
            entry.file_type()?.is_dir() && std::fs::read_dir(entry.path())?.next().is_some();
        if is_full {
            walk(&entry.path(), &format!("{path}/"), each)?;
        } else {
            each(&path, &entry.path())?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
