//! Transfers the changes of a copy to their destination: into the user's tree, as a patch or as a commit; also fetches
//! commits that the run made itself. Only the changes that were judged are transferred, and only onto files that have
//! not changed since the copy was opened.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType};
use windlass_core::CancellationToken;
use windlass_core::gate::{Bar, bar_at_landing, executes_later};
use windlass_core::image::{Image, Swap};
use windlass_core::workspace::{
    Command, Files, LandTo, Landed, Landing, ProcessEnd, Processes, Watch, WorkspaceError,
    WorkspaceErrorKind,
};

use super::blocking;
use super::catch_up::conflict;
use super::commit::commit;
use super::run_copy::{Baseline, RunCopy};
use super::sources::{COMMITS, is_source};
use super::stat_snapshot::StatRecord;
use super::unlogged::{self, UnloggedRunLanding};
use super::user_git::UserGit;
use crate::git_dirs::GitDirs;
use crate::landing::{ByteSource, LandError, land};
use crate::path::path_of;
use windlass_host::workspace::Root;

/// Maximum bytes of a pack of new commits.
const MAX_PACK: u64 = 256 << 20;
/// Timeout of git commands in the copy.
const GIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Files that show that a git operation is in progress.
const UNFINISHED: &[&str] = &[
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
    "BISECT_LOG",
];

/// The journal directory for the landing of a copy.
pub(super) fn journal_of(dir: &Path) -> PathBuf {
    dir.join("landing")
}

/// Reads new bytes from the tree of the run.
struct FromTree(Arc<Root>);

impl ByteSource for FromTree {
    fn open(&self, swap: &Swap) -> std::io::Result<File> {
        let opened = self.0.open_file(&path_of(&swap.path));
        opened
            .map(|(file, _)| file)
            .map_err(|err| std::io::Error::other(err.message))
    }
}

impl RunCopy {
    pub(super) async fn land(
        self: &Arc<Self>,
        landing: &Landing,
    ) -> Result<Landed, WorkspaceError> {
        let changed = self.changed().await?;
        if let Some((path, why)) = changed.cannot.first() {
            return Err(WorkspaceError::other(format!(
                "`{path}` cannot land: {why}"
            )));
        }
        // The list is not copied, because a large landing has hundreds of thousands of changes.
        let swaps = Arc::new(changed.swaps);
        let (work, judged) = (Arc::clone(self), Arc::clone(&swaps));
        let hash = blocking(move || Ok(work.hash_of(&judged))).await?;
        if landing.tree_hash.as_ref() != Some(&hash) {
            let message =
                "the changes differ from those that were judged; nothing was landed".to_owned();
            return Err(WorkspaceError {
                kind: WorkspaceErrorKind::Stale,
                message,
            });
        }
        self.check_unmoved(&swaps)?;
        self.drop_caches();
        let paths = || swaps.iter().map(|swap| &swap.path);
        let mut landed = Landed {
            files: paths().cloned().collect(),
            executes: paths()
                .filter(|path| executes_later(path))
                .cloned()
                .collect(),
            left: changed.left,
            ..Landed::default()
        };
        match &landing.to {
            // The run may have committed files that are unchanged.
            _ if swaps.is_empty() => {}
            LandTo::Patch(to) => {
                self.write_patch(swaps, to).await?;
                landed.patch = Some(to.display().to_string());
            }
            LandTo::Tree => {
                landed.swaps = Arc::unwrap_or_clone(swaps);
                landed = self.land_tree(landed, hash).await?;
            }
            LandTo::Commit(message) => {
                let git = self.ready_to_commit().await?;
                landed.swaps = Arc::unwrap_or_clone(swaps);
                landed = self.land_tree(landed, hash).await?;
                match commit(&git, &self.dir, &landed.swaps, message).await {
                    Ok(made) => landed.commit = Some(made),
                    // The changes are in the tree and must get into the log; otherwise they could not be undone.
                    Err(why) => {
                        landed.unfinished = Some(format!(
                            "the changes are in your tree, but the commit was not made: {why}"
                        ));
                    }
                }
            }
        }
        match self.bring_commits().await {
            Ok(refname) => landed.refname = refname,
            Err(why) => self.note(format!("cannot fetch the run's own commits: {why}")),
        }
        Ok(landed)
    }

