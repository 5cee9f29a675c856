//! The sandbox helper for tests: the test program itself.

#![allow(clippy::unwrap_used)]

use windlass_host::sandbox::Helper;

pub(crate) fn helper() -> Helper {
    Helper::new(std::env::current_exe().unwrap())
}
