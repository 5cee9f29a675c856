//! The cases of calls that can be taken back, with real commands over real layers in scratch folders. Destructive
//! lines run only there, inside a sandbox.

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
    CallChanges, Command, Finished, Opening, ProcessEnd, Snapshots, Transaction, Watch, Workspaces,
};

use crate::in_place::InPlace;
use crate::landing::{Contents, land};
use crate::test_helper::helper;
use windlass_host::sandbox::{Level, Limits, NetPolicy, Sandbox, SandboxPlan};
use windlass_host::workspace::Root;
use windlass_needs::{Need, lacks};

/// A workspace with a run in it.
struct Lab {
    _scratch: tempfile::TempDir,
    base: PathBuf,
    root: Arc<Root>,
    run: Box<dyn Transaction>,
}

/// How commands are held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Boxed,
    Freely,
}

impl Lab {
    async fn new(held: Held, cap: u64) -> Self {
        Self::with_data(held, cap, None).await
    }

    async fn with_data(held: Held, cap: u64, data: Option<&Path>) -> Self {
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
        let mut workspaces = InPlace::new(Arc::clone(&root), env.clone());
        if held == Held::Boxed {
            let plan = SandboxPlan {
                root: base.join("ws"),
                home: Some(base.join("home")),
                own: Vec::new(),
                data_dir: data.map_or_else(|| base.join("data"), Path::to_owned),
                level: Level::WorkspaceWrite,
                net: NetPolicy::Off,
                read: Vec::new(),
                write: vec![base.join("shared")],
                hidden: Vec::new(),
                limits: Limits::default(),
                accept_landlock: false,
                require: None,
                agent: None,
            };
            workspaces = workspaces.sandboxed(Arc::new(
                Sandbox::new(plan, helper(), env).copying_with(crate::copy_workspace),
            ));
        }
        let workspaces = workspaces
            .undo(&base.join("contents"), base.join("journal"), cap)
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
            run,
        }
    }

    fn undo(&self) -> Arc<dyn Snapshots> {
        self.run.snapshots().unwrap()
    }

    /// Runs a line as one call.
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

    /// The line succeeds without a remark, and changes this; taken back, the tree is as it was.
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
            let paths: Vec<&str> = changes
                .swaps
                .iter()
                .map(|swap| swap.path.as_str())
                .collect();
            assert_eq!(paths, expect, "{caller}: {line}");
            let after = listing(&self.base.join("ws"));
            self.swap(changes.swaps.iter().cloned().map(Swap::reversed).collect());
            assert_eq!(
                sources(&listing(&self.base.join("ws"))),
                sources(&before),
                "{caller}: undo of {line}"
            );
            self.swap(changes.swaps.clone());
            assert_eq!(
                sources(&listing(&self.base.join("ws"))),
                sources(&after),
                "{caller}: redo of {line}"
            );
            changes
        }
    }

    /// Brings swaps into the tree, with the bytes that were kept.
    #[track_caller]
    fn swap(&self, swaps: Vec<Swap>) {
        let contents = Contents::open(&self.base.join("contents"), 1 << 30).unwrap();
        land(
            &self.root,
            &swaps,
            &contents,
            &contents,
            &self.base.join("journal"),
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

/// Every file and link below a folder, with its mode and what is in it.
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
        .filter(|(path, _)| !path.starts_with("out/") && !path.starts_with(".git/"))
        .collect()
}

#[tokio::test]
async fn what_a_command_changed_is_in_the_tree_and_can_be_taken_back() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let lab = Lab::new(Held::Boxed, 1 << 30).await;
    let check = |line, expect| lab.check(line, expect);
    check(
        "echo new >> a.txt; echo n > n.txt; rm b.txt",
        &["a.txt", "b.txt", "n.txt"],
    )
    .await;
    assert_eq!(
        (lab.read("a.txt").as_str(), lab.has("b.txt")),
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
    assert!(lab.has("empty/inner"));
    // A folder in the place of another one, a file in the place of a folder, and a folder in the place of a file.
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
        fs::read_dir(lab.base.join("data/boxes/layers"))
            .unwrap()
            .next()
            .is_none(),
        "no layer is left"
    );
}

