//! `debug otel`: prints the telemetry of a session, computed from its log. It connects to nothing.

use std::process::ExitCode;

use futures_util::StreamExt;
use windlass::core::event::EventKind;
use windlass::core::store::SessionStore;
use windlass::machine::SessionLog;
use windlass::telemetry::{Finished, Meter, Options, Resource, Span, Spans, otlp};

use super::block_on;
use crate::args::OtelArgs;
use crate::command_error::CommandError;
use crate::process;
use crate::session_run::find_session;
use crate::{exit, out};
use windlass::flags::RunFlags;
use windlass::{model, telemetry};

/// The number of spans per output line.
const BATCH: usize = 256;

pub(super) fn run(args: &OtelArgs) -> Result<ExitCode, CommandError> {
    let settings = process::load_settings(None)?;
    let id = find_session(&args.session)?;
    let mut pending = PendingTelemetry {
        resource: telemetry::resource(&settings, id.as_str()),
        spans: Vec::new(),
        meter: Meter::default(),
    };
    let store = SessionLog::new(settings.places.sessions_dir());
    let mut spans = Spans::new(Options {
        content: args.content,
        provider: None,
    });
    let mut model: Option<String> = None;
    block_on(async {
        let mut events = store.read(&id, 1);
        while let Some(event) = events.next().await {
            let event = event?;
            match &event.kind {
                EventKind::SessionOpened { model: first, .. } => model = first.clone(),
                EventKind::ModelSwitched { to, .. } => model = Some(to.clone()),
                EventKind::RunStarted { flags, .. } => {
                    let agent = RunFlags::load(flags)
                        .map(|flags| flags.agent)
                        .unwrap_or_default();
                    spans.options.provider = model::vendor_of(&agent, model.as_deref());
                }
                _ => {}
            }
            pending.take(spans.apply(&event));
            if out::stdout_error().is_some() {
                break;
            }
        }
        Ok(())
    })?;
    pending.take(spans.finish());
    pending.print();
    let series = pending.meter.take();
    if !series.is_empty() {
        out::json(&otlp::metrics(&pending.resource, &series));
    }
    Ok(exit::after_output(0))
}

/// Spans and metrics that are not printed yet.
struct PendingTelemetry {
    resource: Resource,
    spans: Vec<Span>,
    meter: Meter,
}

impl PendingTelemetry {
    fn take(&mut self, finished: Finished) {
        self.spans.extend(finished.spans);
        finished
            .points
            .into_iter()
            .for_each(|point| self.meter.add(point));
        if self.spans.len() >= BATCH {
            self.print();
        }
    }

    fn print(&mut self) {
        if !self.spans.is_empty() {
            out::json(&otlp::traces(&self.resource, &self.spans));
            self.spans.clear();
        }
    }
}
