//! The tree for validators: an overlay or a copy of its own with exactly the state that is judged, in a new sandbox
//! session. The processes of the run cannot reach it, so nothing that they left in `/tmp`, in a cache or among ignored
//! files can change a verdict. Validators also execute code of the project. Their tree is therefore deleted at the end,
//! and no symlink that they left is followed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use windlass_core::BoxFuture;
use windlass_core::image::Image;
use windlass_core::workspace::{CheckTree, FileErrorKind, Files, Processes, WorkspaceError};

use super::copy_tree::{self, copy_file};
use super::overlay_changes::{OverlayTrees, TouchedPaths};
use super::stat_snapshot::{StatRecord, StatSnapshot, parent};
use super::user_git::UserGit;
use super::{blocking, isolation};
use crate::landing::image_at;
use crate::path::{path_of, text_of};
use crate::working_copy::{parent_of, remove};
use windlass_host::exec::{Guard, HostProcesses};
use windlass_host::sandbox::{Sandbox, SandboxError, Tree, TreePlan};
use windlass_host::workspace::Root;

/// Prefix of the directory of a check tree.
const PREFIX: &str = "checks-";

/// The parts of a workspace that every mounted tree needs.
#[derive(Clone)]
pub(crate) struct TreeContext {
    /// The user's own tree.
    pub(crate) root: Arc<Root>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) plan: Arc<Sandbox>,
}

/// A mounted tree with its processes.
#[derive(Clone)]
pub(crate) struct MountedTree {
    pub(crate) root: Arc<Root>,
    pub(crate) processes: Arc<HostProcesses>,
    pub(crate) sandbox: Arc<Sandbox>,
}

impl TreeContext {
    /// Mounts a tree at the path of the workspace, in a sandbox session of its own. `folder` creates a directory for
    /// the session.
    pub(crate) fn mount(
        &self,
        tree: Tree,
        folder: impl Fn(&str) -> Result<PathBuf, String>,
        for_checks: bool,
    ) -> Result<MountedTree, SandboxError> {
        let folder = |name: &str| folder(name).map_err(SandboxError::Unavailable);
        let git = match self.plan.outside_git() {
            Some(_) => Some((folder("git-upper")?, folder("git-work")?)),
            None => None,
        };
        let sandbox = self.plan.with_tree(TreePlan {
            tree: Some(tree),
            git,
        });
        let sandbox = Arc::new(match for_checks {
            true => sandbox.for_checks(),
            false => sandbox,
        });
        let handle = sandbox.take_tree()?.ok_or_else(|| {
            SandboxError::Unavailable("the sandbox did not return a tree".to_owned())
        })?;
        let workspace = self.root.root().to_owned();
        let root = Arc::new(match sandbox.path_of_tree()? {
            Some(path) => Root::from_handle(path, handle).with_alias(workspace),
            None => Root::from_handle(workspace, handle),
        });
        let processes = HostProcesses::new(Arc::clone(&root), self.env.clone())
            .in_sandbox(Some(Arc::clone(&sandbox)), Arc::clone(&self.guard));
        Ok(MountedTree {
            root,
            processes: Arc::new(processes),
            sandbox,
        })
    }
}

/// The tree that a check tree starts with.
pub(crate) enum CheckBase<'a> {
    /// The user's tree, through an overlay.
    Overlay,
    /// The user's tree with the changes of another overlay, whose upper directory this is.
    StackedOverlay(&'a Path),
    /// A copy of a tree.
    Copy { of: &'a Root, hidden: &'a [PathBuf] },
}

impl CheckBase<'_> {
    /// Creates the tree; for a copy, also the snapshot of its initial state.
    fn tree(
        &self,
        tree_context: &TreeContext,
        folder: &TempFolder,
    ) -> Result<(Tree, Option<StatSnapshot>), String> {
        let between = match self {
            CheckBase::Copy { of, hidden } => {
                let from = folder.make("tree")?;
                copy_tree::copy(of, &from, hidden)?;
                let own = Root::open(&from).map_err(|err| err.to_string())?;
                return Ok((Tree::Copy { from }, Some(StatSnapshot::of_everything(&own))));
            }
            CheckBase::Overlay => None,
            CheckBase::StackedOverlay(layer) => Some((*layer).to_owned()),
        };
        let (upper, work) = (folder.make("upper")?, folder.make("work")?);
        copy_root_mode(tree_context.root.root(), &upper);
        let layered = Tree::Layered {
            upper,
            work,
            between,
        };
        Ok((layered, None))
    }
}