#[tokio::test]
async fn outputs_are_moved_and_named_as_what_cannot_be_taken_back() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = Lab::new(Held::Boxed, 1 << 30).await;
    let line = "mkdir -p out/new/deep && echo o > out/new/deep/o && ln out/new/deep/o out/new/hard && \
                echo other > out/old.o && touch -d 2001-02-03 out/new/deep/o a.txt";
    let changes = lab.check(line, &[]).await;
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
            lab.read("out/new/deep/o").as_str(),
            lab.read("out/old.o").as_str()
        ),
        ("o\n", "other\n")
    );
    let about = |name: &str| fs::metadata(lab.base.join("ws").join(name)).unwrap();
    assert_eq!(about("out/new/deep/o").ino(), about("out/new/hard").ino());
    assert!(
        about("out/new/deep/o").mtime() < 1_000_000_000 && about("a.txt").mtime() < 1_000_000_000
    );
    let note = rustix::fs::lgetxattr(
        lab.base.join("ws/out/new"),
        "user.overlay.opaque",
        &mut [0; 4],
    );
    assert!(note.is_err());
    lab.check("rm -r out/new; mkdir -p out/new/deep", &[]).await;
    assert!(lab.has("out/new/deep") && !lab.has("out/new/deep/o"));
    lab.check("rm -r out/new; rm out/old.o; mkdir out/new", &[])
        .await;
    assert!(lab.has("out/new") && !lab.has("out/new/deep") && !lab.has("out/old.o"));
    lab.check("rm -r out", &[]).await;
    assert!(!lab.has("out"));
}

#[tokio::test]
async fn times_are_those_that_the_command_gave() {
    let lab = Lab::new(Held::Boxed, 1 << 30).await;
    let (finished, _) = lab
        .call("echo x > new.c; sleep 0.05; echo o > out/new.o; test out/new.o -nt new.c")
        .await;
    assert_eq!(finished.end, ProcessEnd::Exited { code: 0 });
    let time = |name: &str| {
        fs::metadata(lab.base.join("ws").join(name))
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
    let lab = Lab::new(Held::Boxed, 1 << 30).await;
    fs::write(lab.base.join("ws/CLAUDE.md"), "mine\n").unwrap();
    fs::write(
        lab.base.join("ws/.git/config"),
        "[core]\n\thooksPath = hooks\n",
    )
    .unwrap();
    fs::create_dir(lab.base.join("ws/hooks")).unwrap();
    let before = listing(&lab.base.join("ws"));
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
        let (finished, _) = lab.call(line).await;
        assert_eq!(
            finished.end,
            ProcessEnd::Exited { code: 0 },
            "{line}: {}",
            finished.output
        );
        let told = format!("[sandbox: not changed in the workspace: {named}: it is protected");
        assert!(
            finished.output.starts_with(&told),
            "{line}: {}",
            finished.output
        );
        assert_eq!(listing(&lab.base.join("ws")), before, "{line}");
    }
    // What is free while it is absent is free here, too.
    lab.check("echo x > AGENTS.md", &["AGENTS.md"]).await;
}

#[tokio::test]
async fn outputs_come_over_from_another_disk_too() {
    let Ok(data) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let lab = Lab::with_data(Held::Boxed, 1 << 30, Some(data.path())).await;
    let line = "mkdir -p out/new/deep && cp /bin/true out/new/deep/t && ln -s deep out/new/l && echo other > out/old.o && \
                touch -d 2001-02-03 out/new/deep/t && chmod 500 out/new/deep/t && echo n >> a.txt";
    lab.check(line, &["a.txt"]).await;
    let about = fs::metadata(lab.base.join("ws/out/new/l/t")).unwrap();
    assert_eq!(
        (about.mode() & 0o777, about.mtime() < 1_000_000_000),
        (0o500, true)
    );
    assert_eq!(lab.read("out/old.o"), "other\n");
}

