//! The built-in loop with one answer instead of tools: [`patch_proposal`] has the model propose a patch that the engine
//! checks and applies, `completion` has it answer in words. Both wrap the built-in runtime.

mod completion;
pub mod patch_proposal;

mod no_tools;
mod shown_files;

use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::runtime::{
    Capabilities, Capability, Job, MakeRoom, Runtime, RuntimeError, Stop,
};
use windlass_core::terms::Terms;

/// The answer of a model that has no tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerForm {
    /// Words, or JSON of a schema that the caller wants.
    Words,
    /// JSON of [`patch_proposal::schema`].
    Patch,
}

impl AnswerForm {
    /// What a runtime of this form can do at most. The runtime inside must be able to as well, but for applying patches.
    #[must_use]
    pub fn capabilities(self) -> &'static [Capability] {
        match self {
            Self::Words => completion::CAPABILITIES,
            Self::Patch => patch_proposal::CAPABILITIES,
        }
    }
}

/// Any runtime, without tools.
pub struct OneAnswer {
    /// What it answers in.
    pub form: AnswerForm,
    /// Who answers. For a patch it must have been told to answer in [`patch_proposal::schema`].
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

    fn compact<'a>(&'a self, job: MakeRoom<'a>) -> BoxFuture<'a, Result<bool, RuntimeError>> {
        self.inner.compact(job)
    }
}
