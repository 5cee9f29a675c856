//! Asks and answers of calls that started in an earlier process. Each answer is used once, and the person is not asked
//! again. The images of the files that a call touches bind an answer to the content that the person was shown.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};

use windlass_core::ask::{About, Answer, Approval, Ask, Question};
use windlass_core::history::OpenCall;
use windlass_core::id::CallId;
use windlass_core::image::Image;
use windlass_core::message::ToolCall;
use windlass_core::tool::Touch;
use windlass_core::workspace::{FileErrorKind, FileKind, Files};

/// Maximum number of bytes that are hashed, 16 MiB. Of a larger file, the first and the last 8 MiB are hashed.
const MAX_HASHED: u64 = 16 << 20;
/// Maximum number of paths of one call that are hashed.
const MAX_IMAGES: usize = 64;

/// The open calls of a resumed run, with the asks that were answered.
#[derive(Default)]
pub(crate) struct PriorAnswers {
    answers: Mutex<HashMap<CallId, VecDeque<(Ask, Answer)>>>,
    /// Calls that started and then paused on a question. They continue, and their start is not logged again.
    begun: Mutex<HashSet<CallId>>,
}

impl PriorAnswers {
    /// Collects the answers from the open calls of the log.
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

    /// Forgets all calls but these: a later call may reuse an id.
    pub(crate) fn retain_calls(&self, calls: &[ToolCall]) {
        let pending = |id: &CallId| calls.iter().any(|call| call.id == *id);
        self.begun.lock().retain(pending);
        self.answers.lock().retain(|id, _| pending(id));
    }

    /// True if the call started in an earlier process. Returns true only once.
    pub(crate) fn take_begun(&self, call: &CallId) -> bool {
        self.begun.lock().remove(call)
    }

    /// Takes the answer to the approval of a call, and the approval that was requested.
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

    /// Takes the answer to the approval of a call with the same name and arguments. A foreign agent repeats its call under a
    /// new id.
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

    /// Takes the answer to a question of a call, if this is the next question in the log.
    pub(crate) fn answer(&self, call: &CallId, question: &Question) -> Option<Answer> {
        let mut answers = self.answers.lock();
        let known = answers.get_mut(call)?;
        let same = |(ask, _): &mut (Ask, Answer)| matches!(&ask.about, About::Question(asked) if asked == question);
        Some(known.pop_front_if(same)?.1)
    }
}

/// The images of the files in the workspace that a call touches. Directories are omitted.
pub(super) fn images_at(files: &dyn Files, touches: &[Touch]) -> Vec<(String, Image)> {
    let mut all: Vec<(String, Image)> = Vec::new();
    for touch in touches {
        let (Touch::Read { path, inside: true }
        | Touch::Write {
            path, inside: true, ..
        }) = touch
        else {
            continue;
        };
        if all.len() >= MAX_IMAGES {
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
    let bytes = if stat.size > MAX_HASHED {
        ends()
    } else {
        files.read(path, MAX_HASHED)
    };
    let hash = bytes.map_or_else(
        |_| String::new(),
        |bytes| blake3::hash(&bytes).to_hex().to_string(),
    );
    Some(Image::File {
        hash,
        size: stat.size,
        mode: stat.mode,
    })
}
