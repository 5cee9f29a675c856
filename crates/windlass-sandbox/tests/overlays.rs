//! An overlay or a copy at the workspace's path: commands and the engine work in the same tree, and the workspace stays
//! unchanged, byte for byte. Destructive commands run only inside a sandbox on a scratch folder.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::{helper, run, wait_until};
use windlass_needs::{Need, lacks};
use windlass_sandbox::{
    Access, HELPER_ARG, Helper, OpenedSandbox, OverlayDir, Protected, Protection, SandboxError,
    SandboxSession, Spec, Tier, Tree,
};

mod lab;

/// The id of an unprivileged user, which exists on every system.
const UNPRIVILEGED: u32 = 65534;

/// A workspace, the overlay over it, and the sandbox's settings.
struct OverlayLab {
    _scratch: tempfile::TempDir,
    base: PathBuf,
    helper: Helper,
    spec: Spec,
    before: BTreeMap<PathBuf, String>,
}

impl OverlayLab {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        for folder in ["ws/src/deep", "ws/old", "layer/upper", "layer/work", "out"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        for (name, text) in [
            ("README.md", "hello\n"),
            (".env", "TOKEN=planted\n"),
            ("src/a.rs", "a\n"),
            ("src/deep/b.rs", "b\n"),
            ("old/c.rs", "c\n"),
        ] {
            fs::write(base.join("ws").join(name), text).unwrap();
        }
        std::os::unix::fs::symlink("README.md", base.join("ws/link")).unwrap();
        let root = base.join("ws");
        let spec = Spec {
            tree: Tree::Layered {
                upper: base.join("layer/upper"),
                work: base.join("layer/work"),
                between: None,
            },
            hide: vec![root.join(".env")],
            ..Spec::around(root)
        };
        let before = listing(&spec.root);
        Self {
            _scratch: scratch,
            base,
            helper: helper(),
            spec,
            before,
        }
    }