/// A tree for validators, deleted on drop.
pub(crate) struct FreshTree {
    mounted: MountedTree,
    tree_context: TreeContext,
    /// The initial state of a copy; `None` for an overlay.
    copied: Option<StatSnapshot>,
    /// The source files that differ from the user's tree, as the validators must see them.
    expected: Mutex<BTreeMap<String, Image>>,
    images: Mutex<HashMap<String, (StatRecord, Image)>>,
    /// The tree of the run, into which fixes are copied.
    run: Option<Arc<Root>>,
    /// The last field, because the directory must be removed after the mount is closed.
    folder: TempFolder,
}

/// A directory that is removed on drop.
struct TempFolder(PathBuf);

impl TempFolder {
    fn make(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.0.join(name);
        windlass_host::private::create_dir(&path).map_err(|err| err.message)?;
        Ok(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // If this fails, the next process that opens the copy removes it.
        let _ = windlass_host::private::remove_tree(&self.0);
    }
}

impl FreshTree {
    /// Creates a check tree in a directory of `parent`, without changes.
    pub(crate) fn make(
        tree_context: TreeContext,
        parent: &Path,
        below: &CheckBase<'_>,
    ) -> Result<Self, WorkspaceError> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = TempFolder(parent.join(format!("{PREFIX}{}-{number}", std::process::id())));
        let failed = |why: String| isolation(format!("cannot create a tree for the checks: {why}"));
        let (tree, copied) = below.tree(&tree_context, &folder).map_err(failed)?;
        let mounted = tree_context
            .mount(tree, |name| folder.make(name), true)
            .map_err(|err| failed(err.to_string()))?;
        Ok(Self {
            mounted,
            tree_context,
            copied,
            expected: Mutex::default(),
            images: Mutex::default(),
            run: None,
            folder,
        })
    }

    /// Sets the tree of the run, to which fixes are copied.
    pub(crate) fn of_run(self, run: Arc<Root>) -> Self {
        Self {
            run: Some(run),
            ..self
        }
    }

    /// Copies these paths from another tree. Deleted paths come first, so that a file can replace a directory.
    pub(crate) fn put<'a>(
        &self,
        from: &Root,
        paths: impl Iterator<Item = (&'a str, &'a Image)> + Clone,
    ) -> Result<(), WorkspaceError> {
        let root = &self.mounted.root;
        for there in [false, true] {
            for (path, _) in paths.clone().filter(|(_, image)| image.is_there() == there) {
                copy_path(from, root, &path_of(path)).map_err(|err| cannot_copy(path, &err))?;
            }
        }
        Ok(())
    }

    /// Resets these paths to the user's tree. A directory that does not exist there is removed with its content.
    pub(crate) fn reset(&self, paths: &[String]) -> Result<(), WorkspaceError> {
        let root = &self.mounted.root;
        for path in paths {
            let reset = || -> io::Result<()> {
                if let Ok((dir, name)) = parent_of(root, &path_of(path)) {
                    remove(dir.as_fd(), name)?;
                }
                copy_path(&self.tree_context.root, root, &path_of(path))
            };
            reset().map_err(|err| cannot_copy(path, &err))?;
        }
        Ok(())
    }

    /// Writes an image to a path.
    pub(crate) fn put_image(
        &self,
        path: &str,
        image: &Image,
        bytes: &[u8],
    ) -> Result<(), WorkspaceError> {
        put(&self.mounted.root, &path_of(path), image, bytes).map_err(|err| cannot_copy(path, &err))
    }

    /// Adds changes that the validators must see.
    pub(crate) fn expect<'a>(&self, paths: impl Iterator<Item = (&'a str, &'a Image)>) {
        let owned = paths.map(|(path, image)| (path.to_owned(), image.clone()));
        self.expected.lock().extend(owned);
    }

    /// Source files that a validator may have written or removed.
    async fn touched(self: &Arc<Self>) -> Result<BTreeSet<PathBuf>, WorkspaceError> {
        let own = Arc::clone(self);
        let touched = blocking(move || own.written()).await?;
        with_tracked(touched, &self.tree_context.root, &self.tree_context.env)
            .await
            .map(|touched| touched.sources)
            .map_err(|(_, why)| WorkspaceError::other(why))
    }

    fn written(&self) -> Result<TouchedPaths, WorkspaceError> {
        let root = &self.mounted.root;
        if let Some(before) = &self.copied {
            return Ok(TouchedPaths::between(before, root));
        }
        let upper = Root::open(&self.folder.0.join("upper"))
            .map_err(|err| WorkspaceError::other(err.to_string()))?;
        let layers = OverlayTrees {
            upper: &upper,
            lower: &self.tree_context.root,
            merged: root,
        };
        layers.touched().map_err(WorkspaceError::other)
    }

    /// The paths that differ from the state that the validators must see, with their current images.
    fn differences(
        &self,
        touched: BTreeSet<PathBuf>,
    ) -> Result<Vec<(String, Image)>, WorkspaceError> {
        let root = &self.mounted.root;
        let expected = self.expected.lock().clone();
        let mut paths = touched;
        paths.extend(expected.keys().map(|path| path_of(path).into_owned()));
        let mut differences = Vec::new();
        for path in paths {
            let text = text_of(&path);
            let text = text.as_str();
            let now = image(&self.images, root, text).map_err(WorkspaceError::other)?;
            let wanted = match expected.get(text) {
                Some(image) => image.clone(),
                None => {
                    image_or_absent(&self.tree_context.root, text).map_err(WorkspaceError::other)?
                }
            };
            if now != wanted {
                differences.push((text.to_owned(), now));
            }
        }
        Ok(differences)
    }
}

