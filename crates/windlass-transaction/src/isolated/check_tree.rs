//! A tree for checks: a layer or a copy of its own with exactly the state that is judged, in a new sandbox session. The
//! run's processes cannot reach it, so nothing that they left in `/tmp`, in a cache or among ignored files can change a
//! verdict. A check is code of strangers, too: its tree goes when it is done, and nothing here follows a link that it
//! left.

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

use super::copied::{self, copy_file};
use super::layer::{Layers, Touched};
use super::survey::{Print, Survey, parent};
use super::user_git::UserGit;
use super::{blocking, isolation};
use crate::landing::look;
use crate::path::{path_of, text_of};
use crate::working_copy::{parent_of, remove};
use windlass_host::exec::{Guard, HostProcesses};
use windlass_host::sandbox::{Sandbox, SandboxError, Tree, TreePlan};
use windlass_host::workspace::Root;

/// The beginning of the name of a folder for such a tree.
const FOLDER: &str = "checks-";

/// The parts of a workspace that every tree over it needs.
#[derive(Clone)]
pub(crate) struct Ground {
    /// The user's own tree.
    pub(crate) root: Arc<Root>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) plan: Arc<Sandbox>,
}

/// An open tree with its processes.
#[derive(Clone)]
pub(crate) struct Mounted {
    pub(crate) root: Arc<Root>,
    pub(crate) processes: Arc<HostProcesses>,
    pub(crate) sandbox: Arc<Sandbox>,
}

impl Ground {
    /// Puts a tree at the workspace's path, in a sandbox session of its own. `folder` makes a folder for the session.
    pub(crate) fn mount(
        &self,
        tree: Tree,
        folder: impl Fn(&str) -> Result<PathBuf, String>,
        for_checks: bool,
    ) -> Result<Mounted, SandboxError> {
        let folder = |name: &str| folder(name).map_err(SandboxError::Unavailable);
        let git = match self.plan.outside_git() {
            Some(_) => Some((folder("git-upper")?, folder("git-work")?)),
            None => None,
        };
        let sandbox = self.plan.over(TreePlan {
            tree: Some(tree),
            git,
        });
        let sandbox = Arc::new(match for_checks {
            true => sandbox.for_checks(),
            false => sandbox,
        });
        let handle = sandbox
            .take_tree()?
            .ok_or_else(|| SandboxError::Unavailable("the sandbox gave no tree".to_owned()))?;
        let workspace = self.root.root().to_owned();
        let root = Arc::new(match sandbox.path_of_tree()? {
            Some(path) => Root::standing_for(path, handle).also_at(workspace),
            None => Root::standing_for(workspace, handle),
        });
        let processes = HostProcesses::new(Arc::clone(&root), self.env.clone())
            .held_by(Some(Arc::clone(&sandbox)), Arc::clone(&self.guard));
        Ok(Mounted {
            root,
            processes: Arc::new(processes),
            sandbox,
        })
    }
}

/// The tree that a tree for checks begins with.
pub(crate) enum Below<'a> {
    /// The user's tree, by a layer.
    Layer,
    /// The user's tree with the changes of another layer, by a layer.
    LayerOver(&'a Path),
    /// A copy of a tree.
    Copy { of: &'a Root, hidden: &'a [PathBuf] },
}

impl Below<'_> {
    /// The tree, and what it is now where it is a copy.
    fn tree(&self, ground: &Ground, folder: &Folder) -> Result<(Tree, Option<Survey>), String> {
        let between = match self {
            Below::Copy { of, hidden } => {
                let from = folder.make("tree")?;
                copied::copy(of, &from, hidden)?;
                let own = Root::open(&from).map_err(|err| err.to_string())?;
                return Ok((Tree::Copy { from }, Some(Survey::of_everything(&own))));
            }
            Below::Layer => None,
            Below::LayerOver(layer) => Some((*layer).to_owned()),
        };
        let (upper, work) = (folder.make("upper")?, folder.make("work")?);
        take_mode(ground.root.root(), &upper);
        let layered = Tree::Layered {
            upper,
            work,
            between,
        };
        Ok((layered, None))
    }
}

