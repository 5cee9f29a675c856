//! Tests the patch and the completion runtime in whole sessions with a scripted model, the real tools and a real
//! directory.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use windlass_core::event::{Event, EventKind};
use windlass_core::gate::{Level, Mode, PermissionGate, Rule, Verdict};
use windlass_core::message::Message;
use windlass_core::outcome::{FailReason, Outcome, RunSummary};
use windlass_core::provider::Sampling;
use windlass_core::runtime::{Capability, RunMode, Runtime, Work};
use windlass_core::terms::Isolation;
use windlass_engine::{Contract, Engine, NativeOptions, NativeRuntime, OpenSession, RunOptions};
use windlass_host::workspace::Root;
use windlass_proposal::patch_proposal::{accepted_schema, schema};
use windlass_proposal::{AnswerForm, OneAnswer};
use windlass_testing::{
    ManualClock, MemoryArtifacts, MemoryStore, ProviderRequest, ScriptedProvider, call, says,
};
use windlass_transaction::in_place::InPlace;

type Files = BTreeMap<String, String>;

/// The events, requests and files after a session.
struct FinishedSession {
    events: Vec<Event>,
    files: Files,
    asked: Vec<ProviderRequest>,
}

fn native(provider: &ScriptedProvider, output_schema: Option<Value>) -> Arc<dyn Runtime> {
    let sampling = Sampling {
        output_schema,
        ..Sampling::default()
    };
    let options = NativeOptions {
        model: "m".into(),
        accepts: sampling.output_schema.as_ref().map(|_| accepted_schema()),
        sampling,
        ..NativeOptions::default()
    };
    Arc::new(NativeRuntime::new(
        Arc::new(provider.clone()),
        Arc::new(ManualClock::default()),
        options,
    ))
}

/// Runs a session; `patches` selects the patch runtime.
async fn run(
    files: &[(&str, &str)],
    prompt: &str,
    answers: Vec<Value>,
    patches: bool,
) -> FinishedSession {
    let text = |answer: &Value| {
        answer
            .as_str()
            .map_or_else(|| answer.to_string(), str::to_owned)
    };
    let answers = answers.iter().map(|answer| match answer.get("call") {
        Some(name) => call("c1", name.as_str().unwrap(), &answer["args"]),
        None => says(&text(answer)),
    });
    let provider = ScriptedProvider::new(answers.collect::<Vec<_>>());
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let form = if patches {
        AnswerForm::Patch
    } else {
        AnswerForm::Words
    };
    let inner = native(&provider, patches.then(schema));
    let runtime: Arc<dyn Runtime> = Arc::new(OneAnswer { form, inner });
    let rule = |pattern: Option<&str>, verdict| Rule {
        tool: "bash".into(),
        pattern: pattern.map(str::to_owned),
        verdict,
        level: Level::User,
    };
    let rules = vec![
        rule(Some("sh *"), Verdict::Allow),
        rule(Some("touch *"), Verdict::Deny),
    ];
    let root = Arc::new(Root::open(dir.path()).unwrap());
    let undo = tempfile::tempdir().unwrap();
    let env = vec![("PATH".into(), std::env::var_os("PATH").unwrap_or_default())];
    let artifacts = MemoryArtifacts::default();
    let engine = Engine::builder()
        .runtime(runtime)
        .store(Arc::new(MemoryStore::default()))
        .workspaces(Arc::new(
            InPlace::new(
                root,
                env,
                None,
                &undo.path().join("contents"),
                undo.path().join("journal"),
                1 << 20,
            )
            .unwrap(),
        ))
        .artifacts(Arc::new(move |_| Arc::new(artifacts.clone())))
        .clock(Arc::new(ManualClock::default()))
        .tools(windlass_tools::all())
        .gate(PermissionGate {
            mode: Mode::Edit,
            rules,
            ..PermissionGate::default()
        })
        .describe("/workspace", "test")
        .build()
        .unwrap();
    let mode = if patches {
        RunMode::Patch
    } else {
        RunMode::Analysis
    };
    let session = engine.open(OpenSession::New, mode).await.unwrap();
    let contract = Contract {
        require_changes: patches,
        ..Contract::default()
    };
    let options = RunOptions {
        contract,
        isolation: Isolation::InPlace,
        ..RunOptions::default()
    };
    let mut handle = session.run(Message::user(prompt), options).unwrap();
    let mut events = Vec::new();
    while let Some(event) = handle.next().await {
        events.push(event);
    }
    let mut files = Files::new();
    read(dir.path(), "", &mut files);
    FinishedSession {
        events,
        files,
        asked: provider.requests(),
    }
}

