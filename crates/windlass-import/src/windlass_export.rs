//! Imports an export of Windlass: the same events, under the same id if that is free. Anything that would take effect
//! by itself is removed, because the file may come from anyone: run flags, queued prompts and open questions.

use std::collections::BTreeMap;

use windlass_core::event::{Event, EventKind, Line, Order, read_line};
use windlass_core::flags::SavedFlags;
use windlass_core::id::SessionId;
use windlass_core::overview::SessionOverview;
use windlass_core::store::create_session;

use super::event_builder::UnnumberedEvent;
use super::{
    FileKind, ImportError, Imported, Importer, JsonLineReader, OpenFile, SessionWriter, wrong,
};

pub(super) async fn import(
    importer: &Importer<'_>,
    open: &mut OpenFile<'_>,
) -> Result<Imported, ImportError> {
    let mut check = ExportCheck::default();
    let mut lines = JsonLineReader::new(open()?);
    while let Some((number, line)) = lines.next_raw()? {
        check.take(number, event(number, line)?)?;
    }
    let ExportCheck {
        session: Some(was),
        events,
        runs,
        live,
        overview,
    } = check
    else {
        return Err(ImportError::Nothing);
    };
    let (id, writer) = create_session(importer.store, importer.clock, Some(&was)).await?;
    let mut session = SessionWriter::new(importer, id.clone(), writer);
    let finished =
        overview.open.is_none() && overview.asks.is_empty() && overview.queue.all().is_empty();
    let written = copy(open, &mut session, events, (!finished).then_some(&was)).await;
    importer.delete_if_failed(&id, session, written).await?;
    let counts = [
        ("live events", live),
        ("open questions", overview.asks.len() as u64),
        ("queued prompts", overview.queue.all().len() as u64),
    ];
    Ok(Imported {
        kind: FileKind::Windlass,
        was: (id != was).then(|| was.to_string()),
        id,
        workspace: (importer.workspace)(FileKind::Windlass, &overview.workspace),
        events: events + u64::from(!finished),
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

/// Checks the lines of an export and counts them.
#[derive(Default)]
struct ExportCheck {
    session: Option<SessionId>,
    events: u64,
    runs: u64,
    live: u64,
    /// The state of the session after the last line.
    overview: SessionOverview,
}

impl ExportCheck {
    fn take(&mut self, number: u64, event: Event) -> Result<(), ImportError> {
        let Order::Durable { seq } = event.order else {
            // The output of `run --json` has live events between the durable ones; they are not logged.
            self.live += 1;
            return Ok(());
        };
        if seq != self.events + 1 {
            return Err(wrong(
                number,
                &format!("event {} is missing; this is event {seq}", self.events + 1),
            ));
        }
        match (&self.session, &event.kind) {
            (None, EventKind::SessionOpened { .. }) => self.session = Some(event.session.clone()),
            (None, _) => {
                return Err(wrong(
                    number,
                    "the first event of a session must be `session_opened`",
                ));
            }
            (Some(session), _) if *session != event.session => {
                return Err(wrong(
                    number,
                    "it belongs to another session than the previous lines",
                ));
            }
            (Some(_), EventKind::RunStarted { .. }) => self.runs += 1,
            (Some(_), _) => {}
        }
        self.events = seq;
        self.overview.apply(&event);
        Ok(())
    }
}

/// Copies the events. A session that was not finished becomes a fork of itself, so that nothing in it is pending.
async fn copy(
    open: &mut OpenFile<'_>,
    session: &mut SessionWriter<'_>,
    events: u64,
    copy_of: Option<&SessionId>,
) -> Result<(), ImportError> {
    let mut lines = JsonLineReader::new(open()?);
    while session.seq < events {
        let changed = || ImportError::Line {
            number: 0,
            what: "the file changed while it was being read".to_owned(),
        };
        let Some((number, line)) = lines.next_raw()? else {
            return Err(changed());
        };
        let mut event = event(number, line)?;
        let Order::Durable { seq } = event.order else {
            continue;
        };
        if seq != session.seq + 1 {
            return Err(changed());
        }
        event.session = session.id.clone();
        match &mut event.kind {
            EventKind::SessionOpened { workspace, .. } => {
                *workspace = (session.importer.workspace)(FileKind::Windlass, workspace);
            }
            // The flags of the file would choose the server that receives the next prompt and the API key.
            EventKind::RunStarted { flags, .. } => *flags = SavedFlags::default(),
            // The changes in the file were made on another machine, so they must not be undone here.
            EventKind::FileChanged { swap, .. } => *swap = None,
            EventKind::Landed { landed, .. } => landed.swaps.clear(),
            EventKind::Undone { swaps, .. } | EventKind::Redone { swaps, .. } => swaps.clear(),
            _ => {}
        }
        session.write(event).await?;
    }
    if let Some(from) = copy_of {
        let kind = EventKind::Forked {
            from: from.clone(),
            at_seq: events,
        };
        session
            .write_all(vec![UnnumberedEvent {
                at: session.importer.clock.now(),
                run: None,
                kind,
            }])
            .await?;
    }
    session.sync().await
}

/// Parses one line as an event.
fn event(number: u64, line: &[u8]) -> Result<Event, ImportError> {
    let text = std::str::from_utf8(line)
        .map_err(|err| wrong(number, &format!("it is not text: {err}")))?;
    match read_line(text, |_| true) {
        Ok(Line::Event(event)) => Ok(event),
        Ok(Line::OtherVersion(found)) => Err(ImportError::OtherVersion { number, found }),
        Ok(Line::Skipped(_)) => Err(wrong(number, "it was skipped by the parser")),
        Err(err) if err.is_data() => Err(wrong(number, &format!("it is not an event: {err}"))),
        Err(err) => Err(wrong(number, &format!("it is not JSON: {err}"))),
    }
}
