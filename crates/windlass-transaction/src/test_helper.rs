//! The helper of the sandboxes that tests open: the program of the tests itself.

#![allow(clippy::unwrap_used)]

use windlass_host::sandbox::Helper;

pub(crate) fn helper() -> Helper {
    Helper::new(std::env::current_exe().unwrap())
}
