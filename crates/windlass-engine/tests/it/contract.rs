//! What must hold before a run's changes land: the chain of validators, iterations, evidence, limits, the person.

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
use windlass_testing::{FnTool, MemoryWorkspaces, Shown, call, says};

use crate::lab::{Lab, Ran};

type Deed = Box<dyn Fn(&MemoryWorkspaces) + Send + Sync>;

/// A validator that says what it is told to, and may do something to the tree meanwhile.
struct Judge {
    name: &'static str,
    blocking: bool,
    fixes: bool,
    verdicts: Mutex<Vec<(Judgement, &'static str)>>,
    deed: Option<(MemoryWorkspaces, Deed)>,
    hangs: bool,
    role: CheckRole,
    /// Says what is wrong by the state of the tree that it sees.
    looks: Option<(MemoryWorkspaces, Looks)>,
}

type Looks = fn(&Shown) -> &'static [&'static str];

impl Judge {
    fn says(name: &'static str, verdicts: &[(Judgement, &'static str)]) -> Self {
        let verdicts = Mutex::new(verdicts.to_vec());
        Self {
            name,
            blocking: true,
            fixes: false,
            verdicts,
            deed: None,
            hangs: false,
            role: CheckRole::Given,
            looks: None,
        }
    }

    fn looks(lab: &Lab, role: CheckRole, looks: Looks) -> Self {
        Self {
            role,
            looks: Some((lab.workspaces.clone(), looks)),
            ..Self::says("check", &[])
        }
    }

    fn passes(name: &'static str) -> Self {
        Self::says(name, &[(Judgement::Pass, ""); 10])
    }

    fn does(mut self, lab: &Lab, deed: impl Fn(&MemoryWorkspaces) + Send + Sync + 'static) -> Self {
        self.deed = Some((lab.workspaces.clone(), Box::new(deed)));
        self
    }
}

