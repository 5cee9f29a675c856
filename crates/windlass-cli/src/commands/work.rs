//! `run`, `chat`, `resume` and `land`: prompts to their end.

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

use super::{answer, block_on};
use crate::args::{ChatArgs, Format, LandArgs, OutputArgs, ResumeArgs, RunArgs};
use crate::exit;
use crate::failure::Failure;
use crate::out::say;
use crate::process;
use crate::session_run::{
    Input, InteractiveSession, find_session, finish, prepare, prepare_landing, session_id,
};
use windlass::flags::{AgentFlags, ContractFlags, LimitFlags, RunFlags, over};
use windlass::saved_plan;
use windlass::{OpenRequest, Prepared, Which, model, newest};

/// What a kept run is told to do when nobody says more.
const GO_ON: &str = "Go on with the task where you stopped.";

fn flags(agent: &AgentFlags, limits: &LimitFlags, contract: &ContractFlags) -> RunFlags {
    RunFlags {
        agent: agent.clone(),
        limits: limits.clone(),
        contract: contract.clone(),
    }
}

pub(super) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let flags = flags(&args.agent, &args.limits, &args.contract);
    let ready = prepare(&flags)?;
    let words = crate::typed::words(&args.prompt)?;
    let prompt = match &args.plan {
        None => model::prompt(words, &ready.root, &ready.settings.notices)?,
        Some(given) => {
            let said = (!words.trim().is_empty())
                .then(|| model::prompt(words, &ready.root, &ready.settings.notices))
                .transpose()?;
            saved_plan::with_plan(said, &saved_plan::load(&ready.settings.places, given)?)
        }
    };
    let which = match (&args.resume, args.go_on) {
        (Some(session), _) => Which::Named(find_session(session)?),
        (None, true) => Which::Newest,
        (None, false) => Which::New,
    };
    let profile = ready.settings.profile.as_ref();
    let looks = profile.is_some_and(|profile| profile.in_place) && !ready.needs_copy();
    let in_place = args.in_place || (!args.isolated && looks);
    let request = OpenRequest {
        which,
        isolation: Isolation::from_flag(!in_place),
        ..OpenRequest::new(flags)
    };
    block_on(one(ready, request, &args.output, prompt))
}

pub(super) fn chat(args: &ChatArgs) -> Result<ExitCode, Failure> {
    let flags = flags(&args.agent, &args.limits, &args.contract);
    let ready = prepare(&flags)?;
    let request = OpenRequest {
        which: if args.go_on {
            Which::Newest
        } else {
            Which::New
        },
        isolation: Isolation::from_flag(args.isolated || ready.needs_copy()),
        ..OpenRequest::new(flags)
    };
    block_on(talk(ready, request, &args.output, None, Input::default()))
}

