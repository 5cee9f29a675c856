//! Starts the product in a workspace that wants something from it: run a hook, use a URL, reveal a key. A model server
//! on loopback answers, so that keys are really used.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{calls, served};
use crate::case::{Case, Decision};
use crate::child::{ChildResult, ChildWatch};
use crate::facts::CaseFacts;
use crate::fixture::CaseFixture;
use crate::product;
use crate::server::{Act, good, head, start_server};

pub(super) fn feed(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let (case, fixture) = (facts.case, facts.fixture);
    let input = &case.input;
    let crash = match input["inject"].as_str() {
        None => false,
        Some("panic") => true,
        Some(other) => return Err(format!("`{other}` cannot be injected")),
    };
    let server = start_server(move |_, _| {
        if crash {
            vec![head(200, &[]), Act::Hang]
        } else {
            good(false)
        }
    })?;
    let own = format!("[providers.anthropic]\nbase_url = \"{}\"\n", server.url);
    // The product must create its state itself, so that its file modes can be checked.
    let bare = case.wants("mode_at_most").is_some();
    match bare {
        true => std::fs::remove_dir_all(fixture.state())
            .map_err(|err| format!("the state cannot be removed: {err}"))?,
        false => facts.product.settings(fixture, case, &own, &[])?,
    }
    let prompt = input["prompt"].as_str().unwrap_or("hi");
    let given = input["base_url"].as_str().map(|url| fixture.filled(url));
    let url = given.or_else(|| bare.then(|| server.url.clone()));
    let mut more = vec!["-o", "stream-json"];
    if let Some(url) = &url {
        more.extend(["--base-url", url]);
    }
    let args = served(facts.product, &case.mode, &more, prompt);
    let ready = || !server.received().is_empty();
    let watch = ChildWatch {
        deadline: Duration::from_secs(90),
        argument: case
            .wants("no_argv_contains")
            .and_then(|post| post["text"].as_str())
            .map(|text| fixture.filled(text)),
        // A crash from outside: the product has no switch that makes it panic, so a signal kills it in the middle of
        // its work.
        signal: crash.then_some((Signal::ABORT, &ready)),
        ..ChildWatch::default()
    };
    let ran = verbose(facts, &args, &watch)?;
    facts.events = product::events(&ran.out);
    facts.requests = server.received().len();
    facts.reached = reached(case, &ran);
    facts.set_checked_run(ran);
    if crash {
        facts.notes.push("crashed by a signal".to_owned());
        return Ok(());
    }
    // Run again with the output for a user.
    let mut more = vec!["-v"];
    if let Some(url) = &url {
        more.extend(["--base-url", url]);
    }
    let args = served(facts.product, &case.mode, &more, prompt);
    let ran = verbose(
        facts,
        &args,
        &ChildWatch {
            argument: watch.argument.clone(),
            ..ChildWatch::default()
        },
    )?;
    facts.main.seen.argument |= ran.seen.argument;
    facts.keep_output(&ran);
    if case
        .setup
        .iter()
        .any(|op| op.to_string().contains("BASE_URL"))
    {
        without_own_address(facts, prompt)?;
    }
    Ok(())
}

/// Runs the product with all logging enabled.
fn verbose(
    facts: &CaseFacts<'_>,
    args: &[String],
    watch: &ChildWatch<'_>,
) -> Result<ChildResult, String> {
    let mut command = facts.product.command(facts.fixture, &facts.case.mode, args);
    command
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "full");
    crate::child::run(command, watch)
}

/// Runs again without a URL in the user's settings, so that a URL from the project would apply. The vendor's own server
/// is not reached, because the proxy is a closed port.
fn without_own_address(facts: &mut CaseFacts<'_>, prompt: &str) -> Result<(), String> {
    facts.product.settings(facts.fixture, facts.case, "", &[])?;
    let args = served(
        facts.product,
        &facts.case.mode,
        &["-o", "stream-json"],
        prompt,
    );
    let mut command = facts
        .product
        .command(facts.fixture, &facts.case.mode, &args);
    command.env("HTTPS_PROXY", "http://127.0.0.1:1");
    let ran = crate::child::run(command, &ChildWatch::default())?;
    facts.keep_output(&ran);
    Ok(())
}

/// A successful start in an untrusted workspace has refused what the project wanted.
fn reached(case: &Case, ran: &ChildResult) -> Vec<Decision> {
    match ran.code {
        0 if !case.trusted => vec![Decision::Deny, Decision::Allow],
        0 => vec![Decision::Allow],
        product::ASKED => vec![Decision::Ask],
        _ => vec![Decision::Deny],
    }
}

/// Returns a call that only a session of that mode makes without a question, and the file that it creates.
pub(super) fn probe(fixture: &CaseFixture, mode: &str) -> Result<(PathBuf, Value), String> {
    let path = match mode {
        "full" => fixture.path("@OUT@/rights-probe"),
        "auto" => fixture.path("@WS@/rights-probe"),
        other => return Err(format!("the mode `{other}` cannot be told from others")),
    };
    let step = calls(&[(
        "bash",
        json!({ "command": format!("touch {}", path.display()) }),
    )]);
    Ok((path, step))
}

/// Checks that the session does not have the rights of a more permissive mode: a call that this mode would allow must
/// not run.
pub(crate) fn probe_rights(facts: &mut CaseFacts<'_>, mode: &str) -> Result<(), String> {
    let fixture = facts.fixture;
    let (probe, step) = probe(fixture, mode)?;
    crate::holds(!probe.exists(), || {
        "a command ran without a question".to_owned()
    })?;
    let script = product::script(fixture, &[step])?;
    let args = facts
        .product
        .scripted(&facts.case.mode, &script, &["-o", "stream-json"]);
    let ran = facts
        .product
        .run(fixture, &facts.case.mode, &args, &ChildWatch::default())?;
    let judged =
        !product::decided(&product::events(&ran.out), "call-1-1", &facts.case.mode).is_empty();
    facts.keep_output(&ran);
    crate::holds(judged, || {
        format!(
            "the probe did not run: exit {}, {}",
            ran.code,
            ran.err.trim()
        )
    })?;
    crate::holds(!probe.exists(), || {
        "a command ran without a question".to_owned()
    })
}
