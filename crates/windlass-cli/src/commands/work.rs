//! `run`, `chat` and `resume`: prompts to their end.

use crate::out::say;
use std::io::IsTerminal;
use std::process::ExitCode;

use windlass_core::gate::Mode;

use super::block_on;
use crate::args::{ChatArgs, Format, ResumeArgs, RunArgs};
use crate::exit;
use crate::failure::Failure;
use crate::plan;
use crate::session_run::{Desk, Opening, Ready, Which, finish, prepare};

pub(super) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let ready = prepare(&args.agent, &args.limits)?;
    if !args.in_place {
        return Err(Failure::new(
            exit::ISOLATION,
            "a run works on an isolated copy unless told otherwise, and isolated copies are not available yet",
        )
        .hint("give --in-place to let the agent work on your files directly; commit first, so that git can undo it"));
    }
    let prompt = plan::prompt(&args.prompt, &ready.root)?;
    let which = match (&args.resume, args.go_on) {
        (Some(session), _) => Which::Named(session.clone()),
        (None, true) => Which::Newest,
        (None, false) => Which::New,
    };
    let opening = Opening { agent: &args.agent, output: &args.output, which, default_mode: Mode::Ask };
    block_on(one(ready, opening, prompt))
}

pub(super) fn chat(args: &ChatArgs) -> Result<ExitCode, Failure> {
    let ready = prepare(&args.agent, &args.limits)?;
    let which = if args.go_on { Which::Newest } else { Which::New };
    let opening = Opening { agent: &args.agent, output: &args.output, which, default_mode: Mode::Ask };
    block_on(talk(ready, opening))
}

pub(super) fn resume(args: &ResumeArgs) -> Result<ExitCode, Failure> {
    let ready = prepare(&args.agent, &args.limits)?;
    let opening = Opening {
        agent: &args.agent,
        output: &args.output,
        which: Which::Named(args.session.clone()),
        default_mode: Mode::Ask,
    };
    if args.prompt.is_empty() && std::io::stdin().is_terminal() {
        return block_on(talk(ready, opening));
    }
    let prompt = plan::prompt(&args.prompt, &ready.root)?;
    block_on(one(ready, opening, prompt))
}

async fn one(ready: Ready, opening: Opening<'_>, prompt: windlass_core::message::Message) -> Result<ExitCode, Failure> {
    let format = opening.output.format();
    let mut desk = Desk::open(ready, opening).await?;
    let outcome = desk.run(prompt).await?;
    Ok(finish(outcome.as_ref(), &desk.session, format))
}

async fn talk(ready: Ready, opening: Opening<'_>) -> Result<ExitCode, Failure> {
    let format = opening.output.format();
    let mut desk = Desk::open(ready, opening).await?;
    if format == Format::Text {
        say!("session {} · work happens in place · /help lists the commands, /quit ends", desk.session.id());
    }
    let mut last = None;
    while let Some(text) = desk.prompt().await {
        match text.trim() {
            "" => continue,
            "/quit" | "/exit" => break,
            "/help" => {
                say!("/quit ends the chat; a line that ends in \\ goes on in the next; @path attaches a file");
                continue;
            }
            command if command.starts_with('/') && !command.contains(' ') && !command[1..].contains('/') => {
                say!("there is no command {command}; /help lists them");
                continue;
            }
            _ => {}
        }
        let prompt = match plan::attach(text, &desk.root) {
            Ok(prompt) => prompt,
            Err(failure) => {
                failure.print();
                continue;
            }
        };
        last = desk.run(prompt).await?;
        if last.is_none() {
            return Ok(finish(None, &desk.session, format));
        }
    }
    say!("session {}: `windlass resume {}` goes on", desk.session.id(), desk.session.id());
    // A chat at a terminal ended because the person wanted it to; a piped one reports its last run.
    let at_terminal = std::io::stdin().is_terminal();
    Ok(match last {
        Some(outcome) if !at_terminal => exit::unless_broken(exit::code(Some(&outcome))),
        _ => exit::unless_broken(0),
    })
}
