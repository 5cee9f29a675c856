//! Calls that can be undone, with real commands in real overlays in temporary directories. Destructive commands run
//! only there, inside a sandbox.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::CancellationToken;
use windlass_core::id::{CallId, RunId, SessionId};
use windlass_core::image::Swap;
use windlass_core::terms::Isolation;
use windlass_core::workspace::{
    CallChanges, Command, FileChange, FileError, FileErrorKind, Finished, JobId, Opening,
    ProcessEnd, Snapshots, Transaction, Watch, Workspaces,
};

use crate::in_place::InPlace;
use crate::landing::{Contents, land};
use crate::test_helper::helper;
use windlass_host::sandbox::{Sandbox, SandboxPlan};
use windlass_host::workspace::{Root, is_staging};
use windlass_needs::{Need, lacks};

/// A workspace with an open run.
struct InPlaceFixture {
    _scratch: tempfile::TempDir,
    base: PathBuf,
    root: Arc<Root>,
    sandbox: Option<Arc<Sandbox>>,
    run: Box<dyn Transaction>,
}

/// Whether commands run in a sandbox.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Confinement {
    Sandboxed,
    Unconfined,
}

impl InPlaceFixture {
    async fn new(confinement: Confinement, cap: u64) -> Self {
        Self::with_data(confinement, cap, None).await
    }

    async fn with_data(confinement: Confinement, cap: u64, data: Option<&Path>) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        for (file, text) in [
            ("a.txt", "1\n2\n3\n"),
            ("b.txt", "b\n"),
            (".gitignore", "out/\n*.log\n"),
            ("sub/c.txt", "c\n"),
            ("sub/deep/d.txt", "d\n"),
            ("out/old.o", "old\n"),
            (".git/config", "[core]\n"),
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".vscode/settings.json", "{}\n"),
        ] {
            let path = base.join("ws").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir(base.join("home")).unwrap();
        fs::create_dir(base.join("shared")).unwrap();
        let root = Arc::new(Root::open(&base.join("ws")).unwrap());
        let env = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
        let sandbox = (confinement == Confinement::Sandboxed).then(|| {
            let plan = SandboxPlan {
                root: base.join("ws"),
                home: Some(base.join("home")),
                data_dir: data.map_or_else(|| base.join("data"), Path::to_owned),
                write: vec![base.join("shared")],
                ..SandboxPlan::default()
            };
            Arc::new(Sandbox::new(
                plan,
                helper(),
                env.clone(),
                crate::copy_workspace,
            ))
        });
        let workspaces = InPlace::new(
            Arc::clone(&root),
            env,
            sandbox.clone(),
            &base.join("contents"),
            base.join("journal"),
            cap,
        )
        .unwrap();
        let session = SessionId::fresh(windlass_core::clock::Timestamp::from_millis(0), 1);
        let opening = Opening {
            session: &session,
            run: &RunId::nth(1),
            isolation: Isolation::InPlace,
            kept: None,
        };
        let run = workspaces.open(opening).await.unwrap();
        Self {
            _scratch: scratch,
            base,
            root,
            sandbox,
            run,
        }
    }

    fn undo(&self) -> Arc<dyn Snapshots> {
        self.run.snapshots().unwrap()
    }

    /// Runs a command line as one call.
    async fn call(&self, line: &str) -> (Finished, CallChanges) {
        let (undo, call) = (self.undo(), CallId("call".into()));
        undo.begin(&call);
        let finished = self.shell(line).await;
        (finished, undo.end(&call).await.unwrap())
    }

    async fn shell(&self, line: &str) -> Finished {
        let watch = Watch {
            progress: &|_| {},
            cancel: CancellationToken::new(),
            artifacts: None,
        };
        self.run
            .processes()
            .run(command(line), watch)
            .await
            .unwrap()
    }

    /// The command succeeds without a remark and changes these paths. An undo restores the tree, and a redo changes it
    /// again.
    #[track_caller]
    fn check(&self, line: &str, expect: &[&str]) -> impl Future<Output = CallChanges> {
        let caller = std::panic::Location::caller();
        async move {
            let before = listing(&self.base.join("ws"));
            let (finished, changes) = self.call(line).await;
            assert_eq!(
                (finished.end, finished.output.as_str()),
                (ProcessEnd::Exited { code: 0 }, ""),
                "{caller}: {line}"
            );
            assert_eq!(finished.not_landed, None, "{caller}: {line}");
            assert_eq!(paths(&changes), expect, "{caller}: {line}");
            let after = listing(&self.base.join("ws"));
            self.swap(swaps(&changes).into_iter().map(reversed).collect());
            assert_eq!(
                sources(&listing(&self.base.join("ws"))),
                sources(&before),
                "{caller}: undo of {line}"
            );
            self.swap(swaps(&changes));
            assert_eq!(
                sources(&listing(&self.base.join("ws"))),
                sources(&after),
                "{caller}: redo of {line}"
            );
            changes
        }
    }

    /// Lands swaps, with bytes from the content store.
    #[track_caller]
    fn swap(&self, swaps: Vec<Swap>) {
        let contents = Contents::open(&self.base.join("contents"), 1 << 30).unwrap();
        land(
            &self.root,
            &swaps,
            &contents,
            &contents,
            &self.base.join("journal"),
            &|_| {},
        )
        .unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.base.join("ws").join(name)).unwrap()
    }

    fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.base.join("ws").join(name)).is_ok()
    }
}

fn swaps(changes: &CallChanges) -> Vec<Swap> {
    changes.files.iter().map(|(_, swap)| swap.clone()).collect()
}

fn paths(changes: &CallChanges) -> Vec<&str> {
    changes
        .files
        .iter()
        .map(|(change, _)| change.path.as_str())
        .collect()
}

fn command(line: &str) -> Command {
    Command {
        line: line.into(),
        workdir: String::new(),
        timeout: Duration::from_secs(20),
        keep: 10_000,
        input: None,
        looks: false,
    }
}

