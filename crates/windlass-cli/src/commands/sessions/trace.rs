//! Writes the trace of a session into a new directory. Existing files are not overwritten.

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;

use windlass::core::id::SessionId;
use windlass::export::export_trace;
use windlass::machine::SessionLog;
use windlass::{Error, ErrorKind};

use super::export::create;
use crate::command_error::CommandError;
use crate::out::say;
use crate::{exit, process};

pub(super) async fn run(
    store: &SessionLog,
    id: &SessionId,
    dir: &Path,
) -> Result<ExitCode, CommandError> {
    // The directory is created with the first file, so that a wrong id leaves no directory.
    let mut is_created = false;
    let mut create_in_dir = |name: &str| {
        if !is_created {
            create_dir(dir)?;
            is_created = true;
        }
        Ok(Box::new(create(&dir.join(name))?) as Box<dyn Write + Send>)
    };
    let files = export_trace(store, id, &mut create_in_dir, &process::notices()).await?;
    if !is_created {
        create_dir(dir)?;
    }
    say!("wrote {files} files to {}", dir.display());
    Ok(exit::after_output(0))
}

fn create_dir(dir: &Path) -> Result<(), Error> {
    let created = std::fs::DirBuilder::new().mode(0o700).create(dir);
    created.map_err(|err| match err.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Error::usage(format!("{} exists already", dir.display()))
                .hint("name a directory that does not exist; existing files are not overwritten")
        }
        _ => Error::new(
            ErrorKind::Failed,
            format!("cannot create {}: {err}", dir.display()),
        ),
    })
}
