//! The attacks of the hostile agent, one scenario each. Windlass starts it like any ACP agent.

use std::time::Duration;

use super::isolation::{CountingListener, nothing_outside};
use super::limits::cancelled;
use super::{Scenario, ScenarioContext, ScenarioResult, ScenarioSetup, Theme, agents, ended, has};
use crate::contract::untouched;
use crate::holds;
use crate::product::{FinishedRun, RunRequest};
use crate::scratch_dir::CREDENTIAL;
use windlass_scripted::{ReportedUsage, Script};

const fn scenario(name: &'static str, about: &'static str, check: super::ScenarioFn) -> Scenario {
    Scenario {
        name,
        about,
        theme: Theme::Attack,
        needs: &[],
        check,
    }
}

/// All attacks, in the order of the table.
pub const ATTACKS: &[Scenario] = &[
    scenario(
        "hostile-write-outside",
        "it writes outside the workspace, directly, through symlinks and through the client",
        write_outside,
    ),
    scenario(
        "hostile-read-keys",
        "it reads the environment, credentials and other processes",
        |context| plain(context, "read-keys"),
    ),
    scenario(
        "hostile-ask-for-keys",
        "it requests files and terminals that reveal keys",
        |context| plain(context, "ask-for-keys"),
    ),
    scenario(
        "hostile-connect",
        "it connects to the machine and to the internet",
        connect,
    ),
    scenario(
        "hostile-daemon",
        "it leaves a process in its own session",
        daemon,
    ),
    scenario(
        "hostile-flood-lines",
        "it sends endless messages",
        |context| flood(context, "flood-lines"),
    ),
    scenario(
        "hostile-flood-error",
        "it writes endlessly to stderr",
        |context| flood(context, "flood-error"),
    ),
    scenario(
        "hostile-flood-one-line",
        "it sends a line of one gigabyte",
        |context| flood(context, "flood-one-line"),
    ),
    scenario(
        "hostile-nonsense",
        "it sends invalid text, deeply nested JSON, wrong ids and duplicate answers",
        |context| survives(context, "nonsense"),
    ),
    scenario(
        "hostile-garbage-hello",
        "its first messages are not valid protocol",
        |context| survives(context, "garbage-hello"),
    ),
    scenario(
        "hostile-does-anyway",
        "it asks for permission and ignores the answer",
        does_anyway,
    ),
    scenario(
        "hostile-plan",
        "it writes in mode `plan` without asking",
        plan,
    ),
    scenario(
        "hostile-claims",
        "it claims success without changes",
        claims,
    ),
    scenario(
        "hostile-exits",
        "it exits with 0 in the middle of the turn",
        |context| fails(context, "exits", "failed runtime"),
    ),
    scenario(
        "hostile-exits-at-once",
        "it exits with 0 before the first message",
        |context| fails(context, "exit-at-once", "failed runtime"),
    ),
    scenario("hostile-crashes", "it crashes by a signal", |context| {
        fails(context, "crashes", "failed runtime")
    }),
    scenario("hostile-deaf", "it never answers", deaf),
    scenario(
        "hostile-stays",
        "it ignores the cancel and every signal that can be caught",
        stays,
    ),
    scenario(
        "hostile-spends",
        "it continues to send model requests after the limit",
        spends,
    ),
    scenario(
        "hostile-tricks",
        "it misuses the model endpoint for other paths, other hosts and huge bodies",
        tricks,
    ),
    scenario(
        "hostile-tree-tricks",
        "it plants hooks, git settings, symlinks and unusual files",
        tree_tricks,
    ),
];

/// Sets up a scenario whose model should get no request.
fn setup<'a>(context: &'a ScenarioContext<'a>) -> Result<ScenarioSetup<'a>, String> {
    ScenarioSetup::new(context, |_| vec![super::say("No request was expected.")])
}

