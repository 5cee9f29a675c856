//! An overlay for one command: everything it writes to the workspace is in the overlay when it has ended, and nowhere
//! else. Destructive commands run only inside a sandbox on a scratch folder.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use lab::{helper, run};
use windlass_needs::{Need, lacks};
use windlass_sandbox::{
    Ended, Protected, Protection, SandboxError, SandboxSession, Spec, Standard, Tier, Tree, Within,
};

mod lab;

/// A workspace, a folder for overlays, and the sandbox's settings.
struct CommandOverlayLab {
    _scratch: tempfile::TempDir,
    base: PathBuf,
    spec: Spec,
}

type Ending = mpsc::Receiver<Result<Ended, SandboxError>>;

impl CommandOverlayLab {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        for folder in ["ws/src", "ws/.git/hooks", "layers", "journals", "out"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        for (name, text) in [
            ("README.md", "hello\n"),
            (".env", "TOKEN=planted\n"),
            ("src/a.rs", "a\n"),
            (".git/config", ""),
        ] {
            fs::write(base.join("ws").join(name), text).unwrap();
        }
        let root = base.join("ws");
        let frozen = |name: &str| Protected {
            base: root.clone(),
            name: name.into(),
            how: Protection::Frozen,
        };
        let spec = Spec {
            command_layers: Some(base.join("layers")),
            hide: vec![root.join(".env")],
            protect: vec![
                frozen(".agent"),
                frozen(".git/hooks"),
                frozen(".git/config"),
            ],
            write: vec![base.join("out")],
            journal: Some(base.join("journals/list")),
            ..Spec::around(root)
        };
        Self {
            _scratch: scratch,
            base,
            spec,
        }
    }

    fn open(&self) -> SandboxSession {
        SandboxSession::open(&helper(), &self.spec).unwrap().session
    }

    /// Creates an overlay; returns its upper directory.
    fn layer(&self, name: &str) -> PathBuf {
        let folder = self.base.join("layers").join(name);
        fs::create_dir_all(folder.join("work")).unwrap();
        fs::create_dir_all(folder.join("upper")).unwrap();
        folder.join("upper")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.spec.root.join(name)).unwrap()
    }
}

/// Starts a command line in an overlay; returns its stdin, its output, and its end.
fn start(
    session: &SandboxSession,
    dir: &Path,
    layer: &str,
    line: &str,
) -> (std::io::PipeWriter, std::io::PipeReader, Ending) {
    let (reads, writes) = std::io::pipe().unwrap();
    let (input, gate) = std::io::pipe().unwrap();
    let standard = Standard {
        input: input.into(),
        output: writes.try_clone().unwrap().into(),
        error: writes.into(),
    };
    let argv = ["/bin/bash".into(), "-c".into(), line.into()];
    let env = [
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("LC_ALL".into(), "C".into()),
    ];
    let (done, ended) = mpsc::channel();
    session
        .start(
            &argv,
            &env,
            dir,
            Within::Layer(layer),
            standard,
            move |result| drop(done.send(result)),
        )
        .unwrap();
    (gate, reads, ended)
}

fn run_over(
    session: &SandboxSession,
    dir: &Path,
    layer: &str,
    line: &str,
) -> Result<(Ended, String), SandboxError> {
    let (gate, mut reads, ended) = start(session, dir, layer, line);
    drop(gate);
    let mut output = String::new();
    reads.read_to_string(&mut output).unwrap();
    Ok((ended.recv().unwrap()?, output))
}

#[track_caller]
fn check(lab: &CommandOverlayLab, session: &SandboxSession, layer: &str, line: &str, expect: &str) {
    let (ended, output) = run_over(session, &lab.spec.root, layer, line).unwrap();
    assert_eq!(
        (ended.status.code(), output.trim()),
        (Some(0), expect),
        "{line}"
    );
}