fn read(dir: &Path, under: &str, into: &mut Files) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{under}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            read(&entry.path(), &format!("{name}/"), into);
        } else {
            into.insert(name, std::fs::read_to_string(entry.path()).unwrap());
        }
    }
}

impl FinishedSession {
    fn outcome(&self) -> &Outcome {
        match &self.events.last().unwrap().kind {
            EventKind::RunFinished(RunSummary { outcome, .. }) => outcome,
            other => panic!("the last event is {other:?}"),
        }
    }

    fn problems(&self) -> Vec<String> {
        let checked = |event: &Event| match &event.kind {
            EventKind::PatchChecked { problems } => Some(problems.clone()),
            _ => None,
        };
        self.events.iter().filter_map(checked).flatten().collect()
    }

    fn count(&self, kind: &str) -> usize {
        let is = |event: &&Event| serde_json::to_value(event).unwrap()["kind"] == kind;
        self.events.iter().filter(is).count()
    }

    fn warned(&self, code: &str) -> Vec<String> {
        let warning = |event: &Event| match &event.kind {
            EventKind::Warned { code: found, text } if found == code => Some(text.clone()),
            _ => None,
        };
        self.events.iter().filter_map(warning).collect()
    }

    /// The last message to the model before its n-th answer (from 0).
    fn told(&self, n: usize) -> String {
        self.asked[n].messages.last().unwrap().text()
    }
}

const MENU: (&str, &str) = ("menu.txt", "soup\nbread\nfish\n");

fn proposal(files: Value, tests: Value) -> Value {
    json!({ "summary": "rolls for bread", "files": files, "tests": tests, "risks": [], "read": [] })
}

fn file(path: &str, operation: &str, patch: &str) -> Value {
    json!({ "path": path, "operation": operation, "to": null, "patch": patch })
}

fn update(patch: &str) -> Value {
    file("menu.txt", "update", patch)
}

const DIFF: &str =
    "--- a/menu.txt\n+++ b/menu.txt\n@@ -1,3 +1,3 @@\n soup\n-bread\n+rolls\n fish\n";
const BLOCK: &str = "<<<<<<< SEARCH\nbread\n=======\nrolls\n>>>>>>> REPLACE\n";
const BEGIN: &str =
    "*** Begin Patch\n*** Update File: menu.txt\n@@\n-bread\n+rolls\n*** End Patch\n";

#[tokio::test]
async fn each_form_of_a_patch_is_applied_with_our_tool() {
    for patch in [DIFF, BLOCK, BEGIN] {
        let ran = run(
            &[MENU],
            "bread is out",
            vec![proposal(json!([update(patch)]), json!([]))],
            true,
        )
        .await;
        assert_eq!(ran.files["menu.txt"], "soup\nrolls\nfish\n", "{patch}");
        assert_eq!(ran.outcome(), &Outcome::Completed, "{patch}");
        let kinds = [
            "patch_proposed",
            "patch_checked",
            "call_started",
            "file_changed",
            "patch_applied",
        ];
        assert_eq!(kinds.map(|kind| ran.count(kind)), [1; 5], "{patch}");
        assert!(
            ran.asked[0].tools.is_empty(),
            "the model is offered no tools"
        );
    }
}

