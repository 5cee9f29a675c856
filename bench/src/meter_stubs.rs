//! An enclosure and a ledger for a meter in a benchmark: connections from a loopback port, and an account without
//! limits. Nothing is isolated or written here.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use windlass_core::BoxFuture;
use windlass_core::ask::{Answer, Ask};
use windlass_core::budget::{Limit, Price, Spent, Usage};
use windlass_core::context::WorkRecord;
use windlass_core::enclosure::{AgentConnection, AgentProcess, Enclosure, Launch};
use windlass_core::event::EventKind;
use windlass_core::history::Entry;
use windlass_core::runtime::{BudgetAccount, EventSink, Hold};
use windlass_core::store::StoreError;
use windlass_core::workspace::{FileError, FileErrorKind, ProcessError};

/// An enclosure that only accepts connections from a port.
#[derive(Debug)]
pub struct PortEnclosure(pub TcpListener);

fn nothing() -> FileError {
    FileError {
        kind: FileErrorKind::NotFound,
        message: "there are no files here".to_owned(),
    }
}

impl Enclosure for PortEnclosure {
    fn home(&self) -> &Path {
        Path::new("/")
    }
    fn put(&self, _: &str, _: &[u8]) -> Result<(), FileError> {
        Err(nothing())
    }
    fn read(&self, _: &str, _: u64) -> Result<Vec<u8>, FileError> {
        Err(nothing())
    }
    fn clear(&self, _: &str) -> Result<(), FileError> {
        Ok(())
    }
    fn endpoint(&self) -> Option<u16> {
        self.0.local_addr().ok().map(|address| address.port())
    }
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn AgentConnection>>> {
        Box::pin(async {
            let (stream, _) = self.0.accept().await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn AgentConnection>)
        })
    }
    fn start(&self, _: Launch) -> BoxFuture<'_, Result<AgentProcess, ProcessError>> {
        Box::pin(std::future::ready(Err(ProcessError(
            "nothing is started here".to_owned(),
        ))))
    }
    fn take_refused(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A ledger that accepts everything and keeps nothing.
#[derive(Debug, Clone, Copy)]
pub struct UnlimitedLedger;

impl BudgetAccount for UnlimitedLedger {
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
    fn spent(&self) -> Spent {
        Spent::default()
    }
    fn exceeded(&self) -> Option<Limit> {
        None
    }
    fn admit(&self, _: u64, want: u64, _: Option<Price>) -> Result<u64, Limit> {
        Ok(want)
    }
    fn hold(&self, _: u64, want: u64, _: Option<Price>) -> Result<Hold, Limit> {
        Ok(Hold {
            id: 0,
            output: want,
        })
    }
    fn release(&self, _: Hold) {}
    fn settle<'a>(
        &'a self,
        _: Usage,
        _: Option<Price>,
        _: bool,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl EventSink for UnlimitedLedger {
    fn emit(&self, _: EventKind) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(std::future::ready(Ok(1)))
    }
    fn show(&self, _: EventKind) {}
    fn watched(&self) -> bool {
        false
    }
    fn ask(&self, _: Ask) -> BoxFuture<'_, Result<Answer, StoreError>> {
        Box::pin(std::future::ready(Ok(Answer::Unanswered)))
    }
    fn history(&self) -> Arc<Vec<Entry>> {
        Arc::default()
    }
    fn facts(&self) -> WorkRecord {
        WorkRecord::default()
    }
}