/// Every file and symlink below a directory, with its mode and content.
fn listing(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap().flatten() {
            let about = entry.path().symlink_metadata().unwrap();
            let name = entry
                .path()
                .strip_prefix(folder)
                .unwrap()
                .display()
                .to_string();
            if about.is_dir() {
                folders.push(entry.path());
            } else if about.is_symlink() {
                found.insert(
                    name,
                    fs::read_link(entry.path()).unwrap().display().to_string(),
                );
            } else {
                found.insert(
                    name,
                    format!(
                        "{:o} {}",
                        about.mode(),
                        String::from_utf8_lossy(&fs::read(entry.path()).unwrap())
                    ),
                );
            }
        }
    }
    found
}

fn sources(all: &BTreeMap<String, String>) -> Vec<(&String, &String)> {
    all.iter()
        .filter(|(path, _)| {
            !path.split('/').any(|part| part == "out") && !path.starts_with(".git/")
        })
        .collect()
}

#[tokio::test]
async fn changes_of_a_command_land_and_can_be_undone() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let check = |line, expect| fixture.check(line, expect);
    check(
        "echo new >> a.txt; echo n > n.txt; rm b.txt",
        &["a.txt", "b.txt", "n.txt"],
    )
    .await;
    assert_eq!(
        (fixture.read("a.txt").as_str(), fixture.has("b.txt")),
        ("1\n2\n3\nnew\n", false)
    );
    check("chmod 755 a.txt; ln -s a.txt link", &["a.txt", "link"]).await;
    check(
        "mv sub moved; mkdir -p empty/inner",
        &[
            "moved/c.txt",
            "moved/deep/d.txt",
            "sub/c.txt",
            "sub/deep/d.txt",
        ],
    )
    .await;
    assert!(fixture.has("empty/inner"));
    // A directory replaces another one, a file replaces a directory, and a directory replaces a file.
    check(
        "rm -r moved; mkdir -p moved/deep; echo x > moved/deep/x",
        &["moved/c.txt", "moved/deep/d.txt", "moved/deep/x"],
    )
    .await;
    check(
        "rm -r moved; mkdir moved; echo x > moved/x",
        &["moved/deep/x", "moved/x"],
    )
    .await;
    check(
        "rm -r moved; echo f > moved; rm n.txt; mkdir n.txt; echo i > n.txt/i",
        &["moved", "moved/x", "n.txt", "n.txt/i"],
    )
    .await;
    check(
        "echo same > a.txt; cp a.txt t; cat t > a.txt; rm t",
        &["a.txt"],
    )
    .await;
    check(
        "cat a.txt > copy; cat copy > a.txt; rm copy; :> keep.log",
        &["keep.log"],
    )
    .await;
    check("cat a.txt > /dev/null", &[]).await;
    assert!(
        fs::read_dir(fixture.base.join("data/boxes/layers"))
            .unwrap()
            .next()
            .is_none(),
        "no overlay is left"
    );
}

#[tokio::test]
async fn ignored_files_are_moved_and_reported_as_not_undoable() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let line = "mkdir -p out/new/deep && echo o > out/new/deep/o && ln out/new/deep/o out/new/hard && \
                echo other > out/old.o && touch -d 2001-02-03 out/new/deep/o a.txt";
    let changes = fixture.check(line, &[]).await;
    assert_eq!(
        changes
            .lost
            .iter()
            .map(|(path, _)| path.as_str())
            .collect::<Vec<_>>(),
        ["out"]
    );
    assert_eq!(
        (
            fixture.read("out/new/deep/o").as_str(),
            fixture.read("out/old.o").as_str()
        ),
        ("o\n", "other\n")
    );
    let about = |name: &str| fs::metadata(fixture.base.join("ws").join(name)).unwrap();
    assert_eq!(about("out/new/deep/o").ino(), about("out/new/hard").ino());
    assert!(
        about("out/new/deep/o").mtime() < 1_000_000_000 && about("a.txt").mtime() < 1_000_000_000
    );
    let note = rustix::fs::lgetxattr(
        fixture.base.join("ws/out/new"),
        "user.overlay.opaque",
        &mut [0; 4],
    );
    assert!(note.is_err());
    fixture
        .check("rm -r out/new; mkdir -p out/new/deep", &[])
        .await;
    assert!(fixture.has("out/new/deep") && !fixture.has("out/new/deep/o"));
    fixture
        .check("rm -r out/new; rm out/old.o; mkdir out/new", &[])
        .await;
    assert!(fixture.has("out/new") && !fixture.has("out/new/deep") && !fixture.has("out/old.o"));
    fixture.check("rm -r out", &[]).await;
    assert!(!fixture.has("out"));
}

#[tokio::test]
async fn file_times_set_by_a_command_are_kept() {
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let (finished, _) = fixture
        .call("echo x > new.c; sleep 0.05; echo o > out/new.o; test out/new.o -nt new.c")
        .await;
    assert_eq!(finished.end, ProcessEnd::Exited { code: 0 });
    let time = |name: &str| {
        fs::metadata(fixture.base.join("ws").join(name))
            .unwrap()
            .modified()
            .unwrap()
    };
    assert!(time("out/new.o") > time("new.c"));
}

#[tokio::test]
async fn protected_names_stay_as_they_are_at_any_depth() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    fs::write(fixture.base.join("ws/CLAUDE.md"), "mine\n").unwrap();
    fs::write(
        fixture.base.join("ws/.git/config"),
        "[core]\n\thooksPath = hooks\n",
    )
    .unwrap();
    fs::create_dir(fixture.base.join("ws/hooks")).unwrap();
    let before = listing(&fixture.base.join("ws"));
    for (line, named) in [
        ("echo '{\"x\":1}' > .vscode/settings.json", ".vscode"),
        (
            "mkdir -p sub/.vscode && echo x > sub/.vscode/tasks.json",
            "sub/.vscode",
        ),
        (
            "mkdir -p .github/workflows && echo x > .github/workflows/x.yml",
            ".github/workflows",
        ),
        (
            "mkdir -p .git/hooks && echo x > .git/hooks/post-commit",
            ".git/hooks",
        ),
        ("echo evil > .git/config", ".git/config"),
        ("echo ../x > .git/commondir", ".git/commondir"),
        ("rm -rf .git", ".git"),
        ("rm -rf .vscode", ".vscode"),
        ("echo x >> CLAUDE.md", "CLAUDE.md"),
        ("echo x > hooks/pre-commit", "hooks"),
    ] {
        let (finished, _) = fixture.call(line).await;
        assert_eq!(
            finished.end,
            ProcessEnd::Exited { code: 0 },
            "{line}: {}",
            finished.output
        );
        let why = finished.not_landed.unwrap_or_default();
        assert!(
            why.contains(&format!("{named}: it is protected")),
            "{line}: {why}"
        );
        assert_eq!(listing(&fixture.base.join("ws")), before, "{line}");
    }
    // Names that are protected only if they exist are not protected here.
    fixture.check("echo x > AGENTS.md", &["AGENTS.md"]).await;
}

