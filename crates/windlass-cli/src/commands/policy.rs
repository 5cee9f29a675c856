//! `policy`: what the gate says about a call, stage by stage, and tables of calls with the verdicts they must have.
//! The real settings, the real tools and the real gate; nothing is run.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use windlass::core::ask::{Answer, Question};
use windlass::core::gate::{
    Decision, Explained, Level, Mode, PermissionGate, Place, Proposal, Rule, Stage, Verdict,
};
use windlass::core::message::ErrorCategory;
use windlass::core::terms::Isolation;
use windlass::core::tool::{Tool, ToolCtx, ToolFailure, ToolSet, Touch, Voice, canonical_name};
use windlass::core::workspace::{Artifacts, Files, Processes};
use windlass::core::{BoxFuture, CancellationToken};
use windlass::machine::ArtifactDir;
use windlass::machine::Root;
use windlass::machine::{HostProcesses, child_env};
use windlass::settings::{Layer, nearest};

use crate::args::{ExplainArgs, PolicyCommand, PolicyTestArgs};
use crate::failure::Failure;
use crate::process;
use crate::safe::plain;
use crate::{exit, out};
use windlass::settings::Settings;
use windlass::{program_tools, sandboxing, wire};

/// The largest table of cases.
const MAX_TABLE: u64 = 4 << 20;
/// What standard input may hold.
const MAX_INPUT: u64 = 1 << 20;

pub(super) fn run(command: &PolicyCommand) -> Result<ExitCode, Failure> {
    match command {
        PolicyCommand::Explain(args) => explain(args),
        PolicyCommand::Test(args) => test(args),
    }
}

fn explain(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let desk = Desk::open(args.cd.as_deref(), args.sandbox.as_deref())?;
    let mut gate = desk.gate()?;
    if let Some(mode) = &args.approval {
        gate.mode = mode.parse().map_err(Failure::usage)?;
    }
    let place = Place {
        isolation: Isolation::from_flag(args.isolated),
        sandboxed: desk.held,
    };
    let tool = desk.tool(&args.tool)?;
    let given = if args.words == ["-"] {
        standard_input()?
    } else {
        args.words.join(" ")
    };
    let judged = desk.judge(
        &gate,
        tool.as_ref(),
        &arguments(tool.as_ref(), &given)?,
        place,
    );
    let text = if args.json {
        format!("{}\n", as_json(&judged))
    } else {
        as_text(&judged)
    };
    Ok(exit::printed(&text))
}

/// Runs a table of cases; one line for each that is decided otherwise.
fn test(args: &PolicyTestArgs) -> Result<ExitCode, Failure> {
    let name = args.file.display();
    let wrong = |why: String| Failure::usage(format!("{name}: {why}"));
    let text = wire::read_text(&args.file, MAX_TABLE, "the policy table")?;
    let table: Value = toml::from_str(&text).map_err(|err| wrong(err.to_string()))?;
    if let Some(key) = keys(&table).find(|key| !matches!(*key, "rules" | "case" | "approval")) {
        return Err(wrong(format!(
            "`{key}` is not known; a table has `approval`, `[rules]` and `[[case]]`"
        )));
    }
    let desk = Desk::open(args.cd.as_deref(), None)?;
    let mut gate = desk.gate()?;
    gate.rules.extend(rules(&table["rules"]).map_err(wrong)?);
    if let Some(mode) = table["approval"].as_str() {
        gate.mode = mode.parse().map_err(wrong)?;
    }
    let cases = table["case"].as_array().filter(|cases| !cases.is_empty());
    let cases = cases.ok_or_else(|| wrong("it has no [[case]]".into()))?;
    let mut failed = 0_usize;
    for (at, case) in cases.iter().enumerate() {
        let said =
            run_case(&desk, &gate, case).map_err(|why| wrong(format!("case {}: {why}", at + 1)))?;
        if let Some(said) = said {
            failed += 1;
            out::out(&format!("case {}: {}\n", at + 1, plain(&said)));
        }
    }
    out::out(&format!(
        "{} cases, {failed} decided otherwise\n",
        cases.len()
    ));
    Ok(exit::unless_broken(if failed == 0 {
        0
    } else {
        exit::FAILED
    }))
}

