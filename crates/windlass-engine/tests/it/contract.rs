//! The conditions for a landing: the chain of validators, iterations, evidence, limits, and the consent of a person.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::ask::Answer;
use windlass_core::budget::{Budget, Limit};
use windlass_core::event::EventKind;
use windlass_core::message::Message;
use windlass_core::outcome::{FailReason, Outcome, RefusalCategory, RunSummary};
use windlass_core::terms::{Strategy, Terms};
use windlass_core::tool::{Effect, ToolOutput};
use windlass_core::validator::{
    CheckCtx, CheckRole, Finding, Judgement, Proof, Report, Validator, ValidatorError,
};
use windlass_core::workspace::{LandTo, WorkspaceError, WorkspaceErrorKind};
use windlass_engine::{EngineError, OnAsk, Request, ResultFold};
use windlass_testing::{CheckedTree, FnTool, MemoryWorkspaces, call, says};

use crate::fixture::{EngineFixture, RunEvents};

type SideEffect = Box<dyn Fn(&MemoryWorkspaces) + Send + Sync>;

/// A validator with scripted verdicts, which may change the tree while it runs.
struct ScriptedValidator {
    name: &'static str,
    blocking: bool,
    fixes: bool,
    verdicts: Mutex<Vec<(Judgement, &'static str)>>,
    side_effect: Option<(MemoryWorkspaces, SideEffect)>,
    hangs: bool,
    role: CheckRole,
    /// Computes the findings from the state of the tree that the validator sees.
    findings_for: Option<(MemoryWorkspaces, FindingsFor)>,
}

type FindingsFor = fn(&CheckedTree) -> &'static [&'static str];

impl ScriptedValidator {
    fn with_verdicts(name: &'static str, verdicts: &[(Judgement, &'static str)]) -> Self {
        let verdicts = Mutex::new(verdicts.to_vec());
        Self {
            name,
            blocking: true,
            fixes: false,
            verdicts,
            side_effect: None,
            hangs: false,
            role: CheckRole::Given,
            findings_for: None,
        }
    }

    fn with_findings(fixture: &EngineFixture, role: CheckRole, findings_for: FindingsFor) -> Self {
        Self {
            role,
            findings_for: Some((fixture.workspaces.clone(), findings_for)),
            ..Self::with_verdicts("check", &[])
        }
    }

    fn passes(name: &'static str) -> Self {
        Self::with_verdicts(name, &[(Judgement::Pass, ""); 10])
    }

    fn with_side_effect(
        mut self,
        fixture: &EngineFixture,
        side_effect: impl Fn(&MemoryWorkspaces) + Send + Sync + 'static,
    ) -> Self {
        self.side_effect = Some((fixture.workspaces.clone(), Box::new(side_effect)));
        self
    }
}

impl Validator for ScriptedValidator {
    fn name(&self) -> &str {
        self.name
    }
    fn blocking(&self) -> bool {
        self.blocking
    }
    fn fixes(&self) -> bool {
        self.fixes
    }
    fn role(&self) -> CheckRole {
        self.role
    }
    fn judges(&self, path: &str) -> bool {
        path.starts_with("tests/")
    }
    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        Box::pin(async move {
            if self.hangs {
                ctx.cancel.cancelled().await;
                std::future::pending::<()>().await;
            }
            if let Some((workspaces, side_effect)) = &self.side_effect {
                side_effect(workspaces);
            }
            if let Some((workspaces, findings_for)) = &self.findings_for {
                let wrong = findings_for(&workspaces.tree().shown);
                let judgement = if wrong.is_empty() { PASS } else { FAIL };
                let findings = wrong.iter().map(|text| Finding::whole(*text)).collect();
                return Ok(Report::new(judgement, findings));
            }
            let (judgement, message) = self.verdicts.lock().remove(0);
            let findings = match message {
                "" => Vec::new(),
                "panic" => panic!("a validator fell over"),
                message => vec![Finding {
                    path: "a.rs".into(),
                    line: 3,
                    column: 7,
                    ..Finding::whole(message)
                }],
            };
            let proof = Proof {
                command: Some("true".into()),
                exit: Some(0),
                ..Proof::default()
            };
            Ok(Report {
                judgement,
                findings,
                proof,
            })
        })
    }
}