#[tokio::test]
async fn ignored_files_are_copied_from_another_disk() {
    let Ok(data) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let fixture =
        InPlaceFixture::with_data(Confinement::Sandboxed, 1 << 30, Some(data.path())).await;
    let line = "mkdir -p out/new/deep && cp /bin/true out/new/deep/t && ln -s deep out/new/l && echo other > out/old.o && \
                touch -d 2001-02-03 out/new/deep/t && chmod 500 out/new/deep/t && echo n >> a.txt";
    fixture.check(line, &["a.txt"]).await;
    let about = fs::metadata(fixture.base.join("ws/out/new/l/t")).unwrap();
    assert_eq!(
        (about.mode() & 0o777, about.mtime() < 1_000_000_000),
        (0o500, true)
    );
    assert_eq!(fixture.read("out/old.o"), "other\n");
}

#[tokio::test]
async fn git_works_in_place() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    fs::remove_dir_all(fixture.base.join("ws/.git")).unwrap();
    fs::remove_dir_all(fixture.base.join("ws/.vscode")).unwrap();
    let git = |words: &[&str]| {
        let done = std::process::Command::new("git")
            .args(words)
            .current_dir(fixture.base.join("ws"))
            .output()
            .unwrap();
        assert!(done.status.success(), "{words:?} {done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    git(&["init", "-q", "-b", "main"]);
    let commit = "git -c user.name=x -c user.email=x@y commit -qm";
    let (finished, changes) = fixture
        .call(&format!("git add -A && {commit} one && git status --short"))
        .await;
    assert_eq!(
        (finished.end, finished.output.as_str()),
        (ProcessEnd::Exited { code: 0 }, "")
    );
    assert_eq!(
        (changes.files.len(), changes.lost[0].0.as_str()),
        (0, ".git")
    );
    assert_eq!(git(&["log", "--format=%s"]), "one\n");
    let line = format!(
        "git checkout -qb other && echo 2 > a.txt && {commit} two -a && git checkout -q main && git gc -q"
    );
    let (finished, changes) = fixture.call(&line).await;
    assert_eq!(
        (finished.end, finished.output.as_str()),
        (ProcessEnd::Exited { code: 0 }, "")
    );
    assert!(changes.files.is_empty(), "{changes:?}");
    assert_eq!(git(&["log", "--format=%s", "other"]), "two\none\n");
    assert_eq!(git(&["fsck"]), "");
    assert_eq!(
        (
            git(&["status", "--short"]).as_str(),
            fixture.read("a.txt").as_str()
        ),
        ("", "1\n2\n3\n")
    );
    // A repository that a command creates has settings, and no hooks.
    let (finished, _) = fixture
        .call("git init -q sub/repo && echo x > sub/repo/.git/hooks/post-commit")
        .await;
    let why = finished.not_landed.unwrap_or_default();
    assert!(
        why.contains("sub/repo/.git/hooks/post-commit: it is protected"),
        "{why}"
    );
    assert!(!fixture.has("sub/repo"));
    let (finished, _) = fixture.call("git init -q sub/repo").await;
    assert_eq!(finished.not_landed, None);
    assert!(fixture.has("sub/repo/.git/config"));
    // Harmless settings land. Settings that execute programs do not, and the call fails.
    let (finished, _) = fixture
        .call("git config user.name N && git remote add origin https://host.example/x.git")
        .await;
    assert_eq!(finished.not_landed, None);
    assert_eq!(git(&["config", "user.name"]), "N\n");
    assert_eq!(
        git(&["config", "remote.origin.url"]),
        "https://host.example/x.git\n"
    );
    let (finished, _) = fixture
        .call("git config user.email e; git config core.fsmonitor evil")
        .await;
    let why = finished.not_landed.unwrap_or_default();
    assert!(why.contains(".git/config: it is protected"), "{why}");
    assert!(!fixture.read(".git/config").contains("evil"));
}

#[tokio::test]
async fn names_and_targets_that_are_not_utf8_land_and_come_back() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let ws = fixture.base.join("ws");
    let there = |name: &[u8]| {
        let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name);
        fs::read(ws.join(name)).ok()
    };
    let made = "mkdir $(printf 'f-\\376'); echo new > $(printf 'f-\\376/odd-\\377'); ln -s $(printf 'f-\\376/odd-\\377') link";
    let changes = fixture
        .check(made, &[r#""f-\376"/"odd-\377""#, "link"])
        .await;
    assert_eq!(changes.lost, Vec::new());
    assert_eq!(there(b"f-\xfe/odd-\xff").unwrap(), b"new\n");
    assert_eq!(fixture.read("link"), "new\n");
    for line in [
        "echo x > f*/odd*",
        "mv f*/odd* plain",
        "mv plain $(printf 'b-\\377')",
        "rm -r f* b*",
    ] {
        let (finished, changes) = fixture.call(line).await;
        assert_eq!(finished.not_landed, None, "{line}");
        assert!(!changes.files.is_empty(), "{line}");
    }
    assert_eq!((there(b"f-\xfe/odd-\xff"), there(b"b-\xff")), (None, None));
}

#[tokio::test]
async fn symlinks_out_of_the_workspace_and_to_git_do_not_land() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    for (line, named) in [
        ("ln -s .git/hooks h", "git's own files"),
        ("ln -s ../home o", "out of the workspace"),
        ("ln -s /root/.ssh/id_rsa s", "credentials"),
        (
            "ln -s sub/up u; ln -s ../../home sub/up",
            "out of the workspace",
        ),
    ] {
        let before = listing(&fixture.base.join("ws"));
        let (finished, _) = fixture.call(line).await;
        let why = finished.not_landed.unwrap_or_default();
        assert!(why.contains(named), "{line}: {why}");
        assert_eq!(listing(&fixture.base.join("ws")), before, "{line}");
    }
    fixture
        .check(
            "ln -s ../a.txt sub/l; ln -s /usr/bin/env e",
            &["e", "sub/l"],
        )
        .await;
}

