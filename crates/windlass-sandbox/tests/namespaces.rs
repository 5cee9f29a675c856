//! Runs commands in real sandboxes with namespaces on scratch folders, and checks what they did to the folders.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lab::{READ_ONLY_LINE, check_pause, helper, run, try_run, wait_until};
use windlass_needs::{Need, lacks};
use windlass_sandbox::{
    Access, Ended, Limits, Net, Protected, Protection, SandboxSession, Spec, Standard, Tier,
};

mod lab;

/// A workspace, a folder next to it, a home, and the sandbox's settings.
struct NamespaceLab {
    _scratch: tempfile::TempDir,
    base: PathBuf,
    spec: Spec,
}

impl NamespaceLab {
    fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    fn below(place: &Path) -> Self {
        let scratch = tempfile::tempdir_in(place).unwrap();
        let base = scratch.path().canonicalize().unwrap();
        for folder in ["ws/src", "out", "home/.ssh", "home/.cache/tool", "layers"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        fs::write(base.join("ws/README.md"), "hello\n").unwrap();
        fs::write(base.join("ws/.env"), "TOKEN=planted\n").unwrap();
        fs::write(base.join("out/victim.txt"), "original\n").unwrap();
        fs::write(base.join("home/.ssh/id_x"), "planted\n").unwrap();
        fs::write(base.join("home/.cache/tool/a"), "lower\n").unwrap();
        let root = base.join("ws");
        let frozen = |name: &str| Protected {
            base: root.clone(),
            name: name.into(),
            how: Protection::Frozen,
        };
        let spec = Spec {
            home: Some(base.join("home")),
            caches: vec![
                base.join("home/.cache/tool"),
                base.join("home/.cache/absent"),
            ],
            hide: vec![root.join(".env")],
            protect: vec![
                frozen(".agent"),
                frozen(".deep/inner/name"),
                frozen("README.md"),
            ],
            scratch: Some(base.join("layers")),
            journal: Some(base.join("journal")),
            ..Spec::around(root.clone())
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

    fn run(&self, line: &str) -> (Ended, String) {
        run(&self.open(), &self.spec.root, line)
    }

    /// Checks the exit code and the output of a command line.
    #[track_caller]
    fn check(&self, line: &str, code: i32, expect: &str) {
        let (ended, output) = self.run(line);
        assert_eq!(
            (ended.status.code(), output.trim()),
            (Some(code), expect),
            "{line}"
        );
    }

    #[track_caller]
    fn check_kept(&self) {
        assert_eq!(
            fs::read_to_string(self.base.join("out/victim.txt")).unwrap(),
            "original\n"
        );
        assert_eq!(
            fs::read_to_string(self.base.join("home/.cache/tool/a")).unwrap(),
            "lower\n"
        );
        assert!(
            !self.base.join("home/x").exists() && !self.base.join("home/.cache/absent").exists()
        );
    }
}

#[test]
fn a_workspace_may_lie_below_var_tmp() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::below(Path::new("/var/tmp"));
    lab.check(
        "echo hi > src/a && cat src/a && touch /var/tmp/x /tmp/y && ls /var/tmp | grep -c x",
        0,
        "hi\n1",
    );
    assert_eq!(
        fs::read_to_string(lab.base.join("ws/src/a")).unwrap(),
        "hi\n"
    );
    assert!(!Path::new("/var/tmp/x").exists());
}

#[test]
fn commands_work_in_the_workspace() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::new();
    lab.check("echo hi && cat src/../README.md && exit 3", 3, "hi\nhello");
    lab.check(
        "mkdir -p build && echo ok > build/x && cat build/x",
        0,
        "ok",
    );
    assert_eq!(
        fs::read_to_string(lab.spec.root.join("build/x")).unwrap(),
        "ok\n"
    );
    lab.check(
        "echo x > /tmp/a && cat /tmp/a > /dev/null; : > /dev/null; head -c2 /dev/zero | wc -c; ls /dev/pts",
        0,
        "2\nptmx",
    );
    lab.check(
        "ls /proc | grep -c '^[0-9]' | head -1 > /dev/null; echo $$; cat /proc/1/comm | wc -l",
        0,
        "2\n1",
    );
}

#[test]
fn nothing_outside_is_seen_or_written() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::new();
    let out = lab.base.join("out");
    for line in [
        format!("echo x > {}/victim.txt", out.display()),
        format!("echo x > /proc/self/root{}/victim.txt", out.display()),
        format!("ln -s {}/victim.txt l; echo x > l", out.display()),
        format!("cat {}/victim.txt", out.display()),
        format!("cat {}/home/.ssh/id_x", lab.base.display()),
        format!("echo x > {}/home/x", lab.base.display()),
        "echo x > /usr/x".into(),
        "echo x > /etc/x".into(),
        "echo x > /x".into(),
        "echo 1 > /proc/sys/kernel/core_pattern".into(),
        "mount -t tmpfs none /tmp".into(),
        "unshare -Ur true".into(),
        "mknod d b 8 0".into(),
        "exec 3<>/dev/tcp/127.0.0.1/80".into(),
        "cat .env".into(),
        "echo x > README.md".into(),
        "rm README.md".into(),
        "mv README.md y".into(),
        "mkdir .agent".into(),
        "rmdir .agent".into(),
        "echo x > .agent/settings.json".into(),
        "echo x > .deep/inner/name".into(),
        "rm -r .deep".into(),
        "mv .deep .x".into(),
    ] {
        let (ended, output) = lab.run(&line);
        assert_ne!(ended.status.code(), Some(0), "{line}: {output}");
        assert!(
            !output.contains("planted") && !output.contains("original"),
            "{line}: {output}"
        );
    }
    lab.check_kept();
    wait_until(|| !lab.spec.root.join(".agent").exists() && !lab.spec.root.join(".deep").exists());
}

