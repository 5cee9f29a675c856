//! The hostile agent.

use super::{Judged, Stage, not_applicable};

pub(crate) fn all(_stage: &Stage<'_>) -> Judged {
    not_applicable("to be written")
}
