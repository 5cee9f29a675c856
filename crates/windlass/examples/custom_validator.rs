//! Defines a validator of your own. If it fails, its findings become the next prompt of the same conversation; if it
//! passes, the changes land.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example is a program of its own"
)]

mod scratch;

use std::sync::Arc;

use scratch::Scratch;
use serde_json::json;
use windlass::core::BoxFuture;
use windlass::core::validator::{CheckCtx, Finding, Judgement, Report, Validator, ValidatorError};
use windlass_testing::{call, says};

/// Requires that each run changes the changelog.
struct ChangelogValidator;

impl Validator for ChangelogValidator {
    fn name(&self) -> &str {
        "changelog"
    }

    fn check<'a>(&'a self, ctx: &'a CheckCtx<'a>) -> BoxFuture<'a, Result<Report, ValidatorError>> {
        Box::pin(async move {
            let mut paths = ctx.changes.iter().map(|change| change.path.as_str());
            if paths.any(|path| path == "CHANGELOG.md") {
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

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new()?;
    let edit = json!({ "path": "sum.sh", "old": "$1 - $2", "new": "$1 + $2" });
    let log = json!({ "path": "CHANGELOG.md", "content": "sum.sh adds\n" });
    let model = scratch::model([
        call("1", "edit_file", &edit),
        says("The script adds now."),
        call("2", "write_file", &log),
        says("The changelog says so, too."),
    ]);
    let result = scratch
        .windlass()?
        .provider(model, "scripted")
        .validate("sh check.sh")
        .validator(Arc::new(ChangelogValidator))
        .run("make the check pass")
        .await?;
    println!("{:?}: {}", result.outcome(), result.text);
    scratch::print(&scratch.workspace().join("CHANGELOG.md"))?;
    Ok(())
}
