//! Runs git on the user's own repository, for tasks that file operations cannot do: reading an old blob, fetching
//! commits of a copy, committing landed files. It disables hooks, the file system monitor and prompts.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;

/// Timeout of one git command.
const GIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum paths in one command line.
const MAX_NAMED: usize = 500;
/// Maximum bytes of git's output.
const MAX_OUTPUT: u64 = 64 << 20;

/// The git program for one workspace.
#[derive(Debug, Clone)]
pub(super) struct UserGit {
    program: PathBuf,
    root: PathBuf,
    env: Vec<(OsString, OsString)>,
}

impl UserGit {
    /// Git for a workspace that is a repository. A `git` program inside the workspace is not used.
    pub(super) fn of(root: &Path, env: &[(OsString, OsString)]) -> Option<Self> {
        if root.join(".git").symlink_metadata().is_err() {
            return None;
        }
        Self::anywhere(root, env)
    }

    /// Git for any directory.
    pub(super) fn anywhere(root: &Path, env: &[(OsString, OsString)]) -> Option<Self> {
        let path = env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, value)| value.clone())?;
        let usable = |dir: &PathBuf| {
            dir.is_absolute() && !dir.canonicalize().is_ok_and(|dir| dir.starts_with(root))
        };
        let program = std::env::split_paths(&path)
            .filter(usable)
            .map(|dir| dir.join("git"))
            .find(|at| at.is_file())?;
        Some(Self {
            program,
            root: root.to_owned(),
            env: env.to_vec(),
        })
    }

    /// Returns a copy that also sets these environment variables.
    pub(super) fn with_env<'a>(
        &self,
        more: impl IntoIterator<Item = (&'a str, &'a OsStr)>,
    ) -> Self {
        let mut git = self.clone();
        let more = more.into_iter();
        git.env
            .extend(more.map(|(name, value)| (name.into(), value.to_owned())));
        git
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Runs git and returns its output, or its stderr as the error.
    pub(super) async fn ask<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: &[u8],
    ) -> Result<Vec<u8>, String> {
        let mut command = tokio::process::Command::new(&self.program);
        command
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command.envs([
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("LC_ALL", "C"),
        ]);
        command.current_dir(&self.root);
        command.args([
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "gc.auto=0",
        ]);
        command.args(["-c", "core.quotePath=false", "-c", "maintenance.auto=false"]);
        command.args(args).kill_on_drop(true);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|err| format!("cannot start git: {err}"))?;
        let stdin = child.stdin.take();
        let feed = async {
            if let Some(mut stdin) = stdin {
                // If git exits early, its stderr explains why.
                let _ = stdin.write_all(input).await;
            }
        };
        let answer = async { tokio::join!(feed, child.wait_with_output()).1 };
        let answer = tokio::time::timeout(GIT_TIMEOUT, answer).await;
        let answer = answer.map_err(|_| {
            format!(
                "git did not finish within {} seconds",
                GIT_TIMEOUT.as_secs()
            )
        })?;
        let answer = answer.map_err(|err| format!("cannot read git's output: {err}"))?;
        let differs = args.first().is_some_and(|first| first.as_ref() == "diff")
            && answer.status.code() == Some(1);
        if !answer.status.success() && !differs {
            return Err(String::from_utf8_lossy(&answer.stderr).trim().to_owned());
        }
        if answer.stdout.len() as u64 > MAX_OUTPUT {
            return Err("git's output is too long".to_owned());
        }
        Ok(answer.stdout)
    }

    /// Runs git and returns its output without surrounding white space.
    pub(super) async fn line<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, String> {
        let answer = self.ask(args, b"").await?;
        Ok(String::from_utf8_lossy(&answer).trim().to_owned())
    }

    /// Those of the paths that are tracked, and tracked files below the paths.
    pub(super) async fn tracked(&self, paths: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>, String> {
        let mut args: Vec<OsString> = ["--literal-pathspecs", "ls-files", "-z", "--"]
            .map(OsString::from)
            .to_vec();
        // More paths do not fit into a command line; then git lists all files, and the filter is applied here.
        if paths.len() <= MAX_NAMED {
            args.extend(paths.iter().map(|path| path.clone().into_os_string()));
        }
        let answer = self.ask(&args, b"").await?;
        let names = answer
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty());
        let names =
            names.map(|name| Path::new(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name)));
        let asked = names.filter(|name| name.ancestors().any(|above| paths.contains(above)));
        Ok(asked.map(Path::to_owned).collect())
    }

    /// The index entry of a file: its blob, and its metadata at the time when both were equal.
    pub(super) async fn index_entry(&self, path: &str) -> Option<IndexEntry> {
        let args = [
            "--literal-pathspecs",
            "ls-files",
            "--stage",
            "--debug",
            "--",
            path,
        ];
        let answer = self.ask(&args, b"").await.ok()?;
        IndexEntry::parse(&String::from_utf8_lossy(&answer))
    }

    pub(super) async fn blob(&self, id: &str) -> Result<Vec<u8>, String> {
        self.ask(&["cat-file", "blob", id], b"").await
    }
}

/// A file in git's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) blob: String,
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) changed: i64,
    pub(super) written: i64,
}

impl IndexEntry {
    /// Parses `100644 <blob> 0\tpath`, followed by indented lines of `name: value` pairs. A file in conflict has
    /// several entries.
    fn parse(text: &str) -> Option<Self> {
        let mut stages = text.lines().filter(|line| !line.starts_with(' '));
        let blob = stages.next()?.split_whitespace().nth(1)?.to_owned();
        if stages.next().is_some() {
            return None;
        }
        let value = |name: &str| {
            let at = text.find(&format!("{name}: "))? + name.len() + 2;
            text[at..]
                .split([' ', '\t', '\n'])
                .next()
                .map(str::to_owned)
        };
        let time = |name: &str| {
            let value = value(name)?;
            let (sec, nsec) = value.split_once(':')?;
            sec.parse::<i64>()
                .ok()?
                .checked_mul(1_000_000_000)?
                .checked_add(nsec.parse().ok()?)
        };
        Some(Self {
            blob,
            inode: value("ino")?.parse().ok()?,
            size: value("size")?.parse().ok()?,
            changed: time("ctime")?,
            written: time("mtime")?,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_read_as_git_prints_it() {
        let text = "100644 8baef1b4abc478178b004d62031cf7fe6db6f903 0\ta file.txt\n  ctime: 1763208000:123\n  \
                    mtime: 1763208001:5\n  dev: 65024\tino: 77\n  uid: 0\tgid: 0\n  size: 4\tflags: 0\n";
        let index_entry = IndexEntry::parse(text).unwrap();
        assert_eq!(
            (index_entry.inode, index_entry.size, index_entry.written),
            (77, 4, 1_763_208_001_000_000_005)
        );
        assert_eq!(index_entry.changed, 1_763_208_000_000_000_123);
        assert_eq!(IndexEntry::parse(""), None);
        let conflict = "100644 aaaa 1\tx\n  ctime: 1:1\n100644 bbbb 2\tx\n  ctime: 1:1\n";
        assert_eq!(IndexEntry::parse(conflict), None);
    }
}
