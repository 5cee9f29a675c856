//! Tests of the workspace: paths in all spellings, with the kernel's lookup and with the walk, and files outside that
//! must not change.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

struct WorkspaceFixture {
    /// Contains `ws`, the workspace, and `outside`, which must not change.
    dir: tempfile::TempDir,
    root: Root,
}

fn fixture() -> WorkspaceFixture {
    let dir = tempfile::tempdir().unwrap();
    let ws = dir.path().join("ws");
    for folder in ["ws/src/deep", "ws/.git", "outside"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    for (file, text) in [
        ("ws/a.txt", "inside"),
        ("ws/src/lib.rs", "lib"),
        ("ws/.git/config", "cfg"),
        ("outside/secret", "top secret"),
    ] {
        std::fs::write(dir.path().join(file), text).unwrap();
    }
    for (target, link) in [
        ("src", "dirlink"),
        ("src/lib.rs", "filelink"),
        ("../outside", "out"),
        ("../outside/secret", "outfile"),
        ("../outside/new", "outnew"),
        ("src/new.rs", "dangling"),
        ("loop2", "loop1"),
        ("loop1", "loop2"),
        ("..", "up"),
    ] {
        symlink(target, ws.join(link)).unwrap();
    }
    symlink(dir.path().join("outside"), ws.join("absout")).unwrap();
    let root = Root::open_workspace(&ws, &[]).unwrap();
    WorkspaceFixture { dir, root }
}

impl WorkspaceFixture {
    fn absolute(&self, below: &str) -> String {
        format!("{}/{below}", self.root.root().display())
    }

    fn outside_is_untouched(&self) {
        let outside = self.dir.path().join("outside");
        let names: Vec<_> = std::fs::read_dir(&outside).unwrap().collect();
        assert_eq!(names.len(), 1);
        assert_eq!(
            std::fs::read(outside.join("secret")).unwrap(),
            b"top secret"
        );
    }
}

/// Reads a path with the kernel's lookup and with the walk; both must give the same result.
#[track_caller]
fn check_read(fixture: &mut WorkspaceFixture, path: &str, expect: &str) {
    let answer = |root: &Root| match root.read(path, 1000) {
        Ok(bytes) => String::from_utf8(bytes).unwrap(),
        Err(err) => variant(&err).to_owned(),
    };
    fixture.root.kernel = KernelLookup::default();
    assert_eq!(answer(&fixture.root), expect, "{path} by the kernel");
    fixture.root.kernel = KernelLookup::absent();
    assert_eq!(answer(&fixture.root), expect, "{path} by the walk");
}

fn variant(err: &FileError) -> &'static str {
    match err.kind {
        FileErrorKind::NotFound => "not found",
        FileErrorKind::Outside => "outside",
        FileErrorKind::BadInput => "bad input",
        FileErrorKind::WrongKind => "wrong kind",
        FileErrorKind::TooLarge => "too large",
        FileErrorKind::Exists => "exists",
        FileErrorKind::Permission => "permission",
        FileErrorKind::Full
        | FileErrorKind::Changed
        | FileErrorKind::Cancelled
        | FileErrorKind::Io => "io",
    }
}

#[test]
fn reading_stays_beneath_the_root_however_the_path_is_spelled() {
    let mut f = fixture();
    let inside = f.absolute("a.txt");
    let through_link = f.absolute("absout/secret");
    let climbing = f.absolute("../outside/secret");
    let sibling = format!("{}-sibling/a.txt", f.root.root().display());
    for (path, expect) in [
        ("a.txt", "inside"),
        ("./src/../a.txt", "inside"),
        ("src//lib.rs", "lib"),
        ("dirlink/lib.rs", "lib"),
        ("dirlink/../a.txt", "inside"),
        ("filelink", "lib"),
        (inside.as_str(), "inside"),
        (through_link.as_str(), "outside"),
        (climbing.as_str(), "outside"),
        (sibling.as_str(), "outside"),
        ("/etc/passwd", "outside"),
        ("..", "outside"),
        ("../ws/a.txt", "outside"),
        ("src/../../ws/a.txt", "outside"),
        ("out/secret", "outside"),
        ("outfile", "outside"),
        ("up/outside/secret", "outside"),
        ("absout/secret", "outside"),
        ("loop1", "bad input"),
        ("missing", "not found"),
        ("missing/../a.txt", "not found"),
        ("src", "wrong kind"),
        (".", "wrong kind"),
        ("", "bad input"),
        ("a\0b", "bad input"),
    ] {
        check_read(&mut f, path, expect);
    }
    let long = "x/".repeat(3000);
    check_read(&mut f, &long, "bad input");
    check_read(&mut f, &"x".repeat(300), "bad input");
}

