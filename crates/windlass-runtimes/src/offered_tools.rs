//! The Windlass tools that a foreign agent is offered: those that any runtime may call. The tools for files and
//! commands are not among them, because the agent has its own.

use windlass_core::tool::{Exposure, ToolSpec, Toolbox};

pub(crate) fn offered_tools(toolbox: &dyn Toolbox) -> Vec<ToolSpec> {
    let specs = toolbox.tools().iter().map(|tool| tool.spec());
    specs
        .filter(|spec| spec.exposure == Exposure::Function)
        .cloned()
        .collect()
}

pub(crate) fn is_offered(tools: &[ToolSpec], name: &str) -> bool {
    tools.iter().any(|spec| spec.name == name)
}
