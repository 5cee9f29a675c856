//! A conversation is begun, or gone on with: the server is started and waited for, told the model, and followed. Actions
//! that an earlier process left waiting are refused first, because the server would take the next run for a yes.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::event::DeltaOf;
use windlass_core::runtime::RuntimeError;

use super::live::{Heard, Live};
use super::{OpenHands, launch};
use crate::agent::{CANCEL_GRACE, End, Visit};
use crate::peer::Peer;

/// How long the server may take to start: it reads some hundred megabytes of Python, from a disk that may be cold.
const START: Duration = Duration::from_secs(180);
/// How long everything up to the first prompt may take then.
const BEGIN: Duration = Duration::from_secs(60);
/// The longest name of a conversation.
const MAX_ID: usize = 64;

/// A server that runs, with its conversation; or why there is none.
pub(super) async fn open(
    agent: &OpenHands,
    visit: &Visit<'_>,
) -> Result<Result<Live, End>, RuntimeError> {
    let Some(llm) = launch::llm(&agent.options, agent.dialect, &visit.model) else {
        let why = "OpenHands has no sign-in of its own; leave `--auth login` out".to_owned();
        return Ok(Err(End::Broken(why)));
    };
    let started = match launch::launch(&agent.options, visit) {
        Ok(launch) => visit
            .place
            .start(launch)
            .await
            .map_err(|err| err.to_string()),
        Err(err) => Err(err),
    };
    let mut live = match started {
        Ok(inmate) => Live::new(Peer::new(inmate)),
        Err(err) => {
            return Ok(Err(End::Broken(format!(
                "`{}` could not be started: {err}",
                agent.options.python
            ))));
        }
    };
    visit.delta(
        DeltaOf::Reasoning,
        "OpenHands starts its server, which may take a minute.\n",
    );
    let begun = tokio::select! {
        biased;
        () = visit.cancel.cancelled() => return Ok(Err(End::Cancelled)),
        begun = begin(agent, visit, &mut live, &llm) => begun,
    };
    let Err(why) = begun else {
        visit.began(Some(&live.id)).await?;
        return Ok(Ok(live));
    };
    let how = live.obituary(visit.clock, CANCEL_GRACE * 4).await;
    Ok(Err(End::Broken(format!(
        "its server could not be used: {why}; it ended {how}"
    ))))
}

async fn begin(
    agent: &OpenHands,
    visit: &Visit<'_>,
    live: &mut Live,
    llm: &Value,
) -> Result<(), String> {
    tokio::select! {
        biased;
        () = visit.clock.sleep(START) => return Err(format!("it did not start within {} seconds", START.as_secs())),
        ready = ready(live) => ready?,
    }
    tokio::select! {
        biased;
        () = visit.clock.sleep(BEGIN) => Err(format!("it did not begin within {} seconds", BEGIN.as_secs())),
        begun = converse(agent, visit, live, llm) => begun,
    }
}

async fn ready(live: &mut Live) -> Result<(), String> {
    loop {
        match live.hear().await {
            Heard::Ready => return Ok(()),
            Heard::Failed(why) => return Err(why),
            Heard::End => return Err("it ended before it answered".to_owned()),
            Heard::Answer(..) | Heard::Event(_) | Heard::Odd => live.odd += 1,
        }
    }
}

async fn converse(
    agent: &OpenHands,
    visit: &Visit<'_>,
    live: &mut Live,
    llm: &Value,
) -> Result<(), String> {
    let resumed = match visit.session() {
        Some(id) => {
            let known = go_on(agent, visit, live, &id, llm).await?;
            live.forgot = !known;
            known
        }
        None => false,
    };
    if !resumed {
        let body = launch::conversation(&agent.options, visit, llm);
        let asked = live.ask("POST", "/api/conversations", &body);
        let reply = live.answer(asked).await?;
        let id = reply
            .body
            .get("id")
            .and_then(Value::as_str)
            .filter(|id| reply.is_good() && is_id(id));
        let Some(id) = id else {
            return Err(format!("it began no conversation: {}", reply.complaint()));
        };
        id.clone_into(&mut live.id);
    }
    let asked = live.follow();
    let reply = live.answer(asked).await?;
    if reply.is_good() {
        Ok(())
    } else {
        Err(format!(
            "its events cannot be followed: {}",
            reply.complaint()
        ))
    }
}

/// Takes a conversation of earlier up again; whether it is there, and was begun on the same terms.
async fn go_on(
    agent: &OpenHands,
    visit: &Visit<'_>,
    live: &mut Live,
    id: &str,
    llm: &Value,
) -> Result<bool, String> {
    if !is_id(id) {
        return Ok(false);
    }
    let asked = live.ask("GET", &format!("/api/conversations/{id}"), &Value::Null);
    let reply = live.answer(asked).await?;
    let terms = reply
        .body
        .get("tags")
        .and_then(|tags| tags.get("windlass")?.as_str());
    if !reply.is_good()
        || terms != Some(launch::terms(&agent.options, visit.job.files.root()).as_str())
    {
        return Ok(false);
    }
    id.clone_into(&mut live.id);
    // What it took earlier was told when it was spent.
    if let Some(stats) = reply.body.get("stats") {
        live.meter.more(stats);
    }
    let refused = json!({ "accept": false, "reason": "stopped before it was run" });
    let policy = json!({ "policy": { "kind": "AlwaysConfirm" } });
    let steps = [
        ("events/respond_to_confirmation", refused),
        ("confirmation_policy", policy),
        ("switch_llm", json!({ "llm": llm })),
    ];
    for (what, body) in steps {
        let asked = live.post(what, &body);
        let reply = live.answer(asked).await?;
        if !reply.is_good() {
            return Err(format!(
                "it does not go on with its conversation: {}",
                reply.complaint()
            ));
        }
    }
    Ok(true)
}

/// Whether it can be a part of a path.
fn is_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= MAX_ID
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}