#[test]
fn pipes_devices_and_sockets_are_refused_at_once() {
    let mut f = fixture();
    let ws = f.root.root().to_owned();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        ws.join("pipe"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(ws.join("socket")).unwrap();
    check_read(&mut f, "pipe", "wrong kind");
    check_read(&mut f, "socket", "wrong kind");
    let write = |path| f.root.write(path, b"x");
    assert_eq!(variant(&write("pipe").unwrap_err()), "wrong kind");
    assert_eq!(variant(&write("socket").unwrap_err()), "wrong kind");
    assert_eq!(variant(&write("src").unwrap_err()), "wrong kind");
    assert_eq!(variant(&write(".").unwrap_err()), "wrong kind");
}

#[test]
fn a_file_over_the_limit_is_refused_with_its_size_and_can_be_read_by_range() {
    let f = fixture();
    f.root.write("big", b"0123456789").unwrap();
    let err = f.root.read("big", 9).unwrap_err();
    assert!(err.to_string().contains("10 bytes"), "{err}");
    assert_eq!(f.root.read("big", 10).unwrap(), b"0123456789");
    assert_eq!(f.root.read_range("big", 3, 4).unwrap(), b"3456");
    assert_eq!(f.root.read_range("big", 8, 100).unwrap(), b"89");
    assert_eq!(f.root.read_range("big", 100, u64::MAX).unwrap(), b"");
}

#[track_caller]
fn check_resolve(f: &WorkspaceFixture, path: &str, expect: Result<(&str, Option<FileKind>), &str>) {
    match (f.root.resolve(path), expect) {
        (Ok(found), Ok((real, kind))) => {
            assert_eq!((found.path.as_str(), found.inside), (real, true), "{path}");
            assert_eq!(found.kind, kind, "{path}");
        }
        (Err(err), Err(name)) => assert_eq!(variant(&err), name, "{path}"),
        (found, expect) => panic!("{path}: {found:?} instead of {expect:?}"),
    }
}

#[test]
fn a_path_is_resolved_to_its_real_location() {
    let f = fixture();
    symlink("../.git", f.root.root().join("src/g")).unwrap();
    let file = Some(FileKind::File);
    check_resolve(&f, "dirlink/../.git/config", Ok((".git/config", file)));
    check_resolve(&f, "src/g/config", Ok((".git/config", file)));
    check_resolve(&f, "src/g/hooks/new", Ok((".git/hooks/new", None)));
    check_resolve(&f, "dangling", Ok(("src/new.rs", None)));
    check_resolve(&f, "dirlink", Ok(("src", Some(FileKind::Directory))));
    check_resolve(&f, "src/..", Ok((".", Some(FileKind::Directory))));
    check_resolve(
        &f,
        "src/deep/.",
        Ok(("src/deep", Some(FileKind::Directory))),
    );
    check_resolve(&f, "no/such/place", Ok(("no/such/place", None)));
    check_resolve(&f, "no/../a.txt", Err("not found"));
    check_resolve(&f, "a.txt/x", Err("wrong kind"));
    check_resolve(&f, "../ws/a.txt", Ok(("a.txt", file)));
}

#[test]
fn a_path_that_leads_out_is_resolved_to_its_target() {
    let f = fixture();
    let outside = std::fs::canonicalize(f.dir.path().join("outside")).unwrap();
    for (path, below, kind) in [
        ("out/secret", "secret", Some(FileKind::File)),
        ("out/x/y", "x/y", None),
        ("outnew", "new", None),
        ("absout/secret", "secret", Some(FileKind::File)),
        ("src/../../outside/secret", "secret", Some(FileKind::File)),
    ] {
        let found = f.root.resolve(path).unwrap();
        let expect = outside.join(below).to_string_lossy().into_owned();
        assert_eq!(
            (found.path, found.inside, found.kind),
            (expect, false, kind),
            "{path}"
        );
    }
    let found = f.root.resolve("/etc/../etc/passwd").unwrap();
    assert_eq!((found.path.as_str(), found.inside), ("/etc/passwd", false));
}

#[test]
fn a_write_keeps_the_mode_and_replaces_the_target_of_an_inner_link() {
    let f = fixture();
    let lib = f.root.root().join("src/lib.rs");
    std::fs::set_permissions(&lib, std::fs::Permissions::from_mode(0o750)).unwrap();
    f.root.write("filelink", b"new").unwrap();
    assert_eq!(std::fs::read(&lib).unwrap(), b"new");
    assert_eq!(lib.metadata().unwrap().permissions().mode() & 0o777, 0o750);
    assert!(f.root.root().join("filelink").is_symlink());

    f.root.write("dangling", b"x").unwrap();
    assert_eq!(f.root.read("src/new.rs", 9).unwrap(), b"x");
    assert_eq!(f.root.stat("src/new.rs").unwrap().mode & 0o700, 0o600);
}

#[test]
fn a_write_that_would_leave_the_workspace_changes_nothing() {
    let f = fixture();
    for path in [
        "out/secret",
        "out/sub/new",
        "outfile",
        "outnew",
        "absout/x",
        "up/outside/x",
        "../outside/x",
        "/tmp/windlass-must-not-exist",
    ] {
        let err = f.root.write(path, b"evil").unwrap_err();
        assert_eq!(variant(&err), "outside", "{path}");
    }
    assert_eq!(
        variant(&f.root.remove("out/secret").unwrap_err()),
        "outside"
    );
    let err = f.root.rename("a.txt", "out/a.txt", true).unwrap_err();
    assert_eq!(variant(&err), "outside");
    f.outside_is_untouched();
}

#[test]
fn parents_are_created_and_no_draft_is_left() {
    let f = fixture();
    f.root.write("x/y/z.txt", b"1").unwrap();
    f.root.write("x/y/z.txt", b"2").unwrap();
    assert_eq!(
        variant(&f.root.write("a.txt/x", b"1").unwrap_err()),
        "wrong kind"
    );
    assert_eq!(
        variant(&f.root.write("x/y", b"1").unwrap_err()),
        "wrong kind"
    );
    let names = f.root.list("x/y", 10).unwrap().entries;
    assert_eq!(names, [("z.txt".to_owned(), FileKind::File, 1)]);
}

#[test]
fn the_next_write_removes_drafts_of_dead_processes() {
    let f = fixture();
    // No process has the largest id, the second one is this process, and the third name is not a draft.
    let ours = format!("x/.windlass-{:08x}00000000.tmp", std::process::id());
    for name in [
        "x/.windlass-7fffffff00000000.tmp",
        ours.as_str(),
        "x/.windlass-7fffffff.tmp",
    ] {
        std::fs::create_dir_all(f.root.root().join("x")).unwrap();
        std::fs::write(f.root.root().join(name), "").unwrap();
    }
    f.root.write("x/a.txt", b"1").unwrap();
    let left = |name: &str| f.root.root().join(name).exists();
    assert!(
        !left("x/.windlass-7fffffff00000000.tmp"),
        "its process is dead"
    );
    assert!(left(&ours) && left("x/.windlass-7fffffff.tmp") && left("x/a.txt"));
}

#[test]
fn a_read_only_file_is_not_replaced() {
    let f = fixture();
    let path = f.root.root().join("a.txt");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let err = f.root.write("a.txt", b"x").unwrap_err();
    assert_eq!(variant(&err), "permission");
    assert_eq!(std::fs::read(path).unwrap(), b"inside");
}

#[test]
fn removing_and_moving_apply_to_the_symlink_itself() {
    let f = fixture();
    f.root.remove("outfile").unwrap();
    assert!(!f.root.root().join("outfile").is_symlink());
    f.outside_is_untouched();
    assert_eq!(variant(&f.root.remove("src").unwrap_err()), "wrong kind");
    assert_eq!(variant(&f.root.remove("nope").unwrap_err()), "not found");

    let err = f.root.rename("a.txt", "src/lib.rs", false).unwrap_err();
    assert_eq!(variant(&err), "exists");
    f.root.rename("a.txt", "dirlink/b.txt", false).unwrap();
    assert_eq!(f.root.read("src/b.txt", 100).unwrap(), b"inside");
    f.root.rename("src/b.txt", "src/lib.rs", true).unwrap();
    assert_eq!(f.root.read("src/lib.rs", 100).unwrap(), b"inside");
    f.root.rename("src", "new/place", false).unwrap();
    assert_eq!(f.root.read("new/place/lib.rs", 100).unwrap(), b"inside");
    let moved = f.root.rename("new", "new/place/below", false);
    assert_eq!(variant(&moved.unwrap_err()), "io");
    let moved = f.root.rename(".", "x", false);
    assert_eq!(variant(&moved.unwrap_err()), "bad input");
}

#[test]
fn a_listing_is_sorted_and_bounded_and_follows_no_link() {
    let f = fixture();
    let listing = f.root.list(".", 4).unwrap();
    let names: Vec<_> = listing
        .entries
        .iter()
        .map(|(name, kind, _)| (name.as_str(), *kind))
        .collect();
    assert_eq!(
        names,
        [
            (".git", FileKind::Directory),
            ("a.txt", FileKind::File),
            ("absout", FileKind::Link),
            ("dangling", FileKind::Link),
        ]
    );
    assert_eq!(listing.entries[1].2, 6);
    assert!(listing.more && !f.root.list("", 100).unwrap().more);
    assert_eq!(variant(&f.root.list("a.txt", 4).unwrap_err()), "wrong kind");
    assert_eq!(variant(&f.root.list("out", 4).unwrap_err()), "outside");
}

#[test]
fn a_directory_swapped_for_a_link_during_the_lookup_never_leads_out() {
    let mut f = fixture();
    let ws = f.root.root().to_owned();
    std::fs::create_dir(ws.join("swap")).unwrap();
    std::fs::write(ws.join("swap/secret"), "inside").unwrap();
    symlink("../outside", ws.join("evil")).unwrap();
    for by_kernel in [true, false] {
        if !by_kernel {
            f.root.kernel = KernelLookup::absent();
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The exchange is atomic: `swap` is always either the directory or the symlink.
                while !stop.load(Ordering::Relaxed) {
                    let (a, b) = (ws.join("swap"), ws.join("evil"));
                    let cwd = rustix::fs::CWD;
                    let _ = rustix::fs::renameat_with(
                        cwd,
                        &a,
                        cwd,
                        &b,
                        rustix::fs::RenameFlags::EXCHANGE,
                    );
                }
            });
            for round in 0..300 {
                if let Ok(bytes) = f.root.read("swap/secret", 100) {
                    assert_ne!(bytes, b"top secret", "round {round}");
                }
                let _ = f.root.write("swap/planted", b"x");
                let _ = f.root.rename("a.txt", "swap/a.txt", true);
                let _ = f.root.rename("swap/a.txt", "a.txt", true);
                let _ = f.root.remove("swap/planted");
            }
            stop.store(true, Ordering::Relaxed);
        });
        f.outside_is_untouched();
    }
}

