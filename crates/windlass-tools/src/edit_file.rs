//! edit_file: replaces text in one file, several replacements in one write. It never changes a place that the model did
//! not name unambiguously (or asked to replace everywhere).

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::message::ErrorCategory;
use windlass_core::tool::{Effect, Happened, Interrupt, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::Files;
use windlass_edit::matching::{Applied, Edit, EditError, MatchKind, apply_all};
use windlass_edit::patch::PatchChange;
use windlass_edit::text::{DecodedText, lines};

use crate::change::{self, about};
use crate::last_seen::LastSeenFiles;
use crate::paths::{at_most, blocking, read_whole, writes};

const MAX_EDITS: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    path: String,
    old: Option<String>,
    new: Option<String>,
    #[serde(default)]
    replace_all: bool,
    /// Several replacements instead of `old` and `new`.
    #[serde(default)]
    edits: Vec<TextReplacement>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TextReplacement {
    old: String,
    new: String,
    #[serde(default)]
    replace_all: bool,
}

pub(crate) struct EditFile(pub(crate) Arc<LastSeenFiles>);

impl TypedTool for EditFile {
    type Args = Args;
    const NAME: &str = "edit_file";
    const DESCRIPTION: &str = include_str!("descriptions/edit_file.md");
    const EFFECT: Effect = Effect::Write;
    const INTERRUPT: Interrupt = Interrupt::Finish;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        writes(ctx, &args.path)
    }

    fn preview(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Option<String>, ToolFailure> {
        let (change, _) = plan(ctx.files.as_ref(), &args, None)?;
        Ok(Some(change::preview(&[change])))
    }

    fn happened(&self, args: Args, ctx: &ToolCtx<'_>) -> Option<Happened> {
        let bytes = read_whole(ctx.files.as_ref(), &args.path).ok()?;
        let text = DecodedText::decode(&bytes).ok()?;
        let edits = edits(&args).ok()?;
        // If one text contains the other, or the new text is empty, the states before and after cannot be told apart.
        let apart = |edit: &Edit<'_>| {
            !edit.new.is_empty() && !edit.new.contains(edit.old) && !edit.old.contains(edit.new)
        };
        if !edits.iter().all(apart) {
            return None;
        }
        let (old, new) = (
            |edit: &Edit<'_>| text.content.contains(edit.old),
            |edit: &Edit<'_>| text.content.contains(edit.new),
        );
        // If the old text is still found when whitespace and line endings are ignored, it was not replaced.
        let gone = |edit: &Edit<'_>| {
            matches!(
                apply_all(&text.content, std::slice::from_ref(edit)),
                Err((_, EditError::Missing { .. }))
            )
        };
        if edits
            .iter()
            .all(|edit| new(edit) && !old(edit) && gone(edit))
        {
            return Some(Happened::Yes(format!(
                "{} holds the new text in place of the old",
                args.path
            )));
        }
        let untouched = edits.iter().all(|edit| old(edit) && !new(edit));
        untouched.then(|| Happened::No(format!("{} still holds the old text", args.path)))
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let seen = self.0.clone();
        blocking(ctx.files, move |files| edit(files, &args, &seen)).await
    }
}

fn edit(files: &dyn Files, args: &Args, seen: &LastSeenFiles) -> Result<ToolOutput, ToolFailure> {
    let (change, applied) = plan(files, args, Some(seen))?;
    let done = change::write_all(files, &[change], seen)?;
    let many = applied.iter().filter(|one| one.count > 1);
    let mut notes: Vec<String> = many
        .map(|one| format!("replaced {} places", one.count))
        .collect();
    let how = applied.iter().map(|one| one.how).max();
    if let Some(how) = how.filter(|how| *how > MatchKind::LineEndings) {
        let what = match how {
            MatchKind::Indentation => "indentation; the new text was re-indented",
            MatchKind::Punctuation => "how its quotes and dashes are written",
            _ => "trailing spaces",
        };
        notes.push(format!("the text was found only apart from {what}"));
        notes.extend(done.iter().filter_map(|change| change.diff.clone()));
    }
    Ok(change::output(done, &notes))
}

fn plan(
    files: &dyn Files,
    args: &Args,
    seen: Option<&LastSeenFiles>,
) -> Result<(PatchChange, Vec<Applied>), ToolFailure> {
    let before = read_whole(files, &args.path)?;
    if let Some(seen) = seen {
        seen.check(files, &args.path, &before)?;
    }
    let edits = edits(args)?;
    let (change, applied) = change::modify(files, &args.path, before, |text| {
        let applied =
            apply_all(text, &edits).map_err(|(index, err)| refusal(args, &edits, index, &err))?;
        let after = applied.last().map(|last| last.content.clone());
        Ok((after.unwrap_or_default(), applied))
    })?;
    if let PatchChange::Modify { before, after, .. } = &change
        && before == after
    {
        return Err(about(
            &args.path,
            ErrorCategory::InvalidArguments,
            "together the edits change nothing",
        ));
    }
    Ok((change, applied))
}

fn edits(args: &Args) -> Result<Vec<Edit<'_>>, ToolFailure> {
    at_most(&args.edits, MAX_EDITS, "edits")?;
    match (&args.old, &args.new, args.edits.is_empty()) {
        (Some(old), Some(new), true) => Ok(vec![Edit {
            old,
            new,
            replace_all: args.replace_all,
        }]),
        (None, None, false) => Ok(args
            .edits
            .iter()
            .map(|one| Edit {
                old: &one.old,
                new: &one.new,
                replace_all: one.replace_all || args.replace_all,
            })
            .collect()),
        _ => Err(ToolFailure::invalid(
            "give either `old` and `new`, or `edits`",
        )),
    }
}

fn refusal(args: &Args, edits: &[Edit<'_>], index: usize, err: &EditError) -> ToolFailure {
    let category = match err {
        EditError::Missing { .. } => ErrorCategory::NotFound,
        EditError::Ambiguous { .. } | EditError::Count { .. } => ErrorCategory::Ambiguous,
        EditError::EmptyOld
        | EditError::SameText
        | EditError::NoChange
        | EditError::Repeated { .. }
        | EditError::Elided => ErrorCategory::InvalidArguments,
    };
    let (which, none) = match edits.len() {
        0..=1 => (String::new(), ""),
        all => (
            format!("edit {} of {all}: ", index + 1),
            "\nnone of the edits was made",
        ),
    };
    let hint = match category == ErrorCategory::NotFound && numbered(edits[index].old) {
        true => "\n`old` has the line numbers of read_file in it; leave them out",
        false => "",
    };
    about(&args.path, category, format!("{which}{err}{hint}{none}"))
}

/// Whether every line starts with a line number as read_file shows it.
fn numbered(old: &str) -> bool {
    let marked = |text: &str| {
        text.split_once('|').is_some_and(|(number, _)| {
            let number = number.split(':').next().unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    lines(old).iter().all(|line| marked(line.text))
}
