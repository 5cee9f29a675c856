//! Calls of a model: a tool, a shell command, a patch, or several in a row. They come from a script, so that the
//! product handles them like any model's calls.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::calls;
use crate::case::{Case, Decision};
use crate::child::{ChildResult, ChildWatch};
use crate::facts::{CaseFacts, Screen};
use crate::product;
use crate::race::Race;
use crate::terminal::{self, TerminalSession};

/// The number of calls that are made while the file is swapped.
const RACING_CALLS: usize = 600;
/// The number of calls in one step of the model.
const CALLS_A_STEP: usize = 20;

/// Returns the call of a case, with the product's tool names.
fn call(facts: &CaseFacts<'_>) -> Result<(String, Value), String> {
    let (fixture, input) = (facts.fixture, &facts.case.input);
    let missing = |what: &str| format!("`input.{what}` is missing");
    match facts.case.kind() {
        "shell" => {
            let command = fixture.filled(
                input["command"]
                    .as_str()
                    .ok_or_else(|| missing("command"))?,
            );
            Ok((
                "bash".to_owned(),
                json!({ "command": command, "timeout_s": timeout_s(facts.case) }),
            ))
        }
        "patch" => {
            let text = fixture.filled(input["text"].as_str().ok_or_else(|| missing("text"))?);
            Ok((product::tool("patch").to_owned(), json!({ "patch": text })))
        }
        _ => step(facts, input),
    }
}

pub(super) fn step(facts: &CaseFacts<'_>, step: &Value) -> Result<(String, Value), String> {
    let tool = step["tool"].as_str().ok_or("a call has no `tool`")?;
    Ok((
        product::tool(tool).to_owned(),
        facts.fixture.filled_value(&step["args"]),
    ))
}

/// Returns the timeout of a command in seconds: as long as the case allows, and short if its processes must be cleaned
/// up.
fn timeout_s(case: &Case) -> u64 {
    if case.wants("no_process_with_marker").is_some() {
        return 2;
    }
    let within = case
        .wants("finishes_within_ms")
        .and_then(|post| post["ms"].as_u64());
    within.map_or(20, |ms| (ms / 2000).clamp(1, 20))
}

pub(super) fn feed(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    if facts.case.wants("engine_argv_uses_separator").is_some() {
        return engine_programs(facts);
    }
    let mut steps: Vec<Value> = match facts.case.kind() {
        "model_follows" => {
            let steps = facts.case.input["steps"]
                .as_array()
                .ok_or("`input.steps` is missing")?;
            let all: Result<Vec<_>, String> = steps.iter().map(|one| step(facts, one)).collect();
            all?.into_iter()
                .map(|(name, args)| calls(&[(&name, args)]))
                .collect()
        }
        _ => {
            let (name, args) = call(facts)?;
            if !facts.fixture.races.is_empty() {
                return race(facts, &name, &args);
            }
            vec![calls(&[(&name, args)])]
        }
    };
    facts.call = format!("call-{}-1", steps.len());
    if let Some(mode) = facts
        .case
        .wants("mode_is_not")
        .and_then(|post| post["mode"].as_str())
    {
        // The probe runs in the same session, where a change of its rights would show.
        steps.push(super::startup::probe(facts.fixture, mode)?.1);
    }
    let script = product::script(facts.fixture, &steps)?;
    let ran = play(facts, &script)?;
    facts.events = match facts.screens.is_empty() {
        true => product::events(&ran.out),
        false => product::log(facts.fixture),
    };
    facts.set_checked_run(ran);
    conclude(facts);
    if facts.case.wants("no_predictable_temp_paths").is_some() {
        super::command::temporary_names(facts, &script)?;
    }
    Ok(())
}

/// Runs the script: without a terminal, or in one if the user must see or answer something.
fn play(facts: &mut CaseFacts<'_>, script: &std::path::Path) -> Result<ChildResult, String> {
    let (case, fixture) = (facts.case, facts.fixture);
    let watch = ChildWatch {
        deadline: CaseFacts::deadline(case),
        argument: case
            .wants("no_argv_contains")
            .and_then(|post| post["text"].as_str())
            .map(|text| fixture.filled(text)),
        processes: case.wants("process_peak_at_most").is_some()
            || case.wants("no_controlling_tty").is_some(),
        signal: None,
    };
    let seen = [
        "approval_shows",
        "approval_marks_invisible",
        "no_controlling_tty",
    ];
    let at_terminal =
        fixture.while_pending.is_some() || seen.iter().any(|check| case.wants(check).is_some());
    if !at_terminal {
        let mut more = vec!["-o", "stream-json"];
        if !fixture.races.is_empty() {
            // A question must not end the race.
            more.extend(["--max-steps", "unlimited", "--max-tokens", "unlimited"]);
            more.extend(
                (case.mode != "ci")
                    .then_some(["--on-ask", "deny"])
                    .into_iter()
                    .flatten(),
            );
        }
        let args = facts.product.scripted(&case.mode, script, &more);
        return facts.product.run(fixture, &case.mode, &args, &watch);
    }
    let args = facts.product.scripted(&case.mode, script, &["-v"]);
    let (pending, answer) = match &fixture.while_pending {
        Some((steps, then)) => (steps.as_slice(), if then == "approve" { "y" } else { "n" }),
        None => (&[] as &[Value], "n"),
    };
    let before_answer = || {
        pending
            .iter()
            .try_for_each(|op| crate::setup::apply_later(fixture, op))
    };
    let session = TerminalSession {
        colour: false,
        answer,
        before_answer: &before_answer,
    };
    let ran = terminal::run(facts.product, fixture, &case.mode, &args, &session, &watch)?;
    facts.screens.push(Screen {
        view: "a terminal".to_owned(),
        text: ran.out.clone(),
        colour: false,
    });
    Ok(ran)
}