#[test]
fn an_unfit_directory_is_refused_as_a_workspace() {
    let f = fixture();
    let home = f.dir.path().to_owned();
    let ws = f.root.root().to_owned();
    let open = |path: &Path| Root::open_workspace(path, std::slice::from_ref(&home));
    let message = |path: &Path| open(path).unwrap_err().to_string();
    assert!(message(&home.join("nope")).contains("no such directory"));
    assert!(message(&ws.join("a.txt")).contains("not a directory"));
    assert!(message(&home).contains("refused as a workspace"));
    assert!(message(&home.join("ws/..")).contains("refused as a workspace"));
    assert!(message(Path::new("/")).contains("refused as a workspace"));
    symlink(&home, home.join("homelink")).unwrap();
    let through_link = Root::open_workspace(&home, &[home.join("homelink")]);
    assert!(matches!(through_link, Err(OpenError::Unfit(_))));
    assert!(open(&ws).is_ok());
}

#[test]
fn the_root_is_the_git_top_level_or_the_directory_itself() {
    let f = fixture();
    let ws = f.root.root().to_owned();
    let home = std::fs::canonicalize(f.dir.path()).unwrap();
    assert_eq!(discover(&ws.join("src/deep"), &[]).unwrap(), ws);
    // A worktree has a file named `.git`.
    let tree = home.join("tree/sub");
    std::fs::create_dir_all(&tree).unwrap();
    assert_eq!(discover(&tree, std::slice::from_ref(&home)).unwrap(), tree);
    std::fs::write(home.join("tree/.git"), "gitdir: elsewhere").unwrap();
    assert_eq!(discover(&tree, &[]).unwrap(), home.join("tree"));
    // A home directory under git does not become the workspace of the projects in it.
    std::fs::create_dir(home.join(".git")).unwrap();
    let plain = home.join("plain");
    std::fs::create_dir(&plain).unwrap();
    assert_eq!(
        discover(&plain, std::slice::from_ref(&home)).unwrap(),
        plain
    );
    assert!(matches!(
        discover(&home.join("nope"), &[]),
        Err(OpenError::Missing(_))
    ));
}

