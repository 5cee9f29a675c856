//! A toolbox without tools: the model is offered none, and a call that it makes anyway is refused and logged as usual.

use windlass_core::BoxFuture;
use windlass_core::message::ErrorCategory;
use windlass_core::runtime::Job;
use windlass_core::store::StoreError;
use windlass_core::tool::{ToolSet, Toolbox};
use windlass_core::turn::{Planned, Settled};

/// Wraps the toolbox of a job and hides all its tools.
pub(crate) struct NoTools<'a> {
    real: &'a dyn Toolbox,
    none: ToolSet,
}

impl<'a> NoTools<'a> {
    pub(crate) fn over(real: &'a dyn Toolbox) -> Self {
        Self {
            real,
            none: ToolSet::default(),
        }
    }

    /// The same job without tools.
    pub(crate) fn job<'b>(&'b self, job: &Job<'b>) -> Job<'b> {
        Job {
            toolbox: self,
            ..job.clone()
        }
    }
}

impl Toolbox for NoTools<'_> {
    fn tools(&self) -> &ToolSet {
        &self.none
    }

    fn call<'a>(&'a self, calls: Vec<Planned>) -> BoxFuture<'a, Result<Vec<Settled>, StoreError>> {
        let refuse = |planned: Planned| {
            let text =
                "there are no tools here; answer in words or in the requested form".to_owned();
            Planned {
                refuse: Some((ErrorCategory::UnknownTool, text)),
                ..planned
            }
        };
        self.real.call(calls.into_iter().map(refuse).collect())
    }
}