#[tokio::test]
async fn nothing_that_makes_git_run_a_program_lands() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    for (folder, ignored) in [("n", false), ("out/n", true)] {
        let line = format!("git init -q {folder} && git -C {folder} config core.fsmonitor evil");
        let (finished, _) = fixture.call(&line).await;
        assert_eq!(finished.not_landed, None, "{line}");
        let config = format!("{folder}/.git/config");
        assert!(
            finished
                .output
                .contains(&format!("{config}: core.fsmonitor")),
            "{}",
            finished.output
        );
        let text = fixture.read(&config);
        assert!(
            !text.contains("evil") && text.contains("filemode"),
            "{text}"
        );
        let bare = if ignored { "out/bare" } else { "bare" };
        let before = listing(&fixture.base.join("ws"));
        let line = format!(
            "mkdir -p {bare}/objects {bare}/refs && echo 'ref: refs/heads/m' > {bare}/HEAD && \
             echo '[core] fsmonitor = evil' > {bare}/config"
        );
        let (finished, _) = fixture.call(&line).await;
        let why = finished.not_landed.unwrap_or_default();
        assert!(why.contains("would be a git repository"), "{line}: {why}");
        assert_eq!(listing(&fixture.base.join("ws")), before, "{line}");
    }
    for line in ["echo 'gitdir: /srv/x' > sub/.git", "ln -s ../.git sub/.git"] {
        let (finished, _) = fixture.call(line).await;
        assert!(
            finished.not_landed.is_some() && !fixture.has("sub/.git"),
            "{line}"
        );
    }
    // Also refused: in two commands, and with the file tools.
    fixture
        .call("mkdir -p two/objects two/refs && touch two/objects/x two/refs/x two/config")
        .await;
    let (finished, _) = fixture.call("echo x > two/HEAD").await;
    assert!(finished.not_landed.is_some() && !fixture.has("two/HEAD"));
    let files = fixture.run.files();
    for refused in [
        files.write("two/HEAD", b"ref: refs/heads/m\n"),
        files.rename("a.txt", "two/HEAD", false),
    ] {
        let why = refused.unwrap_err().message;
        assert!(why.contains("would be a git repository"), "{why}");
    }
    // An existing one can be removed.
    fs::write(fixture.base.join("ws/two/HEAD"), "ref: refs/heads/m\n").unwrap();
    let (finished, _) = fixture.call("rm two/config && rm -r two").await;
    assert_eq!(finished.not_landed, None);
    assert!(!fixture.has("two"));
}

#[tokio::test]
async fn a_conflict_fails_the_call_and_keeps_the_overlay() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let go = fixture.base.join("shared/go");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &go,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let line =
        "echo command | tee a.txt b.txt out/old.o > /dev/null; rm sub/c.txt; cat ../shared/go";
    let ws = fixture.base.join("ws");
    let human = std::thread::spawn(move || {
        // Opens when the command reads, which is after it wrote.
        let gate = fs::File::options().write(true).open(go).unwrap();
        for name in ["a.txt", "out/old.o", "sub/c.txt"] {
            fs::write(ws.join(name), "human\n").unwrap();
        }
        drop(gate);
    });
    let (finished, changes) = fixture.call(line).await;
    human.join().unwrap();
    let why = finished.not_landed.unwrap();
    for name in ["a.txt", "out/old.o", "sub/c.txt"] {
        assert_eq!(fixture.read(name), "human\n");
        assert!(
            why.contains(&format!("{name}: another program changed it")),
            "{why}"
        );
    }
    assert_eq!(
        (fixture.read("b.txt").as_str(), paths(&changes)),
        ("b\n", vec![])
    );
    let kept = PathBuf::from(why.rsplit("kept in ").next().unwrap());
    assert_eq!(fs::read_to_string(kept.join("a.txt")).unwrap(), "command\n");
    assert_eq!(fs::read_to_string(kept.join("b.txt")).unwrap(), "command\n");
    let (finished, changes) = fixture.call("cat a.txt b.txt; cat a.txt > b.txt").await;
    assert_eq!(
        (finished.output.as_str(), finished.not_landed),
        ("human\nb\n", None)
    );
    assert_eq!(paths(&changes), ["b.txt"]);
}

#[tokio::test]
async fn destructive_lines_can_be_undone_and_do_not_reach_protected_names() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let before = listing(&fixture.base.join("ws"));
    let (finished, changes) = fixture.call("rm -rf ./* ./.gitignore .git .vscode").await;
    assert!(
        finished
            .not_landed
            .unwrap()
            .contains(".git: it is protected")
    );
    assert_eq!(paths(&changes), [""; 0]);
    assert_eq!(listing(&fixture.base.join("ws")), before);
    fixture
        .check(
            "rm -rf ./a.txt ./b.txt sub .gitignore",
            &[
                ".gitignore",
                "a.txt",
                "b.txt",
                "sub/c.txt",
                "sub/deep/d.txt",
            ],
        )
        .await;
}

