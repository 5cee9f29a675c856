//! What the tests of real sandboxes share: the helper, and commands that are run to their end.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::fs;
use std::io::Read;
use std::path::Path;

use windlass_sandbox::{Access, Ended, Helper, SandboxError, Session, Standard};

/// A line that is started as one that only looks.
pub(crate) const LOOK: &str = "cat README.md; echo x > new; echo x > /tmp/t && cat /tmp/t";

pub(crate) fn helper() -> Helper {
    Helper::new(std::env::current_exe().unwrap())
}

pub(crate) fn run(session: &Session, dir: &Path, line: &str) -> (Ended, String) {
    try_run(session, dir, &["/bin/bash", "-c", line]).unwrap()
}

pub(crate) fn try_run(
    session: &Session,
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
    let access = if argv.last().is_some_and(|line| line == LOOK) {
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
