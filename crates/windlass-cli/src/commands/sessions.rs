//! `sessions`: list, show, search, export, import, salvage, delete, clear and gc.

mod export;
mod import;
mod list;
mod salvage;
mod search;
mod show;
mod trace;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use windlass::core::workspace::Files;
use windlass::kept::GcLimits;
use windlass::machine::SessionLog;
use windlass::sessions::{SessionDeletion, workspace_sessions};
use windlass::settings::Places;
use windlass::transcript::counted;
use windlass_text::sanitize::message;

use super::block_on;
use crate::args::SessionsCommand;
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::process;
use crate::session_run::find_session;

pub(super) fn run(command: SessionsCommand) -> Result<ExitCode, CommandError> {
    let places = process::places()?;
    let store = SessionLog::new(places.sessions_dir());
    match command {
        SessionsCommand::List { json, limit } => block_on(list::run(&store, json, limit)),
        SessionsCommand::Show(args) => {
            let id = find_session(&args.session)?;
            block_on(show::run(&store, &id, &args))
        }
        SessionsCommand::Search(args) => search::run(&store, &args),
        SessionsCommand::Export {
            session,
            format,
            to,
        } => {
            let id = find_session(&session)?;
            block_on(export::run(&store, &id, format, to.as_deref()))
        }
        SessionsCommand::Import(args) => block_on(import::run(&store, &args)),
        SessionsCommand::Salvage { session, json } => {
            salvage::run(&store, &find_session(&session)?, json)
        }
        SessionsCommand::Gc {
            dry_run,
            days,
            megabytes,
            json,
        } => {
            let limits = GcLimits {
                bytes: megabytes.saturating_mul(1 << 20),
                age: Duration::from_secs(days.saturating_mul(86_400)),
            };
            super::kept_runs::gc(&places, &limits, dry_run, json)
        }
        SessionsCommand::Delete { session, yes } => {
            let id = find_session(&session)?;
            require_confirmation(
                yes,
                &format!("delete session {id} and everything in it? [y/N] "),
            )?;
            block_on(async {
                let mut deletion = SessionDeletion::new(&places, &store);
                deletion.delete(&id).await?;
                Ok(deletion.finish().await?)
            })?;
            Ok(ExitCode::SUCCESS)
        }
        SessionsCommand::Clear { yes, cd } => block_on(clear(&places, &store, yes, cd.as_deref())),
    }
}

/// Deletes all sessions of a workspace. Sessions that are in use or damaged are reported and kept.
async fn clear(
    places: &Places,
    store: &SessionLog,
    yes: bool,
    cd: Option<&Path>,
) -> Result<ExitCode, CommandError> {
    let root = process::open_workspace(cd)?;
    let here = root.root().display().to_string();
    let notices = process::notices();
    let ids = workspace_sessions(store, root.root(), &notices).await;
    if ids.is_empty() {
        say!("{} has no sessions", message(&here));
        return Ok(exit::after_output(0));
    }
    require_confirmation(
        yes,
        &format!(
            "delete {} of {}? [y/N] ",
            counted(ids.len(), "session"),
            message(&here)
        ),
    )?;
    let mut deletion = SessionDeletion::new(places, store);
    let deleted = deletion.delete_all(&ids, &notices).await;
    deletion.finish().await?;
    say!("deleted {}", counted(deleted, "session"));
    Ok(exit::success_if(deleted == ids.len()))
}

fn require_confirmation(yes: bool, question: &str) -> Result<(), CommandError> {
    if yes || confirmed(question)? {
        return Ok(());
    }
    Err(CommandError::new(exit::ASKED, "nothing was deleted")
        .hint("use `--yes` to delete without confirmation"))
}

pub(super) fn confirmed(question: &str) -> Result<bool, CommandError> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    crate::out::err(question);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}