fn keys(value: &Value) -> impl Iterator<Item = &str> {
    value
        .as_object()
        .into_iter()
        .flat_map(|map| map.keys().map(String::as_str))
}

fn rules(table: &Value) -> Result<Vec<Rule>, String> {
    let mut rules = Vec::new();
    for key in keys(table) {
        let verdict = match key {
            "allow" => Verdict::Allow,
            "ask" => Verdict::Ask,
            "deny" => Verdict::Deny,
            other => {
                return Err(format!(
                    "`rules.{other}` is not known; use allow, ask and deny"
                ));
            }
        };
        let texts = table[key]
            .as_array()
            .ok_or_else(|| format!("`rules.{key}` must be a list"))?;
        for text in texts {
            let text = text
                .as_str()
                .ok_or_else(|| format!("`rules.{key}` must be a list of texts"))?;
            rules.push(Rule::parse(text, verdict, Level::User).map_err(|err| err.to_string())?);
        }
    }
    Ok(rules)
}

/// `None` when a case is decided as it must be; an error when it cannot be read.
fn run_case(desk: &Desk, gate: &PermissionGate, case: &Value) -> Result<Option<String>, String> {
    const KEYS: [&str; 8] = [
        "tool",
        "command",
        "args",
        "approval",
        "sandboxed",
        "isolated",
        "expect",
        "rule",
    ];
    if let Some(key) = keys(case).find(|key| !KEYS.contains(key)) {
        return Err(format!(
            "`{key}` is not known; a case has {}",
            KEYS.join(", ")
        ));
    }
    let text = |key: &str| case[key].as_str();
    let flag = |key: &str, without: bool| match &case[key] {
        Value::Null => Ok(without),
        value => value
            .as_bool()
            .ok_or_else(|| format!("`{key}` must be true or false")),
    };
    let mut gate = gate.clone();
    if let Some(mode) = text("approval") {
        gate.mode = mode.parse::<Mode>()?;
    }
    let tool = desk
        .tool(text("tool").unwrap_or("bash"))
        .map_err(|err| err.message())?;
    let args = match (text("command"), case.get("args")) {
        (Some(command), None) => json!({ "command": command }),
        (None, Some(args)) => args.clone(),
        _ => return Err("give exactly one of `command` and `args`".into()),
    };
    let expect = text("expect").ok_or("`expect` is missing; use allow, ask, person or deny")?;
    if !["allow", "ask", "person", "deny"].contains(&expect) {
        return Err(format!(
            "`{expect}` is not a verdict; use allow, ask, person or deny"
        ));
    }
    let place = Place {
        isolation: Isolation::from_flag(flag("isolated", false)?),
        sandboxed: flag("sandboxed", desk.held)?,
    };
    let decision = desk.judge(&gate, tool.as_ref(), &args, place).decision;
    let got = word(decision.verdict);
    let rule_fits = text("rule").is_none_or(|rule| rule == decision.rule);
    if got == expect && rule_fits {
        return Ok(None);
    }
    let wanted =
        text("rule").map_or_else(|| expect.to_owned(), |rule| format!("{expect} by {rule}"));
    let what: String = text("command")
        .map_or_else(|| args.to_string(), str::to_owned)
        .chars()
        .take(120)
        .collect();
    Ok(Some(format!(
        "{} `{what}`: expected {wanted}, got {got} by {}",
        tool.spec().name,
        decision.rule
    )))
}

/// The settings and tools of a workspace.
struct Desk {
    settings: Settings,
    /// Whether the settings put commands in a sandbox.
    held: bool,
    tools: ToolSet,
    files: Arc<dyn Files>,
    processes: Arc<dyn Processes>,
    artifacts: Arc<dyn Artifacts>,
}