#[test]
fn a_deleted_workspace_is_noticed() {
    let f = fixture();
    assert!(!f.root.is_gone());
    std::fs::remove_dir_all(f.root.root()).unwrap();
    assert!(f.root.is_gone());
    let err = f.root.write("x", b"x").unwrap_err();
    assert_eq!(variant(&err), "not found");
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_path_text_panics_or_reads_the_outside(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "..", ".", "", "src", "out", "absout", "dirlink", "up", "secret", "outside", "a.txt",
                    "loop1", "ws", "deep", "g\u{0}", "é", "new",
                ]),
                0..8,
            ),
            absolute in any::<bool>(),
        ) {
            let mut f = fixture();
            let joined = parts.join("/");
            let path = if absolute { f.absolute(&joined) } else { joined };
            for kernel in [KernelLookup::default(), KernelLookup::absent()] {
                f.root.kernel = kernel;
                if let Ok(bytes) = f.root.read(&path, 100) {
                    prop_assert_ne!(bytes, b"top secret".to_vec());
                }
                let resolved = f.root.resolve(&path);
                // The path that the gate judges is the path that is written.
                if let (Ok(resolved), Ok(())) = (resolved, f.root.write(&path, b"w")) {
                    prop_assert!(resolved.inside);
                    prop_assert_eq!(f.root.read(&resolved.path, 9).unwrap(), b"w");
                }
            }
            f.outside_is_untouched();
        }
    }
}