impl Validator for Judge {
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
            if let Some((workspaces, deed)) = &self.deed {
                deed(workspaces);
            }
            if let Some((workspaces, looks)) = &self.looks {
                let wrong = looks(&workspaces.tree().shown);
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

/// An isolated run whose every answer changes this path first.
fn isolated(tries: usize, path: &'static str) -> Lab {
    let change = |id: usize| call(&id.to_string(), "change", &json!({ "at": path, "n": id }));
    let answers = (0..tries).flat_map(|n| [change(n), says("done")]).collect();
    let mut lab = Lab::new(answers);
    lab.workspaces.terms = Terms::unconfined(Strategy::Overlay);
    let workspaces = lab.workspaces.clone();
    let tool = FnTool::new("change", Effect::Write, move |args, _| {
        workspaces
            .tree()
            .change(args["at"].as_str().unwrap_or_default());
        Box::pin(async { Ok(ToolOutput::text("changed")) })
    });
    lab.tools.push(tool.boxed());
    lab
}

fn reason(ran: &Ran) -> (FailReason, &str) {
    match ran.outcome() {
        Outcome::Failed { reason, detail, .. } => (*reason, detail),
        other => panic!("it did not fail: {other:?}"),
    }
}

fn judges(lab: &mut Lab, judges: impl IntoIterator<Item = Judge>) {
    lab.validators = judges
        .into_iter()
        .map(|judge| Arc::new(judge) as Arc<dyn Validator>)
        .collect();
}

const FAIL: Judgement = Judgement::Fail;
const PASS: Judgement = Judgement::Pass;

#[tokio::test]
async fn what_passed_lands_with_the_hash_that_was_judged() {
    let mut lab = isolated(2, "a.rs");
    judges(
        &mut lab,
        [Judge::says("check", &[(FAIL, "expected `;`"), (PASS, "")])],
    );
    let ran = lab.run().await;
    assert_eq!(*ran.outcome(), Outcome::Completed);
    assert_eq!(ran.count("iteration_started"), 2);
    let asked = format!("{:?}", lab.provider.asked()[2]);
    assert!(
        asked.contains("a.rs:3:7: expected `;`") && asked.contains("The request was:\\ngo"),
        "{asked}"
    );
    let landed = lab.workspaces.tree().landed.clone();
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
async fn the_same_findings_twice_end_it_and_earlier_ones_are_named_once_more() {
    let mut lab = isolated(5, "a.rs");
    judges(
        &mut lab,
        [Judge::says(
            "check",
            &[(FAIL, "one"), (FAIL, "two"), (FAIL, "two")],
        )],
    );
    let ran = lab.run().await;
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
    let asked = format!("{:?}", lab.provider.asked()[4]);
    assert!(
        asked.contains("do not bring it back:\\n- check: a.rs:3:7: one"),
        "{asked}"
    );
}

#[tokio::test]
async fn an_advisory_failure_completes_and_is_visible_and_a_blocking_one_cuts_the_chain_short() {
    let mut lab = isolated(1, "a.rs");
    let advisory = Judge {
        blocking: false,
        ..Judge::says("scan", &[(FAIL, "eval")])
    };
    judges(&mut lab, [advisory, Judge::passes("check")]);
    let ran = lab.run().await;
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

    let mut lab = isolated(1, "a.rs");
    lab.options.budget.iterations = Some(1);
    judges(
        &mut lab,
        [
            Judge::says("first", &[(FAIL, "no")]),
            Judge::passes("second"),
        ],
    );
    let ran = lab.run().await;
    assert_eq!(
        (reason(&ran).0, ran.count("validated")),
        (FailReason::Validation, 1)
    );
}

#[tokio::test]
async fn a_validator_that_hangs_panics_or_changes_what_would_land_proves_nothing() {
    let unverifiable = |ran: &Ran| {
        let said = ran.events.iter().find_map(|event| match &event.kind {
            EventKind::Validated { report, .. } => Some(report.clone()),
            _ => None,
        });
        let report = said.unwrap();
        assert_eq!(report.judgement, Judgement::Unverifiable);
        report.findings[0].message.clone()
    };
    let mut lab = isolated(1, "a.rs");
    lab.options.budget = Budget {
        iterations: Some(1),
        seconds: None,
        ..Budget::default()
    };
    judges(
        &mut lab,
        [Judge {
            hangs: true,
            ..Judge::passes("hangs")
        }],
    );
    let ran = lab.run().await;
    assert_eq!(reason(&ran).0, FailReason::Validation);
    assert!(unverifiable(&ran).contains("600 seconds"));

    let mut lab = isolated(1, "a.rs");
    lab.options.budget.iterations = Some(1);
    judges(&mut lab, [Judge::says("falls", &[(PASS, "panic")])]);
    assert!(unverifiable(&lab.run().await).contains("fell over"));

    let mut lab = isolated(1, "a.rs");
    lab.options.budget.iterations = Some(1);
    let meddles =
        Judge::passes("meddles").does(&lab, |workspaces| workspaces.tree().change("b.rs"));
    judges(
        &mut lab,
        [Judge {
            blocking: false,
            ..meddles
        }],
    );
    let ran = lab.run().await;
    assert_eq!(
        reason(&ran).0,
        FailReason::Validation,
        "not even one that only advises"
    );
    assert!(unverifiable(&ran).contains("b.rs"));
}

#[tokio::test]
async fn after_a_fixer_everything_is_looked_at_again() {
    let mut lab = isolated(1, "a.rs");
    let fixer = Judge::passes("format").does(&lab, |workspaces| {
        if workspaces.tree().version < 3 {
            workspaces.tree().change("a.rs");
        }
    });
    judges(
        &mut lab,
        [
            Judge::passes("check"),
            Judge {
                fixes: true,
                ..fixer
            },
        ],
    );
    let ran = lab.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("validated")),
        (&Outcome::Completed, 6)
    );
    assert_eq!(
        lab.workspaces.tree().landed[0].tree_hash.as_deref(),
        Some("tree 3")
    );
}

#[tokio::test]
async fn changed_judges_are_listed_set_aside_or_refused() {
    let mut lab = isolated(1, "tests/a.rs");
    judges(&mut lab, [Judge::passes("check")]);
    let ran = lab.run().await;
    let listed = |ran: &Ran| match ran.events.last().map(|event| &event.kind) {
        Some(EventKind::RunFinished(RunSummary { judge_changed, .. })) => judge_changed.clone(),
        _ => panic!("no end"),
    };
    assert_eq!(
        (ran.outcome(), listed(&ran)),
        (&Outcome::Completed, vec!["tests/a.rs".to_owned()])
    );

    let mut lab = isolated(1, "tests/a.rs");
    lab.options.contract.protect = vec!["tests/**".into()];
    lab.workspaces.tree().change("src.rs");
    let looks = Judge::passes("check").does(&lab, |workspaces| {
        assert_eq!(
            workspaces.tree().shown,
            Shown::Landing(vec!["tests/a.rs".to_owned()])
        )
    });
    judges(&mut lab, [looks]);
    assert_eq!(*lab.run().await.outcome(), Outcome::Completed);

    let mut lab = isolated(2, "tests/a.rs");
    lab.options.contract.strict_judge = true;
    judges(&mut lab, [Judge::passes("check")]);
    let ran = lab.run().await;
    assert_eq!(
        (reason(&ran).0, ran.count("validated")),
        (FailReason::Validation, 0)
    );
    assert!(
        format!("{:?}", lab.provider.asked()[2])
            .contains("tests/a.rs: the checks depend on this file")
    );
}

fn failing_before(shown: &Shown) -> &'static [&'static str] {
    match shown {
        Shown::Nothing => panic!("no tree was opened"),
        _ => &["two tests fail"],
    }
}

