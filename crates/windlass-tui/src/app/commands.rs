//! The commands after `/`.

use serde_json::{Value, json};
use windlass_text::diff::{DiffOptions, unified};
use windlass_text::{ColorTheme, StyledLine, Tone};

use super::panels::{Panel, PickedItem};
use super::tasks::{NewSession, TaskResult};
use super::{App, reports};
use crate::composer::SlashCommand;
use crate::conversation::BlockKind;
use crate::screen::DisplayMode;

/// Lines of a diff that are printed.
const MAX_DIFF: usize = 400;
/// The approval modes in the order of Shift-Tab.
const MODES: [&str; 4] = ["plan", "ask", "edit", "auto"];
const THEMES: [&str; 4] = ["terminal", "dark", "light", "contrast"];

/// A command of the interface.
pub(super) struct CommandRow {
    pub(super) name: &'static str,
    pub(super) arguments: &'static str,
    pub(super) summary: &'static str,
    run: fn(&mut App, &str),
}

const fn row(
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    run: fn(&mut App, &str),
) -> CommandRow {
    CommandRow {
        name,
        arguments,
        summary,
        run,
    }
}

/// All commands, in the order of the help.
pub(super) const COMMANDS: &[CommandRow] = &[
    row(
        "model",
        "[NAME]",
        "choose the model of the next run",
        App::choose_model,
    ),
    row(
        "agent",
        "[NAME]",
        "choose the agent of the next run",
        App::choose_agent,
    ),
    row(
        "mode",
        "[MODE]",
        "choose the approval mode: plan, ask, edit or auto",
        App::choose_mode,
    ),
    row(
        "isolated",
        "",
        "work on a copy that lands when the checks pass",
        |app, _| app.set_in_place(false),
    ),
    row("in-place", "", "work in your tree, with undo", |app, _| {
        app.set_in_place(true)
    }),
    row(
        "budget",
        "USD",
        "limit the cost of the next run; `unlimited` removes the limit",
        App::set_budget,
    ),
    row(
        "checks",
        "[COMMAND…]",
        "set the checks of the next run; `none` runs none",
        App::set_checks,
    ),
    row(
        "diff",
        "",
        "show the changes of the kept run, or those that landed last",
        |app, _| app.show_diff(),
    ),
    row(
        "land",
        "",
        "check the kept run again and land it",
        |app, _| app.land_kept(),
    ),
    row(
        "keep",
        "",
        "do not land the changes that wait for your answer",
        |app, _| app.keep(),
    ),
    row("discard", "", "delete the kept run", |app, _| app.discard()),
    row("undo", "", "undo the changes of the last run", |app, _| {
        app.undo_last()
    }),
    row(
        "redo",
        "",
        "redo the changes that were undone last",
        |app, _| app.redo_last(),
    ),
    row(
        "rewind",
        "",
        "choose an earlier prompt and restore files or conversation",
        |app, _| app.choose_point(),
    ),
    row(
        "timeline",
        "",
        "show the state after any event, and go back to it",
        |app, _| app.show_timeline(),
    ),
    row(
        "fork",
        "[#EVENT]",
        "continue in a copy of the session",
        App::fork,
    ),
    row("resume", "", "choose another session", |app, _| {
        app.choose_session()
    }),
    row(
        "compact",
        "",
        "replace the older conversation with a summary",
        |app, _| app.compact(),
    ),
    row(
        "clear",
        "",
        "start the conversation anew; the log and undo stay",
        |app, _| app.clear(),
    ),
    row(
        "context",
        "",
        "show what the next request contains",
        |app, _| app.show_context(),
    ),
    row(
        "cost",
        "",
        "show tokens and cost of the session",
        |app, _| app.show_cost(),
    ),
    row(
        "queue",
        "",
        "show the queued prompts, and take one back",
        |app, _| app.show_queue(),
    ),
    row(
        "permissions",
        "",
        "show the rules of the permission gate",
        |app, _| app.show_permissions(),
    ),
    row(
        "login",
        "",
        "choose an agent, a key or a local server",
        |app, _| app.open_setup(true),
    ),
    row("doctor", "", "check the setup of this machine", |app, _| {
        app.show_doctor()
    }),
    row(
        "screen",
        "inline|full|plain",
        "choose the display mode",
        App::choose_screen,
    ),
    row(
        "theme",
        "[NAME]",
        "choose the colours: terminal, dark, light or contrast",
        App::choose_theme,
    ),
    row(
        "vi",
        "on|off",
        "edit prompts with the keys of vi",
        App::set_vi,
    ),
    row(
        "export",
        "[FILE]",
        "write the session as Markdown",
        |app, file| app.export("markdown", "md", file),
    ),
    row(
        "share",
        "[FILE]",
        "write the session as one HTML file",
        |app, file| app.export("html", "html", file),
    ),
    row(
        "copy",
        "",
        "copy the last answer to the clipboard",
        |app, _| app.copy_answer(),
    ),
    row(
        "event",
        "NUMBER",
        "show an event of the log",
        App::show_event,
    ),
    row("help", "", "list commands and keys", |app, _| {
        app.say(reports::help())
    }),
    row("quit", "", "leave; a run in progress pauses", |app, _| {
        app.quit = true
    }),
];