/// Implements the core's trait for a shared check tree.
pub(crate) struct OpenedTree(pub(crate) Arc<FreshTree>);

impl CheckTree for OpenedTree {
    fn files(&self) -> Arc<dyn Files> {
        Arc::clone(&self.0.mounted.root) as Arc<dyn Files>
    }
    fn processes(&self) -> Arc<dyn Processes> {
        Arc::clone(&self.0.mounted.processes) as Arc<dyn Processes>
    }
    fn freeze(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(async move {
            self.0.mounted.processes.stop_all().await;
            Ok(())
        })
    }
    fn end_setup(&self) {
        self.0.mounted.sandbox.end_setup();
    }
    fn disturbed(&self) -> BoxFuture<'_, Result<Vec<String>, WorkspaceError>> {
        Box::pin(async move {
            let touched = self.0.touched().await?;
            let tree = Arc::clone(&self.0);
            let differences = blocking(move || tree.differences(touched)).await?;
            Ok(differences.into_iter().map(|(path, _)| path).collect())
        })
    }
    fn take_over(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(async move {
            let touched = self.0.touched().await?;
            let tree = Arc::clone(&self.0);
            blocking(move || {
                let differences = tree.differences(touched)?;
                let root = &tree.mounted.root;
                let run = tree.run.as_ref().ok_or_else(|| {
                    WorkspaceError::other(
                        "a validator that fixes files cannot run in place together with `validate.protect`; run it \
                         isolated",
                    )
                })?;
                for (path, _) in &differences {
                    copy_path(root, run, &path_of(path)).map_err(|err| cannot_copy(path, &err))?;
                }
                tree.expected.lock().extend(differences);
                Ok(())
            })
            .await
        })
    }
}

/// Copies the mode of the user's root, because an overlay shows the mode of its upper directory.
pub(super) fn copy_root_mode(of: &Path, upper: &Path) {
    if let Ok(about) = std::fs::metadata(of) {
        let mode = PermissionsExt::from_mode(about.permissions().mode() & 0o7777);
        let _ = std::fs::set_permissions(upper, mode);
    }
}

fn cannot_copy(path: &str, err: &io::Error) -> WorkspaceError {
    WorkspaceError::other(format!(
        "cannot copy `{path}` between the run's tree and the tree of the checks: {err}"
    ))
}

/// Removes check trees that a dead process left in a directory.
pub(super) fn remove_stale_trees(parent: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let _ = windlass_host::private::remove_tree(&entry.path());
        }
    }
}

/// Moves ignored files that git tracks to the sources: a tracked file belongs to the source set, whatever the ignore
/// files say. If git fails, returns the unchanged paths with the reason.
pub(super) async fn with_tracked(
    mut touched: TouchedPaths,
    base: &Root,
    env: &[(OsString, OsString)],
) -> Result<TouchedPaths, (TouchedPaths, String)> {
    let git = (!touched.left.is_empty())
        .then(|| UserGit::of(base.root(), env))
        .flatten();
    let Some(git) = git else { return Ok(touched) };
    match git.tracked(&touched.left).await {
        Ok(tracked) => {
            touched.left.retain(|path| !tracked.contains(path));
            touched.sources.extend(tracked);
            Ok(touched)
        }
        Err(why) => Err((touched, why)),
    }
}

