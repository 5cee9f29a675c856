//! The completion runtime: any model as an analyst. It is shown files and answers; it has no tools and writes nothing,
//! so the tree stays as it is whatever it says.

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
    // A try that is gone on with was shown them already.
    if job.iteration == 1 && job.pending.is_empty() {
        let shown = overview(job.files, &job.prompt.text(), &job.cancel).await;
        let text = format!(
            "You have no tools here, and nothing is changed: answer the question.\n\n{shown}"
        );
        let said = EventKind::said(Message::internal(text));
        job.outlet.emit(said).await?;
    }
    inner.run(NoTools::over(job.toolbox).job(job)).await
}
