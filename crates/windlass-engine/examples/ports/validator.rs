//! A validator: who says whether it is done, which is never the model. Here every change needs a line in the changelog.
//! Its findings become the next prompt of the same conversation; what passes lands, bound to the hash it saw.
//! Three verdicts: pass, fail, and unverifiable, which is reported and never counted as a pass.

use std::sync::Arc;

use serde_json::json;
use windlass_core::BoxFuture;
use windlass_core::outcome::Outcome;
use windlass_core::validator::{CheckCtx, Finding, Judgement, Report, Validator, ValidatorError};
use windlass_engine::{Request, RunOptions};
use windlass_testing::{call, says};

use super::Shown;
use super::fakes::Fakes;
use super::files::{Tree, write_file};
use super::workspaces::Copies;

struct Changelog;

impl Validator for Changelog {
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

pub(crate) async fn show() -> Shown {
    let write = |path: &str| call("1", "write_file", &json!({ "path": path, "text": "new" }));
    let fakes = Fakes::new([
        write("lib.rs"),
        says("done"),
        write("CHANGELOG.md"),
        says("now it is"),
    ]);
    let tree = Tree::of(&[("lib.rs", "old")]);
    let engine = fakes
        .builder()
        .workspaces(Arc::new(Copies::of(&tree)))
        .tools([write_file()])
        .validator(Arc::new(Changelog))
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
    assert!(evidence.tree_hash.is_some(), "it is bound to what it saw");
    assert_eq!(tree.all().len(), 2, "both landed");
    Ok(())
}
