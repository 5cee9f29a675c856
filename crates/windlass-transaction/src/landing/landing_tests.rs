//! Refusals, messages and recovery of landings, on unusual file systems as well.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use rustix::io::Errno;
use windlass_host::workspace::is_staging;
use windlass_needs::{Need, lacks};

use super::check::clashes;
use super::testing::{LandingFixture, change, file, land_through, link, old_tree, swap, tree_of};
use super::*;

fn landed_through(
    disk: &Disk,
    fixture: &LandingFixture,
    swaps: &[Swap],
) -> Result<CompletedLanding, LandError> {
    land_through(
        disk,
        &fixture.root(),
        swaps,
        &fixture.contents,
        &fixture.contents,
        &fixture.journal(),
    )
}

fn landed(fixture: &LandingFixture, swaps: &[Swap]) -> Result<CompletedLanding, LandError> {
    landed_through(&Disk::default(), fixture, swaps)
}

/// A tree with a file, a symlink, a directory and a pipe.
fn small() -> LandingFixture {
    let fixture = LandingFixture::new();
    fixture.file("file", "old\n", 0o644);
    fixture.file("dir/inner", "inner\n", 0o644);
    fixture.link("link", "dir");
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.tree().join("pipe"), 0o600.into()).unwrap();
    fixture.contents.put_bytes(b"new\n").unwrap();
    fixture
}

#[track_caller]
fn check_refused(fixture: &LandingFixture, disk: &Disk, refused: Swap, reason: &str) {
    let old = tree_without_pipe(fixture);
    let path = refused.path.clone();
    let good = swap("good", Image::Absent, file("new\n", 0o644));
    let message = match landed_through(disk, fixture, &[good, refused]).unwrap_err() {
        LandError::Conflict { refused, left } => {
            assert_eq!((refused.len(), left), (1, vec![]), "{refused:?}");
            assert_eq!(refused[0].path, path);
            refused[0].reason.clone()
        }
        err => err.to_string(),
    };
    assert!(message.contains(reason), "{message}");
    assert_eq!(tree_without_pipe(fixture), old);
    assert!(!fixture.journal().join("journal.json").exists());
}

fn tree_without_pipe(
    fixture: &LandingFixture,
) -> std::collections::BTreeMap<String, (char, u32, Vec<u8>)> {
    let _ = std::fs::remove_file(fixture.tree().join("pipe"));
    tree_of(&fixture.tree())
}

#[track_caller]
fn check(path: &str, before: Image, after: Image, reason: &str) {
    check_refused(
        &small(),
        &Disk::default(),
        swap(path, before, after),
        reason,
    );
}

fn new() -> Image {
    file("new\n", 0o644)
}

#[test]
fn a_tree_that_is_not_as_it_was_is_refused_with_the_reason() {
    check(
        "file",
        file("other\n", 0o644),
        new(),
        "it was changed meanwhile",
    );
    check(
        "file",
        file("old\n", 0o600),
        new(),
        "its mode was changed meanwhile (600, now 644)",
    );
    check(
        "file",
        link("x"),
        new(),
        "it was a symlink and became a file",
    );
    check("link", file("x", 0o644), new(), "it became a symlink");
    check("link", link("elsewhere"), new(), "it was changed meanwhile");
    check(
        "file",
        Image::Absent,
        new(),
        "another program created this file meanwhile",
    );
    check(
        "absent",
        file("x", 0o644),
        new(),
        "it was deleted meanwhile",
    );
    check("dir", Image::Absent, new(), "a directory is at this path");
    check(
        "dir",
        file("x", 0o644),
        Image::Absent,
        "a directory is at this path",
    );
    check("file/x", Image::Absent, new(), "its parent file is a file");
    check(
        "link/inner",
        Image::Absent,
        new(),
        "its parent link is a symlink",
    );
}

#[test]
fn an_edit_of_the_same_size_and_time_is_seen() {
    let fixture = small();
    let (path, before) = (
        fixture.tree().join("file"),
        image_at(&fixture.root(), "file").unwrap(),
    );
    let time = path.metadata().unwrap().modified().unwrap();
    std::fs::write(&path, "odl\n").unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert_ne!(image_at(&fixture.root(), "file").unwrap(), before);
    check_refused(
        &fixture,
        &Disk::default(),
        swap("file", before, new()),
        "it was changed meanwhile",
    );
}

