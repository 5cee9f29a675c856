//! list_directory: lists the names in one directory, without subdirectories.

use schemars::JsonSchema;
use serde::Deserialize;
use windlass_core::tool::{Effect, ToolCtx, ToolFailure, ToolOutput, Touch};
use windlass_core::typed_tool::TypedTool;
use windlass_core::workspace::{FileKind, Listing};

use crate::paths::{blocking, failure, or_root, reads};

/// Maximum entries in one result.
const MAX_ENTRIES: usize = 1_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    path: Option<String>,
}

pub(crate) struct ListDirectory;

impl TypedTool for ListDirectory {
    type Args = Args;
    const NAME: &str = "list_directory";
    const DESCRIPTION: &str = include_str!("descriptions/list_directory.md");
    const EFFECT: Effect = Effect::Read;
    const PARALLEL: bool = true;

    fn touches(&self, args: Args, ctx: &ToolCtx<'_>) -> Result<Vec<Touch>, ToolFailure> {
        Ok(vec![reads(ctx, or_root(&args.path))?])
    }

    async fn run(&self, args: Args, ctx: ToolCtx<'_>) -> Result<ToolOutput, ToolFailure> {
        let listing = blocking(ctx.files, move |files| {
            let path = or_root(&args.path);
            files
                .list(path, MAX_ENTRIES)
                .map_err(|err| failure(files, path, err))
        })
        .await?;
        Ok(ToolOutput::text(show(&listing)))
    }
}

fn show(listing: &Listing) -> String {
    if listing.entries.is_empty() && !listing.kept_back {
        return "[the directory is empty]".into();
    }
    let line = |(name, kind, size): &(String, FileKind, u64)| match kind {
        FileKind::Directory => format!("{name}/"),
        FileKind::File => format!("{name}  {size}"),
        FileKind::Link => format!("{name}  [link]"),
        FileKind::Special => format!("{name}  [special]"),
    };
    let mut lines: Vec<String> = listing.entries.iter().map(line).collect();
    if listing.more {
        lines.push(format!(
            "[more than {MAX_ENTRIES} entries; find_files with a pattern narrows it down]"
        ));
    }
    if listing.kept_back {
        lines.push("[a rule keeps entries of this directory back; work without them]".into());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], kept_back: bool, expect: &str) {
        let entries = names
            .iter()
            .map(|&name| (name.to_owned(), FileKind::File, 1))
            .collect();
        assert_eq!(
            show(&Listing {
                entries,
                more: false,
                kept_back
            }),
            expect
        );
    }

    #[test]
    fn a_directory_with_only_hidden_entries_is_not_called_empty() {
        let kept_back = "[a rule keeps entries of this directory back; work without them]";
        check(&[], false, "[the directory is empty]");
        check(&[], true, kept_back);
        check(&["a"], false, "a  1");
        check(&["a"], true, &format!("a  1\n{kept_back}"));
    }
}
