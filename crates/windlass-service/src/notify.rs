//! Notifications about runs.

use std::path::Path;

use windlass::core::event::Event;

use crate::service::ServiceParts;

pub(crate) struct Notification;
#[derive(Default)]
pub(crate) struct Notifier;

impl Notification {
    pub(crate) fn of(_: &Event, _: &Path) -> Option<Self> {
        None
    }
}

impl ServiceParts {
    pub(crate) fn send_notification(&self, _: Notification) {}
}
