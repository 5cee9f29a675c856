//! `policy`: explains the decision of the gate about a call, stage by stage, and compares decisions with a table of
//! expected ones. It uses the real settings, tools and gate, and runs no call.

use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Value, json};
use windlass::core::gate::{CallProtection, Decision, Level, Mode, PermissionGate, Rule, Verdict};
use windlass::core::terms::{Isolation, SandboxLevel};
use windlass::core::tool::Touch;
use windlass::core::workspace::Files;
use windlass::policy::{ExplainOptions, PolicyEval, PolicyExplanation};
use windlass::settings::SettingsLayer;
use windlass::transcript::counted;
use windlass::wire;
use windlass_text::sanitize::plain;

use crate::args::{ExplainArgs, PolicyCommand, PolicyTestArgs};
use crate::command_error::CommandError;
use crate::process;
use crate::{exit, out};

/// The largest table of cases, in bytes.
const MAX_TABLE: u64 = 4 << 20;
/// The largest standard input, in bytes.
const MAX_INPUT: u64 = 1 << 20;

pub(super) fn run(command: &PolicyCommand) -> Result<ExitCode, CommandError> {
    match command {
        PolicyCommand::Explain(args) => explain(args),
        PolicyCommand::Test(args) => test(args),
    }
}

fn explain(args: &ExplainArgs) -> Result<ExitCode, CommandError> {
    let eval = open(args.cd.as_deref(), args.sandbox)?;
    let given = if args.words == ["-"] {
        standard_input()?
    } else {
        args.words.join(" ")
    };
    // The defaults of `run`.
    let options = ExplainOptions {
        in_place: args.in_place,
        approval: args.approval,
    };
    let explanation = eval.explain(&args.tool, &given, &options)?;
    let text = if args.json {
        format!("{}\n", json!(explanation))
    } else {
        as_text(&explanation)
    };
    Ok(exit::print(&text))
}