/// A rewrite keeps mode and attributes.
#[test]
fn a_rewrite_keeps_mode_and_attributes() {
    let f = fixture();
    let file = f.root.root().join("a.txt");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o751)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    // Some file systems have no extended attributes.
    let has = rustix::fs::setxattr(&file, "user.note", b"kept", flags).is_ok();
    f.root.write("a.txt", b"new").unwrap();
    assert_eq!(
        file.metadata().unwrap().permissions().mode() & 0o7777,
        0o751
    );
    let mut value = [0; 9];
    let read = rustix::fs::getxattr(&file, "user.note", &mut value);
    assert_eq!(
        read.map(|len| value[..len].to_vec()).ok(),
        has.then(|| b"kept".to_vec())
    );
}

/// A full disk keeps the old content, and leaves no partial file and no draft. A limit on the file size stands in for
/// the full disk; it applies to a whole process, so the test runs itself in another process.
#[test]
fn a_full_disk_keeps_the_old_content() {
    if std::env::var_os("WINDLASS_TEST_FULL").is_none() {
        let me = std::env::current_exe().unwrap();
        let run = std::process::Command::new("sh")
            .args([
                "-c",
                "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact workspace::tests::a_full_disk_keeps_the_old_content",
            ])
            .arg(me)
            .env("WINDLASS_TEST_FULL", "1")
            .output()
            .unwrap();
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stdout)
        );
        return;
    }
    let f = fixture();
    let before = std::fs::read_dir(f.root.root()).unwrap().count();
    for path in ["a.txt", "brand-new.txt"] {
        assert!(f.root.write(path, &vec![b'x'; 1 << 20]).is_err());
    }
    assert_eq!(
        std::fs::read(f.root.root().join("a.txt")).unwrap(),
        b"inside"
    );
    assert_eq!(std::fs::read_dir(f.root.root()).unwrap().count(), before);
    f.root.write("a.txt", b"fits").unwrap();
}

