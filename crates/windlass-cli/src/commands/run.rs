//! `run`, `chat`, `resume` and `land`: the commands that run prompts.

use std::io::IsTerminal;
use std::process::ExitCode;

use futures_util::StreamExt;
use windlass::core::context::CompactionMode as Room;
use windlass::core::event::EventKind;
use windlass::core::id::SessionId;
use windlass::core::message::Message;
use windlass::core::outcome::Outcome;
use windlass::core::overview::SessionOverview;
use windlass::core::store::SessionStore;
use windlass::core::terms::Isolation;
use windlass::engine::Delivery;
use windlass::kept::KeptRunMeta;
use windlass::machine::SessionLog;
use windlass::settings::Places;

use super::{answer, block_on, interface};
use crate::args::{ChatArgs, LandArgs, OutputArgs, OutputFormat, ResumeArgs, RunArgs};
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::process;
use crate::session_run::{
    InteractiveSession, TerminalInput, find_session, finish, prepare, prepare_landing, session_id,
};
use windlass::flags::{AgentFlags, ContractFlags, LimitFlags, RunFlags, over};
use windlass::saved_plan;
use windlass::{OpenRequest, Prepared, SessionSelector, model, newest};
use windlass_tui::SessionChoice;

/// The prompt of a resumed kept run, if the user gives none.
const CONTINUE_PROMPT: &str = "Continue the task where you stopped.";

fn flags(agent: &AgentFlags, limits: &LimitFlags, contract: &ContractFlags) -> RunFlags {
    RunFlags {
        agent: agent.clone(),
        limits: limits.clone(),
        contract: contract.clone(),
    }
}

pub(super) fn run(args: &RunArgs) -> Result<ExitCode, CommandError> {
    if let Some(url) = &args.server.server {
        return super::attach::run_on_server(args, url);
    }
    let flags = flags(&args.agent, &args.limits, &args.contract);
    let ready = prepare(&flags)?;
    let words = crate::prompt_text::prompt_text(&args.prompt)?;
    let prompt = match &args.plan {
        None => model::prompt(words, &ready.root, &ready.settings.notices)?,
        Some(given) => {
            let prompt = (!words.trim().is_empty())
                .then(|| model::prompt(words, &ready.root, &ready.settings.notices))
                .transpose()?;
            saved_plan::with_plan(prompt, &saved_plan::load(&ready.settings.places, given)?)
        }
    };
    let which = match (&args.resume, args.continue_newest) {
        (Some(session), _) => SessionSelector::Named(find_session(session)?),
        (None, true) => SessionSelector::Newest,
        (None, false) => SessionSelector::New,
    };
    let profile = ready.settings.profile.as_ref();
    let in_place_profile = profile.is_some_and(|profile| profile.in_place) && !ready.needs_copy();
    let in_place = args.in_place || (!args.isolated && in_place_profile);
    let request = OpenRequest {
        which,
        isolation: Isolation::from_flag(!in_place),
        ..OpenRequest::new(flags)
    };
    block_on(run_one(ready, request, &args.output, prompt))
}

pub(super) fn chat(args: &ChatArgs) -> Result<ExitCode, CommandError> {
    let flags = flags(&args.agent, &args.limits, &args.contract);
    if interface::is_available(&args.output) {
        let session = match args.continue_newest {
            true => SessionChoice::Existing(find_session("last")?),
            false => SessionChoice::New,
        };
        return interface::run(interface::InterfaceRequest {
            flags,
            session,
            isolation: Some(Isolation::from_flag(args.isolated)),
            first_prompt: None,
        });
    }
    let ready = prepare(&flags)?;
    let request = OpenRequest {
        which: if args.continue_newest {
            SessionSelector::Newest
        } else {
            SessionSelector::New
        },
        isolation: Isolation::from_flag(args.isolated || ready.needs_copy()),
        ..OpenRequest::new(flags)
    };
    block_on(run_chat(
        ready,
        request,
        &args.output,
        None,
        TerminalInput::default(),
    ))
}