#[tokio::test]
async fn failures_of_before_are_put_to_a_person_and_not_to_the_model() {
    let lab = |role, on_ask| {
        let mut lab = isolated(1, "a.rs");
        let judge = Judge::looks(&lab, role, failing_before);
        judges(&mut lab, [judge]);
        lab.options.on_ask = on_ask;
        lab
    };
    // Nobody is here: it is kept, and the flag is named.
    let ran = lab(CheckRole::Detected, OnAsk::Pause).run().await;
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

    let mut accepted = lab(CheckRole::Detected, OnAsk::Pause);
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

    // Somebody is here.
    let mut attended = lab(CheckRole::Detected, OnAsk::Wait);
    attended.person = vec![Answer::Once];
    let ran = attended.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("landed")),
        (&Outcome::Completed, 1)
    );

    // A check that a person gave blocks, whatever was before.
    let ran = lab(CheckRole::Given, OnAsk::Pause).run().await;
    assert!(!reason(&ran).1.contains("--accept-preexisting"));
}

#[tokio::test]
async fn a_new_failure_blocks_beside_those_of_before() {
    let mut lab = isolated(2, "a.rs");
    let judge = Judge::looks(&lab, CheckRole::Detected, |shown| match shown {
        Shown::Base => &["one fails"],
        _ => &["one fails", "two fails"],
    });
    judges(&mut lab, [judge]);
    let ran = lab.run().await;
    assert_eq!(reason(&ran).0, FailReason::Validation);
    let told = format!("{:?}", lab.provider.asked()[2]);
    assert!(
        told.contains("one fails (failed before this run, too)") && told.contains("two fails"),
        "{told}"
    );
}

#[tokio::test]
async fn a_check_that_passes_only_with_ignored_files_proves_nothing() {
    let lab = || {
        let mut lab = isolated(1, "package-lock.json");
        lab.workspaces.tree().left = vec!["node_modules/left-pad".into()];
        let judge = Judge::looks(&lab, CheckRole::Given, |shown| match shown {
            Shown::WithIgnored(_) => &[],
            _ => &["left-pad is missing"],
        });
        judges(&mut lab, [judge]);
        lab
    };
    let mut blocked = lab();
    blocked.options.budget.iterations = Some(1);
    let ran = blocked.run().await;
    let detail = reason(&ran).1;
    for word in ["node_modules/left-pad", "npm ci", "--keep-ignored"] {
        assert!(detail.contains(word), "{word}: {detail}");
    }
    let mut kept = lab();
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
        "the evidence says so"
    );

    // Caches are nothing that a check could need, so they cost no second look.
    let mut lab = isolated(1, "a.py");
    lab.options.budget.iterations = Some(1);
    lab.workspaces.tree().left = vec!["__pycache__/a.pyc".into()];
    let judge = Judge::looks(&lab, CheckRole::Given, |shown| match shown {
        Shown::WithIgnored(_) => panic!("a second look"),
        _ => &["it fails"],
    });
    judges(&mut lab, [judge]);
    assert!(reason(&lab.run().await).1.contains("it fails"));
}

