//! The real programs, outside of any sandbox, against a scripted model on loopback. Nothing here runs unless a person
//! names both: `WINDLASS_TRY_CLAUDE` or `WINDLASS_TRY_CODEX` is the program, `WINDLASS_TRY_MODEL` the model's address,
//! such as `http://127.0.0.1:8791`. The model takes orders from the prompt (`SHELL:`, `WRITE:`, `CALL:`, `SLOW`, …).

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::clock::{Clock, Timestamp};
use windlass_core::enclosure::{Inmate, Launch, Life};
use windlass_core::runtime::Stop;
use windlass_core::workspace::{ProcessEnd, ProcessError};
use windlass_runtimes::agent::{Adapter, Metering, WantedOutput};
use windlass_runtimes::claude_code::{ClaudeCode, ClaudeOptions};
use windlass_runtimes::codex::{Codex, CodexOptions};

use crate::stage::{Quiet, Stage};

/// A program, and the model it asks.
struct Trial {
    program: String,
    model: String,
    home: tempfile::TempDir,
    workspace: tempfile::TempDir,
}

/// What a person named, if anything.
fn trial(variable: &str) -> Option<Trial> {
    let program = std::env::var(variable).ok()?;
    let model = std::env::var("WINDLASS_TRY_MODEL").ok()?;
    // Codex makes itself a helper beside its home, and not below the temporary directory.
    let place = std::env::var("WINDLASS_TRY_HOMES").unwrap_or_else(|_| std::env::temp_dir().to_string_lossy().into());
    let home = tempfile::tempdir_in(place).unwrap();
    Some(Trial { program, model, home, workspace: tempfile::tempdir().unwrap() })
}

impl Trial {
    fn stage(&self) -> Stage {
        let (home, workspace) = (self.home.path().to_owned(), self.workspace.path().to_owned());
        let at = home.clone();
        let root = workspace.clone();
        let mut stage = Stage::new(Arc::default(), move |launch| start(launch, &at, &workspace));
        stage.metering = Metering::Wire(Arc::new(Quiet));
        stage.home = home;
        stage.root = Some(root);
        stage.endpoint = self.model.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap();
        stage
    }

    fn run(&self, stage: &Stage, adapter: impl Adapter + 'static, prompt: &str) -> Stop {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(stage.run_timed(adapter, prompt, Arc::new(Wall(Instant::now()))))
    }

    fn has(&self, path: &str) -> bool {
        self.workspace.path().join(path).exists()
    }

    fn claude(&self) -> ClaudeCode {
        let options = ClaudeOptions {
            program: self.program.clone(),
            model: Some("claude-sonnet-4-5".into()),
            ..ClaudeOptions::default()
        };
        ClaudeCode::new(options).unwrap()
    }

    fn codex(&self) -> Codex {
        let options =
            CodexOptions { program: self.program.clone(), model: Some("gpt-5.5".into()), ..CodexOptions::default() };
        Codex::new(options).unwrap()
    }
}

fn start(launch: &Launch, home: &Path, workspace: &Path) -> Inmate {
    let mut command = tokio::process::Command::new(&launch.argv[0]);
    command.args(&launch.argv[1..]).env_clear().current_dir(workspace).env("HOME", home).env("PATH", "/usr/bin:/bin");
    command.envs(launch.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    Inmate {
        stdin: Box::new(child.stdin.take().unwrap()),
        stdout: Box::new(child.stdout.take().unwrap()),
        stderr: Box::new(child.stderr.take().unwrap()),
        life: Box::new(Child(child)),
    }
}

struct Child(tokio::process::Child);

impl Life for Child {
    fn wait(&mut self) -> BoxFuture<'_, Result<ProcessEnd, ProcessError>> {
        Box::pin(async {
            let status = self.0.wait().await.map_err(|err| ProcessError(err.to_string()))?;
            Ok(ProcessEnd::Exited { code: status.code().unwrap_or(-1) })
        })
    }
    fn terminate(&self) {}
    fn kill(&self) {}
}

struct Wall(Instant);

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0)
    }
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
    fn sleep(&self, how_long: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(how_long))
    }
    fn entropy(&self) -> u64 {
        7
    }
}

/// The log without what differs from time to time.
fn calm(stage: &Stage) -> Vec<String> {
    stage.lines().into_iter().filter(|line| !line.starts_with("delta ") && !line.starts_with("began ")).collect()
}

fn session(stage: &Stage) -> Option<String> {
    stage.lines().iter().find_map(|line| line.strip_prefix("began ").map(str::to_owned))
}

