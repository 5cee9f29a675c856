use proptest::prelude::*;

use super::*;
use crate::ask::{AnsweredBy, Ask};
use crate::clock::Timestamp;
use crate::event::{Order, VERSION};
use crate::id::{SessionId, TraceId};
use crate::pause::PauseReason;
use crate::terms::Terms;
use crate::transaction::Landed;
use crate::validator::{Judgement, Report};

fn run() -> Run {
    Run::new(
        RunId::nth(1),
        Message::user("fix it"),
        SavedFlags::default(),
    )
}

fn event(run: u64, kind: EventKind) -> Event {
    Event {
        v: VERSION,
        order: Order::Durable { seq: 1 },
        at: Timestamp::from_millis(0),
        session: SessionId::fresh(Timestamp::from_millis(0), 1),
        run: Some(RunId::nth(run)),
        trace: TraceId::fresh(1, 2),
        kind,
    }
}

fn opened(isolation: Isolation) -> EventKind {
    EventKind::TransactionOpened {
        terms: Terms {
            isolation,
            ..Terms::unconfined(crate::terms::Strategy::Copy)
        },
        name: isolation.is_isolated().then(|| "copy".to_owned()),
    }
}

fn began(iteration: u32) -> EventKind {
    EventKind::IterationStarted {
        iteration,
        foreign_session: None,
    }
}

fn ended(iteration: u32) -> EventKind {
    EventKind::IterationFinished {
        iteration,
        stop: crate::outcome::StopReason::Done,
        output: None,
    }
}

fn judged(result: Judged) -> EventKind {
    EventKind::Judged {
        result,
        tree_hash: Some("h1".into()),
        judge_changed: Vec::new(),
    }
}

fn blocked(message: &str) -> EventKind {
    judged(Judged::Blocked {
        validator: "tests".into(),
        findings: vec![Finding::whole(message.to_owned())],
    })
}

fn landing(hash: &str) -> LandingAsk {
    LandingAsk {
        failing: Vec::new(),
        paths: vec![("ci.yml".into(), "it runs in CI".into())],
        tree_hash: Some(hash.into()),
    }
}

fn passed(ask: Option<LandingAsk>) -> EventKind {
    judged(Judged::Passed { ask })
}

fn asked(about: LandingAsk) -> EventKind {
    EventKind::Asked {
        ask: Ask {
            id: AskId::nth(1, 1),
            about: About::Landing(about),
            call: None,
            person: true,
            expires: None,
            waits_ms: None,
            run_ms: 0,
        },
    }
}

fn answered(answer: Answer) -> EventKind {
    EventKind::Answered {
        ask: AskId::nth(1, 1),
        answer,
        by: AnsweredBy::Person,
        who: None,
    }
}

fn validated(validator: &str, hash: &str) -> EventKind {
    EventKind::Validated {
        validator: validator.into(),
        blocking: true,
        report: Report::new(Judgement::Pass, Vec::new()),
        tree_hash: Some(hash.into()),
    }
}

fn paused() -> EventKind {
    EventKind::Paused {
        reason: PauseReason::Shutdown,
        run_ms: 7,
    }
}

fn stale() -> EventKind {
    judged(Judged::Stale {
        paths: vec!["a.rs".into()],
    })
}

fn folded(kinds: &[EventKind]) -> Run {
    let mut run = run();
    for kind in kinds {
        run.apply(&event(1, kind.clone()));
    }
    run
}

fn here(place: TransactionState) -> Here {
    Here {
        place,
        judges: true,
        ..Here::default()
    }
}

/// The step after these events, with the transaction open.
#[track_caller]
fn check(kinds: &[EventKind], expect: Step) {
    assert_eq!(folded(kinds).next(&here(TransactionState::Open)), expect);
}