/// A fixture for an isolated run. Each iteration changes `path`.
fn isolated(iterations: usize, path: &'static str) -> EngineFixture {
    let change = |id: usize| call(&id.to_string(), "change", &json!({ "at": path, "n": id }));
    let answers = (0..iterations)
        .flat_map(|n| [change(n), says("done")])
        .collect();
    let mut fixture = EngineFixture::new(answers);
    fixture.workspaces.terms = Terms::unconfined(Strategy::Overlay);
    let workspaces = fixture.workspaces.clone();
    let tool = FnTool::new("change", Effect::Write, move |args, _| {
        workspaces
            .tree()
            .change(args["at"].as_str().unwrap_or_default());
        Box::pin(async { Ok(ToolOutput::text("changed")) })
    });
    fixture.tools.push(tool.boxed());
    fixture
}

fn reason(ran: &RunEvents) -> (FailReason, &str) {
    match ran.outcome() {
        Outcome::Failed { reason, detail, .. } => (*reason, detail),
        other => panic!("it did not fail: {other:?}"),
    }
}

fn set_validators(
    fixture: &mut EngineFixture,
    validators: impl IntoIterator<Item = ScriptedValidator>,
) {
    fixture.validators = validators
        .into_iter()
        .map(|validator| Arc::new(validator) as Arc<dyn Validator>)
        .collect();
}

const FAIL: Judgement = Judgement::Fail;
const PASS: Judgement = Judgement::Pass;

#[tokio::test]
async fn passed_changes_land_with_the_judged_hash() {
    let mut fixture = isolated(2, "a.rs");
    set_validators(
        &mut fixture,
        [ScriptedValidator::with_verdicts(
            "check",
            &[(FAIL, "expected `;`"), (PASS, "")],
        )],
    );
    let ran = fixture.run().await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(ran.count("iteration_started"), 2);
    let asked = format!("{:?}", fixture.provider.asked()[2]);
    assert!(
        asked.contains("a.rs:3:7: expected `;`") && asked.contains("The request was:\\ngo"),
        "{asked}"
    );
    let landed = fixture.workspaces.tree().landed.clone();
    assert_eq!(landed.len(), 1);
    assert_eq!(
        (landed[0].tree_hash.as_deref(), &landed[0].to),
        (Some("tree 2"), &LandTo::Tree)
    );
    let Some(EventKind::RunFinished(RunSummary {
        evidence,
        files,
        limits,
        ..
    })) = ran.events.last().map(|event| &event.kind)
    else {
        panic!("no end")
    };
    assert_eq!(
        (evidence[0].tree_hash.as_deref(), evidence[0].proof.exit),
        (Some("tree 2"), Some(0))
    );
    assert_eq!((files[0].path.as_str(), limits.is_some()), ("a.rs", true));
}

#[tokio::test]
async fn repeated_findings_end_the_run_and_prompts_repeat_earlier_ones() {
    let mut fixture = isolated(5, "a.rs");
    set_validators(
        &mut fixture,
        [ScriptedValidator::with_verdicts(
            "check",
            &[(FAIL, "one"), (FAIL, "two"), (FAIL, "two")],
        )],
    );
    let ran = fixture.run().await;
    let (reason, detail) = reason(&ran);
    assert!(
        reason == FailReason::Validation && detail.contains("nothing improved"),
        "{detail}"
    );
    assert_eq!(
        (
            ran.count("iteration_started"),
            ran.count("kept"),
            ran.count("landed")
        ),
        (3, 1, 0)
    );
    let asked = format!("{:?}", fixture.provider.asked()[4]);
    assert!(
        asked.contains("do not bring it back:\\n- check: a.rs:3:7: one"),
        "{asked}"
    );
}

