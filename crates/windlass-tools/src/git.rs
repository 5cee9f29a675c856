//! How the git tools call git: through the run's processes, with everything switched off that a repository's own
//! configuration could make it execute. Only ever looks.

use std::time::Duration;

use windlass_core::message::ErrorCategory;
use windlass_core::tool::{ToolCtx, ToolFailure};
use windlass_core::workspace::{Command, Finished, ProcessEnd, Watch};

/// Bytes of git's output that are kept.
const KEEP: usize = 48_000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Filters are programs that git runs on file content. Those the person has set up for all repositories stay (Git LFS
/// is one); those that only this repository names are emptied, because a repository is not trusted to name programs.
const PREPARE: &str = r#"
export GIT_OPTIONAL_LOCKS=0 GIT_CONFIG_COUNT=0
while IFS='	' read -r scope key; do
  case $scope in
    local|worktree)
      export "GIT_CONFIG_KEY_$GIT_CONFIG_COUNT=$key" "GIT_CONFIG_VALUE_$GIT_CONFIG_COUNT="
      GIT_CONFIG_COUNT=$((GIT_CONFIG_COUNT + 1)) ;;
  esac
done <<END
$(git config --show-scope --includes --name-only --get-regexp '^filter\..*\.(clean|smudge|process|required)$' 2>/dev/null)
END
"#;

/// Switches that take programs out of git's hands.
const SAFE: &str = "-c core.fsmonitor=false -c core.hooksPath=/dev/null -c diff.external= -c core.pager=cat -c color.ui=false -c core.quotePath=false";

/// The output of a git command that only looks. `words` are put after `git` and its safety switches, quoted.
pub(crate) async fn look(ctx: &ToolCtx<'_>, words: &[String]) -> Result<String, ToolFailure> {
    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
    let line = format!("{PREPARE}exec git {SAFE} {}", words.join(" "));
    let command = Command { line, workdir: String::new(), timeout: TIMEOUT, keep: KEEP };
    let watch = Watch { progress: &|_| {}, cancel: ctx.cancel.clone(), artifacts: None };
    let finished =
        ctx.processes.run(command, watch).await.map_err(|err| ToolFailure::new(ErrorCategory::Exception, err.0))?;
    read(finished)
}

fn read(finished: Finished) -> Result<String, ToolFailure> {
    match finished.end {
        ProcessEnd::Exited { code: 0 } => Ok(finished.output),
        ProcessEnd::TimedOut => {
            Err(ToolFailure::new(ErrorCategory::Timeout, format!("git took longer than {} s", TIMEOUT.as_secs())))
        }
        ProcessEnd::Cancelled => Err(ToolFailure::new(ErrorCategory::Interrupted, "cancelled")),
        ProcessEnd::Exited { .. } if finished.output.contains("not a git repository") => {
            Err(ToolFailure::new(ErrorCategory::NotFound, "the workspace is not a git repository"))
        }
        ProcessEnd::Exited { .. } | ProcessEnd::Signalled { .. } => {
            Err(ToolFailure::new(ErrorCategory::Exception, format!("git failed: {}", finished.output.trim())))
        }
    }
}

/// One word for the shell, whatever is in it.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(super::quote("a'b $(x)"), r"'a'\''b $(x)'");
    }
}