#[tokio::test]
async fn writes_of_file_tools_can_be_undone() {
    let fixture = InPlaceFixture::new(Confinement::Unconfined, 1 << 30).await;
    let (undo, call, files) = (fixture.undo(), CallId("call".into()), fixture.run.files());
    let before = listing(&fixture.base.join("ws"));
    fs::set_permissions(
        fixture.base.join("ws/a.txt"),
        fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    undo.begin(&call);
    files.write("a.txt", b"new\n").unwrap();
    files.write("a.txt", b"newer\n").unwrap();
    files.write("fresh/n.txt", b"n\n").unwrap();
    files.write("gone.txt", b"n\n").unwrap();
    files.remove("gone.txt").unwrap();
    files.remove("b.txt").unwrap();
    files.rename("sub/c.txt", "other/c.txt", false).unwrap();
    let changes = undo.end(&call).await.unwrap();
    let expect = ["a.txt", "b.txt", "fresh/n.txt", "other/c.txt", "sub/c.txt"];
    assert_eq!(paths(&changes), expect);
    assert_eq!(changes.lost, Vec::new());
    fixture.swap(swaps(&changes).into_iter().map(reversed).collect());
    assert_eq!(listing(&fixture.base.join("ws")), before);
    // The next call has no changes.
    undo.begin(&call);
    assert_eq!(undo.end(&call).await.unwrap(), CallChanges::default());
}

#[tokio::test]
async fn without_overlays_undo_covers_only_the_file_tools() {
    let fixture = InPlaceFixture::new(Confinement::Unconfined, 1 << 30).await;
    assert!(fixture.run.notes()[0].contains("undo covers changes by the file tools"));
    let (_, changes) = fixture.call("echo new >> a.txt; echo n > n.txt").await;
    assert_eq!(paths(&changes), [""; 0]);
    assert_eq!(
        changes.lost,
        Vec::new(),
        "it was reported when the run was opened"
    );
    let all = fixture.run.changes().await.unwrap().files;
    let all: Vec<&str> = all.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(all, ["a.txt", "n.txt"]);
}

#[tokio::test]
async fn files_whose_old_bytes_cannot_be_stored_are_not_overwritten() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let before = listing(&fixture.base.join("ws"));
    // A file is at the path of the directory for the old bytes.
    let hash = blake3::hash(b"1\n2\n3\n").to_hex();
    fs::write(fixture.base.join("contents").join(&hash[..2]), "").unwrap();
    let (finished, changes) = fixture.call("echo new > a.txt; echo x > x.txt").await;
    let why = finished.not_landed.unwrap();
    assert!(why.contains("cannot store the old bytes of a.txt"), "{why}");
    assert_eq!(paths(&changes), [""; 0]);
    let ends_run = changes.full.unwrap();
    assert!(ends_run.contains("old bytes of a.txt"), "{ends_run}");
    assert_eq!(changes.warnings, [("not_merged", why)]);
    assert_eq!(listing(&fixture.base.join("ws")), before);
    let (undo, call) = (fixture.undo(), CallId("call".into()));
    undo.begin(&call);
    let err = fixture.run.files().write("a.txt", b"new\n").unwrap_err();
    assert!(err.message.contains("cannot store"), "{err}");
    let err = fixture.run.files().remove("a.txt").unwrap_err();
    assert!(err.message.contains("cannot store"), "{err}");
    assert_eq!(listing(&fixture.base.join("ws")), before);
}

#[tokio::test]
async fn a_run_that_exceeds_the_store_can_be_undone_and_warns() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 5).await;
    let before = listing(&fixture.base.join("ws"));
    let (finished, first) = fixture.call("echo new > a.txt").await;
    assert_eq!(finished.not_landed, None);
    let codes: Vec<&str> = first.warnings.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, ["undo_over_cap"]);
    let (_, second) = fixture.call("rm b.txt sub/c.txt").await;
    assert_eq!((second.warnings.len(), second.full.clone()), (0, None));
    let all = swaps(&first).into_iter().chain(swaps(&second));
    fixture.swap(all.map(reversed).collect());
    assert_eq!(listing(&fixture.base.join("ws")), before);
}

#[tokio::test]
async fn a_command_without_its_overlay_does_not_run() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    fixture.call("true").await;
    let layers = fixture.sandbox.as_ref().unwrap().command_layers();
    fs::remove_dir_all(&layers).unwrap();
    fs::write(&layers, "no folder").unwrap();
    let before = listing(&fixture.base.join("ws"));
    let (undo, call) = (fixture.undo(), CallId("call".into()));
    undo.begin(&call);
    let watch = Watch {
        progress: &|_| {},
        cancel: CancellationToken::new(),
        artifacts: None,
    };
    let processes = fixture.run.processes();
    let err = processes.run(command("echo new > a.txt"), watch).await;
    let err = err.unwrap_err().to_string();
    assert!(
        err.contains("was not run: cannot create an overlay"),
        "{err}"
    );
    if !lacks(Need::Overlay) {
        let err = processes.start(command("echo new > a.txt")).unwrap_err();
        assert!(
            err.to_string().contains("cannot create an overlay"),
            "{err}"
        );
    }
    let changes = undo.end(&call).await.unwrap();
    assert_eq!((paths(&changes), changes.lost.clone()), (vec![], vec![]));
    assert_eq!(listing(&fixture.base.join("ws")), before);
}

#[tokio::test]
async fn without_overlays_a_background_job_is_reported_as_not_undoable() {
    let fixture = InPlaceFixture::new(Confinement::Unconfined, 1 << 30).await;
    let (undo, call) = (fixture.undo(), CallId("call".into()));
    undo.begin(&call);
    fixture.run.processes().start(command("true")).unwrap();
    let changes = undo.end(&call).await.unwrap();
    assert!(
        changes
            .lost
            .iter()
            .any(|(_, why)| why.contains("background job")),
        "{changes:?}"
    );
    fixture.run.freeze().await.unwrap();
}

/// Replaces a line of a text file as a tool does: it passes the bytes that it read.
fn edit(fixture: &InPlaceFixture, path: &str, line: usize, text: &str) -> Result<(), FileError> {
    let files = fixture.run.files();
    let read = files.read(path, 1 << 20)?;
    let old = String::from_utf8(read.clone()).unwrap();
    let mut lines: Vec<&str> = old.lines().collect();
    lines[line] = text;
    files.replace(path, Some(&read), (lines.join("\n") + "\n").as_bytes())
}

fn numbered() -> String {
    (1..=20).map(|n| format!("line {n}\n")).collect()
}

