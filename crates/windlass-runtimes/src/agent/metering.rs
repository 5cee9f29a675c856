//! How it is known what a foreign agent spends: an endpoint of ours that its model traffic goes through, its own word, or
//! nothing.

use std::sync::Arc;

use windlass_core::budget::Price;
use windlass_core::terms::MeteringKind;
use windlass_meter::Endpoint;

/// How it is known what an agent spends (decision 9).
#[derive(Clone)]
pub enum Metering {
    /// Its model traffic goes through us.
    Wire(Arc<dyn Endpoint>),
    /// It says so itself, and a person accepted that. The price counts where it gives none.
    Reported {
        /// The price of its model.
        price: Option<Price>,
    },
    /// It is not known, and nothing is limited.
    None,
}

impl Metering {
    /// The kind of it, for the terms of a run.
    pub(super) fn kind(&self) -> MeteringKind {
        match self {
            Self::Wire(_) => MeteringKind::Wire,
            Self::Reported { .. } => MeteringKind::Reported,
            Self::None => MeteringKind::None,
        }
    }
}
