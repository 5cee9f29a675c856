//! The views of all background jobs of a run. A thread refreshes them while jobs run. Their changes land before every
//! later call and when a job ends.

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use windlass_core::workspace::JobId;

use super::call_landings::CallLandings;
use super::command_overlay::CommandOverlay;
use super::job_view::JobView;
use super::land_overlay::{copy, land_overlay, land_running};
use super::tree_watch::TreeWatch;
use crate::path::path_of;

/// Delay between a change and its copy, because one save often consists of several changes.
const GATHER: Duration = Duration::from_millis(50);
/// Interval between comparisons of the trees, if the kernel does not report changes.
const COMPARE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 700_000_000,
};
/// Maximum consecutive landings of one job, after paths that cannot land were reverted.
const MAX_ROUNDS: usize = 3;
/// Maximum remarks that wait for the model.
const MAX_REMARKS: usize = 20;

pub(super) struct JobViews {
    landings: Arc<CallLandings>,
    /// The directory in which overlays are created.
    layers: PathBuf,
    state: Mutex<ViewsState>,
    /// Messages for the model about changes of jobs that did not land.
    remarks: Mutex<Vec<String>>,
}

#[derive(Default)]
struct ViewsState {
    views: Vec<JobView>,
    watch: Option<TreeWatch>,
}

impl JobViews {
    pub(super) fn new(landings: Arc<CallLandings>, layers: PathBuf) -> Self {
        Self {
            landings,
            layers,
            state: Mutex::default(),
            remarks: Mutex::default(),
        }
    }

    /// Starts to watch the workspace. Call it before the overlay of a job is mounted, so that no change is missed.
    pub(super) fn watch(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.watch.is_none() {
            state.watch = Some(TreeWatch::new(Arc::clone(&self.landings.root)));
        }
    }

    /// Adds the view of a job that was started.
    pub(super) fn add(self: &Arc<Self>, view: JobView) {
        let mut state = self.state.lock();
        let first = state.views.is_empty();
        state.views.push(view);
        if first {
            let (views, watch) = (Arc::downgrade(self), state.watch.as_ref());
            let changes = watch.and_then(TreeWatch::handle);
            let thread = std::thread::Builder::new().name("windlass-job-views".to_owned());
            // If this fails, the landings before each call refresh the views.
            let _ = thread.spawn(move || follow(&views, changes));
        }
    }

    /// The jobs that have views.
    pub(super) fn jobs(&self) -> Vec<JobId> {
        let state = self.state.lock();
        state.views.iter().map(|view| view.job.clone()).collect()
    }

    /// Returns each message about changes that did not land once.
    pub(super) fn take_remarks(&self) -> Vec<String> {
        std::mem::take(&mut self.remarks.lock())
    }

    /// Copies changes of the workspace into all views. Returns whether there are any views.
    fn refresh(&self) -> bool {
        let mut state = self.state.lock();
        let ViewsState { views, watch } = &mut *state;
        if let Some(watch) = watch {
            let changes = watch.take();
            views.iter_mut().for_each(|view| view.refresh(&changes));
        }
        !views.is_empty()
    }

    /// Lands the changes that the jobs have made so far.
    pub(super) fn land(&self) {
        self.refresh();
        for view in &mut self.state.lock().views {
            for _ in 0..MAX_ROUNDS {
                match land_running(&self.landings, &mut view.overlay, view.call.as_ref()) {
                    Ok(refused) if refused.is_empty() => break,
                    Ok(refused) => self.revert_refused(view, &refused),
                    // For example, a file is being written. The next landing tries again, and the last one reports it.
                    Err(_) => break,
                }
            }
        }
    }

    /// Lands the overlay of a job that has ended. `gone` means that none of its processes is left.
    pub(super) fn finish(&self, job: &JobId, gone: bool) {
        self.refresh();
        // Hold the lock to the end: a caller that asks whether jobs are left must wait for the landing.
        let mut state = self.state.lock();
        let Some(at) = state.views.iter().position(|view| view.job == *job) else {
            return;
        };
        let view = state.views.remove(at);
        if state.views.is_empty() {
            state.watch = None;
        }
        let call = view.call.clone();
        let overlay = view.close();
        let landed = if gone {
            land_overlay(&self.landings, &overlay, call.as_ref())
        } else if overlay.is_empty() {
            Ok(None)
        } else {
            Err("its processes could not be killed".to_owned())
        };
        match landed {
            Ok(None) => {}
            Ok(Some(text)) => self.report(text),
            Err(why) => {
                let kept = overlay.keep();
                self.report(format!("{why}. Its changes are kept in {}", kept.display()));
            }
        }
    }

    /// Keeps the job's versions of paths that cannot land, and resets its view to the workspace.
    fn revert_refused(&self, view: &mut JobView, refused: &[(String, String)]) {
        let paths: Vec<PathBuf> = refused
            .iter()
            .map(|(path, _)| path_of(path).into_owned())
            .collect();
        let new: Vec<&(String, String)> = refused
            .iter()
            .filter(|(path, _)| view.reported.insert(path.clone()))
            .collect();
        if !new.is_empty() {
            let kept = CommandOverlay::make(&self.layers, self.landings.root_path()).map(|kept| {
                for (path, _) in &new {
                    let path = path_of(path);
                    let to = kept.upper.join(&path);
                    let folder = to.parent().unwrap_or(&kept.upper);
                    // A path that the job deleted has no version to keep.
                    let _ = std::fs::create_dir_all(folder)
                        .and_then(|()| copy(&view.overlay.upper.join(path), &to));
                }
                kept.keep()
            });
            let kept = kept.map_or_else(|err| err.message, |kept| kept.display().to_string());
            let reasons: Vec<String> = new
                .iter()
                .map(|(path, why)| format!("{path}: {why}"))
                .collect();
            self.report(format!(
                "{}. Its versions are kept in {kept}",
                reasons.join("; ")
            ));
        }
        view.revert(&paths);
    }

    /// Reports to the user and the model.
    pub(super) fn report(&self, why: String) {
        let text = format!("changes of a background job did not land: {why}");
        self.landings.note(text.clone());
        let mut remarks = self.remarks.lock();
        if remarks.len() < MAX_REMARKS {
            remarks.push(text);
        }
    }
}

/// Refreshes the views until none is left.
fn follow(views: &Weak<JobViews>, changes: Option<std::os::fd::OwnedFd>) {
    loop {
        let mut waited: Vec<PollFd<'_>> = changes
            .iter()
            .map(|handle| PollFd::new(handle, PollFlags::IN))
            .collect();
        let woken = rustix::event::poll(&mut waited, Some(&COMPARE));
        if woken.is_ok_and(|count| count > 0) {
            std::thread::sleep(GATHER);
        } else if changes.is_some() {
            if views.upgrade().is_none_or(|views| views.jobs().is_empty()) {
                return;
            }
            continue;
        }
        if !views.upgrade().is_some_and(|views| views.refresh()) {
            return;
        }
    }
}