pub(super) fn resume(args: &ResumeArgs) -> Result<ExitCode, Failure> {
    let places = process::places()?;
    let root = process::open_workspace(args.agent.cd.as_deref())?;
    // Neither ids nor names of kept runs have spaces: such a word alone is the prompt.
    let (named, typed) = match &args.session {
        Some(word) if args.prompt.is_empty() && word.contains(char::is_whitespace) => {
            (None, vec![word.clone()])
        }
        named => (named.clone(), args.prompt.clone()),
    };
    // A kept run has a name of words; a session's id never looks like one.
    let shelf = windlass::kept::shelf(&places);
    let card = named.as_ref().and_then(|name| shelf.meta(name).ok());
    let store = SessionLog::new(places.sessions_dir());
    let session = card.as_ref().map(|card| card.session.clone()).or(named);
    let (id, glance) = block_on(async {
        let id = match &session {
            Some(id) => windlass::find_session(&store, Some(&root), id).await?,
            None => newest(&store, &root).await?,
        };
        let glance = answer::glance(&store, &id).await?;
        Ok((id, glance))
    })?;
    let by_name = card.is_some();
    let left = glance.kept.as_ref().filter(|_| !args.in_place);
    let card = card.or_else(|| shelf.meta(left?).ok());
    let kept = card.map(|card| card.name);
    let talks = typed.is_empty() && !by_name && std::io::stdin().is_terminal();
    let words = if talks {
        String::new()
    } else {
        crate::typed::words(&typed)?
    };
    let mut input = Input::default();
    let waits_here =
        !glance.asks.is_empty() && glance.open.as_ref().is_some_and(|open| open.copy == kept);
    if words.trim().is_empty() && kept.is_some() && waits_here {
        return Ok(
            match answers(args, &id, &glance, std::io::stdin().is_terminal())? {
                Answers::Ended(code) => code,
                Answers::Given(_) => exit::unless_broken(0),
            },
        );
    }
    // What waits for an answer goes on under its own terms, and nothing else does.
    if words.trim().is_empty() && kept.is_none() && !glance.asks.is_empty() {
        input = match answers(args, &id, &glance, talks)? {
            Answers::Ended(code) => return Ok(code),
            Answers::Given(input) => input,
        };
    }
    // Another run is another decision about what it may do: it keeps the model, and how its work is judged and lands.
    let mut saved = glance.flags.clone();
    RunFlags::unset(&mut saved, &args.unset)?;
    let agent = over(&RunFlags::load_model(&saved), &args.agent)?;
    let contract = over(&RunFlags::load_contract(&saved), &args.contract)?;
    let flags = flags(&agent, &args.limits, &contract);
    let ready = prepare(&flags)?;
    let on_copy = args.isolated || kept.is_some() || glance.isolation.is_isolated();
    let isolated = (on_copy && !args.in_place) || ready.needs_copy();
    if let Some(name) = &kept {
        say!("continuing on the copy of {name}; `--in-place` works in your tree instead");
    }
    let request = OpenRequest {
        which: Which::Named(id.clone()),
        isolation: Isolation::from_flag(isolated),
        kept,
        ..OpenRequest::new(flags)
    };
    let last = args.last.map(Room::Last);
    let room = last.or(args.summary.then_some(Room::Summary));
    if talks {
        return block_on(talk(ready, request, &args.output, room, input));
    }
    let prompt = match (request.kept.is_some(), words.trim().is_empty()) {
        (true, true) => Some(Message::user(GO_ON)),
        // Nothing is said, so that what waits is done.
        (false, true) if !glance.queue.all().is_empty() => None,
        _ => Some(model::prompt(words, &ready.root, &ready.settings.notices)?),
    };
    block_on(what_waits(ready, request, &args.output, room, prompt))
}

/// What came of offering what is open.
enum Answers {
    /// Nobody is there to answer.
    Ended(ExitCode),
    /// The person answered, or left it open, and goes on.
    Given(Input),
}

/// Offers what a session waits for: to the person at the terminal, or to whoever reads what is printed.
fn answers(
    args: &ResumeArgs,
    id: &SessionId,
    glance: &SessionOverview,
    talks: bool,
) -> Result<Answers, Failure> {
    let (ready, request) = answer::resumed(id, glance, &args.unset, &args.agent, &args.limits)?;
    block_on(async {
        let mut interactive = InteractiveSession::open(ready, request, &args.output, None).await?;
        if !talks {
            let code = finish(None, &interactive.session, args.output.format());
            return Ok(Answers::Ended(code));
        }
        interactive.steers = true;
        while let Some(ask) = interactive.session.pending().into_iter().next() {
            let Some(answer) = interactive.ask_open(&ask).await else {
                break;
            };
            let outcome = interactive.answer_open(&ask, answer).await?;
            interactive.keep_plan(outcome.as_ref())?;
        }
        Ok(Answers::Given(interactive.input))
    })
}