/// A table of cases, with rules in addition to those of the settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyTable {
    approval: Option<Mode>,
    #[serde(default)]
    rules: TableRules,
    #[serde(default)]
    case: Vec<PolicyCase>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TableRules {
    allow: Vec<String>,
    ask: Vec<String>,
    deny: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyCase {
    tool: Option<String>,
    command: Option<String>,
    args: Option<Value>,
    approval: Option<Mode>,
    sandboxed: Option<bool>,
    #[serde(default)]
    isolated: bool,
    expect: Verdict,
    rule: Option<String>,
}

/// Judges the cases of a table, and prints one line for each unexpected decision.
fn test(args: &PolicyTestArgs) -> Result<ExitCode, CommandError> {
    let name = args.file.display();
    let invalid = |why: String| CommandError::usage(format!("{name}: {why}"));
    let text = wire::read_text(&args.file, MAX_TABLE, "the policy table")?;
    let table: PolicyTable = toml::from_str(&text).map_err(|err| invalid(err.to_string()))?;
    if table.case.is_empty() {
        return Err(invalid("it has no [[case]]".into()));
    }
    let eval = open(args.cd.as_deref(), None)?;
    let mut gate = eval.gate(Isolation::InPlace)?;
    let TableRules { allow, ask, deny } = &table.rules;
    for (verdict, texts) in [
        (Verdict::Allow, allow),
        (Verdict::Ask, ask),
        (Verdict::Deny, deny),
    ] {
        for text in texts {
            let rule = Rule::parse(text, verdict, Level::User);
            gate.rules
                .push(rule.map_err(|err| invalid(err.to_string()))?);
        }
    }
    gate.mode = table.approval.unwrap_or(gate.mode);
    let mut failed = 0_usize;
    for (at, case) in table.case.iter().enumerate() {
        let mismatch = run_case(&eval, &gate, case)
            .map_err(|why| invalid(format!("case {}: {why}", at + 1)))?;
        if let Some(mismatch) = mismatch {
            failed += 1;
            out::out(&format!("case {}: {}\n", at + 1, plain(&mismatch)));
        }
    }
    out::out(&format!(
        "{}, {failed} failed\n",
        counted(table.case.len(), "case")
    ));
    Ok(exit::success_if(failed == 0))
}

/// Returns `None` if the decision is the expected one, and an error if the case is invalid.
fn run_case(
    eval: &PolicyEval,
    gate: &PermissionGate,
    case: &PolicyCase,
) -> Result<Option<String>, String> {
    let mut gate = gate.clone();
    gate.mode = case.approval.unwrap_or(gate.mode);
    let tool = eval
        .tool(case.tool.as_deref().unwrap_or("bash"))
        .map_err(|err| err.message().to_owned())?;
    let args = match (&case.command, &case.args) {
        (Some(command), None) => json!({ "command": command }),
        (None, Some(args)) => args.clone(),
        _ => return Err("give exactly one of `command` and `args`".into()),
    };
    let place = CallProtection {
        isolation: Isolation::from_flag(case.isolated),
        sandboxed: case.sandboxed.unwrap_or(eval.sandboxed),
        has_jobs: false,
    };
    let decision = eval.judge(&gate, tool.as_ref(), &args, place).decision;
    let rule_fits = case.rule.as_ref().is_none_or(|rule| *rule == decision.rule);
    if decision.verdict == case.expect && rule_fits {
        return Ok(None);
    }
    let rule = case.rule.as_ref();
    let wanted = rule.map_or(String::new(), |rule| format!(" by {rule}"));
    let what = case.command.clone().unwrap_or_else(|| args.to_string());
    let what: String = what.chars().take(120).collect();
    Ok(Some(format!(
        "{} `{what}`: expected {}{wanted}, got {} by {}",
        tool.spec().name,
        case.expect,
        decision.verdict,
        decision.rule
    )))
}

fn open(cd: Option<&Path>, sandbox: Option<SandboxLevel>) -> Result<PolicyEval, CommandError> {
    let root = process::open_workspace(cd)?;
    let mut settings = process::load_settings(Some(root.root()))?;
    if let Some(level) = sandbox {
        settings.layers.add(
            SettingsLayer::Flag,
            "sandbox.level",
            level.word(),
            "--sandbox",
        )?;
    }
    Ok(PolicyEval::new(root, settings)?)
}

fn standard_input() -> Result<String, CommandError> {
    use std::io::Read;
    let mut text = String::new();
    std::io::stdin()
        .take(MAX_INPUT + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAX_INPUT {
        return Err(CommandError::usage("standard input is longer than 1 MiB")
            .hint("write the arguments on the command line, or shorten them"));
    }
    Ok(text.strip_suffix('\n').map_or(text.clone(), str::to_owned))
}

fn touched(touch: &Touch) -> String {
    match touch {
        Touch::Read { path, inside: true } => format!("reads {path}"),
        Touch::Read { path, .. } => format!("reads {path}, outside the workspace"),
        Touch::Write {
            path, inside: true, ..
        } => format!("writes {path}"),
        Touch::Write { path, .. } => format!("writes {path}, outside the workspace"),
        Touch::Execute { command, script } => {
            let how = match script.as_deref() {
                Some(script) if script.only_looks() => "read-only".to_owned(),
                Some(script) => match script.unclear.as_ref().or(script.doubt.as_ref()) {
                    Some(why) => format!("uncertain: {why}"),
                    None => "runs".to_owned(),
                },
                None => "not analyzed".to_owned(),
            };
            format!("{how}: {command}")
        }
        Touch::Connect { host } => {
            format!("connects to {}", windlass::core::host_name::in_words(host))
        }
    }
}

fn as_text(explanation: &PolicyExplanation) -> String {
    let mut text = String::new();
    let line = |name: &str, says: &str| {
        format!(
            "{name:<16} {}\n",
            plain(says).replace('\n', "\n                 ")
        )
    };
    for stage in &explanation.stages {
        let says = match &stage.says {
            Some(decision) => format!(
                "{}: {} ({})",
                decision.verdict, decision.reason, decision.rule
            ),
            None if stage.stage == "tool validation" => explanation
                .touches
                .iter()
                .map(touched)
                .collect::<Vec<_>>()
                .join("\n"),
            None if stage.stage == "capability" => explanation.capability.clone(),
            None => "-".to_owned(),
        };
        text.push_str(&line(stage.stage, &says));
    }
    let Decision {
        verdict,
        rule,
        reason,
    } = &explanation.decision;
    text.push_str(&line("decision", &format!("{verdict}: {reason} ({rule})")));
    text
}
