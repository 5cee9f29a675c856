//! A complete run with its checks and its landing and, if the case wants them, a commit, an agent that is not built in,
//! or a model server with a given behaviour.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::{call, stream};
use crate::case::{Case, Decision};
use crate::child::ChildWatch;
use crate::facts::CaseFacts;
use crate::product;

/// The name of the case's agent in the settings.
const AGENT: &str = "own";

pub(super) fn feed(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let (case, fixture) = (facts.case, facts.fixture);
    let input = fixture.filled_value(&case.input);
    let mut args: Vec<String> = vec!["run".to_owned()];
    let mut settings = String::new();
    if input["in_place"] == true {
        args.push("--in-place".to_owned());
    }
    let server = match input.get("vendor") {
        Some(vendor) => {
            let chat = vendor["format"] == "openai-chat-sse";
            Some(stream::start(
                vendor.clone(),
                chat,
                Arc::new(AtomicBool::new(false)),
            )?)
        }
        None => None,
    };
    if let Some(server) = &server {
        settings.push_str(&format!(
            "[providers.anthropic]\nbase_url = \"{}\"\n",
            server.url
        ));
    }
    match (input["agent"].as_str(), &server) {
        (Some(program), _) => {
            let file = fixture.write("@HOME@/bin/agent", program)?;
            let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&file, runs).map_err(|err| format!("the agent: {err}"))?;
            settings.push_str(&format!(
                "[runtimes.{AGENT}]\nkind = \"cli\"\ncommand = \"{}\"\n",
                file.display()
            ));
            args.extend(["--runtime", AGENT, "-m", "anthropic/some-model"].map(str::to_owned));
        }
        (None, Some(_)) => args.extend(["-m", "anthropic/some-model"].map(str::to_owned)),
        (None, None) => {
            let script = script(facts)?;
            args.extend(["--script".to_owned(), script]);
        }
    }
    facts.product.settings(fixture, case, &settings, &[])?;
    for check in crate::words(&input["validate"]) {
        args.extend(["--validate".to_owned(), check.to_owned()]);
    }
    match &input["commit"] {
        Value::Null | Value::Bool(false) => {}
        Value::Bool(true) => args.push("--commit=a run".to_owned()),
        Value::String(message) => args.push(format!("--commit={message}")),
        other => return Err(format!("`commit` is true or a message, not {other}")),
    }
    args.extend(facts.product.mode(&case.mode));
    args.extend(["--max-iterations", "1", "-o", "stream-json"].map(str::to_owned));
    args.extend(crate::words(&input["args"]).map(str::to_owned));
    args.push(input["prompt"].as_str().unwrap_or("go").to_owned());
    let watch = ChildWatch {
        deadline: CaseFacts::deadline(case),
        ..ChildWatch::default()
    };
    let ran = facts.product.run(fixture, &case.mode, &args, &watch)?;
    facts.events = product::events(&ran.out);
    facts.requests = server.as_ref().map_or(0, |server| server.received().len());
    facts.server = server;
    facts.reached = vec![match ran.code {
        0 => Decision::Allow,
        product::ASKED => Decision::Ask,
        _ => Decision::Deny,
    }];
    crate::holds(!facts.events.is_empty(), || {
        format!(
            "the run did not start: exit {}, {}",
            ran.code,
            ran.err.trim()
        )
    })?;
    facts.set_checked_run(ran);
    Ok(())
}

/// Writes the script of the case's steps; returns its path.
fn script(facts: &mut CaseFacts<'_>) -> Result<String, String> {
    let steps = facts.case.input["steps"]
        .as_array()
        .ok_or("a run needs `steps`, `agent` or `vendor`")?;
    let steps: Vec<Value> = steps
        .iter()
        .map(|step| call::step(facts, step).map(|(name, args)| super::calls(&[(&name, args)])))
        .collect::<Result<_, _>>()?;
    facts.call = format!("call-{}-1", steps.len());
    Ok(product::script(facts.fixture, &steps)?
        .display()
        .to_string())
}

/// Returns whether the run calls a model server, which needs a key.
pub(super) fn needs_key(case: &Case) -> bool {
    case.input.get("vendor").is_some() || case.input.get("agent").is_some()
}