/// The commands for the completion.
pub(super) fn slash_commands() -> Vec<SlashCommand> {
    let one = |row: &CommandRow| SlashCommand {
        name: row.name.to_owned(),
        arguments: row.arguments.to_owned(),
        summary: row.summary.to_owned(),
    };
    COMMANDS.iter().map(one).collect()
}

impl App {
    /// Runs a command.
    pub(super) fn command(&mut self, name: &str, arguments: &str) {
        match COMMANDS.iter().find(|row| row.name == name) {
            Some(row) => (row.run)(self, arguments),
            None => self.warn(format!("there is no command /{name}; /help lists them")),
        }
    }

    /// Whether there is a session; else the user learns that there is none.
    pub(super) fn needs_session(&mut self) -> bool {
        if self.session.is_none() {
            self.warn("there is no session yet; send a prompt first, or choose one with /resume");
        }
        self.session.is_some()
    }

    pub(super) fn set_option(&mut self, name: &str, value: Value) {
        let text = value.as_str().map(str::to_owned);
        self.options.run_options.insert(name.to_owned(), value);
        match name {
            "model" => self.facts.model.clone_from(&text),
            "runtime" => self.facts.agent.clone_from(&text),
            _ => {}
        }
        if let Some(text) = text {
            self.notice = Some(reports::remark(&format!("the next run uses {text}")));
        }
    }

    fn choose_model(&mut self, name: &str) {
        if !name.is_empty() {
            return self.set_option("model", name.into());
        }
        let params = json!({ "workspace": self.options.workspace });
        self.pick("models.list", params, |list| reports::models(&list));
    }

    fn choose_agent(&mut self, name: &str) {
        if !name.is_empty() {
            return self.set_option("runtime", name.into());
        }
        let params = json!({ "workspace": self.options.workspace });
        self.pick("runtimes.list", params, |list| reports::agents(&list));
    }

    fn choose_mode(&mut self, mode: &str) {
        match mode {
            "" => {
                let picker = reports::names("Choose the approval mode", &MODES, PickedItem::Mode);
                self.panel = Some(Panel::Picker(Box::new(picker)));
            }
            mode => self.set_mode(mode),
        }
    }

    pub(super) fn set_mode(&mut self, mode: &str) {
        if !MODES.contains(&mode) {
            return self.warn(format!(
                "`{mode}` is no approval mode; use {}",
                MODES.join(", ")
            ));
        }
        self.facts.mode = mode.to_owned();
        self.facts.mode_is_default = false;
        self.options
            .run_options
            .insert("approval".to_owned(), mode.into());
        if self.conversation.run.is_some() {
            self.notice = Some(reports::remark("the mode applies from the next run on"));
        }
    }

    /// Chooses the next approval mode.
    pub(super) fn next_mode(&mut self) {
        let at = MODES.iter().position(|mode| *mode == self.facts.mode);
        let next = MODES[at.map_or(1, |at| (at + 1) % MODES.len())];
        self.set_mode(next);
    }

    fn set_in_place(&mut self, in_place: bool) {
        self.facts.set_in_place(in_place);
        self.options
            .run_options
            .insert("in_place".to_owned(), in_place.into());
        let text = match in_place {
            true => "the next run works in your tree; /undo takes changes back",
            false => "the next run works on a copy, which lands when the checks pass",
        };
        self.notice = Some(reports::remark(text));
    }

