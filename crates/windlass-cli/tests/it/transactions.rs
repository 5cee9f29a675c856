//! Transactions on real trees in the real sandbox: changes of the run on its copy, concurrent changes of the user, and
//! their landing.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass::core::CancellationToken;
use windlass::core::clock::Timestamp;
use windlass::core::id::{RunId, SessionId};
use windlass::core::terms::{Isolation, Strategy};
use windlass::core::workspace::*;
use windlass::machine::Root;
use windlass::machine::child_env;
use windlass_host::sandbox::{Helper, Sandbox, SandboxPlan};
use windlass_transaction::isolated::{
    KeptRuns, Transactions, landing_was_logged, recover_landings, unlogged_run_landings,
};

use crate::cli_fixture::BINARY;
use windlass_needs::{Need, lacks};

/// A temporary workspace, home and data directory for one test.
struct TransactionFixture {
    dir: tempfile::TempDir,
}

impl TransactionFixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let fixture = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for name in ["home", "work"] {
            std::fs::create_dir(fixture.dir.path().join(name)).unwrap();
        }
        for (name, text) in files {
            fixture.write(name, text);
        }
        fixture
    }

    /// A workspace that is a repository with one commit.
    fn committed(files: &[(&str, &str)]) -> Self {
        let fixture = Self::new(files);
        fixture.git(&["init", "-qb", "main"]);
        fixture.git(&["add", "-A"]);
        fixture.git(&["commit", "-qm", "one"]);
        fixture
    }

    fn work(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("work")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("data")
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap()
    }

    fn git(&self, args: &[&str]) -> String {
        git_in(&self.work(), args)
    }

    fn transactions(&self) -> Transactions {
        self.transactions_at(&self.work())
    }

    fn transactions_at(&self, work: &Path) -> Transactions {
        let home = self.dir.path().canonicalize().unwrap().join("home");
        let vars = [
            ("PATH".into(), std::env::var_os("PATH").unwrap()),
            ("HOME".into(), home.clone().into_os_string()),
        ];
        let env = child_env(vars, &[]);
        let root = Arc::new(Root::open(work).unwrap());
        let plan = SandboxPlan {
            root: work.to_owned(),
            home: Some(home),
            own: vec![self.data()],
            data_dir: self.data(),
            ..SandboxPlan::default()
        };
        let helper = Helper::new(BINARY);
        let copy = windlass_transaction::copy_workspace;
        let sandbox = Some(Arc::new(Sandbox::new(plan, helper, env.clone(), copy)));
        let shelf = KeptRuns::new(self.data().join("transactions"));
        Transactions::new(root, env, sandbox, shelf, self.data().join("undo")).unwrap()
    }

    async fn open(&self) -> OpenTransaction {
        OpenTransaction(self.try_open(&self.transactions(), None).await.unwrap())
    }

    async fn reopen(&self, name: &str) -> OpenTransaction {
        OpenTransaction(
            self.try_open(&self.transactions(), Some(name))
                .await
                .unwrap(),
        )
    }

    async fn try_open(
        &self,
        all: &Transactions,
        kept: Option<&str>,
    ) -> Result<Box<dyn Transaction>, WorkspaceError> {
        let (session, run) = (
            SessionId::fresh(Timestamp::from_millis(0), 1),
            RunId::nth(1),
        );
        all.open(Opening {
            session: &session,
            run: &run,
            isolation: Isolation::Isolated,
            kept,
        })
        .await
    }

    /// Reads the workspace without the git directory: bytes, modes and symlink targets.
    fn tree(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        tree_of(&self.work())
    }
}

