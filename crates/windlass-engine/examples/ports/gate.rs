//! The gate: rules and a mode are data that anyone may supply. The order of judgement is fixed, so the gate is not a port.
//! A denied tool is removed before the model sees it. A denied path is refused, and the model gets the rule.
//! Nothing loosens the floor: no rule and no `yes` lets a call write into `.git`.

use serde_json::json;
use windlass_core::gate::{CallProtection, Level, Mode, PermissionGate, Proposal, Rule, Verdict};
use windlass_core::tool::{Effect, ToolOutput, Touch};
use windlass_engine::{Request, RunOptions};
use windlass_testing::{FnTool, call, says};

use super::ExampleResult;
use super::fakes::Fakes;

pub(crate) async fn run_example() -> ExampleResult {
    let rules = [
        ("write_file(docs/**)", Verdict::Allow),
        ("write_file(docs/legal/**)", Verdict::Deny),
        ("write_file(.git/**)", Verdict::Allow),
        ("bash", Verdict::Deny),
    ];
    let rules = rules.map(|(text, verdict)| Rule::parse(text, verdict, Level::User));
    let rules = rules.into_iter().collect::<Result<Vec<_>, _>>()?;
    let gate = PermissionGate {
        mode: Mode::Ask,
        rules,
        ..PermissionGate::default()
    };

    // The gate alone, without an engine.
    let explained = |path: &str| {
        let touches = [Touch::Write {
            path: path.into(),
            inside: true,
            new: false,
        }];
        let place = CallProtection::default();
        gate.explain(&Proposal {
            tool: "write_file",
            effect: Effect::Write,
            touches: &touches,
            place,
        })
        .decision
    };
    assert_eq!(explained("docs/guide.md").verdict, Verdict::Allow);
    assert_eq!(explained("docs/legal/terms.md").verdict, Verdict::Deny);
    assert_eq!(explained("src/lib.rs").verdict, Verdict::Ask);

    // The same rules in a run.
    let paths = ["docs/guide.md", "docs/legal/terms.md", ".git/config"];
    let replies = paths
        .iter()
        .enumerate()
        .map(|(n, path)| call(&n.to_string(), "write_file", &json!({ "path": path })));
    let fakes = Fakes::new(replies.chain([says("done")]));
    let tool = |name, effect| {
        FnTool::new(name, effect, |_, _| {
            Box::pin(async { Ok(ToolOutput::text("written")) })
        })
    };
    let tools = [
        tool("write_file", Effect::Write).boxed(),
        tool("bash", Effect::Execute).boxed(),
    ];
    let engine = fakes.builder().tools(tools).gate(gate).build()?;
    let options = RunOptions {
        yes: true,
        ..RunOptions::default()
    };
    engine
        .execute(Request {
            options,
            ..Request::new("write everywhere")
        })
        .await?;
    let requests = fakes.provider.requests();
    assert_eq!(
        requests[0].tools,
        ["write_file"],
        "the model never hears of bash"
    );
    let results: Vec<String> = requests
        .last()
        .ok_or("it was asked")?
        .messages
        .iter()
        .map(results)
        .collect();
    let told = results.join("\n");
    assert_eq!(told.matches("written").count(), 1, "{told}");
    assert!(
        told.contains("user rule write_file(docs/legal/**)")
            && told.matches("[blocked]").count() == 2,
        "{told}"
    );
    Ok(())
}

/// The texts of the tool results in a message.
fn results(message: &windlass_core::message::Message) -> String {
    let text = |part: &windlass_core::message::Part| match part {
        windlass_core::message::Part::Result(result) => Some(result.text.clone()),
        _ => None,
    };
    message
        .parts
        .iter()
        .filter_map(text)
        .collect::<Vec<_>>()
        .join("\n")
}