    /// The same for an unprivileged user; `None` if the tests do not run as root.
    fn as_unprivileged() -> Option<Self> {
        let mut lab = Self::new();
        let become_somebody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let can = Command::new("setpriv")
            .args(become_somebody)
            .args(["test", "-x"])
            .arg(&lab.helper.program)
            .status();
        if !can.is_ok_and(|status| status.success()) {
            return None;
        }
        for path in [lab.base.clone()].into_iter().chain(tree_of(&lab.base)) {
            std::os::unix::fs::lchown(&path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        let args = become_somebody
            .iter()
            .map(Into::into)
            .chain([lab.helper.program.clone().into(), HELPER_ARG.into()])
            .collect();
        lab.helper = Helper {
            program: "setpriv".into(),
            args,
        };
        Some(lab)
    }

    fn for_each_user() -> impl Iterator<Item = Self> {
        [Some(Self::new()), Self::as_unprivileged()]
            .into_iter()
            .flatten()
    }

    fn open(&self) -> OpenedSandbox {
        SandboxSession::open(&self.helper, &self.spec).unwrap()
    }

    fn upper(&self, name: &str) -> PathBuf {
        self.base.join("layer/upper").join(name)
    }

    /// Checks that a command line in its own sandbox succeeds with this output and leaves the workspace unchanged.
    #[track_caller]
    fn check(&self, line: &str, expect: &str) {
        self.check_in(&self.open().session, line, expect);
    }

    #[track_caller]
    fn check_in(&self, session: &SandboxSession, line: &str, expect: &str) {
        let (ended, output) = run(session, &self.spec.root, line);
        assert_eq!(
            (ended.status.code(), output.trim()),
            (Some(0), expect),
            "{line}"
        );
        assert_eq!(listing(&self.spec.root), self.before, "{line}");
    }
}

/// Lists everything below a folder.
fn tree_of(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree_of(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}

/// Lists everything below a folder with its mode, times and content.
fn listing(folder: &Path) -> BTreeMap<PathBuf, String> {
    let one = |path: PathBuf| {
        let seen = path.symlink_metadata().unwrap();
        let content = match (seen.is_symlink(), seen.is_file()) {
            (true, _) => fs::read_link(&path).unwrap().display().to_string(),
            (_, true) => format!("{:?}", fs::read(&path).unwrap()),
            _ => String::new(),
        };
        let text = format!(
            "{:o} {}.{} {} {content}",
            seen.mode(),
            seen.mtime(),
            seen.mtime_nsec(),
            seen.ino()
        );
        (path, text)
    };
    tree_of(folder).into_iter().map(one).collect()
}

/// Returns a path beneath an open directory, as a program outside the sandbox reaches it.
fn beneath(tree: &OwnedFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", tree.as_raw_fd()))
}

#[test]
fn commands_change_the_layer_and_not_the_workspace() {
    if lacks(Need::Overlay) {
        return;
    }
    for lab in OverlayLab::for_each_user() {
        lab.check(
            "echo new > README.md && echo n > src/new.rs && cat README.md src/new.rs",
            "new\nn",
        );
        lab.check(
            "chmod 750 src/a.rs && stat -c %a src/a.rs && rm link && ls",
            "750\nREADME.md\nold\nsrc",
        );
        lab.check("rm -r old && mkdir old && echo x > old/x && ls old", "x");
        lab.check(
            "mv src/deep/b.rs b.rs && cat b.rs && ls src/deep | wc -l",
            "b\n0",
        );
        assert!(
            fs::symlink_metadata(lab.upper("link"))
                .unwrap()
                .file_type()
                .is_char_device()
        );
        assert_eq!(fs::read_to_string(lab.upper("README.md")).unwrap(), "new\n");
        let mut opaque = [0; 4];
        let old = lab.upper("old");
        assert_eq!(
            rustix::fs::getxattr(&old, "user.overlay.opaque", &mut opaque),
            Ok(1)
        );
    }
}

#[test]
fn a_folder_is_renamed_by_a_system_call_and_by_mv() {
    if lacks(Need::Overlay) {
        return;
    }
    for lab in OverlayLab::for_each_user() {
        let session = lab.open().session;
        let rename = "import os; os.chmod('old', 0o750); os.rename('src', 'once'); os.rename('old', 'once/old'); \
                      os.rename('once', 'src'); print(oct(os.stat('src/old').st_mode & 0o7777))";
        lab.check_in(&session, &format!("python3 -c \"{rename}\""), "0o750");
        let refused = "import os\ntry: os.rename('src/deep', 'src/old')\nexcept OSError as err: print(err.errno)";
        lab.check_in(&session, &format!("python3 -c \"{refused}\""), "39");
        lab.check_in(
            &session,
            "cat src/old/c.rs; ls -A src old 2>/dev/null; :",
            "c\nsrc:\na.rs\ndeep\nold",
        );
        lab.check_in(
            &session,
            "mv src moved && cat moved/a.rs moved/deep/b.rs && ls -d src moved 2>/dev/null; :",
            "a\nb\nmoved",
        );
    }
}

#[test]
fn whole_trees_can_be_deleted() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = OverlayLab::new();
    let session = lab.open().session;
    lab.check_in(&session, "rm -rf ./* ./.[!.]* 2>/dev/null; ls -A", ".env");
    lab.check_in(
        &session,
        "mkdir -p src/deep && echo again > src/a.rs && cat src/a.rs && ls src/deep",
        "again",
    );
}

#[test]
fn git_works_in_it() {
    if lacks(Need::Overlay) {
        return;
    }
    let mut lab = OverlayLab::new();
    lab.spec.hide.clear();
    for words in [
        &["init", "-q"][..],
        &["add", "-A"],
        &["commit", "-qm", "first"],
    ] {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=x", "-c", "user.email=x@y"])
            .args(words);
        assert!(git.current_dir(&lab.spec.root).status().unwrap().success());
    }
    fs::write(lab.spec.root.join("untracked"), "mine\n").unwrap();
    lab.before = listing(&lab.spec.root);
    let session = lab.open().session;
    let git = "export HOME=/tmp; git config user.name x && git config user.email x@y";
    lab.check_in(
        &session,
        &format!("{git}; echo 2 > README.md; git commit -qam second && git log --format=%s"),
        "second\nfirst",
    );
    lab.check_in(
        &session,
        "git reset -q --hard HEAD~1; cat README.md; git clean -fdxq; ls",
        "hello\nREADME.md\nlink\nold\nsrc",
    );
    lab.check_in(
        &session,
        "git checkout -qb other && git gc -q && git rm -rq src && git status --short | wc -l",
        "2",
    );
}

#[test]
fn the_engine_and_commands_work_in_one_tree() {
    if lacks(Need::Overlay) {
        return;
    }
    // Both sides must be the same user, so this runs only as the user of the tests.
    {
        let lab = OverlayLab::new();
        let OpenedSandbox { session, tree, .. } = lab.open();
        let tree = tree.unwrap();
        fs::write(beneath(&tree, "src/engine.rs"), "from the engine\n").unwrap();
        fs::write(beneath(&tree, "README.md"), "changed by the engine\n").unwrap();
        lab.check_in(
            &session,
            "cat src/engine.rs README.md",
            "from the engine\nchanged by the engine",
        );
        lab.check_in(
            &session,
            "echo by a command > src/engine.rs; rm old/c.rs; mkdir fresh; echo f > fresh/f",
            "",
        );
        assert_eq!(
            fs::read_to_string(beneath(&tree, "src/engine.rs")).unwrap(),
            "by a command\n"
        );
        assert!(!beneath(&tree, "old/c.rs").exists());
        fs::rename(beneath(&tree, "fresh/f"), beneath(&tree, "src/f")).unwrap();
        let how = rustix::fs::ResolveFlags::BENEATH | rustix::fs::ResolveFlags::NO_SYMLINKS;
        let flags = rustix::fs::OFlags::RDONLY;
        let open =
            |name: &str| rustix::fs::openat2(&tree, name, flags, rustix::fs::Mode::empty(), how);
        assert!(open("src/f").is_ok() && open("../out").is_err() && open("link").is_err());
        let names = rustix::fs::Dir::read_from(open("src").unwrap().as_fd()).unwrap();
        assert_eq!(
            names
                .flatten()
                .filter(
                    |one| one.file_name().to_bytes() != b"." && one.file_name().to_bytes() != b".."
                )
                .count(),
            4
        );
        lab.check_in(&session, "cat src/f", "f");
        // The open directory stays valid after the commands are gone.
        drop(session);
        fs::write(beneath(&tree, "late"), "late\n").unwrap();
        drop(tree);
        assert_eq!(fs::read_to_string(lab.upper("late")).unwrap(), "late\n");
        assert_eq!(listing(&lab.spec.root), lab.before);
    }
}

#[test]
fn files_hidden_from_commands_are_visible_to_the_engine() {
    if lacks(Need::Overlay) {
        return;
    }
    let mut lab = OverlayLab::new();
    let name = |name: &str| Protected {
        base: lab.spec.root.clone(),
        name: name.into(),
        how: Protection::Frozen,
    };
    lab.spec.protect = vec![name("README.md"), name(".agent")];
    let OpenedSandbox { session, tree, .. } = lab.open();
    let tree = tree.unwrap();
    let (ended, output) = run(
        &session,
        &lab.spec.root,
        "cat .env /proc/1/root$PWD/.env; echo x > README.md",
    );
    assert!(
        !ended.status.success() && !output.contains("planted"),
        "{output}"
    );
    assert_eq!(
        fs::read_to_string(beneath(&tree, ".env")).unwrap(),
        "TOKEN=planted\n"
    );
    fs::write(beneath(&tree, "README.md"), "by the engine\n").unwrap();
    lab.check_in(&session, "cat README.md", "by the engine");
    drop(session);
    wait_until(|| !beneath(&tree, ".agent").exists());
    assert!(!lab.upper(".agent").exists());
}

#[test]
fn no_path_leads_to_the_workspace() {
    if lacks(Need::Overlay) {
        return;
    }
    let mut lab = OverlayLab::new();
    lab.spec.write = vec![lab.spec.root.join("old"), lab.base.join("out")];
    lab.spec.read = vec![lab.base.clone()];
    let session = lab.open().session;
    for place in ["/proc/self/cwd", "/proc/$$/root$PWD", "$PWD/old"] {
        lab.check_in(
            &session,
            &format!("touch {place}/new && rm {place}/new && echo y > {place}/c.rs"),
            "",
        );
    }
    let upper = lab.base.join("layer/upper/x");
    for line in [
        "touch /proc/1/root$PWD/x".to_owned(),
        format!("touch {}", upper.display()),
        format!("touch {}/x", lab.base.display()),
        "mv ../ws ../other".to_owned(),
        "ls -l /proc/self/fd /proc/1/fd | grep layer".to_owned(),
    ] {
        lab.check_in(
            &session,
            &format!("{{ {line}; }} 2>/dev/null || echo no"),
            "no",
        );
    }
    lab.check_in(
        &session,
        "touch ../out/x && ln ../out/x new 2>/dev/null || echo no",
        "no",
    );
    assert!(lab.base.join("out/x").exists() && lab.upper("old/c.rs").exists());
}

#[test]
fn a_layer_is_still_there_in_the_next_session() {
    if lacks(Need::Overlay) {
        return;
    }
    for lab in OverlayLab::for_each_user() {
        lab.check(
            "echo new > README.md; rm link; rm -r old; mkdir old; chmod 700 src",
            "",
        );
        lab.check(
            "cat README.md; ls; ls old; stat -c %a src; echo more >> README.md",
            "new\nREADME.md\nold\nsrc\n700",
        );
        lab.check("cat README.md", "new\nmore");
    }
}

#[test]
fn a_killed_helper_leaves_the_layer() {
    if lacks(Need::Overlay) {
        return;
    }
    let mut lab = OverlayLab::new();
    let pid = lab.base.join("pid");
    // The shell prints its process id and then becomes the helper.
    let line = format!(
        "echo $$ > {}; exec {} {HELPER_ARG}",
        pid.display(),
        lab.helper.program.display()
    );
    lab.helper = Helper {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), line.into()],
    };
    let OpenedSandbox { session, tree, .. } = lab.open();
    lab.check_in(&session, "echo new > README.md; rm -r old", "");
    let pid = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    wait_until(|| lab::try_run(&session, &lab.spec.root, &["true"]).is_err());
    drop((session, tree));
    lab.helper = helper();
    lab.check("cat README.md; ls", "new\nREADME.md\nlink\nsrc");
}

