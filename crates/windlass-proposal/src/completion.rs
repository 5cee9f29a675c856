//! The completion runtime: any model as an analyst. It is shown files and answers; it has no tools and writes nothing,
//! so the tree stays as it is whatever it says.

use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::event::EventKind;
use windlass_core::message::Message;
use windlass_core::runtime::{
    Capabilities, Capability, Job, MakeRoom, Runtime, RuntimeError, Stop,
};
use windlass_core::terms::Terms;

use crate::no_tools::NoTools;
use crate::shown_files::overview;

/// What it can do at most; the runtime inside has the last word.
pub const CAPABILITIES: [Capability; 3] = [
    Capability::TextCompletion,
    Capability::StreamingText,
    Capability::StructuredOutput,
];

/// Any runtime, without tools.
pub struct Completion {
    /// Who answers.
    pub inner: Arc<dyn Runtime>,
}

impl Runtime for Completion {
    fn name(&self) -> &str {
        "completion"
    }

    fn model(&self) -> Option<&str> {
        self.inner.model()
    }

    fn loses_from(&self, model: &str) -> Vec<String> {
        self.inner.loses_from(model)
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        Capabilities::of(CAPABILITIES.into_iter().filter(|one| inner.has(*one)))
    }

    fn terms(&self, terms: &mut Terms) {
        self.inner.terms(terms);
    }

    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(async move {
            // A try that is gone on with was shown them already.
            if job.iteration == 1 && job.pending.is_empty() {
                let shown = overview(job.files, &job.prompt.text(), &job.cancel).await;
                let text = format!(
                    "You have no tools here, and nothing is changed: answer the question.\n\n{shown}"
                );
                job.outlet
                    .emit(EventKind::said(Message::internal(text)))
                    .await?;
            }
            let none = NoTools::over(job.toolbox);
            self.inner.run(none.job(&job)).await
        })
    }

    fn compact<'a>(&'a self, job: MakeRoom<'a>) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        self.inner.compact(job)
    }
}
