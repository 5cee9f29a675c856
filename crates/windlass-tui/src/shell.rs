//! The user's own shell for `!command`. It keeps its directory and its variables between commands. It is not sandboxed: the
//! user types these commands, not a model.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

/// The output of one command that is kept, in bytes. The end is kept, because it says how the command ended.
const MAX_OUTPUT: usize = 256 << 10;

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShellOutput {
    pub(crate) text: String,
    /// `None` if the shell ended.
    pub(crate) exit: Option<i32>,
}

/// A shell that starts with the first command.
#[derive(Clone)]
pub(crate) struct UserShell {
    workspace: PathBuf,
    program: String,
    running: Arc<Mutex<Option<RunningShell>>>,
}

struct RunningShell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    commands: u64,
}

impl UserShell {
    /// A shell in the workspace: the one of the user, or `/bin/sh` if it has another grammar.
    pub(crate) fn new(workspace: &Path, own: Option<&str>) -> Self {
        let has_grammar = |shell: &&str| {
            let name = shell.rsplit('/').next().unwrap_or_default();
            matches!(name, "sh" | "bash" | "dash" | "ksh" | "zsh")
        };
        let program = own.filter(has_grammar).unwrap_or("/bin/sh");
        Self {
            workspace: workspace.to_owned(),
            program: program.to_owned(),
            running: Arc::default(),
        }
    }

    /// Runs a command line. Commands run one after the other.
    pub(crate) fn run(&self, command: &str) -> impl Future<Output = ShellOutput> + Send + use<> {
        let (shell, command) = (self.clone(), command.to_owned());
        async move {
            let mut running = shell.running.lock().await;
            let result = match running.as_mut() {
                Some(open) => open.run(&command).await,
                None => match RunningShell::start(&shell.program, &shell.workspace) {
                    Ok(open) => running.insert(open).run(&command).await,
                    Err(err) => Err(err),
                },
            };
            match result {
                Ok(output) => {
                    if output.exit.is_none() {
                        *running = None;
                    }
                    output
                }
                Err(err) => {
                    *running = None;
                    ShellOutput {
                        text: format!("the shell failed: {err}"),
                        exit: None,
                    }
                }
            }
        }
    }

    /// Ends the shell.
    pub(crate) fn close(&self) {
        if let Ok(mut running) = self.running.try_lock()
            && let Some(open) = running.as_mut()
        {
            let _ = open.child.start_kill();
        }
    }
}

impl RunningShell {
    fn start(program: &str, workspace: &Path) -> std::io::Result<Self> {
        let mut child = Command::new(program)
            .current_dir(workspace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other("the shell has no pipes"));
        };
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
            commands: 0,
        })
    }

    async fn run(&mut self, command: &str) -> std::io::Result<ShellOutput> {
        self.commands += 1;
        // The mark ends the output of this command. A command that prints it would only end its own output early.
        let mark = format!(
            "\u{1}windlass {} {}\u{1}",
            std::process::id(),
            self.commands
        );
        // Braces keep the directory and the variables of the shell; the command reads no input of the next one.
        let script =
            format!("{{ {command}\n}} 2>&1 </dev/null\nprintf '%s%s\\n' '{mark}' \"$?\"\n");
        self.input.write_all(script.as_bytes()).await?;
        self.input.flush().await?;
        let mut text: Vec<u8> = Vec::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut limited = (&mut self.output).take(MAX_OUTPUT as u64);
            if limited.read_until(b'\n', &mut line).await? == 0 {
                let text = String::from_utf8_lossy(&text).into_owned();
                return Ok(ShellOutput { text, exit: None });
            }
            let shown = String::from_utf8_lossy(&line);
            if let Some((before, code)) = shown.split_once(mark.as_str()) {
                text.extend(before.as_bytes());
                let text = String::from_utf8_lossy(&text).into_owned();
                return Ok(ShellOutput {
                    text,
                    exit: code.trim().parse().ok(),
                });
            }
            text.extend(&line);
            if text.len() > MAX_OUTPUT {
                let cut = text.len() - MAX_OUTPUT / 2;
                text.drain(..cut);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_shell_keeps_its_state() {
        let dir = tempfile::tempdir().unwrap();
        let shell = UserShell::new(dir.path(), None);
        let check = async |command: &str, text: &str, exit: Option<i32>| {
            let output = shell.run(command).await;
            assert_eq!(
                (output.text.as_str(), output.exit),
                (text, exit),
                "{command}"
            );
        };
        check("mkdir -p sub && cd sub && x=7", "", Some(0)).await;
        check("basename \"$PWD\"; echo $x", "sub\n7\n", Some(0)).await;
        check("printf 'no newline'", "no newline", Some(0)).await;
        check("echo oops >&2; false", "oops\n", Some(1)).await;
        check("exit 3", "", None).await;
        check("echo again", "again\n", Some(0)).await;
    }
}
