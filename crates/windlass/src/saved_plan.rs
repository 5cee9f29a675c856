//! Saved plans: the final answers of runs with the profile `plan`, as Markdown files. The user can edit a plan and start
//! another run with it.
//!
//! ```
//! use windlass::saved_plan::{load, save, with_plan};
//! use windlass::settings::Settings;
//!
//! let dir = tempfile::tempdir()?;
//! let places = Settings::none(dir.path()).places;
//! let (name, _) = save(&places, &"s1".parse()?, "1. Read the tests.")?;
//! let plan = load(&places, &name)?;
//! assert_eq!(plan, load(&places, "last")?);
//! assert!(with_plan(None, &plan).text().contains("Read the tests."));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use windlass_core::id::SessionId;
use windlass_core::message::{Message, Part};
use windlass_host::config::Places;

use crate::error::{Error, ErrorKind};
use crate::wire::read_text;

/// Maximum size of a plan in bytes.
const MAX_PLAN: u64 = 1 << 20;

/// The directory of saved plans.
fn folder(places: &Places) -> PathBuf {
    places.data_dir.join("plans")
}

/// Saves the final answer of a run as a plan, and returns the name and the path. Further plans of the same session have a
/// number in their name.
pub fn save(places: &Places, session: &SessionId, text: &str) -> Result<(String, PathBuf), Error> {
    let dir = folder(places);
    let failed = |path: &Path, err: std::io::Error| {
        Error::new(
            ErrorKind::Failed,
            format!("the plan cannot be saved in {}: {err}", path.display()),
        )
        .hint(format!(
            "it is also in the session: `windlass sessions show {session}`"
        ))
    };
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir);
    made.map_err(|err| failed(&dir, err))?;
    for n in 1..1_000 {
        let name = if n == 1 {
            session.to_string()
        } else {
            format!("{session}-{n}")
        };
        let path = dir.join(format!("{name}.md"));
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match file {
            Ok(mut file) => {
                let mut whole = text.trim_end().to_owned();
                whole.push('\n');
                file.write_all(whole.as_bytes())
                    .and_then(|()| file.sync_all())
                    .map_err(|err| failed(&path, err))?;
                return Ok((name, path));
            }
            Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(failed(&path, err)),
        }
    }
    Err(
        Error::new(ErrorKind::Failed, "this session has too many saved plans")
            .hint(format!("delete some of them in {}", dir.display())),
    )
}

/// Reads a plan: a file, a saved plan by its name, or `last` for the newest saved plan.
pub fn load(places: &Places, given: &str) -> Result<String, Error> {
    let dir = folder(places);
    let path = match given {
        "last" => newest(&dir).ok_or_else(|| {
            Error::usage("there are no saved plans yet")
                .hint("make one with `windlass run --profile plan \"TASK\"`")
        })?,
        // A session id cannot contain a separator, so the name of a saved plan cannot lead out of the directory. Any
        // other text is a path that the user typed.
        name => match name.parse::<SessionId>() {
            Ok(name) if dir.join(format!("{name}.md")).is_file() => dir.join(format!("{name}.md")),
            _ => PathBuf::from(given),
        },
    };
    if !path.is_file() {
        return Err(Error::usage(format!("there is no plan `{given}`")).hint(
            "use the name that was printed when the plan was saved, `last`, or the path of a file",
        ));
    }
    read_text(&path, MAX_PLAN, "the plan")
}

fn newest(dir: &Path) -> Option<PathBuf> {
    let plans = std::fs::read_dir(dir)
        .ok()?
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    let plans = plans.filter(|path| path.extension().is_some_and(|end| end == "md"));
    plans
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .map(|(_, path)| path)
}

/// Appends a plan to a prompt. Without a prompt, the model is asked to carry the plan out.
pub fn with_plan(prompt: Option<Message>, plan: &str) -> Message {
    let mut message = prompt.unwrap_or_else(|| Message::user("Carry this plan out."));
    let text = format!("<plan>\n{}\n</plan>\n", plan.trim());
    message.parts.push(Part::Text {
        text: format!("\n{text}"),
    });
    message
}