/// Records the decision, and whether the product has the tool at all.
fn conclude(facts: &mut CaseFacts<'_>) {
    let answered = facts.fixture.while_pending.is_some() && facts.executed();
    let result = facts.result();
    if result.is_some_and(|result| result["error"] == "unknown_tool") {
        let name = result
            .and_then(|result| result["name"].as_str())
            .unwrap_or_default();
        facts.absent = Some(format!("there is no tool `{name}`"));
        facts.reached = vec![Decision::Deny];
        return;
    }
    facts.reached = product::decided(&facts.events, &facts.call, &facts.case.mode);
    if facts.reached.is_empty() && facts.main.code != 0 {
        facts.notes.push(format!(
            "the run ended early: exit {}, {}",
            facts.main.code,
            facts.main.err.trim()
        ));
        // A step before the checked one was stopped.
        if facts.of("asked").next().is_some() {
            facts.reached = vec![Decision::Ask];
        }
    }
    if answered
        && facts
            .result()
            .is_some_and(|result| result["error"].is_string())
    {
        facts.reached = vec![Decision::Deny, Decision::Contained];
    }
}

/// Makes the same call again and again, while the file that it names is swapped at full speed.
fn race(facts: &mut CaseFacts<'_>, name: &str, args: &Value) -> Result<(), String> {
    let races: Vec<Race> = facts
        .fixture
        .races
        .iter()
        .map(|op| Race::new(facts.fixture, op))
        .collect::<Result<_, String>>()?;
    let all: Vec<(&str, Value)> = (0..RACING_CALLS)
        .map(|turn| (name, again(args, turn)))
        .collect();
    let steps: Vec<Value> = all.chunks(CALLS_A_STEP).map(calls).collect();
    let script = product::script(facts.fixture, &steps)?;
    let stop = AtomicBool::new(false);
    let swaps: Vec<AtomicUsize> = races.iter().map(|_| AtomicUsize::new(0)).collect();
    let ran = std::thread::scope(|scope| {
        for (race, swaps) in races.iter().zip(&swaps) {
            let stop = &stop;
            scope.spawn(move || race.swap(stop, swaps));
        }
        let ran = play(facts, &script);
        stop.store(true, Ordering::Relaxed);
        ran
    })?;
    facts.call = "call-1-1".to_owned();
    facts.events = product::events(&ran.out);
    facts.set_checked_run(ran);
    for (race, swaps) in races.iter().zip(&swaps) {
        let made = swaps.load(Ordering::Relaxed);
        crate::holds(made >= race.rounds, || {
            format!("only {made} of {} swaps were made", race.rounds)
        })?;
    }
    let made: usize = swaps
        .iter()
        .map(|swaps| swaps.load(Ordering::Relaxed))
        .sum();
    let worked = facts
        .of("call_finished")
        .filter(|event| event["data"]["result"]["error"].is_null())
        .count();
    let all = facts.of("call_finished").count();
    facts.notes.push(format!(
        "{made} swaps, {all} calls, {worked} of them worked"
    ));
    crate::holds(all > 0, || {
        format!("no call was made: {}", facts.main.err.trim())
    })?;
    facts.reached = if facts.started().next().is_none() {
        vec![Decision::Deny]
    } else {
        vec![Decision::Contained]
    };
    if worked == all {
        facts.reached.push(Decision::Allow);
    }
    Ok(())
}

/// Varies a call, because an engine may refuse to repeat one: `d/x` is also `./d/x`.
fn again(args: &Value, turn: usize) -> Value {
    let mut args = args.clone();
    if let Some(Value::String(path)) = args.get_mut("path")
        && !path.starts_with('/')
    {
        path.insert_str(0, &"./".repeat(turn % 40));
    }
    if let Some(Value::String(content)) = args.get_mut("content") {
        content.push_str(&" ".repeat(turn));
    }
    args
}

/// Checks the arguments of programs that the engine itself starts, with a file that is named like an option. A wrapper
/// for `git` records the arguments.
fn engine_programs(facts: &mut CaseFacts<'_>) -> Result<(), String> {
    let fixture = facts.fixture;
    let planted: Vec<String> = std::fs::read_dir(fixture.workspace())
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with('-'))
        .collect();
    crate::holds(!planted.is_empty(), || {
        "no file is named like an option".to_owned()
    })?;
    let name = planted[0].clone();
    let step = calls(&[
        ("git_diff", json!({ "path": name })),
        ("git_status", json!({})),
        ("read_file", json!({ "path": name })),
        ("grep", json!({ "pattern": "x", "path": name })),
        ("find_files", json!({ "pattern": name })),
    ]);
    let script = product::script(fixture, &[step])?;
    // Run without a sandbox, in which the wrapper would not be visible.
    let args = facts
        .product
        .scripted("full", &script, &["-o", "stream-json"]);
    let taken = super::command::record_git_arguments(facts, &args)?;
    facts.call = "call-1-1".to_owned();
    facts.events = product::events(&facts.main.out);
    facts.reached = vec![Decision::Allow];
    crate::holds(!taken.is_empty(), || {
        "the engine started no program, so nothing was shown".to_owned()
    })?;
    for arguments in &taken {
        let dashes = arguments
            .iter()
            .position(|argument| argument == "--")
            .unwrap_or(arguments.len());
        let bare = arguments
            .iter()
            .take(dashes)
            .any(|argument| planted.contains(argument));
        crate::holds(!bare, || {
            format!("a file name is passed as an option: {arguments:?}")
        })?;
    }
    facts.notes.push(format!(
        "{} programs of the engine's own were looked at",
        taken.len()
    ));
    Ok(())
}
