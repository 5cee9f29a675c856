//! What a landing refuses and says, what it keeps, and how it ends when the machine is not kind.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use rustix::io::Errno;
use windlass_host::workspace::is_staging;
use windlass_needs::{Need, lacks};

use super::check::clashes;
use super::testing::{Scene, change, file, land_through, link, old_tree, swap, tree_of};
use super::*;

fn landed_through(disk: &Disk, scene: &Scene, swaps: &[Swap]) -> Result<Done, LandError> {
    land_through(
        disk,
        &scene.root(),
        swaps,
        &scene.contents,
        &scene.contents,
        &scene.journal(),
    )
}

fn landed(scene: &Scene, swaps: &[Swap]) -> Result<Done, LandError> {
    landed_through(&Disk::default(), scene, swaps)
}

/// A tree with a file, a link, a directory and a pipe; a good change beside the one that is refused never lands.
fn small() -> Scene {
    let scene = Scene::new();
    scene.file("file", "old\n", 0o644);
    scene.file("dir/inner", "inner\n", 0o644);
    scene.link("link", "dir");
    rustix::fs::mkfifoat(rustix::fs::CWD, scene.tree().join("pipe"), 0o600.into()).unwrap();
    scene.contents.put_bytes(b"new\n").unwrap();
    scene
}

#[track_caller]
fn check_refused(scene: &Scene, disk: &Disk, refused: Swap, reason: &str) {
    let old = tree_without_pipe(scene);
    let path = refused.path.clone();
    let good = swap("good", Image::Absent, file("new\n", 0o644));
    let said = match landed_through(disk, scene, &[good, refused]).unwrap_err() {
        LandError::Conflict { refused, left } => {
            assert_eq!((refused.len(), left), (1, vec![]), "{refused:?}");
            assert_eq!(refused[0].path, path);
            refused[0].reason.clone()
        }
        err => err.to_string(),
    };
    assert!(said.contains(reason), "{said}");
    assert_eq!(tree_without_pipe(scene), old);
    assert!(!scene.journal().join("journal.json").exists());
}

fn tree_without_pipe(scene: &Scene) -> std::collections::BTreeMap<String, (char, u32, Vec<u8>)> {
    let _ = std::fs::remove_file(scene.tree().join("pipe"));
    tree_of(&scene.tree())
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
    check("file", link("x"), new(), "it was a link and became a file");
    check("link", file("x", 0o644), new(), "it became a symbolic link");
    check("link", link("elsewhere"), new(), "it was changed meanwhile");
    check(
        "file",
        Image::Absent,
        new(),
        "something is there that was not there before",
    );
    check(
        "absent",
        file("x", 0o644),
        new(),
        "it was deleted meanwhile",
    );
    check("dir", Image::Absent, new(), "a directory is in its place");
    check(
        "dir",
        file("x", 0o644),
        Image::Absent,
        "a directory is in its place",
    );
    check("file/x", Image::Absent, new(), "its parent file is a file");
    check(
        "link/inner",
        Image::Absent,
        new(),
        "its parent link is a symbolic link",
    );
}

#[test]
fn an_edit_of_the_same_size_and_time_is_seen() {
    let scene = small();
    let (path, before) = (
        scene.tree().join("file"),
        look(&scene.root(), "file").unwrap(),
    );
    let time = path.metadata().unwrap().modified().unwrap();
    std::fs::write(&path, "odl\n").unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert_ne!(look(&scene.root(), "file").unwrap(), before);
    check_refused(
        &scene,
        &Disk::default(),
        swap("file", before, new()),
        "it was changed meanwhile",
    );
}

#[test]
fn a_pipe_in_the_way_is_refused_without_waiting_for_it() {
    let scene = small();
    let err = landed(&scene, &[swap("pipe", Image::Absent, new())]).unwrap_err();
    assert!(
        err.to_string()
            .contains("pipe: a pipe, socket or device is in its place"),
        "{err}"
    );
}

