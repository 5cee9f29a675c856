//! The log for developers: lines of `tracing` in a file or on standard error, off unless asked for. It says ids, sizes,
//! paths and kinds. Lines of other crates never get in: they may hold headers and addresses.

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

use crate::failure::Failure;

/// Names the filter.
const VARIABLE: &str = "WINDLASS_LOG";
/// The filter where only a file is named.
const DEFAULT: &str = "windlass=debug";
/// The prefix of all crates of ours.
const OURS: &str = "windlass";
/// The largest log file. Then it becomes `PATH.old`, and a new one begins.
const MAX_BYTES: u64 = 16 << 20;

/// Starts the log if `--log-file` or `WINDLASS_LOG` asks for it. Without a file it goes to standard error.
pub(crate) fn start(file: Option<&Path>) -> Result<(), Failure> {
    let filter = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    if file.is_none() && filter.is_none() {
        return Ok(());
    }
    let filter = parse(filter.as_deref().unwrap_or(DEFAULT))?;
    let writer = match file {
        Some(path) => LogWriter::File(Arc::new(BoundedFile::open(path)?)),
        None => LogWriter::StandardError,
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(writer);
    let subscriber = registry().with(filter).with(lines);
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|err| Failure::usage(format!("the log cannot be started: {err}")))
}

/// Reads a filter such as `debug` or `windlass_meter=trace,windlass=info`; it never lets other crates through.
fn parse(text: &str) -> Result<Targets, Failure> {
    let wrong = |why: String| {
        Failure::usage(format!("{VARIABLE}: {why}"))
            .hint("write a level such as `debug`, or targets such as `windlass_meter=trace,windlass=info`")
    };
    let targets: Targets = text
        .parse()
        .map_err(|err| wrong(format!("`{text}` is no filter: {err}")))?;
    let everything = targets.default_level().unwrap_or(LevelFilter::OFF);
    let mut ours = Targets::new().with_target(OURS, everything);
    for (target, level) in &targets {
        if !target.starts_with(OURS) {
            return Err(wrong(format!("`{target}` is no part of windlass")));
        }
        ours = ours.with_target(target, level);
    }
    Ok(ours)
}

#[derive(Clone)]
enum LogWriter {
    File(Arc<BoundedFile>),
    StandardError,
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for LogWriter {
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

/// A file that only its owner reads, appended to, and begun anew when it is full.
struct BoundedFile {
    path: PathBuf,
    most: u64,
    open: Mutex<(File, u64)>,
}

impl BoundedFile {
    fn open(path: &Path) -> Result<Self, Failure> {
        Self::open_with(path, MAX_BYTES).map_err(|err| {
            Failure::usage(format!(
                "the log file {} cannot be written: {err}",
                path.display()
            ))
            .hint("name a file in a folder that you can write, after `--log-file`")
        })
    }

    fn open_with(path: &Path, most: u64) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            most,
            open: Mutex::new(open_private(path)?),
        })
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut open = self.open.lock();
        if open.1 > 0 && open.1 + bytes.len() as u64 > self.most {
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

/// Opens the file for appending, readable by its owner alone; gives also its size.
fn open_private(path: &Path) -> io::Result<(File, u64)> {
    // Opening a pipe would wait for its reader.
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
    fn a_filter_names_levels_and_crates_of_ours_alone() {
        let check = |text: &str, target: &str, level, expect: bool| {
            let filter = parse(text).unwrap();
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
            "windlass_meter::desk",
            tracing::Level::TRACE,
            true,
        );
        check(
            "windlass_meter=trace",
            "windlass_engine::log",
            tracing::Level::ERROR,
            false,
        );
        assert!(parse("hyper=trace").is_err());
        assert!(parse("windlass=loud").is_err());
    }

    #[test]
    fn without_a_file_and_a_filter_every_line_is_off() {
        assert!(std::env::var_os(VARIABLE).is_none() && start(None).is_ok());
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
