//! The completion runtime: a model answers a question about files that it is shown. It has no tools and writes nothing, so
//! the tree never changes.

use windlass_core::event::EventKind;
use windlass_core::message::Message;
use windlass_core::runtime::{Capability, Job, Runtime, RuntimeError, Stop};

use crate::no_tools::NoTools;
use crate::shown_files::overview;

pub(crate) const CAPABILITIES: &[Capability] = &[
    Capability::TextCompletion,
    Capability::StreamingText,
    Capability::StructuredOutput,
];

pub(crate) async fn run(inner: &dyn Runtime, job: &Job<'_>) -> Result<Stop, RuntimeError> {
    // In a resumed or later iteration the files are in the conversation already.
    if job.iteration == 1 && job.pending.is_empty() {
        let shown = overview(job.files, &job.prompt.text(), &job.cancel).await;
        let text = format!(
            "You have no tools here, and nothing is changed: answer the question.\n\n{shown}"
        );
        let said = EventKind::said(Message::internal(text));
        job.sink.emit(said).await?;
    }
    inner.run(NoTools::over(job.toolbox).job(job)).await
}
