//! Runs a command until it exits and describes the result for the model. All tools that run commands use it.

use windlass_core::message::{ArtifactRef, ErrorCategory};
use windlass_core::tool::{RanCommand, ToolCtx, ToolFailure, ToolOutput};
use windlass_core::workspace::{Command, Finished, ProcessEnd, Watch};

/// Runs a command. `late` is the advice after a timeout.
pub(crate) async fn run(
    command: Command,
    late: &str,
    ctx: &ToolCtx<'_>,
) -> Result<ToolOutput, ToolFailure> {
    let limit = command.timeout.as_secs();
    let progress = |text: &str| ctx.call_output.progress(text);
    let watch = Watch {
        progress: &progress,
        cancel: ctx.cancel.clone(),
        artifacts: Some(ctx.artifacts.as_ref()),
    };
    let finished = ctx.processes.run(command, watch).await;
    let finished = finished.map_err(|err| ToolFailure::new(ErrorCategory::Exception, err.0))?;
    Ok(output(finished, limit, late))
}

fn output(finished: Finished, limit: u64, late: &str) -> ToolOutput {
    let command = Some(RanCommand::from(&finished));
    let said = if finished.output.trim().is_empty() {
        "[no output]".to_owned()
    } else {
        finished.output
    };
    let (failed, text) = match finished.end {
        ProcessEnd::Exited { code: 0 } => (None, said),
        ProcessEnd::Exited { code } => (
            Some(ErrorCategory::Exception),
            format!("exit code {code}\n{said}"),
        ),
        ProcessEnd::Signalled { signal } => (
            Some(ErrorCategory::Exception),
            format!("ended by signal {signal}\n{said}"),
        ),
        ProcessEnd::TimedOut => {
            let text = format!(
                "timed out after {limit} s and was ended with everything it started; {late}. Output until then:\n{said}"
            );
            (Some(ErrorCategory::Timeout), text)
        }
        ProcessEnd::Cancelled => (
            Some(ErrorCategory::Interrupted),
            format!("cancelled; it may have done part of its work. Output until then:\n{said}"),
        ),
    };
    let (failed, text) = match &finished.not_landed {
        Some(why) => (
            Some(failed.unwrap_or(ErrorCategory::Exception)),
            format!("{why}\n{text}"),
        ),
        None => (failed, text),
    };
    let text = match &finished.artifact {
        Some(stored) => format!("{text}\n{}", all_of_it(stored, finished.total_bytes)),
        None => text,
    };
    ToolOutput {
        text,
        failed,
        artifact: finished.artifact,
        command,
        ..ToolOutput::default()
    }
}

/// A note that tells where the whole output is stored.
fn all_of_it(stored: &ArtifactRef, total: u64) -> String {
    let (id, bytes) = (&stored.id, stored.bytes);
    let what = if bytes < total {
        format!("the first {bytes} of {total} bytes")
    } else {
        format!("all {bytes} bytes")
    };
    format!("[{what} are stored; read_file with path \"artifact:{id}\" reads them by range]")
}
