//! From the copy to where the changes belong: into the tree, as a patch, or as a commit; and commits that the run made
//! itself. Only what was judged is brought over, and only onto files that are as they were when the copy was opened.

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
use super::catching_up::conflict;
use super::commit::commit;
use super::sources::{COMMITS, is_source};
use super::survey::Print;
use super::untold::{self, Untold};
use super::user_git::UserGit;
use super::work::{Baseline, Work};
use crate::git_dirs::GitDirs;
use crate::landing::{LandError, Source, land};
use crate::path::path_of;
use windlass_host::workspace::Root;

/// The largest bundle of new commits.
const MAX_PACK: u64 = 256 << 20;
/// How long the copy's own git may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Files that say that git is in the middle of something.
const UNFINISHED: &[&str] = &[
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
    "BISECT_LOG",
];

/// Where the journal of a copy's landing is.
pub(super) fn journal_of(dir: &Path) -> PathBuf {
    dir.join("landing")
}

/// The run's tree as the source of new bytes.
struct FromTree(Arc<Root>);

impl Source for FromTree {
    fn open(&self, swap: &Swap) -> std::io::Result<File> {
        let opened = self.0.open_file(&path_of(&swap.path));
        opened
            .map(|(file, _)| file)
            .map_err(|err| std::io::Error::other(err.message))
    }
}

impl Work {
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
        // The one list of the changes: a large landing has room for few of them.
        let swaps = Arc::new(changed.swaps);
        let (work, judged) = (Arc::clone(self), Arc::clone(&swaps));
        let hash = blocking(move || Ok(work.hash_of(&judged))).await?;
        if landing.tree_hash.as_ref() != Some(&hash) {
            let message = "what would land is not what was judged; nothing was landed".to_owned();
            return Err(WorkspaceError {
                kind: WorkspaceErrorKind::Stale,
                message,
            });
        }
        self.unmoved(&swaps)?;
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
            // The run may have made commits of what was there already.
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
                    // What is in the tree has to be in the log, or nobody could take it back.
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
            Err(why) => self.note(format!(
                "the run's own commits could not be brought over: {why}"
            )),
        }
        Ok(landed)
    }

    /// Every changed path is in the user's tree as it was when the copy was opened.
    fn unmoved(&self, swaps: &[Swap]) -> Result<(), WorkspaceError> {
        if swaps.is_empty() {
            return Ok(());
        }
        let Some(survey) = self.survey() else {
            return Err(conflict(
                "it is not known what the tree was when the copy was opened; catch up first",
            ));
        };
        let moved = swaps.iter().map(|swap| path_of(&swap.path)).filter(|path| {
            // What is ignored and tracked is not walked; the landing looks at its bytes.
            survey.get(path) != record(&self.base, path) && is_source(&self.base, path)
        });
        let moved: Vec<String> = moved.map(|path| path.display().to_string()).collect();
        if moved.is_empty() {
            return Ok(());
        }
        Err(conflict(&format!(
            "changed in your tree meanwhile, so that nothing was landed: {}",
            moved.join(", ")
        )))
    }

    async fn land_tree(
        self: &Arc<Self>,
        landed: Landed,
        tree_hash: String,
    ) -> Result<Landed, WorkspaceError> {
        let work = Arc::clone(self);
        let untold = Untold {
            landed,
            tree_hash: Some(tree_hash),
        };
        blocking(move || {
            let source = FromTree(work.tree()?);
            let contents = work.desk.contents()?;
            let journal = journal_of(&work.dir);
            untold::begin(&work.dir, &untold).map_err(|err| {
                untold::settle(&work.dir, false);
                WorkspaceError::other(format!("nothing was landed: {}: {err}", work.dir.display()))
            })?;
            let swaps = &untold.landed.swaps;
            let landed = land(&work.base, swaps, &source, &contents, &journal);
            if !matches!(landed, Err(LandError::Unfinished(_))) {
                if landed.is_err()
                    && let Some(survey) = untold::refresh_survey(&work.dir, &work.base)
                {
                    *work.baseline() = Baseline::Known(Arc::new(survey));
                }
                untold::settle(&work.dir, landed.is_ok());
            }
            if landed.is_ok()
                && let Some(over_cap) = contents.over_cap()
            {
                work.note(over_cap.to_string());
            }
            landed.map(|_| untold.landed).map_err(land_error)
        })
        .await
    }

    /// A patch in git's own form, which knows modes, links and bytes.
    async fn write_patch(
        self: &Arc<Self>,
        swaps: Arc<Vec<Swap>>,
        to: &Path,
    ) -> Result<(), WorkspaceError> {
        let failed =
            |what: &str| WorkspaceError::other(format!("the patch cannot be written: {what}"));
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
                    lay_out(root, &swap.path, image, &sides.join(side))
                        .map_err(|why| failed(&why))?;
                }
            }
            Ok(())
        })
        .await?;
        let git = UserGit::anywhere(&scratch, &self.desk.env)
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

    /// Git, when a commit can be made now.
    async fn ready_to_commit(&self) -> Result<UserGit, WorkspaceError> {
        let cannot = |why: &str| WorkspaceError::other(format!("no commit can be made: {why}"));
        let git = UserGit::of(self.base.root(), &self.desk.env)
            .ok_or_else(|| cannot("the workspace is no git repository; leave out --commit"))?;
        let dir = git
            .line(&["rev-parse", "--absolute-git-dir"])
            .await
            .map_err(|why| cannot(&why))?;
        let busy = UNFINISHED
            .iter()
            .find(|name| Path::new(&dir).join(name).exists());
        if let Some(busy) = busy {
            let why = format!(
                "git is in the middle of something ({busy}); finish or abort it, then land the kept copy"
            );
            return Err(cannot(&why));
        }
        git.line(&["var", "GIT_COMMITTER_IDENT"])
            .await
            .map_err(|why| cannot(&why))?;
        Ok(git)
    }

    /// The newest commit of the copy, when the user's repository does not have it.
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

    /// Whether the run made commits that are nowhere else.
    pub(super) async fn has_commits(&self) -> bool {
        match UserGit::of(self.base.root(), &self.desk.env) {
            Some(git) => self.new_commit(&git).await.is_some(),
            None => false,
        }
    }

    /// Fetches the commits that the run made in its copy, by plumbing that runs nothing of it.
    async fn bring_commits(self: &Arc<Self>) -> Result<Option<String>, String> {
        let Some(git) = UserGit::of(self.base.root(), &self.desk.env) else {
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
        // Everything it needs must be there, or nothing of it is named.
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

    /// The paths of new commits are held to the bars of the landing. Nobody is asked about commits, so a path that only a
    /// person lets land keeps them all out.
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
                    "one of them changes `{name}` ({why}), and no person was asked about it; commit the landed files yourself"
                ));
            }
        }
        Ok(())
    }

    /// Whether anything in the copy's git directory was written, seen without running anything.
    fn git_was_touched(&self) -> bool {
        !self.is_layer() || untold::git_was_touched(&self.dir)
    }

    async fn in_copy(&self, line: &str, input: &[u8]) -> Result<String, String> {
        let command = Command {
            line: line.to_owned(),
            workdir: String::new(),
            timeout: PATIENCE,
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

/// Puts what an image is into a folder, to be compared by git.
fn lay_out(root: &Root, path: &str, image: &Image, into: &Path) -> Result<(), String> {
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

/// The stat record of a file of the tree. A folder has none; its files have paths of their own. What is seen through a
/// link is at another path.
fn record(base: &Root, path: &Path) -> Option<Print> {
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
    (!is_folder).then(|| Print::of(&stat))
}
