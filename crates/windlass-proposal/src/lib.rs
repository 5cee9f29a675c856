//! Runtimes in which the model has no tools and gives one answer: with [`patch_proposal`] it proposes a patch that is
//! checked and applied for it, with `completion` it answers in words. Both wrap another runtime.

mod completion;
pub mod patch_proposal;

mod no_tools;
mod shown_files;

use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::runtime::{
    Capabilities, Capability, CompactionRequest, Job, Runtime, RuntimeError, Stop,
};
use windlass_core::terms::Terms;

/// The form of the answer of a model without tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerForm {
    /// Text, or JSON of a schema that the caller chooses.
    Words,
    /// A patch proposal, as JSON of [`patch_proposal::schema`].
    Patch,
}

impl AnswerForm {
    /// The capabilities that a runtime of this form can have. Except for applying patches, the wrapped runtime must have
    /// them too.
    #[must_use]
    pub fn capabilities(self) -> &'static [Capability] {
        match self {
            Self::Words => completion::CAPABILITIES,
            Self::Patch => patch_proposal::CAPABILITIES,
        }
    }
}

/// Wraps a runtime and gives it no tools.
pub struct OneAnswer {
    /// The form of the answer.
    pub form: AnswerForm,
    /// The wrapped runtime. For [`AnswerForm::Patch`] its output schema must be [`patch_proposal::schema`].
    pub inner: Arc<dyn Runtime>,
}

impl Runtime for OneAnswer {
    fn name(&self) -> &str {
        match self.form {
            AnswerForm::Words => "completion",
            AnswerForm::Patch => "patch",
        }
    }

    fn model(&self) -> Option<&str> {
        self.inner.model()
    }

    fn loses_from(&self, model: &str) -> Vec<String> {
        self.inner.loses_from(model)
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        let can = |one: &Capability| *one == Capability::ApplyPatch || inner.has(*one);
        Capabilities::of(self.form.capabilities().iter().copied().filter(can))
    }

    fn terms(&self, terms: &mut Terms) {
        self.inner.terms(terms);
    }

    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(async move {
            let inner = self.inner.as_ref();
            match self.form {
                AnswerForm::Words => completion::run(inner, &job).await,
                AnswerForm::Patch => patch_proposal::run(inner, &job).await,
            }
        })
    }

    fn compact<'a>(
        &'a self,
        job: CompactionRequest<'a>,
    ) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        self.inner.compact(job)
    }
}
