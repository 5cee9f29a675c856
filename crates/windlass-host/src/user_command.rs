//! Runs a command that the user's own settings name, outside of any sandbox, with a text on its standard input.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;

/// Runs a line with `sh` and exactly this environment, and passes `input` to it. Its output is dropped. If it does not exit
/// within `limit`, its process group is killed.
pub async fn run_user_command(
    line: &str,
    env: Vec<(OsString, OsString)>,
    dir: &Path,
    input: &[u8],
    limit: Duration,
) -> Result<(), String> {
    let mut command = tokio::process::Command::new("/bin/sh");
    command
        .args(["-c", line])
        .current_dir(dir)
        .env_clear()
        .envs(env)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .map_err(|err| format!("it could not be started: {err}"))?;
    let group = child
        .id()
        .and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
    let mut group = KilledGroup(group);
    let mut stdin = child.stdin.take();
    let exited = async {
        if let Some(stdin) = &mut stdin {
            // A command that does not read its input is not wrong.
            let _ = stdin.write_all(input).await;
        }
        drop(stdin);
        child.wait().await
    };
    let exited = tokio::time::timeout(limit, exited).await;
    if exited.is_ok() {
        // Its number may belong to another process group soon.
        group.0 = None;
    }
    match exited {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("it ended with {status}")),
        Ok(Err(err)) => Err(err.to_string()),
        Err(_) => Err(format!("it did not exit within {} s", limit.as_secs_f32())),
    }
}

/// Kills the process group of the command when it is dropped, also if the caller stops waiting.
struct KilledGroup(Option<rustix::process::Pid>);

impl Drop for KilledGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn run(line: &str, dir: &Path, limit: Duration) -> Result<(), String> {
        let env = vec![("WORD".into(), "hello".into())];
        run_user_command(line, env, dir, b"input", limit).await
    }

    #[tokio::test]
    async fn a_command_gets_its_input_and_only_its_environment() {
        let dir = tempfile::tempdir().unwrap();
        let minute = Duration::from_secs(60);
        run(
            "read line; echo \"$line $WORD $HOME\" > out",
            dir.path(),
            minute,
        )
        .await
        .unwrap();
        assert_eq!(
            std::fs::read_to_string(dir.path().join("out")).unwrap(),
            "input hello \n"
        );
        run("true", dir.path(), minute).await.unwrap();
        let failed = run("exit 3", dir.path(), minute).await.unwrap_err();
        assert!(failed.contains('3'), "{failed}");
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let late = run("sleep 1000", dir.path(), Duration::from_millis(50))
            .await
            .unwrap_err();
        assert!(late.contains("did not exit"), "{late}");
    }
}