#[tokio::test]
async fn git_works_in_place() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let lab = Lab::new(Held::Boxed, 1 << 30).await;
    fs::remove_dir_all(lab.base.join("ws/.git")).unwrap();
    fs::remove_dir_all(lab.base.join("ws/.vscode")).unwrap();
    let git = |words: &[&str]| {
        let done = std::process::Command::new("git")
            .args(words)
            .current_dir(lab.base.join("ws"))
            .output()
            .unwrap();
        assert!(done.status.success(), "{words:?} {done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    git(&["init", "-q", "-b", "main"]);
    let commit = "git -c user.name=x -c user.email=x@y commit -qm";
    let (finished, changes) = lab
        .call(&format!("git add -A && {commit} one && git status --short"))
        .await;
    assert_eq!(
        (finished.end, finished.output.as_str()),
        (ProcessEnd::Exited { code: 0 }, "")
    );
    assert_eq!(
        (changes.swaps.len(), changes.lost[0].0.as_str()),
        (0, ".git")
    );
    assert_eq!(git(&["log", "--format=%s"]), "one\n");
    let line = format!(
        "git checkout -qb other && echo 2 > a.txt && {commit} two -a && git checkout -q main && git gc -q"
    );
    let (finished, changes) = lab.call(&line).await;
    assert_eq!(
        (finished.end, finished.output.as_str()),
        (ProcessEnd::Exited { code: 0 }, "")
    );
    assert!(changes.swaps.is_empty(), "{changes:?}");
    assert_eq!(git(&["log", "--format=%s", "other"]), "two\none\n");
    assert_eq!(git(&["fsck"]), "");
    assert_eq!(
        (
            git(&["status", "--short"]).as_str(),
            lab.read("a.txt").as_str()
        ),
        ("", "1\n2\n3\n")
    );
    // A repository that a command makes has settings, and no hooks.
    let (finished, _) = lab
        .call("git init -q sub/repo && echo x > sub/repo/.git/hooks/post-commit")
        .await;
    assert!(
        finished
            .output
            .contains("sub/repo/.git/hooks/post-commit: it is protected"),
        "{}",
        finished.output
    );
    assert!(lab.has("sub/repo/.git/config") && !lab.has("sub/repo/.git/hooks/post-commit"));
}

#[tokio::test]
async fn what_somebody_wrote_meanwhile_stays() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = Lab::new(Held::Boxed, 1 << 30).await;
    let go = lab.base.join("shared/go");
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
    let ws = lab.base.join("ws");
    let human = std::thread::spawn(move || {
        // Opens when the command reads, which is after it wrote.
        let gate = fs::File::options().write(true).open(go).unwrap();
        for name in ["a.txt", "out/old.o", "sub/c.txt"] {
            fs::write(ws.join(name), "human\n").unwrap();
        }
        drop(gate);
    });
    let (finished, changes) = lab.call(line).await;
    human.join().unwrap();
    for name in ["a.txt", "out/old.o", "sub/c.txt"] {
        assert_eq!(lab.read(name), "human\n");
        assert!(
            finished
                .output
                .contains(&format!("{name}: it was changed by somebody else")),
            "{}",
            finished.output
        );
    }
    assert_eq!(lab.read("b.txt"), "command\n");
    assert_eq!(
        changes
            .swaps
            .iter()
            .map(|swap| swap.path.as_str())
            .collect::<Vec<_>>(),
        ["b.txt"]
    );
}

#[tokio::test]
async fn destructive_lines_can_be_taken_back() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let lab = Lab::new(Held::Boxed, 1 << 30).await;
    let before = listing(&lab.base.join("ws"));
    let (finished, changes) = lab.call("rm -rf ./* ./.gitignore .git .vscode").await;
    assert!(
        finished.output.contains(".git: it is protected"),
        "{}",
        finished.output
    );
    assert!(
        !lab.has("a.txt")
            && !lab.has("sub")
            && lab.has(".git/config")
            && lab.has(".vscode/settings.json")
    );
    lab.swap(changes.swaps.into_iter().map(Swap::reversed).collect());
    assert_eq!(sources(&listing(&lab.base.join("ws"))), sources(&before));
}

