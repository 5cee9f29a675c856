//! Tools that are programs: what a person wrote into the configuration becomes a tool. The arguments go to the
//! program's standard input as JSON, what it prints is the answer. It runs as a program of the run, inside whatever
//! sandbox the run has, and is judged as a command.

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

use crate::ran;

/// Bytes of output kept for the model; under the cap at which the engine would store it away.
const KEEP: usize = 40_000;
/// The longest name that every vendor takes.
const MAX_NAME: usize = 64;
/// One argument of a program is not longer than this; the JSON travels in the shell's line.
const MAX_INPUT: usize = 1 << 20;
/// What to do when its time was up.
const LATE: &str = "give it less to do, or a person raises its `timeout_s` in the configuration";

/// What a person says about a program that is a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessTool {
    /// Its name, for the model and for rules.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// For the model.
    pub description: String,
    /// JSON Schema of its arguments; an object.
    pub schema: Value,
    /// The worst it can do. There is no default.
    pub effect: Effect,
    /// After that it is ended.
    pub timeout: Duration,
}

impl ProcessTool {
    /// The tool, or what is wrong with it in words.
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
        // Serial, and asked for like any command, whatever it says of itself.
        let mut spec = ToolSpec::new(&self.name, &self.description, self.schema, self.effect);
        // A person added it, so that whoever works is to have it.
        spec.exposure = Exposure::Function;
        Ok(Arc::new(Program {
            spec,
            line,
            timeout: self.timeout,
        }))
    }
}

struct Program {
    spec: ToolSpec,
    line: String,
    timeout: Duration,
}

impl Tool for Program {
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
            let output = ran::run(command, LATE, &ctx).await?;
            Ok(if output.failed.is_none() {
                answer(output)
            } else {
                output
            })
        })
    }
}

/// A program may answer with one JSON object on its last line, `{"text": …}` or `{"error": …}`; otherwise everything
/// it printed is the answer.
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

/// A line that is run, taken apart.
pub(crate) fn execute(line: String) -> Touch {
    let mut script = windlass_shell::read(&line);
    // What it does with its arguments its words do not say.
    script
        .commands
        .iter_mut()
        .for_each(|simple| simple.looks = false);
    Touch::Execute {
        command: line,
        script: Some(Arc::new(script)),
    }
}

/// A line in the workspace itself.
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
