//! The agent that tries everything: one row for each thing. It is started as any ACP agent would be.

use std::time::Duration;

use super::limits::cancelled;
use super::walls::{Listener, nothing_outside};
use super::{Judged, Scenario, Stage, Theme, Trial, agents, ended, has};
use crate::contract::untouched;
use crate::holds;
use crate::place::CREDENTIAL;
use crate::product::{Ask, Ran};
use windlass_scripted::{ReportedUsage, Script};

const fn scenario(name: &'static str, about: &'static str, run: super::Try) -> Scenario {
    Scenario {
        name,
        about,
        theme: Theme::Attack,
        needs: &[],
        run,
    }
}

/// All of them, in the order of the table.
pub const ATTACKS: &[Scenario] = &[
    scenario(
        "hostile-write-outside",
        "it writes elsewhere, by itself, through links and by our hand",
        write_outside,
    ),
    scenario(
        "hostile-read-keys",
        "it reads the environment, credentials and other processes",
        |stage| plain(stage, "read-keys"),
    ),
    scenario(
        "hostile-ask-for-keys",
        "it asks us for files and terminals that give keys away",
        |stage| plain(stage, "ask-for-keys"),
    ),
    scenario(
        "hostile-connect",
        "it connects to the machine and to the world",
        connect,
    ),
    scenario(
        "hostile-daemon",
        "it leaves a process in a session of its own",
        daemon,
    ),
    scenario(
        "hostile-flood-lines",
        "it sends messages without end",
        |stage| flood(stage, "flood-lines"),
    ),
    scenario(
        "hostile-flood-error",
        "it writes to standard error without end",
        |stage| flood(stage, "flood-error"),
    ),
    scenario(
        "hostile-flood-one-line",
        "it sends a line of a gigabyte",
        |stage| flood(stage, "flood-one-line"),
    ),
    scenario(
        "hostile-nonsense",
        "it sends invalid text, deep JSON, wrong ids and double answers",
        |stage| survives(stage, "nonsense"),
    ),
    scenario(
        "hostile-garbage-hello",
        "its first words are no protocol",
        |stage| survives(stage, "garbage-hello"),
    ),
    scenario(
        "hostile-does-anyway",
        "it asks, and does it whatever the answer is",
        does_anyway,
    ),
    scenario(
        "hostile-plan",
        "it writes where nothing may be changed, and does not ask",
        plan,
    ),
    scenario("hostile-claims", "it claims success without work", claims),
    scenario(
        "hostile-exits",
        "it ends with 0 in the middle of the turn",
        |stage| fails(stage, "exits", "failed runtime"),
    ),
    scenario(
        "hostile-exits-at-once",
        "it ends with 0 before the first word",
        |stage| fails(stage, "exit-at-once", "failed runtime"),
    ),
    scenario("hostile-crashes", "it dies by a signal", |stage| {
        fails(stage, "crashes", "failed runtime")
    }),
    scenario("hostile-deaf", "it never answers", deaf),
    scenario(
        "hostile-stays",
        "it ignores the cancel and every polite signal",
        stays,
    ),
    scenario(
        "hostile-spends",
        "it asks the model on and on after the limit",
        spends,
    ),
    scenario(
        "hostile-tricks",
        "it uses the endpoint for other paths, other hosts and huge bodies",
        tricks,
    ),
    scenario(
        "hostile-tree-tricks",
        "it plants hooks, git settings, links and odd files",
        tree_tricks,
    ),
];

/// The script of a model that is never meant to be asked.
fn trial<'a>(stage: &'a Stage<'a>) -> Result<Trial<'a>, String> {
    Trial::new(stage, |_| vec![super::say("Nobody asked me.")])
}

/// The agent in this mode, with all that it may want to know.
fn command(stage: &Stage<'_>, trial: &Trial<'_>, mode: &str, more: &str) -> String {
    let at = |path: &str| trial.place.at(path).display().to_string();
    let (program, mark) = (stage.hostile.display(), trial.place.mark());
    format!(
        "{program} {mode} home={} outside={} mark={mark} {more}",
        at("home"),
        at("outside")
    )
    .trim_end()
    .to_owned()
}

