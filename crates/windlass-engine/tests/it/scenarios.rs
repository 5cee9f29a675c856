//! Runs the scenario files: answers of the model, answers of the person, and the expected events.

use serde::Deserialize;
use serde_json::Value;
use windlass_core::ask::Answer;
use windlass_core::gate::{Level, PermissionGate, Rule, Verdict};
use windlass_engine::OnAsk;
use windlass_testing::says;

use crate::fixture::{EngineFixture, calls};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    #[serde(default = "ask")]
    mode: String,
    #[serde(default)]
    yes: bool,
    #[serde(default)]
    deny_asks: bool,
    #[serde(default)]
    allow: Vec<String>,
    model: Vec<ScenarioAnswer>,
    #[serde(default)]
    person: Vec<PersonAnswer>,
    #[serde(default)]
    ignore: Vec<String>,
    events: Vec<String>,
    outcome: String,
    /// Texts that the tool results for the model must contain.
    #[serde(default)]
    told: Vec<String>,
}

fn ask() -> String {
    "ask".into()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioAnswer {
    text: Option<String>,
    #[serde(default)]
    calls: Vec<ModelCall>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelCall {
    call: String,
    #[serde(default)]
    args: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PersonAnswer {
    Once,
    Always,
    Refuse(String),
    Say(String),
}

async fn check(name: &str, source: &str) {
    let scenario: ScenarioFile =
        toml::from_str(source).unwrap_or_else(|err| panic!("{name}: {err}"));
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
    let mut fixture = EngineFixture::new(answers.collect());
    let allow = scenario
        .allow
        .iter()
        .map(|rule| Rule::parse(rule, Verdict::Allow, Level::User).unwrap())
        .collect();
    fixture.gate = PermissionGate {
        mode: scenario.mode.parse().unwrap(),
        rules: allow,
        ..PermissionGate::default()
    };
    fixture.options.yes = scenario.yes;
    if scenario.deny_asks {
        fixture.options.on_ask = OnAsk::Deny;
    }
    fixture.person = scenario
        .person
        .into_iter()
        .map(|reply| match reply {
            PersonAnswer::Once => Answer::Once,
            PersonAnswer::Always => Answer::Always { rule: None },
            PersonAnswer::Refuse(note) => Answer::No { note: Some(note) },
            PersonAnswer::Say(text) => Answer::Text { text },
        })
        .collect();
    let ran = fixture.run().await;
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
    a_denied_write_is_reported_to_the_model,
    always_is_asked_once,
    without_a_user_asks_are_denied,
    the_floor_holds_under_yes,
    plan_mode_only_reads,
    a_question_of_the_model,
    bad_arguments_never_reach_the_tool,
);
