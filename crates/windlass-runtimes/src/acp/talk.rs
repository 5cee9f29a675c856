//! One exchange with the agent: something is asked of it, and until it answers, everything it tells is noted and
//! everything it asks is answered, each request exactly once. Requests wait beside each other, up to a bound; behind that
//! the agent is not listened to before one of them is done.

use std::sync::Arc;

use agent_client_protocol::v1::schema::{RequestPermissionRequest, ToolCallUpdate};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use windlass_core::BoxFuture;
use windlass_core::clock::Clock;
use windlass_core::id::CallId;
use windlass_core::runtime::RuntimeError;
use windlass_core::tool::Admitted;

use super::Live;
use super::desk::{self, Grant, Reply, fits};
use super::permission;
use super::terminals;
use super::words::clip;
use crate::agent::{CANCEL_GRACE, End, Visit};
use crate::rpc::{Heard, Rpc, RpcError};

/// Requests of the agent that are under way at a time.
const MAX_WORK: usize = 32;
/// Files that are read for it at a time: their texts wait in memory.
const MAX_READS: usize = 2;

/// How an exchange ended.
#[derive(Debug)]
pub(super) enum Waited {
    /// With an answer.
    Answer(Value),
    /// With an error.
    Error(RpcError),
    /// Without either.
    Gone(End),
}

/// What the agent may ask of us now, and what is made of what it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The conversation is being set up; what it tells is of the past.
    Opening,
    /// It works.
    Working,
}

/// A request of the agent that is under way.
struct Pending {
    n: u64,
    id: Value,
    /// It may be told that nobody decides any more.
    permission: bool,
    /// Its answer may be long.
    reads: bool,
}

/// What came of one.
struct Done {
    n: u64,
    reply: Result<Reply, RuntimeError>,
    judged: Option<Judged>,
}

struct Judged {
    call: CallId,
    admitted: bool,
    grants: Vec<Grant>,
}

/// An exchange.
pub(super) struct Talk<'t, 'a> {
    /// The agent.
    pub live: &'t mut Live,
    visit: &'a Visit<'a>,
    clock: &'a dyn Clock,
    name: &'a str,
    phase: Phase,
    serves: Serves,
    work: FuturesUnordered<BoxFuture<'a, Done>>,
    pending: Vec<Pending>,
    counted: u64,
    cancelled: bool,
}

/// What was offered to the agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Serves {
    /// Files.
    pub fs: bool,
    /// Commands.
    pub terminal: bool,
}

impl<'t, 'a> Talk<'t, 'a> {
    /// With this agent.
    pub(super) fn new(
        live: &'t mut Live,
        visit: &'a Visit<'a>,
        clock: &'a dyn Clock,
        name: &'a str,
        serves: Serves,
    ) -> Self {
        Self {
            live,
            visit,
            clock,
            name,
            phase: Phase::Opening,
            serves,
            work: FuturesUnordered::new(),
            pending: Vec::new(),
            counted: 0,
            cancelled: false,
        }
    }

    fn rpc(&mut self) -> &mut Rpc {
        &mut self.live.rpc
    }