/// A tree for checks.
pub(crate) struct FreshTree {
    mounted: Mounted,
    ground: Ground,
    /// What a copy was when it was made; `None` where it is a layer.
    copied: Option<Survey>,
    /// The source files that differ from the user's tree, as the checks are to see them.
    expected: Mutex<BTreeMap<String, Image>>,
    images: Mutex<HashMap<String, (Print, Image)>>,
    /// The run's own tree, which fixes are taken over into.
    run: Option<Arc<Root>>,
    /// The last field, because it is removed when nothing of the mount is in use any more.
    folder: Folder,
}

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn make(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.0.join(name);
        windlass_host::private::create_dir(&path).map_err(|err| err.message)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The next process to open the copy removes what is left.
        let _ = windlass_host::private::remove_tree(&self.0);
    }
}

impl FreshTree {
    /// Makes one in a folder of `parent`, with nothing changed.
    pub(crate) fn make(
        ground: Ground,
        parent: &Path,
        below: &Below<'_>,
    ) -> Result<Self, WorkspaceError> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Folder(parent.join(format!("{FOLDER}{}-{number}", std::process::id())));
        let failed = |why: String| isolation(format!("no tree for the checks can be made: {why}"));
        let (tree, copied) = below.tree(&ground, &folder).map_err(failed)?;
        let mounted = ground
            .mount(tree, |name| folder.make(name), true)
            .map_err(|err| failed(err.to_string()))?;
        Ok(Self {
            mounted,
            ground,
            copied,
            expected: Mutex::default(),
            images: Mutex::default(),
            run: None,
            folder,
        })
    }

    /// The same; fixes go to the run's own tree.
    pub(crate) fn of_run(self, run: Arc<Root>) -> Self {
        Self {
            run: Some(run),
            ..self
        }
    }

    /// Makes these paths what they are in another tree. What is not there any more goes first, so that a file can take
    /// the place of a folder.
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

    /// Makes these paths what they are in the user's tree: a folder that is not there goes with everything in it.
    pub(crate) fn reset(&self, paths: &[String]) -> Result<(), WorkspaceError> {
        let root = &self.mounted.root;
        for path in paths {
            let reset = || -> io::Result<()> {
                if let Ok((dir, name)) = parent_of(root, &path_of(path)) {
                    remove(dir.as_fd(), name)?;
                }
                copy_path(&self.ground.root, root, &path_of(path))
            };
            reset().map_err(|err| cannot_copy(path, &err))?;
        }
        Ok(())
    }

    /// Makes a path what an image says.
    pub(crate) fn put_image(
        &self,
        path: &str,
        image: &Image,
        bytes: &[u8],
    ) -> Result<(), WorkspaceError> {
        put(&self.mounted.root, &path_of(path), image, bytes).map_err(|err| cannot_copy(path, &err))
    }

    /// These are changes that the checks are to see.
    pub(crate) fn expect<'a>(&self, paths: impl Iterator<Item = (&'a str, &'a Image)>) {
        let owned = paths.map(|(path, image)| (path.to_owned(), image.clone()));
        self.expected.lock().extend(owned);
    }

    /// Source files that a check may have written or removed.
    async fn touched(self: &Arc<Self>) -> Result<BTreeSet<PathBuf>, WorkspaceError> {
        let own = Arc::clone(self);
        let touched = blocking(move || own.written()).await?;
        with_tracked(touched, &self.ground.root, &self.ground.env)
            .await
            .map(|touched| touched.sources)
            .map_err(|(_, why)| WorkspaceError::other(why))
    }

    fn written(&self) -> Result<Touched, WorkspaceError> {
        let root = &self.mounted.root;
        if let Some(before) = &self.copied {
            return Ok(Touched::between(before, root));
        }
        let upper = Root::open(&self.folder.0.join("upper"))
            .map_err(|err| WorkspaceError::other(err.to_string()))?;
        let layers = Layers {
            upper: &upper,
            lower: &self.ground.root,
            merged: root,
        };
        layers.touched().map_err(WorkspaceError::other)
    }

    /// The paths that are not as the checks are to see them, and what they are now.
    fn differing(
        &self,
        touched: BTreeSet<PathBuf>,
    ) -> Result<Vec<(String, Image)>, WorkspaceError> {
        let root = &self.mounted.root;
        let expected = self.expected.lock().clone();
        let mut paths = touched;
        paths.extend(expected.keys().map(|path| path_of(path).into_owned()));
        let mut differing = Vec::new();
        for path in paths {
            let text = text_of(&path);
            let text = text.as_str();
            let now = image(&self.images, root, text).map_err(WorkspaceError::other)?;
            let wanted = match expected.get(text) {
                Some(image) => image.clone(),
                None => looked(&self.ground.root, text).map_err(WorkspaceError::other)?,
            };
            if now != wanted {
                differing.push((text.to_owned(), now));
            }
        }
        Ok(differing)
    }
}

