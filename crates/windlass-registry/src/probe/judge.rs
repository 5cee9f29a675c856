//! Judges a probe by the events of the run, the requests to the model server, and the file that landed. Pure functions.

use serde_json::Value;

use super::ProbeTask;

/// The steps of a probe, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeStep {
    /// The run and the agent started.
    Start,
    /// The agent sent the key of the run.
    SignIn,
    /// The agent sent the prompt to its model.
    ModelCall,
    /// The agent executed the call that the model requested.
    ToolCall,
    /// The change landed, or the answer arrived.
    Result,
    /// The run completed with exit code 0.
    End,
}

impl ProbeStep {
    /// The name of the step, for people and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::SignIn => "sign-in",
            Self::ModelCall => "model call",
            Self::ToolCall => "tool call",
            Self::Result => "result",
            Self::End => "end",
        }
    }
}

/// The exit code and the output of the run.
pub(super) struct ProbeOutput {
    pub(super) code: Option<i32>,
    pub(super) events: Vec<Value>,
    pub(super) err: String,
    /// The run exceeded its deadline.
    pub(super) overdue: bool,
}

/// A request that the model server received.
pub(super) struct ProbeRequest {
    /// The request is for the prompt of the probe, and not for a side task such as a title.
    pub(super) work: bool,
    /// The request has the key of the run.
    pub(super) key: bool,
    /// The call of the script for which the agent has no tool.
    pub(super) unmapped: Option<String>,
}

/// The observations of a probe.
pub(super) struct ProbeEvidence<'a> {
    pub(super) task: ProbeTask,
    pub(super) foreign: bool,
    /// The random word that proves that the scripted model caused a result.
    pub(super) marker: &'a str,
    pub(super) output: &'a ProbeOutput,
    pub(super) requests: &'a [ProbeRequest],
    /// The content of the file in the user's tree.
    pub(super) landed: &'a str,
}

impl<'a> ProbeEvidence<'a> {
    /// Whether the runtime did its task; otherwise the first step that failed, and the reason.
    pub(super) fn judge(&self) -> Result<(), (ProbeStep, String)> {
        let wrong = |step: ProbeStep, what: &str| Err((step, self.with_detail(what)));
        let keyless = "its requests did not have the key of the run";
        if !self.began() {
            let ended = ended_with(self.output);
            let why = self.detail().map_or(ended, str::to_owned);
            return Err((self.step_before_start(), why));
        }
        if self.requests.iter().any(|one| one.work && !one.key) {
            return wrong(ProbeStep::SignIn, keyless);
        }
        if !self.requests.iter().any(|one| one.work) {
            return match self.requests.iter().any(|one| !one.key) {
                true => wrong(ProbeStep::SignIn, keyless),
                false => wrong(
                    ProbeStep::ModelCall,
                    "it did not send the prompt to its model",
                ),
            };
        }
        if self.task == ProbeTask::Tool && !self.called() {
            let mut unmapped = self.requests.iter();
            return match unmapped.find_map(|one| one.unmapped.as_deref()) {
                Some(missing) => Err((
                    ProbeStep::ToolCall,
                    format!("it has no tool for the request of the model: {missing}"),
                )),
                None => wrong(
                    ProbeStep::ToolCall,
                    "the call that the model requested is not in the log",
                ),
            };
        }
        let has_result = match self.task {
            ProbeTask::Answer => self.answered(),
            ProbeTask::Tool | ProbeTask::UnreportedTool | ProbeTask::Edit | ProbeTask::Patch => {
                self.landed.trim_end() == self.marker
            }
        };
        if !has_result {
            let what = match self.task {
                ProbeTask::Answer => "the answer of the model did not arrive",
                _ => "the file of the model did not land",
            };
            return wrong(ProbeStep::Result, what);
        }
        if !self.done() || self.output.code != Some(0) || self.output.overdue {
            return wrong(ProbeStep::End, &ended_with(self.output));
        }
        Ok(())
    }

