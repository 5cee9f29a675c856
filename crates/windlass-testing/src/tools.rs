//! A tool made of a function.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_core::BoxFuture;
use windlass_core::shell::{ShellScript, Simple, Word};
use windlass_core::tool::{Effect, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch};

type Handler = dyn for<'a> Fn(Value, ToolCtx<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>>
    + Send
    + Sync;

/// A tool made of a function. It accepts any object, unless [`FnTool::with`] sets a schema.
pub struct FnTool {
    spec: ToolSpec,
    handler: Box<Handler>,
}

impl FnTool {
    /// Creates a serial tool with this name and effect.
    pub fn new(
        name: &str,
        effect: Effect,
        handler: impl for<'a> Fn(Value, ToolCtx<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let spec = ToolSpec::new(
            name,
            "a tool for tests",
            json!({ "type": "object" }),
            effect,
        );
        Self {
            spec,
            handler: Box::new(handler),
        }
    }

    /// Changes the tool's specification.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut ToolSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    /// Returns the tool in the form that an engine takes.
    #[must_use]
    pub fn boxed(self) -> Arc<dyn Tool> {
        Arc::new(self)
    }
}

impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// A `path` argument is a path that the tool reads or writes, a `command` argument a command that it runs.
    fn touches(&self, args: &Value, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        let text = |key: &str| args.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut touches = Vec::new();
        if let Some(path) = text("path") {
            let inside = !path.starts_with('/');
            touches.push(match self.spec.effect {
                Effect::Read => Touch::Read { path, inside },
                _ => Touch::Write {
                    path,
                    inside,
                    new: false,
                },
            });
        }
        touches.extend(text("command").map(|command| {
            // One command of plain words. Tests that need more use the real tool.
            let words = command.split_whitespace().map(Word::literal).collect();
            let simple = Simple {
                words,
                dirs: Some(Vec::new()),
                ..Simple::default()
            };
            let script = ShellScript {
                commands: vec![simple],
                ..ShellScript::default()
            };
            Touch::Execute {
                command,
                script: Some(Arc::new(script)),
            }
        }));
        Ok(touches)
    }

    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        (self.handler)(args, ctx)
    }
}