#[tokio::test]
async fn an_edit_never_replaces_a_save_that_it_did_not_read() {
    let fixture = InPlaceFixture::new(Confinement::Unconfined, 1 << 30).await;
    let path = fixture.base.join("ws/a.txt");
    let (done, saves) = (std::sync::atomic::AtomicBool::new(false), 300);
    let (mut edited, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let human = scope.spawn(|| {
            for nth in 0..saves {
                // An editor that saves with a rename; the content begins with a line of its own.
                let draft = path.with_extension("draft");
                fs::write(&draft, format!("human {nth}\nlast\n")).unwrap();
                fs::rename(&draft, &path).unwrap();
                // A landing that displaces the save restores it after comparing it.
                let own = || {
                    std::thread::sleep(Duration::from_micros(300));
                    let now = fs::read_to_string(&path).unwrap_or_default();
                    now.starts_with(&format!("human {nth}\n"))
                };
                assert!((0..5_000).any(|_| own()), "the save {nth} is lost");
                if nth % 10 == 0 {
                    // Leaves time for an undisturbed edit.
                    std::thread::sleep(Duration::from_millis(30));
                }
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) && !human.is_finished() {
            match edit(&fixture, "a.txt", 1, &format!("tool {edited}")) {
                Ok(()) => edited += 1,
                Err(err) => {
                    assert_eq!(err.kind, FileErrorKind::Changed, "{err}");
                    refused += 1;
                }
            }
        }
        human.join().unwrap();
    });
    assert!(
        edited > 0 && refused > 0,
        "{edited} edits, {refused} refused"
    );
}

#[tokio::test]
async fn two_runs_that_edit_one_file_lose_no_edit() {
    let fixture = InPlaceFixture::new(Confinement::Unconfined, 1 << 30).await;
    fs::write(fixture.base.join("ws/a.txt"), "").unwrap();
    let add = |text: &str| {
        let files = fixture.run.files();
        let read = files.read("a.txt", 1 << 20).unwrap();
        let new = [read.as_slice(), text.as_bytes()].concat();
        files.replace("a.txt", Some(&read), &new)
    };
    let done = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for run in 0..2 {
            let (add, done) = (&add, &done);
            scope.spawn(move || {
                for nth in 0..60 {
                    if add(&format!("{run}.{nth}\n")).is_ok() {
                        done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let lines = fixture.read("a.txt").lines().count();
    assert_eq!(lines, done.into_inner() as usize);
    assert!(lines > 20, "{lines}");
}

#[tokio::test]
async fn commands_are_counted_and_only_the_changes_of_the_run_are_listed() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let (_, changes) = fixture
        .call("sed -i 's/2/two/' a.txt; echo n > n.txt")
        .await;
    fs::write(fixture.base.join("ws/b.txt"), "the user\n").unwrap();
    let counts = |all: &mut dyn Iterator<Item = &FileChange>| {
        all.map(|one| format!("{} {}", one.path, one.line_counts()))
            .collect::<Vec<_>>()
    };
    let expect = ["a.txt +1 -1", "n.txt +1 -0"];
    assert_eq!(
        counts(&mut changes.files.iter().map(|(change, _)| change)),
        expect
    );
    let run = fixture.run.changes().await.unwrap().files;
    assert_eq!(counts(&mut run.iter()), expect);
}

#[tokio::test]
async fn an_undo_in_place_merges_with_what_the_user_wrote_since() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    fs::write(fixture.base.join("ws/a.txt"), numbered()).unwrap();
    fs::write(fixture.base.join("ws/b.txt"), numbered()).unwrap();
    let (undo, call) = (fixture.undo(), CallId("call".into()));
    undo.begin(&call);
    edit(&fixture, "a.txt", 3, "of the tool").unwrap();
    fixture.shell("sed -i '4s/.*/of the command/' b.txt").await;
    let done = swaps(&undo.end(&call).await.unwrap());
    for name in ["a.txt", "b.txt"] {
        let text = fixture.read(name).replace("line 18\n", "of the user\n");
        fs::write(fixture.base.join("ws").join(name), text).unwrap();
    }
    let contents = Contents::open(&fixture.base.join("contents"), 1 << 30).unwrap();
    let plan = crate::landing::undo::plan(&fixture.root, &done, &contents).unwrap();
    assert_eq!(
        (plan.merged.as_slice(), plan.conflicts.as_slice()),
        (
            ["a.txt".to_owned(), "b.txt".to_owned()].as_slice(),
            [].as_slice()
        )
    );
    fixture.swap(plan.swaps);
    let expect = numbered().replace("line 18\n", "of the user\n");
    assert_eq!(
        (fixture.read("a.txt"), fixture.read("b.txt")),
        (expect.clone(), expect)
    );
}

#[tokio::test]
async fn directories_become_files_and_links_and_come_back() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    fs::create_dir_all(fixture.base.join("ws/sub/out/deep")).unwrap();
    fs::write(fixture.base.join("ws/sub/out/deep/o"), "built\n").unwrap();
    fixture
        .check(
            "rm -rf sub; echo x > sub",
            &["sub", "sub/c.txt", "sub/deep/d.txt"],
        )
        .await;
    assert!(
        fs::symlink_metadata(fixture.base.join("ws/sub"))
            .unwrap()
            .is_file()
    );
    fixture
        .check("rm sub; mkdir -p d/in; echo y > d/in/y", &["d/in/y", "sub"])
        .await;
    fixture
        .check("mv d D; ln -s D d", &["D/in/y", "d", "d/in/y"])
        .await;
    assert_eq!(fixture.read("d/in/y"), "y\n");
    fixture
        .check("rm d; mv D d", &["D/in/y", "d", "d/in/y"])
        .await;
    let left = fs::read_dir(fixture.base.join("ws")).unwrap().flatten();
    let left = left.filter(|one| is_staging(&one.file_name()));
    assert_eq!(left.count(), 0, "no staging directory is left");
}

#[tokio::test]
async fn a_folder_that_a_command_leaves_empty_stays() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    fixture
        .check("rm sub/deep/d.txt", &["sub/deep/d.txt"])
        .await;
    let (finished, _) = fixture
        .call("mkdir -p sub/deep; echo d > sub/deep/d.txt")
        .await;
    assert_eq!(finished.not_landed, None);
    fixture.call("rm sub/deep/d.txt").await;
    assert!(fixture.has("sub/deep"));
    fixture.run.files().remove("sub/c.txt").unwrap();
    assert!(fixture.has("sub"));
}

#[tokio::test]
async fn attributes_and_times_of_a_file_survive_a_command_and_a_move() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let path = fixture.base.join("ws/a.txt");
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, "user.note", b"mine", flags).is_err() {
        return;
    }
    let (finished, _) = fixture
        .call("echo more >> a.txt; touch -d 2001-02-03 a.txt")
        .await;
    assert_eq!(finished.not_landed, None);
    fixture.run.files().rename("a.txt", "m.txt", false).unwrap();
    let moved = fixture.base.join("ws/m.txt");
    let mut value = [0; 8];
    let len = rustix::fs::getxattr(&moved, "user.note", &mut value).unwrap();
    assert_eq!(&value[..len], b"mine");
    assert!(fs::metadata(&moved).unwrap().mtime() < 1_000_000_000);
}

