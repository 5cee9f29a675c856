//! What a rehearsal proved, by the log of the run and by what the model server saw. Pure.

use serde_json::Value;

use super::Task;

/// The steps of a rehearsal, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The run and the agent in it began.
    Start,
    /// The agent used the key that it was given.
    SignIn,
    /// It asked its model for the work.
    ModelCall,
    /// It did the call that the model asked for.
    ToolCall,
    /// What it did is in the tree.
    Result,
    /// The run ended well.
    End,
}

impl Step {
    /// Its word.
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

/// What was heard of the run.
pub(super) struct Heard {
    pub(super) code: Option<i32>,
    pub(super) events: Vec<Value>,
    pub(super) err: String,
    /// Its time was up.
    pub(super) overdue: bool,
}

/// A request that the model server saw.
pub(super) struct Seen {
    /// Part of the work, and no side question.
    pub(super) work: bool,
    /// It had the key that was given to the run.
    pub(super) key: bool,
    /// What the script wanted and the agent has no tool for.
    pub(super) unmapped: Option<String>,
}

/// All that is known of a rehearsal.
pub(super) struct Evidence<'a> {
    pub(super) task: Task,
    /// The agent is not ours.
    pub(super) foreign: bool,
    /// The word that nobody else knows.
    pub(super) marker: &'a str,
    pub(super) heard: &'a Heard,
    pub(super) seen: &'a [Seen],
    /// What is in the file that the task is about.
    pub(super) landed: &'a str,
}

impl<'a> Evidence<'a> {
    /// Whether it did its task; else the first step that it did not take, and why.
    pub(super) fn judge(&self) -> Result<(), (Step, String)> {
        let wrong = |step: Step, what: &str| Err((step, self.told(what)));
        let keyless = "its requests did not have the key of the run";
        if !self.began() {
            let ended = ended_with(self.heard);
            return Err((self.not_begun(), self.detail().map_or(ended, str::to_owned)));
        }
        if self.seen.iter().any(|one| one.work && !one.key) {
            return wrong(Step::SignIn, keyless);
        }
        if !self.seen.iter().any(|one| one.work) {
            return match self.seen.iter().any(|one| !one.key) {
                true => wrong(Step::SignIn, keyless),
                false => wrong(Step::ModelCall, "it did not ask its model for the work"),
            };
        }
        if self.task == Task::Tool && !self.called() {
            return match self.seen.iter().find_map(|one| one.unmapped.as_deref()) {
                Some(missing) => Err((
                    Step::ToolCall,
                    format!("it has no tool for what the model wants: {missing}"),
                )),
                None => wrong(
                    Step::ToolCall,
                    "the call that the model asked for is not in the log",
                ),
            };
        }
        let there = match self.task {
            Task::Answer => self.answered(),
            Task::Tool | Task::Untold | Task::Edit | Task::Patch => {
                self.landed.trim_end() == self.marker
            }
        };
        if !there {
            return wrong(Step::Result, "what the model wanted did not come of it");
        }
        if !self.done() || self.heard.code != Some(0) || self.heard.overdue {
            return wrong(Step::End, &ended_with(self.heard));
        }
        Ok(())
    }