/// The image at a path, hashed again only if its stat record changed.
pub(super) fn image(
    known: &Mutex<HashMap<String, (StatRecord, Image)>>,
    root: &Root,
    path: &str,
) -> Result<Image, String> {
    let full = path_of(path);
    let stat = root.open_dir(parent(&full)).ok().and_then(|handle| {
        let name = full.file_name().unwrap_or_default();
        rustix::fs::statat(handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    });
    let Some(print) = stat.map(|stat| StatRecord::of(&stat)) else {
        return Ok(Image::Absent);
    };
    if let Some((same, image)) = known.lock().get(path)
        && *same == print
    {
        return Ok(image.clone());
    }
    let image = image_or_absent(root, path)?;
    known.lock().insert(path.to_owned(), (print, image.clone()));
    Ok(image)
}

pub(super) fn image_or_absent(root: &Root, path: &str) -> Result<Image, String> {
    match image_at(root, path) {
        Ok(image) => Ok(image),
        // A directory is at the path; its files are listed separately.
        Err(err) if matches!(err.kind, FileErrorKind::WrongKind | FileErrorKind::NotFound) => {
            Ok(Image::Absent)
        }
        Err(err) => Err(err.message),
    }
}

/// Copies a path from one tree to another: a file with its mode and times, a symlink, or nothing. A directory counts as
/// nothing, because its files have paths of their own.
pub(super) fn copy_path(from: &Root, to: &Root, path: &Path) -> io::Result<()> {
    let source = parent_of(from, path).ok().and_then(|(dir, name)| {
        let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((dir, name, FileType::from_raw_mode(stat.st_mode)))
    });
    let source =
        source.filter(|(_, _, kind)| matches!(kind, FileType::RegularFile | FileType::Symlink));
    let Some((dir, name, kind)) = source else {
        return remove_file(to, path);
    };
    let target = make_folder(to, parent(path))?;
    remove(target.as_fd(), name)?;
    match kind {
        FileType::RegularFile => copy_file(&dir, &target, name, &mut true).map(drop),
        _ => {
            let link = rustix::fs::readlinkat(&dir, name, Vec::new())?;
            Ok(rustix::fs::symlinkat(link.as_c_str(), &target, name)?)
        }
    }
}

/// Removes a file or a symlink, and the directories that become empty.
fn remove_file(tree: &Root, path: &Path) -> io::Result<()> {
    let Ok((dir, name)) = parent_of(tree, path) else {
        return Ok(());
    };
    match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
        Err(Errno::NOENT | Errno::ISDIR) => return Ok(()),
        other => other?,
    }
    for above in path.ancestors().skip(1) {
        let empty = parent_of(tree, above)
            .is_ok_and(|(dir, name)| rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR).is_ok());
        if !empty {
            break;
        }
    }
    Ok(())
}

/// Opens a directory of a tree step by step and creates missing parts. Files in its way are removed.
fn make_folder(tree: &Root, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = tree.handle().try_clone_to_owned()?;
    for name in path.iter().filter(|name| *name != OsStr::new(".")) {
        at = match rustix::fs::openat(&at, name, flags, Mode::empty()) {
            Err(errno @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {
                if errno != Errno::NOENT {
                    rustix::fs::unlinkat(&at, name, AtFlags::empty())?;
                }
                rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                rustix::fs::openat(&at, name, flags, Mode::empty())?
            }
            other => other?,
        };
    }
    Ok(at)
}

fn put(root: &Root, path: &Path, image: &Image, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    if !image.is_there() {
        return remove_file(root, path);
    }
    let target = make_folder(root, parent(path))?;
    remove(target.as_fd(), name)?;
    match image {
        Image::Link { target: to } => Ok(rustix::fs::symlinkat(&*path_of(to), &target, name)?),
        Image::File { mode, .. } => {
            let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mut file = File::from(rustix::fs::openat(&target, name, new, Mode::RWXU)?);
            file.write_all(bytes)?;
            file.set_permissions(Permissions::from_mode(*mode))
        }
        Image::Absent => Ok(()),
    }
}