#[test]
fn a_git_directory_outside_has_its_own_layer() {
    if lacks(Need::Overlay) {
        return;
    }
    let mut lab = OverlayLab::new();
    for folder in ["git", "git-upper", "git-work"] {
        fs::create_dir(lab.base.join(folder)).unwrap();
    }
    let at = lab.base.join("git");
    fs::write(at.join("HEAD"), "ref\n").unwrap();
    lab.spec.layers = vec![OverlayDir {
        at: at.clone(),
        upper: lab.base.join("git-upper"),
        work: lab.base.join("git-work"),
    }];
    lab.spec.write = vec![at.clone()];
    lab.check("echo other > ../git/HEAD && cat ../git/HEAD", "other");
    lab.check("cat ../git/HEAD", "other");
    assert_eq!(fs::read_to_string(at.join("HEAD")).unwrap(), "ref\n");
}

#[test]
fn a_copy_stands_in_the_place_of_the_workspace() {
    if lacks(Need::Namespaces) {
        return;
    }
    let mut lab = OverlayLab::new();
    let from = lab.base.join("copy");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("README.md"), "copied\n").unwrap();
    lab.spec.tree = Tree::Copy { from: from.clone() };
    let OpenedSandbox { session, tree, .. } = lab.open();
    let tree = tree.unwrap();
    lab.check_in(
        &session,
        "pwd; cat README.md; echo x > new",
        &format!("{}\ncopied", lab.spec.root.display()),
    );
    assert_eq!(fs::read_to_string(beneath(&tree, "new")).unwrap(), "x\n");
    fs::write(beneath(&tree, "new"), "y\n").unwrap();
    lab.check_in(&session, "cat new", "y");
    assert_eq!(fs::read_to_string(from.join("new")).unwrap(), "y\n");
}