#[tokio::test]
async fn an_advisory_failure_completes_and_is_visible_and_a_blocking_one_cuts_the_chain_short() {
    let mut fixture = isolated(1, "a.rs");
    let advisory = ScriptedValidator {
        blocking: false,
        ..ScriptedValidator::with_verdicts("scan", &[(FAIL, "eval")])
    };
    set_validators(&mut fixture, [advisory, ScriptedValidator::passes("check")]);
    let ran = fixture.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("validated"), ran.count("landed")),
        (&Outcome::Completed, 2, 1)
    );
    let Some(EventKind::RunFinished(RunSummary { evidence, .. })) =
        ran.events.last().map(|event| &event.kind)
    else {
        panic!()
    };
    assert!(evidence[0].advisory && evidence[0].judgement == FAIL);

    let mut fixture = isolated(1, "a.rs");
    fixture.options.budget.iterations = Some(1);
    set_validators(
        &mut fixture,
        [
            ScriptedValidator::with_verdicts("first", &[(FAIL, "no")]),
            ScriptedValidator::passes("second"),
        ],
    );
    let ran = fixture.run().await;
    assert_eq!(
        (reason(&ran).0, ran.count("validated")),
        (FailReason::Validation, 1)
    );
}

#[tokio::test]
async fn a_validator_that_hangs_panics_or_changes_files_is_unverifiable() {
    let unverifiable = |ran: &RunEvents| {
        let said = ran.events.iter().find_map(|event| match &event.kind {
            EventKind::Validated { report, .. } => Some(report.clone()),
            _ => None,
        });
        let report = said.unwrap();
        assert_eq!(report.judgement, Judgement::Unverifiable);
        report.findings[0].message.clone()
    };
    let mut fixture = isolated(1, "a.rs");
    fixture.options.budget = Budget {
        iterations: Some(1),
        seconds: None,
        ..Budget::default()
    };
    set_validators(
        &mut fixture,
        [ScriptedValidator {
            hangs: true,
            ..ScriptedValidator::passes("hangs")
        }],
    );
    let ran = fixture.run().await;
    assert_eq!(reason(&ran).0, FailReason::Validation);
    assert!(unverifiable(&ran).contains("600 seconds"));

    let mut fixture = isolated(1, "a.rs");
    fixture.options.budget.iterations = Some(1);
    set_validators(
        &mut fixture,
        [ScriptedValidator::with_verdicts(
            "falls",
            &[(PASS, "panic")],
        )],
    );
    assert!(unverifiable(&fixture.run().await).contains("fell over"));

    let mut fixture = isolated(1, "a.rs");
    fixture.options.budget.iterations = Some(1);
    let meddles = ScriptedValidator::passes("meddles")
        .with_side_effect(&fixture, |workspaces| workspaces.tree().change("b.rs"));
    set_validators(
        &mut fixture,
        [ScriptedValidator {
            blocking: false,
            ..meddles
        }],
    );
    let ran = fixture.run().await;
    assert_eq!(
        reason(&ran).0,
        FailReason::Validation,
        "also if the validator is advisory"
    );
    assert!(unverifiable(&ran).contains("b.rs"));
}

#[tokio::test]
async fn the_chain_runs_again_after_a_fixer() {
    let mut fixture = isolated(1, "a.rs");
    let fixer = ScriptedValidator::passes("format").with_side_effect(&fixture, |workspaces| {
        if workspaces.tree().version < 3 {
            workspaces.tree().change("a.rs");
        }
    });
    set_validators(
        &mut fixture,
        [
            ScriptedValidator::passes("check"),
            ScriptedValidator {
                fixes: true,
                ..fixer
            },
        ],
    );
    let ran = fixture.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("validated")),
        (&Outcome::Completed, 6)
    );
    assert_eq!(
        fixture.workspaces.tree().landed[0].tree_hash.as_deref(),
        Some("tree 3")
    );
}

#[tokio::test]
async fn changed_judges_are_listed_replaced_or_refused() {
    let mut fixture = isolated(1, "tests/a.rs");
    set_validators(&mut fixture, [ScriptedValidator::passes("check")]);
    let ran = fixture.run().await;
    let listed = |ran: &RunEvents| match ran.events.last().map(|event| &event.kind) {
        Some(EventKind::RunFinished(RunSummary { judge_changed, .. })) => judge_changed.clone(),
        _ => panic!("no end"),
    };
    assert_eq!(
        (ran.outcome(), listed(&ran)),
        (&Outcome::Completed, vec!["tests/a.rs".to_owned()])
    );

    let mut fixture = isolated(1, "tests/a.rs");
    fixture.options.contract.protect = vec!["tests/**".into()];
    fixture.workspaces.tree().change("src.rs");
    let looks = ScriptedValidator::passes("check").with_side_effect(&fixture, |workspaces| {
        assert_eq!(
            workspaces.tree().shown,
            CheckedTree::Landing(vec!["tests/a.rs".to_owned()])
        )
    });
    set_validators(&mut fixture, [looks]);
    assert_eq!(*fixture.run().await.outcome(), Outcome::Completed);

    let mut fixture = isolated(2, "tests/a.rs");
    fixture.options.contract.strict_judge = true;
    set_validators(&mut fixture, [ScriptedValidator::passes("check")]);
    let ran = fixture.run().await;
    assert_eq!(
        (reason(&ran).0, ran.count("validated")),
        (FailReason::Validation, 0)
    );
    assert!(
        format!("{:?}", fixture.provider.asked()[2])
            .contains("tests/a.rs: the checks depend on this file")
    );
}