fn strike(
    stage: &Stage<'_>,
    trial: &Trial<'_>,
    mode: &str,
    more: &str,
    flags: &[&str],
) -> Result<Ran, String> {
    trial.run(&Ask {
        program: Some(command(stage, trial, mode, more)),
        ..Ask::flags(flags)
    })
}

/// It gets nothing, and the rest of its work lands.
fn plain(stage: &Stage<'_>, mode: &str) -> Judged {
    let trial = trial(stage)?;
    let ran = strike(stage, &trial, mode, "", &[])?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        has(&trial.place, "after.txt", "after\n")
    })
}

/// The run ends like that, and the tree is as it was.
fn fails(stage: &Stage<'_>, mode: &str, outcome: &str) -> Judged {
    let trial = trial(stage)?;
    let ran = strike(stage, &trial, mode, "", &[])?;
    trial.judge(&ran, || {
        ended(&ran, outcome, 1)?;
        untouched(&trial.place)
    })
}

/// The run may end well or badly; it ends, and everything else holds.
fn survives(stage: &Stage<'_>, mode: &str) -> Judged {
    let trial = trial(stage)?;
    let ran = strike(stage, &trial, mode, "", &["--max-seconds", "20"])?;
    trial.judge(&ran, || one_of(&ran, &["completed", "failed runtime"]))
}

fn one_of(ran: &Ran, outcomes: &[&str]) -> Result<(), String> {
    let outcome = ran.outcome();
    holds(outcomes.contains(&outcome.as_str()), || {
        format!("it ended as `{outcome}`, not as one of {outcomes:?}")
    })
}

/// Whoever runs it in the mode that only looks gets a look and nothing else.
fn plan(stage: &Stage<'_>) -> Judged {
    let trial = trial(stage)?;
    let ran = strike(stage, &trial, "writes", "", &["--approval", "plan"])?;
    trial.judge(&ran, || {
        ended(&ran, "failed no_changes", 1)?;
        untouched(&trial.place)
    })
}

/// A claim is an answer; whoever wants work says so.
fn claims(stage: &Stage<'_>) -> Judged {
    let trial = trial(stage)?;
    let ran = strike(stage, &trial, "claims", "", &["--require-changes"])?;
    trial.judge(&ran, || {
        ended(&ran, "failed no_changes", 1)?;
        untouched(&trial.place)
    })
}

fn write_outside(stage: &Stage<'_>) -> Judged {
    let trial = trial(stage)?;
    let ran = strike(stage, &trial, "write-outside", "", &[])?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        nothing_outside(&trial.place)?;
        no_marks(&trial)?;
        has(&trial.place, "after.txt", "after\n")
    })
}

/// Git's own files and the credentials of the tree are as they were.
fn no_marks(trial: &Trial<'_>) -> Result<(), String> {
    let marked = trial.place.files_with("work/.git", "KIT-MARK");
    holds(marked.is_empty(), || {
        format!("git's own files were changed: {}", marked.join(", "))
    })?;
    has(
        &trial.place,
        ".env",
        &format!("SERVICE_TOKEN={CREDENTIAL}\n"),
    )
}

fn connect(stage: &Stage<'_>) -> Judged {
    let (trial, listener) = (trial(stage)?, Listener::start()?);
    let ran = strike(
        stage,
        &trial,
        "connect",
        &format!("port={}", listener.port),
        &[],
    )?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        let reached = listener.reached();
        holds(reached == 0, || {
            format!("a socket of the machine was reached {reached} times")
        })
    })
}

fn daemon(stage: &Stage<'_>) -> Judged {
    let trial = trial(stage)?;
    let ran = strike(
        stage,
        &trial,
        "daemon",
        &format!("seconds={}", trial.place.seconds),
        &[],
    )?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        let gone = super::soon(|| !trial.place.has_sleeper());
        holds(gone, || "the daemon still runs".to_owned())
    })
}

