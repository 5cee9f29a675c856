//! `answer`: answers the pending ask of a run, from any directory, and resumes the run with the flags it was started with.

use std::path::Path;
use std::process::ExitCode;

use windlass::core::ask::{About, Ask};
use windlass::core::id::{AskId, SessionId};
use windlass::core::overview::SessionOverview;
use windlass::core::terms::Isolation;
use windlass::core::workspace::Files;
use windlass::machine::SessionLog;
use windlass::sessions::{FoundAsk, find_ask, pending_asks};
use windlass_text::sanitize::one_line;

use super::block_on;
use crate::args::AnswerArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::process;
use crate::sanitize::json_line;
use crate::session_run::{InteractiveSession, finish, prepare};
use crate::view::ask::parse_answer;
use windlass::flags::{AgentFlags, LimitFlags, RunFlags};
use windlass::transcript::{counted, describe_call, first_line};
use windlass::{OpenRequest, Prepared, SessionSelector};

pub(super) fn run(args: &AnswerArgs) -> Result<ExitCode, CommandError> {
    let places = process::places()?;
    let store = SessionLog::new(places.sessions_dir());
    let Some(id) = &args.ask else {
        return block_on(list(&store, args));
    };
    let id: AskId = id
        .parse()
        .map_err(|err: windlass::core::id::IdError| CommandError::usage(err.to_string()))?;
    let found = block_on(async { Ok(find_ask(&store, &id).await) })?;
    let Some(FoundAsk {
        session,
        overview,
        ask,
    }) = found
    else {
        return Err(CommandError::usage(format!(
            "there is no pending ask `{id}`: it was answered or abandoned, or the id is wrong"
        ))
        .hint("`windlass answer` without an id lists the pending asks"));
    };
    let Some(answer) = parse_answer(&ask, &args.words.join(" ")) else {
        return Err(CommandError::usage(format!(
            "`{}` is not an answer to `{id}`",
            args.words.join(" ")
        ))
        .hint(expected(&ask)));
    };
    let (ready, request) =
        resume_request(&session, &overview, &args.unset, &args.agent, &args.limits)?;
    let format = args.output.format();
    block_on(async {
        let mut interactive = InteractiveSession::open(ready, request, &args.output, None).await?;
        let outcome = interactive.answer_open(&ask, answer).await?;
        interactive.keep_plan(outcome.as_ref())?;
        Ok(finish(outcome.as_ref(), &interactive.session, format))
    })
}

/// Builds the request that resumes the open run of a session: with the flags it was started with, and the new ones.
pub(super) fn resume_request(
    session: &SessionId,
    overview: &SessionOverview,
    unset: &[String],
    agent: &AgentFlags,
    limits: &LimitFlags,
) -> Result<(Prepared, OpenRequest), CommandError> {
    let workspace = Path::new(&overview.workspace);
    let flags = RunFlags::resumed(overview.flags.clone(), unset, agent, limits, workspace)?;
    let ready = prepare(&flags)?;
    let open = overview.open.as_ref();
    let request = OpenRequest {
        which: SessionSelector::Named(session.clone()),
        isolation: open.map_or_else(Isolation::default, |open| open.isolation),
        ..OpenRequest::new(flags)
    };
    Ok((ready, request))
}

/// A hint with the possible answers to an ask.
fn expected(ask: &Ask) -> String {
    match &ask.about {
        About::Approval(approval) if approval.always.is_some() => {
            format!(
                "type `windlass answer {} yes`, `always` or `no REASON`",
                ask.id
            )
        }
        About::Approval(_) => format!("type `windlass answer {} yes` or `no REASON`", ask.id),
        About::Landing(_) => format!("type `windlass answer {} yes` or `no`", ask.id),
        About::Question(_) => format!("type `windlass answer {} YOUR ANSWER`", ask.id),
    }
}

async fn list(store: &SessionLog, args: &AnswerArgs) -> Result<ExitCode, CommandError> {
    let root = match args.all {
        true => None,
        false => process::open_workspace(args.agent.cd.as_deref()).ok(),
    };
    let mut text = String::new();
    let is_elsewhere = root.is_none() && !args.all;
    let pending = match is_elsewhere {
        true => Vec::new(),
        false => pending_asks(store, root.as_ref().map(Files::root), &process::notices()).await,
    };
    for one in &pending {
        text.push_str(&match args.output.json {
            true => json_line(one),
            false => format!(
                "{}  session {}  {}\n",
                one.ask.id,
                one.session,
                one_line(&summary(&one.ask))
            ),
        });
    }
    if text.is_empty() && !args.output.json {
        say!(
            "no pending asks{}",
            if args.all { "" } else { " in this workspace" }
        );
    }
    Ok(exit::print(&text))
}

/// Summarizes an ask in one line.
fn summary(ask: &Ask) -> String {
    match &ask.about {
        About::Approval(approval) => {
            format!(
                "approve {}? ({})",
                describe_call(&approval.call),
                approval.rule
            )
        }
        About::Landing(landing) if landing.paths.is_empty() => format!(
            "land although {} failed before the run and still fails?",
            first_line(&landing.failing.join(", "), 120)
        ),
        About::Landing(landing) => {
            format!("land {}?", counted(landing.paths.len(), "path"))
        }
        About::Question(question) => first_line(&question.text, 120),
    }
}