/// The port to a tree for checks.
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
            let differing = blocking(move || tree.differing(touched)).await?;
            Ok(differing.into_iter().map(|(path, _)| path).collect())
        })
    }
    fn take_over(&self) -> BoxFuture<'_, Result<(), WorkspaceError>> {
        Box::pin(async move {
            let touched = self.0.touched().await?;
            let tree = Arc::clone(&self.0);
            blocking(move || {
                let differing = tree.differing(touched)?;
                let root = &tree.mounted.root;
                let run = tree.run.as_ref().ok_or_else(|| {
                    WorkspaceError::other(
                        "a validator that fixes files cannot run in place together with `validate.protect`; run it \
                         isolated",
                    )
                })?;
                for (path, _) in &differing {
                    copy_path(root, run, &path_of(path)).map_err(|err| cannot_copy(path, &err))?;
                }
                tree.expected.lock().extend(differing);
                Ok(())
            })
            .await
        })
    }
}

/// The root of a layered tree has the mode of the layer.
pub(super) fn take_mode(of: &Path, upper: &Path) {
    if let Ok(about) = std::fs::metadata(of) {
        let mode = PermissionsExt::from_mode(about.permissions().mode() & 0o7777);
        let _ = std::fs::set_permissions(upper, mode);
    }
}

fn cannot_copy(path: &str, err: &io::Error) -> WorkspaceError {
    WorkspaceError::other(format!(
        "`{path}` cannot be copied between the run's tree and that of the checks: {err}"
    ))
}

/// Removes trees that a dead process left in a folder.
pub(super) fn remove_left(parent: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_name().to_string_lossy().starts_with(FOLDER) {
            let _ = windlass_host::private::remove_tree(&entry.path());
        }
    }
}

/// Moves ignored files that git tracks to the sources: what is tracked counts, whatever the ignore files say. Where git
/// cannot tell, gives what is known without it, and the reason.
pub(super) async fn with_tracked(
    mut touched: Touched,
    base: &Root,
    env: &[(OsString, OsString)],
) -> Result<Touched, (Touched, String)> {
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

/// The image of a path, hashed once for as long as its record stays the same.
pub(super) fn image(
    known: &Mutex<HashMap<String, (Print, Image)>>,
    root: &Root,
    path: &str,
) -> Result<Image, String> {
    let full = path_of(path);
    let stat = root.open_dir(parent(&full)).ok().and_then(|handle| {
        let name = full.file_name().unwrap_or_default();
        rustix::fs::statat(handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    });
    let Some(print) = stat.map(|stat| Print::of(&stat)) else {
        return Ok(Image::Absent);
    };
    if let Some((same, image)) = known.lock().get(path)
        && *same == print
    {
        return Ok(image.clone());
    }
    let image = looked(root, path)?;
    known.lock().insert(path.to_owned(), (print, image.clone()));
    Ok(image)
}

pub(super) fn looked(root: &Root, path: &str) -> Result<Image, String> {
    match look(root, path) {
        Ok(image) => Ok(image),
        // A directory is in the place: the files in it are told of by themselves.
        Err(err) if matches!(err.kind, FileErrorKind::WrongKind | FileErrorKind::NotFound) => {
            Ok(Image::Absent)
        }
        Err(err) => Err(err.message),
    }
}

/// Makes a path of a tree what it is in another one: a file with its mode and times, a link, or nothing. A folder counts
/// as nothing, because the files in it have paths of their own.
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

/// Removes a file or a link, and the folders that are empty then.
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

/// A folder of a tree, opened step by step and made where it is missing. What is no folder gives way.
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
