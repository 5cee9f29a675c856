//! Everything that is known after a case was run. The modules in `kind` fill it in, and those in `check` read it.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use crate::case::{Case, Decision};
use crate::child::ChildResult;
use crate::fixture::CaseFixture;
use crate::http_client::HttpReply;
use crate::product::{self, DrivenProduct};
use crate::server::Server;

/// A screen that the product showed.
pub(crate) struct Screen {
    /// The name of the view.
    pub(crate) view: String,
    pub(crate) text: String,
    /// The product used colours and a status line.
    pub(crate) colour: bool,
}

/// A resumed session before and after.
pub(crate) struct Resumed {
    pub(crate) log: std::path::PathBuf,
    /// The log as the first run left it.
    pub(crate) original: Vec<u8>,
    /// The log as the product found it when it resumed the session.
    pub(crate) damaged: Vec<u8>,
    /// The complete lines of the damaged log.
    pub(crate) whole: Vec<u8>,
    /// The line that was damaged, if it was one in the middle.
    pub(crate) damaged_at: Option<usize>,
    /// The id of the call whose result was removed.
    pub(crate) open_call: Option<String>,
    /// The results of all engines that resumed the session at the same time.
    pub(crate) together: Vec<ChildResult>,
    pub(crate) sessions_before: usize,
}

/// The responses to requests over HTTP, and the session that they were about.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpRound {
    pub(crate) replies: Vec<HttpReply>,
    /// The decision that each request sent, in a case about answers.
    pub(crate) decisions: Vec<String>,
    /// The events of the session after the requests.
    pub(crate) events: Vec<Value>,
}

/// Everything that is known after a case.
pub(crate) struct CaseFacts<'a> {
    pub(crate) product: &'a DrivenProduct,
    pub(crate) case: &'a Case,
    pub(crate) fixture: &'a CaseFixture,
    /// The run that is checked.
    pub(crate) main: ChildResult,
    /// The events of that run.
    pub(crate) events: Vec<Value>,
    /// The id of the call that is checked.
    pub(crate) call: String,
    /// The output of all runs.
    pub(crate) said: Vec<String>,
    /// All screens that the product showed, or would have shown.
    pub(crate) screens: Vec<Screen>,
    pub(crate) reached: Vec<Decision>,
    /// Set if the product does not have the feature: how that was found out.
    pub(crate) absent: Option<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) server: Option<Server>,
    /// The number of requests that the checked run made.
    pub(crate) requests: usize,
    pub(crate) resumed: Option<Resumed>,
    /// The input text, if the case is about a text.
    pub(crate) text: String,
    /// The requests over HTTP, once for each state of the session in which they were sent.
    pub(crate) rounds: Vec<HttpRound>,
    /// The addresses on which the server of the product listens.
    pub(crate) listening: Vec<IpAddr>,
    /// Whether the session worked over HTTP after the requests; `None` if this was not tried.
    pub(crate) survived: Option<Result<(), String>>,
}

impl<'a> CaseFacts<'a> {
    pub(crate) fn new(
        product: &'a DrivenProduct,
        case: &'a Case,
        fixture: &'a CaseFixture,
    ) -> Self {
        Self {
            product,
            case,
            fixture,
            main: ChildResult::default(),
            events: Vec::new(),
            call: String::new(),
            said: Vec::new(),
            screens: Vec::new(),
            reached: Vec::new(),
            absent: None,
            notes: Vec::new(),
            server: None,
            requests: 0,
            resumed: None,
            text: String::new(),
            rounds: Vec::new(),
            listening: Vec::new(),
            survived: None,
        }
    }

    /// Sets the run that is checked.
    pub(crate) fn set_checked_run(&mut self, ran: ChildResult) {
        self.keep_output(&ran);
        self.main = ran;
    }

    /// Keeps the output of a run.
    pub(crate) fn keep_output(&mut self, ran: &ChildResult) {
        self.said.push(ran.out.clone());
        self.said.push(ran.err.clone());
    }

    /// Returns the events of one kind.
    pub(crate) fn of<'l>(&'l self, kind: &'l str) -> impl Iterator<Item = &'l Value> {
        product::of(&self.events, kind)
    }

    /// Returns the calls that were started, in order.
    pub(crate) fn started(&self) -> impl Iterator<Item = &Value> {
        self.of("call_started").map(|event| &event["data"]["call"])
    }

    /// Returns the result that the model got for the checked call.
    pub(crate) fn result(&self) -> Option<&Value> {
        let all = || {
            self.of("call_finished")
                .map(|event| &event["data"]["result"])
        };
        all()
            .find(|result| result["id"] == self.call.as_str())
            .or_else(|| all().last())
    }

    /// Returns the output of the checked command.
    pub(crate) fn output(&self) -> &str {
        let text = self
            .result()
            .and_then(|result| result["text"].as_str())
            .unwrap_or_default();
        product::command_output(text)
    }

    /// Returns whether the checked call was started.
    pub(crate) fn executed(&self) -> bool {
        self.started().any(|call| call["id"] == self.call.as_str())
    }

    /// Returns the exit code of the checked command.
    pub(crate) fn exit_code(&self) -> Option<i64> {
        let ended = self
            .of("command_finished")
            .find(|event| event["data"]["call"] == self.call.as_str())?;
        let end = &ended["data"]["end"];
        end["code"]
            .as_i64()
            .or_else(|| end["exited"]["code"].as_i64())
    }

    /// Returns all text of the product that could contain a secret.
    pub(crate) fn everything(&self) -> Vec<String> {
        let mut all = self.said.clone();
        all.extend(self.screens.iter().map(|screen| screen.text.clone()));
        all.extend(self.logs());
        all
    }

    /// Returns the content of every file of the product's state that was not planted there.
    pub(crate) fn logs(&self) -> Vec<String> {
        const MOST: u64 = 64 << 20;
        let files = CaseFixture::files(&self.fixture.state());
        let own = files.iter().filter(|path| {
            path.symlink_metadata()
                .is_ok_and(|meta| meta.is_file() && meta.len() < MOST)
        });
        // A planted file that has not changed does not belong to the product.
        own.filter(|path| {
            self.fixture.planted.get(*path) != crate::fixture::Stat::of(path).as_ref()
        })
        .filter_map(|path| std::fs::read(path).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
    }

    /// Returns the deadline after which a run is killed.
    pub(crate) fn deadline(case: &Case) -> Duration {
        let wanted = ["finishes_within_ms", "idle_timeout_fires_within_ms"];
        let ms = case
            .post
            .iter()
            .filter(|post| wanted.iter().any(|name| post["check"] == *name));
        let ms = ms
            .filter_map(|post| post["ms"].as_u64())
            .max()
            .unwrap_or(60_000);
        Duration::from_millis((ms + 15_000).min(120_000))
    }
}