#[test]
fn writes_to_caches_are_discarded_with_the_session() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = NamespaceLab::new();
    let session = lab.open();
    let home = lab.base.join("home");
    let line = format!(
        "cd {0}/.cache/tool && cat a && echo new > a && echo b > b && cat a && echo c > ../absent/c",
        home.display()
    );
    let (ended, output) = run(&session, &lab.spec.root, &line);
    assert_eq!(
        (ended.status.code(), output.as_str()),
        (Some(0), "lower\nnew\n")
    );
    let (_, output) = run(
        &session,
        &lab.spec.root,
        &format!("cat {0}/.cache/tool/a {0}/.cache/absent/c", home.display()),
    );
    assert_eq!(output, "new\nc\n");
    lab.check_kept();
}

#[test]
fn background_processes_end_with_the_command() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::new();
    let mark = format!("mark{}", std::process::id());
    let line =
        format!("(setsid sh -c 'sleep 60; : {mark}' >/dev/null 2>&1 &); sleep 60 & echo done");
    let (ended, output) = lab.run(&line);
    assert_eq!((ended.status.code(), output.trim()), (Some(0), "done"));
    let alive = fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&mark))
    });
    assert!(!alive);
}

#[test]
fn a_paused_command_does_nothing_until_it_is_resumed() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::new();
    check_pause(&lab.open(), &lab.spec.root);
}

#[test]
fn limits_hold() {
    if lacks(Need::Namespaces) {
        return;
    }
    let mut lab = NamespaceLab::new();
    lab.spec.limits = Limits {
        processes: 40,
        memory: 256 << 20,
        file_size: 1 << 20,
        ..Limits::default()
    };
    let (ended, output) = lab.run("for i in $(seq 500); do sleep 5 & done; wait; echo all");
    assert!(
        ended.limits.processes && !output.contains("all"),
        "{ended:?} {output}"
    );
    let (ended, _) = lab.run("head -c 3000000 /dev/zero > big; ls -l big > /dev/null");
    assert!(
        fs::metadata(lab.spec.root.join("big")).unwrap().len() <= 1 << 20,
        "{ended:?}"
    );
    let (ended, output) = lab.run("head -c 400000000 /dev/zero | tail -c 399999999 | wc -c");
    assert!(!output.contains("399999999"), "{ended:?} {output}");
}

#[test]
fn forks_do_not_fail_when_signals_arrive() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::new();
    // The shell gets SIGCHLD for ended children while it forks the next ones.
    let line = "trap : CHLD; for i in $(seq 300); do (exit 0) & true | true | true || exit 9; done; wait; echo all";
    let (ended, output) = lab.run(line);
    assert_eq!(
        (ended.status.code(), output.trim()),
        (Some(0), "all"),
        "{ended:?}"
    );
}

