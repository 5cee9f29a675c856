//! The environment of this process, the workspace it was started in, and the settings of both.

use std::path::Path;

use windlass::machine::Root;
use windlass::settings::Places;
use windlass::settings::{self, Settings};
use windlass::{Environment, Notice, Notices, model};

use crate::failure::Failure;
use crate::out::say;
use crate::safe::message;

/// The least address space that a command needs, in bytes: threads reserve more than they use.
const MIN_ADDRESS_SPACE: u64 = 512 << 20;

/// Refuses to start where the address space is too small: later a failed allocation would abort the process, and Rust has
/// no way to make an error of it.
pub(crate) fn check_address_space() -> Result<(), Failure> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    match limit.filter(|limit| *limit < MIN_ADDRESS_SPACE) {
        Some(limit) => Err(Failure::failed(format!(
            "the limit of {} MB for the address space is too small",
            limit >> 20
        ))
        .hint(format!(
            "allow at least {} MB (`ulimit -v {}`), or limit the memory with a cgroup",
            MIN_ADDRESS_SPACE >> 20,
            MIN_ADDRESS_SPACE >> 10
        ))),
        None => Ok(()),
    }
}

/// The environment of this process.
pub(crate) fn environment() -> Environment {
    Environment::of_process()
}

/// The directories of the user.
pub(crate) fn places() -> Result<Places, Failure> {
    Ok(settings::places(&environment())?)
}

/// Opens the workspace of a directory, or of the current one.
pub(crate) fn open_workspace(dir: Option<&Path>) -> Result<Root, Failure> {
    Ok(model::open_workspace(dir, &environment())?)
}

/// Reads the settings that apply to a workspace; `None` outside of one. Remarks go to standard error.
pub(crate) fn load_settings(root: Option<&Path>) -> Result<Settings, Failure> {
    let mut settings = Settings::load(root, environment())?;
    settings.notices = notices();
    Ok(settings)
}

/// Remarks of the library go to standard error.
pub(crate) fn notices() -> Notices {
    Notices::new(|notice| match notice {
        Notice::Warning(text) => say!("warning: {}", message(text)),
        Notice::Progress(text) => say!("{}", message(text)),
        _ => {}
    })
}