fn failing_before(shown: &CheckedTree) -> &'static [&'static str] {
    match shown {
        CheckedTree::Nothing => panic!("no tree was opened"),
        _ => &["two tests fail"],
    }
}

#[tokio::test]
async fn a_person_decides_about_preexisting_failures() {
    let fixture = |role, on_ask| {
        let mut fixture = isolated(1, "a.rs");
        let validator = ScriptedValidator::with_findings(&fixture, role, failing_before);
        set_validators(&mut fixture, [validator]);
        fixture.options.on_ask = on_ask;
        fixture
    };
    // No user is connected: the copy is kept, and the error names the flag.
    let ran = fixture(CheckRole::Detected, OnAsk::Pause).run().await;
    let (kind, detail) = reason(&ran);
    assert_eq!(kind, FailReason::Validation);
    assert!(detail.contains("--accept-preexisting"), "{detail}");
    assert_eq!(
        (
            ran.count("asked"),
            ran.count("kept"),
            ran.count("iteration_started")
        ),
        (0, 1, 1)
    );

    let mut accepted = fixture(CheckRole::Detected, OnAsk::Pause);
    accepted.options.contract.accept_preexisting = true;
    let ran = accepted.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("landed")),
        (&Outcome::Completed, 1)
    );
    let evidence = ran.events.iter().find_map(|event| match &event.kind {
        EventKind::RunFinished(summary) => Some(summary.evidence.clone()),
        _ => None,
    });
    let evidence = evidence.unwrap();
    assert!(
        evidence[0].preexisting && evidence[0].judgement == FAIL,
        "{evidence:?}"
    );

    // A user is connected.
    let mut attended = fixture(CheckRole::Detected, OnAsk::Wait);
    attended.person = vec![Answer::Once];
    let ran = attended.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("landed")),
        (&Outcome::Completed, 1)
    );

    // A check that the user configured blocks, even if it failed before.
    let ran = fixture(CheckRole::Given, OnAsk::Pause).run().await;
    assert!(!reason(&ran).1.contains("--accept-preexisting"));
}

#[tokio::test]
async fn a_new_failure_blocks_in_addition_to_preexisting_ones() {
    let mut fixture = isolated(2, "a.rs");
    let validator =
        ScriptedValidator::with_findings(&fixture, CheckRole::Detected, |shown| match shown {
            CheckedTree::Base => &["one fails"],
            _ => &["one fails", "two fails"],
        });
    set_validators(&mut fixture, [validator]);
    let ran = fixture.run().await;
    assert_eq!(reason(&ran).0, FailReason::Validation);
    let told = format!("{:?}", fixture.provider.asked()[2]);
    assert!(
        told.contains("one fails (failed before this run, too)") && told.contains("two fails"),
        "{told}"
    );
}