    fn of(&self, kind: &'static str) -> impl Iterator<Item = &'a Value> {
        self.output
            .events
            .iter()
            .filter(move |event| event["kind"] == kind)
    }

    fn outcome(&self) -> Option<&'a Value> {
        self.of("run_finished")
            .last()
            .map(|event| &event["data"]["outcome"])
    }

    fn done(&self) -> bool {
        self.outcome()
            .is_some_and(|outcome| outcome["is"] == "completed")
    }

    /// The detail of the outcome of the run.
    fn detail(&self) -> Option<&'a str> {
        self.outcome()?["detail"]
            .as_str()
            .filter(|text| !text.is_empty())
    }

    fn with_detail(&self, what: &str) -> String {
        self.detail()
            .map_or_else(|| what.to_owned(), |detail| format!("{what}: {detail}"))
    }

    /// Whether the agent started: it called its model, opened a conversation, or completed the run.
    fn began(&self) -> bool {
        let ours = || !self.foreign && self.of("iteration_started").next().is_some();
        let talks = || {
            self.of("iteration_started")
                .any(|event| event["data"]["foreign_session"].is_string())
        };
        !self.requests.is_empty() || ours() || talks() || self.done()
    }

    /// The failed step of an agent that did not start: sign-in if its error mentions a login or a key.
    fn step_before_start(&self) -> ProbeStep {
        let detail = self.detail().unwrap_or_default().to_lowercase();
        let sign_in_words = [
            "authenticat",
            "sign in",
            "signed in",
            "log in",
            "logged in",
            "api key",
        ];
        if sign_in_words.iter().any(|word| detail.contains(word)) {
            ProbeStep::SignIn
        } else {
            ProbeStep::Start
        }
    }

    fn called(&self) -> bool {
        self.of("call_started").any(|event| {
            event["data"]["call"]["args"]
                .to_string()
                .contains(self.marker)
        })
    }

    fn answered(&self) -> bool {
        let said = self
            .of("said")
            .filter(|event| event["data"]["message"]["role"] == "assistant");
        said.into_iter()
            .any(|event| event["data"]["message"].to_string().contains(self.marker))
    }
}