#[test]
fn a_tree_may_be_read_only() {
    if lacks(Need::Overlay) {
        return;
    }
    let mut lab = OverlayLab::new();
    lab.spec.access = Access::ReadOnly;
    let OpenedSandbox { session, tree, .. } = lab.open();
    lab.check_in(&session, "touch new 2>/dev/null || echo no", "no");
    fs::write(beneath(&tree.unwrap(), "new"), "x").unwrap();
    lab.check_in(&session, "cat new", "x");
}

#[track_caller]
fn check_refused(spec: &Spec, layers: bool, expect: &str) {
    match SandboxSession::open(&helper(), spec) {
        Err(SandboxError::NoLayers(why)) => assert!(!layers && why.contains(expect), "{why}"),
        Err(SandboxError::Unavailable(why) | SandboxError::Invalid(why)) => {
            assert!(layers && why.contains(expect), "{why}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn unsupported_overlays_and_wrong_directories_are_different_errors() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = OverlayLab::new();
    let with = |upper: PathBuf, work: PathBuf| Spec {
        tree: Tree::Layered {
            upper,
            work,
            between: None,
        },
        ..lab.spec.clone()
    };
    let (upper, work) = (lab.base.join("layer/upper"), lab.base.join("layer/work"));
    check_refused(&with(lab.base.join("absent"), work.clone()), true, "absent");
    let within = lab.spec.root.join("src");
    check_refused(
        &with(within.join("deep"), work.clone()),
        true,
        "must lie outside",
    );
    check_refused(
        &Spec {
            tier: Tier::Landlock,
            ..lab.spec.clone()
        },
        false,
        "without namespaces",
    );
    // One directory in the other: overlayfs cannot do that.
    fs::create_dir(upper.join("work")).unwrap();
    check_refused(
        &with(upper.clone(), upper.join("work")),
        false,
        "overlays do not work",
    );
    assert_eq!(listing(&lab.spec.root), lab.before);
}

#[test]
fn modes_are_kept() {
    if lacks(Need::Overlay) {
        return;
    }
    let mut lab = OverlayLab::new();
    fs::set_permissions(
        lab.spec.root.join("src/a.rs"),
        fs::Permissions::from_mode(0o751),
    )
    .unwrap();
    lab.before = listing(&lab.spec.root);
    lab.check("true; echo more >> src/a.rs; stat -c %a src/a.rs", "751");
}