#[tokio::test]
async fn a_check_that_passes_only_with_ignored_files_is_unverifiable() {
    let fixture = || {
        let mut fixture = isolated(1, "package-lock.json");
        fixture.workspaces.tree().left = vec!["node_modules/left-pad".into()];
        let validator =
            ScriptedValidator::with_findings(&fixture, CheckRole::Given, |shown| match shown {
                CheckedTree::WithIgnored(_) => &[],
                _ => &["left-pad is missing"],
            });
        set_validators(&mut fixture, [validator]);
        fixture
    };
    let mut blocked = fixture();
    blocked.options.budget.iterations = Some(1);
    let ran = blocked.run().await;
    let detail = reason(&ran).1;
    for word in ["node_modules/left-pad", "npm ci", "--keep-ignored"] {
        assert!(detail.contains(word), "{word}: {detail}");
    }
    let mut kept = fixture();
    kept.options.contract.keep_ignored = true;
    let ran = kept.run().await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    let ignored = ran.events.iter().find_map(|event| match &event.kind {
        EventKind::Validated { report, .. } => Some(report.proof.ignored.clone()),
        _ => None,
    });
    assert_eq!(
        ignored.unwrap(),
        ["node_modules/left-pad"],
        "the evidence names the files"
    );

    // No check needs caches, so the check does not run again.
    let mut fixture = isolated(1, "a.py");
    fixture.options.budget.iterations = Some(1);
    fixture.workspaces.tree().left = vec!["__pycache__/a.pyc".into()];
    let validator =
        ScriptedValidator::with_findings(&fixture, CheckRole::Given, |shown| match shown {
            CheckedTree::WithIgnored(_) => panic!("it ran again"),
            _ => &["it fails"],
        });
    set_validators(&mut fixture, [validator]);
    assert!(reason(&fixture.run().await).1.contains("it fails"));
}

#[tokio::test]
async fn setup_runs_first_and_blocks_if_it_fails() {
    for (verdict, landed) in [(PASS, 1), (FAIL, 0)] {
        let mut fixture = isolated(1, "a.rs");
        fixture.options.budget.iterations = Some(1);
        let setup = ScriptedValidator {
            role: CheckRole::Setup,
            ..ScriptedValidator::with_verdicts("setup: npm ci", &[(verdict, "no such package")])
        };
        set_validators(&mut fixture, [ScriptedValidator::passes("check"), setup]);
        let ran = fixture.run().await;
        assert_eq!(ran.count("landed"), landed);
        let first = ran.events.iter().find_map(|event| match &event.kind {
            EventKind::Validated { validator, .. } => Some(validator.clone()),
            _ => None,
        });
        assert_eq!(first.unwrap(), "setup: npm ci");
    }
}

#[tokio::test]
async fn only_built_in_checks_do_not_block_if_unverifiable() {
    let roles = [
        (CheckRole::Given, 0),
        (CheckRole::Detected, 0),
        (CheckRole::BuiltIn, 1),
    ];
    for (role, landed) in roles {
        let mut fixture = isolated(1, "a.rs");
        fixture.options.budget.iterations = Some(1);
        let validator = ScriptedValidator {
            role,
            ..ScriptedValidator::with_verdicts(
                "check",
                &[(Judgement::Unverifiable, "a template"); 2],
            )
        };
        set_validators(&mut fixture, [validator]);
        assert_eq!(fixture.run().await.count("landed"), landed, "{role:?}");
    }
}

#[tokio::test]
async fn protection_never_makes_the_checks_judge_the_unchanged_tree() {
    let fixture = || {
        let mut fixture = isolated(1, "tests/a.rs");
        fixture.options.budget.iterations = Some(1);
        set_validators(&mut fixture, [ScriptedValidator::passes("check")]);
        fixture
    };
    let mut all = fixture();
    all.options.contract.protect = vec!["**".into()];
    let ran = all.run().await;
    assert!(reason(&ran).1.contains("every changed file is protected"));
    let mut untrusted = fixture();
    untrusted.options.contract.forbid = vec!["**".into()];
    let ran = untrusted.run().await;
    assert!(reason(&ran).1.contains("they are not trusted"));
    assert_eq!(ran.count("landed"), 0);
}

#[tokio::test]
async fn paths_that_may_not_be_changed_do_not_land() {
    let mut fixture = isolated(2, "lib/a.rs");
    fixture.options.contract.write_paths = Some(vec!["src/".into()]);
    let ran = fixture.run().await;
    assert_eq!(
        (reason(&ran).0, ran.count("landed")),
        (FailReason::Validation, 0)
    );
    assert!(
        reason(&ran).1.contains("lib/a.rs: only the allowed paths"),
        "{}",
        reason(&ran).1
    );
    let mut fixture = isolated(2, ".env");
    let ran = fixture.run().await;
    assert!(
        reason(&ran)
            .1
            .contains(".env: this path may not be changed"),
        "{:?}",
        ran.outcome()
    );
    fixture = isolated(1, "src/a.rs");
    fixture.options.contract.write_paths = Some(vec!["src/".into()]);
    assert_eq!(*fixture.run().await.outcome(), Outcome::Completed);
}

