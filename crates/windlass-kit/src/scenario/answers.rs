//! Answers that are not work: a refusal, a schema, and tools that an agent does not have.

use serde_json::json;

use super::{Judged, Stage, Trial, ended, has, not_applicable, say, write};
use crate::contract::{billed, untouched};
use crate::holds;
use crate::product::{Ask, Ran};
use windlass_scripted::Move;

/// The code of a command line that cannot be.
const USAGE: i32 = 2;

pub(crate) fn answer(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |_| vec![say("The answer of the kit is 7153.")])?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        untouched(&trial.place)?;
        let said = ran.of("said").any(|event| {
            event["data"]["message"]
                .to_string()
                .contains("the kit is 7153")
        });
        holds(said, || "the answer is not in the log".to_owned())?;
        if let Some((_, model)) = stage
            .runtime
            .model
            .as_deref()
            .and_then(|model| model.split_once('/'))
        {
            let asked = trial
                .server
                .seen()
                .iter()
                .any(|seen| seen.path.contains(model) || seen.body.contains(model));
            holds(asked, || format!("the vendor was never asked for {model}"))?;
        }
        billed(&ran, &trial.server)
    })
}

pub(crate) fn streaming(stage: &Stage<'_>) -> Judged {
    let words = "One word comes after the other.";
    let trial = Trial::new(stage, |_| {
        vec![Move::Slow {
            text: words.to_owned(),
            pause_ms: 150,
        }]
    })?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || ended(&ran, "completed", 0))?;
    let pieces = crate::product::events(&ran.child.out)
        .iter()
        .filter(|event| event["kind"] == "delta" && event["data"]["of"] == "text")
        .count();
    match pieces {
        0 | 1 => not_applicable("it tells what the model says when all of it is said"),
        _ => Ok(crate::Cell::Pass),
    }
}

pub(crate) fn refusal(stage: &Stage<'_>) -> Judged {
    let trial = Trial::new(stage, |_| {
        vec![Move::Refuse("I cannot help with that.".to_owned())]
    })?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "refused safety", 6)?;
        untouched(&trial.place)?;
        // Some agents ask again by themselves, because they wait for words.
        let asked = trial.work_requests();
        holds(asked <= 6, || {
            format!("a model that declined was asked {asked} times")
        })
    })
}

pub(crate) fn structured_output(stage: &Stage<'_>) -> Judged {
    let answer = json!({ "answer": 42 });
    let schema = json!({
        "type": "object", "properties": { "answer": { "type": "integer" } }, "required": ["answer"],
        "additionalProperties": false,
    });
    let trial = Trial::new(stage, |_| vec![Move::Json(answer.clone())])?;
    let ran = trial.run(&Ask::flags(&["--json-schema", &schema.to_string()]))?;
    if refused_before(&trial, &ran, "structured_output")
        || refused_before(&trial, &ran, "--json-schema")
    {
        return not_applicable("it takes no schema, and says so before the first token");
    }
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        holds(ran.end()["output"] == answer, || {
            format!("the output is {}", ran.end()["output"])
        })?;
        billed(&ran, &trial.server)
    })
}

pub(crate) fn host_tool(stage: &Stage<'_>) -> Judged {
    let call = Move::Call {
        tool: "kit_probe".to_owned(),
        args: json!({}),
    };
    let tables = "[tools.kit_probe]\ncommand = [\"echo\", \"the probe answers 7153\"]\n\
                  description = \"Answers with a number.\"\neffect = \"read\"\n";
    let trial = Trial::new(stage, |_| {
        vec![call, write("after.txt", "after\n"), say("Probed.")]
    })?;
    let ran = trial.run(&Ask {
        tables: tables.to_owned(),
        ..Ask::default()
    })?;
    if refused_before(&trial, &ran, "tool") {
        return not_applicable("it takes no tools of the host, and says so before the first token");
    }
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        let reached = trial
            .server
            .seen()
            .iter()
            .any(|seen| seen.body.contains("the probe answers 7153"));
        holds(reached, || {
            "the answer of the host's tool did not reach the model".to_owned()
        })
    })
}

pub(crate) fn unusable_tool(stage: &Stage<'_>) -> Judged {
    let call = Move::Call {
        tool: "no_such_tool".to_owned(),
        args: json!({}),
    };
    let trial = Trial::new(stage, |_| {
        vec![call, write("after.txt", "after\n"), say("Went on.")]
    })?;
    let ran = trial.run(&Ask::default())?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&trial.place, "after.txt", "after\n")?;
        billed(&ran, &trial.server)
    })
}

/// Whether it was refused as a wrong configuration, with that word, before the vendor was asked for anything.
fn refused_before(trial: &Trial<'_>, ran: &Ran, word: &str) -> bool {
    ran.child.code == USAGE && ran.child.err.contains(word) && trial.server.requests() == 0
}
