//! `answer`: what a run waits for is answered, from anywhere, and the run goes on under the terms it was started with.

use std::path::Path;
use std::process::ExitCode;

use futures_util::StreamExt;
use windlass::core::ask::{About, Ask};
use windlass::core::id::{AskId, SessionId};
use windlass::core::overview::SessionOverview;
use windlass::core::store::{SessionStore, Skimmed};
use windlass::core::terms::Isolation;
use windlass::core::workspace::Files;
use windlass::machine::SessionLog;

use super::block_on;
use crate::args::AnswerArgs;
use crate::exit;
use crate::failure::Failure;
use crate::out::say;
use crate::process;
use crate::safe::{json_line, message, one_line};
use crate::session_run::{InteractiveSession, ask_row, finish, prepare};
use crate::view::ask::understand;
use windlass::flags::{AgentFlags, LimitFlags, RunFlags};
use windlass::transcript::{describe_call, first_line};
use windlass::{OpenRequest, Prepared, Which};

/// Sessions that are looked through.
const MAX_SESSIONS: usize = 10_000;

pub(super) fn run(args: &AnswerArgs) -> Result<ExitCode, Failure> {
    let places = process::places()?;
    let store = SessionLog::new(places.sessions_dir());
    let Some(id) = &args.ask else {
        return block_on(list(&store, args));
    };
    let id: AskId = id
        .parse()
        .map_err(|err: windlass::core::id::IdError| Failure::usage(err.to_string()))?;
    let found = block_on(find(&store, &id))?;
    let Some((session, glance, ask)) = found else {
        return Err(Failure::usage(format!(
            "there is no open ask `{id}`: it was answered, given up, or never asked"
        ))
        .hint("`windlass answer` without an id lists what waits"));
    };
    let Some(answer) = understand(&ask, &args.words.join(" ")) else {
        return Err(
            Failure::usage(format!("`{}` is no answer to `{id}`", args.words.join(" ")))
                .hint(expected(&ask)),
        );
    };
    let (ready, request) = resumed(&session, &glance, &args.unset, &args.agent, &args.limits)?;
    let format = args.output.format();
    block_on(async {
        let mut interactive = InteractiveSession::open(ready, request, &args.output, None).await?;
        let outcome = interactive.answer_open(&ask, answer).await?;
        interactive.keep_plan(outcome.as_ref())?;
        Ok(finish(outcome.as_ref(), &interactive.session, format))
    })
}

/// The request that resumes the open run of a session: the flags it was started with, and those that were typed now.
pub(super) fn resumed(
    session: &SessionId,
    glance: &SessionOverview,
    unset: &[String],
    agent: &AgentFlags,
    limits: &LimitFlags,
) -> Result<(Prepared, OpenRequest), Failure> {
    let workspace = Path::new(&glance.workspace);
    let flags = RunFlags::resumed(glance.flags.clone(), unset, agent, limits, workspace)?;
    let ready = prepare(&flags)?;
    let open = glance.open.as_ref();
    let request = OpenRequest {
        which: Which::Named(session.clone()),
        isolation: open.map_or_else(Isolation::default, |open| open.isolation),
        ..OpenRequest::new(flags)
    };
    Ok((ready, request))
}

/// How an ask is answered.
fn expected(ask: &Ask) -> String {
    match &ask.about {
        About::Approval(approval) if approval.always.is_some() => {
            format!(
                "say `windlass answer {} yes`, `always`, or `no REASON`",
                ask.id
            )
        }
        About::Approval(_) => format!("say `windlass answer {} yes`, or `no REASON`", ask.id),
        About::Landing(_) => format!("say `windlass answer {} yes` or `no`", ask.id),
        About::Question(_) => format!("say it in words: `windlass answer {} WORDS`", ask.id),
    }
}

/// What a session's log comes to, without its messages.
pub(super) async fn glance(store: &SessionLog, id: &SessionId) -> Result<SessionOverview, Failure> {
    let mut glance = SessionOverview::default();
    let mut events = store.skim(id, 1, SessionOverview::needs);
    while let Some(event) = events.next().await {
        match event? {
            Skimmed::Event(event) => glance.apply(&event),
            Skimmed::Passed { seq } => glance.last_seq = seq,
        }
    }
    Ok(glance)
}

/// The session whose open ask this is. The newest are looked at first: who answers does so soon.
async fn find(
    store: &SessionLog,
    id: &AskId,
) -> Result<Option<(SessionId, SessionOverview, Ask)>, Failure> {
    let mut heads = store.list().take(MAX_SESSIONS);
    while let Some(head) = heads.next().await {
        let Ok(head) = head else { continue };
        // A damaged session does not hide the others.
        let Ok(glance) = glance(store, &head.id).await else {
            continue;
        };
        if let Some(ask) = glance.asks.iter().find(|ask| ask.id == *id).cloned() {
            return Ok(Some((head.id, glance, ask)));
        }
    }
    Ok(None)
}

async fn list(store: &SessionLog, args: &AnswerArgs) -> Result<ExitCode, Failure> {
    let here = process::open_workspace(args.agent.cd.as_deref())
        .ok()
        .map(|root| root.root().to_path_buf());
    let mut text = String::new();
    let mut heads = store.list().take(MAX_SESSIONS);
    while let Some(head) = heads.next().await {
        let glance = match head {
            Ok(head) if args.all || here.as_deref() == Some(Path::new(&head.workspace)) => {
                glance(store, &head.id).await.map(|glance| (head, glance))
            }
            Ok(_) => continue,
            Err(err) => Err(err.into()),
        };
        let (head, glance) = match glance {
            Ok(found) => found,
            Err(failure) => {
                say!("warning: {}", message(&failure.message()));
                continue;
            }
        };
        for ask in &glance.asks {
            text.push_str(&match args.output.json {
                true => json_line(&ask_row(&head.id, ask)),
                false => format!(
                    "{}  session {}  {}\n",
                    ask.id,
                    head.id,
                    one_line(&in_short(ask))
                ),
            });
        }
    }
    if text.is_empty() && !args.output.json {
        say!(
            "nothing waits for an answer{}",
            if args.all { "" } else { " in this workspace" }
        );
    }
    Ok(exit::printed(&text))
}

/// What is asked, in one line.
fn in_short(ask: &Ask) -> String {
    match &ask.about {
        About::Approval(approval) => {
            format!(
                "approve {}? ({})",
                describe_call(&approval.call),
                approval.rule
            )
        }
        About::Landing(landing) if landing.paths.is_empty() => format!(
            "land although {} failed before the run and still does?",
            first_line(&landing.failing.join(", "), 120)
        ),
        About::Landing(landing) => format!("let {} paths land?", landing.paths.len()),
        About::Question(question) => first_line(&question.text, 120),
    }
}
