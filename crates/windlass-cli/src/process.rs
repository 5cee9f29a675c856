//! The environment of this process, its workspace and its settings.

use std::path::Path;

use windlass::machine::Root;
use windlass::settings::Places;
use windlass::settings::{self, Settings};
use windlass::{Environment, Notice, Notices, model};
use windlass_text::sanitize::message;

use crate::command_error::CommandError;
use crate::out::say;

/// The minimum address space of a command, in bytes. Threads reserve more than they use.
const MIN_ADDRESS_SPACE: u64 = 512 << 20;

/// Fails if the limit on the address space is too small. A failed allocation later would abort the process, because Rust
/// cannot turn it into an error.
pub(crate) fn check_address_space() -> Result<(), CommandError> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    match limit.filter(|limit| *limit < MIN_ADDRESS_SPACE) {
        Some(limit) => Err(CommandError::failed(format!(
            "the address space is limited to {} MB, which is too small",
            limit >> 20
        ))
        .hint(format!(
            "allow at least {} MB (`ulimit -v {}`), or limit memory with a cgroup instead",
            MIN_ADDRESS_SPACE >> 20,
            MIN_ADDRESS_SPACE >> 10
        ))),
        None => Ok(()),
    }
}

pub(crate) fn environment() -> Environment {
    Environment::of_process()
}

/// The directories for settings, sessions and caches of the user.
pub(crate) fn places() -> Result<Places, CommandError> {
    Ok(settings::places(&environment())?)
}

/// Opens the workspace that contains a directory [default: the current directory].
pub(crate) fn open_workspace(dir: Option<&Path>) -> Result<Root, CommandError> {
    Ok(model::open_workspace(dir, &environment())?)
}

/// Reads the settings that apply to a workspace; `None` outside of any. Notices go to standard error.
pub(crate) fn load_settings(root: Option<&Path>) -> Result<Settings, CommandError> {
    let mut settings = Settings::load(root, environment())?;
    settings.notices = notices();
    Ok(settings)
}

/// Prints notices of the library to standard error.
pub(crate) fn notices() -> Notices {
    Notices::new(|notice| match notice {
        Notice::Warning(text) => say!("warning: {}", message(text)),
        Notice::Progress(text) => say!("{}", message(text)),
        _ => {}
    })
}