/// What a session was told before, in order, then what it is told now.
async fn what_waits(
    ready: Prepared,
    request: OpenRequest,
    output: &OutputArgs,
    room: Option<Room>,
    prompt: Option<Message>,
) -> Result<ExitCode, Failure> {
    let format = output.format();
    let mut interactive = InteractiveSession::open(ready, request, output, room).await?;
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

/// Checks what a kept run did once more, and lands it.
pub(super) fn land(args: &LandArgs) -> Result<ExitCode, Failure> {
    let ready = prepare_landing(args.cd.as_deref())?;
    let card = windlass::kept::find(&ready.settings.places, &ready.root, args.name.as_deref())?;
    let mut flags = RunFlags {
        contract: args.contract.clone(),
        ..RunFlags::default()
    };
    if flags.contract.commit.as_deref() == Some("") {
        flags.contract.commit = block_on(asked(&ready.settings.places, &card))?;
    }
    let request = OpenRequest {
        which: Which::Named(session_id(&card.session)?),
        kept: Some(card.name.clone()),
        only_land: true,
        ..OpenRequest::new(flags)
    };
    let prompt = Message::user(format!("Land the kept run {}.", card.name));
    block_on(one(ready, request, &args.output, prompt))
}

/// What the run that made a copy was asked to do: a commit of it says that, and not that it was landed.
async fn asked(places: &Places, card: &KeptRunMeta) -> Result<Option<String>, Failure> {
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

async fn one(
    ready: Prepared,
    request: OpenRequest,
    output: &OutputArgs,
    prompt: Message,
) -> Result<ExitCode, Failure> {
    let format = output.format();
    let mut interactive = InteractiveSession::open(ready, request, output, None).await?;
    // Words typed meanwhile are for the run, and never for the shell that comes after it.
    interactive.steers = std::io::stdin().is_terminal();
    let outcome = interactive.run(prompt).await?;
    interactive.input.drop_unread();
    interactive.keep_plan(outcome.as_ref())?;
    Ok(finish(outcome.as_ref(), &interactive.session, format))
}

async fn talk(
    ready: Prepared,
    request: OpenRequest,
    output: &OutputArgs,
    room: Option<Room>,
    input: Input,
) -> Result<ExitCode, Failure> {
    let format = output.format();
    let isolated = request.isolation == Isolation::Isolated;
    let mut interactive = InteractiveSession::open(ready, request, output, room).await?;
    if format == Format::Text {
        let how = if isolated {
            "each prompt works on a copy that lands when it passes"
        } else {
            "work happens in place"
        };
        say!(
            "session {} · {how} · /help lists the commands, /quit ends",
            interactive.session.id()
        );
    }
    interactive.input = input;
    interactive.steers = std::io::stdin().is_terminal();
    let mut last = None;
    if !interactive.session.pending().is_empty() {
        let id = interactive.session.id();
        say!(
            "a run of this session waits for an answer: `windlass resume {id}` offers it; a prompt here gives it up"
        );
    }
    loop {
        // A prompt gives up what is open, so that nobody but the person says one while something is.
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
                interactive.make_room(Room::Summary).await?;
                continue;
            }
            "/help" => {
                say!(
                    "/quit ends the chat; /compact puts a summary in the place of what was said; a line that ends in \\ goes on in the next; @path attaches a file"
                );
                say!(
                    "while a run is going: a line is said to it between steps, /next WORDS waits for its end, /cancel ends it"
                );
                continue;
            }
            text if let Some(command) = crate::typed::slash_command(text) => {
                say!("there is no command {command}; /help lists them");
                continue;
            }
            _ => {}
        }
        let prompt = match model::attach(text, &interactive.root, &crate::process::notices()) {
            Ok(prompt) => prompt,
            Err(failure) => {
                Failure::from(failure).print();
                continue;
            }
        };
        last = interactive.run(prompt).await?;
        if last.is_none() {
            return Ok(finish(None, &interactive.session, format));
        }
    }
    say!(
        "session {}: `windlass resume {}` goes on",
        interactive.session.id(),
        interactive.session.id()
    );
    // A chat at a terminal ended because the person wanted it to; a piped one reports its last run.
    let at_terminal = std::io::stdin().is_terminal();
    Ok(match last {
        Some(outcome) if !at_terminal => exit::unless_broken(exit::code(Some(&outcome))),
        _ => exit::unless_broken(0),
    })
}