#[tokio::test]
async fn patches_in_several_forms_are_applied_all_or_none() {
    let files = [MENU, ("a/old.txt", "1\n"), ("gone.txt", "2\n")];
    let moved = json!({ "path": "a/old.txt", "operation": "move", "to": "b/new.txt", "patch": "<<<<<<< SEARCH\n1\n=======\n9\n>>>>>>> REPLACE" });
    let new = file(
        "list.txt",
        "create",
        "*** Begin Patch\n*** Add File: list.txt\n+x\n*** End Patch",
    );
    let parts = json!([update(DIFF), moved, new, file("gone.txt", "delete", "")]);
    let ran = run(&files, "go", vec![proposal(parts.clone(), json!([]))], true).await;
    let expect = [
        ("b/new.txt", "9\n"),
        ("list.txt", "x\n"),
        ("menu.txt", "soup\nrolls\nfish\n"),
    ];
    assert_eq!(
        ran.files,
        expect
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .into()
    );
    assert_eq!(ran.count("call_started"), 1, "one call for all of them");

    let mut broken = parts;
    broken[3]["path"] = json!("never.txt");
    let again = proposal(broken, json!([]));
    let ran = run(
        &files,
        "go",
        vec![again.clone(), again.clone(), again.clone(), again],
        true,
    )
    .await;
    assert_eq!(ran.files.len(), 3, "nothing was written: {:?}", ran.files);
    assert_eq!(
        (ran.files["menu.txt"].as_str(), ran.count("call_started")),
        ("soup\nbread\nfish\n", 0)
    );
}

/// Checks that nothing was written, and that the problem is in the log and in the next message to the model.
#[track_caller]
fn check_refused(ran: &FinishedSession, before: &[(&str, &str)], part: &str) {
    let before: Files = before
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect();
    assert_eq!(ran.files, before, "nothing was written");
    let problems = ran.problems();
    assert!(
        !problems.is_empty() && problems.iter().all(|problem| problem.contains(part)),
        "{part}: {problems:?}"
    );
    assert!(
        ran.told(1).contains(part) && ran.told(1).contains("nothing was written"),
        "{}",
        ran.told(1)
    );
    assert_eq!(
        (ran.count("call_started"), ran.count("patch_applied")),
        (0, 0)
    );
    let Outcome::Failed { reason, detail, .. } = ran.outcome() else {
        panic!("{:?}", ran.outcome())
    };
    assert_eq!(*reason, FailReason::NoChanges);
    assert!(
        detail.contains("after 4 proposals"),
        "the rounds are bounded: {detail}"
    );
    assert_eq!(ran.asked.len(), 4);
}

#[tokio::test]
async fn forbidden_changes_are_refused_after_unquoting() {
    let new = |extra: &str, name: &str| {
        format!("diff --git {name}\n{extra}--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+1\n")
    };
    let cases = [
        (
            file(
                "\"\\056env\"",
                "create",
                "<<<<<<< SEARCH\n=======\nKEY=1\n>>>>>>> REPLACE",
            ),
            "credentials",
        ),
        (
            file(
                ".env",
                "create",
                "diff --git \"a/\\056env\" \"b/\\056env\"\nnew file mode 100644\n--- /dev/null\n+++ \"b/\\056env\"\n@@ -0,0 +1 @@\n+K\n",
            ),
            "credentials",
        ),
        (
            file(
                "menu.txt",
                "create",
                "--- /dev/null\n+++ \"b/\\056env\"\n@@ -0,0 +1 @@\n+KEY=1\n",
            ),
            "credentials",
        ),
        (
            file("x", "create", &new("new file mode 120000\n", "a/x b/x")),
            "120000",
        ),
        (
            file("x", "create", &new("new file mode 160000\n", "a/x b/x")),
            "160000",
        ),
        (
            file("x", "create", &new("new file mode 100755\n", "a/x b/x")),
            "executable",
        ),
        (
            update("diff --git a/menu.txt b/menu.txt\nold mode 100644\nnew mode 100755\n"),
            "mode",
        ),
        (
            update(
                "diff --git a/menu.txt b/menu.txt\nBinary files a/menu.txt and b/menu.txt differ\n",
            ),
            "binary",
        ),
        (file("other.txt", "update", DIFF), "is about menu.txt"),
        (file("menu.txt", "create", BLOCK), "declared as Create"),
        (file("menu.txt", "delete", DIFF), "declared as Delete"),
        (file("../menu.txt", "delete", ""), ".."),
        (file("/etc/hosts", "delete", ""), "relative"),
        (file(".git/config", "delete", ""), "`.git` directory"),
        (file("menu.txt", "move", ""), "`to` does not say where"),
        (update("I would rather not."), "no patch found"),
    ];
    for (file, part) in cases {
        let answer = proposal(json!([file]), json!([]));
        let ran = run(&[MENU], "go", vec![answer; 4], true).await;
        check_refused(&ran, &[MENU], part);
    }
}

