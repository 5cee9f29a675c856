//! Finds the instruction files for the model: the administrator's, the user's, and those of the project from its root
//! down to a directory. Limits their size, and lists each file that it skipped with the reason. The files are text for
//! the model: they set nothing, allow nothing and are not interpreted here.

use std::path::{Path, PathBuf};

use windlass_core::context::Instruction;
use windlass_core::workspace::{FileError, FileErrorKind, FileKind, Files};

use crate::workspace::{Root, open_regular, read_range};

/// The names of instruction files in a directory. The first file that is usable applies; the others are alternative
/// names.
pub const NAMES: [&str; 11] = [
    "AGENTS.md",
    "AGENT.md",
    "CLAUDE.md",
    "GEMINI.md",
    "QWEN.md",
    "CRUSH.md",
    ".cursorrules",
    ".windsurfrules",
    ".clinerules",
    ".goosehints",
    ".github/copilot-instructions.md",
];
/// The maximum that is read of one file, in bytes.
const MAX_FILE: u64 = 64 << 10;
/// The maximum of all files together, in bytes.
const MAX_TOTAL: u64 = 128 << 10;
/// The maximum number of directories below the root. Instruction files in deeper directories are ignored.
const MAX_DEPTH: usize = 32;

/// The author of an instruction file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionOwner {
    /// The administrator of the machine.
    Managed,
    User,
    Project,
}

/// The directories with instruction files.
pub struct InstructionDirs<'a> {
    pub managed: &'a Path,
    pub user: &'a Path,
    pub root: &'a Root,
    /// The directory where the work begins, relative to the root; empty for the root itself.
    pub below: &'a str,
}

/// An instruction file that applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionFile {
    pub owner: InstructionOwner,
    pub file: Instruction,
    pub text: String,
}

/// An instruction file that does not apply, or not completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedInstruction {
    pub owner: InstructionOwner,
    pub path: String,
    pub why: String,
}

/// The instruction files that apply, and those that do not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundInstructions {
    /// From the most general to the most specific.
    pub layers: Vec<InstructionFile>,
    pub skipped: Vec<SkippedInstruction>,
}

/// Finds and reads the instruction files. A file that cannot be read is skipped and listed; it never fails the run.
#[must_use]
pub fn find(dirs: &InstructionDirs<'_>) -> FoundInstructions {
    let mut found = FoundInstructions::default();
    let mut left = MAX_TOTAL;
    for (owner, dir) in [
        (InstructionOwner::Managed, dirs.managed),
        (InstructionOwner::User, dirs.user),
    ] {
        let path = dir.join(NAMES[0]);
        let shown = path.display().to_string();
        let read = || read_plain(&path);
        found.take(owner, shown, read, &mut left, None);
    }
    let general = found.layers.len();
    // The most specific files are read first, so that the size limit drops the most general ones.
    for dir in directories(dirs.below).iter().rev() {
        let mut first: Option<String> = None;
        for name in NAMES {
            let path = if dir.is_empty() {
                name.to_owned()
            } else {
                format!("{dir}/{name}")
            };
            if exists(dirs.root, &path) {
                let read = || read_inside(dirs.root, &path);
                let counted = found.layers.len();
                found.take(
                    InstructionOwner::Project,
                    path.clone(),
                    read,
                    &mut left,
                    first.as_deref(),
                );
                // A file that does not apply does not displace another one.
                if found.layers.len() > counted {
                    first = Some(path);
                }
            }
        }
    }
    found.layers[general..].reverse();
    found.drop_duplicates();
    found
}

/// Returns the root and each directory down to the given one, in this order.
fn directories(below: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut path = PathBuf::new();
    for part in Path::new(below).components().take(MAX_DEPTH) {
        let std::path::Component::Normal(name) = part else {
            break;
        };
        path.push(name);
        let Some(text) = path.to_str() else { break };
        all.push(text.to_owned());
    }
    all
}

/// The first bytes of a file, and its size.
struct FileStart {
    bytes: Vec<u8>,
    size: u64,
}

