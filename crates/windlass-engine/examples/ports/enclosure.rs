//! An enclosure: the place where an agent that is not ours runs, with its life. A runtime asks the run's processes for it
//! and starts its program there. This one holds an echo in memory; a real one is a sandbox around a process tree, with a
//! home of its own and one port to reach its model at.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use windlass_core::BoxFuture;
use windlass_core::enclosure::{Enclosure, Inmate, Launch, Life, Wire};
use windlass_core::event::EventKind;
use windlass_core::message::Message;
use windlass_core::runtime::{Capabilities, Capability, Job, RunMode, Runtime, RuntimeError, Stop};
use windlass_core::workspace::*;
use windlass_engine::Request;

use super::Shown;
use super::fakes::Fakes;
use super::files::Tree;
use super::processes::{Nothing, no, no_jobs};
use super::workspaces::Copies;

/// A place with one inmate, who repeats what it hears.
struct Cell;
/// Its life: it is over when nobody speaks to it any more.
struct Echo;
/// Processes that have such a place.
struct Guarded;

impl Enclosure for Cell {
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
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Wire>>> {
        Box::pin(std::future::pending())
    }
    fn start(&self, _: Launch) -> BoxFuture<'_, Result<Inmate, ProcessError>> {
        let (ours, theirs): (DuplexStream, DuplexStream) = duplex(1_024);
        let (heard, said) = tokio::io::split(theirs);
        tokio::spawn(async move {
            let (mut heard, mut said) = (heard, said);
            tokio::io::copy(&mut heard, &mut said).await
        });
        let (stdout, stdin) = tokio::io::split(ours);
        let (stdin, stdout, stderr) = (
            Box::new(stdin),
            Box::new(stdout),
            Box::new(tokio::io::empty()),
        );
        Box::pin(async move {
            Ok(Inmate {
                stdin,
                stdout,
                stderr,
                life: Box::new(Echo),
            })
        })
    }
    fn take_refused(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Life for Echo {
    fn wait(&mut self) -> BoxFuture<'_, Result<ProcessEnd, ProcessError>> {
        Box::pin(async { Ok(ProcessEnd::Exited { code: 0 }) })
    }
    fn terminate(&self) {}
    fn kill(&self) {}
}

impl Processes for Guarded {
    fn run<'a>(
        &'a self,
        command: Command,
        watch: Watch<'a>,
    ) -> BoxFuture<'a, Result<Finished, ProcessError>> {
        Nothing.run(command, watch)
    }
    fn enclose(&self) -> BoxFuture<'_, Result<Arc<dyn Enclosure>, ProcessError>> {
        let cell: Arc<dyn Enclosure> = Arc::new(Cell);
        Box::pin(std::future::ready(Ok(cell)))
    }
    no_jobs!();
}

/// Passes the prompt to the program, and what it says to the log.
struct Visitor;

impl Runtime for Visitor {
    fn name(&self) -> &str {
        "visitor"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::of([Capability::TextCompletion])
    }
    fn run<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(async move {
            let other = |err: &dyn std::fmt::Display| RuntimeError::Other(err.to_string());
            let place = job.processes.enclose().await.map_err(|err| other(&err))?;
            let launch = Launch {
                argv: vec!["echo".into()],
                ..Launch::default()
            };
            let mut inmate = place.start(launch).await.map_err(|err| other(&err))?;
            let words = format!("{}\n", job.prompt.text());
            inmate
                .stdin
                .write_all(words.as_bytes())
                .await
                .map_err(|err| other(&err))?;
            let mut answer = String::new();
            BufReader::new(inmate.stdout)
                .read_line(&mut answer)
                .await
                .map_err(|err| other(&err))?;
            job.outlet
                .emit(EventKind::said(Message::assistant(answer.trim())))
                .await?;
            inmate.life.wait().await.map_err(|err| other(&err))?;
            Ok(Stop::Done)
        })
    }
}

pub(crate) async fn show() -> Shown {
    let copies = Copies {
        processes: Arc::new(Guarded),
        ..Copies::of(&Tree::of(&[]))
    };
    let engine = Fakes::new([])
        .builder()
        .runtime(Arc::new(Visitor))
        .workspaces(Arc::new(copies))
        .build()?;
    let result = engine
        .execute(Request {
            mode: RunMode::Analysis,
            ..Request::new("hello")
        })
        .await?;
    assert_eq!(result.text, "hello", "what the inmate said came through");

    // Where there is no such place, nothing weaker takes its stead.
    let bare = Copies::of(&Tree::of(&[]));
    let engine = Fakes::new([])
        .builder()
        .runtime(Arc::new(Visitor))
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
