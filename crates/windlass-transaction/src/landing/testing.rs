//! What the tests of landing share: a tree, a change that has everything in it, and how a tree looks.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_core::clock::Timestamp;
use windlass_core::id::{CallId, RunId, SessionId};
use windlass_core::image::{Image, Swap};

use super::disk::Disk;
use super::{Contents, Done, LandError, LandMode, Landing, LandingCall, Root, Source};

/// A call, as the journal names it.
pub(super) fn landing_call() -> LandingCall {
    LandingCall {
        session: SessionId::fresh(Timestamp::from_millis(0), 1),
        run: RunId::nth(1),
        call: CallId("call".to_owned()),
    }
}

/// A landing of a call through a system that a test watches.
pub(super) fn land_call_through(
    disk: &Disk,
    scene: &Scene,
    swaps: &[Swap],
) -> Result<Done, LandError> {
    let landing = Landing {
        disk,
        root: &scene.root(),
        contents: &scene.contents,
        journal_dir: &scene.journal(),
        patience: Duration::ZERO,
    };
    landing.land(swaps, &scene.contents, LandMode::Call(Some(landing_call())))
}

/// A landing of a run through a system that a test watches.
pub(super) fn land_through(
    disk: &Disk,
    root: &Root,
    swaps: &[Swap],
    source: &dyn Source,
    contents: &Contents,
    journal_dir: &Path,
) -> Result<Done, LandError> {
    let landing = Landing {
        disk,
        root,
        contents,
        journal_dir,
        patience: Duration::ZERO,
    };
    landing.land(swaps, source, LandMode::Run)
}

/// A place of its own, in memory where there is one: these tests ask for every byte to be safe on the disk.
pub(super) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = tempfile::Builder::new()
        .prefix("windlass-landing-test")
        .tempdir_in(memory);
    made.or_else(|_| tempfile::tempdir()).unwrap()
}

/// A tree with its stores.
pub(super) struct Scene {
    pub(super) dir: tempfile::TempDir,
    pub(super) contents: Contents,
}

impl Scene {
    pub(super) fn new() -> Self {
        let dir = scratch();
        std::fs::create_dir(dir.path().join("tree")).unwrap();
        let contents = Contents::open(&dir.path().join("contents"), 1 << 30).unwrap();
        Self { dir, contents }
    }

    /// A scene whose store cannot take these bytes: a file is in the place of their folder.
    pub(super) fn that_cannot_store(text: &str) -> Self {
        let scene = Self::new();
        let hash = blake3::hash(text.as_bytes()).to_hex();
        std::fs::write(scene.dir.path().join("contents").join(&hash[..2]), "").unwrap();
        scene
    }

    pub(super) fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    pub(super) fn root(&self) -> Root {
        Root::open(&self.tree()).unwrap()
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    /// A file of the tree, with its parents.
    pub(super) fn file(&self, path: &str, text: &str, mode: u32) {
        let path = self.tree().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }

    pub(super) fn link(&self, path: &str, target: &str) {
        symlink(target, self.tree().join(path)).unwrap();
    }
}

pub(super) fn file(text: &str, mode: u32) -> Image {
    Image::File {
        hash: blake3::hash(text.as_bytes()).to_hex().to_string(),
        size: text.len() as u64,
        mode,
    }
}

pub(super) fn link(target: &str) -> Image {
    Image::Link {
        target: target.to_owned(),
    }
}

pub(super) fn swap(path: &str, before: Image, after: Image) -> Swap {
    Swap {
        path: path.to_owned(),
        before,
        after,
    }
}

/// Everything beneath a directory: its kind, its mode, and its bytes or its target.
pub(super) fn tree_of(top: &Path) -> BTreeMap<String, (char, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![top.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            let mode = meta.mode() & 0o7777;
            let seen = if meta.is_dir() {
                todo.push(path);
                ('d', mode, Vec::new())
            } else if meta.is_symlink() {
                (
                    'l',
                    0,
                    std::fs::read_link(&path)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .as_bytes()
                        .to_vec(),
                )
            } else {
                ('f', mode, std::fs::read(&path).unwrap())
            };
            found.insert(name, seen);
        }
    }
    found
}

/// The old tree of the change that has everything in it.
pub(super) fn old_tree(scene: &Scene) {
    scene.file("a.txt", "a old\n", 0o644);
    scene.file("bin/tool", "#!/bin/sh\n", 0o644);
    scene.file("gone/x", "x\n", 0o600);
    scene.file("gone/deep/y", "y\n", 0o644);
    std::fs::set_permissions(
        scene.tree().join("gone/deep"),
        PermissionsExt::from_mode(0o750),
    )
    .unwrap();
    scene.file("keep/w", "w\n", 0o644);
    scene.file("keep/z", "z\n", 0o640);
    scene.file("plain", "becomes a directory\n", 0o644);
    scene.file("dir/f1", "goes\n", 0o644);
    scene.file("dir/sub/f2", "goes too\n", 0o444);
    scene.file("conv", "becomes a link\n", 0o644);
    scene.link("link", "a.txt");
    scene.link("unlinked", "nowhere");
}

/// The change that has everything in it; the bytes of its new files are put into the store.
pub(super) fn change(scene: &Scene) -> Vec<Swap> {
    for text in [
        "a new\n",
        "#!/bin/sh\n",
        "two\n",
        "in\n",
        "was a directory\n",
    ] {
        scene.contents.put_bytes(text.as_bytes()).unwrap();
    }
    vec![
        swap("a.txt", file("a old\n", 0o644), file("a new\n", 0o644)),
        swap(
            "bin/tool",
            file("#!/bin/sh\n", 0o644),
            file("#!/bin/sh\n", 0o755),
        ),
        swap("gone/x", file("x\n", 0o600), Image::Absent),
        swap("gone/deep/y", file("y\n", 0o644), Image::Absent),
        swap("keep/w", file("w\n", 0o644), Image::Absent),
        swap("plain", file("becomes a directory\n", 0o644), Image::Absent),
        swap("plain/in", Image::Absent, file("in\n", 0o644)),
        swap("dir/f1", file("goes\n", 0o644), Image::Absent),
        swap("dir/sub/f2", file("goes too\n", 0o444), Image::Absent),
        swap("dir", Image::Absent, file("was a directory\n", 0o664)),
        swap("conv", file("becomes a link\n", 0o644), link("a.txt")),
        swap("link", link("a.txt"), link("keep/z")),
        swap("unlinked", link("nowhere"), Image::Absent),
        swap("new/one/two", Image::Absent, file("two\n", 0o600)),
        swap("new/three", Image::Absent, link("one")),
    ]
}