#[tokio::test]
async fn set_up_runs_first_and_blocks_when_it_fails() {
    for (verdict, landed) in [(PASS, 1), (FAIL, 0)] {
        let mut lab = isolated(1, "a.rs");
        lab.options.budget.iterations = Some(1);
        let setup = Judge {
            role: CheckRole::Setup,
            ..Judge::says("setup: npm ci", &[(verdict, "no such package")])
        };
        judges(&mut lab, [Judge::passes("check"), setup]);
        let ran = lab.run().await;
        assert_eq!(ran.count("landed"), landed);
        let first = ran.events.iter().find_map(|event| match &event.kind {
            EventKind::Validated { validator, .. } => Some(validator.clone()),
            _ => None,
        });
        assert_eq!(first.unwrap(), "setup: npm ci");
    }
}

#[tokio::test]
async fn only_checks_that_are_always_there_let_pass_what_they_cannot_judge() {
    let roles = [
        (CheckRole::Given, 0),
        (CheckRole::Detected, 0),
        (CheckRole::BuiltIn, 1),
    ];
    for (role, landed) in roles {
        let mut lab = isolated(1, "a.rs");
        lab.options.budget.iterations = Some(1);
        let judge = Judge {
            role,
            ..Judge::says("check", &[(Judgement::Unverifiable, "a template"); 2])
        };
        judges(&mut lab, [judge]);
        assert_eq!(lab.run().await.count("landed"), landed, "{role:?}");
    }
}

#[tokio::test]
async fn protection_never_makes_the_checks_judge_the_tree_of_before() {
    let lab = || {
        let mut lab = isolated(1, "tests/a.rs");
        lab.options.budget.iterations = Some(1);
        judges(&mut lab, [Judge::passes("check")]);
        lab
    };
    let mut all = lab();
    all.options.contract.protect = vec!["**".into()];
    let ran = all.run().await;
    assert!(reason(&ran).1.contains("every changed file is protected"));
    let mut untrusted = lab();
    untrusted.options.contract.forbid = vec!["**".into()];
    let ran = untrusted.run().await;
    assert!(reason(&ran).1.contains("its settings are not trusted"));
    assert_eq!(ran.count("landed"), 0);
}

#[tokio::test]
async fn paths_that_may_not_be_changed_do_not_land() {
    let mut lab = isolated(2, "lib/a.rs");
    lab.options.contract.write_paths = Some(vec!["src/".into()]);
    let ran = lab.run().await;
    assert_eq!(
        (reason(&ran).0, ran.count("landed")),
        (FailReason::Validation, 0)
    );
    assert!(
        reason(&ran).1.contains("lib/a.rs: only the allowed paths"),
        "{}",
        reason(&ran).1
    );
    let mut lab = isolated(2, ".env");
    let ran = lab.run().await;
    assert!(
        reason(&ran).1.contains(".env: it may not be changed"),
        "{:?}",
        ran.outcome()
    );
    lab = isolated(1, "src/a.rs");
    lab.options.contract.write_paths = Some(vec!["src/".into()]);
    assert_eq!(*lab.run().await.outcome(), Outcome::Completed);
}

#[tokio::test]
async fn an_answer_without_changes_is_completed_and_starts_no_check() {
    for strategy in [Strategy::Overlay, Strategy::InPlace] {
        let mut lab = Lab::new(vec![says("done"), says("done")]);
        lab.workspaces.terms = Terms::unconfined(strategy);
        judges(&mut lab, [Judge::says("check", &[])]);
        let ran = lab.run().await;
        assert_eq!(*ran.outcome(), Outcome::Completed);
        for kind in ["validation_started", "landed", "kept"] {
            assert_eq!(ran.count(kind), 0, "{kind}");
        }
        lab.options.contract.require_changes = true;
        let ran = lab.run().await;
        assert!(
            reason(&ran).0 == FailReason::NoChanges && reason(&ran).1.contains("--require-changes")
        );
    }
}