#[test]
fn a_path_that_leads_out_or_is_not_plain_is_refused() {
    for path in ["../out", "/etc/out", "dir/../../out", "."] {
        check(path, Image::Absent, new(), "leads out of the workspace");
    }
    check("", Image::Absent, new(), "it is empty");
    for path in ["dir//x", "dir/./x", "x/"] {
        check(path, Image::Absent, new(), "it must be written plainly");
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
fn a_change_that_is_not_sound_is_refused() {
    check("x", Image::Absent, file("new\n", 0o4755), "set-user-id");
    check(
        "x",
        Image::Absent,
        file("new\n", 0o200),
        "its owner could not read it",
    );
    check("x", Image::Absent, link(""), "no file system takes");
    check("good", Image::Absent, new(), "named twice");
    check("x", Image::Absent, file("never stored", 0o644), "not kept");
}

#[test]
fn bytes_that_are_not_the_promised_ones_do_not_land() {
    struct Wrong(std::path::PathBuf);
    impl Source for Wrong {
        fn open(&self, _: &Swap) -> io::Result<File> {
            File::open(&self.0)
        }
    }
    let scene = small();
    let source = Wrong(scene.tree().join("dir/inner"));
    let swaps = [swap("x", Image::Absent, new())];
    let err = land(
        &scene.root(),
        &swaps,
        &source,
        &scene.contents,
        &scene.journal(),
    )
    .unwrap_err();
    assert!(
        err.to_string().contains("not the ones that were promised"),
        "{err}"
    );
    assert!(!scene.tree().join("x").exists());
}

#[test]
fn names_and_link_targets_that_are_not_utf8_land() {
    let scene = Scene::new();
    let tree = scene.tree();
    let (dir, name) = (OsStr::from_bytes(b"d\xfe"), OsStr::from_bytes(b"f\xff"));
    std::fs::create_dir(tree.join(dir)).unwrap();
    std::fs::write(tree.join(dir).join(name), "old\n").unwrap();
    symlink(OsStr::from_bytes(b"\xff"), tree.join("link")).unwrap();
    scene.contents.put_bytes(b"new\n").unwrap();
    let before = |path: &str| look(&scene.root(), path).unwrap();
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
    landed(&scene, &swaps).unwrap();
    let read = |path: PathBuf| std::fs::read_to_string(tree.join(path)).unwrap();
    assert_eq!(read(Path::new(dir).join(name)), "new\n");
    assert_eq!(
        read(Path::new(OsStr::from_bytes(b"n\xff")).join("x")),
        "new\n"
    );
    let target = std::fs::read_link(tree.join("link")).unwrap();
    assert_eq!(target.as_os_str().as_bytes(), b"a/\xfe");
    let gone = [swap(text, file("new\n", 0o644), Image::Absent)];
    landed(&scene, &gone).unwrap();
    assert!(!tree.join(dir).exists(), "the empty folder goes, too");
}

/// The n-th call of a kind fails.
fn failing(what: &'static str, errno: Errno) -> Disk {
    Disk::watched(Box::new(
        move |_, call| if call == what { Err(errno) } else { Ok(()) },
    ))
}

/// The process is dead from the first call of a kind on.
fn dead_from(what: &'static str) -> Disk {
    let dead = std::cell::Cell::new(false);
    Disk::watched(Box::new(move |_, call| {
        dead.set(dead.get() || call == what);
        if dead.get() { Err(Errno::IO) } else { Ok(()) }
    }))
}

#[test]
fn a_machine_that_refuses_says_why() {
    let put = || swap("dir/x", Image::Absent, new());
    let scene = small();
    for (what, errno, reason) in [
        ("make_dir", Errno::ROFS, "the file system is read-only"),
        ("make_dir", Errno::ACCESS, "permission denied"),
        ("write", Errno::NOSPC, "no space is left"),
    ] {
        check_refused(&scene, &failing(what, errno), put(), reason);
    }
    // Only the directory of one path may not be written.
    let disk = Disk::watched(Box::new({
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
        &scene,
        &disk,
        put(),
        "its directory `dir` may not be written",
    );
}

#[test]
fn a_read_only_directory_is_refused_before_anything_happens() {
    let scene = small();
    let dir = scene.tree().join("dir");
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o555)).unwrap();
    let put = swap("dir/x", Image::Absent, new());
    if rustix::process::geteuid().is_root() {
        // Nothing is read-only to the superuser.
        landed(&scene, &[put]).unwrap();
    } else {
        check_refused(
            &scene,
            &Disk::default(),
            put,
            "its directory `dir` may not be written",
        );
    }
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn an_owner_is_kept_or_the_file_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        return; // Nobody else can make a file that is not theirs.
    }
    let scene = small();
    std::os::unix::fs::chown(scene.tree().join("file"), Some(4242), Some(4243)).unwrap();
    let change = || swap("file", file("old\n", 0o644), file("new\n", 0o640));
    check_refused(
        &scene,
        &failing("set_owner", Errno::PERM),
        change(),
        "it belongs to somebody else (user 4242)",
    );
    landed(&scene, &[change()]).unwrap();
    let meta = scene.tree().join("file").metadata().unwrap();
    assert_eq!(
        (meta.uid(), meta.gid(), meta.mode() & 0o7777),
        (4242, 4243, 0o640)
    );
}

#[test]
fn names_that_differ_only_in_case_clash_where_case_does_not_count() {
    let said = clashes(["a/README", "b", "a/Readme"].into_iter());
    assert_eq!(said.len(), 1);
    assert!(
        said[0].path == "a/Readme" && said[0].reason.contains("same name as a/README"),
        "{said:?}"
    );
    let two = [
        swap("README", Image::Absent, new()),
        swap("readme", Image::Absent, new()),
    ];
    // The file system answers to the staging directory's name in capitals, as one without case would.
    let scene = small();
    let tree = scene.tree();
    let disk = Disk::watched(Box::new(move |_, _| {
        for entry in std::fs::read_dir(&tree).unwrap() {
            let name = entry.unwrap().file_name();
            if is_staging(&name) {
                let _ = std::fs::create_dir(tree.join(name.to_str().unwrap().to_uppercase()));
            }
        }
        Ok(())
    }));
    let err = landed_through(&disk, &scene, &two).unwrap_err();
    assert!(
        err.to_string()
            .contains("readme: on this file system it is the same name as README"),
        "{err}"
    );
    landed(&small(), &two).unwrap();
}

#[test]
fn a_landing_whose_old_bytes_cannot_be_kept_for_undo_is_rolled_back() {
    let scene = Scene::that_cannot_store("too large to keep\n");
    scene.file("large", "too large to keep\n", 0o644);
    scene.file("small", "old\n", 0o644);
    scene.contents.put_bytes(b"new\n").unwrap();
    let swaps = [
        swap(
            "large",
            file("too large to keep\n", 0o644),
            file("new\n", 0o644),
        ),
        swap("small", file("old\n", 0o644), Image::Absent),
    ];
    let before = tree_of(&scene.tree());
    let refused = landed(&scene, &swaps).unwrap_err().to_string();
    assert!(
        refused.contains("the old bytes of large cannot be stored"),
        "{refused}"
    );
    assert_eq!(tree_of(&scene.tree()), before);
    assert!(!scene.journal().join("journal.json").exists());
}

#[test]
fn a_large_landing_syncs_as_often_as_one_of_any_size() {
    let syncs = |files: usize| {
        let scene = Scene::new();
        scene.contents.put_bytes(b"new\n").unwrap();
        let paths: Vec<String> = (0..files).map(|at| format!("d{at}/f")).collect();
        paths
            .iter()
            .for_each(|path| scene.file(path, &format!("{path} old\n"), 0o644));
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
        let disk = Disk::watched(Box::new(move |_, call| {
            let mut count = count.borrow_mut();
            match call {
                "sync" => count.0 += 1,
                "sync_all" => count.1 += 1,
                _ => {}
            }
            Ok(())
        }));
        landed_through(&disk, &scene, &swaps).unwrap();
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
    let scene = small();
    assert_eq!(landed(&scene, &[]).unwrap(), Done::default());
    let same = swap("file", file("old\n", 0o644), file("old\n", 0o644));
    assert_eq!(landed(&scene, &[same]).unwrap(), Done::default());
    assert_eq!(recover(&scene.journal(), &scene.contents).unwrap(), None);
}

#[test]
fn a_landing_at_work_is_not_disturbed_and_a_dead_one_comes_first() {
    let scene = Scene::new();
    old_tree(&scene);
    let swaps = change(&scene);
    let desk = Desk::take(&Disk::default(), &scene.journal(), Duration::ZERO)
        .unwrap()
        .unwrap();
    assert_eq!(landed(&scene, &swaps), Err(LandError::Busy));
    assert_eq!(recover(&scene.journal(), &scene.contents).unwrap(), None);
    drop(desk);
    let dead = Disk::watched(Box::new(
        |call, _| if call > 250 { Err(Errno::IO) } else { Ok(()) },
    ));
    landed_through(&dead, &scene, &swaps).unwrap_err();
    assert!(matches!(
        landed(&scene, &swaps),
        Err(LandError::Unfinished(_))
    ));
    assert!(
        recover(&scene.journal(), &scene.contents)
            .unwrap()
            .is_some()
    );
}

/// A landing that died after its first exchange.
fn dead_in_the_middle(scene: &Scene) -> Vec<Swap> {
    for path in ["a", "b"] {
        scene.file(path, &format!("{path} old\n"), 0o644);
        scene
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
    let dead = Disk::watched(Box::new(move |_, what| {
        exchanged.set(exchanged.get() + u32::from(what == "exchange"));
        if exchanged.get() > 1 {
            Err(Errno::IO)
        } else {
            Ok(())
        }
    }));
    landed_through(&dead, scene, &swaps).unwrap_err();
    assert_eq!(
        std::fs::read_to_string(scene.tree().join("a")).unwrap(),
        "a new\n"
    );
    swaps
}

#[test]
fn recovery_goes_on_where_it_can_and_says_what_it_did() {
    let scene = Scene::new();
    dead_in_the_middle(&scene);
    let found = recover(&scene.journal(), &scene.contents).unwrap().unwrap();
    assert_eq!(
        (found.landed, found.paths, found.left),
        (true, vec!["a".to_owned(), "b".to_owned()], vec![])
    );
    assert_eq!(
        std::fs::read_to_string(scene.tree().join("b")).unwrap(),
        "b new\n"
    );
    assert!(
        scene
            .contents
            .has(blake3::hash(b"a old\n").to_hex().as_str()),
        "recovery keeps the undo too"
    );
}

#[test]
fn a_tree_whose_own_path_is_not_utf8_is_recovered_too() {
    let scene = Scene::new();
    let tree = scene.dir.path().join(OsStr::from_bytes(b"odd-\xff"));
    std::fs::create_dir(&tree).unwrap();
    scene.contents.put_bytes(b"new\n").unwrap();
    let swaps = [swap("x", Image::Absent, new())];
    let root = Root::open(&tree).unwrap();
    let dead = dead_from("rename_new");
    land_through(
        &dead,
        &root,
        &swaps,
        &scene.contents,
        &scene.contents,
        &scene.journal(),
    )
    .unwrap_err();
    let found = recover(&scene.journal(), &scene.contents).unwrap().unwrap();
    assert_eq!((found.root, found.landed), (tree.clone(), true));
    assert_eq!(std::fs::read_to_string(tree.join("x")).unwrap(), "new\n");
}

#[test]
fn old_bytes_that_have_no_place_stay_in_the_staging_directory_when_they_cannot_be_stored() {
    let scene = Scene::that_cannot_store("a old\n");
    dead_in_the_middle(&scene);
    // Somebody wrote to what was swapped, and to what was not yet: it cannot go on, and `a` cannot go back.
    std::fs::write(scene.tree().join("a"), "mine\n").unwrap();
    std::fs::write(scene.tree().join("b"), "mine too\n").unwrap();
    let found = recover(&scene.journal(), &scene.contents).unwrap().unwrap();
    assert!(
        !found.landed && found.left.len() == 3 && found.left[1..] == ["a", "b"],
        "{found:?}"
    );
    let staged = std::fs::read_to_string(scene.tree().join(&found.left[0]).join("0.new")).unwrap();
    assert_eq!(staged, "a old\n");
    assert_eq!(
        std::fs::read_to_string(scene.tree().join("a")).unwrap(),
        "mine\n"
    );
    assert_eq!(recover(&scene.journal(), &scene.contents).unwrap(), None);
}

#[test]
fn a_staging_directory_that_somebody_removed_is_reported_and_nothing_is_touched() {
    let scene = Scene::new();
    dead_in_the_middle(&scene);
    for entry in std::fs::read_dir(scene.tree()).unwrap() {
        let path = entry.unwrap().path();
        if is_staging(path.file_name().unwrap()) {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
    let found = recover(&scene.journal(), &scene.contents).unwrap().unwrap();
    assert_eq!((found.landed, found.left), (false, vec!["b".to_owned()]));
    assert_eq!(
        std::fs::read_to_string(scene.tree().join("a")).unwrap(),
        "a new\n"
    );
}

#[test]
fn a_journal_that_cannot_be_used_says_what_to_do() {
    let scene = Scene::new();
    dead_in_the_middle(&scene);
    std::fs::rename(scene.tree(), scene.dir.path().join("moved")).unwrap();
    let err = recover(&scene.journal(), &scene.contents).unwrap_err();
    assert!(
        err.to_string()
            .contains("make the directory reachable again"),
        "{err}"
    );
    std::fs::write(scene.journal().join("journal.json"), "{").unwrap();
    let err = recover(&scene.journal(), &scene.contents).unwrap_err();
    assert!(err.to_string().contains("cannot be read"), "{err}");
}

const MOUNTED: &str = "WINDLASS_TEST_MOUNTED";

/// Runs itself again in a mount namespace, where a part of the tree is on another file system and a part is the
/// same one by another mount.
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
    // Where no namespace can be made there is nothing to see.
    let Ok(ended) = ended else { return };
    let refused = matches!(ended.status.code(), Some(1 | 77)) && ended.stdout.is_empty();
    assert!(
        ended.status.success() || refused,
        "{}",
        String::from_utf8_lossy(&ended.stdout)
    );
}

/// Runs itself again with its stores on a small file system that gets full at every stage of a landing.
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
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
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
        let done = land(&root, &swaps, &contents, &contents, &journal);
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
        assert_eq!(recover(&journal, &contents).unwrap(), None, "{free_kb}");
        std::fs::remove_dir_all(&store).unwrap();
    }
    assert!(
        landed > 0 && refused > 3,
        "{landed} landed, {refused} refused"
    );
}

/// Leaves so much of a file system free.
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
    // It dies before the last path, which is new, and recovery brings that one too.
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
    let found = recover(&journal, &contents).unwrap().unwrap();
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
    land(&root, &undo.swaps, &contents, &contents, &journal).unwrap();
    let back = tree_of(tree);
    assert!(
        ["here", "bound/same", "mnt/gone/there"]
            .iter()
            .all(|path| back[*path].2 == b"old\n"),
        "{back:?}"
    );
}
