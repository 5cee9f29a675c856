//! Room that was made, in one line: nothing leaves the model's sight without a word.

use windlass_core::context::Compaction;

use crate::safe::one_line;

/// What gave way, and why.
pub(crate) fn made_room(compaction: &Compaction) -> String {
    let rows = compaction
        .left_out
        .iter()
        .map(|row| format!("{} {}", row.count, one_line(&row.what)));
    let what = rows.collect::<Vec<_>>().join(", ");
    let what = if what.is_empty() {
        "older messages"
    } else {
        &what
    };
    let how = if compaction.summary.is_empty() {
        "without"
    } else {
        "with a summary in the place of"
    };
    let why = compaction
        .by
        .map_or(String::new(), |by| format!(", because {}", by.words()));
    format!("the model goes on {how} {what}{why}; the log still has it")
}
