//! Our own export comes back as it was: the same events, under the same id when that is free.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass_core::event::{Event, EventKind, Order, VERSION};
use windlass_core::id::SessionId;

use super::{FileKind, ImportError, Imported, Importer, Lines, OpenFile, Pen, wrong};

pub(super) async fn import(importer: &Importer<'_>, open: &mut OpenFile<'_>) -> Result<Imported, ImportError> {
    let mut checked = Checked::default();
    let mut lines = Lines::new(open()?);
    while let Some((number, line)) = lines.next_raw()? {
        checked.take(number, event(number, line)?)?;
    }
    let Checked { session: Some(was), workspace, events, runs, live } = checked else {
        return Err(ImportError::Nothing);
    };
    let (id, writer) = importer.create(Some(&was)).await?;
    let mut pen = Pen::new(importer, id.clone(), writer);
    let written = copy(open, &mut pen, events).await;
    importer.unless_failed(&id, pen, written).await?;
    Ok(Imported {
        kind: FileKind::Windlass,
        was: (id != was).then(|| was.to_string()),
        id,
        workspace: (importer.workspace)(FileKind::Windlass, &workspace),
        events,
        runs,
        interrupted: 0,
        left_out: (live > 0).then(|| ("live events".to_owned(), live)).into_iter().collect(),
        unknown: BTreeMap::new(),
    })
}

/// What was found to be right so far.
#[derive(Default)]
struct Checked {
    session: Option<SessionId>,
    workspace: String,
    events: u64,
    runs: u64,
    live: u64,
}

impl Checked {
    fn take(&mut self, number: u64, event: Event) -> Result<(), ImportError> {
        let Order::Durable { seq } = event.order else {
            // The output of a run is its log with what was shown and forgotten in between.
            self.live += 1;
            return Ok(());
        };
        if seq != self.events + 1 {
            return Err(wrong(number, &format!("event {} is missing, here is event {seq}", self.events + 1)));
        }
        match (&self.session, &event.kind) {
            (None, EventKind::SessionOpened { workspace, .. }) => {
                self.session = Some(event.session);
                self.workspace.clone_from(workspace);
            }
            (None, _) => return Err(wrong(number, "a session begins with its opening, and this is another event")),
            (Some(session), _) if *session != event.session => {
                return Err(wrong(number, "it belongs to another session than the lines before it"));
            }
            (Some(_), EventKind::RunStarted { .. }) => self.runs += 1,
            (Some(_), _) => {}
        }
        self.events = seq;
        Ok(())
    }
}

async fn copy(open: &mut OpenFile<'_>, pen: &mut Pen<'_>, events: u64) -> Result<(), ImportError> {
    let mut lines = Lines::new(open()?);
    while pen.seq < events {
        let changed = || ImportError::Line { number: 0, what: "the file was changed while it was read".to_owned() };
        let Some((number, line)) = lines.next_raw()? else { return Err(changed()) };
        let mut event = event(number, line)?;
        let Order::Durable { seq } = event.order else { continue };
        if seq != pen.seq + 1 {
            return Err(changed());
        }
        event.session = pen.id.clone();
        if let EventKind::SessionOpened { workspace, .. } = &mut event.kind {
            *workspace = (pen.importer.workspace)(FileKind::Windlass, workspace);
        }
        pen.write(event).await?;
    }
    pen.sync().await
}

/// One line as an event. That it is newer is said first: it may not look like an event of today at all.
fn event(number: u64, line: &[u8]) -> Result<Event, ImportError> {
    let value: Value = serde_json::from_slice(line).map_err(|err| wrong(number, &format!("it is not JSON: {err}")))?;
    match value.get("v").and_then(Value::as_u64) {
        Some(found) if found > u64::from(VERSION) => Err(ImportError::Newer { number, found }),
        _ => serde_json::from_slice(line).map_err(|err| wrong(number, &format!("it is not an event: {err}"))),
    }
}