#[test]
fn claude_code_itself_works_asks_and_goes_on() {
    let Some(trial) = trial("WINDLASS_TRY_CLAUDE") else { return };
    std::fs::write(trial.workspace.path().join("CLAUDE.md"), "Rule one.\n").unwrap();
    let mut stage = trial.stage();
    let path = trial.workspace.path().join("new.txt");
    let prompt = format!(
        "SHELL:echo hi > out.txt\nSHELL:touch forbidden.txt\nWRITE:{}=hello\nCALL:mcp__windlass__lookup {{\"key\":\"k1\"}}",
        path.display()
    );
    assert_eq!(trial.run(&stage, trial.claude(), &prompt), Stop::Done, "{:#?}", stage.lines());
    let lines = calm(&stage);
    assert!(trial.has("out.txt") && trial.has("new.txt") && !trial.has("forbidden.txt"), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("judged ")).count(), 3, "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("ran ")).count(), 1, "{lines:#?}");
    assert!(!lines.iter().any(|line| line.starts_with("observed ") || line.contains("unread")), "{lines:#?}");
    // The same conversation again.
    let first = session(&stage);
    assert!(first.is_some());
    stage = trial.stage();
    stage.session.clone_from(&first);
    assert_eq!(trial.run(&stage, trial.claude(), "more"), Stop::Done, "{:#?}", stage.lines());
    assert_eq!(session(&stage), first);
    // One that it does not know.
    stage = trial.stage();
    stage.session = Some("claude-code:11111111-1111-4111-8111-111111111111".into());
    assert_eq!(trial.run(&stage, trial.claude(), "more"), Stop::Done, "{:#?}", stage.lines());
    assert!(stage.lines()[0].starts_with("warned session_lost"), "{:#?}", stage.lines());
}

#[test]
fn claude_code_itself_stops_fails_and_answers_in_a_schema() {
    let Some(trial) = trial("WINDLASS_TRY_CLAUDE") else { return };
    let mut stage = trial.stage();
    stage.cancel_at = Some("delta three");
    assert_eq!(trial.run(&stage, trial.claude(), "SLOW"), Stop::Cancelled, "{:#?}", stage.lines());
    // And while a call waits for its verdict; then the conversation goes on.
    let first = session(&stage);
    let mut stage = trial.stage();
    stage.session.clone_from(&first);
    stage.cancel_at = Some("judged ");
    assert_eq!(trial.run(&stage, trial.claude(), "SHELL:echo never"), Stop::Cancelled, "{:#?}", stage.lines());
    let mut stage = trial.stage();
    stage.session.clone_from(&first);
    assert_eq!(trial.run(&stage, trial.claude(), "go on"), Stop::Done, "{:#?}", stage.lines());
    assert_eq!(session(&stage), first);
    let stage = trial.stage();
    let stop = trial.run(&stage, trial.claude(), "FAIL500");
    assert!(matches!(&stop, Stop::Provider(err) if err.status == Some(500)), "{stop:?}");
    let mut stage = trial.stage();
    stage.output = Some(WantedOutput {
        schema: json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
        check: Arc::new(|value| value["a"].as_i64().map(|_| ()).ok_or("no a".into())),
    });
    let stop = trial.run(&stage, trial.claude(), "JSONOUT:{\"a\":1}");
    assert_eq!(stop, Stop::Answered { output: json!({"a": 1}) }, "{:#?}", stage.lines());
}

#[test]
fn codex_itself_works_asks_and_goes_on() {
    let Some(trial) = trial("WINDLASS_TRY_CODEX") else { return };
    let mut stage = trial.stage();
    let prompt = "SHELL:ls\nSHELL:echo hi > out.txt\nSHELL:touch forbidden.txt\nWRITE:new.txt=hello\nCALL:lookup \
        {\"key\":\"k1\"}";
    assert_eq!(trial.run(&stage, trial.codex(), prompt), Stop::Done, "{:#?}", stage.lines());
    let lines = calm(&stage);
    assert!(trial.has("out.txt") && trial.has("new.txt") && !trial.has("forbidden.txt"), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("judged ")).count(), 4, "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("ran ")).count(), 1, "{lines:#?}");
    assert!(!lines.iter().any(|line| line.starts_with("observed ") || line.contains("unread")), "{lines:#?}");
    // The same conversation again, with our tools still in it.
    let first = session(&stage);
    stage = trial.stage();
    stage.session.clone_from(&first);
    let stop = trial.run(&stage, trial.codex(), "CALL:lookup {\"key\":\"k2\"}");
    assert_eq!(stop, Stop::Done, "{:#?}", stage.lines());
    assert_eq!(session(&stage), first);
    assert!(stage.lines().iter().any(|line| line.starts_with("ran ")), "{:#?}", stage.lines());
    // One that it does not know.
    stage = trial.stage();
    stage.session = Some("codex:01a1dccb-53ba-7570-be40-82efc663d892".into());
    assert_eq!(trial.run(&stage, trial.codex(), "more"), Stop::Done, "{:#?}", stage.lines());
    assert!(stage.lines()[0].starts_with("warned session_lost"), "{:#?}", stage.lines());
}

#[test]
fn codex_itself_stops_fails_and_answers_in_a_schema() {
    let Some(trial) = trial("WINDLASS_TRY_CODEX") else { return };
    let mut stage = trial.stage();
    stage.cancel_at = Some("delta three");
    assert_eq!(trial.run(&stage, trial.codex(), "SLOW"), Stop::Cancelled, "{:#?}", stage.lines());
    // And while a call waits for its verdict; then the conversation goes on.
    let first = session(&stage);
    let mut stage = trial.stage();
    stage.session.clone_from(&first);
    stage.cancel_at = Some("judged ");
    assert_eq!(trial.run(&stage, trial.codex(), "SHELL:echo never"), Stop::Cancelled, "{:#?}", stage.lines());
    let mut stage = trial.stage();
    stage.session.clone_from(&first);
    assert_eq!(trial.run(&stage, trial.codex(), "go on"), Stop::Done, "{:#?}", stage.lines());
    assert_eq!(session(&stage), first);
    let stage = trial.stage();
    let stop = trial.run(&stage, trial.codex(), "FAIL500");
    assert!(matches!(&stop, Stop::Provider(_)), "{stop:?}");
    let mut stage = trial.stage();
    stage.output = Some(WantedOutput {
        schema: json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
            "additionalProperties": false}),
        check: Arc::new(|value| value["a"].as_i64().map(|_| ()).ok_or("no a".into())),
    });
    let stop = trial.run(&stage, trial.codex(), "JSONOUT:{\"a\":1}");
    assert_eq!(stop, Stop::Answered { output: json!({"a": 1}) }, "{:#?}", stage.lines());
}