#[test]
fn a_pipe_in_the_way_is_refused_without_waiting_for_it() {
    let fixture = small();
    let err = landed(&fixture, &[swap("pipe", Image::Absent, new())]).unwrap_err();
    assert!(
        err.to_string()
            .contains("pipe: a pipe, socket or device is at this path"),
        "{err}"
    );
}

#[test]
fn a_path_outside_the_tree_or_not_normalized_is_refused() {
    for path in ["../out", "/etc/out", "dir/../../out", "."] {
        check(path, Image::Absent, new(), "leads out of the workspace");
    }
    check("", Image::Absent, new(), "it is empty");
    for path in ["dir//x", "dir/./x", "x/"] {
        check(path, Image::Absent, new(), "it must be normalized");
    }
    check(&"x/".repeat(3000), Image::Absent, new(), "too long");
    check(
        ".windlass-landing-0123456789abcdef/x",
        Image::Absent,
        new(),
        "in a directory of a landing",
    );
}

#[test]
fn an_invalid_change_is_refused() {
    check("x", Image::Absent, file("new\n", 0o4755), "set-user-id");
    check(
        "x",
        Image::Absent,
        file("new\n", 0o200),
        "its owner could not read it",
    );
    check("x", Image::Absent, link(""), "invalid target");
    check("good", Image::Absent, new(), "named twice");
    check(
        "x",
        Image::Absent,
        file("never stored", 0o644),
        "are not stored",
    );
}

#[test]
fn bytes_that_differ_from_their_hash_do_not_land() {
    struct WrongBytes(std::path::PathBuf);
    impl ByteSource for WrongBytes {
        fn open(&self, _: &Swap) -> io::Result<File> {
            File::open(&self.0)
        }
    }
    let fixture = small();
    let source = WrongBytes(fixture.tree().join("dir/inner"));
    let swaps = [swap("x", Image::Absent, new())];
    let err = land(
        &fixture.root(),
        &swaps,
        &source,
        &fixture.contents,
        &fixture.journal(),
        &|_| {},
    )
    .unwrap_err();
    assert!(
        err.to_string()
            .contains("its bytes changed after they were checked"),
        "{err}"
    );
    assert!(!fixture.tree().join("x").exists());
}

