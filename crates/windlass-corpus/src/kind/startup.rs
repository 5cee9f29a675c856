//! The product is started in a place that wants something of it: a hook to be run, an address to be used, a key to
//! be told. A real model server on loopback answers, so that keys are really used.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{calls, served};
use crate::case::{Case, Decision};
use crate::child::{Ran, Watch};
use crate::facts::Facts;
use crate::fixture::Fixture;
use crate::product;
use crate::server::{Act, good, head, start_server};

pub(super) fn feed(facts: &mut Facts<'_>) -> Result<(), String> {
    let (case, place) = (facts.case, facts.place);
    let input = &case.input;
    let crash = match input["inject"].as_str() {
        None => false,
        Some("panic") => true,
        Some(other) => return Err(format!("`{other}` is nothing that can be injected here")),
    };
    let server = start_server(move |_, _| {
        if crash {
            vec![head(200, &[]), Act::Hang]
        } else {
            good(false)
        }
    })?;
    let own = format!("[providers.anthropic]\nbase_url = \"{}\"\n", server.url);
    // How private its state is, the product shows by making it.
    let bare = case.wants("mode_at_most").is_some();
    match bare {
        true => std::fs::remove_dir_all(place.state())
            .map_err(|err| format!("the state cannot be removed: {err}"))?,
        false => facts.product.settings(place, case, &own, &[])?,
    }
    let prompt = input["prompt"].as_str().unwrap_or("hi");
    let given = input["base_url"].as_str().map(|url| place.filled(url));
    let url = given.or_else(|| bare.then(|| server.url.clone()));
    let mut more = vec!["-o", "stream-json"];
    if let Some(url) = &url {
        more.extend(["--base-url", url]);
    }
    let args = served(facts.product, &case.mode, &more, prompt);
    let ready = || !server.received().is_empty();
    let watch = Watch {
        deadline: Duration::from_secs(90),
        argument: case
            .wants("no_argv_contains")
            .and_then(|post| post["text"].as_str())
            .map(|text| place.filled(text)),
        // A crash from outside: no switch of ours makes the product panic, so the kernel ends it mid-way.
        signal: crash.then_some((Signal::ABORT, &ready)),
        ..Watch::default()
    };
    let ran = verbose(facts, &args, &watch)?;
    facts.events = product::events(&ran.out);
    facts.requests = server.received().len();
    facts.reached = reached(case, &ran);
    facts.judge(ran);
    if crash {
        facts.notes.push("crashed by a signal".to_owned());
        return Ok(());
    }
    // The same for a person's eyes.
    let mut more = vec!["-v"];
    if let Some(url) = &url {
        more.extend(["--base-url", url]);
    }
    let args = served(facts.product, &case.mode, &more, prompt);
    let ran = verbose(
        facts,
        &args,
        &Watch {
            argument: watch.argument.clone(),
            ..Watch::default()
        },
    )?;
    facts.main.seen.argument |= ran.seen.argument;
    facts.hear(&ran);
    if case
        .setup
        .iter()
        .any(|op| op.to_string().contains("BASE_URL"))
    {
        without_own_address(facts, prompt)?;
    }
    Ok(())
}

/// With every kind of logging that could be on.
fn verbose(facts: &Facts<'_>, args: &[String], watch: &Watch<'_>) -> Result<Ran, String> {
    let mut command = facts.product.command(facts.place, &facts.case.mode, args);
    command
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "full");
    crate::child::run(command, watch)
}

/// Once more with no address in the user's settings, so that one from the project would count. The vendor's own
/// address is not reached: the way there is a closed port.
fn without_own_address(facts: &mut Facts<'_>, prompt: &str) -> Result<(), String> {
    facts.product.settings(facts.place, facts.case, "", &[])?;
    let args = served(
        facts.product,
        &facts.case.mode,
        &["-o", "stream-json"],
        prompt,
    );
    let mut command = facts.product.command(facts.place, &facts.case.mode, &args);
    command.env("HTTPS_PROXY", "http://127.0.0.1:1");
    let ran = crate::child::run(command, &Watch::default())?;
    facts.hear(&ran);
    Ok(())
}

/// A start that goes well although the workspace is not trusted has refused what the project wanted.
fn reached(case: &Case, ran: &Ran) -> Vec<Decision> {
    match ran.code {
        0 if !case.trusted => vec![Decision::Deny, Decision::Allow],
        0 => vec![Decision::Allow],
        product::ASKED => vec![Decision::Ask],
        _ => vec![Decision::Deny],
    }
}

/// The call that only a session of that mode makes without a question, and the file it leaves.
pub(super) fn probe(place: &Fixture, mode: &str) -> Result<(PathBuf, Value), String> {
    let path = match mode {
        "full" => place.path("@OUT@/rights-probe"),
        "auto" => place.path("@WS@/rights-probe"),
        other => return Err(format!("nothing here tells the mode `{other}` from others")),
    };
    let step = calls(&[(
        "bash",
        json!({ "command": format!("touch {}", path.display()) }),
    )]);
    Ok((path, step))
}

/// Whether the session has more rights than the mode gives it: what that mode lets through must not get through.
pub(crate) fn probe_rights(facts: &mut Facts<'_>, mode: &str) -> Result<(), String> {
    let place = facts.place;
    let (probe, step) = probe(place, mode)?;
    crate::holds(!probe.exists(), || {
        "a command ran that nobody was asked for".to_owned()
    })?;
    let script = product::script(place, &[step])?;
    let args = facts
        .product
        .scripted(&facts.case.mode, &script, &["-o", "stream-json"]);
    let ran = facts
        .product
        .run(place, &facts.case.mode, &args, &Watch::default())?;
    let judged =
        !product::decided(&product::events(&ran.out), "call-1-1", &facts.case.mode).is_empty();
    facts.hear(&ran);
    crate::holds(judged, || {
        format!(
            "the probe did not run: exit {}, {}",
            ran.code,
            ran.err.trim()
        )
    })?;
    crate::holds(!probe.exists(), || {
        "a command ran that nobody was asked for".to_owned()
    })
}
