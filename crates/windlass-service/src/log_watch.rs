//! Watches the logs of sessions that have readers, so that readers also see what other processes write. The events of a run
//! in another process arrive through its local channel; without one, only the durable events arrive.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::fs::inotify;
use windlass::core::event::Order;
use windlass::machine::SessionLog;

use crate::host::SessionHost;
use crate::local::LocalRequest;
use crate::local_client::RemoteSession;
use crate::ring::EventLine;
use crate::service::ServiceParts;

/// Size of the buffer for notifications of the kernel.
const BUFFER: usize = 4_096;
/// Time after which the thread looks whether the service still exists.
const WAIT: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// The watched logs. Without support of the kernel, readers see events of other processes when they read again.
#[derive(Default)]
pub(crate) struct LogWatch(Mutex<Option<Arc<WatchedLogs>>>);

struct WatchedLogs {
    inotify: OwnedFd,
    hosts: Mutex<HashMap<i32, Weak<SessionHost>>>,
}

impl ServiceParts {
    /// Watches the log of a session for its readers.
    pub(crate) fn watch_log(&self, host: &Arc<SessionHost>) {
        let watched = {
            let mut watch = self.watch.0.lock();
            if watch.is_none() {
                *watch = start(&self.store);
            }
            watch.clone()
        };
        let Some(watched) = watched else { return };
        let path = self.store.log_path(&host.id);
        let added = inotify::add_watch(&watched.inotify, path, inotify::WatchFlags::MODIFY);
        let Ok(watch) = added else { return };
        let mut hosts = watched.hosts.lock();
        if hosts.len() > 256 && hosts.len().is_power_of_two() {
            hosts.retain(|watch, host| {
                let used = host.strong_count() > 0;
                if !used {
                    let _ = inotify::remove_watch(&watched.inotify, *watch);
                }
                used
            });
        }
        hosts.insert(watch, Arc::downgrade(host));
        drop(hosts);
        follow_remote(&self.store, host);
    }
}

fn start(store: &Arc<SessionLog>) -> Option<Arc<WatchedLogs>> {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let watched = Arc::new(WatchedLogs {
        inotify: inotify::init(flags).ok()?,
        hosts: Mutex::default(),
    });
    let (weak, store) = (Arc::downgrade(&watched), Arc::downgrade(store));
    let runtime = tokio::runtime::Handle::current();
    // The kernel's notifications are read in a thread of their own, which ends with the service.
    let thread = std::thread::Builder::new().name("log watch".to_owned());
    let spawned = thread.spawn(move || {
        let _inside = runtime.enter();
        while let (Some(watched), Some(store)) = (weak.upgrade(), store.upgrade()) {
            let Ok(changed) = watched.changed() else {
                return;
            };
            for host in changed {
                // Readers get the events of this process from its run.
                if host.live().is_none() {
                    host.events.ring.touch();
                    follow_remote(&store, &host);
                }
            }
        }
    });
    spawned.ok().map(|_| watched)
}

impl WatchedLogs {
    /// Waits a moment for changes, and returns the sessions whose logs changed.
    fn changed(&self) -> rustix::io::Result<Vec<Arc<SessionHost>>> {
        let mut poll = [PollFd::new(&self.inotify, PollFlags::IN)];
        if rustix::event::poll(&mut poll, Some(&WAIT))? == 0 {
            return Ok(Vec::new());
        }
        let mut watches = Vec::new();
        let mut buffer = [std::mem::MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    if !watches.contains(&event.wd()) {
                        watches.push(event.wd());
                    }
                    if reader.is_buffer_empty() {
                        break;
                    }
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(err) => return Err(err),
            }
        }
        let hosts = self.hosts.lock();
        Ok(watches
            .iter()
            .filter_map(|watch| hosts.get(watch)?.upgrade())
            .collect())
    }
}

/// Follows the live events of a run in another process, while there are readers.
fn follow_remote(store: &Arc<SessionLog>, host: &Arc<SessionHost>) {
    if host.live().is_some() || !host.events.has_followers() || !host.begin_remote() {
        return;
    }
    let (store, host) = (store.clone(), Arc::downgrade(host));
    tokio::spawn(async move {
        let Some(id) = host.upgrade().map(|host| host.id.clone()) else {
            return;
        };
        if let Some(mut remote) = RemoteSession::connect(&store, &id).await {
            let request = LocalRequest::Events { after: u64::MAX };
            if remote.call(&request).await.is_ok() {
                while let Some(event) = remote.next_event().await {
                    let Some(host) = host.upgrade().filter(|host| host.events.has_followers())
                    else {
                        return;
                    };
                    // The log has the durable events.
                    if matches!(event.order, Order::Live { .. }) {
                        host.events.ring.push(EventLine::of(&event));
                    }
                }
            }
        }
        if let Some(host) = host.upgrade() {
            host.end_remote();
        }
    });
}