    /// Asks the agent something and follows it until it answers. With a `limit` it has to within that.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        params: &(impl serde::Serialize + Sync),
        phase: Phase,
        limit: Option<std::time::Duration>,
    ) -> Result<Waited, RuntimeError> {
        self.phase = phase;
        let id = self.rpc().request(method, params);
        let (visit, clock) = (self.visit, self.clock);
        let mut limit = limit.map(|limit| clock.sleep(limit));
        let mut grace: Option<BoxFuture<'_, ()>> = None;
        loop {
            let reads = self.pending.iter().filter(|pending| pending.reads).count();
            let listen = self.work.len() < MAX_WORK && reads < MAX_READS;
            let heard = tokio::select! {
                biased;
                () = visit.cancel.cancelled(), if !self.cancelled => {
                    self.call_off();
                    if phase == Phase::Opening {
                        return Ok(Waited::Gone(End::Cancelled));
                    }
                    grace = Some(clock.sleep(CANCEL_GRACE));
                    continue;
                }
                () = passed(&mut grace) => return Ok(Waited::Gone(End::Cancelled)),
                () = passed(&mut limit) => {
                    let why = format!("{} did not answer `{method}` in time", self.name);
                    return Ok(Waited::Gone(End::Broken(why)));
                }
                Some(done) = self.work.next(), if !self.work.is_empty() => {
                    self.finish(done)?;
                    continue;
                }
                heard = self.live.rpc.hear(listen) => heard,
            };
            match heard {
                Heard::Response {
                    id: Some(answered),
                    result,
                } if answered == id => {
                    return Ok(match result {
                        Ok(value) => Waited::Answer(value),
                        Err(err) => Waited::Error(err),
                    });
                }
                // An answer to nothing, or a second one.
                Heard::Response { .. } | Heard::Odd => self.live.odd += 1,
                Heard::Told { method, params } => self.told(&method, params).await?,
                Heard::Request { id, method, params } => {
                    self.requested(id, &method, params).await?
                }
                Heard::End => {
                    let how = self.live.rpc.obituary(clock, CANCEL_GRACE).await;
                    return Ok(Waited::Gone(if self.cancelled {
                        End::Cancelled
                    } else {
                        End::Broken(format!(
                            "{} ended before it answered `{method}`, {how}",
                            self.name
                        ))
                    }));
                }
            }
        }
    }

    async fn told(&mut self, method: &str, mut params: Value) -> Result<(), RuntimeError> {
        // Whatever is not named as the protocol names it is the agent's own.
        if method != "session/update" {
            self.live.odd +=
                u64::from(method.starts_with("session/") || !method.contains(['/', '_', '$']));
            return Ok(());
        }
        let ours = params["sessionId"].as_str() == Some(self.live.session.as_str());
        if self.phase == Phase::Opening || !ours {
            return Ok(());
        }
        let update = params
            .get_mut("update")
            .map(Value::take)
            .unwrap_or_default();
        self.live.transcript.take(self.visit, update).await?;
        let (transcript, desk) = (&self.live.transcript, &self.live.desk);
        desk.keep_grants_of(|call| transcript.is_open(call));
        Ok(())
    }

    async fn requested(
        &mut self,
        id: Value,
        method: &str,
        params: Value,
    ) -> Result<(), RuntimeError> {
        let permission = method == "session/request_permission";
        let served = match method {
            "session/request_permission" => true,
            "fs/read_text_file" | "fs/write_text_file" => self.serves.fs,
            "terminal/create"
            | "terminal/output"
            | "terminal/wait_for_exit"
            | "terminal/kill"
            | "terminal/release" => self.serves.terminal,
            _ => false,
        };
        if !served {
            let err = RpcError::new(
                RpcError::NO_METHOD,
                format!("there is no method `{}` here", clip(method, 200)),
            );
            self.rpc().answer(&id, &Err(err));
            return Ok(());
        }
        if self.cancelled || self.phase == Phase::Opening {
            self.rpc().answer(&id, &called_off(permission));
            return Ok(());
        }
        if params["sessionId"].as_str() != Some(self.live.session.as_str()) {
            let err = RpcError::new(
                RpcError::BAD_PARAMS,
                "this is not the session that works here",
            );
            self.rpc().answer(&id, &Err(err));
            return Ok(());
        }
        self.counted += 1;
        let n = self.counted;
        let work = if permission {
            match fits::<RequestPermissionRequest>(params) {
                Ok(request)
                    if self
                        .live
                        .transcript
                        .is_being_judged(&request.tool_call.tool_call_id.0) =>
                {
                    let err = RpcError::new(
                        RpcError::BAD_PARAMS,
                        "this call is being decided about already",
                    );
                    self.rpc().answer(&id, &Err(err));
                    return Ok(());
                }
                Ok(request) => self.permission(n, request).await?,
                Err(err) => {
                    self.rpc().answer(&id, &Err(err));
                    return Ok(());
                }
            }
        } else {
            // What was said before it is before it in the log.
            self.live.transcript.flush(self.visit).await?;
            self.service(n, method.to_owned(), params)
        };
        self.pending.push(Pending {
            n,
            id,
            permission,
            reads: method == "fs/read_text_file",
        });
        self.work.push(work);
        Ok(())
    }

    async fn permission(
        &mut self,
        n: u64,
        request: RequestPermissionRequest,
    ) -> Result<BoxFuture<'a, Done>, RuntimeError> {
        let RequestPermissionRequest {
            tool_call, options, ..
        } = request;
        let update: ToolCallUpdate = tool_call;
        let told = self.live.transcript.asked(self.visit, update).await?;
        let visit = self.visit;
        Ok(Box::pin(async move {
            match visit.admit(told.foreign(visit.job.files.root())).await {
                Ok(admitted) => {
                    let admitted = matches!(admitted, Admitted::Yes { .. });
                    let outcome = permission::outcome(&options, admitted);
                    // An agent that offers no way to say yes is not told yes.
                    let grants = if outcome.allows {
                        Grant::all_of(&told, visit.job.files.as_ref())
                    } else {
                        Vec::new()
                    };
                    let judged = Some(Judged {
                        call: told.id.clone(),
                        admitted,
                        grants,
                    });
                    Done {
                        n,
                        reply: Ok(Ok(outcome.reply)),
                        judged,
                    }
                }
                Err(err) => Done {
                    n,
                    reply: Err(err),
                    judged: None,
                },
            }
        }))
    }

    fn service(&self, n: u64, method: String, params: Value) -> BoxFuture<'a, Done> {
        let (visit, clock, desk) = (self.visit, self.clock, Arc::clone(&self.live.desk));
        Box::pin(async move {
            let reply = match method.as_str() {
                "fs/read_text_file" => desk::read(visit, clock, params).await,
                "fs/write_text_file" => desk::write(visit, clock, &desk, params).await,
                "terminal/create" => terminals::create(visit, clock, &desk, params).await,
                "terminal/output" => Ok(terminals::output(visit, &desk, params)),
                "terminal/wait_for_exit" => Ok(terminals::wait(visit, clock, &desk, params).await),
                "terminal/kill" => Ok(terminals::kill(visit, &desk, params).await),
                _ => Ok(terminals::release(visit, &desk, params).await),
            };
            Done {
                n,
                reply,
                judged: None,
            }
        })
    }

    fn finish(&mut self, done: Done) -> Result<(), RuntimeError> {
        let reply = done.reply?;
        if let Some(judged) = done.judged {
            self.live.transcript.judged(&judged.call, judged.admitted);
            self.live.desk.grant(judged.grants);
        }
        if let Some(at) = self.pending.iter().position(|pending| pending.n == done.n) {
            let pending = self.pending.swap_remove(at);
            self.rpc().answer(&pending.id, &reply);
        }
        Ok(())
    }

    /// Nobody decides any more: what is under way is answered so, and the agent is told to stop.
    fn call_off(&mut self) {
        self.cancelled = true;
        self.work.clear();
        for pending in std::mem::take(&mut self.pending) {
            self.live
                .rpc
                .answer(&pending.id, &called_off(pending.permission));
        }
        if !self.live.session.is_empty() {
            let params = json!({ "sessionId": self.live.session });
            self.live.rpc.tell("session/cancel", &params);
        }
    }

    /// A turn is over: requests that it left behind are answered, and its commands end.
    pub(super) async fn close(&mut self) {
        self.work.clear();
        for pending in std::mem::take(&mut self.pending) {
            self.live
                .rpc
                .answer(&pending.id, &called_off(pending.permission));
        }
        self.live.desk.keep_grants_of(|_| false);
        self.live
            .desk
            .terminals
            .stop_all(self.visit.job.processes.as_ref())
            .await;
    }
}

fn called_off(permission: bool) -> Reply {
    if permission {
        return Ok(json!({ "outcome": { "outcome": "cancelled" } }));
    }
    Err(RpcError::new(RpcError::CANCELLED, "the turn was cancelled"))
}

async fn passed(wait: &mut Option<BoxFuture<'_, ()>>) {
    match wait {
        Some(wait) => wait.await,
        None => std::future::pending().await,
    }
}
