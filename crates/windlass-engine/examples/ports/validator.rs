//! A validator: decides whether the work is done, which the model never does. This one requires a line in the changelog.
//! Its findings are the next prompt of the same conversation. Passed changes land, bound to the hash that it judged.
//! There are three verdicts: pass, fail and unverifiable, which is reported and never counted as a pass.

use std::sync::Arc;

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::outcome::Outcome;
use windlass_core::validator::{CheckCtx, Finding, Judgement, Report, Validator, ValidatorError};
use windlass_engine::{Request, RunOptions};
use windlass_testing::{call, says};

use super::ExampleResult;
use super::fakes::Fakes;
use super::files::{MapTree, write_file};
use super::workspaces::Copies;

struct ChangelogValidator;

impl Validator for ChangelogValidator {
    fn name(&self) -> &str {
        "changelog"
    }

    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        Box::pin(async move {
            if ctx
                .changes
                .iter()
                .any(|change| change.path == "CHANGELOG.md")
            {
                return Ok(Report::pass());
            }
            let finding = Finding {
                path: "CHANGELOG.md".into(),
                line: 1,
                column: 0,
                ..Finding::whole("say what changed")
            };
            Ok(Report::new(Judgement::Fail, vec![finding]))
        })
    }
}

pub(crate) async fn run_example() -> ExampleResult {
    let write = |path: &str| call("1", "write_file", &json!({ "path": path, "text": "new" }));
    let fakes = Fakes::new([
        write("lib.rs"),
        says("done"),
        write("CHANGELOG.md"),
        says("now it is"),
    ]);
    let tree = MapTree::of(&[("lib.rs", "old")]);
    let engine = fakes
        .builder()
        .workspaces(Arc::new(Copies::of(&tree)))
        .tools([write_file()])
        .validator(Arc::new(ChangelogValidator))
        .build()?;
    let options = RunOptions {
        yes: true,
        ..RunOptions::default()
    };
    let result = engine
        .execute(Request {
            options,
            ..Request::new("renew lib.rs")
        })
        .await?;
    assert_eq!(
        (result.outcome(), result.totals().iterations),
        (Some(&Outcome::Completed), 2)
    );
    let told = format!("{:?}", fakes.provider.asked().last());
    assert!(told.contains("CHANGELOG.md:1: say what changed"), "{told}");
    let evidence = result
        .summary
        .map(|summary| summary.evidence)
        .unwrap_or_default();
    let [evidence] = &evidence[..] else {
        return Err("there is one verdict".into());
    };
    assert_eq!(
        (evidence.validator.as_str(), evidence.judgement),
        ("changelog", Judgement::Pass)
    );
    assert!(
        evidence.tree_hash.is_some(),
        "it is bound to the judged tree"
    );
    assert_eq!(tree.all().len(), 2, "both landed");
    Ok(())
}