impl FoundInstructions {
    /// Adds a file, or records the reason to skip it. `shadow` is the file of the same directory that applies instead.
    fn take(
        &mut self,
        owner: InstructionOwner,
        path: String,
        read: impl FnOnce() -> Result<FileStart, FileError>,
        left: &mut u64,
        shadow: Option<&str>,
    ) {
        let mut skip = |why: String| {
            self.skipped.push(SkippedInstruction {
                owner,
                path: path.clone(),
                why,
            })
        };
        let FileStart { mut bytes, size } = match read() {
            Ok(read) => read,
            Err(err) if err.kind == FileErrorKind::NotFound => return,
            Err(err) if err.kind == FileErrorKind::Outside => {
                return skip("it leads outside the workspace".into());
            }
            Err(err) => return skip(err.message),
        };
        let hash = blake3::hash(&bytes).to_hex()[..32].to_owned();
        if let Some(shadow) = shadow {
            let same = self
                .layers
                .iter()
                .any(|layer| layer.file.path == shadow && layer.file.hash == hash);
            return skip(if same {
                format!("it is the same as {shadow}")
            } else {
                format!("{shadow} is used instead")
            });
        }
        let most = usize::try_from(MAX_FILE.min(*left)).unwrap_or(0);
        let whole = bytes.len() as u64 == size && bytes.len() <= most;
        if !whole {
            bytes.truncate(most);
            // Cut at the end of a line. A file of one long line is cut between two characters, but not for a small
            // remainder of the total limit.
            let line = bytes
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map(|at| at + 1);
            let piece = if most as u64 == MAX_FILE {
                whole_characters(&bytes)
            } else {
                0
            };
            bytes.truncate(line.unwrap_or(piece));
        }
        let kept = bytes.len() as u64;
        let Ok(text) = String::from_utf8(bytes) else {
            return skip("it is not UTF-8 text".into());
        };
        let text = text.trim_start_matches('\u{feff}').trim().to_owned();
        if !whole {
            let why = if most as u64 == MAX_FILE {
                "the limit for one file"
            } else {
                "the limit for all files together"
            };
            skip(format!(
                "only the first {kept} of {size} bytes are used: {why}"
            ));
        }
        if text.is_empty() {
            return if whole {
                skip("it is empty".into())
            };
        }
        *left -= kept;
        self.layers.push(InstructionFile {
            owner,
            file: Instruction {
                path,
                bytes: size,
                hash,
            },
            text,
        });
    }

    /// Drops each file owner content equals that of an earlier one.
    fn drop_duplicates(&mut self) {
        let mut kept: Vec<InstructionFile> = Vec::with_capacity(self.layers.len());
        for layer in self.layers.drain(..) {
            match kept.iter().find(|known| known.file.hash == layer.file.hash) {
                Some(known) => {
                    let why = format!("it is the same as {}", known.file.path);
                    self.skipped.push(SkippedInstruction {
                        owner: layer.owner,
                        path: layer.file.path,
                        why,
                    });
                }
                None => kept.push(layer),
            }
        }
        self.layers = kept;
    }
}

/// Returns the number of bytes without an incomplete character at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(err) if err.error_len().is_none() => err.valid_up_to(),
        _ => bytes.len(),
    }
}

/// Returns whether a name exists as any kind of file, so that one that cannot be read is reported.
fn exists(root: &Root, path: &str) -> bool {
    match root.stat(path) {
        Ok(_) => true,
        Err(err) => err.kind == FileErrorKind::Outside,
    }
}

fn read_inside(root: &Root, path: &str) -> Result<FileStart, FileError> {
    let resolved = root.resolve(path)?;
    if windlass_core::gate::is_credential(&resolved.path) {
        return Err(FileError {
            kind: FileErrorKind::Permission,
            message: "it leads to a credential".into(),
        });
    }
    let stat = root.stat(path)?;
    if stat.kind != FileKind::File {
        return Err(FileError {
            kind: FileErrorKind::Io,
            message: "it is not a regular file".into(),
        });
    }
    let size = stat.size;
    Ok(FileStart {
        bytes: root.read_range(path, 0, MAX_FILE + 1)?,
        size,
    })
}

fn read_plain(path: &Path) -> Result<FileStart, FileError> {
    let (file, stat) = open_regular(path)?;
    let bytes = read_range(&file, stat.size, 0, MAX_FILE + 1).map_err(|err| FileError {
        kind: FileErrorKind::Io,
        message: format!("{}: {err}", path.display()),
    })?;
    Ok(FileStart {
        bytes,
        size: stat.size,
    })
}

#[cfg(test)]
#[path = "instructions_tests.rs"]
mod tests;