pub(super) fn resume(args: &ResumeArgs) -> Result<ExitCode, CommandError> {
    let places = process::places()?;
    let root = process::open_workspace(args.agent.cd.as_deref())?;
    // Ids and names of kept runs contain no spaces, so a single argument with spaces is the prompt.
    let (named, typed) = match &args.session {
        Some(word) if args.prompt.is_empty() && word.contains(char::is_whitespace) => {
            (None, vec![word.clone()])
        }
        named => (named.clone(), args.prompt.clone()),
    };
    // The name of a kept run and the id of a session never look alike.
    let shelf = windlass::kept::shelf(&places);
    let card = named.as_ref().and_then(|name| shelf.meta(name).ok());
    let store = SessionLog::new(places.sessions_dir());
    let session = card.as_ref().map(|card| card.session.clone()).or(named);
    let (id, overview) = block_on(async {
        let id = match &session {
            Some(id) => windlass::find_session(&store, Some(&root), id).await?,
            None => newest(&store, &root).await?,
        };
        let overview = windlass::sessions::read_overview(&store, &id).await?;
        Ok((id, overview))
    })?;
    let by_name = card.is_some();
    let last_kept = overview.kept.as_ref().filter(|_| !args.in_place);
    let card = card.or_else(|| shelf.meta(last_kept?).ok());
    let kept = card.map(|card| card.name);
    let is_chat = typed.is_empty() && !by_name && std::io::stdin().is_terminal();
    let words = if is_chat {
        String::new()
    } else {
        crate::prompt_text::prompt_text(&typed)?
    };
    if is_chat && interface::is_available(&args.output) && args.last.is_none() && !args.summary {
        return resume_in_interface(args, &id, &overview);
    }
    let mut input = TerminalInput::default();
    let copy_has_asks =
        !overview.asks.is_empty() && overview.open.as_ref().is_some_and(|open| open.copy == kept);
    if words.trim().is_empty() && kept.is_some() && copy_has_asks {
        return Ok(
            match offer_asks(args, &id, &overview, std::io::stdin().is_terminal())? {
                OfferedAsks::Unanswerable(code) => code,
                OfferedAsks::Done(_) => exit::after_output(0),
            },
        );
    }
    // A run that is paused on an ask continues with the flags it was started with.
    if words.trim().is_empty() && kept.is_none() && !overview.asks.is_empty() {
        input = match offer_asks(args, &id, &overview, is_chat)? {
            OfferedAsks::Unanswerable(code) => return Ok(code),
            OfferedAsks::Done(input) => input,
        };
    }
    let is_paused = overview
        .open
        .as_ref()
        .is_some_and(|run| run.pause().is_some());
    if words.trim().is_empty() && overview.asks.is_empty() && is_paused {
        return resume_paused(args, &id, &overview);
    }
    // A new run keeps the model and the contract (checks and landing) of the session, but not its permissions: the user
    // decides about those again.
    let mut saved = overview.flags.clone();
    RunFlags::unset(&mut saved, &args.unset)?;
    let agent = over(&RunFlags::load_model(&saved), &args.agent)?;
    let contract = over(&RunFlags::load_contract(&saved), &args.contract)?;
    let flags = flags(&agent, &args.limits, &contract);
    let ready = prepare(&flags)?;
    let on_copy = args.isolated || kept.is_some() || overview.isolation.is_isolated();
    let isolated = (on_copy && !args.in_place) || ready.needs_copy();
    if let Some(name) = &kept {
        say!("continuing on the copy of {name}; use `--in-place` to work in your tree instead");
    }
    let request = OpenRequest {
        which: SessionSelector::Named(id.clone()),
        isolation: Isolation::from_flag(isolated),
        kept,
        ..OpenRequest::new(flags)
    };
    let last = args.last.map(Room::Last);
    let compaction = last.or(args.summary.then_some(Room::Summary));
    if is_chat {
        return block_on(run_chat(ready, request, &args.output, compaction, input));
    }
    let prompt = match (request.kept.is_some(), words.trim().is_empty()) {
        (true, true) => Some(Message::user(CONTINUE_PROMPT)),
        // Without a prompt, only the queued prompts run.
        (false, true) if !overview.queue.all().is_empty() => None,
        _ => Some(model::prompt(words, &ready.root, &ready.settings.notices)?),
    };
    block_on(run_queue(ready, request, &args.output, compaction, prompt))
}

