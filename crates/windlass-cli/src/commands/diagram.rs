//! `diagram`: draws the settings, tools, gate and checks of a run in this workspace as a Mermaid flowchart. It sends and
//! starts nothing.

use std::process::ExitCode;

use windlass::checks::ValidatorPlan;
use windlass::core::budget::Budget;
use windlass::core::gate::{Mode, PermissionGate};
use windlass::core::tool::Exposure;
use windlass::core::workspace::{Files, Redactor};
use windlass::machine::Secrets;
use windlass_text::sanitize::{message, one_line};

use crate::args::DiagramArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::out::say;
use crate::process;
use windlass::model::ModelPlan;
use windlass::settings::Settings;
use windlass::{contract, program_tools, sandboxing};

/// The most rules that are drawn; the rest is counted.
const MAX_RULES: usize = 12;
/// The most characters of one line of a label.
const MAX_LABEL: usize = 120;

pub(super) fn run(args: &DiagramArgs) -> Result<ExitCode, CommandError> {
    let (agent, checks) = args.run_flags();
    let root = process::open_workspace(agent.cd.as_deref())?;
    let mut settings = process::load_settings(Some(root.root()))?;
    settings.add_flags(&agent, &args.limits)?;
    settings.add_contract_flags(&checks)?;
    for warning in &settings.warnings {
        say!("warning: {}", message(warning));
    }
    let isolated = !args.in_place
        && !settings
            .profile
            .as_ref()
            .is_some_and(|profile| profile.in_place);
    let tools = program_tools::all_tools(&settings)?;
    let gate = settings.gate(Mode::usual(isolated), &program_tools::names(&tools))?;
    let mut chart = Chart::default();
    chart.line("flowchart LR");
    chart.node("person", &["prompt"]);
    let runtime = settings.layers.text("runtime").unwrap_or("native");
    chart.node("runtime", &[&format!("runtime: {runtime}")]);
    chart.node("provider", &[&model(&agent, &settings)]);
    chart.node(
        "budget",
        &budget(&settings.budget()?)
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    chart.node(
        "gate",
        &rules(&gate).iter().map(String::as_str).collect::<Vec<_>>(),
    );
    chart.line("  subgraph tools [\"tools\"]");
    for tool in &tools {
        let spec = tool.spec();
        if spec.exposure != Exposure::Disabled && !gate.hides(&spec.name) {
            let effect = format!("{:?}", spec.effect).to_lowercase();
            chart.node(
                &format!("tool_{}", identifier(&spec.name)),
                &[&spec.name, &effect],
            );
        }
    }
    chart.line("  end");
    let (level, net) = sandboxing::described(&settings)?;
    chart.node(
        "sandbox",
        &[&format!("sandbox: {level}"), &format!("network: {net}")],
    );
    let place = if isolated {
        "a private copy of"
    } else {
        "in place:"
    };
    chart.node(
        "workspace",
        &["workspace", &format!("{place} {}", root.root().display())],
    );
    chart.line("  subgraph checks [\"checks before landing\"]");
    let plans = contract::chain(&settings, &checks, &root, isolated)?;
    for (at, plan) in plans.iter().enumerate() {
        chart.node(&format!("check_{at}"), &[&plan.name, stops(plan)]);
    }
    if plans.is_empty() {
        chart.node("check_none", &["no checks"]);
    }
    chart.line("  end");
    chart.node("tree", &["your working tree"]);
    chart.node(
        "sessions",
        &[
            "sessions",
            &settings.places.sessions_dir().display().to_string(),
        ],
    );
    chart.arrows(isolated);
    Ok(exit::print(&chart.text))
}

/// Describes the provider and the model, or the reason why there is none.
fn model(agent: &windlass::flags::AgentFlags, settings: &Settings) -> String {
    match ModelPlan::of(agent, settings) {
        Ok(ModelPlan::Given(given)) => given.model,
        Ok(ModelPlan::Scripted(path)) => format!("provider: scripted\nmodel: {}", path.display()),
        Ok(ModelPlan::Served {
            vendor,
            model,
            base_url,
            ..
        }) => {
            // A URL may contain a password.
            let at = base_url
                .map(|url| format!("\nat {}", Secrets::default().redact(&url)))
                .unwrap_or_default();
            format!("provider: {}\nmodel: {model}{at}", vendor.id)
        }
        Err(error) => format!("no model: {}", error.message()),
    }
}

fn budget(budget: &Budget) -> Vec<String> {
    let number = |number: Option<u64>| {
        number.map_or_else(|| "unlimited".to_owned(), |number| number.to_string())
    };
    let money = budget.cost_micros.map_or_else(
        || "unlimited".to_owned(),
        |micros| format!("${}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000),
    );
    vec![
        "budget".to_owned(),
        format!("money: {money}"),
        format!("tokens: {}", number(budget.tokens)),
        format!("steps: {}", number(budget.steps.map(u64::from))),
        format!("iterations: {}", number(budget.iterations.map(u64::from))),
        format!("seconds: {}", number(budget.seconds)),
    ]
}

fn rules(gate: &PermissionGate) -> Vec<String> {
    let mut lines = vec!["gate".to_owned(), format!("mode: {}", gate.mode)];
    for rule in gate.rules.iter().take(MAX_RULES) {
        lines.push(format!(
            "{} {rule}",
            format!("{:?}", rule.verdict).to_lowercase()
        ));
    }
    if gate.rules.len() > MAX_RULES {
        lines.push(format!("and {} more rules", gate.rules.len() - MAX_RULES));
    }
    lines.push("floor: always applies".to_owned());
    lines
}

fn stops(plan: &ValidatorPlan) -> &'static str {
    if plan.blocking {
        "must pass"
    } else {
        "only reports"
    }
}

/// Builds the text of a flowchart.
#[derive(Default)]
struct Chart {
    text: String,
}

impl Chart {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn node(&mut self, id: &str, lines: &[&str]) {
        let label: Vec<String> = lines
            .iter()
            .flat_map(|text| text.split('\n'))
            .map(label)
            .collect();
        self.line(&format!("  {id}[\"{}\"]", label.join("<br/>")));
    }

    fn arrows(&mut self, isolated: bool) {
        let lands = if isolated {
            "checks -->|lands when they pass| tree"
        } else {
            "workspace --- tree"
        };
        for arrow in [
            "person --> runtime",
            "runtime -->|requests| provider",
            "budget -.->|limits| runtime",
            "runtime -->|calls| gate",
            "gate -->|allowed or approved| tools",
            "tools -->|commands| sandbox",
            "tools --> workspace",
            "sandbox --> workspace",
            "workspace --> checks",
            lands,
            "runtime -.->|every event| sessions",
        ] {
            self.line(&format!("  {arrow}"));
        }
    }
}

/// Escapes text for a label, so that Mermaid interprets none of it.
fn label(text: &str) -> String {
    let text = one_line(text);
    let mut out = String::new();
    for c in text.chars().take(MAX_LABEL) {
        match c {
            c if c.is_alphanumeric() => out.push(c),
            ' ' | '.' | ',' | ':' | '/' | '-' | '_' | '$' | '+' | '=' => out.push(c),
            c => out.push_str(&format!("#{};", u32::from(c))),
        }
    }
    if text.chars().count() > MAX_LABEL {
        out.push('…');
    }
    out
}

fn identifier(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(label(text), expect);
    }

    #[test]
    fn special_characters_of_a_label_are_escaped() {
        check("bash(rm *)", "bash#40;rm #42;#41;");
        check(
            "\"]; click a \"javascript:x\"",
            "#34;#93;#59; click a #34;javascript:x#34;",
        );
        check(
            "a\nb<br>%%{init}%%",
            "a#9166;b#60;br#62;#37;#37;#123;init#125;#37;#37;",
        );
    }
}