    /// Checks that the user's tree has not changed at these paths since the copy was opened.
    fn check_unmoved(&self, swaps: &[Swap]) -> Result<(), WorkspaceError> {
        if swaps.is_empty() {
            return Ok(());
        }
        let Some(snapshot) = self.survey() else {
            return Err(conflict(
                "the state of your tree at the start of the run is unknown; merge your changes into the copy first",
            ));
        };
        let moved = swaps.iter().map(|swap| path_of(&swap.path)).filter(|path| {
            // Ignored files that are tracked are not in the snapshot; the landing compares their bytes.
            snapshot.get(path) != record(&self.base, path) && is_source(&self.base, path)
        });
        let moved: Vec<String> = moved.map(|path| path.display().to_string()).collect();
        if moved.is_empty() {
            return Ok(());
        }
        Err(conflict(&format!(
            "nothing was landed, because these files changed in your tree meanwhile: {}",
            moved.join(", ")
        )))
    }

    async fn land_tree(
        self: &Arc<Self>,
        landed: Landed,
        tree_hash: String,
    ) -> Result<Landed, WorkspaceError> {
        let work = Arc::clone(self);
        let record = UnloggedRunLanding {
            landed,
            tree_hash: Some(tree_hash),
        };
        blocking(move || {
            let source = FromTree(work.tree()?);
            let contents = work.context.contents()?;
            let journal = journal_of(&work.dir);
            unlogged::begin(&work.dir, &record).map_err(|err| {
                unlogged::settle(&work.dir, false);
                WorkspaceError::other(format!("nothing was landed: {}: {err}", work.dir.display()))
            })?;
            let swaps = &record.landed.swaps;
            let ended = |landed: bool| {
                if !landed && let Some(snapshot) = unlogged::refresh_baseline(&work.dir, &work.base)
                {
                    *work.baseline() = Baseline::Known(Arc::new(snapshot));
                }
                unlogged::settle(&work.dir, landed);
            };
            let landed = land(&work.base, swaps, &source, &contents, &journal, &ended);
            // A landing that was refused before it had a journal ends here.
            if !matches!(landed, Err(LandError::Unfinished(_))) {
                ended(landed.is_ok());
            }
            if landed.is_ok()
                && let Some(over_cap) = contents.over_cap()
            {
                work.note(over_cap.to_string());
            }
            landed.map(|_| record.landed).map_err(land_error)
        })
        .await
    }

    /// Writes a patch in git's format, which supports modes, symlinks and binary files.
    async fn write_patch(
        self: &Arc<Self>,
        swaps: Arc<Vec<Swap>>,
        to: &Path,
    ) -> Result<(), WorkspaceError> {
        let failed = |what: &str| WorkspaceError::other(format!("cannot write the patch: {what}"));
        let scratch = self.dir.join("patch");
        let (work, sides) = (Arc::clone(self), scratch.clone());
        blocking(move || {
            let tree = work.tree()?;
            let _ = windlass_host::private::remove_tree(&sides);
            for (side, root, before) in [("a", &work.base, true), ("b", &tree, false)] {
                std::fs::create_dir_all(sides.join(side))
                    .map_err(|err| failed(&err.to_string()))?;
                for swap in swaps.iter() {
                    let image = if before { &swap.before } else { &swap.after };
                    write_side(root, &swap.path, image, &sides.join(side))
                        .map_err(|why| failed(&why))?;
                }
            }
            Ok(())
        })
        .await?;
        let git = UserGit::anywhere(&scratch, &self.context.env)
            .ok_or_else(|| failed("git is not installed"))?;
        let args = [
            "diff",
            "--no-index",
            "--no-renames",
            "--binary",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--src-prefix=",
            "--dst-prefix=",
            "--",
            "a",
            "b",
        ];
        let patch = git.ask(&args, b"").await.map_err(|why| failed(&why))?;
        let _ = windlass_host::private::remove_tree(&scratch);
        std::fs::write(to, patch).map_err(|err| failed(&format!("{}: {err}", to.display())))
    }