/// Opens the interface on a session, with the model and the checks of its last run.
fn resume_in_interface(
    args: &ResumeArgs,
    id: &SessionId,
    overview: &SessionOverview,
) -> Result<ExitCode, CommandError> {
    let mut saved = overview.flags.clone();
    RunFlags::unset(&mut saved, &args.unset)?;
    let agent = over(&RunFlags::load_model(&saved), &args.agent)?;
    let contract = over(&RunFlags::load_contract(&saved), &args.contract)?;
    let isolation = match (args.isolated, args.in_place) {
        (true, _) => Isolation::Isolated,
        (false, true) => Isolation::InPlace,
        (false, false) => overview.isolation,
    };
    interface::run(interface::InterfaceRequest {
        flags: flags(&agent, &args.limits, &contract),
        session: SessionChoice::Existing(id.clone()),
        isolation: Some(isolation),
        first_prompt: None,
    })
}

/// Resumes a run that was paused, with the flags it was started with.
fn resume_paused(
    args: &ResumeArgs,
    id: &SessionId,
    overview: &SessionOverview,
) -> Result<ExitCode, CommandError> {
    let (ready, request) =
        answer::resume_request(id, overview, &args.unset, &args.agent, &args.limits)?;
    block_on(async {
        let mut interactive = InteractiveSession::open(ready, request, &args.output, None).await?;
        interactive.steers = std::io::stdin().is_terminal();
        let outcome = interactive.resume_paused().await?;
        interactive.keep_plan(outcome.as_ref())?;
        Ok(finish(
            outcome.as_ref(),
            &interactive.session,
            args.output.format(),
        ))
    })
}

/// The result of [`offer_asks`].
enum OfferedAsks {
    /// No user is present to answer: the asks were printed.
    Unanswerable(ExitCode),
    /// The user answered the asks, or left them pending. The input can be reused.
    Done(TerminalInput),
}

/// Shows the pending asks of a session to the user, or prints them for programs.
fn offer_asks(
    args: &ResumeArgs,
    id: &SessionId,
    overview: &SessionOverview,
    can_answer: bool,
) -> Result<OfferedAsks, CommandError> {
    let (ready, request) =
        answer::resume_request(id, overview, &args.unset, &args.agent, &args.limits)?;
    block_on(async {
        let mut interactive = InteractiveSession::open(ready, request, &args.output, None).await?;
        if !can_answer {
            let code = finish(None, &interactive.session, args.output.format());
            return Ok(OfferedAsks::Unanswerable(code));
        }
        interactive.steers = true;
        while let Some(ask) = interactive.session.pending().into_iter().next() {
            let Some(answer) = interactive.ask_open(&ask).await else {
                break;
            };
            let outcome = interactive.answer_open(&ask, answer).await?;
            interactive.keep_plan(outcome.as_ref())?;
        }
        Ok(OfferedAsks::Done(interactive.input))
    })
}

/// Runs the queued prompts of a session in order, then the new one.
async fn run_queue(
    ready: Prepared,
    request: OpenRequest,
    output: &OutputArgs,
    compaction: Option<Room>,
    prompt: Option<Message>,
) -> Result<ExitCode, CommandError> {
    let format = output.format();
    let mut interactive = InteractiveSession::open(ready, request, output, compaction).await?;
    if let Some(prompt) = prompt {
        if interactive
            .session
            .with_history(|history| history.queue().all().is_empty())
        {
            let outcome = interactive.run(prompt).await?;
            interactive.keep_plan(outcome.as_ref())?;
            return Ok(finish(outcome.as_ref(), &interactive.session, format));
        }
        interactive
            .session
            .queue(prompt, Delivery::FollowUp)
            .await?;
    }
    let mut last = None;
    while let Some(outcome) = interactive.run_queued().await? {
        last = outcome;
        if last != Some(Outcome::Completed) {
            break;
        }
    }
    Ok(finish(last.as_ref(), &interactive.session, format))
}

/// Checks the changes of a kept run again, and lands them.
pub(super) fn land(args: &LandArgs) -> Result<ExitCode, CommandError> {
    let ready = prepare_landing(args.cd.as_deref())?;
    let card = windlass::kept::find(&ready.settings.places, &ready.root, args.name.as_deref())?;
    let mut flags = RunFlags {
        contract: args.contract.clone(),
        ..RunFlags::default()
    };
    if flags.contract.commit.as_deref() == Some("") {
        flags.contract.commit = block_on(original_prompt(&ready.settings.places, &card))?;
    }
    let request = OpenRequest {
        which: SessionSelector::Named(session_id(&card.session)?),
        kept: Some(card.name.clone()),
        only_land: true,
        ..OpenRequest::new(flags)
    };
    let prompt = Message::user(format!("Land the kept run {}.", card.name));
    block_on(run_one(ready, request, &args.output, prompt))
}