#[tokio::test]
async fn an_answer_without_changes_is_completed_and_starts_no_check() {
    for strategy in [Strategy::Overlay, Strategy::InPlace] {
        let mut fixture = EngineFixture::new(vec![says("done"), says("done")]);
        fixture.workspaces.terms = Terms::unconfined(strategy);
        set_validators(
            &mut fixture,
            [ScriptedValidator::with_verdicts("check", &[])],
        );
        let ran = fixture.run().await;
        assert_eq!(*ran.outcome(), Outcome::Completed);
        for kind in ["validation_started", "landed", "kept"] {
            assert_eq!(ran.count(kind), 0, "{kind}");
        }
        fixture.options.contract.require_changes = true;
        let ran = fixture.run().await;
        assert!(
            reason(&ran).0 == FailReason::NoChanges && reason(&ran).1.contains("--require-changes")
        );
    }
}

#[tokio::test]
async fn changes_of_the_user_are_merged_and_judged_again() {
    let mut fixture = isolated(1, "a.rs");
    set_validators(&mut fixture, [ScriptedValidator::passes("check")]);
    fixture.workspaces.tree().moved =
        [vec![], vec!["c.rs".to_owned()], vec!["c.rs".to_owned()]].into();
    let ran = fixture.run().await;
    assert_eq!(
        (
            ran.outcome(),
            ran.count("validated"),
            fixture.workspaces.tree().caught_up
        ),
        (&Outcome::Completed, 2, 1)
    );
    assert_eq!(
        fixture.workspaces.tree().turns,
        2,
        "before the second round, and to land"
    );

    // Another run landed while this one waited for its turn to land.
    let mut fixture = isolated(1, "a.rs");
    set_validators(&mut fixture, [ScriptedValidator::passes("check")]);
    fixture.workspaces.tree().turn_waits = true;
    let other = || vec!["c.rs".to_owned()];
    fixture.workspaces.tree().moved = [vec![], vec![], other(), other()].into();
    let ran = fixture.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("validated")),
        (&Outcome::Completed, 2)
    );
    assert_eq!(fixture.workspaces.tree().caught_up, 1);

    let mut fixture = isolated(1, "a.rs");
    set_validators(&mut fixture, [ScriptedValidator::passes("check")]);
    fixture.workspaces.tree().moved = vec![vec!["a.rs".to_owned()]].into();
    let message = "both changed a.rs".to_owned();
    fixture.workspaces.tree().conflict = Some(WorkspaceError {
        kind: WorkspaceErrorKind::Conflict,
        message,
    });
    let ran = fixture.run().await;
    assert_eq!(
        (reason(&ran), ran.count("kept")),
        ((FailReason::LandingConflict, "both changed a.rs"), 1)
    );

    let mut fixture = isolated(1, "a.rs");
    set_validators(&mut fixture, [ScriptedValidator::passes("check")]);
    fixture.options.contract.land_anyway = true;
    fixture.workspaces.tree().moved = vec![vec!["c.rs".to_owned()]; 9].into();
    let ran = fixture.run().await;
    assert_eq!(
        (ran.outcome(), fixture.workspaces.tree().caught_up),
        (&Outcome::Completed, 0)
    );
    assert!(ran.count("warned") >= 1);
    let Some(EventKind::RunFinished(RunSummary { evidence, .. })) =
        ran.events.last().map(|event| &event.kind)
    else {
        panic!("no end")
    };
    let last = evidence.last().unwrap();
    assert_eq!(
        (last.validator.as_str(), last.judgement),
        ("land_anyway", Judgement::Unverifiable)
    );
    assert_eq!(last.tree_hash, evidence[0].tree_hash);

    let mut fixture = isolated(1, "a.rs");
    set_validators(&mut fixture, [ScriptedValidator::passes("check")]);
    fixture.workspaces.tree().moved = vec![vec!["c.rs".to_owned()]; 20].into();
    let ran = fixture.run().await;
    assert_eq!(
        (reason(&ran).0, ran.count("landed")),
        (FailReason::LandingConflict, 0),
        "the tree never stops changing"
    );
}