fn ended_with(output: &ProbeOutput) -> String {
    if let Some(error) = output
        .err
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("error: "))
    {
        return error.to_owned();
    }
    match output.code {
        _ if output.overdue => "it exceeded its time limit".to_owned(),
        Some(code) => format!("the run ended with exit code {code}"),
        None => "a signal ended the run".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MARKER: &str = "probe-1";

    fn events(kinds: &[&str]) -> Vec<Value> {
        let event = |kind: &&str| match *kind {
            "call_started" => {
                json!({ "kind": "call_started", "data": { "call": { "args": { "text": "probe-1\n" } } } })
            }
            "other_call" => {
                json!({ "kind": "call_started", "data": { "call": { "args": { "path": "a" } } } })
            }
            "answer" => {
                json!({ "kind": "said", "data": { "message": { "role": "assistant", "parts": [{ "type": "text", "data": { "text": "probe-1" } }] } } })
            }
            "prompt" => {
                json!({ "kind": "said", "data": { "message": { "role": "user", "parts": [{ "type": "text", "data": { "text": "probe-1" } }] } } })
            }
            "begun" => json!({ "kind": "iteration_started", "data": { "foreign_session": "one" } }),
            "unknown" => {
                json!({ "kind": "run_finished", "data": { "outcome": { "is": "failed", "detail": "not signed in" } } })
            }
            "done" => {
                json!({ "kind": "run_finished", "data": { "outcome": { "is": "completed" } } })
            }
            "failed" => {
                json!({ "kind": "run_finished", "data": { "outcome": { "is": "failed", "detail": "it broke" } } })
            }
            kind => json!({ "kind": kind }),
        };
        kinds.iter().map(event).collect()
    }

    fn requests(words: &str) -> Vec<ProbeRequest> {
        let one = |word: &str| ProbeRequest {
            work: !word.contains("side"),
            key: !word.contains("keyless"),
            unmapped: word.contains("unmapped").then(|| "write".to_owned()),
        };
        words.split_whitespace().map(one).collect()
    }

    #[track_caller]
    fn check(
        task: ProbeTask,
        kinds: &[&str],
        words: &str,
        landed: &str,
        code: i32,
        step: Option<ProbeStep>,
    ) {
        let output = ProbeOutput {
            code: Some(code),
            events: events(kinds),
            err: String::new(),
            overdue: false,
        };
        let evidence = ProbeEvidence {
            task,
            foreign: true,
            marker: MARKER,
            output: &output,
            requests: &requests(words),
            landed,
        };
        let failure = evidence.judge().err();
        assert_eq!(failure.as_ref().map(|(step, _)| *step), step, "{failure:?}");
    }

    #[test]
    fn the_first_failed_step_is_reported() {
        let whole = &["begun", "call_started", "done"];
        let (tool, landed) = (ProbeTask::Tool, "probe-1\n");
        check(tool, whole, "work work", landed, 0, None);
        check(tool, &[], "", "", 2, Some(ProbeStep::Start));
        check(
            tool,
            &["iteration_started", "failed"],
            "",
            "",
            1,
            Some(ProbeStep::Start),
        );
        check(
            tool,
            &["iteration_started", "unknown"],
            "",
            "",
            1,
            Some(ProbeStep::SignIn),
        );
        check(
            tool,
            &["begun", "failed"],
            "",
            "",
            1,
            Some(ProbeStep::ModelCall),
        );
        check(
            ProbeTask::UnreportedTool,
            &["iteration_started", "done"],
            "",
            "",
            0,
            Some(ProbeStep::ModelCall),
        );
        check(
            tool,
            &["begun", "failed"],
            "side",
            "",
            1,
            Some(ProbeStep::ModelCall),
        );
        check(
            tool,
            &["begun", "failed"],
            "side-keyless",
            "",
            1,
            Some(ProbeStep::SignIn),
        );
        check(
            tool,
            whole,
            "work keyless",
            landed,
            0,
            Some(ProbeStep::SignIn),
        );
        check(
            tool,
            &["begun", "other_call", "done"],
            "work",
            "",
            0,
            Some(ProbeStep::ToolCall),
        );
        check(
            tool,
            &["begun", "done"],
            "unmapped",
            "",
            0,
            Some(ProbeStep::ToolCall),
        );
        check(tool, whole, "work", "", 0, Some(ProbeStep::Result));
        check(
            tool,
            &["begun", "call_started", "failed"],
            "work",
            landed,
            1,
            Some(ProbeStep::End),
        );
        check(
            tool,
            &["begun", "call_started"],
            "work",
            landed,
            0,
            Some(ProbeStep::End),
        );
        check(
            ProbeTask::Patch,
            &["iteration_started", "done"],
            "work",
            landed,
            0,
            None,
        );
        check(
            ProbeTask::Edit,
            &["iteration_started", "done"],
            "work",
            "",
            0,
            Some(ProbeStep::Result),
        );
        check(
            ProbeTask::Answer,
            &["iteration_started", "answer", "done"],
            "work",
            "",
            0,
            None,
        );
        check(
            ProbeTask::Answer,
            &["iteration_started", "prompt", "done"],
            "work",
            "",
            0,
            Some(ProbeStep::Result),
        );
    }

    #[test]
    fn the_reason_comes_from_the_run() {
        let check = |kinds: &[&str], err: &str, overdue: bool, says: &str| {
            let code = (!overdue).then_some(1);
            let output = ProbeOutput {
                code,
                events: events(kinds),
                err: err.to_owned(),
                overdue,
            };
            let evidence = ProbeEvidence {
                task: ProbeTask::Tool,
                foreign: false,
                marker: MARKER,
                output: &output,
                requests: &[],
                landed: "",
            };
            assert_eq!(
                evidence.judge().err().map(|(_, why)| why).as_deref(),
                Some(says)
            );
        };
        check(
            &["iteration_started", "failed"],
            "",
            false,
            "it did not send the prompt to its model: it broke",
        );
        check(
            &[],
            "error: no such model\nhint: name one\n",
            false,
            "no such model",
        );
        check(&[], "", false, "the run ended with exit code 1");
        check(&[], "", true, "it exceeded its time limit");
    }
}