impl Desk {
    fn open(cd: Option<&Path>, sandbox: Option<&str>) -> Result<Self, Failure> {
        let root: Arc<Root> = Arc::new(process::open_workspace(cd)?);
        let mut settings = process::load_settings(Some(root.root()))?;
        if let Some(level) = sandbox {
            settings
                .layers
                .add(Layer::Flag, "sandbox.level", level, "--sandbox")?;
        }
        let processes = HostProcesses::new(root.clone(), child_env(std::iter::empty(), &[]));
        let artifacts = ArtifactDir::new(settings.places.sessions_dir().join("none"));
        Ok(Self {
            held: sandboxing::holds_commands(&settings)?,
            tools: ToolSet::new(program_tools::all_tools(&settings)?),
            settings,
            files: root,
            processes: Arc::new(processes),
            artifacts: Arc::new(artifacts),
        })
    }

    fn gate(&self) -> Result<PermissionGate, Failure> {
        let names: Vec<&str> = self
            .tools
            .iter()
            .map(|tool| tool.spec().name.as_str())
            .collect();
        Ok(self.settings.gate(Mode::Ask, &names)?)
    }

    fn tool(&self, name: &str) -> Result<&Arc<dyn Tool>, Failure> {
        self.tools.get(canonical_name(name)).ok_or_else(|| {
            let failure = Failure::usage(format!("there is no tool `{name}`"));
            match nearest(
                name,
                self.tools.iter().map(|tool| tool.spec().name.as_str()),
            ) {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => failure.hint("`windlass tools` lists them"),
            }
        })
    }

    /// The stages of the gate, with those around it: whether the tool takes the call, and where it would run.
    fn judge(&self, gate: &PermissionGate, tool: &dyn Tool, args: &Value, place: Place) -> Judged {
        let name = tool.spec().name.as_str();
        let ctx = ToolCtx {
            files: &self.files,
            processes: &self.processes,
            artifacts: &self.artifacts,
            voice: &Silent,
            cancel: CancellationToken::new(),
        };
        let capability = capability(place);
        let fits = windlass::engine::check_arguments(name, &tool.spec().schema, args);
        let touches = match fits {
            Ok(()) => tool.touches(args, &ctx),
            Err(why) => Err(ToolFailure::new(ErrorCategory::InvalidArguments, why)),
        };
        match touches {
            Ok(touches) => {
                let proposal = Proposal {
                    tool: name,
                    effect: tool.spec().effect,
                    touches: &touches,
                    place,
                };
                let Explained {
                    mut stages,
                    mut decision,
                } = gate.explain(&proposal);
                if gate.hides(name) {
                    decision = Decision {
                        verdict: Verdict::Deny,
                        rule: decision.rule,
                        reason: "the model does not see this tool".into(),
                    };
                }
                stages.insert(
                    3,
                    Stage {
                        name: "tool validation",
                        says: None,
                    },
                );
                Judged {
                    stages,
                    decision,
                    touches,
                    capability,
                }
            }
            Err(failure) => {
                let decision = Decision {
                    verdict: Verdict::Deny,
                    rule: "tool validation".into(),
                    reason: failure.text,
                };
                let stage = Stage {
                    name: "tool validation",
                    says: Some(decision.clone()),
                };
                Judged {
                    stages: vec![stage],
                    decision,
                    touches: Vec::new(),
                    capability,
                }
            }
        }
    }
}

struct Judged {
    stages: Vec<Stage>,
    decision: Decision,
    touches: Vec<Touch>,
    capability: &'static str,
}

fn capability(place: Place) -> &'static str {
    match (place.isolation.is_isolated(), place.sandboxed) {
        (false, false) => "in place, with no kernel sandbox",
        (false, true) => "in place, in a kernel sandbox",
        (true, false) => "on a private copy, with no kernel sandbox",
        (true, true) => "on a private copy, in a kernel sandbox",
    }
}

/// Nobody is asked here.
struct Silent;

impl Voice for Silent {
    fn progress(&self, _text: &str) {}
    fn ask<'a>(&'a self, _question: Question) -> BoxFuture<'a, Answer> {
        Box::pin(async { Answer::Nobody })
    }
    fn notes(&self) -> String {
        String::new()
    }
    fn set_notes<'a>(&'a self, _text: String) -> BoxFuture<'a, Result<(), ToolFailure>> {
        Box::pin(async {
            Err(ToolFailure::new(
                ErrorCategory::Exception,
                "nothing is kept here",
            ))
        })
    }
}