/// Another thread swaps a directory and a file for symlinks that lead out, as fast as possible, while both are written
/// and read. No operation changes or reads a file outside.
#[cfg(target_os = "linux")]
#[test]
fn two_thousand_swaps_never_lead_out() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    const ROUNDS: u32 = 2_000;
    for by_kernel in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (work, out) = (dir.path().join("work"), dir.path().join("out"));
        for path in [work.join("d"), out.clone()] {
            std::fs::create_dir_all(path).unwrap();
        }
        std::fs::write(out.join("f.txt"), "original").unwrap();
        std::fs::write(work.join("d/f.txt"), "inside").unwrap();
        std::fs::write(work.join("g.txt"), "inside").unwrap();
        std::os::unix::fs::symlink(&out, work.join("d-link")).unwrap();
        std::os::unix::fs::symlink(out.join("f.txt"), work.join("g-link")).unwrap();
        let mut root = Root::open(&work).unwrap();
        if !by_kernel {
            root.kernel = KernelLookup::absent();
        }
        let (done, swaps) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU32::new(0)),
        );
        let swapper = std::thread::spawn({
            let (done, swaps, work) = (done.clone(), swaps.clone(), work.clone());
            move || {
                while !done.load(Ordering::Relaxed) {
                    for (a, b) in [("d", "d-link"), ("g.txt", "g-link")] {
                        // A write may have replaced the symlink with a file; then the swap fails.
                        let _ = renameat_with(
                            CWD,
                            work.join(a),
                            CWD,
                            work.join(b),
                            RenameFlags::EXCHANGE,
                        );
                    }
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut rounds = 0;
        while rounds < ROUNDS || swaps.load(Ordering::Relaxed) < ROUNDS {
            for path in ["d/f.txt", "g.txt"] {
                let _ = root.write(path, b"inside");
                if let Ok(bytes) = root.read(path, 99) {
                    assert_eq!(bytes, b"inside", "{path} was read from outside");
                }
                let _ = root.write("d/new.txt", b"inside");
                let _ = root.rename("d/new.txt", "d/moved.txt", true);
                let _ = root.remove("d/moved.txt");
            }
            rounds += 1;
        }
        done.store(true, Ordering::Relaxed);
        swapper.join().unwrap();
        assert_eq!(std::fs::read(out.join("f.txt")).unwrap(), b"original");
        let left: Vec<_> = std::fs::read_dir(&out)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["f.txt"]);
    }
}

#[test]
fn a_file_is_replaced_only_if_its_content_is_the_expected_one() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    root.replace("a", None, b"one").unwrap();
    root.replace("a", Some(b"one"), b"two").unwrap();
    for read in [Some(b"one".as_slice()), Some(b"t"), None] {
        let err = root.replace("a", read, b"three").unwrap_err();
        assert_eq!(err.kind, FileErrorKind::Changed, "{err}");
    }
    let err = root.replace("gone", Some(b"one"), b"two").unwrap_err();
    assert_eq!(err.kind, FileErrorKind::Changed, "{err}");
    assert_eq!(root.read("a", 9).unwrap(), b"two");
}
