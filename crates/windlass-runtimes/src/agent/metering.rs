//! The source of the numbers for the spending of a foreign agent: the meter, the agent's own reports, or none.

use std::sync::Arc;

use windlass_core::budget::Price;
use windlass_core::terms::MeteringKind;
use windlass_meter::Endpoint;

/// The source of the numbers for the spending of an agent.
#[derive(Clone)]
pub enum Metering {
    /// The agent's model traffic passes through the meter.
    Wire(Arc<dyn Endpoint>),
    /// The agent reports its spending, and the user accepted that. The price applies if the agent reports no cost.
    Reported { price: Option<Price> },
    /// The spending is unknown and no limit applies.
    None,
}

impl Metering {
    pub(super) fn kind(&self) -> MeteringKind {
        match self {
            Self::Wire(_) => MeteringKind::Wire,
            Self::Reported { .. } => MeteringKind::Reported,
            Self::None => MeteringKind::None,
        }
    }
}
