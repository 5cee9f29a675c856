//! The helper of the sandboxes that tests open: the program of the tests itself.

#![allow(clippy::unwrap_used)]

use windlass_host::sandbox::Helper;

/// The word by which this program knows that it is the helper of a sandbox.
const AS_HELPER: &str = "windlass-helper-of-the-tests";

/// Not a case: the program of the tests is the helper of their sandboxes, too.
#[test]
fn as_helper() {
    if std::env::args().any(|word| word == AS_HELPER) {
        let _ = windlass_sandbox::supervise();
    }
}

pub(crate) fn helper() -> Helper {
    let words = [
        "test_helper::as_helper",
        AS_HELPER,
        "--exact",
        "--test-threads=1",
        "--nocapture",
    ];
    let program = std::env::current_exe().unwrap();
    Helper {
        program,
        args: words.iter().map(Into::into).collect(),
    }
}