#[test]
fn two_sandboxes_do_not_uncover_each_other() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::new();
    let (one, two) = (lab.open(), lab.open());
    let (first, _) = run(&one, &lab.spec.root, "true");
    assert!(first.status.success());
    let (mut reads, writes) = std::io::pipe().unwrap();
    let (gate, opens) = std::io::pipe().unwrap();
    let standard = Standard {
        input: gate.into(),
        output: writes.try_clone().unwrap().into(),
        error: writes.into(),
    };
    let argv = [
        "/bin/bash".into(),
        "-c".into(),
        "echo up; read x; echo x > .agent/f && echo WRITTEN".into(),
    ];
    let (done, ended) = std::sync::mpsc::channel();
    two.start(
        &argv,
        &[],
        &lab.spec.root,
        Access::Write,
        standard,
        move |result| drop(done.send(result)),
    )
    .unwrap();
    let mut up = [0; 3];
    reads.read_exact(&mut up).unwrap();
    // The first sandbox ends. It must not remove what the second one needs.
    drop(one);
    std::thread::sleep(std::time::Duration::from_millis(700));
    std::io::Write::write_all(&mut &opens, b"go\n").unwrap();
    let mut output = String::new();
    reads.read_to_string(&mut output).unwrap();
    assert!(
        !ended.recv().unwrap().unwrap().status.success() && !output.contains("WRITTEN"),
        "{output}"
    );
    drop(two);
    wait_until(|| !lab.spec.root.join(".agent").exists());
}

#[test]
fn placeholders_are_removed_when_no_command_runs() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::new();
    let session = lab.open();
    let (_, output) = run(&session, &lab.spec.root, "ls -A");
    assert!(output.contains(".agent"), "{output}");
    wait_until(|| !lab.spec.root.join(".agent").exists() && !lab.spec.root.join(".deep").exists());
    // The placeholders come back for the next command, and a directory that the user made meanwhile stays.
    fs::create_dir(lab.spec.root.join(".agent")).unwrap();
    fs::write(lab.spec.root.join(".agent/mine"), "x").unwrap();
    let (ended, _) = run(&session, &lab.spec.root, "echo y > .agent/mine");
    assert!(!ended.status.success());
    drop(session);
    wait_until(|| !lab.spec.root.join(".deep").exists());
    assert_eq!(
        fs::read_to_string(lab.spec.root.join(".agent/mine")).unwrap(),
        "x"
    );
}

#[test]
fn banned_names_are_removed_after_the_command() {
    if lacks(Need::Namespaces) {
        return;
    }
    let mut lab = NamespaceLab::new();
    let banned = Protected {
        base: lab.spec.root.clone(),
        name: "src/pointer".into(),
        how: Protection::Banned,
    };
    lab.spec.protect.push(banned);
    lab.check(
        "echo elsewhere > src/pointer && cat src/pointer",
        0,
        "elsewhere",
    );
    assert!(!lab.spec.root.join("src/pointer").exists());
    fs::write(lab.spec.root.join("src/pointer"), "mine").unwrap();
    lab.check("true", 0, "");
    assert!(lab.spec.root.join("src/pointer").exists());
}

#[test]
fn the_landlock_tier_confines_commands() {
    if lacks(Need::Landlock) {
        return;
    }
    let mut lab = NamespaceLab::new();
    lab.spec.tier = Tier::Landlock;
    lab.spec.limits.processes = 40;
    let out = lab.base.join("out");
    for line in [
        format!("echo x > {}/victim.txt", out.display()),
        format!("cat {}/victim.txt", out.display()),
        format!("chmod 777 {}/victim.txt", out.display()),
        format!("cat {}/home/.ssh/id_x", lab.base.display()),
        "exec 3<>/dev/tcp/127.0.0.1/80".into(),
        "unshare -Ur true".into(),
    ] {
        let (ended, output) = lab.run(&line);
        assert_ne!(ended.status.code(), Some(0), "{line}: {output}");
        assert!(
            !output.contains("planted") && !output.contains("original"),
            "{line}: {output}"
        );
    }
    lab.check(
        "echo x > new && cat new && echo t > $TMPDIR/t && cat $TMPDIR/t",
        0,
        "x\nt",
    );
    lab.check_kept();
}

#[test]
fn symlinks_at_protected_names_are_covered_too() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::new();
    fs::create_dir(lab.spec.root.join("real")).unwrap();
    std::os::unix::fs::symlink("real", lab.spec.root.join(".agent")).unwrap();
    let (ended, output) = lab.run("rm .agent && mkdir .agent && echo x > .agent/settings.json");
    assert_ne!(ended.status.code(), Some(0), "{output}");
    assert!(
        fs::symlink_metadata(lab.spec.root.join(".agent"))
            .unwrap()
            .is_symlink()
    );
}