    fn of(&self, kind: &'static str) -> impl Iterator<Item = &'a Value> {
        self.heard
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

    /// What the run said of its end.
    fn detail(&self) -> Option<&'a str> {
        self.outcome()?["detail"]
            .as_str()
            .filter(|text| !text.is_empty())
    }

    fn told(&self, what: &str) -> String {
        self.detail()
            .map_or_else(|| what.to_owned(), |detail| format!("{what}: {detail}"))
    }

    /// Whether the agent worked at all: it asked its model something, had a conversation of its own, or was done.
    fn began(&self) -> bool {
        let ours = || !self.foreign && self.of("iteration_started").next().is_some();
        let talks = || {
            self.of("iteration_started")
                .any(|event| event["data"]["foreign_session"].is_string())
        };
        !self.seen.is_empty() || ours() || talks() || self.done()
    }

    /// Which step it was that an agent did not take which never began.
    fn not_begun(&self) -> Step {
        let detail = self.detail().unwrap_or_default().to_lowercase();
        let of_keys = [
            "authenticat",
            "sign in",
            "signed in",
            "log in",
            "logged in",
            "api key",
        ];
        if of_keys.iter().any(|word| detail.contains(word)) {
            Step::SignIn
        } else {
            Step::Start
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

fn ended_with(heard: &Heard) -> String {
    if let Some(error) = heard
        .err
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("error: "))
    {
        return error.to_owned();
    }
    match heard.code {
        _ if heard.overdue => "it was not done in time".to_owned(),
        Some(code) => format!("the run ended with exit code {code}"),
        None => "the run was ended by a signal".to_owned(),
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

    fn seen(words: &str) -> Vec<Seen> {
        let one = |word: &str| Seen {
            work: !word.contains("side"),
            key: !word.contains("keyless"),
            unmapped: word.contains("unmapped").then(|| "write".to_owned()),
        };
        words.split_whitespace().map(one).collect()
    }

    #[track_caller]
    fn check(
        task: Task,
        kinds: &[&str],
        requests: &str,
        landed: &str,
        code: i32,
        step: Option<Step>,
    ) {
        let heard = Heard {
            code: Some(code),
            events: events(kinds),
            err: String::new(),
            overdue: false,
        };
        let seen = seen(requests);
        let evidence = Evidence {
            task,
            foreign: true,
            marker: MARKER,
            heard: &heard,
            seen: &seen,
            landed,
        };
        let fell = evidence.judge().err();
        assert_eq!(fell.as_ref().map(|(step, _)| *step), step, "{fell:?}");
    }

    #[test]
    fn the_first_step_that_was_not_taken_is_named() {
        let whole = &["begun", "call_started", "done"];
        let (tool, landed) = (Task::Tool, "probe-1\n");
        check(tool, whole, "work work", landed, 0, None);
        check(tool, &[], "", "", 2, Some(Step::Start));
        check(
            tool,
            &["iteration_started", "failed"],
            "",
            "",
            1,
            Some(Step::Start),
        );
        check(
            tool,
            &["iteration_started", "unknown"],
            "",
            "",
            1,
            Some(Step::SignIn),
        );
        check(tool, &["begun", "failed"], "", "", 1, Some(Step::ModelCall));
        check(
            Task::Untold,
            &["iteration_started", "done"],
            "",
            "",
            0,
            Some(Step::ModelCall),
        );
        check(
            tool,
            &["begun", "failed"],
            "side",
            "",
            1,
            Some(Step::ModelCall),
        );
        check(
            tool,
            &["begun", "failed"],
            "side-keyless",
            "",
            1,
            Some(Step::SignIn),
        );
        check(tool, whole, "work keyless", landed, 0, Some(Step::SignIn));
        check(
            tool,
            &["begun", "other_call", "done"],
            "work",
            "",
            0,
            Some(Step::ToolCall),
        );
        check(
            tool,
            &["begun", "done"],
            "unmapped",
            "",
            0,
            Some(Step::ToolCall),
        );
        check(tool, whole, "work", "", 0, Some(Step::Result));
        check(
            tool,
            &["begun", "call_started", "failed"],
            "work",
            landed,
            1,
            Some(Step::End),
        );
        check(
            tool,
            &["begun", "call_started"],
            "work",
            landed,
            0,
            Some(Step::End),
        );
        check(
            Task::Patch,
            &["iteration_started", "done"],
            "work",
            landed,
            0,
            None,
        );
        check(
            Task::Edit,
            &["iteration_started", "done"],
            "work",
            "",
            0,
            Some(Step::Result),
        );
        check(
            Task::Answer,
            &["iteration_started", "answer", "done"],
            "work",
            "",
            0,
            None,
        );
        check(
            Task::Answer,
            &["iteration_started", "prompt", "done"],
            "work",
            "",
            0,
            Some(Step::Result),
        );
    }

    #[test]
    fn the_words_of_the_run_are_the_reason() {
        let check = |kinds: &[&str], err: &str, overdue: bool, says: &str| {
            let code = (!overdue).then_some(1);
            let heard = Heard {
                code,
                events: events(kinds),
                err: err.to_owned(),
                overdue,
            };
            let evidence = Evidence {
                task: Task::Tool,
                foreign: false,
                marker: MARKER,
                heard: &heard,
                seen: &[],
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
            "it did not ask its model for the work: it broke",
        );
        check(
            &[],
            "error: no such model\nhint: name one\n",
            false,
            "no such model",
        );
        check(&[], "", false, "the run ended with exit code 1");
        check(&[], "", true, "it was not done in time");
    }
}