    fn set_budget(&mut self, amount: &str) {
        let value: Value = match amount.trim_start_matches('$').parse::<f64>() {
            Ok(usd) if usd > 0.0 && usd.is_finite() => {
                self.facts.budget_micros = Some((usd * 1e6) as u64);
                usd.into()
            }
            _ if amount == "unlimited" => {
                self.facts.budget_micros = None;
                amount.into()
            }
            _ => {
                return self.warn(
                    "name an amount in US dollars, for example `/budget 2.50`, or `unlimited`",
                );
            }
        };
        self.conversation.limits = None;
        self.options
            .run_options
            .insert("max_budget_usd".to_owned(), value);
        self.notice = Some(reports::remark("the limit applies from the next run on"));
    }

    fn set_checks(&mut self, checks: &str) {
        if checks.is_empty() {
            let given = self.options.run_options.get("validate");
            let text = match given.and_then(Value::as_array).filter(|list| !list.is_empty()) {
                Some(list) => {
                    let names: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
                    format!("checks of the next run: {}", names.join(" · "))
                }
                None => "the next run uses the checks that are found in the project; `/checks COMMAND` sets one".to_owned(),
            };
            return self.say(vec![reports::remark(&text)]);
        }
        // One check for each part between semicolons.
        let list: Vec<Value> = checks
            .split(';')
            .map(str::trim)
            .filter(|check| !check.is_empty())
            .map(Into::into)
            .collect();
        self.options
            .run_options
            .insert("validate".to_owned(), list.into());
        self.notice = Some(reports::remark("the checks apply from the next run on"));
    }

    fn show_diff(&mut self) {
        if !self.needs_session() {
            return;
        }
        let Some(backend) = self.backend.clone() else {
            return;
        };
        let params = self.of_session(json!({}));
        let columns = self.screen.columns();
        self.spawn(async move {
            let report = backend.call::<Value>("sessions.diff", params).await;
            TaskResult::Lines(report.map(|report| diff_lines(&reports::diff(&report), columns)))
        });
    }

    fn kept_name(&mut self) -> Option<String> {
        let kept = self.conversation.kept.clone();
        if kept.is_none() {
            self.warn(
                "this session has no kept run; `windlass status` lists those of the workspace",
            );
        }
        kept
    }

    fn land_kept(&mut self) {
        if let Some(name) = self.kept_name() {
            self.operate("kept.land", json!({ "name": name }), "");
        }
    }

    /// Refuses the landing that waits for an answer; the run is kept.
    fn keep(&mut self) {
        let waiting = self
            .conversation
            .asks
            .iter()
            .find(|ask| matches!(ask.about, windlass::core::ask::About::Landing(_)));
        match waiting.cloned() {
            Some(ask) => {
                self.panel = None;
                self.answer(&ask, &windlass::core::ask::Answer::No { note: None });
            }
            None => self.warn("no landing waits for an answer"),
        }
    }

    fn discard(&mut self) {
        if let Some(name) = self.kept_name() {
            self.operate(
                "kept.discard",
                json!({ "name": name }),
                "deleted the kept run",
            );
        }
    }

    fn undo_last(&mut self) {
        if self.needs_session() {
            let params = self.of_session(json!({}));
            self.report("undo", params, |report| reports::undone("undid", &report));
        }
    }

    fn redo_last(&mut self) {
        if self.needs_session() {
            let params = self.of_session(json!({}));
            self.report("redo", params, |report| reports::undone("redid", &report));
        }
    }

    /// Lets the user choose a prompt to go back to.
    pub(super) fn choose_point(&mut self) {
        if !self.needs_session() {
            return;
        }
        let prompts: Vec<(u64, String)> = self
            .conversation
            .blocks()
            .filter(|block| block.kind == BlockKind::Prompt)
            .filter_map(|block| {
                let text = block.lines.iter().find(|line| !line.is_empty())?;
                Some((
                    block.seq?,
                    text.plain().trim_start_matches([' ', '>']).to_owned(),
                ))
            })
            .collect();
        if prompts.is_empty() {
            return self.warn("there is no earlier prompt");
        }
        self.panel = Some(Panel::Picker(Box::new(reports::points(&prompts))));
    }

