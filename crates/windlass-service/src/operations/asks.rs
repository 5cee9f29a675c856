//! Operations on asks: list and answer them.

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::core::ask::{Answer, Ask};
use windlass::core::event::EventKind;
use windlass::core::id::{AskId, SessionId};
use windlass::core::session_state::SessionState;
use windlass::core::store::{SessionStore, Skimmed};

use super::{Call, Json, Method, NoParams, Operation};
use crate::access::Scope;
use crate::drive::SessionWork;
use crate::live::{check_answer, no_such_ask};
use crate::problem::Problem;
use crate::service::Service;

/// Maximum number of sessions that are searched for asks.
const MAX_SESSIONS: usize = 10_000;
/// Maximum number of asks in the list.
const MAX_ASKS: usize = 1_000;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "asks.list",
            (Method::Get, "/v1/asks", 200),
            Scope::Read,
            "List the open asks of all sessions, the newest session first",
            list,
        ),
        Operation::new(
            "asks.answer",
            (Method::Post, "/v1/sessions/{session}/asks/{ask}", 200),
            Scope::Approve,
            "Answer an open ask; a paused run resumes",
            answer,
        ),
    ]
}

/// An open ask with its session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OpenAsk {
    pub session: SessionId,
    pub workspace: String,
    #[serde(flatten)]
    pub ask: Ask,
}

async fn list(call: Call, _: NoParams) -> Result<Json<Vec<OpenAsk>>, Problem> {
    let mut found = Vec::new();
    let mut heads = call.service.0.store.list().take(MAX_SESSIONS);
    while let Some(head) = heads.next().await {
        let Ok(head) = head else { continue };
        let may_wait = matches!(head.state, SessionState::Waiting | SessionState::Running);
        if !may_wait || !call.service.shows(&call.caller, &head.workspace) {
            continue;
        }
        // A damaged session does not hide the others.
        let Ok(overview) = call.service.overview(&head.id, None).await else {
            continue;
        };
        found.extend(overview.asks.into_iter().map(|ask| OpenAsk {
            session: head.id.clone(),
            workspace: head.workspace.clone(),
            ask,
        }));
        if found.len() >= MAX_ASKS {
            break;
        }
    }
    Ok(Json(found))
}

/// The kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AnswerWord {
    /// Allow this one call or landing.
    Once,
    /// Allow this call, and later every call that matches the offered rule, or `rule`.
    Always,
    No,
    /// Answer a question of the model with a text.
    Text,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    { "properties": {
        "answer": { "const": "once" }, "note": { "type": "null" }, "text": { "type": "null" },
        "rule": { "type": "null" }
    } },
    { "properties": {
        "answer": { "const": "always" }, "note": { "type": "null" }, "text": { "type": "null" }
    } },
    { "properties": {
        "answer": { "const": "no" }, "text": { "type": "null" }, "rule": { "type": "null" }
    } },
    {
        "properties": {
            "answer": { "const": "text" }, "note": { "type": "null" }, "text": { "type": "string" },
            "rule": { "type": "null" }
        },
        "required": ["text"]
    },
]))]
struct AnswerParams {
    session: SessionId,
    ask: AskId,
    answer: AnswerWord,
    /// The reason of a `no`, which the model gets.
    #[serde(default)]
    note: Option<String>,
    /// The text of an answer to a question.
    #[serde(default)]
    text: Option<String>,
    /// The rule of an `always` instead of the offered one, for example `bash(cargo publish *)`.
    #[serde(default)]
    rule: Option<String>,
}

impl AnswerParams {
    fn answer(&self) -> Result<Answer, Problem> {
        Ok(match (self.answer, &self.text, &self.note, &self.rule) {
            (AnswerWord::Once, None, None, None) => Answer::Once,
            (AnswerWord::Always, None, None, rule) => Answer::Always { rule: rule.clone() },
            (AnswerWord::No, None, note, None) => Answer::No { note: note.clone() },
            (AnswerWord::Text, Some(text), None, None) => Answer::Text { text: text.clone() },
            _ => {
                return Err(Problem::invalid(
                    "`note` belongs to the answer `no`, `rule` to `always`, and `text` to the answer `text`, which needs it",
                ));
            }
        })
    }
}

/// An answer that is in the log.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Answered {
    pub session: SessionId,
    pub ask: AskId,
}

async fn answer(call: Call, params: AnswerParams) -> Result<Json<Answered>, Problem> {
    let host = call.service.host(&call.caller, &params.session).await?;
    let answer = params.answer()?;
    let done = Json(Answered {
        session: params.session.clone(),
        ask: params.ask.clone(),
    });
    if call.interrupted && call.service.was_answered(&params, &answer, &call).await? {
        return Ok(done);
    }
    call.service.accept_work()?;
    let who = call.caller.token.clone();
    if host
        .answer(&call.service, &params.ask, answer.clone(), who.clone())
        .await?
    {
        return Ok(done);
    }
    let overview = call.service.overview(&host.id, None).await?;
    let open = overview.asks.iter().find(|open| open.id == params.ask);
    check_answer(open.ok_or_else(|| no_such_ask(&params.ask))?, &answer)?;
    let work = SessionWork::Answer {
        ask: params.ask.clone(),
        answer,
        who,
    };
    call.service
        .mark_work(&host.id, call.caller.token.as_deref())?;
    call.service.start_work(host, work, &call.caller).await?;
    Ok(done)
}

impl Service {
    /// Whether an earlier attempt of the same request answered the ask.
    async fn was_answered(
        &self,
        params: &AnswerParams,
        wanted: &Answer,
        call: &Call,
    ) -> Result<bool, Problem> {
        let mut events = self
            .0
            .store
            .skim(&params.session, 1, |kind| kind == "answered");
        while let Some(event) = events.next().await {
            if let Skimmed::Event(event) = event?
                && let EventKind::Answered {
                    ask, answer, who, ..
                } = &event.kind
                && *ask == params.ask
            {
                return Ok(answer == wanted && *who == call.caller.token);
            }
        }
        Ok(false)
    }
}
