//! What is known after a case was run. The kinds fill it, the checks read it.

use std::time::Duration;

use serde_json::Value;

use crate::case::{Case, Decision};
use crate::child::Ran;
use crate::fixture::Fixture;
use crate::product::{self, Product};
use crate::server::Server;

/// What the product showed at a terminal.
pub(crate) struct Screen {
    /// Which view it was.
    pub(crate) view: String,
    pub(crate) text: String,
    /// The product drew with colours and a status line of its own.
    pub(crate) colour: bool,
}

/// What a resumed session was and became.
pub(crate) struct Resumed {
    pub(crate) log: std::path::PathBuf,
    /// The log as the first run left it.
    pub(crate) original: Vec<u8>,
    /// The log as it was when the product was to go on with it.
    pub(crate) damaged: Vec<u8>,
    /// The lines that were whole then.
    pub(crate) whole: Vec<u8>,
    /// Where a line was damaged, when one in the middle was.
    pub(crate) damaged_at: Option<usize>,
    /// The call whose result was taken away.
    pub(crate) open_call: Option<String>,
    /// Every engine that went on with it at once.
    pub(crate) together: Vec<Ran>,
    pub(crate) sessions_before: usize,
}

/// Everything that is known after a case.
pub(crate) struct Facts<'a> {
    pub(crate) product: &'a Product,
    pub(crate) case: &'a Case,
    pub(crate) place: &'a Fixture,
    /// The run that is judged.
    pub(crate) main: Ran,
    /// Its events.
    pub(crate) events: Vec<Value>,
    /// The call that is judged.
    pub(crate) call: String,
    /// Everything any run said.
    pub(crate) said: Vec<String>,
    /// What stood at a terminal, or would have.
    pub(crate) screens: Vec<Screen>,
    pub(crate) reached: Vec<Decision>,
    /// The feature is not there: how that was seen.
    pub(crate) absent: Option<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) server: Option<Server>,
    /// Requests the judged run made.
    pub(crate) requests: usize,
    pub(crate) resumed: Option<Resumed>,
    /// The text that was fed in, when the case is about a text.
    pub(crate) text: String,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(product: &'a Product, case: &'a Case, place: &'a Fixture) -> Self {
        Self {
            product,
            case,
            place,
            main: Ran::default(),
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
        }
    }

    /// Keeps the run that is judged.
    pub(crate) fn judge(&mut self, ran: Ran) {
        self.hear(&ran);
        self.main = ran;
    }

    /// Keeps what a run said.
    pub(crate) fn hear(&mut self, ran: &Ran) {
        self.said.push(ran.out.clone());
        self.said.push(ran.err.clone());
    }

    /// Events of one kind.
    pub(crate) fn of<'l>(&'l self, kind: &'l str) -> impl Iterator<Item = &'l Value> {
        product::of(&self.events, kind)
    }

    /// The calls that were run, in order.
    pub(crate) fn started(&self) -> impl Iterator<Item = &Value> {
        self.of("call_started").map(|event| &event["data"]["call"])
    }

    /// What the model was told about the call that is judged.
    pub(crate) fn result(&self) -> Option<&Value> {
        let all = || {
            self.of("call_finished")
                .map(|event| &event["data"]["result"])
        };
        all()
            .find(|result| result["id"] == self.call.as_str())
            .or_else(|| all().last())
    }

    /// What the judged call itself said.
    pub(crate) fn output(&self) -> &str {
        let text = self
            .result()
            .and_then(|result| result["text"].as_str())
            .unwrap_or_default();
        product::command_output(text)
    }

    /// Whether the judged call had any effect at all.
    pub(crate) fn executed(&self) -> bool {
        self.started().any(|call| call["id"] == self.call.as_str())
    }

    /// How the judged command ended: its exit code.
    pub(crate) fn exit_code(&self) -> Option<i64> {
        let ended = self
            .of("command_finished")
            .find(|event| event["data"]["call"] == self.call.as_str())?;
        let end = &ended["data"]["end"];
        end["code"]
            .as_i64()
            .or_else(|| end["exited"]["code"].as_i64())
    }

    /// What of the product's own files and words could tell a secret.
    pub(crate) fn everything(&self) -> Vec<String> {
        let mut all = self.said.clone();
        all.extend(self.screens.iter().map(|screen| screen.text.clone()));
        all.extend(self.logs());
        all
    }

    /// Every file of the product's state that was not planted there.
    pub(crate) fn logs(&self) -> Vec<String> {
        const MOST: u64 = 64 << 20;
        let files = Fixture::files(&self.place.state());
        let own = files.iter().filter(|path| {
            path.symlink_metadata()
                .is_ok_and(|meta| meta.is_file() && meta.len() < MOST)
        });
        // What was planted there and is as it was is not the product's.
        own.filter(|path| self.place.planted.get(*path) != crate::fixture::Stat::of(path).as_ref())
            .filter_map(|path| std::fs::read(path).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect()
    }

    /// The longest a run may take before it is ended.
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
