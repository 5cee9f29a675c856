//! The same against a real program, where the environment names one: `WINDLASS_TRY_OPENCODE` is the program and
//! `WINDLASS_TRY_MODEL_PORT` a scripted model on loopback. Nothing holds it here but its own manners.

use std::process::Stdio;
use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::enclosure::{Inmate, Launch, Life};
use windlass_core::runtime::Stop;
use windlass_core::workspace::{ProcessEnd, ProcessError};
use windlass_runtimes::acp::options::AcpOptions;
use windlass_runtimes::acp::profiles::Profile;

use crate::stage::{Notes, Stage, Starter};

struct Running(tokio::process::Child);

impl Life for Running {
    fn wait(&mut self) -> BoxFuture<'_, Result<ProcessEnd, ProcessError>> {
        Box::pin(async {
            let status = self.0.wait().await.map_err(|err| ProcessError(err.to_string()))?;
            Ok(ProcessEnd::Exited { code: status.code().unwrap_or(-1) })
        })
    }
    fn terminate(&self) {}
    fn kill(&self) {}
}

fn plain_process(folder: std::path::PathBuf) -> Starter {
    Arc::new(move |launch: &Launch| {
        let mut child = tokio::process::Command::new(&launch.argv[0])
            .args(&launch.argv[1..])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.join(".home"))
            .envs(launch.env.iter().cloned())
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|err| ProcessError(err.to_string()))?;
        Ok(Inmate {
            stdin: Box::new(child.stdin.take().unwrap()),
            stdout: Box::new(child.stdout.take().unwrap()),
            stderr: Box::new(child.stderr.take().unwrap()),
            life: Box::new(Running(child)),
        })
    })
}

#[tokio::test]
async fn opencode_asks_and_does_what_it_may() {
    let (Some(program), Some(port)) =
        (std::env::var_os("WINDLASS_TRY_OPENCODE"), std::env::var_os("WINDLASS_TRY_MODEL_PORT"))
    else {
        return;
    };
    let options = AcpOptions {
        command: Some(program.into_string().unwrap()),
        model: Some("fake-model".into()),
        ..AcpOptions::default()
    };
    let mut stage = Stage {
        options,
        profile: Profile::named("opencode"),
        port: Some(port.into_string().unwrap().parse().unwrap()),
        judge: Arc::new(|call| Some(!call.call.args.to_string().contains("forbidden"))),
        ..Stage::default()
    };
    let folder = stage.folder.path().canonicalize().unwrap();
    std::fs::create_dir(folder.join(".home")).unwrap();
    let new = folder.join("new.txt");
    stage.prompt = format!(
        "SHELL:echo hi > out.txt && cat out.txt\nWRITE:{}=hello acp\nSHELL:echo forbidden > f.txt",
        new.display()
    );
    let notes = Arc::new(Notes::default());
    let starter = plain_process(folder.clone());
    let kept = Arc::clone(&stage.folder);
    let run = stage.run(notes, starter);
    let (stop, notes) = tokio::time::timeout(std::time::Duration::from_secs(90), run).await.unwrap();
    let said = notes.said();
    let asked: Vec<String> = notes.asked.lock().unwrap().iter().map(|call| format!("{:?}", call.like)).collect();
    assert_eq!(stop, Stop::Done, "{said:#?} {:?}", notes.warnings());
    assert!(said.iter().any(|said| said.starts_with("call:bash")), "{said:#?}");
    assert!(asked.iter().any(|asked| asked.contains("write_file")), "{asked:#?}");
    assert_eq!(asked.len(), 3, "{asked:#?}");
    let results = notes.results.lock().unwrap();
    assert!(results.iter().any(|result| result.text.contains("hi")), "{results:#?}");
    assert_eq!(std::fs::read_to_string(kept.path().join("new.txt")).unwrap().trim(), "hello acp");
    assert_eq!(std::fs::read_to_string(kept.path().join("out.txt")).unwrap().trim(), "hi");
    assert!(!kept.path().join("f.txt").exists());
}
