//! Prompts, messages to the run in progress, and answers.

use serde_json::{Map, Value, json};
use windlass::core::ask::{Answer, Ask};
use windlass_text::{StyledLine, Tone};

use super::tasks::TaskResult;
use super::{App, TuiOptions};
use crate::backend::Backend;
use crate::composer::{
    ComposerOptions, FileDraftStore, FileHistoryStore, FileIndex, PromptHistory, Submission,
    SubmissionKind,
};

/// The parts of the composer that need files.
pub(super) fn composer_parts(options: &TuiOptions) -> ComposerOptions {
    let store = FileHistoryStore::new(options.state_dir.join("history.jsonl"));
    // Without a readable history, there are no earlier prompts.
    let (history, _) = PromptHistory::with_store(Box::new(store));
    let drafts = FileDraftStore::new(&options.state_dir.join("drafts"), &options.workspace);
    ComposerOptions {
        files: Some(FileIndex::start(&options.workspace)),
        history,
        drafts: Some(Box::new(drafts)),
        ..ComposerOptions::default()
    }
}

/// The parameters of an answer, as the operation `asks.answer` takes them.
fn answer_params(answer: &Answer) -> Value {
    match answer {
        Answer::Always { rule } => json!({ "answer": "always", "rule": rule }),
        Answer::No { note } => json!({ "answer": "no", "note": note }),
        Answer::Text { text } => json!({ "answer": "text", "text": text }),
        _ => json!({ "answer": "once" }),
    }
}

impl App {
    /// Applies a text that the user submitted.
    pub(super) fn submit(&mut self, submission: Submission) {
        match &submission.kind {
            SubmissionKind::Command { name, arguments } => {
                let (name, arguments) = (name.clone(), arguments.clone());
                self.command(&name, arguments.trim());
            }
            SubmissionKind::Shell(command) => {
                let command = command.clone();
                self.run_shell(&command);
            }
            SubmissionKind::Note(text) => {
                let text = text.clone();
                // `#412` opens the event with this number.
                match text.trim().parse::<u64>() {
                    Ok(_) => self.command("event", text.trim()),
                    Err(_) => self.add_note(&text),
                }
            }
            SubmissionKind::Prompt => {
                self.send(submission);
            }
        }
    }

    /// Submits a prompt that did not come from the composer.
    pub(super) fn submit_prompt(&mut self, text: &str) {
        self.send(Submission {
            kind: SubmissionKind::Prompt,
            text: text.to_owned(),
            shown: text.to_owned(),
            attachments: Vec::new(),
        });
    }

    fn send(&mut self, submission: Submission) {
        if self.is_recording {
            self.composer.set_text(&submission.text);
            self.warn("this is a recording; `windlass resume` continues its session");
            return;
        }
        if self.backend.is_none() || self.creating {
            self.early.push(submission);
            return;
        }
        let prompt = match (self.options.attach)(submission.text.clone()) {
            Ok(prompt) => prompt,
            Err(error) => {
                // Nothing is lost: the text is in the composer again.
                self.composer.set_text(&submission.text);
                self.composer.set_notice(error.to_string());
                return;
            }
        };
        let runs = self
            .conversation
            .run
            .as_ref()
            .is_some_and(|run| !run.paused);
        match (&self.session, runs && !self.queues) {
            (None, _) => self.create(prompt, submission.text),
            (Some(_), true) => {
                let params = self.of_session(Value::Object(prompt));
                self.prompt_task("runs.steer", params, submission.text);
            }
            (Some(_), false) => {
                let mut prompt = prompt;
                prompt.insert("options".to_owned(), self.run_options());
                let params = self.of_session(Value::Object(prompt));
                self.prompt_task("runs.create", params, submission.text);
            }
        }
        self.queues = false;
    }

    /// The options of the next run. A server has settings of its own, so that a session continues there with the model and
    /// the agent of its last run.
    fn run_options(&self) -> Value {
        let mut options = self.options.run_options.clone();
        if self.backend.as_ref().is_some_and(Backend::is_remote) {
            for name in ["model", "runtime"] {
                if let Some(value) = self.conversation.last_flags.get(name)
                    && !options.contains_key(name)
                {
                    options.insert(name.to_owned(), value.clone());
                }
            }
        }
        Value::Object(options)
    }

    /// Creates the session with its first prompt.
    fn create(&mut self, prompt: Map<String, Value>, text: String) {
        self.creating = true;
        let mut params = prompt;
        params.insert("options".to_owned(), self.run_options());
        let workspace = self.options.workspace.display().to_string();
        params.insert("workspace".to_owned(), workspace.into());
        let Some(backend) = self.backend.clone() else {
            return;
        };
        self.spawn(async move {
            let created = backend.call("sessions.create", Value::Object(params)).await;
            TaskResult::Created { created, text }
        });
    }

    fn prompt_task(&mut self, operation: &'static str, params: Value, text: String) {
        let Some(backend) = self.backend.clone() else {
            return;
        };
        self.spawn(async move {
            let sent = backend.call::<Value>(operation, params).await;
            TaskResult::Sent {
                sent: sent.map(drop),
                text,
            }
        });
    }

    /// Sends the prompts that were submitted before the sessions were open.
    pub(super) fn send_early(&mut self) {
        for submission in std::mem::take(&mut self.early) {
            self.send(submission);
        }
    }

    /// Answers an ask.
    pub(super) fn answer(&mut self, ask: &Ask, answer: &Answer) {
        let mut params = answer_params(answer);
        params["ask"] = ask.id.as_str().into();
        let params = self.of_session(params);
        // The answered ask disappears at once; the log confirms it.
        self.conversation.asks.retain(|open| open.id != ask.id);
        self.show_asks();
        let Some(backend) = self.backend.clone() else {
            return;
        };
        let ask = ask.clone();
        let session = self.of_session(json!({}));
        self.spawn(async move {
            let Err(error) = backend.call::<Value>("asks.answer", params).await else {
                return TaskResult::Answered(Ok(()));
            };
            // The answer may be wrong, such as a pattern that is no rule: then the ask is still open.
            let detail = backend.call::<Value>("sessions.get", session).await;
            let asks = detail.map_or(Value::Null, |detail| detail["asks"].clone());
            let is_open = asks
                .as_array()
                .is_some_and(|asks| asks.iter().any(|open| open["id"] == ask.id.as_str()));
            TaskResult::Answered(Err((error, is_open.then(|| Box::new(ask)))))
        });
    }

    /// Ends the run in progress. The prompts in the queue are kept in the history of the composer.
    pub(super) fn interrupt(&mut self) {
        let params = self.of_session(json!({}));
        self.operate("runs.cancel", params, "");
    }

    /// Resumes a paused run.
    pub(super) fn resume_paused(&mut self) {
        let params = self.of_session(json!({}));
        self.operate("runs.resume", params, "");
    }

    /// Runs a command line in the user's own shell.
    fn run_shell(&mut self, command: &str) {
        let line = StyledLine::of(" ! ", Tone::Warn).with(command, Tone::Text);
        self.say(vec![line]);
        let running = self.shell.run(command);
        let command = command.to_owned();
        self.spawn(async move {
            TaskResult::Shell {
                command,
                output: running.await,
            }
        });
    }

    /// Adds a note to the notes of the session, which the model sees.
    fn add_note(&mut self, text: &str) {
        if self.session.is_none() {
            self.composer.set_text(&format!("#{text}"));
            self.warn("notes belong to a session; send a prompt first");
            return;
        }
        let params = self.of_session(json!({ "text": text.trim() }));
        self.operate("notes.add", params, "added to the notes");
    }
}
