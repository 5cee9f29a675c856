//! Instruction files for the model: the administrator's, the user's, and those of the project from its root down to a
//! directory. It reads and bounds them and says what it left out and why. What they say is text to be told: it sets
//! nothing, allows nothing and is not interpreted here.

use std::path::{Path, PathBuf};

use windlass_core::context::Instruction;
use windlass_core::workspace::{FileError, FileErrorKind, FileKind, Files};

use crate::workspace::{Root, open_regular, read_range};

/// The names of instruction files in a directory; the first one that is there counts, the others are other names of it.
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
/// The most of one file, in bytes.
const MAX_FILE: u64 = 64 << 10;
/// The most of all files together.
const MAX_TOTAL: u64 = 128 << 10;
/// Directories between the root and the one where the work begins; a deeper way is followed no further.
const MAX_DEPTH: usize = 32;

/// Whose instructions they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The administrator's.
    Managed,
    /// The user's.
    User,
    /// The project's.
    Project,
}

/// Where to look.
pub struct LookIn<'a> {
    /// The administrator's directory.
    pub managed: &'a Path,
    /// The user's directory.
    pub user: &'a Path,
    /// The project.
    pub root: &'a Root,
    /// The directory where the work begins, from the root; empty for the root itself.
    pub below: &'a str,
}

/// A file of instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Whose.
    pub whose: Whose,
    /// Where, how long, and which content.
    pub file: Instruction,
    /// What it says.
    pub text: String,
}

/// A file that does not count, or not in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Whose.
    pub whose: Whose,
    /// Where.
    pub path: String,
    /// Why not.
    pub why: String,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// From the most general to the nearest.
    pub layers: Vec<Layer>,
    /// What was left out.
    pub skipped: Vec<Skipped>,
}

/// Looks for instruction files. What cannot be read is left out and named, never an error: nobody's work should end
/// because of a file of words.
#[must_use]
pub fn find(look: &LookIn<'_>) -> Found {
    let mut found = Found::default();
    let mut room = MAX_TOTAL;
    for (whose, dir) in [(Whose::Managed, look.managed), (Whose::User, look.user)] {
        let path = dir.join(NAMES[0]);
        let shown = path.display().to_string();
        let read = || read_plain(&path);
        found.take(whose, shown, read, &mut room, None);
    }
    let general = found.layers.len();
    // The nearest are read first: they are the last to be left out where all of them are too much.
    for dir in directories(look.below).iter().rev() {
        let mut first: Option<String> = None;
        for name in NAMES {
            let path = if dir.is_empty() {
                name.to_owned()
            } else {
                format!("{dir}/{name}")
            };
            if is_there(look.root, &path) {
                let read = || read_inside(look.root, &path);
                let counted = found.layers.len();
                found.take(
                    Whose::Project,
                    path.clone(),
                    read,
                    &mut room,
                    first.as_deref(),
                );
                // One that does not count itself takes no other's place.
                if found.layers.len() > counted {
                    first = Some(path);
                }
            }
        }
    }
    found.layers[general..].reverse();
    found.keep_one_of_each();
    found
}

/// The root and every directory down to the one named, in that order.
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

/// What was read of a file: its beginning, and how long it is.
struct Read {
    bytes: Vec<u8>,
    size: u64,
}

impl Found {
    /// Takes a file in, or says why not. `shadow` is the file of the same directory that counts instead.
    fn take(
        &mut self,
        whose: Whose,
        path: String,
        read: impl FnOnce() -> Result<Read, FileError>,
        room: &mut u64,
        shadow: Option<&str>,
    ) {
        let mut skip = |why: String| {
            self.skipped.push(Skipped {
                whose,
                path: path.clone(),
                why,
            })
        };
        let Read { mut bytes, size } = match read() {
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
                format!("{shadow} counts instead")
            });
        }
        let most = usize::try_from(MAX_FILE.min(*room)).unwrap_or(0);
        let whole = bytes.len() as u64 == size && bytes.len() <= most;
        if !whole {
            bytes.truncate(most);
            // At a line's end; a file of one long line between two characters. A rest of room is too little for a piece.
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
                "one file may have"
            } else {
                "is left for all files together"
            };
            skip(format!(
                "it has {size} bytes, of which the first {kept} count: that much {why}"
            ));
        }
        if text.is_empty() {
            return if whole {
                skip("it is empty".into())
            };
        }
        *room -= kept;
        self.layers.push(Layer {
            whose,
            file: Instruction {
                path,
                bytes: size,
                hash,
            },
            text,
        });
    }

    /// The same words are told once: where they stand first.
    fn keep_one_of_each(&mut self) {
        let mut kept: Vec<Layer> = Vec::with_capacity(self.layers.len());
        for layer in self.layers.drain(..) {
            match kept.iter().find(|known| known.file.hash == layer.file.hash) {
                Some(known) => {
                    let why = format!("it is the same as {}", known.file.path);
                    self.skipped.push(Skipped {
                        whose: layer.whose,
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

/// How many bytes there are without the beginning of a character at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(err) if err.error_len().is_none() => err.valid_up_to(),
        _ => bytes.len(),
    }
}

/// Whether a name is there, as whatever it is: one that cannot be read is said.
fn is_there(root: &Root, path: &str) -> bool {
    match root.stat(path) {
        Ok(_) => true,
        Err(err) => err.kind == FileErrorKind::Outside,
    }
}

fn read_inside(root: &Root, path: &str) -> Result<Read, FileError> {
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
            message: "it is no regular file".into(),
        });
    }
    let size = stat.size;
    Ok(Read {
        bytes: root.read_range(path, 0, MAX_FILE + 1)?,
        size,
    })
}

fn read_plain(path: &Path) -> Result<Read, FileError> {
    let (file, stat) = open_regular(path)?;
    let bytes = read_range(&file, stat.size, 0, MAX_FILE + 1).map_err(|err| FileError {
        kind: FileErrorKind::Io,
        message: format!("{}: {err}", path.display()),
    })?;
    Ok(Read {
        bytes,
        size: stat.size,
    })
}

#[cfg(test)]
#[path = "instructions_tests.rs"]
mod tests;