fn git_in(dir: &Path, args: &[&str]) -> String {
    let mut command = std::process::Command::new("git");
    command.args([
        "-c",
        "user.name=n",
        "-c",
        "user.email=e",
        "-c",
        "protocol.file.allow=always",
    ]);
    command.args(args).current_dir(dir).env("HOME", dir);
    let done = command.output().unwrap();
    assert!(
        done.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

fn tree_of(top: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut tree = BTreeMap::new();
    let mut open = vec![top.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(top).unwrap().to_owned();
            if name == Path::new(".git") {
                continue;
            }
            let bytes = if about.is_symlink() {
                path.read_link().unwrap().as_os_str().as_bytes().to_vec()
            } else if about.is_file() {
                std::fs::read(&path).unwrap()
            } else {
                if about.is_dir() {
                    open.push(path.clone());
                }
                Vec::new()
            };
            tree.insert(name, (about.permissions().mode(), bytes));
        }
    }
    tree
}

struct OpenTransaction(Box<dyn Transaction>);

impl OpenTransaction {
    async fn sh(&self, line: &str) -> String {
        let (code, output) = self.try_sh(line).await;
        assert_eq!(code, 0, "{line}: {output}");
        output
    }

    async fn try_sh(&self, line: &str) -> (i32, String) {
        let command = Command {
            line: line.into(),
            workdir: String::new(),
            timeout: Duration::from_secs(60),
            keep: 100_000,
            input: None,
            looks: false,
        };
        let watch = Watch {
            progress: &|_| {},
            cancel: CancellationToken::new(),
            artifacts: None,
        };
        let finished = self.0.processes().run(command, watch).await.unwrap();
        match finished.end {
            ProcessEnd::Exited { code } => (code, finished.output),
            other => panic!("{line}: {other:?}: {}", finished.output),
        }
    }

    fn write(&self, path: &str, text: &str) {
        self.0.files().write(path, text.as_bytes()).unwrap();
    }

    /// Lists the changes in the form `M a.txt`.
    async fn changes(&self) -> Vec<String> {
        let changes = self.0.changes().await.unwrap();
        let line = |change: &FileChange| {
            let sign = match &change.change {
                Change::Created => "C".to_owned(),
                Change::Modified => "M".to_owned(),
                Change::Deleted => "D".to_owned(),
                Change::MovedFrom(from) => format!("R {from}"),
            };
            format!("{sign} {}", change.path)
        };
        changes.files.iter().map(line).collect()
    }

    async fn land(self) -> Result<Landed, WorkspaceError> {
        self.land_to(LandTo::Tree).await
    }

    async fn land_to(self, to: LandTo) -> Result<Landed, WorkspaceError> {
        self.0.freeze().await.unwrap();
        let tree_hash = self.0.changes().await.unwrap().tree_hash;
        let landed = self.0.land(&Landing { tree_hash, to }).await;
        match &landed {
            Ok(_) => self.0.discard().await.unwrap(),
            Err(_) => drop(self.0.keep().await.unwrap()),
        }
        landed
    }

    async fn keep(self) -> String {
        self.0.keep().await.unwrap().unwrap()
    }
}

const FILES: &[(&str, &str)] = &[
    ("a.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
    ("sub/b.txt", "b\n"),
    ("sub/deep/c.txt", "c\n"),
    ("gone.txt", "gone\n"),
    (".gitignore", "out/\n*.o\n"),
];

#[tokio::test]
async fn a_run_lands_exactly_the_changes_of_its_copy() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = TransactionFixture::committed(FILES);
    let before = fixture.tree();
    let run = fixture.open().await;
    assert_eq!(run.0.terms().strategy, Strategy::Overlay);
    assert!(
        run.sh("pwd").await.trim() == fixture.work().to_str().unwrap(),
        "at the same path"
    );
    run.write("new/file.txt", "new\n");
    run.sh(
        "printf '10\\n' >> a.txt && chmod 755 sub/b.txt && ln -s ../a.txt sub/link && rm gone.txt && mv sub/deep moved \
         && mkdir -p out && echo o > out/x.o && cat new/file.txt",
    )
    .await;
    assert_eq!(fixture.tree(), before, "nothing has reached the tree");
    let expect = [
        "M a.txt",
        "D gone.txt",
        "R sub/deep/c.txt moved/c.txt",
        "C new/file.txt",
        "M sub/b.txt",
    ];
    let mut all = run.changes().await;
    all.retain(|line| line != "D sub/deep/c.txt" && line != "C sub/link");
    assert_eq!(all, expect);
    let landed = run.land().await.unwrap();
    assert_eq!(landed.left, ["out"]);
    assert_eq!(fixture.read("a.txt"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    assert_eq!(fixture.read("moved/c.txt"), "c\n");
    let mode = std::fs::metadata(fixture.work().join("sub/b.txt"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(
        std::fs::read_link(fixture.work().join("sub/link")).unwrap(),
        Path::new("../a.txt")
    );
    for gone in ["gone.txt", "sub/deep", "out"] {
        assert!(!fixture.work().join(gone).exists(), "{gone}");
    }
    let left: Vec<_> = std::fs::read_dir(fixture.data().join("transactions"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "the copy is gone");
}

#[tokio::test]
async fn commands_of_a_run_never_change_the_tree() {
    let fixture = TransactionFixture::committed(FILES);
    fixture.write("a.txt", "not committed\n");
    fixture.write("untracked.txt", "mine\n");
    fixture.write("out/x.o", "built\n");
    let (before, head) = (fixture.tree(), fixture.git(&["rev-parse", "HEAD"]));
    let run = fixture.open().await;
    let top = fixture.work();
    let top = top.to_str().unwrap();
    for line in [
        "git reset --hard -q && git clean -fdxq && test ! -e untracked.txt",
        "rm -rf ./* ./.??*; test -z \"$(ls -A | grep -v '^.git$')\"",
        &format!("cd / && rm -rf {top}/* {top}/.[a-z]*; true"),
        "rm -rf . 2>/dev/null; true",
        "git init -q . 2>/dev/null; git checkout --orphan x 2>/dev/null; true",
        "mkdir -p sub && mkfifo sub/pipe && chmod 000 sub; true",
    ] {
        run.try_sh(line).await;
        assert_eq!(fixture.tree(), before, "{line}");
    }
    let name = run.keep().await;
    assert_eq!(
        (fixture.tree(), fixture.git(&["rev-parse", "HEAD"])),
        (before, head)
    );
    assert!(fixture.git(&["status", "--short"]).contains("a.txt"));
    fixture.reopen(&name).await.0.discard().await.unwrap();
}

#[tokio::test]
async fn concurrent_changes_of_the_user_are_detected_and_merged() {
    let fixture = TransactionFixture::committed(FILES);
    let run = fixture.open().await;
    run.write("a.txt", "run\n");
    assert!(run.0.moved().await.unwrap().is_empty());
    fixture.write("sub/b.txt", "mine\n");
    fixture.write("mine.txt", "new\n");
    std::fs::remove_file(fixture.work().join("gone.txt")).unwrap();
    fixture.write("out/y.o", "ignored\n");
    assert_eq!(
        run.0.moved().await.unwrap(),
        ["gone.txt", "mine.txt", "sub/b.txt"]
    );
    let hash = run.0.changes().await.unwrap().tree_hash;
    run.0.catch_up().await.unwrap();
    assert_eq!(
        run.sh("cat sub/b.txt mine.txt; ls gone.txt 2>&1 || true")
            .await
            .lines()
            .take(2)
            .collect::<Vec<_>>(),
        ["mine", "new"]
    );
    assert!(run.0.moved().await.unwrap().is_empty());
    assert_ne!(
        run.0.changes().await.unwrap().tree_hash,
        hash,
        "it is another tree now, so evidence is void"
    );
    assert_eq!(run.changes().await, ["M a.txt"]);
    run.land().await.unwrap();
    assert_eq!(
        (fixture.read("a.txt"), fixture.read("sub/b.txt")),
        ("run\n".into(), "mine\n".into())
    );
}

#[tokio::test]
async fn concurrent_changes_of_one_file_are_merged_only_with_a_known_base() {
    // A change by the file tools, which read the base.
    let fixture = TransactionFixture::new(FILES);
    let run = fixture.open().await;
    run.write("a.txt", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    fixture.write("a.txt", "one\n2\n3\n4\n5\n6\n7\n8\n9\n");
    run.0.catch_up().await.unwrap();
    run.land().await.unwrap();
    assert_eq!(fixture.read("a.txt"), "one\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    // A change by a command: git has the base.
    let fixture = TransactionFixture::committed(FILES);
    let run = fixture.open().await;
    run.sh("sed -i s/9/nine/ a.txt").await;
    fixture.write("a.txt", "one\n2\n3\n4\n5\n6\n7\n8\n9\n");
    run.0.catch_up().await.unwrap();
    run.land().await.unwrap();
    assert_eq!(fixture.read("a.txt"), "one\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    // A change by a command without a known base: a conflict, never a guess.
    let fixture = TransactionFixture::new(FILES);
    let run = fixture.open().await;
    run.sh("sed -i s/9/nine/ a.txt").await;
    fixture.write("a.txt", "one\n2\n3\n4\n5\n6\n7\n8\n9\n");
    let err = run.0.catch_up().await.unwrap_err();
    assert_eq!(err.kind, WorkspaceErrorKind::Conflict);
    assert!(
        err.message
            .contains("a.txt: both changed it, and its original content is unknown"),
        "{err}"
    );
    let err = run.land().await.unwrap_err();
    assert!(
        err.kind == WorkspaceErrorKind::Conflict && err.message.contains("a.txt"),
        "{err}"
    );
    assert_eq!(
        fixture.read("a.txt"),
        "one\n2\n3\n4\n5\n6\n7\n8\n9\n",
        "theirs stays"
    );
    // Both sides change the same lines.
    let fixture = TransactionFixture::committed(FILES);
    let run = fixture.open().await;
    run.write("a.txt", "run\n");
    fixture.write("a.txt", "mine\n");
    let err = run.0.catch_up().await.unwrap_err();
    assert!(
        err.message.contains("a.txt: both changed the same lines"),
        "{err}"
    );
    // One side deletes a file that the other changed.
    run.write("a.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    run.write("sub/b.txt", "run\n");
    fixture.write("a.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    std::fs::remove_file(fixture.work().join("sub/b.txt")).unwrap();
    let err = run.0.catch_up().await.unwrap_err();
    assert!(
        err.message
            .contains("sub/b.txt: you removed it, and the run changed it"),
        "{err}"
    );
}

/// Most editors save with a rename, which an overlay does not show. The run then reads the old file, and the tree has a
/// newer one than the run started with.
#[tokio::test]
async fn a_save_before_the_write_of_the_run_is_never_used_as_the_merge_base() {
    let mine = "1\n2\n3\n4\n5\n6\n7\n8\nmine\n";
    let save = |fixture: &TransactionFixture| {
        fixture.write("draft", mine);
        std::fs::rename(fixture.work().join("draft"), fixture.work().join("a.txt")).unwrap();
    };
    let write = |run: &OpenTransaction| {
        let shown = run.0.files().read("a.txt", 1_000).unwrap();
        run.write(
            "a.txt",
            &String::from_utf8(shown).unwrap().replace("1\n", "run\n"),
        );
    };
    // The base is unknown.
    let fixture = TransactionFixture::new(FILES);
    let run = fixture.open().await;
    run.sh("cat a.txt").await;
    save(&fixture);
    write(&run);
    let err = run.0.catch_up().await.unwrap_err();
    assert_eq!(err.kind, WorkspaceErrorKind::Conflict);
    assert_eq!(fixture.read("a.txt"), mine);
    // Git has the base.
    let fixture = TransactionFixture::committed(FILES);
    let run = fixture.open().await;
    run.sh("cat a.txt").await;
    save(&fixture);
    write(&run);
    run.0.catch_up().await.unwrap();
    run.land().await.unwrap();
    assert_eq!(fixture.read("a.txt"), "run\n2\n3\n4\n5\n6\n7\n8\nmine\n");
}

#[tokio::test]
async fn recreated_directories_land_exactly() {
    let fixture = TransactionFixture::committed(FILES);
    symlink("sub", fixture.work().join("link")).unwrap();
    let run = fixture.open().await;
    run.sh("rm -r sub link && mkdir -p sub/deep link && echo d > sub/deep/d.txt && echo b > link/b.txt").await;
    let expect = [
        "D link",
        "R sub/b.txt link/b.txt",
        "D sub/b.txt",
        "D sub/deep/c.txt",
        "C sub/deep/d.txt",
    ];
    assert_eq!(run.changes().await, expect);
    run.land().await.unwrap();
    let below = |top: &str| {
        tree_of(&fixture.work().join(top))
            .into_keys()
            .collect::<Vec<_>>()
    };
    assert_eq!(below("sub"), ["deep", "deep/d.txt"].map(PathBuf::from));
    assert_eq!(below("link"), ["b.txt"].map(PathBuf::from));
}

#[tokio::test]
async fn tracked_files_land_despite_ignore_rules_and_a_fifo_counts_as_a_deletion() {
    let names: Vec<String> = (0..600).map(|number| format!("f{number}")).collect();
    let files: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), "old\n"))
        .chain(FILES.to_vec())
        .collect();
    let fixture = TransactionFixture::committed(&files);
    let run = fixture.open().await;
    run.sh("for one in f*; do echo new > $one; done; echo '*' > .gitignore; rm gone.txt; mkfifo gone.txt").await;
    let changes = run.changes().await;
    assert_eq!(changes.len(), 602, "{changes:?}");
    assert!(
        names
            .iter()
            .all(|name| changes.contains(&format!("M {name}")))
    );
    assert!(changes.contains(&"D gone.txt".to_owned()));
}

#[tokio::test]
async fn an_unlogged_landing_is_found() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = TransactionFixture::committed(FILES);
    let shelf = KeptRuns::new(fixture.data().join("transactions"));
    for (line, stays) in [
        ("echo run > a.txt", false),
        (
            "echo more > a.txt; git -c user.name=r -c user.email=r commit -qam more",
            true,
        ),
    ] {
        let run = fixture.open().await;
        run.sh(line).await;
        let tree_hash = run.0.changes().await.unwrap().tree_hash;
        assert!(
            unlogged_run_landings(&shelf).is_empty(),
            "nothing has landed"
        );
        run.0
            .land(&Landing {
                tree_hash: tree_hash.clone(),
                to: LandTo::Tree,
            })
            .await
            .unwrap();
        assert!(
            unlogged_run_landings(&shelf).is_empty(),
            "who works on it tells of it"
        );
        drop(run);
        let (slot, untold) = unlogged_run_landings(&shelf).pop().unwrap();
        assert_eq!(
            (untold.landed.files, untold.tree_hash),
            (vec!["a.txt".to_owned()], tree_hash)
        );
        assert_eq!(untold.landed.swaps.len(), 1);
        landing_was_logged(slot).unwrap();
        assert!(unlogged_run_landings(&shelf).is_empty());
        assert_eq!(
            shelf.list().len(),
            usize::from(stays),
            "commits may be nowhere else"
        );
    }
}

#[tokio::test]
async fn a_landed_copy_is_kept_until_the_landing_is_logged() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = TransactionFixture::committed(FILES);
    let shelf = KeptRuns::new(fixture.data().join("transactions"));
    let run = fixture.open().await;
    run.sh("echo run > a.txt").await;
    let tree_hash = run.0.changes().await.unwrap().tree_hash;
    let to = LandTo::Tree;
    run.0.land(&Landing { tree_hash, to }).await.unwrap();
    // The log could not be written, so the run ends here without further changes.
    let name = run.keep().await;
    let slot = shelf.open(&name).unwrap();
    assert!(slot.has_pending_landing());
    drop(slot);
    assert!(shelf.surplus(0, Duration::ZERO).is_empty(), "gc leaves it");
    let (slot, untold) = unlogged_run_landings(&shelf).pop().unwrap();
    assert_eq!(untold.landed.files, ["a.txt"]);
    landing_was_logged(slot).unwrap();
    assert!(shelf.list().is_empty());
}

#[tokio::test]
async fn a_directory_that_looks_like_a_git_repository_does_not_land() {
    let fixture = TransactionFixture::committed(FILES);
    let run = fixture.open().await;
    run.sh("mkdir -p x/objects x/refs && echo o > x/objects/o && echo r > x/refs/r && echo c > x/config")
        .await;
    run.sh("echo 'ref: refs/heads/m' > x/HEAD && echo changed > a.txt")
        .await;
    let changes = run.0.changes().await.unwrap();
    let cannot: Vec<_> = changes
        .cannot
        .iter()
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(cannot, ["x/HEAD", "x/config", "x/objects/o", "x/refs/r"]);
    let why = run.land().await.unwrap_err().message;
    assert!(why.contains("would be a git repository"), "{why}");
    assert!(!fixture.work().join("x").exists());
}

#[tokio::test]
async fn directories_replaced_by_files_and_symlinks_are_landed_and_undone() {
    let fixture = TransactionFixture::committed(&[
        ("d/x", "x\n"),
        ("d/deep/y", "y\n"),
        ("e/z", "z\n"),
        ("f", "f\n"),
    ]);
    let before = fixture.tree();
    let run = fixture.open().await;
    run.sh("rm -rf d && echo file > d && mv e E && ln -s E e && rm f && mkdir f && echo in > f/in")
        .await;
    let landed = run.land().await.unwrap();
    assert_eq!(
        (fixture.read("d"), fixture.read("e/z"), fixture.read("f/in")),
        ("file\n".into(), "z\n".into(), "in\n".into())
    );
    assert!(fixture.work().join("e").is_symlink());
    let root = Root::open(&fixture.work()).unwrap();
    let undo = fixture.data().join("undo");
    let contents = windlass_transaction::isolated::undo_contents(&undo).unwrap();
    let journal = windlass_transaction::isolated::undo_journal(&undo, &fixture.work());
    let plan = windlass_transaction::landing::undo::plan(&root, &landed.swaps, &contents).unwrap();
    assert_eq!(plan.conflicts, []);
    windlass_transaction::landing::land(
        &root,
        &plan.swaps,
        &contents,
        &contents,
        &journal,
        &|_| {},
    )
    .unwrap();
    assert_eq!(fixture.tree(), before);
}

#[tokio::test]
async fn a_rolled_back_landing_succeeds_later() {
    let fixture = TransactionFixture::committed(FILES);
    let before = fixture.tree();
    let run = fixture.open().await;
    run.sh("echo run > a.txt; echo run > sub/b.txt; rm gone.txt; mkdir new; echo n > new/n")
        .await;
    // The old bytes cannot be stored; the landing finds out after all paths were swapped.
    let contents = fixture.data().join("undo/contents");
    let blocked: Vec<PathBuf> = (0..256)
        .map(|number| contents.join(format!("{number:02x}")))
        .collect();
    blocked
        .iter()
        .for_each(|path| std::fs::write(path, "").unwrap());
    let land = async || {
        let tree_hash = run.0.changes().await.unwrap().tree_hash;
        let to = LandTo::Tree;
        run.0.land(&Landing { tree_hash, to }).await
    };
    let why = land().await.unwrap_err().message;
    assert!(why.contains("cannot store the old bytes of"), "{why}");
    assert_eq!(fixture.tree(), before);
    blocked
        .iter()
        .for_each(|path| std::fs::remove_file(path).unwrap());
    assert_eq!(run.0.moved().await.unwrap(), Vec::<String>::new());
    // A later change of the user is still detected.
    fixture.write("sub/deep/c.txt", "mine\n");
    assert_eq!(run.0.moved().await.unwrap(), ["sub/deep/c.txt"]);
    run.0.catch_up().await.unwrap();
    let landed = land().await.unwrap();
    assert_eq!(landed.files, ["a.txt", "gone.txt", "new/n", "sub/b.txt"]);
    let (a, c) = (fixture.read("a.txt"), fixture.read("sub/deep/c.txt"));
    assert_eq!((a.as_str(), c.as_str()), ("run\n", "mine\n"));
}

#[tokio::test]
async fn runs_that_change_different_files_take_turns_and_all_land() {
    let fixture = TransactionFixture::committed(FILES);
    let first = fixture.open().await;
    first.write("first", "1\n");
    assert!(!first.0.take_turn().await.unwrap(), "no other run lands");
    let mut others = Vec::new();
    for number in 0..4 {
        let run = fixture.open().await;
        run.write(&format!("other-{number}"), "o\n");
        others.push(run);
    }
    let mut waiting: Vec<_> = others.iter().map(|run| run.0.take_turn()).collect();
    for turn in &mut waiting {
        let polled = std::future::poll_fn(|ctx| std::task::Poll::Ready(turn.as_mut().poll(ctx)));
        assert!(polled.await.is_pending(), "it is the turn of the first");
    }
    first.land().await.unwrap();
    // Each run gets one turn, and sees everything that landed before.
    let mut landed = 0;
    let mut left: Vec<_> = others.iter().zip(waiting).collect();
    while !left.is_empty() {
        let (at, waited) = std::future::poll_fn(|ctx| {
            for (at, (_, turn)) in left.iter_mut().enumerate() {
                if let std::task::Poll::Ready(waited) = turn.as_mut().poll(ctx) {
                    return std::task::Poll::Ready((at, waited));
                }
            }
            std::task::Poll::Pending
        })
        .await;
        assert!(waited.unwrap());
        let (run, _) = left.remove(at);
        landed += 1;
        assert_eq!(run.0.moved().await.unwrap().len(), landed);
        run.0.catch_up().await.unwrap();
        run.0.freeze().await.unwrap();
        let tree_hash = run.0.changes().await.unwrap().tree_hash;
        let to = LandTo::Tree;
        run.0.land(&Landing { tree_hash, to }).await.unwrap();
        run.0.end_turn();
    }
    assert_eq!(landed, 4);
    drop(left);
    assert_eq!(fixture.read("other-3"), "o\n");
}

#[tokio::test]
async fn the_changes_of_a_run_whose_process_died_are_counted() {
    let fixture = TransactionFixture::committed(FILES);
    let run = fixture.open().await;
    run.sh("echo 10 >> a.txt; rm gone.txt; mkdir -p out new; echo o > out/o; echo n > new/n")
        .await;
    let name = run.0.name().unwrap().to_owned();
    // Its process is killed, so nothing is recorded as kept.
    drop(run);
    let shelf = KeptRuns::new(fixture.data().join("transactions"));
    assert_eq!((shelf.list()[0].0.files, shelf.list()[0].0.kept), (3, None));
    let left = fixture.transactions().left_changes(&name).await;
    let left: Vec<_> = left
        .iter()
        .map(|change| format!("{} {}", change.path, change.line_counts()))
        .collect();
    assert_eq!(left, ["a.txt +1 -0", "gone.txt +0 -1", "new/n +1 -0"]);
    assert!(
        fixture
            .transactions()
            .left_changes("no-such-1")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn symlinks_out_of_the_workspace_and_into_git_need_approval() {
    let fixture = TransactionFixture::committed(FILES);
    let run = fixture.open().await;
    run.sh("ln -s .git/hooks h; ln -s /srv/other o; ln -s a.txt plain; ln -s /usr/bin/env env")
        .await;
    let changes = run.0.changes().await.unwrap();
    let asks: Vec<_> = changes.asks.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!((asks, changes.cannot), (vec!["h", "o"], vec![]));
}

#[tokio::test]
async fn commits_with_changes_that_need_approval_are_not_transferred() {
    let fixture = TransactionFixture::committed(FILES);
    let run = fixture.open().await;
    let commit = "git add -Af && git -c user.name=r -c user.email=r commit -qm x";
    run.sh(&format!(
        "mkdir .vscode && echo evil > .vscode/tasks.json && {commit} && rm -r .vscode && echo 2 > a.txt && {commit}"
    ))
    .await;
    run.0.freeze().await.unwrap();
    let tree_hash = run.0.changes().await.unwrap().tree_hash;
    let to = LandTo::Tree;
    let landed = run.0.land(&Landing { tree_hash, to }).await.unwrap();
    assert_eq!(
        (landed.files, landed.refname),
        (vec!["a.txt".to_owned()], None)
    );
    let notes = run.0.notes().join("\n");
    assert!(notes.contains(".vscode/tasks.json"), "{notes}");
    assert_eq!(fixture.git(&["for-each-ref", "refs/windlass"]), "");
}

#[tokio::test]
async fn only_gc_discards_an_old_kept_run() {
    let fixture = TransactionFixture::committed(FILES);
    let run = fixture.open().await;
    run.write("a.txt", "run\n");
    let name = run.keep().await;
    let path = fixture
        .data()
        .join("transactions")
        .join(&name)
        .join("card.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut card: serde_json::Value = serde_json::from_str(&text).unwrap();
    // As if the clock were far ahead.
    card["kept"] = 1.into();
    std::fs::write(&path, card.to_string()).unwrap();
    let next = fixture.open().await;
    let notes = next.0.notes().join("\n");
    assert!(
        notes.contains(&name) && notes.contains("sessions gc"),
        "{notes}"
    );
    assert!(path.exists());
}

#[tokio::test]
async fn only_the_judged_changes_land() {
    let fixture = TransactionFixture::committed(FILES);
    let run = fixture.open().await;
    run.write("a.txt", "judged\n");
    let tree_hash = run.0.changes().await.unwrap().tree_hash;
    run.sh("mkdir -p out && echo 1 > out/x").await;
    assert_eq!(
        run.0.changes().await.unwrap().tree_hash,
        tree_hash,
        "build outputs do not matter"
    );
    run.write("a.txt", "another\n");
    let err = run
        .0
        .land(&Landing {
            tree_hash: tree_hash.clone(),
            to: LandTo::Tree,
        })
        .await
        .unwrap_err();
    assert_eq!(err.kind, WorkspaceErrorKind::Stale);
    run.write("a.txt", "judged\n");
    run.0
        .land(&Landing {
            tree_hash,
            to: LandTo::Tree,
        })
        .await
        .unwrap();
    assert_eq!(fixture.read("a.txt"), "judged\n");
}

/// Random changes by file tools and commands: the landed tree equals the hashed tree, path by path.
#[tokio::test]
async fn the_landed_tree_is_the_hashed_tree() {
    for seed in 1..=6_u64 {
        let fixture = TransactionFixture::committed(FILES);
        let root = Root::open(&fixture.work()).unwrap();
        let run = fixture.open().await;
        let mut state = seed;
        let mut draw = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        let names = [
            "a.txt",
            "sub/b.txt",
            "sub/deep/c.txt",
            "gone.txt",
            "n1.txt",
            "sub/n2.txt",
            "new/n3.txt",
        ];
        for step in 0..12 {
            let (name, other) = (names[draw(7) as usize], names[draw(7) as usize]);
            let files = run.0.files();
            // An operation that fails in the current state is no change.
            match draw(5) {
                0 | 1 => drop(files.write(name, format!("{seed} {step}\n").as_bytes())),
                2 => drop(files.remove(name)),
                3 => drop(files.rename(name, other, true)),
                _ => drop(
                    run.try_sh(&format!("chmod 755 {name}; ln -sf a.txt link{}", draw(2)))
                        .await,
                ),
            }
        }
        run.0.freeze().await.unwrap();
        let tree_hash = run.0.changes().await.unwrap().tree_hash;
        let landed = run
            .0
            .land(&Landing {
                tree_hash: tree_hash.clone(),
                to: LandTo::Tree,
            })
            .await
            .unwrap();
        for swap in &landed.swaps {
            assert_eq!(
                windlass_transaction::landing::image_at(&root, &swap.path).unwrap(),
                swap.after,
                "{seed}: {}",
                swap.path
            );
        }
        let copy = run
            .sh("find . -path ./.git -prune -o \\( -type f -o -type l \\) -print | sort")
            .await;
        let mut own: Vec<String> = fixture
            .tree()
            .into_iter()
            .filter(|(path, _)| !fixture.work().join(path).is_dir())
            .map(|(path, _)| format!("./{}", path.display()))
            .collect();
        own.sort();
        assert_eq!(
            copy.lines().map(str::to_owned).collect::<Vec<_>>(),
            own,
            "{seed}: the same files"
        );
    }
}

#[tokio::test]
async fn a_kept_copy_is_reopened_and_landed() {
    let fixture = TransactionFixture::committed(FILES);
    let run = fixture.open().await;
    run.write("a.txt", "kept\n");
    run.sh("rm gone.txt; mkdir -p out; echo x > out/x").await;
    let name = run.keep().await;
    fixture.write("sub/b.txt", "later\n");
    let run = fixture.reopen(&name).await;
    assert_eq!(run.0.name(), Some(name.as_str()));
    assert_eq!(run.changes().await, ["M a.txt", "D gone.txt"]);
    assert_eq!(
        run.sh("cat out/x").await,
        "x\n",
        "what was built is still there"
    );
    assert_eq!(run.0.moved().await.unwrap(), ["sub/b.txt"]);
    run.0.catch_up().await.unwrap();
    run.land().await.unwrap();
    assert_eq!(
        (fixture.read("a.txt"), fixture.read("sub/b.txt")),
        ("kept\n".into(), "later\n".into())
    );
    let err = fixture
        .try_open(&fixture.transactions(), Some(&name))
        .await
        .err()
        .unwrap();
    assert!(err.message.contains("windlass status"), "{err}");
}

#[tokio::test]
async fn a_copy_without_its_stat_walk_treats_every_file_as_moved() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = TransactionFixture::new(FILES);
    let run = fixture.open().await;
    run.sh("echo run > a.txt").await;
    let name = run.keep().await;
    std::fs::remove_file(
        fixture
            .data()
            .join("transactions")
            .join(&name)
            .join("survey"),
    )
    .unwrap();
    fixture.write("a.txt", "mine\n");
    let run = fixture.reopen(&name).await;
    assert_eq!(run.0.moved().await.unwrap(), ["a.txt"]);
    assert!(run.0.catch_up().await.is_err());
    assert!(run.land().await.is_err());
    assert_eq!(fixture.read("a.txt"), "mine\n");
}

/// Runs a line in a check tree and returns its exit code and output.
async fn check_sh(tree: &dyn CheckTree, line: &str) -> (i32, String) {
    let command = Command {
        line: line.to_owned(),
        workdir: String::new(),
        timeout: Duration::from_secs(20),
        keep: 1 << 16,
        input: None,
        looks: false,
    };
    let watch = Watch {
        progress: &|_| {},
        cancel: CancellationToken::new(),
        artifacts: None,
    };
    let done = tree.processes().run(command, watch).await.unwrap();
    match done.end {
        ProcessEnd::Exited { code } => (code, done.output),
        other => panic!("{line}: {other:?}"),
    }
}

const CHECKED: &[(&str, &str)] = &[
    (".gitignore", "out/\ncache.bin\n"),
    ("cache.bin", "old cache\n"),
    ("src.txt", "old\n"),
    ("gone.txt", "gone\n"),
    ("d/one.txt", "1\n"),
    ("tests/t.sh", "exit 1\n"),
];

#[tokio::test]
async fn checks_see_only_the_changes_that_would_land() {
    let fixture = TransactionFixture::committed(CHECKED);
    let run = fixture.open().await;
    run.sh(
        "echo new > src.txt; rm gone.txt; rm -r d; echo file > d; mkdir out; echo o > out/tool; \
         echo poisoned > cache.bin; printf 'exit 0\\n' > tests/t.sh; chmod 755 tests/t.sh; ln -s src.txt link; \
         echo x > /tmp/poison",
    )
    .await;
    let state = "cat src.txt; cat d 2>/dev/null || echo folder; cat out/tool 2>/dev/null || echo no-tool; cat cache.bin; \
                 test -e gone.txt && echo there; test -e /tmp/poison && echo poison; sh tests/t.sh; echo $?; \
                 test -x tests/t.sh && echo x; cat link 2>/dev/null";
    let without = ["tests/t.sh".to_owned()];
    let check = async |state_of: CheckState<'_>, expect: &str| {
        let tree = run.0.check_tree(state_of).await.unwrap();
        let (_, said) = check_sh(tree.as_ref(), state).await;
        let said: Vec<&str> = said.lines().collect();
        assert_eq!(said.join(" "), expect, "{state_of:?}");
        assert_eq!(tree.disturbed().await.unwrap(), [""; 0], "{state_of:?}");
    };
    check(CheckState::Base, "old folder no-tool old cache there 1").await;
    let none = CheckState::Landing { without: &[] };
    check(none, "new file no-tool old cache 0 x new").await;
    let landing = CheckState::Landing { without: &without };
    check(landing, "new file no-tool old cache 1 new").await;
    let ignored = CheckState::WithIgnored { without: &without };
    check(ignored, "new file o poisoned 1 new").await;
    let hidden = ["out".to_owned()];
    let hidden = CheckState::WithIgnored { without: &hidden };
    check(hidden, "new file no-tool poisoned 0 x new").await;
    assert_eq!(
        run.sh("cat out/tool; cat /tmp/poison").await,
        "o\nx\n",
        "the run has its own as before"
    );
}

#[tokio::test]
async fn source_changes_of_a_check_are_detected_and_can_be_taken_over() {
    let fixture = TransactionFixture::committed(CHECKED);
    let run = fixture.open().await;
    run.sh("echo new > src.txt").await;
    let landing = CheckState::Landing { without: &[] };
    let tree = run.0.check_tree(landing).await.unwrap();
    check_sh(tree.as_ref(), "mkdir -p out && echo built > out/x").await;
    assert_eq!(
        tree.disturbed().await.unwrap(),
        [""; 0],
        "outputs are ignored"
    );
    check_sh(
        tree.as_ref(),
        "echo fixed > src.txt; rm gone.txt; ln -s src.txt l; chmod 755 d/one.txt",
    )
    .await;
    assert_eq!(
        tree.disturbed().await.unwrap(),
        ["d/one.txt", "gone.txt", "l", "src.txt"]
    );
    assert_eq!(
        run.sh("cat src.txt").await,
        "new\n",
        "the run does not see it"
    );
    tree.take_over().await.unwrap();
    assert_eq!(tree.disturbed().await.unwrap(), [""; 0]);
    drop(tree);
    assert_eq!(
        run.sh("cat src.txt l; test -e gone.txt; echo $?; test -x d/one.txt; echo $?")
            .await,
        "fixed\nfixed\n1\n0\n"
    );
    let paths: Vec<String> = run
        .0
        .changes()
        .await
        .unwrap()
        .files
        .into_iter()
        .map(|change| change.path)
        .collect();
    assert_eq!(paths, ["d/one.txt", "gone.txt", "l", "src.txt"]);
}

#[tokio::test]
async fn a_check_tree_is_removed_even_if_its_process_died() {
    let fixture = TransactionFixture::committed(CHECKED);
    let run = fixture.open().await;
    run.sh("echo new > src.txt").await;
    let copy = fixture
        .data()
        .join("transactions")
        .join(run.0.name().unwrap());
    let left = || {
        let entries = std::fs::read_dir(&copy).unwrap().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("checks-"))
            .count()
    };
    let tree = run.0.check_tree(CheckState::Base).await.unwrap();
    assert_eq!(left(), 1);
    check_sh(tree.as_ref(), "mkdir shut && chmod 000 shut").await;
    drop(tree);
    assert_eq!(left(), 0);
    std::fs::create_dir_all(copy.join("checks-1-1/upper")).unwrap();
    let name = run.keep().await;
    let run = fixture.reopen(&name).await;
    assert_eq!(left(), 0);
    drop(run);
}

#[tokio::test]
async fn commits_of_the_run_are_transferred_to_a_private_ref() {
    let fixture = TransactionFixture::committed(FILES);
    let before = fixture.git(&["for-each-ref"]);
    let run = fixture.open().await;
    run.sh("printf 'exit 1\\n' > .git/hooks/reference-transaction && chmod 755 .git/hooks/reference-transaction \
         && rm .git/hooks/reference-transaction && echo x > x.txt && git add x.txt \
         && git -c user.name=r -c user.email=r commit -qm 'made inside' && git config core.pager 'touch ran'")
        .await;
    let name = run.0.name().unwrap().to_owned();
    let landed = run.land().await.unwrap();
    let refname = format!("refs/windlass/{name}");
    assert_eq!(landed.refname.as_deref(), Some(refname.as_str()));
    assert_eq!(
        fixture.git(&["log", "-1", "--format=%s %an", &refname]),
        "made inside r"
    );
    assert_eq!(
        fixture.git(&["log", "--format=%s", "main"]),
        "one",
        "the branch is where it was"
    );
    assert!(fixture.git(&["for-each-ref"]).starts_with(&before));
    assert_eq!(fixture.read("x.txt"), "x\n");
    let config = std::fs::read_to_string(fixture.work().join(".git/config")).unwrap();
    assert!(!config.contains("ran"), "git's own files never land");
}

#[tokio::test]
async fn a_run_lands_as_a_commit_or_a_patch() {
    let fixture = TransactionFixture::committed(FILES);
    fixture.git(&["config", "user.name", "me"]);
    fixture.git(&["config", "user.email", "me@example.invalid"]);
    fixture.write(".git/hooks/pre-commit", "touch ../ran; exit 1\n");
    fixture.write("staged.txt", "staged\n");
    fixture.git(&["add", "staged.txt"]);
    let run = fixture.open().await;
    run.write("a.txt", "committed\n");
    run.sh("rm gone.txt").await;
    let landed = run
        .land_to(LandTo::Commit("what was asked".into()))
        .await
        .unwrap();
    assert_eq!(fixture.git(&["rev-parse", "HEAD"]), landed.commit.unwrap());
    assert_eq!(
        fixture.git(&["show", "--format=%s", "--name-status", "HEAD"]),
        "what was asked\n\nM\ta.txt\nD\tgone.txt"
    );
    assert_eq!(
        fixture.git(&["status", "--short"]),
        "A  staged.txt",
        "what was staged stays so"
    );
    assert!(!fixture.dir.path().join("ran").exists(), "no hook runs");

    let clone = fixture.dir.path().join("clone");
    fixture.git(&["clone", "-q", ".", clone.to_str().unwrap()]);
    let before = fixture.tree();
    let run = fixture.open().await;
    run.sh("printf 'a\\0b' > binary && chmod 755 a.txt && mv sub/b.txt b2.txt && ln -s a.txt l")
        .await;
    let patch = fixture.dir.path().join("change.patch");
    let landed = run.land_to(LandTo::Patch(patch.clone())).await.unwrap();
    assert_eq!(landed.patch.as_deref(), patch.to_str());
    assert_eq!(fixture.tree(), before, "the tree stays as it is");
    git_in(&clone, &["apply", patch.to_str().unwrap()]);
    let applied = tree_of(&clone);
    assert_eq!(applied[Path::new("binary")].1, b"a\0b");
    assert_eq!(applied[Path::new("a.txt")].0 & 0o777, 0o755);
    assert!(
        applied.contains_key(Path::new("b2.txt")) && !applied.contains_key(Path::new("sub/b.txt"))
    );
    assert_eq!(applied[Path::new("l")].1, b"a.txt");

    std::fs::write(
        fixture.work().join(".git/MERGE_HEAD"),
        fixture.git(&["rev-parse", "HEAD"]),
    )
    .unwrap();
    let run = fixture.open().await;
    run.write("a.txt", "during a merge\n");
    let err = run.land_to(LandTo::Commit("x".into())).await.unwrap_err();
    assert!(err.message.contains("MERGE_HEAD"), "{err}");
    assert_eq!(fixture.tree(), before, "refused before anything lands");
}

#[tokio::test]
async fn a_commit_uses_filters_and_signing_of_the_user_and_not_of_the_repository() {
    let files = [
        ("a.evil", "a\n"),
        ("z.evil", "z\n"),
        ("b.up", "b\n"),
        (".gitattributes", "*.evil filter=evil\n*.up filter=up\n"),
    ];
    let fixture = TransactionFixture::committed(&files);
    // Git rereads a file that is newer than its index whenever it writes the index.
    let newer = fixture.work().join("z.evil");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    std::fs::File::options()
        .write(true)
        .open(newer)
        .and_then(|file| file.set_modified(later))
        .unwrap();
    fixture.git(&["add", "z.evil"]);
    let mark = fixture.dir.path().join("ran");
    let program = fixture.dir.path().join("program");
    std::fs::write(
        &program,
        format!("#!/bin/sh\ntouch {}\ncat\n", mark.display()),
    )
    .unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    for (key, value) in [
        ("filter.evil.clean", program),
        ("filter.evil.required", "true"),
        ("filter.up.process", program),
        ("commit.gpgSign", "true"),
        ("gpg.program", program),
        ("user.name", "own"),
        ("user.email", "own@host.example"),
    ] {
        fixture.git(&["config", key, value]);
    }
    let global = "[filter \"up\"]\n\tclean = tr a-z A-Z\n";
    std::fs::write(fixture.dir.path().join("home/.gitconfig"), global).unwrap();
    let run = fixture.open().await;
    run.write("a.evil", "changed\n");
    run.write("b.up", "changed\n");
    run.write("c.txt", "new\n");
    let landed = run.land_to(LandTo::Commit("message".into())).await.unwrap();
    assert_eq!(landed.unfinished, None);
    assert!(!mark.exists(), "nothing that the repository names is run");
    let show = |path: &str| fixture.git(&["cat-file", "blob", &format!("HEAD:{path}")]);
    assert_eq!(
        (show("a.evil"), show("b.up")),
        ("changed".into(), "CHANGED".into())
    );
    assert_eq!(show("c.txt"), "new");
    assert_eq!(
        landed.commit.as_deref(),
        Some(fixture.git(&["rev-parse", "HEAD"]).as_str())
    );
    assert_eq!(
        fixture.git(&["diff-index", "--cached", "--name-only", "HEAD"]),
        ""
    );
    assert!(
        fixture
            .git(&["log", "-1", "--format=%an %ae"])
            .starts_with("own own@host")
    );
}

#[tokio::test]
async fn unusual_trees_work_and_paths_that_do_not_land_are_reported() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = TransactionFixture::committed(FILES);
    let top = fixture.work();
    symlink("nowhere", top.join("broken")).unwrap();
    symlink("loop2", top.join("loop1")).unwrap();
    symlink("loop1", top.join("loop2")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(top.join("pipe"))
        .status()
        .unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
    std::fs::write(top.join(std::ffi::OsStr::from_bytes(b"n\xffme")), "odd").unwrap();
    std::fs::create_dir(top.join("shut")).unwrap();
    std::fs::set_permissions(top.join("shut"), PermissionsExt::from_mode(0o000)).unwrap();
    let large = std::fs::File::create(top.join("large.bin")).unwrap();
    large.set_len(4 << 30).unwrap();
    fixture.write("Same.txt", "upper\n");
    fixture.write("nested/file.txt", "n\n");
    git_in(&top.join("nested"), &["init", "-q"]);
    let run = fixture.open().await;
    run.sh("ls >/dev/null && echo x > same.txt && echo more >> nested/file.txt && rm -f broken")
        .await;
    let mut changes = run.changes().await;
    changes.sort();
    assert_eq!(changes, ["C same.txt", "D broken", "M nested/file.txt"]);
    run.land().await.unwrap();
    assert_eq!(
        (fixture.read("same.txt"), fixture.read("Same.txt")),
        ("x\n".into(), "upper\n".into())
    );
    assert!(top.join("broken").symlink_metadata().is_err());

    let run = fixture.open().await;
    run.sh("printf odd2 > \"$(printf 'n\\377me')\" && mkfifo p2")
        .await;
    let changes = run.0.changes().await.unwrap();
    assert_eq!(changes.cannot, []);
    assert!(
        changes.left.iter().any(|left| left.contains("p2")),
        "{:?}",
        changes.left
    );
    run.land().await.unwrap();
    let odd = std::fs::read(top.join(std::ffi::OsStr::from_bytes(b"n\xffme")));
    assert_eq!(odd.unwrap(), b"odd2");
    std::fs::set_permissions(top.join("shut"), PermissionsExt::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn the_git_directories_of_worktrees_and_submodules_are_private_overlays() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = TransactionFixture::committed(FILES);
    let tree = fixture.dir.path().canonicalize().unwrap().join("tree");
    fixture.git(&[
        "worktree",
        "add",
        "-q",
        tree.to_str().unwrap(),
        "-b",
        "side",
    ]);
    let head = fixture.git(&["rev-parse", "side"]);
    let all = fixture.transactions_at(&tree);
    let run = OpenTransaction(fixture.try_open(&all, None).await.unwrap());
    run.sh("echo w > w.txt && git add w.txt && git -c user.name=n -c user.email=e commit -qm inside && git log -1")
        .await;
    assert_eq!(
        fixture.git(&["rev-parse", "side"]),
        head,
        "the common directory is not written"
    );
    let landed = run.land().await.unwrap();
    let refname = landed.refname.unwrap();
    assert_eq!(
        fixture.git(&["log", "-1", "--format=%s", &refname]),
        "inside"
    );
    assert_eq!(fixture.git(&["rev-parse", "side"]), head);
    assert_eq!(std::fs::read_to_string(tree.join("w.txt")).unwrap(), "w\n");

    let library = TransactionFixture::committed(&[("lib.txt", "l\n")]);
    fixture.git(&[
        "submodule",
        "add",
        "-q",
        library.work().to_str().unwrap(),
        "lib",
    ]);
    let all = fixture.transactions_at(&fixture.work().join("lib"));
    let run = OpenTransaction(fixture.try_open(&all, None).await.unwrap());
    run.sh(
        "echo more >> lib.txt && git -c user.name=n -c user.email=e commit -qam 'in the submodule'",
    )
    .await;
    assert_eq!(run.changes().await, ["M lib.txt"]);
    let landed = run.land().await.unwrap();
    assert!(landed.refname.is_some());
    assert_eq!(
        git_in(&fixture.work().join("lib"), &["log", "--format=%s"]),
        "one"
    );
}

#[tokio::test]
async fn a_tree_without_overlay_support_is_copied_with_a_note() {
    let fixture = TransactionFixture::committed(FILES);
    fixture.write("out/x.o", "built\n");
    let Some(mount) = TmpfsMount::below(&fixture.work().join("sub/deep")) else {
        windlass_needs::not_run("needs the right to mount outside of a user namespace");
        return;
    };
    let before = fixture.tree();
    let run = fixture.open().await;
    let strategy = run.0.terms().strategy;
    assert!(
        [Strategy::Copy, Strategy::Reflink].contains(&strategy),
        "{strategy}"
    );
    let notes = run.0.notes().join("\n");
    assert!(notes.contains("mounted in the tree"), "{notes}");
    run.sh("test -e out/x.o && echo run > a.txt && rm gone.txt && echo n > new.txt && echo y > out/y.o").await;
    assert_eq!(fixture.tree(), before);
    assert_eq!(run.changes().await, ["M a.txt", "D gone.txt", "C new.txt"]);
    fixture.write("sub/b.txt", "mine\n");
    run.0.catch_up().await.unwrap();
    assert_eq!(run.sh("cat sub/b.txt").await, "mine\n");
    let landed = run.land().await.unwrap();
    assert_eq!(landed.left, ["out/y.o"]);
    assert_eq!(
        (fixture.read("a.txt"), fixture.read("new.txt")),
        ("run\n".into(), "n\n".into())
    );
    assert!(!fixture.work().join("gone.txt").exists());
    drop(mount);
}

/// A tmpfs that is unmounted on drop.
struct TmpfsMount(PathBuf);

impl TmpfsMount {
    fn below(at: &Path) -> Option<Self> {
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(at)
            .output();
        mounted
            .is_ok_and(|done| done.status.success())
            .then(|| Self(at.to_owned()))
    }
}

impl Drop for TmpfsMount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[tokio::test]
async fn without_git_a_list_of_common_names_replaces_the_ignore_files() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = TransactionFixture::new(&[("a.py", "x = 1\n")]);
    let run = fixture.open().await;
    run.sh("echo 'x = 2' > a.py; mkdir -p target __pycache__ node_modules/m src; touch target/t __pycache__/c node_modules/m/i src/new.py")
        .await;
    assert_eq!(run.changes().await, ["M a.py", "C src/new.py"]);
    assert_eq!(
        run.land().await.unwrap().left,
        ["__pycache__", "node_modules", "target"]
    );
}

#[tokio::test]
async fn a_run_is_kept_if_the_tree_is_not_writable() {
    let fixture = TransactionFixture::new(FILES);
    let run = fixture.open().await;
    run.write("sub/b.txt", "run\n");
    run.write("a.txt", "run\n");
    let before = fixture.tree();
    // Not even root can write to an immutable directory; without the right to set the attribute, use the mode.
    let sub = fixture.work().join("sub");
    let immutable = std::process::Command::new("chattr")
        .arg("+i")
        .arg(&sub)
        .output();
    let immutable = immutable.is_ok_and(|done| done.status.success());
    if !immutable {
        std::fs::set_permissions(&sub, PermissionsExt::from_mode(0o500)).unwrap();
    }
    let writable = std::fs::write(sub.join("probe"), "").is_ok();
    let landed = run.land().await;
    if immutable {
        let _ = std::process::Command::new("chattr")
            .arg("-i")
            .arg(&sub)
            .status();
    }
    std::fs::set_permissions(&sub, PermissionsExt::from_mode(0o755)).unwrap();
    if writable {
        windlass_needs::not_run(
            "needs a folder that cannot be written to, also as root (chattr +i failed)",
        );
        return;
    }
    let err = landed.unwrap_err();
    assert!(err.message.contains("nothing was landed"), "{err}");
    assert_eq!(fixture.tree(), before);
}

#[tokio::test]
async fn a_copy_in_use_is_not_opened_twice() {
    let fixture = TransactionFixture::new(FILES);
    let run = fixture.open().await;
    let name = run.0.name().unwrap().to_owned();
    let err = fixture
        .try_open(&fixture.transactions(), Some(&name))
        .await
        .err()
        .unwrap();
    assert!(err.message.contains("is working on"), "{err}");
    for bad in ["../x", "", "a/b"] {
        assert!(
            fixture
                .try_open(&fixture.transactions(), Some(bad))
                .await
                .is_err()
        );
    }
    let other = TransactionFixture::new(FILES);
    let foreign = KeptRuns::new(fixture.data().join("transactions"));
    assert!(foreign.meta(&name).unwrap().root != other.work());
    assert!(recover_landings(&foreign, &fixture.data().join("undo")).is_empty());
}
