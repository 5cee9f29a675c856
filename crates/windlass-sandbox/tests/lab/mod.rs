//! Functions that the tests of real sandboxes share: the helper, and running commands to their end.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::fs;
use std::io::Read;
use std::path::Path;

use windlass_sandbox::{Access, Ended, Helper, SandboxError, SandboxSession, Standard};

/// A command line for a read-only command.
pub(crate) const READ_ONLY_LINE: &str =
    "cat README.md; echo x > new; echo x > /tmp/t && cat /tmp/t";

pub(crate) fn helper() -> Helper {
    Helper::new(std::env::current_exe().unwrap())
}

pub(crate) fn run(session: &SandboxSession, dir: &Path, line: &str) -> (Ended, String) {
    try_run(session, dir, &["/bin/bash", "-c", line]).unwrap()
}

pub(crate) fn try_run(
    session: &SandboxSession,
    dir: &Path,
    argv: &[&str],
) -> Result<(Ended, String), SandboxError> {
    let (mut reads, writes) = std::io::pipe().unwrap();
    let input = fs::File::open("/dev/null").unwrap().into();
    let standard = Standard {
        input,
        output: writes.try_clone().unwrap().into(),
        error: writes.into(),
    };
    let argv: Vec<_> = argv.iter().map(Into::into).collect();
    let env = [
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("LC_ALL".into(), "C".into()),
    ];
    let (done, ended) = std::sync::mpsc::channel();
    let access = if argv.last().is_some_and(|line| line == READ_ONLY_LINE) {
        Access::ReadOnly
    } else {
        Access::Write
    };
    let child = session.start(&argv, &env, dir, access, standard, move |result| {
        drop(done.send(result))
    })?;
    let mut output = String::new();
    reads.read_to_string(&mut output).unwrap();
    let ended = ended.recv().unwrap()?;
    drop(child);
    Ok((ended, output))
}

pub(crate) fn wait_until(what: impl Fn() -> bool) {
    for _ in 0..200 {
        if what() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("it did not come to be");
}

/// Checks that a command whose processes fork and write all the time does nothing while it is paused, and continues
/// afterwards. It can be killed while it is paused.
#[track_caller]
pub(crate) fn check_pause(session: &SandboxSession, dir: &Path) {
    let line = "beat() { while :; do date +%N > beat; done; }; beat & (beat) & setsid bash -c 'while :; do (:); done' & wait";
    let null = || fs::File::options().read(true).write(true).open("/dev/null");
    let standard = Standard {
        input: null().unwrap().into(),
        output: null().unwrap().into(),
        error: null().unwrap().into(),
    };
    let argv = ["/bin/bash", "-c", line].map(Into::into);
    let env = [("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    let (done, ended) = std::sync::mpsc::channel();
    let child = session
        .start(&argv, &env, dir, Access::Write, standard, move |result| {
            drop(done.send(result))
        })
        .unwrap();
    let pause = || {
        let (done, paused) = std::sync::mpsc::channel();
        child.pause(move |result| drop(done.send(result)));
        paused.recv().unwrap()
    };
    let beat = || {
        let text = fs::read_to_string(dir.join("beat")).unwrap_or_default();
        let changed = fs::metadata(dir.join("beat")).and_then(|found| found.modified());
        (text, changed.ok())
    };
    wait_until(|| beat().1.is_some());
    for _ in 0..3 {
        assert_eq!(pause(), Ok(true), "everything stopped");
        assert_eq!(pause(), Ok(true), "and stays so");
        let before = beat();
        // Another command of the sandbox runs at the same time, long enough for many writes of the first.
        let (other, _) = run(session, dir, "seq 1 50000 | sort -R | wc -l");
        assert!(other.status.success());
        assert_eq!(beat(), before);
        child.resume();
        wait_until(|| beat() != before);
    }
    assert_eq!(pause(), Ok(true));
    child.kill();
    assert!(!ended.recv().unwrap().unwrap().status.success());
    assert!(pause().is_err(), "it is gone");
}