/// The arguments of a call: JSON, or the command or path alone.
fn arguments(tool: &dyn Tool, given: &str) -> Result<Value, Failure> {
    let properties = &tool.spec().schema["properties"];
    if given.trim_start().starts_with('{') {
        match serde_json::from_str(given) {
            Ok(args) => return Ok(args),
            // A group of commands begins with a brace, too.
            Err(_) if properties.get("command").is_some() => {}
            Err(err) => return Err(Failure::usage(format!("the arguments are not JSON: {err}"))),
        }
    }
    let key = ["command", "path", "pattern"]
        .into_iter()
        .find(|key| properties.get(key).is_some());
    if given.is_empty() {
        return Ok(json!({}));
    }
    let Some(key) = key else {
        return Err(Failure::usage(format!(
            "`{}` takes neither a command nor a path",
            tool.spec().name
        ))
        .hint("give its arguments as JSON; `windlass tools NAME` shows their schema"));
    };
    let mut args = json!({ key: given });
    // What a file would hold does not matter to the gate.
    for needed in tool.spec().schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if args.get(needed).is_none() && properties[needed]["type"] == "string" {
            args[needed] = json!("");
        }
    }
    Ok(args)
}

fn standard_input() -> Result<String, Failure> {
    use std::io::Read;
    let mut text = String::new();
    std::io::stdin().take(MAX_INPUT).read_to_string(&mut text)?;
    Ok(text.strip_suffix('\n').map_or(text.clone(), str::to_owned))
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask",
        Verdict::Person => "person",
        Verdict::Deny => "deny",
    }
}

fn touched(touch: &Touch) -> String {
    match touch {
        Touch::Read { path, inside: true } => format!("reads {path}"),
        Touch::Read { path, .. } => format!("reads {path}, outside the workspace"),
        Touch::Write { path, inside: true } => format!("writes {path}"),
        Touch::Write { path, .. } => format!("writes {path}, outside the workspace"),
        Touch::Execute { command, script } => {
            let how = match script.as_deref() {
                Some(script) if script.only_looks() => "only looks".to_owned(),
                Some(script) => match script.unclear.as_ref().or(script.doubt.as_ref()) {
                    Some(why) => format!("not certain: {why}"),
                    None => "runs".to_owned(),
                },
                None => "not taken apart".to_owned(),
            };
            format!("{how}: {command}")
        }
        Touch::Connect { host } => format!("connects to {host}"),
    }
}

fn as_text(judged: &Judged) -> String {
    let mut text = String::new();
    let line = |name: &str, says: &str| {
        format!(
            "{name:<16} {}\n",
            plain(says).replace('\n', "\n                 ")
        )
    };
    for stage in &judged.stages {
        let says = match &stage.says {
            Some(decision) => format!(
                "{}: {} ({})",
                word(decision.verdict),
                decision.reason,
                decision.rule
            ),
            None if stage.name == "tool validation" => judged
                .touches
                .iter()
                .map(touched)
                .collect::<Vec<_>>()
                .join("\n"),
            None if stage.name == "capability" => judged.capability.to_owned(),
            None => "-".to_owned(),
        };
        text.push_str(&line(stage.name, &says));
    }
    let Decision {
        verdict,
        rule,
        reason,
    } = &judged.decision;
    text.push_str(&line(
        "decision",
        &format!("{}: {reason} ({rule})", word(*verdict)),
    ));
    text
}

fn as_json(judged: &Judged) -> Value {
    let decision = |says: &Decision| json!({ "verdict": word(says.verdict), "rule": says.rule, "reason": says.reason });
    let stages: Vec<Value> = judged
        .stages
        .iter()
        .map(|stage| json!({ "stage": stage.name, "says": stage.says.as_ref().map(decision) }))
        .collect();
    json!({
        "stages": stages,
        "touches": judged.touches,
        "capability": judged.capability,
        "decision": decision(&judged.decision),
    })
}
