//! An enclosure: the environment of a foreign agent, and its process tree. A runtime gets it from the processes of the run
//! and starts its program in it. This one runs an echo in memory; a real one is a sandbox around a process tree, with
//! its own home directory and one port to reach the model.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use windlass_core::BoxFuture;
use windlass_core::enclosure::{AgentConnection, AgentProcess, Enclosure, Launch, ProcessHandle};
use windlass_core::event::EventKind;
use windlass_core::message::Message;
use windlass_core::runtime::{Capabilities, Capability, Job, RunMode, Runtime, RuntimeError, Stop};
use windlass_core::workspace::*;
use windlass_engine::Request;

use super::ExampleResult;
use super::fakes::Fakes;
use super::files::MapTree;
use super::processes::{NoProcesses, no_jobs, unavailable};
use super::workspaces::Copies;

/// An enclosure whose only program repeats its input.
struct EchoEnclosure;
/// The process of that program.
struct EchoProcess;
/// Processes that provide this enclosure.
struct EchoProcesses;

impl Enclosure for EchoEnclosure {
    fn home(&self) -> &Path {
        Path::new("/home/guest")
    }
    fn put(&self, _: &str, _: &[u8]) -> Result<(), FileError> {
        Ok(())
    }
    fn read(&self, path: &str, _: u64) -> Result<Vec<u8>, FileError> {
        Err(FileError {
            kind: FileErrorKind::NotFound,
            message: format!("there is no {path}"),
        })
    }
    fn clear(&self, _: &str) -> Result<(), FileError> {
        Ok(())
    }
    fn endpoint(&self) -> Option<u16> {
        None
    }
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn AgentConnection>>> {
        Box::pin(std::future::pending())
    }
    fn start(&self, _: Launch) -> BoxFuture<'_, Result<AgentProcess, ProcessError>> {
        let (ours, theirs): (DuplexStream, DuplexStream) = duplex(1_024);
        let (input, output) = tokio::io::split(theirs);
        tokio::spawn(async move {
            let (mut input, mut output) = (input, output);
            tokio::io::copy(&mut input, &mut output).await
        });
        let (stdout, stdin) = tokio::io::split(ours);
        let (stdin, stdout, stderr) = (
            Box::new(stdin),
            Box::new(stdout),
            Box::new(tokio::io::empty()),
        );
        Box::pin(async move {
            Ok(AgentProcess {
                stdin,
                stdout,
                stderr,
                handle: Box::new(EchoProcess),
            })
        })
    }
    fn take_refused(&self) -> Vec<String> {
        Vec::new()
    }
}

impl ProcessHandle for EchoProcess {
    fn wait(&mut self) -> BoxFuture<'_, Result<ProcessEnd, ProcessError>> {
        Box::pin(async { Ok(ProcessEnd::Exited { code: 0 }) })
    }
    fn terminate(&self) {}
    fn kill(&self) {}
}

impl Processes for EchoProcesses {
    fn run<'a>(
        &'a self,
        command: Command,
        watch: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        NoProcesses.run(command, watch)
    }
    fn enclose(&self) -> BoxFuture<'_, Result<Arc<dyn Enclosure>, ProcessError>> {
        let enclosure: Arc<dyn Enclosure> = Arc::new(EchoEnclosure);
        Box::pin(std::future::ready(Ok(enclosure)))
    }
    no_jobs!();
}

/// A runtime that passes the prompt to the program, and logs the answer.
struct EchoRuntime;

impl Runtime for EchoRuntime {
    fn name(&self) -> &str {
        "echo"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::of([Capability::TextCompletion])
    }
    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(async move {
            let other = |err: &dyn std::fmt::Display| RuntimeError::Other(err.to_string());
            let enclosure = job.processes.enclose().await.map_err(|err| other(&err))?;
            let launch = Launch {
                argv: vec!["echo".into()],
                ..Launch::default()
            };
            let mut agent = enclosure.start(launch).await.map_err(|err| other(&err))?;
            let words = format!("{}\n", job.prompt.text());
            agent
                .stdin
                .write_all(words.as_bytes())
                .await
                .map_err(|err| other(&err))?;
            let mut answer = String::new();
            BufReader::new(agent.stdout)
                .read_line(&mut answer)
                .await
                .map_err(|err| other(&err))?;
            job.sink
                .emit(EventKind::said(Message::assistant(answer.trim())))
                .await?;
            agent.handle.wait().await.map_err(|err| other(&err))?;
            Ok(Stop::Done)
        })
    }
}

pub(crate) async fn run_example() -> ExampleResult {
    let copies = Copies {
        processes: Arc::new(EchoProcesses),
        ..Copies::of(&MapTree::of(&[]))
    };
    let engine = Fakes::new([])
        .builder()
        .runtime(Arc::new(EchoRuntime))
        .workspaces(Arc::new(copies))
        .build()?;
    let result = engine
        .execute(Request {
            mode: RunMode::Analysis,
            ..Request::new("hello")
        })
        .await?;
    assert_eq!(result.text, "hello", "the answer of the agent arrived");

    // Without an enclosure the run fails; there is no weaker fallback.
    let bare = Copies::of(&MapTree::of(&[]));
    let engine = Fakes::new([])
        .builder()
        .runtime(Arc::new(EchoRuntime))
        .workspaces(Arc::new(bare))
        .build()?;
    let result = engine
        .execute(Request {
            mode: RunMode::Analysis,
            ..Request::new("hello")
        })
        .await?;
    assert!(
        format!("{:?}", result.outcome()).contains("isolated"),
        "{:?}",
        result.outcome()
    );
    Ok(())
}