    pub(super) fn choose_rewind(&mut self, to: u64) {
        self.panel = Some(Panel::Picker(Box::new(reports::rewinds(to))));
    }

    /// Goes back to before a prompt.
    pub(super) fn rewind(&mut self, to: u64, files: bool, fork: bool) {
        let before = to.saturating_sub(1);
        let undo = self.of_session(json!({ "to": before }));
        if !fork {
            return self.report("undo", undo, |report| reports::undone("undid", &report));
        }
        let Some(backend) = self.backend.clone() else {
            return;
        };
        let params = self.of_session(json!({ "at": before }));
        // The prompt is in the history of the composer, so that it can be sent again in other words.
        self.spawn(async move {
            let mut lines = Vec::new();
            if files {
                match backend.call::<Value>("undo", undo).await {
                    Ok(report) => lines = reports::restored(&report),
                    Err(error) => return TaskResult::Lines(Err(error)),
                }
            }
            let forked = backend.call::<NewSession>("sessions.fork", params).await;
            if let Ok(new) = &forked {
                // The prompt waited in the queue before its run started; the copy must not run it again.
                let params = json!({ "session": new.id, "order": [] });
                let _ = backend.call::<Value>("queue.set", params).await;
            }
            TaskResult::Rewound { lines, forked }
        });
    }

    fn fork(&mut self, at: &str) {
        if !self.needs_session() {
            return;
        }
        let number = at.trim_start_matches('#');
        let at = match number.parse::<u64>() {
            Ok(seq) => json!({ "at": seq }),
            Err(_) if number.is_empty() => json!({}),
            Err(_) => return self.warn("name the number of an event, for example `/fork #412`"),
        };
        let Some(backend) = self.backend.clone() else {
            return;
        };
        let params = self.of_session(at);
        self.spawn(async move { TaskResult::Forked(backend.call("sessions.fork", params).await) });
    }

    fn choose_session(&mut self) {
        let workspace = self.options.workspace.display().to_string();
        let params = json!({ "workspace": workspace, "limit": 200 });
        self.pick("sessions.list", params, |page| reports::sessions(&page));
    }

    fn compact(&mut self) {
        if self.needs_session() {
            let params = self.of_session(json!({}));
            self.operate("sessions.compact", params, "compacted the conversation");
        }
    }

    fn clear(&mut self) {
        if self.needs_session() {
            let params = self.of_session(json!({}));
            self.operate("sessions.clear", params, "");
        }
    }

    fn show_context(&mut self) {
        if self.needs_session() {
            let params = self.of_session(json!({}));
            self.report("context.get", params, |report| reports::context(&report));
        }
    }

    fn show_cost(&mut self) {
        if self.needs_session() {
            let params = self.of_session(json!({}));
            self.report("stats.get", params, |report| reports::cost(&report));
        }
    }

    fn show_queue(&mut self) {
        match self.conversation.queue.is_empty() {
            true => self.warn("no prompt waits"),
            false => {
                let picker = reports::queue(&self.conversation.queue);
                self.panel = Some(Panel::Picker(Box::new(picker)));
            }
        }
    }

    fn show_permissions(&mut self) {
        let params = json!({ "workspace": self.options.workspace });
        let mode = self.facts.mode.clone();
        self.report("settings.list", params, move |list| {
            reports::permissions(&list, &mode)
        });
    }

    fn show_doctor(&mut self) {
        let params = json!({ "workspace": self.options.workspace });
        self.report("doctor.get", params, |report| reports::doctor(&report));
    }

    fn choose_screen(&mut self, name: &str) {
        let Some(mode) = DisplayMode::named(name) else {
            return self.warn("choose `/screen inline`, `/screen full` or `/screen plain`");
        };
        if let Err(err) = self.set_display(mode) {
            self.warn(format!("the display mode cannot be changed: {err}"));
        }
    }

    fn choose_theme(&mut self, name: &str) {
        match name {
            "" => {
                let picker = reports::names("Choose the colours", &THEMES, PickedItem::Theme);
                self.panel = Some(Panel::Picker(Box::new(picker)));
            }
            name => self.set_theme(name),
        }
    }