#[tokio::test]
async fn a_dead_landing_of_another_run_is_recovered_by_the_next_call() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    // A process died while it staged its files.
    let staging = ".windlass-landing-00000000000000aa";
    fs::create_dir(fixture.base.join("ws").join(staging)).unwrap();
    fs::create_dir_all(fixture.base.join("journal")).unwrap();
    let journal = serde_json::json!({
        "state": "staging",
        "root": {"Unix": fixture.base.join("ws").as_os_str().as_encoded_bytes()},
        "name": staging,
        "stages": [""],
        "swaps": [],
        "made": [],
        "emptied": [],
        "hold": false,
    });
    fs::write(
        fixture.base.join("journal/journal.json"),
        journal.to_string(),
    )
    .unwrap();
    fixture.check("echo new >> a.txt", &["a.txt"]).await;
    assert!(!fixture.has(staging));
}

/// Waits for an action of a background job.
fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    (0..250).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        done()
    })
}

impl InPlaceFixture {
    /// Starts a background job as a call of its own.
    async fn start_job(&self, line: &str) -> JobId {
        let (undo, call) = (self.undo(), CallId("job".into()));
        undo.begin(&call);
        let job = self.run.processes().start(command(line)).unwrap();
        undo.end(&call).await.unwrap();
        undo.logged(&call);
        job
    }

    /// Lands the changes of jobs, as the engine does before each call, and returns them.
    async fn land_jobs(&self) -> Vec<Swap> {
        let undo = self.undo();
        let mut landed = Vec::new();
        for call in undo.land_jobs().await {
            assert_eq!(call, CallId("job".into()));
            landed.extend(swaps(&undo.end(&call).await.unwrap()));
            undo.logged(&call);
        }
        landed
    }

