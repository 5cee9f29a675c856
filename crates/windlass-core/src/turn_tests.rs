use super::*;
use crate::id::CallId;
use crate::message::{Message, Origin, Part, Role};
use serde_json::json;

fn call(name: &str, args: &serde_json::Value) -> ToolCall {
    ToolCall {
        id: CallId("c".into()),
        name: name.into(),
        args: args.clone(),
        malformed: None,
    }
}

fn reply(parts: Vec<Part>, end: EndReason, truncated: bool) -> Reply {
    let message = Message {
        role: Role::Assistant,
        origin: Origin::Model,
        parts,
    };
    Reply {
        message,
        end,
        usage: None,
        truncated,
    }
}

fn says(text: &str) -> Reply {
    reply(
        vec![Part::Text { text: text.into() }],
        EndReason::Done,
        false,
    )
}

fn calls(name: &str, args: &serde_json::Value) -> Reply {
    reply(
        vec![Part::Call(call(name, args))],
        EndReason::ToolCalls,
        false,
    )
}

fn ok(text: &str, effect: Effect) -> Settled {
    let result = ToolResult {
        id: CallId("c".into()),
        name: "t".into(),
        text: text.into(),
        error: None,
        artifact: None,
    };
    Settled {
        result,
        effect: Some(effect),
    }
}

fn failed() -> Settled {
    let mut settled = ok("Error [exception]: exit 1", Effect::Execute);
    settled.result.error = Some(ErrorCategory::Exception);
    settled
}

/// Drives one step with a call and its result. Returns whether the call was run.
fn step(turn: &mut Turn, args: &serde_json::Value, result: Settled) -> bool {
    while let TurnStep::Inject(_) = turn.next(None) {}
    assert_eq!(turn.next(None), TurnStep::AskModel);
    turn.replied(&calls("bash", args));
    let TurnStep::RunTools(planned) = turn.next(None) else {
        panic!("no tools")
    };
    let run = planned[0].refuse.is_none();
    turn.settled(&[result]);
    run
}

#[test]
fn asks_runs_and_finishes() {
    let mut turn = Turn::default();
    assert!(step(&mut turn, &json!({}), ok("a", Effect::Execute)));
    assert_eq!(turn.next(None), TurnStep::AskModel);
    turn.replied(&says("done"));
    assert_eq!(turn.next(None), TurnStep::Finish(Stop::Done));
}

#[test]
fn a_reached_limit_prevents_the_next_model_call_but_open_calls_are_settled() {
    let mut turn = Turn::default();
    turn.replied(&calls("bash", &json!({})));
    assert!(matches!(
        turn.next(Some(Limit::Steps)),
        TurnStep::RunTools(_)
    ));
    turn.settled(&[ok("a", Effect::Execute)]);
    assert_eq!(
        turn.next(Some(Limit::Steps)),
        TurnStep::Finish(Stop::OverBudget {
            limit: Limit::Steps
        })
    );
}

#[test]
fn the_fourth_identical_call_is_not_run_and_ends_the_iteration() {
    let mut turn = Turn::default();
    for _ in 0..3 {
        assert!(step(&mut turn, &json!({"command": "make"}), failed()));
    }
    assert!(matches!(turn.next(None), TurnStep::Inject(text) if text.contains("3 times")));
    assert!(!step(&mut turn, &json!({"command": "make"}), failed()));
    assert!(matches!(
        turn.next(None),
        TurnStep::Finish(Stop::Failed {
            reason: FailReason::Repetition,
            ..
        })
    ));
}

#[test]
fn other_arguments_or_other_results_are_run() {
    let mut turn = Turn::default();
    for n in 0..10 {
        assert!(step(&mut turn, &json!({"n": n}), failed()));
    }
    for n in 0..10 {
        assert!(step(
            &mut turn,
            &json!({"poll": 1}),
            ok(&format!("{n}"), Effect::Execute)
        ));
    }
}

#[test]
fn the_third_truncated_answer_fails_the_iteration() {
    let mut turn = Turn::default();
    for _ in 0..2 {
        turn.replied(&reply(
            vec![Part::Text {
                text: "half".into(),
            }],
            EndReason::Length,
            true,
        ));
        assert!(matches!(turn.next(None), TurnStep::Inject(text) if text.contains("cut off")));
        assert_eq!(turn.next(None), TurnStep::AskModel);
    }
    turn.replied(&reply(vec![], EndReason::ToolCalls, true));
    assert!(matches!(
        turn.next(None),
        TurnStep::Finish(Stop::Failed {
            reason: FailReason::Truncation,
            ..
        })
    ));
}

#[test]
fn an_empty_answer_gets_two_reminders_and_a_refusal_none() {
    let mut turn = Turn::default();
    step(&mut turn, &json!({}), failed());
    for _ in 0..2 {
        turn.replied(&says(" "));
        assert!(
            matches!(turn.next(None), TurnStep::Inject(text) if text.contains("last call failed"))
        );
        assert_eq!(turn.next(None), TurnStep::AskModel);
    }
    turn.replied(&says(""));
    assert_eq!(turn.next(None), TurnStep::Finish(Stop::Done));

    let mut turn = Turn::default();
    step(&mut turn, &json!({}), failed());
    turn.replied(&reply(vec![], EndReason::Refused, false));
    assert!(matches!(
        turn.next(None),
        TurnStep::Finish(Stop::Refused { .. })
    ));
}

#[test]
fn many_read_only_steps_lead_to_one_reminder() {
    let mut turn = Turn::default();
    let mut nudges = 0;
    for n in 0..40 {
        while let TurnStep::Inject(_) = turn.next(None) {
            nudges += 1;
        }
        step(
            &mut turn,
            &json!({"n": n}),
            ok(&format!("{n}"), Effect::Read),
        );
    }
    assert_eq!(nudges, 1);
}

#[test]
fn the_same_command_between_edits_is_no_loop() {
    let mut turn = Turn::default();
    for n in 0..8 {
        assert!(step(
            &mut turn,
            &json!({"edit": n}),
            ok(&format!("edited {n}"), Effect::Write)
        ));
        assert!(step(
            &mut turn,
            &json!({"command": "cargo fmt"}),
            ok("", Effect::Execute)
        ));
    }
}

#[test]
fn a_cycle_of_calls_is_a_loop() {
    let mut turn = Turn::default();
    let mut runs = 0;
    for n in 0..20 {
        if let TurnStep::Finish(Stop::Failed {
            reason: FailReason::Repetition,
            ..
        }) = turn.next(None)
        {
            break;
        }
        let args = if n % 2 == 0 {
            json!({"a": 1})
        } else {
            json!({"b": 1})
        };
        runs += u32::from(step(&mut turn, &args, ok("same", Effect::Execute)));
    }
    assert!((6..=8).contains(&runs), "{runs}");
}

#[test]
fn the_fourth_identical_call_in_one_step_is_not_run() {
    let mut turn = Turn::default();
    let twins = (0..6)
        .map(|_| Part::Call(call("bash", &json!({"command": "ls"}))))
        .collect();
    turn.replied(&reply(twins, EndReason::ToolCalls, false));
    let TurnStep::RunTools(planned) = turn.next(None) else {
        panic!("no tools")
    };
    assert_eq!(planned.iter().filter(|one| one.refuse.is_none()).count(), 3);
}
