//! Interrupts: the first cancels the run that is going, the second ends the process. They are heard on a thread of its
//! own, so that a view that is stuck in a write does not keep them from being heard.

use parking_lot::Mutex;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use windlass::Canceller;

use crate::exit;
use crate::out::say;

/// Makes a write past the file size limit an error instead of the end of the process. A handler and not an ignored
/// signal: programs that are started have the default again.
pub(crate) fn survive_file_size_limit() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _inside = runtime.enter();
    let past_limit = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // The handler stays installed after the listener is dropped.
    signal(past_limit).map(drop)
}

/// Hears interrupts for as long as it lives.
pub(crate) struct Signals(Arc<Shared>);

#[derive(Default)]
struct Shared {
    run: Mutex<Option<Canceller>>,
    idle: Notify,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let heard = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ]
        .map(signal);
        let [interrupts, terminations, hangups] = heard;
        let hearing = hear(shared.clone(), interrupts?, terminations?, hangups?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || runtime.block_on(hearing))?;
        Ok(Self(shared))
    }

    /// From now on, an interrupt cancels this run; with `None`, it ends the waiting for a prompt.
    pub(crate) fn watch(&self, run: Option<Canceller>) {
        *self.0.lock() = run;
    }

    /// Returns at an interrupt while no run is going.
    pub(crate) async fn while_idle(&self) {
        self.0.idle.notified().await;
    }
}

impl Shared {
    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<Canceller>> {
        self.run.lock()
    }
}

async fn hear(
    shared: Arc<Shared>,
    mut interrupts: Signal,
    mut terminations: Signal,
    mut hangups: Signal,
) {
    let mut told = false;
    loop {
        tokio::select! {
            heard = interrupts.recv() => if heard.is_none() { return },
            heard = terminations.recv() => if heard.is_none() { return },
            // The terminal is gone: nobody sees what would follow.
            heard = hangups.recv() => if heard.is_none() { return },
        }
        let run = shared.lock().clone();
        match run {
            None => shared.idle.notify_one(),
            Some(run) if !told => {
                told = true;
                run.cancel();
                say!("\ncancelling; interrupt again to end at once");
            }
            Some(_) => {
                say!("\nended at once; `windlass resume` continues the session");
                std::process::exit(i32::from(exit::INTERRUPTED))
            }
        }
        told &= shared.lock().is_some();
    }
}
