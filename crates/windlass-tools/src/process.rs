//! Tools that are external programs, defined in the user's settings. The program gets the arguments as JSON on stdin,
//! and its output is the result. It runs inside the sandbox of the run and is judged as a command.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use windlass_core::BoxFuture;
use windlass_core::message::ErrorCategory;
use windlass_core::shell::quoted;
use windlass_core::tool::{
    Effect, Exposure, Tool, ToolCtx, ToolFailure, ToolOutput, ToolSpec, Touch,
};
use windlass_core::workspace::Command;

use crate::run_command;

/// Maximum bytes of output for the model; below the limit at which the engine would store it as an artifact.
const KEEP: usize = 40_000;
/// Maximum length of a name that every vendor accepts.
const MAX_NAME: usize = 64;
/// Maximum bytes of the arguments as JSON.
const MAX_INPUT: usize = 1 << 20;
/// The advice after a timeout.
const LATE: &str = "give it less to do, or a person raises its `timeout_s` in the configuration";

/// The definition of a program that is a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessTool {
    /// The name for the model and for rules.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the arguments; an object.
    pub schema: Value,
    /// The most severe effect of the program. There is no default.
    pub effect: Effect,
    /// The time after which the program is ended.
    pub timeout: Duration,
}

impl ProcessTool {
    /// Builds the tool, or describes the problem with its definition.
    pub fn build(self) -> Result<Arc<dyn Tool>, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if self.name.is_empty() || self.name.len() > MAX_NAME || !self.name.chars().all(plain) {
            return Err(format!(
                "a name has letters, digits, `_` and `-`, at most {MAX_NAME}"
            ));
        }
        if self.name.starts_with("mcp__")
            || crate::all()
                .iter()
                .any(|tool| tool.spec().name == self.name)
        {
            return Err("a built-in tool has that name; choose another".to_owned());
        }
        if self
            .command
            .first()
            .is_none_or(|program| program.trim().is_empty())
        {
            return Err("`command` is empty; name the program, then its arguments".to_owned());
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            return Err("`command` holds a NUL".to_owned());
        }
        if self.description.trim().is_empty() {
            return Err("`description` is empty; say what the tool does, for the model".to_owned());
        }
        if self.schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(
                "`schema` must describe an object, as in {\"type\":\"object\",\"properties\":{}}"
                    .to_owned(),
            );
        }
        let line = self
            .command
            .iter()
            .map(|word| quoted(word))
            .collect::<Vec<_>>()
            .join(" ");
        // Calls run one at a time and are judged like any command, whatever the definition says.
        let mut spec = ToolSpec::new(&self.name, &self.description, self.schema, self.effect);
        // The user added the tool, so it is offered to every runtime.
        spec.exposure = Exposure::Function;
        Ok(Arc::new(ProgramTool {
            spec,
            line,
            timeout: self.timeout,
        }))
    }
}

struct ProgramTool {
    spec: ToolSpec,
    line: String,
    timeout: Duration,
}

impl Tool for ProgramTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, _args: &Value, _ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(vec![execute(self.line.clone())])
    }

    fn preview(&self, args: &Value, _ctx: &ToolCtx<'_>) -> Result<Option<String>, ToolFailure> {
        Ok(Some(format!("{args:#}")))
    }

    fn run<'a>(
        &'a self,
        args: Value,
        ctx: ToolCtx<'a>,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let input = format!("{args}\n");
            if input.len() > MAX_INPUT {
                return Err(ToolFailure::invalid(format!(
                    "the arguments are longer than {MAX_INPUT} bytes; pass a file instead"
                )));
            }
            let command = Command {
                input: Some(input.into_bytes()),
                ..command(self.line.clone(), self.timeout)
            };
            let output = run_command::run(command, LATE, &ctx).await?;
            Ok(if output.failed.is_none() {
                answer(output)
            } else {
                output
            })
        })
    }
}

/// A program may answer with one JSON object on its last line, `{"text": …}` or `{"error": …}`. Otherwise its whole
/// output is the result.
fn answer(output: ToolOutput) -> ToolOutput {
    let last = output
        .text
        .trim_end()
        .rsplit('\n')
        .next()
        .unwrap_or_default();
    let Ok(Value::Object(said)) = serde_json::from_str(last) else {
        return output;
    };
    let text = |key: &str| said.get(key).and_then(Value::as_str).map(str::to_owned);
    match (text("error"), text("text")) {
        (Some(error), _) => ToolOutput {
            text: error,
            failed: Some(ErrorCategory::Exception),
            ..output
        },
        (None, Some(text)) => ToolOutput { text, ..output },
        (None, None) => output,
    }
}

/// The touch of running a command line.
pub(crate) fn execute(line: String) -> Touch {
    let mut script = windlass_shell::read(&line);
    // The command line does not tell what the program does with its arguments, so it is not treated as read-only.
    script
        .commands
        .iter_mut()
        .for_each(|simple| simple.looks = false);
    Touch::Execute {
        command: line,
        script: Some(Arc::new(script)),
    }
}

/// A command that runs in the root of the workspace.
pub(crate) fn command(line: String, timeout: Duration) -> Command {
    Command {
        line,
        workdir: String::new(),
        timeout,
        keep: KEEP,
        input: None,
        looks: false,
    }
}