#[test]
fn a_command_that_cannot_start_says_why() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::new();
    let session = lab.open();
    let err = try_run(&session, &lab.spec.root, &["no-such-program"])
        .unwrap_err()
        .to_string();
    assert!(
        err.contains("cannot start `no-such-program`") && err.contains("No such file"),
        "{err}"
    );
    let err = try_run(&session, Path::new("/nowhere"), &["true"])
        .unwrap_err()
        .to_string();
    assert!(err.contains("cannot enter the working directory"), "{err}");
}

#[test]
fn the_workspace_may_be_read_only() {
    if lacks(Need::Namespaces) {
        return;
    }
    let mut lab = NamespaceLab::new();
    lab.spec.access = Access::ReadOnly;
    let (ended, output) = lab.run("touch x; echo > README.md; cat README.md");
    assert!(
        ended.status.success() && output.contains("hello"),
        "{output}"
    );
    assert!(!lab.spec.root.join("x").exists());
}

#[test]
fn a_read_only_command_changes_nothing_while_others_may() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::new();
    let session = lab.open();
    let (_, output) = run(&session, &lab.spec.root, READ_ONLY_LINE);
    assert!(
        output.contains("hello") && output.ends_with("x\n") && output.contains("Read-only"),
        "{output}"
    );
    assert!(!lab.spec.root.join("new").exists());
    let (ended, _) = run(&session, &lab.spec.root, "echo x > new");
    assert!(ended.status.success() && lab.spec.root.join("new").exists());
}

#[test]
fn commands_can_have_a_private_loopback() {
    if lacks(Need::Namespaces) {
        return;
    }
    let mut lab = NamespaceLab::new();
    lab.spec.net = Net::Proxy;
    let opened = SandboxSession::open(&helper(), &lab.spec).unwrap();
    let (port, listener) = opened.listener.unwrap();
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"from outside\n").unwrap();
    });
    let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3");
    let (_, output) = run(&opened.session, &lab.spec.root, &line);
    assert_eq!(output, "from outside\n");
    answer.join().unwrap();
}

#[test]
fn modes_of_files_are_kept() {
    if lacks(Need::Namespaces) {
        return;
    }
    let lab = NamespaceLab::new();
    lab.check(
        "cp /bin/true t && chmod 750 t && ./t && stat -c %a t",
        0,
        "750",
    );
    assert_eq!(
        fs::metadata(lab.spec.root.join("t"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o750
    );
}

#[test]
fn a_home_below_a_system_directory_is_private_too() {
    if lacks(Need::Namespaces) {
        return;
    }
    // Only root can create a home there.
    let Ok(home) = tempfile::tempdir_in("/opt") else {
        return;
    };
    fs::write(home.path().join("planted"), "planted\n").unwrap();
    let at = home.path().canonicalize().unwrap();
    let mut lab = NamespaceLab::new();
    lab.spec.caches = vec![at.join(".cargo")];
    lab.spec.home = Some(at.clone());
    let at = at.display();
    lab.check(
        &format!("ls -A {at}; touch {at}/.cargo/x && ls {at}/.cargo; cat {at}/planted 2>/dev/null; touch {at}/y 2>/dev/null || echo no"),
        0,
        ".cargo\nx\nno",
    );
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn unmapped_memory_counts_towards_the_limit() {
    if lacks(Need::Namespaces) {
        return;
    }
    let mut lab = NamespaceLab::new();
    lab.spec.limits.memory = 128 << 20;
    let file = "import os, time; f = os.memfd_create('x'); [os.write(f, bytes(1 << 20)) for _ in range(300)]; \
                time.sleep(60); print('all')";
    let (ended, output) = lab.run(&format!("python3 -c \"{file}\""));
    assert!(
        ended.limits.memory && !output.contains("all"),
        "{ended:?} {output}"
    );
    // Kernels before 5.19 do not let a namespace limit its segments.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers: Vec<u32> = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok())
        .collect();
    if numbers.as_slice() >= &[5, 19][..] {
        let segment =
            "import ctypes; print(ctypes.CDLL(None).shmget(0, ctypes.c_size_t(1 << 28), 0o1600))";
        lab.check(&format!("python3 -c \"{segment}\""), 0, "-1");
    }
}