#[tokio::test]
async fn what_tools_write_can_be_taken_back() {
    let lab = Lab::new(Held::Freely, 1 << 30).await;
    let (undo, call, files) = (lab.undo(), CallId("call".into()), lab.run.files());
    let before = listing(&lab.base.join("ws"));
    fs::set_permissions(lab.base.join("ws/a.txt"), fs::Permissions::from_mode(0o644)).unwrap();
    undo.begin(&call);
    files.write("a.txt", b"new\n").unwrap();
    files.write("a.txt", b"newer\n").unwrap();
    files.write("fresh/n.txt", b"n\n").unwrap();
    files.write("gone.txt", b"n\n").unwrap();
    files.remove("gone.txt").unwrap();
    files.remove("b.txt").unwrap();
    files.rename("sub", "other", false).unwrap();
    let changes = undo.end(&call).await.unwrap();
    let paths: Vec<&str> = changes
        .swaps
        .iter()
        .map(|swap| swap.path.as_str())
        .collect();
    let expect = [
        "a.txt",
        "b.txt",
        "fresh/n.txt",
        "other/c.txt",
        "other/deep/d.txt",
        "sub/c.txt",
        "sub/deep/d.txt",
    ];
    assert_eq!((paths, changes.lost), (expect.to_vec(), Vec::new()));
    lab.swap(changes.swaps.into_iter().map(Swap::reversed).collect());
    assert_eq!(listing(&lab.base.join("ws")), before);
    // The next call has nothing to do with it.
    undo.begin(&call);
    assert_eq!(undo.end(&call).await.unwrap(), CallChanges::default());
}

#[tokio::test]
async fn without_layers_the_tree_is_looked_at_before_and_after() {
    let lab = Lab::new(Held::Freely, 1 << 30).await;
    lab.check(
        "echo new >> a.txt; echo n > n.txt; rm b.txt; mv sub/c.txt c.txt",
        &["a.txt", "b.txt", "c.txt", "n.txt", "sub/c.txt"],
    )
    .await;
    lab.check("echo more >> a.txt", &["a.txt"]).await;
    lab.check("true", &[]).await;
}

#[tokio::test]
async fn what_does_not_fit_is_named() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let lab = Lab::new(Held::Freely, 8).await;
    let (_, changes) = lab.call("echo new > a.txt; echo x > x.txt").await;
    assert_eq!(
        changes
            .swaps
            .iter()
            .map(|swap| swap.path.as_str())
            .collect::<Vec<_>>(),
        ["x.txt"]
    );
    assert!(
        changes
            .lost
            .iter()
            .any(|(path, why)| path == "a.txt" && why.contains("not kept")),
        "{changes:?}"
    );
    let lab = Lab::new(Held::Boxed, 4).await;
    let (_, changes) = lab.call("echo new > a.txt; echo x > x.txt").await;
    assert_eq!(
        changes
            .swaps
            .iter()
            .map(|swap| swap.path.as_str())
            .collect::<Vec<_>>(),
        ["x.txt"]
    );
    assert!(
        changes
            .lost
            .iter()
            .any(|(path, why)| path == "a.txt" && why.contains("cap")),
        "{changes:?}"
    );
    assert_eq!(lab.read("a.txt"), "new\n");
}

#[tokio::test]
async fn a_background_job_is_said_to_have_no_way_back() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = Lab::new(Held::Boxed, 1 << 30).await;
    let (undo, call) = (lab.undo(), CallId("call".into()));
    undo.begin(&call);
    lab.run.processes().start(command("true")).unwrap();
    let changes = undo.end(&call).await.unwrap();
    assert!(
        changes
            .lost
            .iter()
            .any(|(_, why)| why.contains("background job")),
        "{changes:?}"
    );
    lab.run.freeze().await.unwrap();
}