/// Finds the prompt of the run that made a copy. It becomes the commit message, because the prompt of the landing would
/// say nothing about the changes.
async fn original_prompt(
    places: &Places,
    card: &KeptRunMeta,
) -> Result<Option<String>, CommandError> {
    let store = SessionLog::new(places.sessions_dir());
    let id = session_id(&card.session)?;
    let mut events = store.read(&id, 1);
    while let Some(event) = events.next().await {
        let event = event?;
        if event
            .run
            .as_ref()
            .is_some_and(|run| run.to_string() == card.run)
            && let EventKind::RunStarted { prompt, .. } = event.kind
        {
            return Ok(Some(prompt.text().trim().to_owned()));
        }
    }
    Ok(Some(String::new()))
}

async fn run_one(
    ready: Prepared,
    request: OpenRequest,
    output: &OutputArgs,
    prompt: Message,
) -> Result<ExitCode, CommandError> {
    let format = output.format();
    let mut interactive = InteractiveSession::open(ready, request, output, None).await?;
    // Lines that the user types during the run go to the run, and never to the shell afterwards.
    interactive.steers = std::io::stdin().is_terminal();
    let outcome = interactive.run(prompt).await?;
    interactive.input.discard_type_ahead();
    interactive.keep_plan(outcome.as_ref())?;
    Ok(finish(outcome.as_ref(), &interactive.session, format))
}

async fn run_chat(
    ready: Prepared,
    request: OpenRequest,
    output: &OutputArgs,
    compaction: Option<Room>,
    input: TerminalInput,
) -> Result<ExitCode, CommandError> {
    let format = output.format();
    let isolated = request.isolation == Isolation::Isolated;
    let mut interactive = InteractiveSession::open(ready, request, output, compaction).await?;
    if format == OutputFormat::Text {
        let place = if isolated {
            "each prompt works on a copy that lands when the checks pass"
        } else {
            "the agent works in your working tree"
        };
        say!(
            "session {} · {place} · /help lists the commands, /quit ends the chat",
            interactive.session.id()
        );
    }
    interactive.input = input;
    interactive.steers = std::io::stdin().is_terminal();
    let mut last = None;
    if !interactive.session.pending().is_empty() {
        let id = interactive.session.id();
        say!(
            "a run of this session is paused on a question: `windlass resume {id}` shows it; a new prompt abandons it"
        );
    }
    loop {
        // A new prompt abandons pending asks, so the queue runs only if there are none; the user may still type one.
        while interactive.session.pending().is_empty()
            && let Some(outcome) = interactive.run_queued().await?
        {
            last = outcome;
            if last.is_none() {
                return Ok(finish(None, &interactive.session, format));
            }
        }
        let Some(text) = interactive.prompt().await else {
            break;
        };
        match text.trim() {
            "" => continue,
            "/quit" | "/exit" => break,
            "/compact" => {
                interactive.compact(Room::Summary).await?;
                continue;
            }
            "/help" => {
                say!(
                    "/quit ends the chat; /compact replaces the conversation with a summary; a line that ends in \\ continues in the next one; @path attaches a file"
                );
                say!(
                    "during a run: a line is sent to the model at the next step, /next PROMPT queues a prompt for after the run, /cancel ends the run"
                );
                continue;
            }
            text if let Some(command) = crate::prompt_text::slash_command(text) => {
                say!("unknown command {command}; /help lists the commands");
                continue;
            }
            _ => {}
        }
        let prompt = match model::attach(text, &interactive.root, &crate::process::notices()) {
            Ok(prompt) => prompt,
            Err(error) => {
                CommandError::from(error).print();
                continue;
            }
        };
        last = interactive.run(prompt).await?;
        if last.is_none() {
            return Ok(finish(None, &interactive.session, format));
        }
    }
    say!(
        "session saved; continue with `windlass resume {}`",
        interactive.session.id()
    );
    // The user ends a chat at a terminal, so it succeeds; a piped chat reports its last run.
    let at_terminal = std::io::stdin().is_terminal();
    Ok(match last {
        Some(outcome) if !at_terminal => exit::after_output(exit::code(Some(&outcome))),
        _ => exit::after_output(0),
    })
}