/// Checks the outcome that ends the run after these events.
#[track_caller]
fn check_end(kinds: &[EventKind], expect: &str) {
    match folded(kinds).next(&here(TransactionState::Open)) {
        Step::End(outcome) => {
            let text = format!("{outcome:?}");
            assert!(text.contains(expect), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

fn land(asked: bool) -> Step {
    Step::Land {
        tree_hash: Some("h1".into()),
        asked,
    }
}

fn tried() -> Vec<EventKind> {
    vec![opened(Isolation::Isolated), began(1), ended(1)]
}

fn tried_and(more: &[EventKind]) -> Vec<EventKind> {
    [tried(), more.to_vec()].concat()
}

#[test]
fn a_run_goes_from_step_to_step() {
    let iterate = |iteration, started| Step::Iterate { iteration, started };
    check(&[], iterate(1, false));
    check(&[opened(Isolation::Isolated)], iterate(1, false));
    check(&[opened(Isolation::Isolated), began(1)], iterate(1, true));
    check(&tried(), Step::Judge);
    check(&tried_and(&[passed(None)]), land(false));
    check(
        &[opened(Isolation::InPlace), began(1), ended(1), passed(None)],
        Step::Keep,
    );
}

#[test]
fn the_place_decides_before_and_after() {
    let run = folded(&[opened(Isolation::Isolated)]);
    let open = Step::Open {
        copy: Some("copy".into()),
    };
    assert_eq!(run.next(&here(TransactionState::Unopened)), open);
    assert_eq!(
        run.next(&here(TransactionState::Closed)),
        Step::Finish(Outcome::Completed)
    );
    let paused = |place| Here {
        paused: true,
        ..here(place)
    };
    assert_eq!(run.next(&paused(TransactionState::Open)), Step::Keep);
    assert_eq!(run.next(&paused(TransactionState::Closed)), Step::Wait);
    let ending = EventKind::RunEnding {
        outcome: Outcome::TimedOut,
    };
    let run = folded(&[ending]);
    assert_eq!(
        run.next(&here(TransactionState::Unopened)),
        Step::Finish(Outcome::TimedOut)
    );
    assert_eq!(run.next(&here(TransactionState::Open)), Step::Keep);
}

#[test]
fn findings_go_back_until_nothing_improves_or_no_iteration_is_left() {
    let retry = |kinds: &[EventKind]| match folded(kinds).next(&here(TransactionState::Open)) {
        Step::Retry(prompt) => *prompt,
        other => panic!("{other:?}"),
    };
    let first = tried_and(&[blocked("one")]);
    let prompt = retry(&first);
    assert!(prompt.text().contains("- one") && prompt.text().contains("fix it"));
    let second = [first, vec![EventKind::said(prompt.clone())]].concat();
    check(
        &second,
        Step::Iterate {
            iteration: 2,
            started: false,
        },
    );
    assert_eq!(folded(&second).request(), &prompt);
    let other = [second.clone(), vec![began(2), ended(2), blocked("two")]].concat();
    assert!(
        retry(&other)
            .text()
            .contains("do not bring it back:\n- tests: one")
    );
    let same = [second, vec![began(2), ended(2), blocked("one")]].concat();
    check_end(&same, "nothing improved");
    let limited = Here {
        max_iterations: Some(1),
        ..here(TransactionState::Open)
    };
    let step = folded(&tried_and(&[blocked("one")])).next(&limited);
    assert!(matches!(step, Step::End(_)), "{step:?}");
}

#[test]
fn a_person_is_asked_about_exactly_what_lands() {
    let ask = || Some(landing("h1"));
    check(&tried_and(&[passed(ask())]), Step::AskToLand(landing("h1")));
    let yes = tried_and(&[passed(ask()), asked(landing("h1")), answered(Answer::Once)]);
    check(&yes, land(true));
    let no = [
        passed(ask()),
        asked(landing("h1")),
        answered(Answer::No { note: None }),
    ];
    check_end(&tried_and(&no), "ci.yml");
    let gone = [
        passed(ask()),
        asked(landing("h1")),
        answered(Answer::Abandoned),
    ];
    check_end(&tried_and(&gone), "Cancelled");
    // The tree has changed since the question, so the answer no longer applies.
    let again = [yes.clone(), vec![stale()]].concat();
    check(&again, Step::Judge);
    let other = [again.clone(), vec![passed(Some(landing("h2")))]].concat();
    check(&other, Step::AskToLand(landing("h2")));
    check(&[again, vec![passed(ask())]].concat(), land(true));
}

#[test]
fn a_tree_that_keeps_changing_ends_the_run() {
    let times = |n: usize| tried_and(&vec![stale(); n]);
    check(&times(3), Step::Judge);
    check_end(&times(4), "a.rs");
}

#[test]
fn a_run_that_changed_nothing_ends_as_its_options_say() {
    let silent = tried_and(&[judged(Judged::NothingChanged)]);
    check_end(&silent, "said nothing");
    let said = EventKind::said(Message::assistant("it is a parser"));
    let nothing = [vec![said], silent].concat();
    check(&nothing, land(false));
    let must = Here {
        requires_changes: true,
        ..here(TransactionState::Open)
    };
    let step = folded(&nothing).next(&must);
    assert!(
        matches!(
            &step,
            Step::End(Outcome::Failed {
                reason: FailReason::NoChanges,
                ..
            })
        ),
        "{step:?}"
    );
}

#[test]
fn evidence_is_about_the_tree_that_was_judged_last() {
    let check = |more: &[EventKind], expect: &[&str]| {
        let names: Vec<String> = folded(&tried_and(more))
            .evidence
            .into_iter()
            .map(|one| one.validator)
            .collect();
        assert_eq!(names, expect);
    };
    check(&[validated("a", "1"), validated("b", "1")], &["a", "b"]);
    check(&[validated("fmt", "1"), validated("fmt", "2")], &["fmt"]);
    check(&[validated("a", "1"), stale(), validated("a", "1")], &["a"]);
    check(&[validated("a", "1"), began(2)], &[]);
}

#[test]
fn a_run_that_was_left_ends_with_what_is_known() {
    let check = |kinds: &[EventKind], expect: &str| {
        let summary = folded(kinds).left_open();
        let text = format!("{:?} {:?}", summary.outcome, summary.transaction);
        assert!(text.contains(expect), "{text}");
    };
    check(
        &[opened(Isolation::Isolated), began(1)],
        "while the agent worked",
    );
    check(&[opened(Isolation::Isolated), began(1)], "Some(\"copy\")");
    let started = EventKind::ValidationStarted {
        validator: "tests".into(),
    };
    check(&tried_and(&[started]), "while the checks ran");
    check(
        &tried_and(&[
            passed(None),
            EventKind::Landed {
                landed: Landed::default(),
                tree_hash: None,
            },
        ]),
        "Completed None",
    );
    let ending = EventKind::RunEnding {
        outcome: Outcome::MaxSteps,
    };
    check(&tried_and(&[ending]), "MaxSteps");
}

#[test]
fn events_of_other_runs_change_only_the_name_of_a_copy() {
    let before = folded(&tried());
    let mut run = before.clone();
    run.apply(&event(2, began(7)));
    run.apply(&event(2, opened(Isolation::InPlace)));
    assert_eq!(run, before);
    let name = "copy".to_owned();
    run.apply(&event(2, EventKind::Discarded { name }));
    assert_eq!(run.copy, None);
}

/// Performs a step like the engine's driver, and returns the events of the result that `choice` selects.
fn perform(step: &Step, here: &mut Here, choice: u8) -> Vec<EventKind> {
    match step {
        Step::Open { .. } => {
            here.place = TransactionState::Open;
            vec![opened(Isolation::Isolated)]
        }
        Step::Iterate { iteration, started } => {
            let mut kinds = Vec::new();
            if !started {
                kinds.push(began(*iteration));
            }
            match choice % 4 {
                0 => {
                    here.paused = true;
                    kinds.push(paused());
                }
                _ => kinds.push(ended(*iteration)),
            }
            kinds
        }
        Step::Judge => vec![match choice % 5 {
            0 => passed(None),
            1 => passed(Some(landing(if choice > 100 { "h1" } else { "h2" }))),
            2 => judged(Judged::NothingChanged),
            3 => stale(),
            _ => blocked(&choice.to_string()),
        }],
        Step::Retry(prompt) => vec![EventKind::said((**prompt).clone())],
        Step::AskToLand(ask) => {
            let answer = match choice % 4 {
                0 => {
                    here.paused = true;
                    return vec![asked(ask.clone())];
                }
                1 => Answer::No { note: None },
                _ => Answer::Once,
            };
            vec![asked(ask.clone()), answered(answer)]
        }
        Step::Land { .. } if choice.is_multiple_of(3) => vec![stale()],
        Step::Land { .. } => {
            here.place = TransactionState::Closed;
            vec![EventKind::Landed {
                landed: Landed::default(),
                tree_hash: None,
            }]
        }
        Step::End(outcome) => vec![EventKind::RunEnding {
            outcome: outcome.clone(),
        }],
        Step::Keep => {
            here.place = TransactionState::Closed;
            vec![EventKind::Kept {
                name: "copy".into(),
            }]
        }
        Step::Finish(_) | Step::Wait => Vec::new(),
    }
}

#[test]
fn checks_that_a_process_which_is_gone_began_are_not_begun_again() {
    let validator = "make".to_owned();
    let began = [tried(), vec![EventKind::ValidationStarted { validator }]].concat();
    let Step::End(Outcome::Failed { reason, detail, .. }) =
        folded(&began).next(&here(TransactionState::Open))
    else {
        panic!("{:?}", folded(&began).next(&here(TransactionState::Open)));
    };
    assert_eq!(reason, FailReason::Interrupted);
    assert!(detail.contains("while the checks ran"), "{detail}");
}

proptest! {
    /// For any results of the steps, a run ends or waits. A process that resumes it from the log continues with the
    /// step that the first process would have done next.
    #[test]
    fn every_run_ends_and_can_be_resumed_at_every_wait(choices in proptest::collection::vec(any::<u8>(), 400)) {
        let mut log: Vec<EventKind> = Vec::new();
        // `read` is folded from the serialized lines of the log.
        let (mut live, mut read) = (run(), run());
        let mut here = Here { max_iterations: Some(6), judges: true, ..Here::default() };
        let mut finished = false;
        for choice in choices {
            let step = live.next(&here);
            // Every step has to change the state, so that no step is done twice.
            let before = (live.clone(), here.clone());
            let pauses = choice.is_multiple_of(7) && step.may_pause_before();
            let kinds = match pauses {
                true => {
                    here.paused = true;
                    vec![paused()]
                }
                false => perform(&step, &mut here, choice),
            };
            for kind in kinds {
                let event = event(1, kind.clone());
                live.apply(&event);
                let line = serde_json::to_string(&event).expect("a line");
                read.apply(&serde_json::from_str(&line).expect("an event"));
                log.push(kind);
                prop_assert_eq!(&read, &live);
            }
            match step {
                Step::Finish(_) => { finished = true; break; }
                Step::Wait => {
                    // This is another process, which knows only the log.
                    here = Here { max_iterations: Some(6), judges: true, ..Here::default() };
                    let open_ask = live.landing_ask.as_ref().map(|_| answered(Answer::Once));
                    if let Some(kind) = open_ask.clone() {
                        read.apply(&event(1, kind.clone()));
                        log.push(kind);
                    }
                    live = folded(&log);
                    prop_assert_eq!(&read, &live);
                    prop_assert_eq!(live.pause().is_some(), open_ask.is_none());
                    let opens = matches!(live.next(&here), Step::Open { .. });
                    prop_assert!(opens);
                }
                _ => prop_assert_ne!(before, (live.clone(), here.clone())),
            }
        }
        prop_assert!(finished || log.len() > 200);
    }
}

#[test]
fn a_call_that_broke_a_rule_ends_the_run_before_anything_lands() {
    let call = crate::id::CallId("c1".to_owned());
    let rule = "user rule bash(curl *)".to_owned();
    let broken = [tried(), vec![EventKind::RuleBroken { call, rule }]].concat();
    let Step::End(Outcome::Failed { reason, detail, .. }) =
        folded(&broken).next(&here(TransactionState::Open))
    else {
        panic!("{:?}", folded(&broken).next(&here(TransactionState::Open)));
    };
    assert_eq!(reason, FailReason::Policy);
    assert!(detail.contains("user rule bash(curl *)"), "{detail}");
}

#[test]
fn a_path_without_room_on_the_disk_fails_the_run_unless_a_later_call_writes_it() {
    let call = crate::id::CallId("c1".to_owned());
    let paths = vec!["a.txt".to_owned(), "b.txt".to_owned()];
    let not_written = EventKind::NotWritten {
        call: call.clone(),
        paths,
    };
    let changed = |path: &str| EventKind::FileChanged {
        call: Some(call.clone()),
        change: crate::workspace::FileChange {
            path: path.to_owned(),
            change: crate::workspace::Change::Modified,
            added: None,
            removed: None,
            diff: None,
        },
        swap: None,
    };
    let next = |events: &[EventKind]| {
        let log = [events, &tried()].concat();
        folded(&log).next(&here(TransactionState::Open))
    };
    let partly = [changed("b.txt"), not_written.clone(), changed("a.txt")];
    let Step::End(Outcome::Failed { reason, detail, .. }) = next(&partly) else {
        panic!("{:?}", next(&partly));
    };
    assert_eq!(reason, FailReason::Store);
    assert!(detail.contains("not written: b.txt;"), "{detail}");
    let later = [not_written, changed("a.txt"), changed("b.txt")];
    assert_eq!(next(&later), next(&[]));
}

#[test]
fn a_run_whose_calls_were_all_denied_fails_where_nobody_watches() {
    let call = crate::id::CallId("c1".to_owned());
    let denied = EventKind::Denied {
        call: call.clone(),
        rule: "mode ask".to_owned(),
        reason: "nobody is there".to_owned(),
    };
    let started = EventKind::CallStarted {
        call: crate::message::ToolCall {
            id: call,
            name: "read_file".to_owned(),
            args: serde_json::Value::Null,
            malformed: None,
        },
        verdict: None,
        rule: String::new(),
    };
    let next = |events: &[EventKind], here: Here| {
        let log = [events, &tried()].concat();
        folded(&log).next(&here)
    };
    let unwatched = || Here {
        attended: false,
        ..here(TransactionState::Open)
    };
    let Step::End(Outcome::Failed { reason, detail, .. }) =
        next(std::slice::from_ref(&denied), unwatched())
    else {
        panic!("{:?}", next(std::slice::from_ref(&denied), unwatched()));
    };
    assert_eq!(reason, FailReason::Policy);
    assert!(detail.contains("the last one by mode ask"), "{detail}");
    let watched = Here {
        attended: true,
        ..unwatched()
    };
    let plan = Here {
        read_only: true,
        ..unwatched()
    };
    for (events, here) in [
        (vec![denied.clone()], watched),
        (vec![denied.clone()], plan),
        (vec![started, denied.clone()], unwatched()),
        (
            vec![answered(Answer::No { note: None }), denied],
            unwatched(),
        ),
    ] {
        let next = next(&events, here);
        assert!(!matches!(next, Step::End(_)), "{next:?}");
    }
}

#[test]
fn a_pause_lasts_until_the_workspace_is_opened_again_and_does_not_interrupt_the_run() {
    let started = EventKind::ValidationStarted {
        validator: "tests".into(),
    };
    let stopped = tried_and(&[started, validated("tests", "h1"), paused()]);
    let mut run = folded(&stopped);
    let pause = run.pause().map(|pause| (pause.reason, pause.run_ms));
    assert_eq!(pause, Some((PauseReason::Shutdown, 7)));
    assert!(run.left_open().evidence.is_empty());
    assert_eq!(run.next(&here(TransactionState::Open)), Step::Judge);
    let name = "copy".to_owned();
    run.apply(&event(1, EventKind::Kept { name }));
    assert!(run.pause().is_some());
    run.apply(&event(1, opened(Isolation::Isolated)));
    assert_eq!(run.pause(), None);
    // After a pause, the landing checks that the tree is still the judged one.
    let asked = |kinds: &[EventKind]| match folded(kinds).next(&here(TransactionState::Open)) {
        Step::Land { asked, .. } => asked,
        other => panic!("{other:?}"),
    };
    assert!(!asked(&tried_and(&[paused(), passed(None)])));
    assert!(asked(&tried_and(&[passed(None), paused()])));
    assert!(!asked(&tried_and(&[passed(None), paused(), passed(None)])));
}

#[test]
fn a_fork_does_not_resume_the_run_of_the_original() {
    let from = "other".parse().expect("an id");
    let mut run = folded(&tried_and(&[paused()]));
    run.apply(&event(9, EventKind::Forked { from, at_seq: 8 }));
    assert_eq!(run.pause(), None);
}
