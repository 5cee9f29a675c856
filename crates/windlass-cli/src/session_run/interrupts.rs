//! Interrupts: the first one cancels the current run, the second one exits. A separate thread handles them, so that a
//! view that blocks in a write does not delay them.

use parking_lot::Mutex;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use windlass::Canceller;

use crate::exit;
use crate::out::say;

/// Makes a write past the file size limit (`RLIMIT_FSIZE`) an error instead of killing the process. The signal has a
/// handler and is not ignored, because child processes inherit ignored signals.
pub(crate) fn survive_file_size_limit() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _inside = runtime.enter();
    let past_limit = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // The handler stays installed after the listener is dropped.
    signal(past_limit).map(drop)
}

/// Handles interrupts, terminations and hang-ups from a separate thread.
pub(crate) struct InterruptListener(Arc<InterruptState>);

#[derive(Default)]
struct InterruptState {
    run: Mutex<Option<Canceller>>,
    idle: Notify,
}

impl InterruptListener {
    pub(crate) fn listen() -> std::io::Result<Self> {
        let shared = Arc::new(InterruptState::default());
        let streams = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ]
        .map(signal);
        let [interrupts, terminations, hangups] = streams;
        let handler = handle_signals(shared.clone(), interrupts?, terminations?, hangups?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || runtime.block_on(handler))?;
        Ok(Self(shared))
    }

    /// Sets the run that an interrupt cancels; with `None`, an interrupt ends [`Self::while_idle`].
    pub(crate) fn watch(&self, run: Option<Canceller>) {
        *self.0.lock() = run;
    }

    /// Returns at an interrupt that arrives between runs.
    pub(crate) async fn while_idle(&self) {
        self.0.idle.notified().await;
    }
}

impl InterruptState {
    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<Canceller>> {
        self.run.lock()
    }
}

async fn handle_signals(
    shared: Arc<InterruptState>,
    mut interrupts: Signal,
    mut terminations: Signal,
    mut hangups: Signal,
) {
    let mut cancelled = false;
    loop {
        tokio::select! {
            signal = interrupts.recv() => if signal.is_none() { return },
            signal = terminations.recv() => if signal.is_none() { return },
            // The terminal is gone.
            signal = hangups.recv() => if signal.is_none() { return },
        }
        let run = shared.lock().clone();
        match run {
            None => shared.idle.notify_one(),
            Some(run) if !cancelled => {
                cancelled = true;
                run.cancel();
                say!("\ncancelling; interrupt again to exit immediately");
            }
            Some(_) => {
                say!("\nexited immediately; continue the session with `windlass resume`");
                std::process::exit(i32::from(exit::INTERRUPTED))
            }
        }
        cancelled &= shared.lock().is_some();
    }
}
