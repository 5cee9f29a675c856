//! How each kind of input is fed to the product. Each fills the facts; none of them judges.

mod call;
mod command;
mod resume;
mod run;
mod startup;
mod stream;
mod text;

use serde_json::{Value, json};

use crate::case::Case;
use crate::child::Watch;
use crate::facts::Facts;
use crate::fixture::Fixture;
use crate::product::{self, Product};
use crate::server::{Server, good, start_server};

/// Feeds a case in.
pub(crate) fn feed(facts: &mut Facts<'_>) -> Result<(), String> {
    match facts.case.kind() {
        "tool_call" | "shell" | "patch" | "model_follows" => call::feed(facts),
        "run" => run::feed(facts),
        "startup" => startup::feed(facts),
        "stream" => stream::feed(facts),
        "resume" => resume::feed(facts),
        "text" => text::feed(facts),
        "restore" => command::restore(facts),
        "export" => command::export(facts),
        "install" => command::install(facts),
        "argv" => command::argv(facts),
        other => Err(format!(
            "`{other}` is not a kind of input that is known here"
        )),
    }
}

/// The surface a case needs that the product does not have yet. A surface that is there is no excuse.
pub(crate) fn pending(product: &Product, case: &Case) -> Option<Result<&'static str, String>> {
    let about = case.input["where"].as_str().unwrap_or_default();
    let (surface, command) = match case.kind() {
        "http" => ("the HTTP interface", "serve"),
        "startup" if case.input.get("bind").is_some() => ("the HTTP interface", "serve"),
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

/// Whether a command line of an attack is given to the product: it runs if nothing stops it.
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

/// Whether the session, or where it cannot be used the workspace, still works.
pub(crate) fn survives(facts: &mut Facts<'_>) -> Result<(), String> {
    let (place, case) = (facts.place, facts.case);
    let fresh = facts.resumed.is_some() || product::sessions(place).is_empty();
    let script = product::script(place, &[])?;
    let more: &[&str] = if fresh { &[] } else { &["-c"] };
    let ran = facts.product.run(
        place,
        &case.mode,
        &facts.product.scripted(&case.mode, &script, more),
        &Watch::default(),
    )?;
    facts.hear(&ran);
    let well = ran.code == 0 && ran.out.contains(product::WORDS);
    crate::holds(well, || {
        format!("afterwards: exit {}, {}", ran.code, ran.err.trim())
    })
}

/// A server that answers every request well, and the flags that lead to it.
fn well_served() -> Result<Server, String> {
    start_server(|_, _| good(false))
}

/// `run` on a served model.
fn served(product: &Product, mode: &str, more: &[&str], prompt: &str) -> Vec<String> {
    let mut args: Vec<String> = ["run", "--in-place", "-m", "anthropic/some-model"]
        .map(str::to_owned)
        .to_vec();
    args.extend(product.mode(mode));
    args.extend(more.iter().map(|&arg| arg.to_owned()));
    args.push(prompt.to_owned());
    args
}

/// A step of a script that makes these calls.
fn calls(all: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> = all
        .iter()
        .map(|(name, args)| json!({ "name": name, "args": args }))
        .collect();
    json!({ "calls": calls })
}

/// The key a served model needs, when the case brought none.
fn with_key(place: &mut Fixture) {
    if !place
        .env
        .iter()
        .any(|(name, _)| name == "ANTHROPIC_API_KEY")
    {
        place
            .env
            .push(("ANTHROPIC_API_KEY".to_owned(), stream::KEY.to_owned()));
    }
}

/// What a kind needs of the place before it is handed on.
pub(crate) fn prepare(place: &mut Fixture, case: &Case) -> Result<(), String> {
    let served = match case.kind() {
        "startup" | "stream" | "resume" => true,
        "run" => run::needs_key(case),
        "text" => text::is_streamed(case),
        _ => false,
    };
    if served {
        with_key(place);
    }
    if let Some(cwd) = case.input["cwd"].as_str() {
        place.cwd = place.own_path(cwd)?;
    }
    Ok(())
}

pub(crate) use resume::probe_grant;
pub(crate) use startup::probe_rights;
pub(crate) use stream::paired;
