//! Asks and answers of a call that began in another process: they are used, once, and nobody is asked again.
//! And what is at the paths of a call, by content, so that an answer counts for exactly what was asked about.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};

use windlass_core::ask::{About, Answer, Approval, Ask, Question};
use windlass_core::history::OpenCall;
use windlass_core::id::CallId;
use windlass_core::image::Image;
use windlass_core::message::ToolCall;
use windlass_core::tool::Touch;
use windlass_core::workspace::{FileErrorKind, FileKind, Files};

/// Of larger files only the beginning and the end are looked at, with their size and mode.
const MAX_HASHED: u64 = 16 << 20;
/// How many paths of one call are looked at.
const MAX_FOUND: usize = 64;

/// What is known of calls from before.
#[derive(Default)]
pub(crate) struct Earlier {
    answers: Mutex<HashMap<CallId, VecDeque<(Ask, Answer)>>>,
    /// Calls that were begun and only asked; they are taken up again, not begun again.
    begun: Mutex<HashSet<CallId>>,
}

impl Earlier {
    /// What the log says of calls that are gone on with.
    pub(crate) fn of<'a>(calls: impl Iterator<Item = &'a OpenCall>) -> Self {
        let this = Self::default();
        for open in calls {
            let id = open.call.id.clone();
            if open.started {
                this.begun.lock().insert(id.clone());
            }
            if !open.answered.is_empty() {
                this.answers
                    .lock()
                    .insert(id, open.answered.iter().cloned().collect());
            }
        }
        this
    }

    /// Forgets what does not belong to these calls: another call may come under an id that was used before.
    pub(crate) fn only(&self, calls: &[ToolCall]) {
        let pending = |id: &CallId| calls.iter().any(|call| call.id == *id);
        self.begun.lock().retain(pending);
        self.answers.lock().retain(|id, _| pending(id));
    }

    /// Whether a call was begun before; true once.
    pub(crate) fn begun(&self, call: &CallId) -> bool {
        self.begun.lock().remove(call)
    }

    /// The answer to the approval of a call, and what exactly was asked.
    pub(crate) fn approval(&self, call: &CallId) -> Option<(Answer, Approval)> {
        let mut answers = self.answers.lock();
        let known = answers.get_mut(call)?;
        let at = known
            .iter()
            .position(|(ask, _)| matches!(ask.about, About::Approval(_)))?;
        let (ask, answer) = known.remove(at)?;
        match ask.about {
            About::Approval(approval) => Some((answer, *approval)),
            About::Question(_) | About::Landing(_) => None,
        }
    }

    /// The answer to the approval of a call like this, under whatever id: a foreign agent makes its call again.
    pub(crate) fn approval_like(&self, call: &ToolCall) -> Option<(Answer, Approval)> {
        let same = |known: &VecDeque<(Ask, Answer)>| {
            known.iter().any(|(ask, _)| match &ask.about {
                About::Approval(asked) => {
                    asked.call.name == call.name && asked.call.args == call.args
                }
                About::Question(_) | About::Landing(_) => false,
            })
        };
        let found = |(id, known): (&CallId, _)| same(known).then(|| id.clone());
        let id = self.answers.lock().iter().find_map(found)?;
        self.approval(&id)
    }

    /// The answer to a question of a call, when the next one it asked was this.
    pub(crate) fn answer(&self, call: &CallId, question: &Question) -> Option<Answer> {
        let mut answers = self.answers.lock();
        let known = answers.get_mut(call)?;
        let same = |(ask, _): &mut (Ask, Answer)| matches!(&ask.about, About::Question(asked) if asked == question);
        Some(known.pop_front_if(same)?.1)
    }
}

/// What is at each path inside the workspace that a call touches. Folders and what cannot be read are left out.
pub(super) fn found(files: &dyn Files, touches: &[Touch]) -> Vec<(String, Image)> {
    let mut all: Vec<(String, Image)> = Vec::new();
    for touch in touches {
        let (Touch::Read { path, inside: true }
        | Touch::Write {
            path, inside: true, ..
        }) = touch
        else {
            continue;
        };
        if all.len() >= MAX_FOUND {
            break;
        }
        if !all.iter().any(|(known, _)| known == path)
            && let Some(image) = image(files, path)
        {
            all.push((path.clone(), image));
        }
    }
    all
}

fn image(files: &dyn Files, path: &str) -> Option<Image> {
    let stat = match files.stat(path) {
        Ok(stat) => stat,
        Err(err) => return (err.kind == FileErrorKind::NotFound).then_some(Image::Absent),
    };
    if stat.kind != FileKind::File {
        return None;
    }
    let ends = || {
        let half = MAX_HASHED / 2;
        let start = files.read_range(path, 0, half)?;
        let end = files.read_range(path, stat.size.saturating_sub(half), half)?;
        Ok([start, end].concat())
    };
    let looked = if stat.size > MAX_HASHED {
        ends()
    } else {
        files.read(path, MAX_HASHED)
    };
    let hash = looked.map_or_else(
        |_| String::new(),
        |bytes| blake3::hash(&bytes).to_hex().to_string(),
    );
    Some(Image::File {
        hash,
        size: stat.size,
        mode: stat.mode,
    })
}