#[tokio::test]
async fn a_stale_hunk_writes_nothing_and_the_actual_text_is_sent_back() {
    let stale = DIFF.replace("-bread", "-brioche");
    let answers = vec![
        proposal(json!([update(&stale)]), json!([])),
        proposal(json!([update(DIFF)]), json!([])),
    ];
    let ran = run(&[MENU], "go", answers, true).await;
    let told = ran.told(1);
    assert!(
        told.contains("does not fit") && told.contains("2| bread"),
        "{told}"
    );
    assert_eq!(ran.files["menu.txt"], "soup\nrolls\nfish\n");
    assert_eq!(
        (ran.count("patch_checked"), ran.count("patch_applied")),
        (2, 1)
    );
}

#[tokio::test]
async fn a_hunk_that_fits_twice_is_refused() {
    let answers = vec![
        proposal(
            json!([file(
                "t",
                "update",
                "<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE"
            )]),
            json!([])
        );
        4
    ];
    let ran = run(&[("t", "x\nx\n")], "go", answers, true).await;
    check_refused(&ran, &[("t", "x\nx\n")], "2 times");
}

#[tokio::test]
async fn a_failing_test_is_sent_back_and_a_denied_one_is_not_run() {
    let test = (
        "check.sh",
        "grep -q meat menu.txt || { echo no meat on the menu; exit 1; }\n",
    );
    let more = "<<<<<<< SEARCH\nfish\n=======\nmeat\n>>>>>>> REPLACE";
    let answers = vec![
        proposal(
            json!([update(BLOCK)]),
            json!(["touch never.txt", "sh check.sh"]),
        ),
        proposal(json!([update(more)]), json!(["sh check.sh"])),
    ];
    let ran = run(&[MENU, test], "go", answers, true).await;
    assert!(
        ran.told(1).contains("no meat on the menu"),
        "{}",
        ran.told(1)
    );
    assert_eq!(ran.files["menu.txt"], "soup\nrolls\nmeat\n");
    assert!(!ran.files.contains_key("never.txt"));
    let skipped = ran.warned("proposed_test_not_run");
    assert!(
        skipped.len() == 1 && skipped[0].contains("touch never.txt"),
        "{skipped:?}"
    );
    assert_eq!(
        (ran.count("command_started"), ran.outcome()),
        (2, &Outcome::Completed)
    );
}

#[tokio::test]
async fn tests_that_never_pass_end_the_rounds_with_a_warning() {
    let nothing = || proposal(json!([]), json!(["sh -c false"]));
    let answers = vec![
        proposal(json!([update(BLOCK)]), json!(["sh -c false"])),
        nothing(),
        nothing(),
        nothing(),
    ];
    let ran = run(&[MENU], "go", answers, true).await;
    assert_eq!(
        (ran.asked.len(), ran.warned("proposed_tests_failed").len()),
        (4, 1)
    );
    assert_eq!(ran.files["menu.txt"], "soup\nrolls\nfish\n");
}

