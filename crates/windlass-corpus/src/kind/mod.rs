//! Gives each kind of input to the product and fills in the facts. Nothing is judged here.

mod call;
mod command;
mod http;
mod resume;
mod run;
mod startup;
mod stream;
mod text;

use serde_json::{Value, json};

use crate::case::Case;
use crate::child::ChildWatch;
use crate::facts::CaseFacts;
use crate::fixture::CaseFixture;
use crate::product::{self, DrivenProduct};
use crate::server::{Server, good, start_server};

/// Gives the input of a case to the product.
pub(crate) fn feed(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    match facts.case.kind() {
        "tool_call" | "shell" | "patch" | "model_follows" => call::feed(facts),
        "run" => run::feed(facts),
        "startup" if facts.case.input.get("bind").is_some() => http::bind(facts),
        "startup" => startup::feed(facts),
        "stream" => stream::feed(facts),
        "resume" => resume::feed(facts),
        "text" => text::feed(facts),
        "restore" => command::restore(facts),
        "export" => command::export(facts),
        "install" => command::install(facts),
        "argv" => command::argv(facts),
        "http" => http::feed(facts),
        other => Err(format!("`{other}` is not a known kind of input")),
    }
}

/// Returns the interface that a case needs and the product does not have yet. If the product has it, the case is an
/// error and not pending.
pub(crate) fn pending(
    product: &DrivenProduct,
    case: &Case,
) -> Option<Result<&'static str, String>> {
    let about = case.input["where"].as_str().unwrap_or_default();
    let (surface, command) = match case.kind() {
        "mcp" => ("tool servers", "mcp"),
        "text" if about.starts_with("mcp_") => ("tool servers", "mcp"),
        _ => return None,
    };
    Some(match product.has_command(command) {
        true => Err(format!(
            "the product has `{command}`, and these cases are not driven through it yet"
        )),
        false => Ok(surface),
    })
}

/// Returns whether the case gives a hostile command line to the product, which runs if nothing stops it.
pub(crate) fn brings_hostile_command(case: &Case) -> bool {
    let input = &case.input;
    let shell = |step: &Value| {
        step["tool"]
            .as_str()
            .is_some_and(|tool| product::tool(tool) == "bash")
    };
    let given = match case.kind() {
        "shell" => case.wants("engine_argv_uses_separator").is_none(),
        "tool_call" => shell(input),
        "run" => true,
        "model_follows" => input["steps"].as_array().into_iter().flatten().any(shell),
        "text" => input["where"] == "approval_command",
        _ => false,
    };
    given && !case.benign()
}

/// Checks that the session still works, or the workspace if the session cannot be used.
pub(crate) fn check_session_works(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let (fixture, case) = (facts.fixture, facts.case);
    let fresh = facts.resumed.is_some() || product::sessions(fixture).is_empty();
    let script = product::script(fixture, &[])?;
    let more: &[&str] = if fresh { &[] } else { &["-c"] };
    let ran = facts.product.run(
        fixture,
        &case.mode,
        &facts.product.scripted(&case.mode, &script, more),
        &ChildWatch::default(),
    )?;
    facts.keep_output(&ran);
    let well = ran.code == 0 && ran.out.contains(product::WORDS);
    crate::holds(well, || {
        format!("afterwards: exit {}, {}", ran.code, ran.err.trim())
    })
}

/// Starts a server that answers every request successfully.
fn start_good_server() -> Result<Server, String> {
    start_server(|_, _| good(false))
}

/// Returns the arguments of an in-place `run` with a model server.
fn served(product: &DrivenProduct, mode: &str, more: &[&str], prompt: &str) -> Vec<String> {
    let mut args: Vec<String> = ["run", "--in-place", "-m", "anthropic/some-model"]
        .map(str::to_owned)
        .to_vec();
    args.extend(product.mode(mode));
    args.extend(more.iter().map(|&arg| arg.to_owned()));
    args.push(prompt.to_owned());
    args
}

/// Returns a step of a script that makes these calls.
fn calls(all: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> = all
        .iter()
        .map(|(name, args)| json!({ "name": name, "args": args }))
        .collect();
    json!({ "calls": calls })
}

/// Sets the key for a model server, unless the case sets one.
fn with_key(fixture: &mut CaseFixture) {
    if !fixture
        .env
        .iter()
        .any(|(name, _)| name == "ANTHROPIC_API_KEY")
    {
        fixture
            .env
            .push(("ANTHROPIC_API_KEY".to_owned(), stream::KEY.to_owned()));
    }
}

/// Prepares the environment that a kind of input needs.
pub(crate) fn prepare(fixture: &mut CaseFixture, case: &Case) -> Result<(), String> {
    let served = match case.kind() {
        "startup" | "stream" | "resume" | "http" => true,
        "run" => run::needs_key(case),
        "text" => text::is_streamed(case),
        _ => false,
    };
    if served {
        with_key(fixture);
    }
    if let Some(cwd) = case.input["cwd"].as_str() {
        fixture.cwd = fixture.own_path(cwd)?;
    }
    Ok(())
}

pub(crate) use resume::probe_grant;
pub(crate) use startup::probe_rights;
pub(crate) use stream::paired;