/// Lists the files below a folder with their content; `-` is a deleted name (a whiteout).
fn written(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            let name = entry
                .path()
                .strip_prefix(folder)
                .unwrap()
                .display()
                .to_string();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_char_device() {
                found.insert(name, "-".to_owned());
            } else {
                found.insert(name, fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
    found
}

#[track_caller]
fn check_written(upper: &Path, expect: &[(&str, &str)]) {
    let expect = expect
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect();
    assert_eq!(written(upper), expect);
}

#[test]
fn writes_of_a_command_are_only_in_its_overlay() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = CommandOverlayLab::new();
    let session = lab.open();
    let (one, two) = (lab.layer("one"), lab.layer("two"));
    check(
        &lab,
        &session,
        "one",
        "echo new > README.md; mv src/a.rs src/b.rs; cat README.md src/b.rs",
        "new\na",
    );
    check_written(
        &one,
        &[
            ("README.md", "new\n"),
            ("src/a.rs", "-"),
            ("src/b.rs", "a\n"),
        ],
    );
    // The next command sees nothing of it, and neither does a command without an overlay.
    check(
        &lab,
        &session,
        "two",
        "cat README.md; ls src; echo x > /tmp/x; echo o > ../out/o",
        "hello\na.rs",
    );
    check_written(&two, &[]);
    let (_, output) = run(
        &session,
        &lab.spec.root,
        "cat README.md; ls src; echo plain > plain",
    );
    assert_eq!(output, "hello\na.rs\n");
    assert_eq!(
        (lab.read("plain"), lab.read("README.md")),
        ("plain\n".into(), "hello\n".into())
    );
    assert!(lab.base.join("out/o").exists());
}

#[test]
fn destructive_lines_reach_only_the_layer() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = CommandOverlayLab::new();
    let session = lab.open();
    let upper = lab.layer("one");
    check(
        &lab,
        &session,
        "one",
        "rm -rf ./* .git 2>/dev/null; ls -A",
        ".env",
    );
    check_written(&upper, &[(".git", "-"), ("README.md", "-"), ("src", "-")]);
    assert_eq!(
        (lab.read("README.md"), lab.read("src/a.rs")),
        ("hello\n".into(), "a\n".into())
    );
}

#[test]
fn protected_names_are_free_in_a_layer_and_hidden_ones_are_not() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = CommandOverlayLab::new();
    let session = lab.open();
    let upper = lab.layer("one");
    let line = "echo h > .git/hooks/x; mkdir .agent; echo c > .git/config; cat .env 2>/dev/null || echo hidden; ls -A";
    check(
        &lab,
        &session,
        "one",
        line,
        "hidden\n.agent\n.env\n.git\nREADME.md\nsrc",
    );
    check_written(&upper, &[(".git/config", "c\n"), (".git/hooks/x", "h\n")]);
    // No placeholder was created for it, and the covers of other commands are unchanged.
    assert!(!lab.spec.root.join(".agent").exists() && upper.join(".agent").is_dir());
    let (ended, _) = run(&session, &lab.spec.root, "echo h > .git/hooks/x");
    assert!(!ended.status.success());
    // A name that is hidden from other commands is hidden in the overlay too.
    lab.layer("two");
    check(
        &lab,
        &session,
        "two",
        "cat .env 2>/dev/null || echo hidden; ls .git",
        "hidden\nconfig\nhooks",
    );
}

#[test]
fn protected_names_outside_of_the_workspace_hold_over_a_layer_too() {
    if lacks(Need::Overlay) {
        return;
    }
    let mut lab = CommandOverlayLab::new();
    let out = lab.base.join("out");
    fs::write(out.join("config"), "mine\n").unwrap();
    for name in ["config", "hooks"] {
        lab.spec.protect.push(Protected {
            base: out.clone(),
            name: name.into(),
            how: Protection::Frozen,
        });
    }
    let session = lab.open();
    lab.layer("one");
    let line = "for at in config hooks/x; do { echo x > ../out/$at; } 2>/dev/null || echo no; done; echo o > ../out/o";
    check(&lab, &session, "one", line, "no\nno");
    assert_eq!(fs::read_to_string(out.join("config")).unwrap(), "mine\n");
    drop(session);
    assert!(
        !out.join("hooks").exists()
            && out.join("o").exists()
            && !lab.spec.root.join(".agent").exists()
    );
}

#[test]
fn the_layers_of_others_cannot_be_reached() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = CommandOverlayLab::new();
    let session = lab.open();
    lab.layer("one");
    lab.layer("two");
    let look = "ls -A /.windlass/layers; touch /.windlass/layers/two/upper/x 2>/dev/null || echo no; \
                ls -l /proc/1/fd 2>/dev/null | grep -c 'upper\\|work'; :";
    check(&lab, &session, "one", look, "no\n0");
    let (_, output) = run(&session, &lab.spec.root, look);
    assert_eq!(output.trim(), "no\n0");
    check_written(&lab.base.join("layers/two/upper"), &[]);
    for name in ["../out", "one/upper", "", "absent"] {
        let started = run_over(&session, &lab.spec.root, name, "touch made");
        assert!(started.is_err() || name.is_empty(), "{name}: {started:?}");
    }
}