    pub(super) fn set_theme(&mut self, name: &str) {
        match ColorTheme::built_in(name) {
            Ok(theme) => {
                if let Err(err) = self.screen.set_theme(theme) {
                    self.warn(format!("the screen cannot be drawn: {err}"));
                }
            }
            Err(err) => self.warn(err.to_string()),
        }
    }

    fn set_vi(&mut self, word: &str) {
        match word {
            "on" => self.composer.set_vi_mode(true),
            "off" => self.composer.set_vi_mode(false),
            _ => self.warn("use `/vi on` or `/vi off`"),
        }
    }

    /// Writes the session into a file of the workspace.
    fn export(&mut self, format: &'static str, ending: &'static str, file: &str) {
        if !self.needs_session() {
            return;
        }
        let (Some(backend), Some(session)) = (self.backend.clone(), self.session.clone()) else {
            return;
        };
        let name = match file {
            "" => format!("windlass-{session}.{ending}"),
            name => name.to_owned(),
        };
        let path = self.options.workspace.join(&name);
        let params = self.of_session(json!({ "format": format }));
        self.spawn(async move {
            let text = backend.call_text("sessions.export", params).await;
            TaskResult::Lines(text.map(|text| {
                let written = std::fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(&path)
                    .and_then(|mut to| std::io::Write::write_all(&mut to, text.as_bytes()));
                match written {
                    Ok(()) => vec![reports::remark(&format!("wrote {name}"))],
                    Err(err) => vec![reports::warning(&format!(
                        "{name} cannot be written: {err}"
                    ))],
                }
            }))
        });
    }

    /// Copies the last answer.
    fn copy_answer(&mut self) {
        let is_answer = |kind: BlockKind| kind == BlockKind::Answer;
        let blocks = self.conversation.blocks().rev();
        let mut answer: Vec<String> = Vec::new();
        for block in blocks.skip_while(|block| !is_answer(block.kind)) {
            if !is_answer(block.kind) {
                break;
            }
            let lines = block.lines.iter().rev();
            answer.extend(lines.map(|line| line.plain().trim_start_matches(' ').to_owned()));
        }
        answer.reverse();
        let text = answer.join("\n");
        match text.trim() {
            "" => self.warn("there is no answer to copy"),
            text => self.copy(text),
        }
    }

    /// Copies a text to the clipboard of the user's machine.
    pub(super) fn copy(&mut self, text: &str) {
        if self.screen.copy(text) {
            let lines = windlass::transcript::counted(text.lines().count(), "line");
            self.notice = Some(reports::remark(&format!("copied {lines}")));
            return;
        }
        self.warn("the text is too long, or this terminal has no clipboard for programs; select it with the terminal instead");
    }

    /// Prints an event of the log.
    fn show_event(&mut self, number: &str) {
        if !self.needs_session() {
            return;
        }
        let Ok(seq) = number.trim_start_matches('#').parse::<u64>() else {
            return self.warn("name the number of an event, for example `/event 412`");
        };
        let params = self.of_session(json!({ "after": seq.saturating_sub(1), "limit": 1 }));
        self.report("events.list", params, move |page| {
            let event = &page["events"][0];
            if event.is_null() {
                return vec![reports::warning(&format!(
                    "the session has no event #{seq}"
                ))];
            }
            let text = serde_json::to_string_pretty(event).unwrap_or_default();
            let mut lines = vec![reports::heading(&format!("Event #{seq}"))];
            let code = text.lines().take(MAX_DIFF);
            lines.extend(code.map(|line| StyledLine::of(format!("   {line}"), Tone::Muted)));
            lines
        });
    }
}

/// The lines of a diff.
fn diff_lines(text: &str, columns: usize) -> Vec<StyledLine> {
    if text.trim().is_empty() {
        return vec![reports::remark("there are no changes")];
    }
    let options = DiffOptions {
        width: Some(columns),
        ..DiffOptions::default()
    };
    let lines = unified(text, &options);
    let more = lines.len().saturating_sub(MAX_DIFF);
    let mut shown: Vec<_> = lines.into_iter().take(MAX_DIFF).collect();
    if more > 0 {
        let text = format!("{more} more lines; `windlass diff` shows all");
        shown.push(reports::remark(&text));
    }
    shown
}