#[test]
fn names_and_link_targets_that_are_not_utf8_land() {
    let fixture = LandingFixture::new();
    let tree = fixture.tree();
    let (dir, name) = (OsStr::from_bytes(b"d\xfe"), OsStr::from_bytes(b"f\xff"));
    std::fs::create_dir(tree.join(dir)).unwrap();
    std::fs::write(tree.join(dir).join(name), "old\n").unwrap();
    symlink(OsStr::from_bytes(b"\xff"), tree.join("link")).unwrap();
    fixture.contents.put_bytes(b"new\n").unwrap();
    let before = |path: &str| image_at(&fixture.root(), path).unwrap();
    let link = |target: &str| Image::Link {
        target: target.to_owned(),
    };
    assert_eq!(before("link"), link(r#""\377""#));
    let text = r#""d\376"/"f\377""#;
    let swaps = [
        swap(text, before(text), file("new\n", 0o644)),
        swap("link", link(r#""\377""#), link(r#"a/"\376""#)),
        swap(r#""n\377"/x"#, Image::Absent, file("new\n", 0o644)),
    ];
    landed(&fixture, &swaps).unwrap();
    let read = |path: PathBuf| std::fs::read_to_string(tree.join(path)).unwrap();
    assert_eq!(read(Path::new(dir).join(name)), "new\n");
    assert_eq!(
        read(Path::new(OsStr::from_bytes(b"n\xff")).join("x")),
        "new\n"
    );
    let target = std::fs::read_link(tree.join("link")).unwrap();
    assert_eq!(target.as_os_str().as_bytes(), b"a/\xfe");
    let gone = [swap(text, file("new\n", 0o644), Image::Absent)];
    landed(&fixture, &gone).unwrap();
    assert!(!tree.join(dir).exists(), "the empty folder goes, too");
}

/// Every call of a kind fails.
fn failing(what: &'static str, errno: Errno) -> Disk {
    Disk::with_hook(Box::new(
        move |_, call| if call == what { Err(errno) } else { Ok(()) },
    ))
}

/// Every call fails from the first call of a kind on, as if the process were dead.
fn dead_from(what: &'static str) -> Disk {
    let dead = std::cell::Cell::new(false);
    Disk::with_hook(Box::new(move |_, call| {
        dead.set(dead.get() || call == what);
        if dead.get() { Err(Errno::IO) } else { Ok(()) }
    }))
}

#[test]
fn errors_of_the_system_are_reported() {
    let put = || swap("dir/x", Image::Absent, new());
    let fixture = small();
    for (what, errno, reason) in [
        ("make_dir", Errno::ROFS, "the file system is read-only"),
        ("make_dir", Errno::ACCESS, "permission denied"),
        ("write", Errno::NOSPC, "no space is left"),
    ] {
        check_refused(&fixture, &failing(what, errno), put(), reason);
    }
    // Only the directory of one path is not writable.
    let disk = Disk::with_hook(Box::new({
        let asked = std::cell::Cell::new(0);
        move |_, call| {
            asked.set(asked.get() + u32::from(call == "may_change"));
            if call == "may_change" && asked.get() == 1 {
                Err(Errno::ACCESS)
            } else {
                Ok(())
            }
        }
    }));
    check_refused(
        &fixture,
        &disk,
        put(),
        "no permission to write to its directory `dir`",
    );
}

#[test]
fn a_read_only_directory_is_refused_before_anything_happens() {
    let fixture = small();
    let dir = fixture.tree().join("dir");
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o555)).unwrap();
    let put = swap("dir/x", Image::Absent, new());
    if rustix::process::geteuid().is_root() {
        // Root may write to every directory.
        landed(&fixture, &[put]).unwrap();
    } else {
        check_refused(
            &fixture,
            &Disk::default(),
            put,
            "no permission to write to its directory `dir`",
        );
    }
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn an_owner_is_kept_or_the_file_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root can create a file of another user.
    }
    let fixture = small();
    std::os::unix::fs::chown(fixture.tree().join("file"), Some(4242), Some(4243)).unwrap();
    let change = || swap("file", file("old\n", 0o644), file("new\n", 0o640));
    check_refused(
        &fixture,
        &failing("set_owner", Errno::PERM),
        change(),
        "it belongs to another user (uid 4242)",
    );
    landed(&fixture, &[change()]).unwrap();
    let meta = fixture.tree().join("file").metadata().unwrap();
    assert_eq!(
        (meta.uid(), meta.gid(), meta.mode() & 0o7777),
        (4242, 4243, 0o640)
    );
}

#[test]
fn names_that_differ_only_in_case_conflict_on_some_file_systems() {
    let message = clashes(["a/README", "b", "a/Readme"].into_iter());
    assert_eq!(message.len(), 1);
    assert!(
        message[0].path == "a/Readme" && message[0].reason.contains("same name as a/README"),
        "{message:?}"
    );
    let two = [
        swap("README", Image::Absent, new()),
        swap("readme", Image::Absent, new()),
    ];
    // Simulate a file system that ignores case: the name of the staging directory in capitals exists, too.
    let fixture = small();
    let tree = fixture.tree();
    let disk = Disk::with_hook(Box::new(move |_, _| {
        for entry in std::fs::read_dir(&tree).unwrap() {
            let name = entry.unwrap().file_name();
            if is_staging(&name) {
                let _ = std::fs::create_dir(tree.join(name.to_str().unwrap().to_uppercase()));
            }
        }
        Ok(())
    }));
    let err = landed_through(&disk, &fixture, &two).unwrap_err();
    assert!(
        err.to_string()
            .contains("readme: on this file system it has the same name as README"),
        "{err}"
    );
    landed(&small(), &two).unwrap();
}

#[test]
fn a_landing_whose_old_bytes_cannot_be_stored_is_rolled_back() {
    let fixture = LandingFixture::without_storage_for("too large to keep\n");
    fixture.file("large", "too large to keep\n", 0o644);
    fixture.file("small", "old\n", 0o644);
    fixture.contents.put_bytes(b"new\n").unwrap();
    let swaps = [
        swap(
            "large",
            file("too large to keep\n", 0o644),
            file("new\n", 0o644),
        ),
        swap("small", file("old\n", 0o644), Image::Absent),
    ];
    let before = tree_of(&fixture.tree());
    let refused = landed(&fixture, &swaps).unwrap_err().to_string();
    assert!(
        refused.contains("cannot store the old bytes of large"),
        "{refused}"
    );
    assert_eq!(tree_of(&fixture.tree()), before);
    assert!(!fixture.journal().join("journal.json").exists());
}

#[test]
fn a_large_landing_syncs_as_often_as_one_of_any_size() {
    let syncs = |files: usize| {
        let fixture = LandingFixture::new();
        fixture.contents.put_bytes(b"new\n").unwrap();
        let paths: Vec<String> = (0..files).map(|at| format!("d{at}/f")).collect();
        paths
            .iter()
            .for_each(|path| fixture.file(path, &format!("{path} old\n"), 0o644));
        let swaps: Vec<Swap> = paths
            .iter()
            .map(|path| {
                swap(
                    path,
                    file(&format!("{path} old\n"), 0o644),
                    file("new\n", 0o644),
                )
            })
            .collect();
        let counted = std::rc::Rc::new(std::cell::RefCell::new((0, 0)));
        let count = std::rc::Rc::clone(&counted);
        let disk = Disk::with_hook(Box::new(move |_, call| {
            let mut count = count.borrow_mut();
            match call {
                "sync" => count.0 += 1,
                "sync_all" => count.1 += 1,
                _ => {}
            }
            Ok(())
        }));
        landed_through(&disk, &fixture, &swaps).unwrap();
        *counted.borrow()
    };
    let few = syncs(20);
    assert_eq!(syncs(60), few);
    // The new files before the first swap, and everything at the end.
    assert_eq!(few.1, 2, "file systems are synced twice");
    assert!(few.0 <= 12, "{few:?}");
}

#[test]
fn a_change_of_nothing_is_done_at_once() {
    let fixture = small();
    assert_eq!(landed(&fixture, &[]).unwrap(), CompletedLanding::default());
    let same = swap("file", file("old\n", 0o644), file("old\n", 0o644));
    assert_eq!(
        landed(&fixture, &[same]).unwrap(),
        CompletedLanding::default()
    );
    assert_eq!(
        recover(&fixture.journal(), &fixture.contents, &|_, _| {}).unwrap(),
        None
    );
}

/// A process that dies after its landing and before its caller knows of it must leave the journal to recovery.
#[test]
fn the_end_is_announced_before_the_journal_is_deleted() {
    let journal_exists = |fixture: &LandingFixture| JournalDir::has_journal(&fixture.journal());
    let announced = Cell::new(None);
    let new = swap("file", file("old\n", 0o644), file("new\n", 0o644));

    let fixture = small();
    let ended = |landed| announced.set(Some((landed, journal_exists(&fixture))));
    let (root, contents) = (fixture.root(), &fixture.contents);
    let swaps = std::slice::from_ref(&new);
    land(&root, swaps, contents, contents, &fixture.journal(), &ended).unwrap();
    assert_eq!(announced.take(), Some((true, true)));
    assert!(!journal_exists(&fixture));

    // Recovery finishes the landing of a process that died before its last calls.
    let fixture = small();
    let count = Disk::default();
    landed_through(&count, &small(), swaps).unwrap();
    let last = count.calls() - 3;
    let dead = Disk::with_hook(Box::new(
        move |call, _| {
            if call > last { Err(Errno::IO) } else { Ok(()) }
        },
    ));
    let _ = landed_through(&dead, &fixture, swaps);
    assert!(journal_exists(&fixture));
    let ended = |_: &Root, landed| announced.set(Some((landed, journal_exists(&fixture))));
    let done = recover(&fixture.journal(), &fixture.contents, &ended).unwrap();
    assert!(done.is_some_and(|done| done.landed));
    assert_eq!(announced.take(), Some((true, true)));
    assert!(!journal_exists(&fixture));
}

#[test]
fn a_running_landing_is_not_disturbed_and_a_dead_one_is_recovered_first() {
    let fixture = LandingFixture::new();
    old_tree(&fixture);
    let swaps = change(&fixture);
    let dir = JournalDir::lock(&Disk::default(), &fixture.journal(), Duration::ZERO)
        .unwrap()
        .unwrap();
    assert_eq!(landed(&fixture, &swaps), Err(LandError::Busy));
    assert_eq!(
        recover(&fixture.journal(), &fixture.contents, &|_, _| {}).unwrap(),
        None
    );
    drop(dir);
    let dead = Disk::with_hook(Box::new(
        |call, _| if call > 250 { Err(Errno::IO) } else { Ok(()) },
    ));
    landed_through(&dead, &fixture, &swaps).unwrap_err();
    assert!(matches!(
        landed(&fixture, &swaps),
        Err(LandError::Unfinished(_))
    ));
    assert!(
        recover(&fixture.journal(), &fixture.contents, &|_, _| {})
            .unwrap()
            .is_some()
    );
}

/// A landing whose process died after the first exchange.
fn dead_in_the_middle(fixture: &LandingFixture) -> Vec<Swap> {
    for path in ["a", "b"] {
        fixture.file(path, &format!("{path} old\n"), 0o644);
        fixture
            .contents
            .put_bytes(format!("{path} new\n").as_bytes())
            .unwrap();
    }
    let swaps: Vec<Swap> = ["a", "b"]
        .map(|path| {
            swap(
                path,
                file(&format!("{path} old\n"), 0o644),
                file(&format!("{path} new\n"), 0o644),
            )
        })
        .into();
    let exchanged = std::cell::Cell::new(0);
    let dead = Disk::with_hook(Box::new(move |_, what| {
        exchanged.set(exchanged.get() + u32::from(what == "exchange"));
        if exchanged.get() > 1 {
            Err(Errno::IO)
        } else {
            Ok(())
        }
    }));
    landed_through(&dead, fixture, &swaps).unwrap_err();
    assert_eq!(
        std::fs::read_to_string(fixture.tree().join("a")).unwrap(),
        "a new\n"
    );
    swaps
}

#[test]
fn recovery_finishes_a_landing_and_reports_it() {
    let fixture = LandingFixture::new();
    dead_in_the_middle(&fixture);
    let found = recover(&fixture.journal(), &fixture.contents, &|_, _| {})
        .unwrap()
        .unwrap();
    assert_eq!(
        (found.landed, found.paths, found.left),
        (true, vec!["a".to_owned(), "b".to_owned()], vec![])
    );
    assert_eq!(
        std::fs::read_to_string(fixture.tree().join("b")).unwrap(),
        "b new\n"
    );
    assert!(
        fixture
            .contents
            .has(blake3::hash(b"a old\n").to_hex().as_str()),
        "recovery stores the old bytes, too"
    );
}

#[test]
fn a_tree_whose_own_path_is_not_utf8_is_recovered_too() {
    let fixture = LandingFixture::new();
    let tree = fixture.dir.path().join(OsStr::from_bytes(b"odd-\xff"));
    std::fs::create_dir(&tree).unwrap();
    fixture.contents.put_bytes(b"new\n").unwrap();
    let swaps = [swap("x", Image::Absent, new())];
    let root = Root::open(&tree).unwrap();
    let dead = dead_from("rename_new");
    land_through(
        &dead,
        &root,
        &swaps,
        &fixture.contents,
        &fixture.contents,
        &fixture.journal(),
    )
    .unwrap_err();
    let found = recover(&fixture.journal(), &fixture.contents, &|_, _| {})
        .unwrap()
        .unwrap();
    assert_eq!((found.root, found.landed), (tree.clone(), true));
    assert_eq!(std::fs::read_to_string(tree.join("x")).unwrap(), "new\n");
}

#[test]
fn old_bytes_that_have_no_place_stay_in_the_staging_directory_when_they_cannot_be_stored() {
    let fixture = LandingFixture::without_storage_for("a old\n");
    dead_in_the_middle(&fixture);
    // Another program wrote to `a`, which was swapped, and to `b`, which was not. The landing cannot continue, and `a`
    // cannot be restored.
    std::fs::write(fixture.tree().join("a"), "mine\n").unwrap();
    std::fs::write(fixture.tree().join("b"), "mine too\n").unwrap();
    let found = recover(&fixture.journal(), &fixture.contents, &|_, _| {})
        .unwrap()
        .unwrap();
    assert!(
        !found.landed && found.left.len() == 3 && found.left[1..] == ["a", "b"],
        "{found:?}"
    );
    let staged =
        std::fs::read_to_string(fixture.tree().join(&found.left[0]).join("0.new")).unwrap();
    assert_eq!(staged, "a old\n");
    assert_eq!(
        std::fs::read_to_string(fixture.tree().join("a")).unwrap(),
        "mine\n"
    );
    assert_eq!(
        recover(&fixture.journal(), &fixture.contents, &|_, _| {}).unwrap(),
        None
    );
}

#[test]
fn a_deleted_staging_directory_is_reported() {
    let fixture = LandingFixture::new();
    dead_in_the_middle(&fixture);
    for entry in std::fs::read_dir(fixture.tree()).unwrap() {
        let path = entry.unwrap().path();
        if is_staging(path.file_name().unwrap()) {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
    let found = recover(&fixture.journal(), &fixture.contents, &|_, _| {})
        .unwrap()
        .unwrap();
    assert_eq!((found.landed, found.left), (false, vec!["b".to_owned()]));
    assert_eq!(
        std::fs::read_to_string(fixture.tree().join("a")).unwrap(),
        "a new\n"
    );
}

#[test]
fn a_journal_that_cannot_be_used_says_what_to_do() {
    let fixture = LandingFixture::new();
    dead_in_the_middle(&fixture);
    std::fs::rename(fixture.tree(), fixture.dir.path().join("moved")).unwrap();
    let err = recover(&fixture.journal(), &fixture.contents, &|_, _| {}).unwrap_err();
    assert!(
        err.to_string()
            .contains("make the directory reachable again"),
        "{err}"
    );
    std::fs::write(fixture.journal().join("journal.json"), "{").unwrap();
    let err = recover(&fixture.journal(), &fixture.contents, &|_, _| {}).unwrap_err();
    assert!(err.to_string().contains("cannot be read"), "{err}");
}

const MOUNTED: &str = "WINDLASS_TEST_MOUNTED";

/// Runs itself again in a mount namespace, where one directory of the tree is on another file system, and one is a bind
/// mount of the same file system.
#[test]
fn a_target_on_another_file_system_is_staged_there() {
    if let Ok(tree) = std::env::var(MOUNTED) {
        return land_on_mounts(Path::new(&tree));
    }
    let dir = super::testing::scratch();
    for name in ["tree/mnt", "tree/sub", "tree/bound"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let script = "mount -t tmpfs none tree/mnt && mount --bind tree/sub tree/bound || exit 77; \
                  exec \"$0\" --exact landing::tests::a_target_on_another_file_system_is_staged_there";
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap());
    let ended = command
        .current_dir(dir.path())
        .env(MOUNTED, dir.path().join("tree"))
        .output();
    // Without namespaces there is nothing to test.
    let Ok(ended) = ended else { return };
    let refused = matches!(ended.status.code(), Some(1 | 77)) && ended.stdout.is_empty();
    assert!(
        ended.status.success() || refused,
        "{}",
        String::from_utf8_lossy(&ended.stdout)
    );
}

/// Runs itself again with the stores on a small file system, which becomes full at each stage of a landing.
#[test]
fn a_small_disk_lets_a_landing_happen_or_leaves_the_old_tree() {
    if let Ok(dir) = std::env::var(MOUNTED) {
        return land_on_a_small_disk(Path::new(&dir));
    }
    if lacks(Need::Namespaces) {
        return;
    }
    let dir = super::testing::scratch();
    std::fs::create_dir_all(dir.path().join("data")).unwrap();
    let script = "mount -t tmpfs -o size=1m none data && \
                  exec \"$0\" --exact landing::tests::a_small_disk_lets_a_landing_happen_or_leaves_the_old_tree";
    let ended = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(MOUNTED, dir.path())
        .current_dir(dir.path())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{message}");
    assert!(message.contains("1 passed"), "{message}");
}

fn land_on_a_small_disk(dir: &Path) {
    let (mut landed, mut refused) = (0, 0);
    for free_kb in (0..=160).step_by(4) {
        let (tree, data) = (dir.join(format!("tree-{free_kb}")), dir.join("data"));
        let (store, journal) = (data.join("contents"), data.join("journal"));
        for path in [&tree, &store, &journal] {
            std::fs::create_dir_all(path).unwrap();
        }
        let contents = Contents::open(&store, 1 << 20).unwrap();
        contents.put_bytes(b"new\n").unwrap();
        let mut swaps = Vec::new();
        for number in 0..16 {
            let (path, old) = (format!("d{number}/file"), format!("{number} old\n"));
            std::fs::create_dir(tree.join(format!("d{number}"))).unwrap();
            std::fs::write(tree.join(&path), &old).unwrap();
            std::fs::set_permissions(tree.join(&path), PermissionsExt::from_mode(0o644)).unwrap();
            let after = if number % 2 == 0 {
                new()
            } else {
                Image::Absent
            };
            swaps.push(swap(&path, file(&old, 0o644), after));
        }
        let before = tree_of(&tree);
        fill_but(&data, free_kb);
        let root = Root::open(&tree).unwrap();
        let done = land(&root, &swaps, &contents, &contents, &journal, &|_| {});
        match &done {
            Ok(_) => {
                landed += 1;
                let undo = undo::plan(&root, &swaps, &contents).unwrap();
                assert_eq!((undo.swaps.len(), undo.conflicts.len()), (16, 0));
            }
            Err(LandError::Unfinished(why)) => panic!("{free_kb}: {why}"),
            Err(_) => {
                refused += 1;
                assert_eq!(tree_of(&tree), before, "{free_kb}: {done:?}");
            }
        }
        std::fs::remove_file(data.join("ballast")).unwrap();
        assert_eq!(
            recover(&journal, &contents, &|_, _| {}).unwrap(),
            None,
            "{free_kb}"
        );
        std::fs::remove_dir_all(&store).unwrap();
    }
    assert!(
        landed > 0 && refused > 3,
        "{landed} landed, {refused} refused"
    );
}

/// Fills a file system and leaves this number of kilobytes free.
fn fill_but(data: &Path, free_kb: u64) {
    let disk = rustix::fs::statvfs(data).unwrap();
    let free = disk.f_bavail * disk.f_frsize / 1024;
    let ballast = vec![1; usize::try_from(free.saturating_sub(free_kb) * 1024).unwrap()];
    std::fs::write(data.join("ballast"), ballast).unwrap();
}

fn land_on_mounts(tree: &Path) {
    let above = tree.parent().unwrap();
    let contents = Contents::open(&above.join("contents"), 1 << 20).unwrap();
    contents.put_bytes(b"new\n").unwrap();
    std::fs::create_dir(tree.join("mnt/gone")).unwrap();
    for path in ["here", "mnt/gone/there", "bound/same"] {
        std::fs::write(tree.join(path), "old\n").unwrap();
        std::fs::set_permissions(tree.join(path), PermissionsExt::from_mode(0o644)).unwrap();
    }
    let swaps = [
        swap("here", file("old\n", 0o644), new()),
        swap("bound/same", file("old\n", 0o644), new()),
        swap("mnt/gone/there", file("old\n", 0o644), Image::Absent),
        swap("mnt/deep/new", Image::Absent, new()),
    ];
    let (root, journal) = (Root::open(tree).unwrap(), above.join("journal"));
    // It dies before the last path, which is new; recovery lands that one, too.
    let disk = dead_from("rename_new");
    land_through(&disk, &root, &swaps, &contents, &contents, &journal).unwrap_err();
    for place in ["", "mnt", "bound"] {
        let names = std::fs::read_dir(tree.join(place))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        assert_eq!(
            names.filter(|name| is_staging(name)).count(),
            1,
            "`{place}`"
        );
    }
    let found = recover(&journal, &contents, &|_, _| {}).unwrap().unwrap();
    assert_eq!((found.landed, found.left), (true, vec![]));
    let now = tree_of(tree);
    assert!(
        ["here", "bound/same", "mnt/deep/new"]
            .iter()
            .all(|path| now[*path].2 == b"new\n"),
        "{now:?}"
    );
    assert!(
        now.keys()
            .all(|path| !path.contains(STAGING) && path != "mnt/gone"),
        "{now:?}"
    );
    let undo = undo::plan(&root, &swaps, &contents).unwrap();
    land(&root, &undo.swaps, &contents, &contents, &journal, &|_| {}).unwrap();
    let back = tree_of(tree);
    assert!(
        ["here", "bound/same", "mnt/gone/there"]
            .iter()
            .all(|path| back[*path].2 == b"old\n"),
        "{back:?}"
    );
}
