//! Which of our tools a foreign agent is offered: those that any runtime may call. Ours for files and commands are not
//! among them, because it has its own.

use windlass_core::tool::{Exposure, ToolSpec, Toolbox};

/// The tools on offer, in their order.
pub(crate) fn offered(toolbox: &dyn Toolbox) -> impl Iterator<Item = &ToolSpec> {
    toolbox
        .tools()
        .iter()
        .map(|tool| tool.spec())
        .filter(|spec| spec.exposure == Exposure::Function)
}

/// Whether there is one of this name.
pub(crate) fn is_offered(toolbox: &dyn Toolbox, name: &str) -> bool {
    offered(toolbox).any(|spec| spec.name == name)
}
