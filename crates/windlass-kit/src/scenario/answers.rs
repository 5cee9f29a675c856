//! Scenarios without edits: answers, streaming, refusals, structured output, host tools and unknown tools.

use serde_json::json;

use super::{
    ScenarioContext, ScenarioResult, ScenarioSetup, ended, has, not_applicable, say, write,
};
use crate::contract::{billed, untouched};
use crate::holds;
use crate::product::{FinishedRun, RunRequest};
use windlass_scripted::Move;

/// The exit code of a usage error.
const USAGE: i32 = 2;

pub(crate) fn answer(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::new(context, |_| vec![say("The answer of the kit is 7153.")])?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        untouched(&setup.scratch)?;
        let logged = ran.of("said").any(|event| {
            event["data"]["message"]
                .to_string()
                .contains("the kit is 7153")
        });
        holds(logged, || "the answer is not in the log".to_owned())?;
        if let Some((_, model)) = context
            .runtime
            .model
            .as_deref()
            .and_then(|model| model.split_once('/'))
        {
            let requested = setup
                .server
                .seen()
                .iter()
                .any(|seen| seen.path.contains(model) || seen.body.contains(model));
            holds(requested, || {
                format!("no request was for the model {model}")
            })?;
        }
        billed(&ran, &setup.server)
    })
}

pub(crate) fn streaming(context: &ScenarioContext<'_>) -> ScenarioResult {
    let words = "One word comes after the other.";
    let setup = ScenarioSetup::new(context, |_| {
        vec![Move::Slow {
            text: words.to_owned(),
            pause_ms: 150,
        }]
    })?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || ended(&ran, "completed", 0))?;
    let pieces = crate::product::events(&ran.child.out)
        .iter()
        .filter(|event| event["kind"] == "delta" && event["data"]["of"] == "text")
        .count();
    match pieces {
        0 | 1 => not_applicable("it passes on an answer only when the answer is complete"),
        _ => Ok(crate::MatrixCell::Pass),
    }
}

pub(crate) fn refusal(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::new(context, |_| {
        vec![Move::Refuse("I cannot help with that.".to_owned())]
    })?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || {
        ended(&ran, "refused safety", 6)?;
        untouched(&setup.scratch)?;
        // Some agents retry by themselves, because they expect text.
        let asked = setup.work_requests();
        holds(asked <= 6, || {
            format!("a model that refused got {asked} requests")
        })
    })
}

pub(crate) fn structured_output(context: &ScenarioContext<'_>) -> ScenarioResult {
    let answer = json!({ "answer": 42 });
    let schema = json!({
        "type": "object", "properties": { "answer": { "type": "integer" } }, "required": ["answer"],
        "additionalProperties": false,
    });
    let setup = ScenarioSetup::new(context, |_| vec![Move::Json(answer.clone())])?;
    let ran = setup.run(&RunRequest::flags(&["--json-schema", &schema.to_string()]))?;
    if rejected_before_requests(&setup, &ran, "structured_output")
        || rejected_before_requests(&setup, &ran, "--json-schema")
    {
        return not_applicable("it supports no schema, and fails before the first model request");
    }
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        holds(ran.end()["output"] == answer, || {
            format!("the output is {}", ran.end()["output"])
        })?;
        billed(&ran, &setup.server)
    })
}

pub(crate) fn host_tool(context: &ScenarioContext<'_>) -> ScenarioResult {
    let call = Move::Call {
        tool: "kit_probe".to_owned(),
        args: json!({}),
    };
    let tables = "[tools.kit_probe]\ncommand = [\"echo\", \"the probe answers 7153\"]\n\
                  description = \"Answers with a number.\"\neffect = \"read\"\n";
    let setup = ScenarioSetup::new(context, |_| {
        vec![call, write("after.txt", "after\n"), say("Probed.")]
    })?;
    let ran = setup.run(&RunRequest {
        tables: tables.to_owned(),
        ..RunRequest::default()
    })?;
    if rejected_before_requests(&setup, &ran, "tool") {
        return not_applicable(
            "it supports no host tools, and fails before the first model request",
        );
    }
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        let reached = setup
            .server
            .seen()
            .iter()
            .any(|seen| seen.body.contains("the probe answers 7153"));
        holds(reached, || {
            "the answer of the host's tool did not reach the model".to_owned()
        })
    })
}

pub(crate) fn unusable_tool(context: &ScenarioContext<'_>) -> ScenarioResult {
    let call = Move::Call {
        tool: "no_such_tool".to_owned(),
        args: json!({}),
    };
    let setup = ScenarioSetup::new(context, |_| {
        vec![call, write("after.txt", "after\n"), say("Continued.")]
    })?;
    let ran = setup.run(&RunRequest::default())?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&setup.scratch, "after.txt", "after\n")?;
        billed(&ran, &setup.server)
    })
}

/// Returns whether windlass rejected the configuration, with this word in the message, before any model request.
fn rejected_before_requests(setup: &ScenarioSetup<'_>, ran: &FinishedRun, word: &str) -> bool {
    ran.child.code == USAGE && ran.child.err.contains(word) && setup.server.requests() == 0
}
