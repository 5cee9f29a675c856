//! Facts about the workspace from the git program, with everything switched off that would run code of the
//! repository or wait for a person. It goes through the run's own processes, so that it is inside whatever
//! sandbox the run has. Nothing here changes the repository.

use std::time::Duration;

use windlass_core::CancellationToken;
use windlass_core::workspace::{Command, Finished, ProcessEnd, Processes, Watch};

/// Longer than this git is stuck, on a lock or a network file system.
const TIMEOUT: Duration = Duration::from_secs(30);

/// No hooks, no watcher, no pager, no locks, no system-wide settings, and paths are taken literally.
const GIT: &str = "GIT_CONFIG_NOSYSTEM=1 GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 LC_ALL=C git --no-pager \
                   --literal-pathspecs --no-optional-locks -c core.hooksPath=/dev/null -c core.fsmonitor=false \
                   -c core.quotePath=false -c color.ui=false";

/// Why git gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitError {
    /// There is no git program.
    #[error("git is not installed; install it, or go on without it")]
    Missing,
    /// The workspace is not in a repository.
    #[error("the workspace is not in a git repository; `git init` would make it one")]
    NotARepository,
    /// It was stopped.
    #[error("git was cancelled")]
    Cancelled,
    /// It took too long.
    #[error("git did not answer within {} seconds", TIMEOUT.as_secs())]
    TimedOut,
    /// It said no.
    #[error("git failed: {0}")]
    Failed(String),
}

/// Which differences to show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiffOf {
    /// What is staged, instead of what is not.
    pub staged: bool,
    /// Against this commit, instead of what is staged or committed.
    pub against: Option<String>,
    /// Only below this path.
    pub path: Option<String>,
}

/// The branch and the changed files, in git's short form.
pub async fn status(processes: &dyn Processes, keep: usize, cancel: &CancellationToken) -> Result<Finished, GitError> {
    let line = format!("{GIT} status --short --branch --untracked-files=normal --ignore-submodules=dirty");
    ask(processes, line, keep, cancel).await
}

/// Differences as a unified diff.
pub async fn diff(
    processes: &dyn Processes,
    of: &DiffOf,
    keep: usize,
    cancel: &CancellationToken,
) -> Result<Finished, GitError> {
    ask(processes, diff_line(of)?, keep, cancel).await
}

fn diff_line(of: &DiffOf) -> Result<String, GitError> {
    let mut line = format!("{GIT} diff --no-ext-diff --no-textconv --no-color --ignore-submodules=dirty");
    if of.staged {
        line.push_str(" --cached");
    }
    if let Some(commit) = &of.against {
        // A name that starts like an option would be one.
        if commit.is_empty() || commit.starts_with('-') {
            return Err(GitError::Failed(format!("`{commit}` is not the name of a commit")));
        }
        line.push(' ');
        line.push_str(&quoted(commit));
    }
    line.push_str(" --");
    if let Some(path) = &of.path {
        line.push(' ');
        line.push_str(&quoted(path));
    }
    Ok(line)
}

async fn ask(
    processes: &dyn Processes,
    line: String,
    keep: usize,
    cancel: &CancellationToken,
) -> Result<Finished, GitError> {
    let command = Command { line, workdir: String::new(), timeout: TIMEOUT, keep };
    let watch = Watch { progress: &|_| {}, cancel: cancel.clone(), artifacts: None };
    let finished = processes.run(command, watch).await.map_err(|err| GitError::Failed(err.0))?;
    match finished.end {
        ProcessEnd::Exited { code: 0 } => Ok(finished),
        ProcessEnd::Exited { code: 127 } => Err(GitError::Missing),
        ProcessEnd::Exited { .. } if finished.output.contains("not a git repository") => Err(GitError::NotARepository),
        ProcessEnd::Exited { .. } | ProcessEnd::Signalled { .. } => {
            Err(GitError::Failed(finished.output.trim().to_owned()))
        }
        ProcessEnd::TimedOut => Err(GitError::TimedOut),
        ProcessEnd::Cancelled => Err(GitError::Cancelled),
    }
}

/// A text as one word for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\0', "").replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use crate::exec::{HostProcesses, child_env};
    use crate::workspace::Root;

    struct Fixture {
        dir: tempfile::TempDir,
        processes: HostProcesses,
    }

    fn fixture(path: &str) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let vars = [("PATH".into(), path.into()), ("HOME".into(), dir.path().into())];
        Fixture { processes: HostProcesses::new(root, child_env(vars, &[])), dir }
    }

    const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

    impl Fixture {
        fn sh(&self, script: &str) {
            let done = std::process::Command::new("sh")
                .args(["-ec", script])
                .current_dir(self.dir.path())
                .env("HOME", self.dir.path())
                .output()
                .unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }

        async fn diff(&self, of: DiffOf) -> Result<String, GitError> {
            let done = diff(&self.processes, &of, 10_000, &CancellationToken::new()).await?;
            Ok(done.output)
        }
    }

    #[tokio::test]
    async fn status_and_diff_are_shown_and_nothing_of_the_repository_is_run() {
        let f = fixture(PATH);
        f.sh("git init -qb main . && printf 'a\n' > a.txt && git add a.txt \
              && git -c user.name=n -c user.email=e commit -qm one && printf 'b\n' > a.txt && printf 'n\n' > 'new é.txt' \
              && printf '*.txt diff=evil\n' > .gitattributes && git add .gitattributes \
              && git config diff.external 'touch ran; true' && git config diff.evil.textconv 'touch ran; cat' \
              && git config core.fsmonitor 'touch ran; false' && git config core.pager 'touch ran; cat'");
        let shown = status(&f.processes, 10_000, &CancellationToken::new()).await.unwrap().output;
        assert_eq!(shown, "## main\nA  .gitattributes\n M a.txt\n?? \"new é.txt\"\n");
        let shown = f.diff(DiffOf::default()).await.unwrap();
        assert!(shown.ends_with("@@ -1 +1 @@\n-a\n+b\n"), "{shown}");
        let staged = f.diff(DiffOf { staged: true, ..DiffOf::default() }).await.unwrap();
        assert!(staged.contains("+*.txt diff=evil"), "{staged}");
        let head = DiffOf { against: Some("HEAD".into()), path: Some("a.txt".into()), ..DiffOf::default() };
        assert!(f.diff(head).await.unwrap().ends_with("-a\n+b\n"));
        let none = DiffOf { path: Some("it's; touch ran".into()), ..DiffOf::default() };
        assert_eq!(f.diff(none).await.unwrap(), "");
        let option = DiffOf { against: Some("--output=ran".into()), ..DiffOf::default() };
        assert!(matches!(f.diff(option).await, Err(GitError::Failed(_))));
        assert!(!f.dir.path().join("ran").exists());
    }

    #[tokio::test]
    async fn a_missing_git_or_repository_is_said() {
        let cancel = CancellationToken::new();
        let plain = fixture(PATH);
        assert_eq!(status(&plain.processes, 100, &cancel).await, Err(GitError::NotARepository));
        let bare = fixture("/nonexistent");
        assert_eq!(status(&bare.processes, 100, &cancel).await, Err(GitError::Missing));
        cancel.cancel();
        assert_eq!(status(&plain.processes, 100, &cancel).await, Err(GitError::Cancelled));
    }
}
