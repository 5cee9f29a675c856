//! What a rehearsal proved, by the log of the run and by what the model server saw. Pure.

use serde_json::Value;

use super::Task;

/// The steps of a rehearsal, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
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
    pub(crate) fn word(self) -> &'static str {
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

/// Whether it did its task; else the step it did not take, and why.
pub(super) fn judge(
    task: Task,
    marker: &str,
    heard: &Heard,
    seen: &[Seen],
    landed: &str,
) -> Result<(), (Step, String)> {
    let of = |kind: &'static str| heard.events.iter().filter(move |event| event["kind"] == kind);
    let end = of("run_finished").last();
    let outcome = end.map(|event| &event["outcome"]);
    let done = outcome.is_some_and(|outcome| outcome["is"] == "completed");
    let detail = outcome.and_then(|outcome| outcome["detail"].as_str()).filter(|text| !text.is_empty());
    let told = |else_: &str| detail.map_or_else(|| else_.to_owned(), |detail| format!("{else_}: {detail}"));
    if of("iteration_started").next().is_none() {
        return Err((Step::Start, detail.map_or_else(|| ended_with(heard), str::to_owned)));
    }
    if !seen.iter().any(|one| one.work) {
        return Err(match seen.iter().any(|one| !one.key) {
            true => (Step::SignIn, told("its requests did not have the key of the run")),
            false => (Step::ModelCall, told("it did not ask its model for the work")),
        });
    }
    if seen.iter().any(|one| one.work && !one.key) {
        return Err((Step::SignIn, told("its requests did not have the key of the run")));
    }
    if task == Task::Tool {
        let called = of("call_started").any(|event| event["call"]["args"].to_string().contains(marker));
        if let Some(missing) = seen.iter().find_map(|one| one.unmapped.as_deref()).filter(|_| !called) {
            return Err((Step::ToolCall, format!("it has no tool for what the model wants: {missing}")));
        }
        if !called {
            return Err((Step::ToolCall, told("the call that the model asked for is not in the log")));
        }
    }
    let says = |event: &Value| event["message"]["role"] == "assistant" && event["message"].to_string().contains(marker);
    let answered = || of("said").any(says);
    let there = if task == Task::Answer { answered() } else { landed.trim_end() == marker };
    if !there {
        return Err((Step::Result, told("what the model wanted did not come of it")));
    }
    if !done || heard.code != Some(0) || heard.overdue {
        return Err((Step::End, told(&ended_with(heard))));
    }
    Ok(())
}

fn ended_with(heard: &Heard) -> String {
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
            "call_started" => json!({ "kind": "call_started", "call": { "args": { "text": "probe-1\n" } } }),
            "other_call" => json!({ "kind": "call_started", "call": { "args": { "path": "a" } } }),
            "answer" => json!({ "kind": "said", "message": { "role": "assistant", "parts": [{ "text": "probe-1" }] } }),
            "prompt" => json!({ "kind": "said", "message": { "role": "user", "parts": [{ "text": "probe-1" }] } }),
            "done" => json!({ "kind": "run_finished", "outcome": { "is": "completed" } }),
            "failed" => json!({ "kind": "run_finished", "outcome": { "is": "failed", "detail": "it broke" } }),
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
    fn check(task: Task, kinds: &[&str], requests: &str, landed: &str, code: i32, step: Option<Step>) {
        let heard = Heard { code: Some(code), events: events(kinds), err: String::new(), overdue: false };
        let fell = judge(task, MARKER, &heard, &seen(requests), landed).err();
        assert_eq!(fell.as_ref().map(|(step, _)| *step), step, "{fell:?}");
    }

    #[test]
    fn the_first_step_that_was_not_taken_is_named() {
        let whole = &["iteration_started", "call_started", "done"];
        let (tool, landed) = (Task::Tool, "probe-1\n");
        check(tool, whole, "work work", landed, 0, None);
        check(tool, &[], "", "", 2, Some(Step::Start));
        check(tool, &["iteration_started", "failed"], "", "", 1, Some(Step::ModelCall));
        check(tool, &["iteration_started", "failed"], "side", "", 1, Some(Step::ModelCall));
        check(tool, &["iteration_started", "failed"], "side-keyless", "", 1, Some(Step::SignIn));
        check(tool, whole, "work keyless", landed, 0, Some(Step::SignIn));
        check(tool, &["iteration_started", "other_call", "done"], "work", "", 0, Some(Step::ToolCall));
        check(tool, &["iteration_started", "done"], "unmapped", "", 0, Some(Step::ToolCall));
        check(tool, whole, "work", "", 0, Some(Step::Result));
        check(tool, &["iteration_started", "call_started", "failed"], "work", landed, 1, Some(Step::End));
        check(tool, &["iteration_started", "call_started"], "work", landed, 0, Some(Step::End));
        check(Task::Patch, &["iteration_started", "done"], "work", landed, 0, None);
        check(Task::Edit, &["iteration_started", "done"], "work", "", 0, Some(Step::Result));
        check(Task::Answer, &["iteration_started", "answer", "done"], "work", "", 0, None);
        check(Task::Answer, &["iteration_started", "prompt", "done"], "work", "", 0, Some(Step::Result));
    }

    #[test]
    fn the_words_of_the_run_are_the_reason() {
        let kinds = events(&["iteration_started", "failed"]);
        let heard = Heard { code: Some(1), events: kinds, err: String::new(), overdue: false };
        let why = judge(Task::Tool, MARKER, &heard, &[], "").err().map(|(_, why)| why).unwrap_or_default();
        assert!(why.contains("did not ask its model") && why.contains("it broke"), "{why}");
        let heard = Heard { code: None, events: Vec::new(), err: String::new(), overdue: true };
        let why = judge(Task::Tool, MARKER, &heard, &[], "").err().map(|(_, why)| why).unwrap_or_default();
        assert_eq!(why, "it was not done in time");
    }
}
