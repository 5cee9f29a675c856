//! Which of our tools a foreign agent is offered: those that any runtime may call. Ours for files and commands are not
//! among them, because it has its own.

use windlass_core::tool::{Exposure, ToolSpec, Toolbox};

/// The tools on offer, in their order.
pub(crate) fn offered(toolbox: &dyn Toolbox) -> Vec<ToolSpec> {
    let specs = toolbox.tools().iter().map(|tool| tool.spec());
    specs
        .filter(|spec| spec.exposure == Exposure::Function)
        .cloned()
        .collect()
}

/// Whether there is one of this name.
pub(crate) fn is_offered(tools: &[ToolSpec], name: &str) -> bool {
    tools.iter().any(|spec| spec.name == name)
}
