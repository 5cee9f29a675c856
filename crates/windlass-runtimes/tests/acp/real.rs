//! The same against a real program, where the environment names one: `WINDLASS_TRY_OPENCODE` is the program and
//! `WINDLASS_TRY_MODEL_PORT` a scripted model on loopback. Nothing holds it here but its own manners.

use std::process::Stdio;
use std::sync::Arc;

use windlass_core::BoxFuture;
use windlass_core::enclosure::{Inmate, Launch, Life};
use windlass_core::event::EventKind;
use windlass_core::runtime::Stop;
use windlass_core::workspace::{ProcessEnd, ProcessError};
use windlass_runtimes::acp::options::AcpOptions;
use windlass_runtimes::acp::profiles::{Dialect, Profile};

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

/// A try with opencode, where the environment names one.
fn stage(prompt: &str) -> Option<Stage> {
    let program = std::env::var("WINDLASS_TRY_OPENCODE").ok()?;
    let port = std::env::var("WINDLASS_TRY_MODEL_PORT").ok()?;
    let options = AcpOptions { command: Some(program), model: Some("fake-model".into()), ..AcpOptions::default() };
    let stage = Stage {
        options,
        profile: Profile::named("opencode"),
        port: Some(port.parse().unwrap()),
        judge: Arc::new(|call| Some(!call.call.args.to_string().contains("forbidden"))),
        prompt: prompt.to_owned(),
        ..Stage::default()
    };
    std::fs::create_dir(stage.folder.path().join(".home")).unwrap();
    Some(stage)
}

async fn run(stage: Stage) -> (Stop, Arc<Notes>) {
    run_with(stage, Arc::default()).await
}

async fn run_with(stage: Stage, notes: Arc<Notes>) -> (Stop, Arc<Notes>) {
    let starter = plain_process(stage.folder.path().canonicalize().unwrap());
    let run = stage.run(notes, starter);
    tokio::time::timeout(std::time::Duration::from_secs(90), run).await.unwrap()
}

async fn asks_and_does_what_it_may(dialect: Dialect) {
    let Some(mut stage) = stage("") else { return };
    let folder = Arc::clone(&stage.folder);
    let new = folder.path().canonicalize().unwrap().join("new.txt");
    stage.dialect = dialect;
    stage.prompt = format!(
        "SHELL:echo hi > out.txt && cat out.txt\nWRITE:{}=hello acp\nSHELL:echo forbidden > f.txt",
        new.display()
    );
    // What the project says does not loosen anything.
    std::fs::write(
        folder.path().join("opencode.json"),
        r#"{"permission":{"*":"allow","bash":"allow","edit":"allow"}}"#,
    )
    .unwrap();
    std::fs::write(folder.path().join("AGENTS.md"), "Mind the ZEBRA-CROSSING.").unwrap();
    let (stop, notes) = run(stage).await;
    let said = notes.said();
    let asked: Vec<String> = notes.asked.lock().unwrap().iter().map(|call| format!("{:?}", call.like)).collect();
    assert_eq!(stop, Stop::Done, "{said:#?} {:?}", notes.warnings());
    assert!(said.iter().any(|said| said.starts_with("call:bash")), "{said:#?}");
    assert!(asked.iter().any(|asked| asked.contains("write_file")), "{asked:#?}");
    assert_eq!(asked.len(), 3, "{asked:#?}");
    let results = notes.results.lock().unwrap();
    assert!(results.iter().any(|result| result.text.contains("hi")), "{results:#?}");
    assert_eq!(std::fs::read_to_string(new).unwrap().trim(), "hello acp");
    assert_eq!(std::fs::read_to_string(folder.path().join("out.txt")).unwrap().trim(), "hi");
    assert!(!folder.path().join("f.txt").exists());
}

#[tokio::test]
async fn opencode_by_chat_completions() {
    asks_and_does_what_it_may(Dialect::OpenAiChat).await;
}

#[tokio::test]
async fn opencode_by_anthropic_messages() {
    asks_and_does_what_it_may(Dialect::Anthropic).await;
}

#[tokio::test]
async fn opencode_by_openai_responses() {
    asks_and_does_what_it_may(Dialect::OpenAiResponses).await;
}

#[tokio::test]
async fn opencode_by_gemini() {
    asks_and_does_what_it_may(Dialect::Gemini).await;
}

#[tokio::test]
async fn opencode_stops_when_it_is_told_and_goes_on_later() {
    let Some(first) = stage("SLOW please") else { return };
    let (folder, cancel) = (Arc::clone(&first.folder), first.cancel.clone());
    let notes: Arc<Notes> = Arc::default();
    let seen = Arc::clone(&notes);
    let cancelled = tokio::spawn(async move {
        while seen.shown.lock().unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        cancel.cancel();
        std::time::Instant::now()
    });
    let (stop, notes) = run_with(first, notes).await;
    let took = cancelled.await.unwrap().elapsed();
    assert_eq!(stop, Stop::Cancelled, "{:?}", notes.warnings());
    assert!(took < std::time::Duration::from_secs(1), "{took:?}");
    let session = notes.events.lock().unwrap().iter().find_map(|event| match event {
        EventKind::IterationStarted { foreign_session, .. } => foreign_session.clone(),
        _ => None,
    });
    let Some(mut second) = stage("say hello") else { return };
    second.folder = folder;
    second.resume.clone_from(&session);
    let (stop, notes) = run(second).await;
    assert_eq!(stop, Stop::Done);
    assert!(notes.warnings().is_empty(), "{:?}", notes.warnings());
    let events = notes.events.lock().unwrap();
    assert!(events.iter().any(
        |event| matches!(event, EventKind::IterationStarted { foreign_session, .. } if *foreign_session == session)
    ));
}

#[tokio::test]
async fn opencode_with_a_setting_it_does_not_have() {
    let Some(mut stage) = stage("say hello") else { return };
    stage.options.mode = Some("yolo".into());
    let (stop, _) = run(stage).await;
    assert!(format!("{stop:?}").contains("opencode has no mode `yolo`; there is `build`, `plan`"), "{stop:?}");
}