#[test]
fn two_at_a_time_do_not_see_each_other() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = CommandOverlayLab::new();
    let session = lab.open();
    let (one, two) = (lab.layer("one"), lab.layer("two"));
    let line = |word: &str| format!("echo {word} > README.md; echo up; read x; cat README.md");
    let (mut first, mut first_says, first_ends) =
        start(&session, &lab.spec.root, "one", &line("first"));
    let (mut second, mut second_says, second_ends) =
        start(&session, &lab.spec.root, "two", &line("second"));
    let mut up = [0; 3];
    first_says.read_exact(&mut up).unwrap();
    second_says.read_exact(&mut up).unwrap();
    for (gate, says, ends, expect) in [
        (&mut first, &mut first_says, &first_ends, "first\n"),
        (&mut second, &mut second_says, &second_ends, "second\n"),
    ] {
        gate.write_all(b"go\n").unwrap();
        let mut output = String::new();
        says.read_to_string(&mut output).unwrap();
        assert!(ends.recv().unwrap().unwrap().status.success());
        assert_eq!(output, expect);
    }
    check_written(&one, &[("README.md", "first\n")]);
    check_written(&two, &[("README.md", "second\n")]);
    assert_eq!(lab.read("README.md"), "hello\n");
}

#[test]
fn the_overlay_is_unused_when_the_end_is_reported() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = CommandOverlayLab::new();
    let session = lab.open();
    let upper = lab.layer("one");
    let line = "(sleep 60; echo late > late) & echo x > new; exit 3";
    let (ended, _) = {
        let (gate, _reads, ends) = start(&session, &lab.spec.root, "one", line);
        drop(gate);
        (ends.recv().unwrap().unwrap(), ())
    };
    assert_eq!(ended.status.code(), Some(3));
    check_written(&upper, &[("new", "x\n")]);
    fs::rename(upper.join("new"), lab.spec.root.join("new")).unwrap();
    // The next command sees the workspace as it is now.
    let upper = lab.layer("two");
    check(&lab, &session, "two", "cat new; echo y > new", "x");
    check_written(&upper, &[("new", "y\n")]);
}

#[test]
fn without_overlays_the_caller_gets_no_layers() {
    if lacks(Need::Overlay) {
        return;
    }
    let mut lab = CommandOverlayLab::new();
    lab.layer("one");
    lab.spec.command_layers = None;
    let refused = run_over(&lab.open(), &lab.spec.root, "one", "echo x > README.md");
    assert!(
        matches!(refused, Err(SandboxError::NoLayers(_))),
        "{refused:?}"
    );
    lab.spec.command_layers = Some(lab.base.join("layers"));
    lab.spec.tier = Tier::Landlock;
    let refused = run_over(&lab.open(), &lab.spec.root, "one", "echo x > README.md");
    assert!(
        matches!(refused, Err(SandboxError::NoLayers(_))),
        "{refused:?}"
    );
    assert_eq!(lab.read("README.md"), "hello\n");
}

#[test]
fn a_program_that_cannot_start_says_why_also_over_a_layer() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = CommandOverlayLab::new();
    lab.layer("one");
    let err = run_over(&lab.open(), Path::new("/nowhere"), "one", "true")
        .unwrap_err()
        .to_string();
    assert!(err.contains("cannot enter the working directory"), "{err}");
}

#[test]
fn a_layer_goes_over_a_tree_of_its_own_too() {
    if lacks(Need::Overlay) {
        return;
    }
    let mut lab = CommandOverlayLab::new();
    for folder in ["upper", "work"] {
        fs::create_dir(lab.base.join(folder)).unwrap();
    }
    lab.spec.tree = Tree::Layered {
        upper: lab.base.join("upper"),
        work: lab.base.join("work"),
        between: None,
    };
    let session = lab.open();
    let upper = lab.layer("one");
    let (ended, _) = run(&session, &lab.spec.root, "echo run > README.md");
    assert!(ended.status.success());
    check(
        &lab,
        &session,
        "one",
        "cat README.md; echo one > README.md",
        "run",
    );
    check_written(&upper, &[("README.md", "one\n")]);
    assert_eq!(lab.read("README.md"), "hello\n");
}
