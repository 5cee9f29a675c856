//! Our own export comes back as it was: the same events, under the same id when that is free. Only what would act by
//! itself does not come along: a file may be anybody's, so that no flag, no waiting prompt and no open question of it
//! counts here.

use std::collections::BTreeMap;

use windlass_core::event::{Event, EventKind, Line, Order, read_line};
use windlass_core::flags::SavedFlags;
use windlass_core::id::SessionId;
use windlass_core::overview::SessionOverview;
use windlass_core::store::create_session;

use super::weave::Fact;
use super::{FileKind, ImportError, Imported, Importer, Lines, OpenFile, Pen, wrong};

pub(super) async fn import(
    importer: &Importer<'_>,
    open: &mut OpenFile<'_>,
) -> Result<Imported, ImportError> {
    let mut checked = Checked::default();
    let mut lines = Lines::new(open()?);
    while let Some((number, line)) = lines.next_raw()? {
        checked.take(number, event(number, line)?)?;
    }
    let Checked {
        session: Some(was),
        events,
        runs,
        live,
        glance,
    } = checked
    else {
        return Err(ImportError::Nothing);
    };
    let (id, writer) = create_session(importer.store, importer.clock, Some(&was)).await?;
    let mut pen = Pen::new(importer, id.clone(), writer);
    let at_rest = glance.open.is_none() && glance.asks.is_empty() && glance.queue.all().is_empty();
    let written = copy(open, &mut pen, events, (!at_rest).then_some(&was)).await;
    importer.unless_failed(&id, pen, written).await?;
    let counts = [
        ("live events", live),
        ("questions that waited", glance.asks.len() as u64),
        ("prompts that waited", glance.queue.all().len() as u64),
    ];
    Ok(Imported {
        kind: FileKind::Windlass,
        was: (id != was).then(|| was.to_string()),
        id,
        workspace: (importer.workspace)(FileKind::Windlass, &glance.workspace),
        events: events + u64::from(!at_rest),
        runs,
        interrupted: 0,
        left_out: counts
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .map(|(what, n)| (what.to_owned(), n))
            .collect(),
        unknown: BTreeMap::new(),
    })
}

/// What was found to be right so far.
#[derive(Default)]
struct Checked {
    session: Option<SessionId>,
    events: u64,
    runs: u64,
    live: u64,
    /// Where it stands at its end.
    glance: SessionOverview,
}

impl Checked {
    fn take(&mut self, number: u64, event: Event) -> Result<(), ImportError> {
        let Order::Durable { seq } = event.order else {
            // The output of a run is its log with what was shown and forgotten in between.
            self.live += 1;
            return Ok(());
        };
        if seq != self.events + 1 {
            return Err(wrong(
                number,
                &format!("event {} is missing, here is event {seq}", self.events + 1),
            ));
        }
        match (&self.session, &event.kind) {
            (None, EventKind::SessionOpened { .. }) => self.session = Some(event.session.clone()),
            (None, _) => {
                return Err(wrong(
                    number,
                    "a session begins with its opening, and this is another event",
                ));
            }
            (Some(session), _) if *session != event.session => {
                return Err(wrong(
                    number,
                    "it belongs to another session than the lines before it",
                ));
            }
            (Some(_), EventKind::RunStarted { .. }) => self.runs += 1,
            (Some(_), _) => {}
        }
        self.events = seq;
        self.glance.apply(&event);
        Ok(())
    }
}

/// Copies the events. What did not end there is a copy of it here, in which nothing waits any more.
async fn copy(
    open: &mut OpenFile<'_>,
    pen: &mut Pen<'_>,
    events: u64,
    copy_of: Option<&SessionId>,
) -> Result<(), ImportError> {
    let mut lines = Lines::new(open()?);
    while pen.seq < events {
        let changed = || ImportError::Line {
            number: 0,
            what: "the file was changed while it was read".to_owned(),
        };
        let Some((number, line)) = lines.next_raw()? else {
            return Err(changed());
        };
        let mut event = event(number, line)?;
        let Order::Durable { seq } = event.order else {
            continue;
        };
        if seq != pen.seq + 1 {
            return Err(changed());
        }
        event.session = pen.id.clone();
        match &mut event.kind {
            EventKind::SessionOpened { workspace, .. } => {
                *workspace = (pen.importer.workspace)(FileKind::Windlass, workspace);
            }
            // Flags of a file would choose the server that gets the next prompt and the key.
            EventKind::RunStarted { flags, .. } => *flags = SavedFlags::default(),
            // What a file says was done here was done elsewhere: nothing of it is taken back.
            EventKind::FileChanged { swap, .. } => *swap = None,
            EventKind::Landed { landed, .. } => landed.swaps.clear(),
            EventKind::Undone { swaps, .. } | EventKind::Redone { swaps, .. } => swaps.clear(),
            _ => {}
        }
        pen.write(event).await?;
    }
    if let Some(from) = copy_of {
        let kind = EventKind::Forked {
            from: from.clone(),
            at_seq: events,
        };
        pen.write_all(vec![Fact {
            at: pen.importer.clock.now(),
            run: None,
            kind,
        }])
        .await?;
    }
    pen.sync().await
}

/// One line as an event.
fn event(number: u64, line: &[u8]) -> Result<Event, ImportError> {
    let text = std::str::from_utf8(line)
        .map_err(|err| wrong(number, &format!("it is not text: {err}")))?;
    match read_line(text, |_| true) {
        Ok(Line::Event(event)) => Ok(event),
        Ok(Line::OtherVersion(found)) => Err(ImportError::OtherVersion { number, found }),
        Ok(Line::Skipped(_)) => Err(wrong(number, "it was not read")),
        Err(err) if err.is_data() => Err(wrong(number, &format!("it is not an event: {err}"))),
        Err(err) => Err(wrong(number, &format!("it is not JSON: {err}"))),
    }
}