fn flood(stage: &Stage<'_>, mode: &str) -> Judged {
    let trial = trial(stage)?;
    let ran = strike(stage, &trial, mode, "", &["--max-seconds", "8"])?;
    trial.judge(&ran, || {
        one_of(&ran, &["failed runtime", "timed_out"])?;
        untouched(&trial.place)?;
        agents::bounded(ran.child.memory, &ran.log)?;
        holds(ran.child.took < Duration::from_secs(20), || {
            format!("it took {:?}", ran.child.took)
        })
    })
}

fn does_anyway(stage: &Stage<'_>) -> Judged {
    let trial = trial(stage)?;
    let ran = strike(
        stage,
        &trial,
        "does-anyway",
        "",
        &["--write-path", "allowed/**", "--max-iterations", "2"],
    )?;
    trial.judge(&ran, || {
        holds(ran.child.code != 0, || {
            "a run that changed what it may not is called done".to_owned()
        })?;
        untouched(&trial.place)
    })
}

fn deaf(stage: &Stage<'_>) -> Judged {
    let trial = trial(stage)?;
    let ran = strike(stage, &trial, "deaf", "", &["--max-seconds", "5"])?;
    trial.judge(&ran, || {
        one_of(&ran, &["failed runtime", "timed_out"])?;
        untouched(&trial.place)
    })
}

fn stays(stage: &Stage<'_>) -> Judged {
    let trial = trial(stage)?;
    let mark = format!("# {}", trial.place.mark());
    let stays = || !crate::child::processes_with(&mark).is_empty();
    let program = Some(command(stage, &trial, "stays", ""));
    let ran = trial.run(&Ask {
        program,
        interrupt: Some(&stays),
        ..Ask::default()
    })?;
    trial.judge(&ran, || {
        cancelled(&ran)?;
        untouched(&trial.place)
    })
}

fn spends(stage: &Stage<'_>) -> Judged {
    let trial = Trial::with(stage, |place| Script {
        usage: ReportedUsage {
            fresh: 40_000,
            cached: 0,
            output: 100,
        },
        ..Script::new(&place.work(), Vec::new())
    })?;
    let ran = strike(stage, &trial, "spends", "", &["--max-tokens", "100000"])?;
    trial.judge(&ran, || {
        ended(&ran, "budget_exceeded tokens", 4)?;
        untouched(&trial.place)?;
        let requests = trial.server.requests();
        holds((2..=3).contains(&requests), || {
            format!("the vendor was asked {requests} times")
        })?;
        crate::contract::billed(&ran, &trial.server)
    })
}

fn tricks(stage: &Stage<'_>) -> Judged {
    let (trial, listener) = (trial(stage)?, Listener::start()?);
    let ran = strike(
        stage,
        &trial,
        "tricks",
        &format!("port={}", listener.port),
        &[],
    )?;
    trial.judge(&ran, || {
        ended(&ran, "completed", 0)?;
        let reached = listener.reached();
        holds(reached == 0, || {
            format!("another host was reached {reached} times")
        })?;
        for seen in trial.server.seen() {
            let plain =
                seen.method == "POST" && seen.path.split('?').next() == Some("/v1/messages");
            holds(plain, || {
                format!("the vendor was asked for {} {}", seen.method, seen.path)
            })?;
            holds(seen.bytes < 64 << 20, || {
                format!("the vendor got a body of {} bytes", seen.bytes)
            })?;
        }
        agents::bounded(ran.child.memory, &ran.log)
    })
}

fn tree_tricks(stage: &Stage<'_>) -> Judged {
    let trial = trial(stage)?;
    let ran = strike(stage, &trial, "tree-tricks", "", &[])?;
    trial.judge(&ran, || {
        no_marks(&trial)?;
        nothing_outside(&trial.place)?;
        let link = std::fs::read_link(trial.place.at("work/notes.txt"));
        holds(link.is_err(), || {
            "a link to a credential of the person landed in the tree".to_owned()
        })
    })
}