#[tokio::test]
async fn what_the_person_changed_meanwhile_is_taken_in_and_judged_again() {
    let mut lab = isolated(1, "a.rs");
    judges(&mut lab, [Judge::passes("check")]);
    lab.workspaces.tree().moved = [vec![], vec!["c.rs".to_owned()], vec!["c.rs".to_owned()]].into();
    let ran = lab.run().await;
    assert_eq!(
        (
            ran.outcome(),
            ran.count("validated"),
            lab.workspaces.tree().caught_up
        ),
        (&Outcome::Completed, 2, 1)
    );
    assert_eq!(
        lab.workspaces.tree().turns,
        2,
        "before the second round, and to land"
    );

    // Another run landed while this one waited for its turn.
    let mut lab = isolated(1, "a.rs");
    judges(&mut lab, [Judge::passes("check")]);
    lab.workspaces.tree().turn_waits = true;
    let other = || vec!["c.rs".to_owned()];
    lab.workspaces.tree().moved = [vec![], vec![], other(), other()].into();
    let ran = lab.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("validated")),
        (&Outcome::Completed, 2)
    );
    assert_eq!(lab.workspaces.tree().caught_up, 1);

    let mut lab = isolated(1, "a.rs");
    judges(&mut lab, [Judge::passes("check")]);
    lab.workspaces.tree().moved = vec![vec!["a.rs".to_owned()]].into();
    let message = "both changed a.rs".to_owned();
    lab.workspaces.tree().conflict = Some(WorkspaceError {
        kind: WorkspaceErrorKind::Conflict,
        message,
    });
    let ran = lab.run().await;
    assert_eq!(
        (reason(&ran), ran.count("kept")),
        ((FailReason::LandingConflict, "both changed a.rs"), 1)
    );

    let mut lab = isolated(1, "a.rs");
    judges(&mut lab, [Judge::passes("check")]);
    lab.options.contract.land_anyway = true;
    lab.workspaces.tree().moved = vec![vec!["c.rs".to_owned()]; 9].into();
    let ran = lab.run().await;
    assert_eq!(
        (ran.outcome(), lab.workspaces.tree().caught_up),
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

    let mut lab = isolated(1, "a.rs");
    judges(&mut lab, [Judge::passes("check")]);
    lab.workspaces.tree().moved = vec![vec!["c.rs".to_owned()]; 20].into();
    let ran = lab.run().await;
    assert_eq!(
        (reason(&ran).0, ran.count("landed")),
        (FailReason::LandingConflict, 0),
        "it never comes to rest"
    );
}

#[tokio::test]
async fn what_landed_is_logged_although_something_after_it_failed() {
    let lab = isolated(1, "a.rs");
    lab.workspaces.tree().unfinished = Some("no commit was made".to_owned());
    lab.workspaces.tree().notes = vec!["`a.rs` cannot be undone".to_owned()];
    let ran = lab.run().await;
    assert_eq!(reason(&ran), (FailReason::Runtime, "no commit was made"));
    assert_eq!(
        (ran.count("landed"), ran.count("warned")),
        (1, 1),
        "undo needs the one, the person the other"
    );
}

#[tokio::test]
async fn a_landing_that_fails_keeps_the_copy() {
    let lab = isolated(1, "a.rs");
    let message = "a.rs was changed".to_owned();
    lab.workspaces.tree().refuses = Some(WorkspaceError {
        kind: WorkspaceErrorKind::Conflict,
        message,
    });
    let ran = lab.run().await;
    assert_eq!(
        (reason(&ran).0, ran.count("kept"), ran.count("landed")),
        (FailReason::LandingConflict, 1, 0)
    );
}

#[tokio::test]
async fn what_runs_on_this_machine_later_lands_only_when_named_or_allowed() {
    let path = ".vscode/tasks.json";
    let mut lab = isolated(1, path);
    lab.person = vec![Answer::Once];
    let ran = lab.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("asked"), ran.count("landed")),
        (&Outcome::Completed, 1, 1)
    );
    let mut lab = isolated(1, path);
    lab.person = vec![Answer::Once];
    lab.workspaces.tree().moved = [vec![], vec![], vec!["c.rs".to_owned()]].into();
    let ran = lab.run().await;
    assert_eq!(
        (ran.outcome(), ran.count("judged"), ran.count("landed")),
        (&Outcome::Completed, 3, 1),
        "the tree changed while a person was asked, so it is judged again"
    );
    let mut lab = isolated(1, path);
    lab.person = vec![Answer::No { note: None }];
    let ran = lab.run().await;
    assert_eq!((reason(&ran).0, ran.count("kept")), (FailReason::Policy, 1));
    let mut lab = isolated(1, path);
    lab.options.on_ask = OnAsk::Deny;
    assert_eq!(
        reason(&lab.run().await).0,
        FailReason::Policy,
        "`--yes` does not answer it either"
    );
    let mut lab = isolated(1, path);
    lab.options.on_ask = OnAsk::Pause;
    let ran = lab.run().await;
    assert_eq!(
        (ran.count("run_finished"), ran.count("kept")),
        (0, 1),
        "it waits, and nothing is lost"
    );
    let lab = isolated(1, path);
    let session = lab.open().await;
    let handle = session
        .run(
            Message::user("mend .vscode/tasks.json"),
            lab.options.clone(),
        )
        .unwrap();
    let ran = lab.watch(handle).await;
    assert_eq!(
        (ran.outcome(), ran.count("asked")),
        (&Outcome::Completed, 0)
    );
}