    fn shared(&self, name: &str) -> PathBuf {
        self.base.join("shared").join(name)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_in_the_background_sees_later_saves_and_keeps_its_files_open() {
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let shared = fixture.base.join("shared").display().to_string();
    let line = format!(
        "cd sub && exec 3>>{shared}/log && while :; do cat c.txt ../a.txt ../new/n.txt > {shared}/now 2>&1; \
         mv {shared}/now {shared}/seen; echo tick >&3; sleep 0.02; done"
    );
    fixture.start_job(&line).await;
    let seen = |text: &str| {
        let began = std::time::Instant::now();
        let seen = || fs::read_to_string(fixture.shared("seen")).unwrap_or_default();
        let found = wait_until(|| seen().contains(text));
        assert!(found, "{text} was not seen, but {}", seen());
        began.elapsed()
    };
    seen("c\n1\n2\n3\n");
    fs::write(fixture.base.join("ws/a.txt"), "of the user\n").unwrap();
    seen("of the user");
    // Many editors save like this: a new file replaces the old one.
    fs::write(fixture.base.join("ws/a.tmp"), "saved anew\n").unwrap();
    fs::rename(fixture.base.join("ws/a.tmp"), fixture.base.join("ws/a.txt")).unwrap();
    seen("saved anew");
    fs::create_dir(fixture.base.join("ws/new")).unwrap();
    fs::write(fixture.base.join("ws/new/n.txt"), "in a new folder\n").unwrap();
    seen("in a new folder");
    fs::remove_dir_all(fixture.base.join("ws/new")).unwrap();
    seen("No such file");
    fixture
        .run
        .files()
        .write("sub/c.txt", b"of a tool\n")
        .unwrap();
    seen("of a tool");
    let (finished, _) = fixture.call("echo of a command > a.txt").await;
    assert_eq!(finished.not_landed, None);
    seen("of a tool\nof a command\n");
    let ticks = || fs::read_to_string(fixture.shared("log")).unwrap().len();
    let before = ticks();
    assert!(
        wait_until(|| ticks() > before),
        "its open file and its working directory are intact"
    );
    fixture.run.processes().stop_all().await;
    assert_eq!(fixture.land_jobs().await, []);
    assert_eq!(fixture.read("a.txt"), "of a command\n");
    assert!(!fixture.has("new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_writes_of_a_background_job_land_at_the_next_call_and_at_its_end() {
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let shared = fixture.base.join("shared").display().to_string();
    let line = format!(
        "echo one > one.txt; echo more >> b.txt; rm sub/c.txt; mkdir -p out; echo o > out/new.o; echo > {shared}/go; \
         while ! test -e {shared}/stop; do sleep 0.02; done; \
         echo two > two.txt; echo p >> out/new.o; echo > {shared}/end; sleep 30"
    );
    let before = listing(&fixture.base.join("ws"));
    fixture.start_job(&line).await;
    assert!(wait_until(|| fixture.shared("go").exists()));
    let first = fixture.land_jobs().await;
    let paths =
        |swaps: &[Swap]| -> Vec<String> { swaps.iter().map(|swap| swap.path.clone()).collect() };
    assert_eq!(paths(&first), ["b.txt", "one.txt", "sub/c.txt"]);
    assert_eq!(
        (
            fixture.read("one.txt").as_str(),
            fixture.read("b.txt").as_str()
        ),
        ("one\n", "b\nmore\n")
    );
    assert_eq!(fixture.read("out/new.o"), "o\n");
    assert!(!fixture.has("sub/c.txt"));
    let (finished, changes) = fixture.call("cat one.txt").await;
    assert_eq!(finished.output, "one\n");
    assert_eq!(changes.files, [], "they belong to the job's call");
    assert_eq!(fixture.land_jobs().await, [], "nothing lands twice");
    fs::write(fixture.shared("stop"), "").unwrap();
    assert!(wait_until(|| fixture.shared("end").exists()));
    fixture.run.processes().stop_all().await;
    assert_eq!(fixture.run.notes(), Vec::<String>::new());
    let last = fixture.land_jobs().await;
    assert_eq!(paths(&last), ["two.txt"]);
    assert_eq!(fixture.read("out/new.o"), "o\np\n");
    // The undo of both landings restores the tree, except for ignored files.
    fixture.swap([last, first].concat().into_iter().map(reversed).collect());
    fs::remove_file(fixture.base.join("ws/out/new.o")).unwrap();
    assert_eq!(listing(&fixture.base.join("ws")), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_job_lands_when_it_ends_by_itself() {
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let shared = fixture.base.join("shared").display().to_string();
    let line = format!("while ! test -e {shared}/go; do sleep 0.02; done; echo late > late.txt");
    fixture.start_job(&line).await;
    fs::write(fixture.shared("go"), "").unwrap();
    let mut landed = Vec::new();
    for _ in 0..250 {
        landed.extend(fixture.land_jobs().await);
        if !landed.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(landed.len(), 1);
    assert_eq!(fixture.read("late.txt"), "late\n");
    fixture.run.processes().stop_all().await;
}

/// The answer that tells the model about changes that did not land.
enum ReportedBy {
    Poll,
    Command,
}

/// Starts a job that writes files and then prints `a.txt` again and again, lets the user save `a.txt`, and lands.
/// Returns the message for the model.
async fn conflict_of_job(
    fixture: &InPlaceFixture,
    writes: &str,
    landed: usize,
    by: ReportedBy,
) -> String {
    let shared = fixture.base.join("shared").display().to_string();
    let line = format!(
        "{writes}; echo > {shared}/go; \
         while :; do cat a.txt > {shared}/now; mv {shared}/now {shared}/seen; sleep 0.02; done"
    );
    let job = fixture.start_job(&line).await;
    assert!(wait_until(|| fixture.shared("go").exists()));
    fs::write(fixture.base.join("ws/a.txt"), "of the user\n").unwrap();
    let swaps = fixture.land_jobs().await;
    assert_eq!(swaps.len(), landed, "{swaps:?}");
    assert_eq!(fixture.read("a.txt"), "of the user\n");
    let message = match by {
        ReportedBy::Poll => fixture.run.processes().poll(&job, 0, 1 << 10).unwrap().text,
        ReportedBy::Command => fixture.shell("true").await.output,
    };
    assert!(
        message.contains("a.txt: another program changed it"),
        "{message}"
    );
    let kept = message.rsplit_once("kept in ").unwrap().1;
    let kept = kept.trim().trim_end_matches(']');
    assert_eq!(
        fs::read_to_string(Path::new(kept).join("a.txt")).unwrap(),
        "job\n"
    );
    let seen = || fs::read_to_string(fixture.shared("seen")).unwrap_or_default();
    assert!(wait_until(|| seen() == "of the user\n"), "{}", seen());
    fixture.run.processes().stop_all().await;
    assert_eq!(fixture.land_jobs().await, []);
    assert_eq!(fixture.run.notes().len(), 1);
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_of_a_background_job_is_kept_and_its_view_follows_the_workspace() {
    if lacks(Need::CommandLayers) {
        return;
    }
    for by in [ReportedBy::Poll, ReportedBy::Command] {
        let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
        conflict_of_job(&fixture, "echo job > a.txt", 0, by).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_writes_of_a_background_job_land_despite_a_conflict() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let writes = "echo job > a.txt; echo fine > fine.txt; echo x > .vscode/settings.json";
    let message = conflict_of_job(&fixture, writes, 1, ReportedBy::Poll).await;
    assert!(message.contains(".vscode: it is protected"), "{message}");
    assert_eq!(fixture.read("fine.txt"), "fine\n");
    assert_eq!(fixture.read(".vscode/settings.json"), "{}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_path_of_a_background_job_may_have_any_name() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let shared = fixture.base.join("shared").display().to_string();
    let line = format!(
        "ln -s ../home $(printf 'o-\\377'); echo fine > fine.txt; echo > {shared}/go; sleep 30"
    );
    fixture.start_job(&line).await;
    assert!(wait_until(|| fixture.shared("go").exists()));
    assert_eq!(fixture.land_jobs().await.len(), 1);
    assert_eq!(fixture.read("fine.txt"), "fine\n");
    fixture.run.processes().stop_all().await;
    assert_eq!(fixture.run.notes().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn background_jobs_that_watch_files_notice_saves() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = InPlaceFixture::new(Confinement::Sandboxed, 1 << 30).await;
    let shared = fixture.base.join("shared").display().to_string();
    let watcher = format!(
        "import ctypes, os, struct\n\
         libc = ctypes.CDLL(None)\n\
         handle = libc.inotify_init()\n\
         libc.inotify_add_watch(handle, b'sub', 0x3ce)\n\
         open('{shared}/ready', 'w').close()\n\
         while True:\n\
         \x20   os.read(handle, 4096)\n\
         \x20   open('{shared}/heard', 'a').write(open('sub/c.txt').read())\n"
    );
    fs::write(fixture.shared("watch.py"), watcher).unwrap();
    fixture
        .start_job(&format!("exec python3 {shared}/watch.py"))
        .await;
    assert!(wait_until(|| fixture.shared("ready").exists()));
    // Many editors save in place.
    fs::write(fixture.base.join("ws/sub/c.txt"), "saved\n").unwrap();
    let heard = || fs::read_to_string(fixture.shared("heard")).unwrap_or_default();
    assert!(wait_until(|| heard().contains("saved")), "{}", heard());
    fixture.run.processes().stop_all().await;
    assert_eq!(fixture.land_jobs().await, []);
}

#[tokio::test]
async fn the_record_of_a_landing_stays_until_its_call_is_logged() {
    let fixture = InPlaceFixture::new(Confinement::Unconfined, 1 << 30).await;
    let records = || crate::landing::unlogged_landings(&fixture.base.join("journal"));
    let (undo, call) = (fixture.undo(), CallId("call".into()));
    undo.begin(&call);
    fixture.run.files().write("a.txt", b"one\n").unwrap();
    fixture.run.files().write("n.txt", b"two\n").unwrap();
    let changes = undo.end(&call).await.unwrap();
    let found = records();
    let found: Vec<&Swap> = found.iter().flat_map(|record| &record.swaps).collect();
    assert_eq!(found, swaps(&changes).iter().collect::<Vec<_>>());
    undo.logged(&CallId("another".into()));
    assert_eq!(records().len(), 2);
    undo.logged(&call);
    assert_eq!(records(), []);
    // A write between calls belongs to no call.
    fixture.run.files().write("a.txt", b"three\n").unwrap();
    assert_eq!(records(), []);
}

fn reversed(swap: Swap) -> Swap {
    Swap {
        path: swap.path,
        before: swap.after,
        after: swap.before,
    }
}