#[tokio::test]
async fn a_landing_is_logged_although_a_later_step_failed() {
    let fixture = isolated(1, "a.rs");
    fixture.workspaces.tree().unfinished = Some("no commit was made".to_owned());
    fixture.workspaces.tree().notes = vec!["`a.rs` cannot be undone".to_owned()];
    let ran = fixture.run().await;
    assert_eq!(reason(&ran), (FailReason::Runtime, "no commit was made"));
    assert_eq!(
        (ran.count("landed"), ran.count("warned")),
        (1, 1),
        "undo needs the event, and the user the warning"
    );
}

#[tokio::test]
async fn a_landing_that_fails_keeps_the_copy() {
    let fixture = isolated(1, "a.rs");
    let message = "a.rs was changed".to_owned();
    fixture.workspaces.tree().refuses = Some(WorkspaceError {
        kind: WorkspaceErrorKind::Conflict,
        message,
    });
    let ran = fixture.run().await;
    assert_eq!(
        (reason(&ran).0, ran.count("kept"), ran.count("landed")),
        (FailReason::LandingConflict, 1, 0)
    );
}

#[tokio::test]
async fn files_that_other_programs_execute_land_only_if_named_or_approved() {
    let path = ".vscode/tasks.json";
    let mut fixture = isolated(1, path);
    fixture.person = vec![Answer::Once];
    let ran = fixture.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("asked"), ran.count("landed")),
        (&Outcome::Completed, 1, 1)
    );
    let mut fixture = isolated(1, path);
    fixture.person = vec![Answer::Once];
    fixture.workspaces.tree().moved = [vec![], vec![], vec!["c.rs".to_owned()]].into();
    let ran = fixture.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("judged"), ran.count("landed")),
        (&Outcome::Completed, 3, 1),
        "the tree changed while a person was asked, so it is judged again"
    );
    let mut fixture = isolated(1, path);
    fixture.person = vec![Answer::No { note: None }];
    let ran = fixture.run().await;
    assert_eq!((reason(&ran).0, ran.count("kept")), (FailReason::Policy, 1));
    let mut fixture = isolated(1, path);
    fixture.options.on_ask = OnAsk::Deny;
    assert_eq!(
        reason(&fixture.run().await).0,
        FailReason::Policy,
        "`--yes` does not answer it either"
    );
    let mut fixture = isolated(1, path);
    fixture.options.on_ask = OnAsk::Pause;
    let ran = fixture.run().await;
    assert_eq!(
        (ran.count("run_finished"), ran.count("kept")),
        (0, 1),
        "the run waits with its copy"
    );
    let fixture = isolated(1, path);
    let session = fixture.open().await;
    let handle = session
        .run(
            Message::user("repair .vscode/tasks.json"),
            fixture.options.clone(),
        )
        .unwrap();
    let ran = fixture.watch(handle).await;
    assert_eq!(
        (ran.outcome(), ran.count("asked")),
        (&Outcome::Completed, 0)
    );
}

#[tokio::test]
async fn a_limit_ends_the_run_and_a_new_run_resumes_the_kept_copy() {
    let mut fixture = isolated(1, "a.rs");
    fixture.options.budget = Budget {
        steps: Some(1),
        ..Budget::default()
    };
    let session = fixture.open().await;
    let ran = fixture.run_in(&session).await;
    assert_eq!((ran.outcome(), ran.count("kept")), (&Outcome::MaxSteps, 1));
    let Some(EventKind::RunFinished(RunSummary { transaction, .. })) =
        ran.events.last().map(|event| &event.kind)
    else {
        panic!()
    };
    fixture.options.contract.kept.clone_from(transaction);
    fixture.options.budget = Budget::default();
    let ran = fixture.run_in(&session).await;
    assert_eq!(
        (ran.outcome(), ran.count("landed")),
        (&Outcome::Completed, 1)
    );
    assert_eq!(fixture.workspaces.tree().kept.as_deref(), Some("kept"));
}