    /// Returns git, if a commit is possible now.
    async fn ready_to_commit(&self) -> Result<UserGit, WorkspaceError> {
        let cannot = |why: &str| WorkspaceError::other(format!("cannot commit: {why}"));
        let git = UserGit::of(self.base.root(), &self.context.env)
            .ok_or_else(|| cannot("the workspace is not a git repository; leave out `--commit`"))?;
        let dir = git
            .line(&["rev-parse", "--absolute-git-dir"])
            .await
            .map_err(|why| cannot(&why))?;
        let busy = UNFINISHED
            .iter()
            .find(|name| Path::new(&dir).join(name).exists());
        if let Some(busy) = busy {
            let why = format!(
                "a git operation is in progress ({busy}); finish or abort it, then land the kept run"
            );
            return Err(cannot(&why));
        }
        git.line(&["var", "GIT_COMMITTER_IDENT"])
            .await
            .map_err(|why| cannot(&why))?;
        Ok(git)
    }

    /// The newest commit of the copy, if the user's repository does not contain it.
    async fn new_commit(&self, git: &UserGit) -> Option<String> {
        if !self.git_was_touched() {
            return None;
        }
        let head = self
            .in_copy("git rev-parse --verify --quiet HEAD^{commit}", b"")
            .await
            .ok()?
            .trim()
            .to_owned();
        let plausible =
            matches!(head.len(), 40 | 64) && head.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !plausible
            || git
                .ask(&["cat-file", "-e", &format!("{head}^{{commit}}")], b"")
                .await
                .is_ok()
        {
            return None;
        }
        Some(head)
    }

    /// Whether the run made commits that exist only in the copy.
    pub(super) async fn has_commits(&self) -> bool {
        match UserGit::of(self.base.root(), &self.context.env) {
            Some(git) => self.new_commit(&git).await.is_some(),
            None => false,
        }
    }

