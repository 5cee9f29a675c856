//! How the git tools call git: through the run's processes, with everything switched off that a repository's own
//! configuration could make it execute. Only ever looks.

use std::time::Duration;

use windlass_core::message::ErrorCategory;
use windlass_core::tool::{ToolCtx, ToolFailure};
use windlass_core::workspace::{Command, Finished, ProcessEnd, Watch};

/// Bytes of git's output that the model gets.
const SHOWN: usize = 48_000;
/// Bytes of output that a tool goes through itself.
const WHOLE: usize = 4 << 20;
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

/// The output of a git command that only looks, for the model: the middle is left out when it is long.
/// `words` are put after `git` and its safety switches, quoted.
pub(crate) async fn look(ctx: &ToolCtx<'_>, words: &[String]) -> Result<String, ToolFailure> {
    read(run(ctx, words, SHOWN).await?)
}

/// The names a git command lists with `-z`; never only some of them.
pub(crate) async fn names(ctx: &ToolCtx<'_>, words: &[String]) -> Result<Vec<String>, ToolFailure> {
    let finished = run(ctx, words, WHOLE).await?;
    if finished.total_bytes > WHOLE as u64 {
        return Err(ToolFailure::new(ErrorCategory::Exception, "too many files differ; name some in `paths`"));
    }
    Ok(read(finished)?.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

async fn run(ctx: &ToolCtx<'_>, words: &[String], keep: usize) -> Result<Finished, ToolFailure> {
    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
    let line = format!("{PREPARE}exec git {SAFE} {}", words.join(" "));
    let command = Command { line, workdir: String::new(), timeout: TIMEOUT, keep };
    let watch = Watch { progress: &|_| {}, cancel: ctx.cancel.clone(), artifacts: None };
    ctx.processes.run(command, watch).await.map_err(|err| ToolFailure::new(ErrorCategory::Exception, err.0))
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
