//! The developer log: `tracing` lines in a file or on standard error, off by default. It contains ids, sizes, paths and
//! kinds. Lines of third-party crates are always filtered out, because they may contain headers and addresses.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

use crate::command_error::CommandError;

const FILTER_VARIABLE: &str = "WINDLASS_LOG";
/// The filter if only `--log-file` is set.
const DEFAULT_FILTER: &str = "windlass=debug";
/// The prefix of the names of all Windlass crates.
const CRATE_PREFIX: &str = "windlass";
/// The largest log file. A full log is renamed to `PATH.old`, and a new one begins.
const MAX_BYTES: u64 = 16 << 20;

/// Starts the log if `--log-file` or `WINDLASS_LOG` is set. Without a file, it goes to standard error.
pub(crate) fn start(file: Option<&Path>) -> Result<(), CommandError> {
    let filter = std::env::var(FILTER_VARIABLE)
        .ok()
        .filter(|text| !text.is_empty());
    if file.is_none() && filter.is_none() {
        return Ok(());
    }
    let filter = parse_filter(filter.as_deref().unwrap_or(DEFAULT_FILTER))?;
    let writer = match file {
        Some(path) => DeveloperLogWriter::File(Arc::new(BoundedFile::open(path)?)),
        None => DeveloperLogWriter::StandardError,
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(writer);
    let subscriber = registry().with(filter).with(lines);
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|err| CommandError::usage(format!("the log cannot be started: {err}")))
}

/// Parses a filter such as `debug` or `windlass_meter=trace,windlass=info`. The result never matches other crates.
fn parse_filter(text: &str) -> Result<Targets, CommandError> {
    let invalid = |why: String| {
        CommandError::usage(format!("{FILTER_VARIABLE}: {why}"))
            .hint("write a level such as `debug`, or targets such as `windlass_meter=trace,windlass=info`")
    };
    let targets: Targets = text
        .parse()
        .map_err(|err| invalid(format!("`{text}` is not a valid filter: {err}")))?;
    let default_level = targets.default_level().unwrap_or(LevelFilter::OFF);
    let mut ours = Targets::new().with_target(CRATE_PREFIX, default_level);
    for (target, level) in &targets {
        if !target.starts_with(CRATE_PREFIX) {
            return Err(invalid(format!("`{target}` is not a crate of windlass")));
        }
        ours = ours.with_target(target, level);
    }
    Ok(ours)
}

#[derive(Clone)]
enum DeveloperLogWriter {
    File(Arc<BoundedFile>),
    StandardError,
}

impl<'a> MakeWriter<'a> for DeveloperLogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for DeveloperLogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.append(bytes),
            Self::StandardError => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A log file, private to its owner and open for appending. A full file is renamed, and a new one begins.
struct BoundedFile {
    path: PathBuf,
    max_bytes: u64,
    open: Mutex<(File, u64)>,
}

impl BoundedFile {
    fn open(path: &Path) -> Result<Self, CommandError> {
        Self::open_with(path, MAX_BYTES).map_err(|err| {
            CommandError::usage(format!(
                "the log file {} cannot be written: {err}",
                path.display()
            ))
            .hint("pass `--log-file` a path in a directory that you can write to")
        })
    }

    fn open_with(path: &Path, max_bytes: u64) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            max_bytes,
            open: Mutex::new(open_private(path)?),
        })
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut open = self.open.lock();
        if open.1 > 0 && open.1 + bytes.len() as u64 > self.max_bytes {
            let mut old = self.path.clone().into_os_string();
            old.push(".old");
            std::fs::rename(&self.path, old)?;
            *open = open_private(&self.path)?;
        }
        open.0.write_all(bytes)?;
        open.1 += bytes.len() as u64;
        Ok(bytes.len())
    }
}

/// Opens the file for appending with mode 0600, and returns its size.
fn open_private(path: &Path) -> io::Result<(File, u64)> {
    // Opening a pipe would block until it has a reader.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_selects_levels_and_only_windlass_crates() {
        let check = |text: &str, target: &str, level, expect: bool| {
            let filter = parse_filter(text).unwrap();
            assert_eq!(
                filter.would_enable(target, &level),
                expect,
                "{text} {target}"
            );
        };
        check("debug", "windlass_engine::log", tracing::Level::DEBUG, true);
        check(
            "debug",
            "windlass_engine::log",
            tracing::Level::TRACE,
            false,
        );
        check("trace", "hyper::client", tracing::Level::ERROR, false);
        check(
            "windlass_meter=trace",
            "windlass_meter::endpoint",
            tracing::Level::TRACE,
            true,
        );
        check(
            "windlass_meter=trace",
            "windlass_engine::log",
            tracing::Level::ERROR,
            false,
        );
        assert!(parse_filter("hyper=trace").is_err());
        assert!(parse_filter("windlass=loud").is_err());
    }

    #[test]
    fn without_a_file_and_a_filter_the_log_is_off() {
        assert!(std::env::var_os(FILTER_VARIABLE).is_none() && start(None).is_ok());
        assert_eq!(LevelFilter::current(), LevelFilter::OFF);
    }

    #[test]
    fn the_file_is_private_appended_to_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "before\n").unwrap();
        let file = BoundedFile::open_with(&path, 20).unwrap();
        file.append(b"one\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\none\n");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        file.append(b"something longer\n").unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "something longer\n"
        );
        let old = std::fs::read_to_string(dir.path().join("log.old")).unwrap();
        assert_eq!(old, "before\none\n");
        assert!(BoundedFile::open_with(dir.path(), 20).is_err());
    }
}