#[tokio::test]
async fn a_limit_ends_the_run_keeps_the_copy_and_a_new_run_goes_on_with_it() {
    let mut lab = isolated(1, "a.rs");
    lab.options.budget = Budget {
        steps: Some(1),
        ..Budget::default()
    };
    let session = lab.open().await;
    let ran = lab.run_in(&session).await;
    assert_eq!((ran.outcome(), ran.count("kept")), (&Outcome::MaxSteps, 1));
    let Some(EventKind::RunFinished(RunSummary { transaction, .. })) =
        ran.events.last().map(|event| &event.kind)
    else {
        panic!()
    };
    lab.options.contract.kept.clone_from(transaction);
    lab.options.budget = Budget::default();
    let ran = lab.run_in(&session).await;
    assert_eq!(
        (ran.outcome(), ran.count("landed")),
        (&Outcome::Completed, 1)
    );
    assert_eq!(lab.workspaces.tree().kept.as_deref(), Some("kept"));
}

#[tokio::test]
async fn only_a_real_overrun_by_work_that_passed_is_said_to_be_one() {
    let mut lab = isolated(2, "a.rs");
    lab.options.budget = Budget {
        iterations: Some(2),
        ..Budget::default()
    };
    judges(&mut lab, [Judge::says("check", &[(FAIL, "x"), (PASS, "")])]);
    assert_eq!(
        *lab.run().await.outcome(),
        Outcome::Completed,
        "the last allowed iteration is a full success"
    );

    let mut lab = isolated(1, "a.rs");
    lab.options.budget = Budget {
        seconds: Some(10),
        ..Budget::default()
    };
    let clock = lab.clock.clone();
    let late = Judge::passes("check").does(&lab, move |_| clock.advance(Duration::from_secs(11)));
    judges(&mut lab, [late]);
    let outcome = lab.run().await.outcome().clone();
    assert_eq!(
        outcome,
        Outcome::CompletedWithLimitExceeded { limit: Limit::Time }
    );
}

#[tokio::test]
async fn a_model_declines_by_a_call_and_nothing_more_is_asked() {
    let args = json!({ "category": "policy", "reason": "the licence forbids it" });
    let lab = Lab::new(vec![call("1", "refuse", &args), says("never reached")]);
    let ran = lab.run().await;
    let detail = "the licence forbids it".to_owned();
    assert_eq!(
        *ran.outcome(),
        Outcome::Refused {
            category: RefusalCategory::Policy,
            detail
        }
    );
    assert_eq!(lab.provider.asked().len(), 1);
    let lab = Lab::new(vec![
        call("1", "refuse", &json!({ "category": "whim" })),
        says("done"),
    ]);
    assert_eq!(
        *lab.run().await.outcome(),
        Outcome::Completed,
        "one that says nothing is a call like any other"
    );
}

#[tokio::test]
async fn the_front_door_gives_one_result_and_raises_on_wish() {
    let mut lab = isolated(1, "a.rs");
    lab.options.live = false;
    let request = Request {
        options: lab.options.clone(),
        ..Request::new("go")
    };
    let result = lab.engine().execute(request).await.unwrap();
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

    let mut lab = isolated(1, "a.rs");
    lab.options.budget = Budget {
        steps: Some(1),
        ..Budget::default()
    };
    let mut request = Request {
        options: lab.options.clone(),
        ..Request::new("go")
    };
    let result = lab.engine().execute(request.clone()).await.unwrap();
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
    lab = isolated(1, "a.rs");
    match lab.engine().execute(request).await {
        Err(EngineError::BudgetExceeded {
            limit: Limit::Steps,
            result,
        }) => assert_eq!(result.totals().steps, 1),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_stream_of_a_request_folds_to_the_same_result() {
    let mut lab = isolated(1, "a.rs");
    lab.options.live = false;
    let request = Request {
        options: lab.options.clone(),
        ..Request::new("go")
    };
    let mut stream = lab.engine().stream(request).await.unwrap();
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