#[tokio::test]
async fn the_model_is_shown_the_files_that_the_task_names_and_those_it_asks_for() {
    let files = [
        MENU,
        ("deep/plan.md", "one\ntwo\nthree\n"),
        (".env", "KEY=hunter2\n"),
    ];
    let read = json!({ "summary": "", "files": [], "tests": [], "risks": [], "read": ["deep/plan.md:2-2", ".env", "nowhere"] });
    let ran = run(
        &files,
        "put rolls on `menu.txt`",
        vec![read, proposal(json!([update(BLOCK)]), json!([]))],
        true,
    )
    .await;
    let first = ran.told(0);
    assert!(
        first.contains("deep/plan.md\nmenu.txt") && first.contains("soup\nbread\nfish"),
        "{first}"
    );
    assert!(
        first.contains("\"operation\"") && !first.contains("two"),
        "{first}"
    );
    let second = ran.told(1);
    assert!(
        second.contains("lines 2 to 2 of 3 =====\ntwo\n")
            && second.contains(".env names credentials"),
        "{second}"
    );
    assert!(
        !ran.asked
            .iter()
            .flat_map(|asked| &asked.messages)
            .any(|message| message.text().contains("hunter2"))
    );
    assert_eq!(ran.files["menu.txt"], "soup\nrolls\nfish\n");
}

#[tokio::test]
async fn asking_for_files_is_limited() {
    let read =
        json!({ "summary": "", "files": [], "tests": [], "risks": [], "read": ["menu.txt"] });
    let ran = run(&[MENU], "go", vec![read; 40], true).await;
    assert!(
        matches!(
            ran.outcome(),
            Outcome::Failed {
                reason: FailReason::NoChanges,
                ..
            }
        ),
        "{:?}",
        ran.outcome()
    );
    assert_eq!(ran.asked.len(), 10);
}

#[tokio::test]
async fn a_completion_answers_and_does_not_change_the_tree() {
    let answers = vec![
        json!({ "call": "write_file", "args": { "path": "x", "content": "y" } }),
        json!("There is bread."),
    ];
    let ran = run(&[MENU], "what is on menu.txt?", answers, false).await;
    assert_eq!(ran.outcome(), &Outcome::Completed);
    assert_eq!(ran.files, [(MENU.0.to_owned(), MENU.1.to_owned())].into());
    assert_eq!(
        (ran.count("call_started"), ran.count("call_finished")),
        (0, 1),
        "a call that was made is refused"
    );
    assert!(ran.told(0).contains("soup\nbread\nfish"), "{}", ran.told(0));
}

#[test]
fn each_form_declares_its_capabilities() {
    let provider = ScriptedProvider::new(Vec::new());
    let (patch, completion) = (
        OneAnswer {
            form: AnswerForm::Patch,
            inner: native(&provider, Some(schema())),
        },
        OneAnswer {
            form: AnswerForm::Words,
            inner: native(&provider, None),
        },
    );
    assert_eq!(
        patch.capabilities().require("patch", Work::PatchCoder),
        Ok(())
    );
    assert!(
        patch.capabilities().has(Capability::ApplyPatch)
            && !patch.capabilities().has(Capability::Shell)
    );
    assert_eq!(
        completion
            .capabilities()
            .require("completion", Work::Analysis),
        Ok(())
    );
    assert!(
        completion
            .capabilities()
            .require("completion", Work::FullCoder)
            .is_err()
    );
}

#[tokio::test]
async fn a_proposal_with_aliases_inside_prose_is_accepted() {
    let patch = "--- a/menu.txt\n+++ b/menu.txt\n@@ -2,1 +2,1 @@\n-bread\n+rolls\n";
    let literal = json!({
        "summary": "rolls for bread",
        "files": [{ "path": "menu.txt", "operation": "modify", "patch": patch }],
        "tests": [],
        "risks": [],
    });
    for answer in [
        literal.to_string(),
        format!("Here is the patch:\n```json\n{literal}\n```\nTell me if it fits."),
    ] {
        let ran = run(&[MENU], "rolls, please", vec![json!(answer)], true).await;
        assert_eq!(*ran.outcome(), Outcome::Completed, "{:?}", ran.problems());
        assert_eq!(ran.files["menu.txt"], "soup\nrolls\nfish\n");
        assert_eq!(ran.asked.len(), 1, "nothing is asked twice");
    }
}