#[tokio::test]
async fn only_completed_work_above_a_limit_is_reported_as_an_overrun() {
    let mut fixture = isolated(2, "a.rs");
    fixture.options.budget = Budget {
        iterations: Some(2),
        ..Budget::default()
    };
    set_validators(
        &mut fixture,
        [ScriptedValidator::with_verdicts(
            "check",
            &[(FAIL, "x"), (PASS, "")],
        )],
    );
    assert_eq!(
        *fixture.run().await.outcome(),
        Outcome::Completed,
        "the last allowed iteration is a full success"
    );

    let mut fixture = isolated(1, "a.rs");
    fixture.options.budget = Budget {
        seconds: Some(10),
        ..Budget::default()
    };
    let clock = fixture.clock.clone();
    let late = ScriptedValidator::passes("check")
        .with_side_effect(&fixture, move |_| clock.advance(Duration::from_secs(11)));
    set_validators(&mut fixture, [late]);
    let outcome = fixture.run().await.outcome().clone();
    assert_eq!(
        outcome,
        Outcome::CompletedWithLimitExceeded { limit: Limit::Time }
    );
}

#[tokio::test]
async fn a_refusal_by_a_tool_call_ends_the_run() {
    let args = json!({ "category": "policy", "reason": "the licence forbids it" });
    let fixture = EngineFixture::new(vec![call("1", "refuse", &args), says("never reached")]);
    let ran = fixture.run().await;
    let detail = "the licence forbids it".to_owned();
    assert_eq!(
        *ran.outcome(),
        Outcome::Refused {
            category: RefusalCategory::Policy,
            detail
        }
    );
    assert_eq!(fixture.provider.asked().len(), 1);
    let fixture = EngineFixture::new(vec![
        call("1", "refuse", &json!({ "category": "whim" })),
        says("done"),
    ]);
    assert_eq!(
        *fixture.run().await.outcome(),
        Outcome::Completed,
        "an incomplete refusal is an ordinary call"
    );
}

#[tokio::test]
async fn execute_returns_one_result_and_raises_on_request() {
    let mut fixture = isolated(1, "a.rs");
    fixture.options.live = false;
    let request = Request {
        options: fixture.options.clone(),
        ..Request::new("go")
    };
    let result = fixture.engine().execute(request).await.unwrap();
    assert_eq!(
        (result.outcome(), result.text.as_str()),
        (Some(&Outcome::Completed), "done")
    );
    assert_eq!(
        (
            result.files()[0].path.as_str(),
            result.totals().steps,
            result.totals().iterations
        ),
        ("a.rs", 2, 1)
    );
    assert_eq!(result.landed.unwrap().files, ["a.rs"]);

    let mut fixture = isolated(1, "a.rs");
    fixture.options.budget = Budget {
        steps: Some(1),
        ..Budget::default()
    };
    let mut request = Request {
        options: fixture.options.clone(),
        ..Request::new("go")
    };
    let result = fixture.engine().execute(request.clone()).await.unwrap();
    assert_eq!(
        (
            result.outcome().and_then(Outcome::exceeded),
            result
                .summary
                .as_ref()
                .and_then(|summary| summary.transaction.as_deref())
        ),
        (Some(Limit::Steps), Some("kept"))
    );
    request.raise_on_budget_exceeded = true;
    fixture = isolated(1, "a.rs");
    match fixture.engine().execute(request).await {
        Err(EngineError::BudgetExceeded {
            limit: Limit::Steps,
            result,
        }) => assert_eq!(result.totals().steps, 1),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_stream_of_a_request_folds_to_the_same_result() {
    let mut fixture = isolated(1, "a.rs");
    fixture.options.live = false;
    let request = Request {
        options: fixture.options.clone(),
        ..Request::new("go")
    };
    let mut stream = fixture.engine().stream(request).await.unwrap();
    let (mut fold, mut kinds) = (None, Vec::new());
    while let Some(event) = stream.next().await {
        let fold =
            fold.get_or_insert_with(|| ResultFold::new(event.session.clone(), stream.id().clone()));
        fold.apply(&event);
        kinds.push(
            serde_json::to_value(&event).unwrap()["kind"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    let result = fold.unwrap().finish();
    assert_eq!(
        (result.outcome(), result.text.as_str()),
        (Some(&Outcome::Completed), "done")
    );
    assert_eq!(kinds.last().map(String::as_str), Some("run_finished"));
    assert_eq!(result.landed.unwrap().files, ["a.rs"]);
}
