//! Scenario files: what the model answers, what the person answers, which events must follow.

use serde::Deserialize;
use serde_json::Value;
use windlass_core::ask::Answer;
use windlass_core::gate::{Level, PermissionGate, Rule, Verdict};
use windlass_engine::OnAsk;
use windlass_testing::says;

use crate::lab::{Lab, calls};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    #[serde(default = "ask")]
    mode: String,
    #[serde(default)]
    yes: bool,
    #[serde(default)]
    deny_asks: bool,
    #[serde(default)]
    allow: Vec<String>,
    model: Vec<Say>,
    #[serde(default)]
    person: Vec<Reply>,
    #[serde(default)]
    ignore: Vec<String>,
    events: Vec<String>,
    outcome: String,
    /// Texts that must be in the results the model was given.
    #[serde(default)]
    told: Vec<String>,
}

fn ask() -> String {
    "ask".into()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Say {
    text: Option<String>,
    #[serde(default)]
    calls: Vec<Call>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    call: String,
    #[serde(default)]
    args: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Once,
    Always,
    Refuse(String),
    Say(String),
}

async fn check(name: &str, source: &str) {
    let scenario: Scenario = toml::from_str(source).unwrap_or_else(|err| panic!("{name}: {err}"));
    let mut n = 0;
    let answers = scenario.model.iter().map(|say| match &say.text {
        Some(text) => says(text),
        None => {
            let named: Vec<_> = say
                .calls
                .iter()
                .map(|call| {
                    n += 1;
                    (format!("c{n}"), call.call.as_str(), call.args.clone())
                })
                .collect();
            calls(
                &named
                    .iter()
                    .map(|(id, name, args)| (id.as_str(), *name, args.clone()))
                    .collect::<Vec<_>>(),
            )
        }
    });
    let mut lab = Lab::new(answers.collect());
    let allow = scenario
        .allow
        .iter()
        .map(|rule| Rule::parse(rule, Verdict::Allow, Level::User).unwrap())
        .collect();
    lab.gate = PermissionGate {
        mode: scenario.mode.parse().unwrap(),
        rules: allow,
        ..PermissionGate::default()
    };
    lab.options.yes = scenario.yes;
    if scenario.deny_asks {
        lab.options.on_ask = OnAsk::Deny;
    }
    lab.person = scenario
        .person
        .into_iter()
        .map(|reply| match reply {
            Reply::Once => Answer::Once,
            Reply::Always => Answer::Always,
            Reply::Refuse(note) => Answer::No { note: Some(note) },
            Reply::Say(text) => Answer::Text { text },
        })
        .collect();
    let ran = lab.run().await;
    let kinds: Vec<String> = ran
        .kinds()
        .into_iter()
        .filter(|kind| !scenario.ignore.contains(kind))
        .collect();
    assert_eq!(kinds, scenario.events, "{name}");
    assert_eq!(ran.outcome().word(), scenario.outcome, "{name}");
    let told: String = ran
        .results()
        .into_iter()
        .map(|(text, _)| text + "\n")
        .collect();
    for text in &scenario.told {
        assert!(told.contains(text), "{name}: {text:?} is not in {told}");
    }
}

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => { $(
        #[tokio::test]
        async fn $name() {
            check(stringify!($name), include_str!(concat!("../scenarios/", stringify!($name), ".toml"))).await;
        }
    )* };
}

scenarios!(
    a_plain_answer,
    a_read_a_write_and_the_end,
    refused_write_is_told_to_the_model,
    always_is_asked_once,
    nobody_to_ask_is_a_denial,
    the_floor_holds_under_yes,
    plan_mode_only_looks,
    a_question_of_the_model,
    bad_arguments_never_reach_the_tool,
);
