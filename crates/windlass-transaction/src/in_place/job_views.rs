//! The views of the background jobs of a run: refreshed by a thread while jobs run, landed before every later call and
//! when a job ends.

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use windlass_core::workspace::JobId;

use super::call_landings::CallLandings;
use super::job_view::JobView;
use super::land_layer::{copy, land_layer, land_running};
use super::layer::CommandLayer;
use super::tree_watch::TreeWatch;

/// The time that changes are gathered before they are copied: a save is often several changes.
const GATHER: Duration = Duration::from_millis(50);
/// The time between two looks at the tree where the kernel does not tell of changes.
const COMPARE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 700_000_000,
};
/// Landings of one job's changes in a row, after some were set aside.
const MAX_ROUNDS: usize = 3;
/// Remarks that wait for the model at most.
const MAX_REMARKS: usize = 20;

pub(super) struct JobViews {
    landings: Arc<CallLandings>,
    /// Where layers are made.
    layers: PathBuf,
    state: Mutex<State>,
    /// Texts for the model about changes of jobs that did not land.
    remarks: Mutex<Vec<String>>,
}

#[derive(Default)]
struct State {
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

    /// Starts to watch the workspace, before the layer of a job is mounted: no later change is missed.
    pub(super) fn watch(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.watch.is_none() {
            state.watch = Some(TreeWatch::new(Arc::clone(&self.landings.root)));
        }
    }

    /// Takes the view of a job that was started.
    pub(super) fn add(self: &Arc<Self>, view: JobView) {
        let mut state = self.state.lock();
        let first = state.views.is_empty();
        state.views.push(view);
        if first {
            let (views, watch) = (Arc::downgrade(self), state.watch.as_ref());
            let changes = watch.and_then(TreeWatch::handle);
            let thread = std::thread::Builder::new().name("windlass-job-views".to_owned());
            // Without it the views are refreshed by the landings before each call.
            let _ = thread.spawn(move || follow(&views, changes));
        }
    }

    /// The jobs that have views.
    pub(super) fn jobs(&self) -> Vec<JobId> {
        let state = self.state.lock();
        state.views.iter().map(|view| view.job.clone()).collect()
    }

    /// Texts about changes that did not land, once.
    pub(super) fn take_remarks(&self) -> Vec<String> {
        std::mem::take(&mut self.remarks.lock())
    }

    /// Copies what changed in the workspace into all views; says whether there are any.
    fn refresh(&self) -> bool {
        let mut state = self.state.lock();
        let State { views, watch } = &mut *state;
        if let Some(watch) = watch {
            let changes = watch.take();
            views.iter_mut().for_each(|view| view.refresh(&changes));
        }
        !views.is_empty()
    }

    /// Lands what the jobs changed so far.
    pub(super) fn land(&self) {
        self.refresh();
        for view in &mut self.state.lock().views {
            for _ in 0..MAX_ROUNDS {
                match land_running(&self.landings, &mut view.layer, view.call.as_ref()) {
                    Ok(refused) if refused.is_empty() => break,
                    Ok(refused) => self.set_aside(view, &refused),
                    // A file that is being written, for one: the next landing tries it again, the last one reports it.
                    Err(_) => break,
                }
            }
        }
    }

    /// Lands the layer of a job that has ended. `gone`: no process of it is left.
    pub(super) fn finish(&self, job: &JobId, gone: bool) {
        self.refresh();
        // Held to the end: a caller that asks meanwhile whether jobs are left waits for the landing.
        let mut state = self.state.lock();
        let Some(at) = state.views.iter().position(|view| view.job == *job) else {
            return;
        };
        let view = state.views.remove(at);
        if state.views.is_empty() {
            state.watch = None;
        }
        let call = view.call.clone();
        let layer = view.close();
        let landed = if gone {
            land_layer(&self.landings, &layer, call.as_ref())
        } else if layer.is_empty() {
            Ok(None)
        } else {
            Err("its processes could not be ended".to_owned())
        };
        match landed {
            Ok(None) => {}
            Ok(Some(text)) => self.report(text),
            Err(why) => {
                let kept = layer.keep();
                self.report(format!("{why}. Its changes are kept in {}", kept.display()));
            }
        }
    }

    /// Keeps the job's versions of paths that cannot land, and brings its view back to the workspace.
    fn set_aside(&self, view: &mut JobView, refused: &[(String, String)]) {
        let paths: Vec<PathBuf> = refused.iter().map(|(path, _)| path.into()).collect();
        let new: Vec<&(String, String)> = refused
            .iter()
            .filter(|(path, _)| view.reported.insert(path.clone()))
            .collect();
        if !new.is_empty() {
            let kept = CommandLayer::make(&self.layers, self.landings.root_path()).map(|kept| {
                for (path, _) in &new {
                    let to = kept.upper.join(path);
                    let folder = to.parent().unwrap_or(&kept.upper);
                    // A path that is gone in the layer has nothing to keep.
                    let _ = std::fs::create_dir_all(folder)
                        .and_then(|()| copy(&view.layer.upper.join(path), &to));
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

    /// Tells the user and the model.
    pub(super) fn report(&self, why: String) {
        let text = format!("changes of a background job are not in the workspace: {why}");
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