    /// Fetches the commits of the run with plumbing commands that execute nothing from the copy.
    async fn bring_commits(self: &Arc<Self>) -> Result<Option<String>, String> {
        let Some(git) = UserGit::of(self.base.root(), &self.context.env) else {
            return Ok(None);
        };
        let Some(head) = self.new_commit(&git).await else {
            return Ok(None);
        };
        let mut wanted = format!("{head}\n");
        if let Ok(own) = git
            .line(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
            .await
        {
            wanted.push_str(&format!("^{own}\n"));
        }
        let line = format!("git pack-objects --revs --thin --stdout -q > {COMMITS}");
        self.in_copy(&line, wanted.as_bytes()).await?;
        let tree = self.tree().map_err(|err| err.message)?;
        let pack = tree.read(COMMITS, MAX_PACK).map_err(|err| err.message)?;
        let _ = tree.remove(COMMITS);
        git.ask(&["index-pack", "--stdin", "--fix-thin", "--strict"], &pack)
            .await?;
        // All objects must have arrived before a ref names the commit.
        git.ask(
            &["rev-list", "--objects", "--quiet", &head, "--not", "--all"],
            b"",
        )
        .await?;
        self.refuse_barred(&git, &head).await?;
        let refname = format!("refs/windlass/{}", self.name);
        git.ask(&["update-ref", &refname, &head], b"").await?;
        Ok(Some(refname))
    }

    /// Applies the rules of the landing to the paths of new commits. Commits are not put to approval, so that a single
    /// path that needs a person's approval blocks all of them.
    async fn refuse_barred(&self, git: &UserGit, head: &str) -> Result<(), String> {
        let commits = git.ask(&["rev-list", head, "--not", "--all"], b"").await?;
        let args = [
            "diff-tree",
            "--stdin",
            "-r",
            "-m",
            "-z",
            "--root",
            "--no-renames",
        ];
        let args: Vec<&str> = args
            .into_iter()
            .chain(["--name-only", "--no-commit-id"])
            .collect();
        let names = git.ask(&args, &commits).await?;
        let names: BTreeSet<String> = names
            .split(|byte| *byte == 0)
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .filter(|name| !name.is_empty())
            .collect();
        let has = |path: &Path| {
            let path = path.to_string_lossy();
            let below = format!("{path}/");
            let first = names.range(below.clone()..).next();
            names.contains(&*path)
                || first.is_some_and(|name| name.starts_with(&below))
                || self.base.stat(&path).is_ok()
        };
        let mut git_dirs = GitDirs::new(has);
        for name in &names {
            let barred = match bar_at_landing(name, false, "", &[]) {
                Some(Bar::Never(why) | Bar::Person(why)) => Some(why),
                None => git_dirs.refusal(Path::new(name)),
            };
            if let Some(why) = barred {
                return Err(format!(
                    "one of them changes `{name}` ({why}), which needs your approval; commit the landed files yourself"
                ));
            }
        }
        Ok(())
    }

    /// Whether the git directory of the copy was written; decided without executing anything.
    fn git_was_touched(&self) -> bool {
        !self.is_layer() || unlogged::git_was_touched(&self.dir)
    }

    async fn in_copy(&self, line: &str, input: &[u8]) -> Result<String, String> {
        let command = Command {
            line: line.to_owned(),
            workdir: String::new(),
            timeout: GIT_TIMEOUT,
            keep: 4_096,
            input: Some(input.to_vec()),
            looks: false,
        };
        let watch = Watch {
            progress: &|_| {},
            cancel: CancellationToken::new(),
            artifacts: None,
        };
        let finished = self.live.run(command, watch).await.map_err(|err| err.0)?;
        match finished.end {
            ProcessEnd::Exited { code: 0 } => Ok(finished.output),
            _ => Err(finished.output.trim().to_owned()),
        }
    }
}

fn land_error(err: LandError) -> WorkspaceError {
    let kind = match &err {
        LandError::Conflict { .. } => WorkspaceErrorKind::Conflict,
        _ => WorkspaceErrorKind::Other,
    };
    WorkspaceError {
        kind,
        message: err.to_string(),
    }
}

/// Writes an image into a directory, to be compared by git.
fn write_side(root: &Root, path: &str, image: &Image, into: &Path) -> Result<(), String> {
    let target = into.join(path_of(path));
    let say = |err: std::io::Error| format!("{path}: {err}");
    if image.is_there() {
        std::fs::create_dir_all(target.parent().unwrap_or(into)).map_err(say)?;
    }
    match image {
        Image::Absent => Ok(()),
        Image::Link { target: to } => std::os::unix::fs::symlink(path_of(to), target).map_err(say),
        Image::File { mode, .. } => {
            let (mut file, _) = root.open_file(&path_of(path)).map_err(|err| err.message)?;
            let mut copy = File::create(&target).map_err(say)?;
            std::io::copy(&mut file, &mut copy).map_err(say)?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode | 0o600);
            std::fs::set_permissions(&target, mode).map_err(say)
        }
    }
}

/// The stat record of a file in the tree; `None` for a directory, whose files have paths of their own, and for a path
/// through a symlink, which is another path.
fn record(base: &Root, path: &Path) -> Option<StatRecord> {
    let stat = |path: &Path| {
        let stat = rustix::fs::statat(base.handle(), path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        Some((stat, is_folder))
    };
    let mut above = path
        .ancestors()
        .skip(1)
        .filter(|above| !above.as_os_str().is_empty());
    if !above.all(|above| stat(above).is_some_and(|(_, is_folder)| is_folder)) {
        return None;
    }
    let (stat, is_folder) = stat(path)?;
    (!is_folder).then(|| StatRecord::of(&stat))
}