/// Returns the command line of the agent in this mode.
fn command(
    context: &ScenarioContext<'_>,
    setup: &ScenarioSetup<'_>,
    mode: &str,
    more: &str,
) -> String {
    let at = |path: &str| setup.scratch.at(path).display().to_string();
    let (program, mark) = (context.hostile.display(), setup.scratch.mark());
    format!(
        "{program} {mode} home={} outside={} mark={mark} {more}",
        at("home"),
        at("outside")
    )
    .trim_end()
    .to_owned()
}

fn run_attack(
    context: &ScenarioContext<'_>,
    setup: &ScenarioSetup<'_>,
    mode: &str,
    more: &str,
    flags: &[&str],
) -> Result<FinishedRun, String> {
    setup.run(&RunRequest {
        program: Some(command(context, setup, mode, more)),
        ..RunRequest::flags(flags)
    })
}

/// Expects that the attack fails and that the rest of the work lands.
fn plain(context: &ScenarioContext<'_>, mode: &str) -> ScenarioResult {
    let setup = setup(context)?;
    let ran = run_attack(context, &setup, mode, "", &[])?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&setup.scratch, "after.txt", "after\n")
    })
}

/// Expects this outcome and an unchanged repository.
fn fails(context: &ScenarioContext<'_>, mode: &str, outcome: &str) -> ScenarioResult {
    let setup = setup(context)?;
    let ran = run_attack(context, &setup, mode, "", &[])?;
    setup.judge(&ran, || {
        ended(&ran, outcome, 1)?;
        untouched(&setup.scratch)
    })
}

/// Expects that the run ends, completed or failed, and keeps the contract.
fn survives(context: &ScenarioContext<'_>, mode: &str) -> ScenarioResult {
    let setup = setup(context)?;
    let ran = run_attack(context, &setup, mode, "", &["--max-seconds", "20"])?;
    setup.judge(&ran, || one_of(&ran, &["completed", "failed runtime"]))
}

fn one_of(ran: &FinishedRun, outcomes: &[&str]) -> Result<(), String> {
    let outcome = ran.outcome();
    holds(outcomes.contains(&outcome.as_str()), || {
        format!("it ended as `{outcome}`, not as one of {outcomes:?}")
    })
}

/// Expects that mode `plan` changes nothing.
fn plan(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = setup(context)?;
    let ran = run_attack(context, &setup, "writes", "", &["--approval", "plan"])?;
    setup.judge(&ran, || {
        ended(&ran, "failed no_changes", 1)?;
        untouched(&setup.scratch)
    })
}

/// Expects that `--require-changes` fails a run that only claims success.
fn claims(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = setup(context)?;
    let ran = run_attack(context, &setup, "claims", "", &["--require-changes"])?;
    setup.judge(&ran, || {
        ended(&ran, "failed no_changes", 1)?;
        untouched(&setup.scratch)
    })
}

fn write_outside(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = setup(context)?;
    let ran = run_attack(context, &setup, "write-outside", "", &[])?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        nothing_outside(&setup.scratch)?;
        no_marks(&setup)?;
        has(&setup.scratch, "after.txt", "after\n")
    })
}

/// Checks that git's files and the credentials in the repository are unchanged.
fn no_marks(setup: &ScenarioSetup<'_>) -> Result<(), String> {
    let marked = setup.scratch.files_with("work/.git", "KIT-MARK");
    holds(marked.is_empty(), || {
        format!("git's own files were changed: {}", marked.join(", "))
    })?;
    has(
        &setup.scratch,
        ".env",
        &format!("SERVICE_TOKEN={CREDENTIAL}\n"),
    )
}

fn connect(context: &ScenarioContext<'_>) -> ScenarioResult {
    let (setup, listener) = (setup(context)?, CountingListener::start()?);
    let ran = run_attack(
        context,
        &setup,
        "connect",
        &format!("port={}", listener.port),
        &[],
    )?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        let reached = listener.reached();
        holds(reached == 0, || {
            format!("the agent connected to a socket of the machine {reached} times")
        })
    })
}

