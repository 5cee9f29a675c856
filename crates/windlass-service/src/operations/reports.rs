//! Operations that report about the server, its settings, models and agents.

use super::Operation;

pub(super) fn operations() -> Vec<Operation> {
    Vec::new()
}
