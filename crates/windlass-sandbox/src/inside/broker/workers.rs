//! Worker threads for calls that may block. An idle thread is reused, because starting a thread takes longer than most
//! calls.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// The stack size; the threads make few nested calls.
const STACK: usize = 64 << 10;

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Senders to the idle threads, each of which runs one job at a time.
#[derive(Default)]
pub(super) struct Workers(Arc<Mutex<Vec<Sender<Job>>>>);

impl Workers {
    /// Runs a job in an idle thread, or in a new one.
    pub(super) fn run(&self, job: Job) -> io::Result<()> {
        let free = self.0.lock().pop();
        let worker = match free {
            Some(worker) => worker,
            None => self.start()?,
        };
        worker
            .send(job)
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn start(&self) -> io::Result<Sender<Job>> {
        let (sender, jobs) = channel::<Job>();
        let (free, own) = (Arc::clone(&self.0), sender.clone());
        let work = move || {
            // The thread holds its own sender, so `recv` never fails and the thread lives as long as the process.
            while let Ok(job) = jobs.recv() {
                job();
                free.lock().push(own.clone());
            }
        };
        std::thread::Builder::new().stack_size(STACK).spawn(work)?;
        Ok(sender)
    }
}