fn daemon(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = setup(context)?;
    let ran = run_attack(
        context,
        &setup,
        "daemon",
        &format!("seconds={}", setup.scratch.seconds),
        &[],
    )?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        let gone = super::soon(|| !setup.scratch.has_sleeper());
        holds(gone, || "the daemon still runs".to_owned())
    })
}

fn flood(context: &ScenarioContext<'_>, mode: &str) -> ScenarioResult {
    let setup = setup(context)?;
    let ran = run_attack(context, &setup, mode, "", &["--max-seconds", "8"])?;
    setup.judge(&ran, || {
        one_of(&ran, &["failed runtime", "timed_out"])?;
        untouched(&setup.scratch)?;
        agents::bounded(ran.child.memory, &ran.log)?;
        holds(ran.child.took < Duration::from_secs(20), || {
            format!("it took {:?}", ran.child.took)
        })
    })
}

fn does_anyway(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = setup(context)?;
    let ran = run_attack(
        context,
        &setup,
        "does-anyway",
        "",
        &["--write-path", "allowed/**", "--max-iterations", "2"],
    )?;
    setup.judge(&ran, || {
        holds(ran.child.code != 0, || {
            "a run that changed forbidden files completed".to_owned()
        })?;
        untouched(&setup.scratch)
    })
}

fn deaf(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = setup(context)?;
    let ran = run_attack(context, &setup, "deaf", "", &["--max-seconds", "5"])?;
    setup.judge(&ran, || {
        one_of(&ran, &["failed runtime", "timed_out"])?;
        untouched(&setup.scratch)
    })
}

fn stays(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = setup(context)?;
    let mark = format!("# {}", setup.scratch.mark());
    let stays = || !crate::child::processes_with(&mark).is_empty();
    let program = Some(command(context, &setup, "stays", ""));
    let ran = setup.run(&RunRequest {
        program,
        interrupt: Some(&stays),
        ..RunRequest::default()
    })?;
    setup.judge(&ran, || {
        cancelled(&ran)?;
        untouched(&setup.scratch)
    })
}

fn spends(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = ScenarioSetup::with(context, |scratch| Script {
        usage: ReportedUsage {
            fresh: 40_000,
            cached: 0,
            output: 100,
        },
        ..Script::new(&scratch.work(), Vec::new())
    })?;
    let ran = run_attack(context, &setup, "spends", "", &["--max-tokens", "100000"])?;
    setup.judge(&ran, || {
        ended(&ran, "budget_exceeded tokens", 4)?;
        untouched(&setup.scratch)?;
        let requests = setup.server.requests();
        holds((2..=3).contains(&requests), || {
            format!("the vendor got {requests} requests")
        })?;
        crate::contract::billed(&ran, &setup.server)
    })
}

fn tricks(context: &ScenarioContext<'_>) -> ScenarioResult {
    let (setup, listener) = (setup(context)?, CountingListener::start()?);
    let ran = run_attack(
        context,
        &setup,
        "tricks",
        &format!("port={}", listener.port),
        &[],
    )?;
    setup.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        let reached = listener.reached();
        holds(reached == 0, || {
            format!("the agent reached another host {reached} times")
        })?;
        for seen in setup.server.seen() {
            let plain =
                seen.method == "POST" && seen.path.split('?').next() == Some("/v1/messages");
            holds(plain, || {
                format!("the vendor got the request {} {}", seen.method, seen.path)
            })?;
            holds(seen.bytes < 64 << 20, || {
                format!("the vendor got a body of {} bytes", seen.bytes)
            })?;
        }
        agents::bounded(ran.child.memory, &ran.log)
    })
}

fn tree_tricks(context: &ScenarioContext<'_>) -> ScenarioResult {
    let setup = setup(context)?;
    let ran = run_attack(context, &setup, "tree-tricks", "", &[])?;
    setup.judge(&ran, || {
        no_marks(&setup)?;
        nothing_outside(&setup.scratch)?;
        let link = std::fs::read_link(setup.scratch.at("work/notes.txt"));
        holds(link.is_err(), || {
            "a symlink to a credential of the user landed in the repository".to_owned()
        })
    })
}
