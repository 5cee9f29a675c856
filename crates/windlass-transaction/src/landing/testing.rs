//! Fixtures for the landing tests: a tree, a change with every kind of swap, and snapshots of trees.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_core::clock::Timestamp;
use windlass_core::id::{CallId, RunId, SessionId};
use windlass_core::image::{Image, Swap};

use super::disk::Disk;
use super::{
    ByteSource, CompletedLanding, Contents, LandError, LandMode, LandingCall, LandingContext, Root,
};

pub(super) fn landing_call() -> LandingCall {
    LandingCall {
        session: SessionId::fresh(Timestamp::from_millis(0), 1),
        run: RunId::nth(1),
        call: CallId("call".to_owned()),
    }
}

/// Lands a call through a disk that the test controls.
pub(super) fn land_call_through(
    disk: &Disk,
    fixture: &LandingFixture,
    swaps: &[Swap],
) -> Result<CompletedLanding, LandError> {
    let landing = LandingContext {
        disk,
        root: &fixture.root(),
        contents: &fixture.contents,
        journal_dir: &fixture.journal(),
        lock_timeout: Duration::ZERO,
        ended: &|_| {},
    };
    landing.land(
        swaps,
        &fixture.contents,
        LandMode::Call(Some(landing_call())),
    )
}

/// Lands a run through a disk that the test controls.
pub(super) fn land_through(
    disk: &Disk,
    root: &Root,
    swaps: &[Swap],
    source: &dyn ByteSource,
    contents: &Contents,
    journal_dir: &Path,
) -> Result<CompletedLanding, LandError> {
    let landing = LandingContext {
        disk,
        root,
        contents,
        journal_dir,
        lock_timeout: Duration::ZERO,
        ended: &|_| {},
    };
    landing.land(swaps, source, LandMode::Run)
}

/// A temporary directory, in memory if possible, because these tests sync every byte.
pub(super) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = tempfile::Builder::new()
        .prefix("windlass-landing-test")
        .tempdir_in(memory);
    made.or_else(|_| tempfile::tempdir()).unwrap()
}

/// A tree with a content store and a journal directory.
pub(super) struct LandingFixture {
    pub(super) dir: tempfile::TempDir,
    pub(super) contents: Contents,
}

impl LandingFixture {
    pub(super) fn new() -> Self {
        let dir = scratch();
        std::fs::create_dir(dir.path().join("tree")).unwrap();
        let contents = Contents::open(&dir.path().join("contents"), 1 << 30).unwrap();
        Self { dir, contents }
    }

    /// A fixture whose store cannot store these bytes, because a file is at the path of their directory.
    pub(super) fn without_storage_for(text: &str) -> Self {
        let fixture = Self::new();
        let hash = blake3::hash(text.as_bytes()).to_hex();
        std::fs::write(fixture.dir.path().join("contents").join(&hash[..2]), "").unwrap();
        fixture
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

    /// Writes a file of the tree and creates its parents.
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

/// Every entry below a directory: its kind, its mode, and its bytes or symlink target.
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

/// Creates the old tree for [`change`].
pub(super) fn old_tree(fixture: &LandingFixture) {
    fixture.file("a.txt", "a old\n", 0o644);
    fixture.file("bin/tool", "#!/bin/sh\n", 0o644);
    fixture.file("gone/x", "x\n", 0o600);
    fixture.file("gone/deep/y", "y\n", 0o644);
    std::fs::set_permissions(
        fixture.tree().join("gone/deep"),
        PermissionsExt::from_mode(0o750),
    )
    .unwrap();
    fixture.file("keep/w", "w\n", 0o644);
    fixture.file("keep/z", "z\n", 0o640);
    fixture.file("plain", "becomes a directory\n", 0o644);
    fixture.file("dir/f1", "goes\n", 0o644);
    fixture.file("dir/sub/f2", "goes too\n", 0o444);
    fixture.file("conv", "becomes a link\n", 0o644);
    fixture.link("link", "a.txt");
    fixture.link("unlinked", "nowhere");
}

/// A change with every kind of swap. It puts the bytes of the new files into the store.
pub(super) fn change(fixture: &LandingFixture) -> Vec<Swap> {
    for text in [
        "a new\n",
        "#!/bin/sh\n",
        "two\n",
        "in\n",
        "was a directory\n",
    ] {
        fixture.contents.put_bytes(text.as_bytes()).unwrap();
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
