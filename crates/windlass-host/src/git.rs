//! Asks the git program for facts about the workspace, with all features off that would run code of the repository or
//! wait for a person. It uses the processes of the run, so that git runs in the same sandbox as commands. Nothing here
//! changes the repository.

use std::time::Duration;

use windlass_core::CancellationToken;
use windlass_core::shell::quoted;
use windlass_core::workspace::{Command, Finished, ProcessEnd, Processes, Watch};

/// After this time git is considered stuck, on a lock or a network file system.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum size in bytes of a list of names, which is useful only if it is complete.
const MAX_NAMES: usize = 4 << 20;

/// A shell script that runs before each git command.
///
/// Filters are programs that git runs on file content. Filters in the settings of the machine or the user stay (Git LFS
/// is one); those that only this repository defines are cleared, because a repository is not trusted to name programs.
/// The script fails if git cannot do that, or if the files of the repository are elsewhere.
///
/// The git program is never taken from the workspace: relative directories of `PATH`, and those in the workspace, are
/// removed. A directory that only looks like a bare repository is not used as one.
const GUARD_SCRIPT: &str = r#"
refuse() { echo "$1"; exit 3; }
unset CDPATH
top=$(pwd -P) outside= IFS=:
set -f
for dir in $PATH; do
  case $dir in
    /*) dir=$(cd -- "$dir" 2>/dev/null && pwd -P) || continue ;;
    *) continue ;;
  esac
  case $dir/ in "$top"/*) ;; *) outside=$outside:$dir ;; esac
done
set +f
unset IFS
export PATH="${outside#:}"
export GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_0=safe.bareRepository GIT_CONFIG_VALUE_0=explicit \
  GIT_CONFIG_KEY_1=core.fsmonitor GIT_CONFIG_VALUE_1=false GIT_CONFIG_KEY_2=core.hooksPath GIT_CONFIG_VALUE_2=/dev/null
filters=$(git config --show-scope --includes --name-only --get-regexp '^filter\..*\.(clean|smudge|process|required)$' 2>/dev/null)
[ $? = 129 ] && refuse 'this git is too old to be used safely; update it to 2.31 or newer'
while IFS='	' read -r scope key; do
  case $scope in
    local|worktree)
      export "GIT_CONFIG_KEY_$GIT_CONFIG_COUNT=$key" "GIT_CONFIG_VALUE_$GIT_CONFIG_COUNT="
      GIT_CONFIG_COUNT=$((GIT_CONFIG_COUNT + 1))
      last=$key ;;
  esac
done <<END
$filters
END
[ $GIT_CONFIG_COUNT != 3 ] && [ -n "$(git config --get "$last")" ] &&
  refuse 'the repository sets up filters, which this git is too old to switch off; update it to 2.31 or newer'
[ "$(git rev-parse --is-inside-work-tree 2>/dev/null)" = false ] &&
  refuse 'the files of this repository are not in the workspace (see core.bare and core.worktree in its configuration)'
"#;

/// Options for each git command: no hooks, no file monitor, no pager, no locks, and no fetch of objects that a partial
/// clone lacks, because the repository defines the fetch command, which may be any program.
const GIT: &str = "GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none LC_ALL=C \
                   git --no-pager --no-optional-locks -c core.hooksPath=/dev/null -c core.fsmonitor=false \
                   -c core.quotePath=false -c color.ui=false";

/// The reason why git gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitError {
    #[error("git is not installed; install it, or continue without it")]
    Missing,
    #[error("the workspace is not in a git repository; `git init` would make it one")]
    NotARepository,
    #[error("git was cancelled")]
    Cancelled,
    #[error("git did not answer within {} seconds", TIMEOUT.as_secs())]
    TimedOut,
    /// The text of `against` is not a commit.
    #[error("`{0}` is not a commit; name a commit, a branch or a range such as main...HEAD")]
    NotACommit(String),
    /// Git exited with an error; the text is its output.
    #[error("git failed: {0}")]
    Failed(String),
}

/// The differences to show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiffQuery {
    /// Show staged changes instead of unstaged ones.
    pub staged: bool,
    /// Compare with this commit instead of the index or the last commit.
    pub against: Option<String>,
    /// Only these files or directories, taken literally; the whole workspace if empty.
    pub paths: Vec<String>,
    /// Exclude these files, named from the top of the repository.
    pub without: Vec<String>,
    /// Only names and counts.
    pub stat: bool,
}

/// Returns the branch that is checked out, by reading the repository's files without a program. `None` for a detached
/// head, and for a name with unusual characters.
#[must_use]
pub fn branch(root: &std::path::Path) -> Option<String> {
    let own = root.join(".git");
    // A worktree has a file there, which names its part of the repository.
    let dir = match pointer(&own) {
        Some(named) => root.join(named.strip_prefix("gitdir:")?.trim()),
        None => own,
    };
    let head = pointer(&dir.join("HEAD"))?;
    let name = head
        .strip_prefix("ref:")?
        .trim()
        .strip_prefix("refs/heads/")?;
    let plain = name.len() <= 200
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || "-_./+#@".contains(c));
    plain.then(|| name.to_owned())
}

/// Reads a git file that has one line and names a path or a ref.
pub(crate) fn pointer(path: &std::path::Path) -> Option<String> {
    const MAX_POINTER: u64 = 4_096;
    let bytes = crate::workspace::read_file(path, MAX_POINTER).ok()?;
    Some(String::from_utf8(bytes).ok()?.trim().to_owned())
}

/// Returns the branch and the changed files of the workspace, in git's short format.
pub async fn status(
    processes: &dyn Processes,
    keep: usize,
    cancel: &CancellationToken,
) -> Result<Finished, GitError> {
    let line = format!(
        "{GIT} status --short --branch --untracked-files=normal --ignore-submodules=dirty -- ."
    );
    ask(processes, line, keep, cancel).await
}

/// Returns differences as a unified diff, or as counts.
pub async fn diff(
    processes: &dyn Processes,
    of: &DiffQuery,
    keep: usize,
    cancel: &CancellationToken,
) -> Result<Finished, GitError> {
    let form = if of.stat { "--stat" } else { "--patch" };
    ask(processes, diff_line(of, form)?, keep, cancel).await
}

/// Returns all files that differ, named from the top of the repository, or an error.
pub async fn changed(
    processes: &dyn Processes,
    of: &DiffQuery,
    cancel: &CancellationToken,
) -> Result<Vec<String>, GitError> {
    let line = diff_line(of, "--name-only -z --no-renames")?;
    let finished = ask(processes, line, MAX_NAMES, cancel).await?;
    if finished.total_bytes > MAX_NAMES as u64 {
        return Err(GitError::Failed(
            "too many files differ; name the ones to look at".to_owned(),
        ));
    }
    Ok(finished
        .output
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}

fn diff_line(of: &DiffQuery, form: &str) -> Result<String, GitError> {
    let mut line = format!(
        "{GIT} diff --no-ext-diff --no-textconv --no-color --ignore-submodules=dirty --submodule=short -O/dev/null {form}"
    );
    if of.staged {
        line.push_str(" --cached");
    }
    if let Some(commit) = &of.against {
        line.push(' ');
        line.push_str(&quoted(&commits(commit)?));
    }
    line.push_str(" --");
    if of.paths.is_empty() {
        line.push_str(" .");
    }
    let only = of.paths.iter().map(|path| format!(":(literal){path}"));
    let without = of
        .without
        .iter()
        .map(|path| format!(":(exclude,literal,top){path}"));
    for path in only.chain(without) {
        line.push(' ');
        line.push_str(&quoted(&path.replace('\0', "")));
    }
    Ok(line)
}

/// Quotes a commit or a range of commits so that git cannot interpret it as an option, or as a file of a commit
/// (`HEAD:.env`), which would show that file under another name.
fn commits(text: &str) -> Result<String, GitError> {
    let dots = if text.contains("...") { "..." } else { ".." };
    let sides: Vec<&str> = text.split(dots).collect();
    let plain = |side: &&str| {
        !side.starts_with('-') && !side.contains(|c: char| c == ':' || c.is_control())
    };
    if text.is_empty() || sides.len() > 2 || !sides.iter().all(plain) {
        return Err(GitError::NotACommit(text.to_owned()));
    }
    let only_commit = |side: &&str| {
        if side.is_empty() {
            "HEAD^{commit}".to_owned()
        } else {
            format!("{side}^{{commit}}")
        }
    };
    Ok(sides.iter().map(only_commit).collect::<Vec<_>>().join(dots))
}

async fn ask(
    processes: &dyn Processes,
    line: String,
    keep: usize,
    cancel: &CancellationToken,
) -> Result<Finished, GitError> {
    let line = format!("{GUARD_SCRIPT}{line}");
    let command = Command {
        line,
        workdir: String::new(),
        timeout: TIMEOUT,
        keep,
        input: None,
        looks: false,
    };
    let watch = Watch {
        progress: &|_| {},
        cancel: cancel.clone(),
        artifacts: None,
    };
    let finished = processes
        .run(command, watch)
        .await
        .map_err(|err| GitError::Failed(err.0))?;
    match finished.end {
        ProcessEnd::Exited { code: 0 } => Ok(finished),
        ProcessEnd::Exited { code: 127 } => Err(GitError::Missing),
        ProcessEnd::Exited { .. } if finished.output.contains("not a git repository") => {
            Err(GitError::NotARepository)
        }
        ProcessEnd::Exited { .. } | ProcessEnd::Signalled { .. } => {
            Err(GitError::Failed(finished.output.trim().to_owned()))
        }
        ProcessEnd::TimedOut => Err(GitError::TimedOut),
        ProcessEnd::Cancelled => Err(GitError::Cancelled),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use crate::exec::{HostProcesses, child_env};
    use crate::workspace::Root;

    struct GitFixture {
        dir: tempfile::TempDir,
        processes: HostProcesses,
    }

    fn fixture(path: &str) -> GitFixture {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let vars = [
            ("PATH".into(), path.into()),
            ("HOME".into(), dir.path().into()),
        ];
        GitFixture {
            processes: HostProcesses::new(root, child_env(vars, &[])),
            dir,
        }
    }

    const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

    impl GitFixture {
        fn sh(&self, script: &str) {
            let done = std::process::Command::new("sh")
                .args(["-ec", script])
                .current_dir(self.dir.path())
                .env("HOME", self.dir.path())
                .output()
                .unwrap();
            assert!(
                done.status.success(),
                "{}",
                String::from_utf8_lossy(&done.stderr)
            );
        }

        async fn diff(&self, of: DiffQuery) -> Result<String, GitError> {
            let done = diff(&self.processes, &of, 10_000, &CancellationToken::new()).await?;
            Ok(done.output)
        }
    }

    #[tokio::test]
    async fn status_and_diff_run_no_program_of_the_repository() {
        let f = fixture(PATH);
        f.sh("git init -qb main . && printf 'a\n' > a.txt && git add a.txt \
              && git -c user.name=n -c user.email=e commit -qm one && printf 'b\n' > a.txt && printf 'n\n' > 'new é.txt' \
              && printf '*.txt diff=evil filter=evil\n' > .gitattributes && git add .gitattributes \
              && git config diff.external 'touch ran; true' && git config diff.evil.textconv 'touch ran; cat' \
              && git config filter.evil.clean 'touch ran; cat' && git config filter.evil.required true \
              && git config core.fsmonitor 'touch ran; false' && git config core.pager 'touch ran; cat'");
        let shown = status(&f.processes, 10_000, &CancellationToken::new())
            .await
            .unwrap()
            .output;
        assert_eq!(
            shown,
            "## main\nA  .gitattributes\n M a.txt\n?? \"new é.txt\"\n"
        );
        let shown = f.diff(DiffQuery::default()).await.unwrap();
        assert!(shown.ends_with("@@ -1 +1 @@\n-a\n+b\n"), "{shown}");
        let staged = f
            .diff(DiffQuery {
                staged: true,
                ..DiffQuery::default()
            })
            .await
            .unwrap();
        assert!(staged.contains("+*.txt diff=evil filter=evil"), "{staged}");
        let head = DiffQuery {
            against: Some("HEAD".into()),
            paths: vec!["a.txt".into()],
            ..DiffQuery::default()
        };
        assert!(f.diff(head).await.unwrap().ends_with("-a\n+b\n"));
        let none = DiffQuery {
            paths: vec!["it's; touch ran".into()],
            ..DiffQuery::default()
        };
        assert_eq!(f.diff(none).await.unwrap(), "");
        let named = changed(
            &f.processes,
            &DiffQuery::default(),
            &CancellationToken::new(),
        )
        .await
        .unwrap();
        assert_eq!(named, ["a.txt"]);
        let without = DiffQuery {
            without: named,
            ..DiffQuery::default()
        };
        assert_eq!(f.diff(without).await.unwrap(), "");
        let stat = f
            .diff(DiffQuery {
                stat: true,
                ..DiffQuery::default()
            })
            .await
            .unwrap();
        assert!(stat.contains("a.txt | 2 +-"), "{stat}");
        let option = DiffQuery {
            against: Some("--output=ran".into()),
            ..DiffQuery::default()
        };
        assert!(matches!(f.diff(option).await, Err(GitError::NotACommit(_))));
        assert!(!f.dir.path().join("ran").exists());
    }

    #[tokio::test]
    async fn a_partial_clone_does_not_run_its_own_fetch_program() {
        let f = fixture(PATH);
        f.sh("git init -qb main . && printf 'a\n' > a.txt && git add a.txt \
              && git -c user.name=n -c user.email=e commit -qm one && printf 'b\n' > a.txt \
              && blob=$(git rev-parse HEAD:a.txt) && rm -f .git/objects/$(echo $blob | cut -c1-2)/$(echo $blob | cut -c3-) \
              && git config core.repositoryformatversion 1 && git config extensions.partialClone origin \
              && git config remote.origin.url ssh://host.invalid/x && git config remote.origin.promisor true \
              && git config protocol.ssh.allow always && git config core.sshCommand 'touch ran; false'");
        assert!(matches!(
            f.diff(DiffQuery::default()).await,
            Err(GitError::Failed(_))
        ));
        assert!(!f.dir.path().join("ran").exists());
    }

    #[tokio::test]
    async fn a_base_must_be_a_commit_and_not_a_file_of_a_commit() {
        let f = fixture(PATH);
        f.sh("git init -qb main . && printf 'KEY=hush\n' > .env && printf 'a\n' > a.txt && git add . \
              && git -c user.name=n -c user.email=e commit -qm one && printf 'b\n' > a.txt && git add a.txt \
              && git -c user.name=n -c user.email=e commit -qm two && git rev-parse HEAD:.env HEAD:a.txt > ids");
        let ids = std::fs::read_to_string(f.dir.path().join("ids")).unwrap();
        let ids: Vec<&str> = ids.lines().collect();
        let range = format!("{}..{}", ids[0], ids[1]);
        for base in [
            "HEAD:.env",
            ":.env",
            ids[0],
            &range,
            "",
            "--output=ran",
            "a..b..c",
            "HEAD\n",
        ] {
            let of = DiffQuery {
                against: Some(base.into()),
                paths: vec!["a.txt".into()],
                ..DiffQuery::default()
            };
            assert!(f.diff(of).await.is_err(), "{base}");
        }
        for base in ["HEAD~1", "main~1..main", "main~1...HEAD", "HEAD~1.."] {
            let of = DiffQuery {
                against: Some(base.into()),
                ..DiffQuery::default()
            };
            assert!(f.diff(of).await.unwrap().ends_with("-a\n+b\n"), "{base}");
        }
    }

    #[tokio::test]
    async fn a_repository_with_files_elsewhere_is_refused() {
        let (f, other) = (fixture(PATH), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("diary"), "x").unwrap();
        f.sh(&format!(
            "git init -qb main . && git config core.worktree '{}'",
            other.path().display()
        ));
        let err = status(&f.processes, 10_000, &CancellationToken::new())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            err.contains("core.worktree") && !err.contains("diary"),
            "{err}"
        );
        // A work tree above the workspace is the usual case of a workspace inside a repository; only the workspace is
        // shown.
        f.sh("git config core.worktree /");
        let shown = status(&f.processes, 10_000, &CancellationToken::new())
            .await
            .unwrap()
            .output;
        assert!(!shown.contains("usr"), "{shown}");
    }

    /// The cases of the corpus about the engine's own git: a file monitor in the configuration, a bare repository among
    /// the files, programs in the workspace, and a file that is named like an option.
    #[tokio::test]
    async fn a_hostile_clone_runs_nothing_through_our_git() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir_all(work.join("sub/objects")).unwrap();
        std::fs::create_dir(work.join("sub/refs")).unwrap();
        let ran = dir.path().join("ran");
        let evil = format!("touch {}", ran.display());
        std::fs::write(work.join("sub/HEAD"), "ref: refs/heads/main\n").unwrap();
        let config = format!(
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = \"{evil}\"\n"
        );
        std::fs::write(work.join("sub/config"), config).unwrap();
        for program in ["git", "bash", "sh", "pwd", "cd"] {
            let path = work.join(program);
            std::fs::write(&path, format!("#!/bin/sh\n{evil}\n")).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .unwrap();
        }
        std::os::unix::fs::symlink(&work, dir.path().join("bin")).unwrap();
        let path = format!(
            ".:{}:{}:{PATH}",
            work.display(),
            dir.path().join("bin").display()
        );
        let ask = |top: &std::path::Path, path: &str| {
            let root = Arc::new(Root::open(top).unwrap());
            let vars = [
                ("PATH".into(), path.into()),
                ("HOME".into(), dir.path().into()),
            ];
            HostProcesses::new(root, child_env(vars, &[]))
        };
        let cancel = CancellationToken::new();
        let bare = ask(&work.join("sub"), PATH);
        assert!(status(&bare, 10_000, &cancel).await.is_err());
        let done = std::process::Command::new("/usr/bin/env")
            .args(["git", "-c", "init.defaultBranch=main", "init", "-q"])
            .current_dir(&work)
            .env("HOME", dir.path())
            .status()
            .unwrap();
        assert!(done.success());
        let text = format!(
            "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = \"{evil}\"\n\thooksPath = .\n"
        );
        std::fs::write(work.join(".git/config"), text).unwrap();
        std::fs::write(work.join("--upload-pack=x"), "x").unwrap();
        let whole = ask(&work, &path);
        let shown = status(&whole, 10_000, &cancel).await.unwrap().output;
        assert!(shown.contains("?? --upload-pack=x"), "{shown}");
        let of = DiffQuery {
            paths: vec!["--upload-pack=x".into()],
            ..DiffQuery::default()
        };
        assert!(
            diff_line(&of, "--patch")
                .unwrap()
                .ends_with(" -- ':(literal)--upload-pack=x'")
        );
        assert_eq!(diff(&whole, &of, 10_000, &cancel).await.unwrap().output, "");
        assert!(!ran.exists());
    }

    #[tokio::test]
    async fn a_missing_git_or_repository_is_reported() {
        let cancel = CancellationToken::new();
        let plain = fixture(PATH);
        assert_eq!(
            status(&plain.processes, 100, &cancel).await,
            Err(GitError::NotARepository)
        );
        let bare = fixture("/nonexistent");
        assert_eq!(
            status(&bare.processes, 100, &cancel).await,
            Err(GitError::Missing)
        );
        cancel.cancel();
        assert_eq!(
            status(&plain.processes, 100, &cancel).await,
            Err(GitError::Cancelled)
        );
    }
}
