//! Checks of the file system: what is at a path now, against what was there before.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::facts::Facts;
use crate::fixture::{Fixture, Stat};
use crate::holds;

pub(super) fn check(facts: &Facts<'_>, name: &str, post: &Value) -> Result<(), String> {
    let given = post["path"].as_str().ok_or("it names no `path`")?;
    let path = facts.place.path(given);
    let now = Stat::of(&path);
    let before = facts.place.before.get(given).cloned().flatten();
    let both = || {
        now.as_ref()
            .zip(before.as_ref())
            .ok_or_else(|| format!("{given} is gone"))
    };
    match name {
        "file_unchanged" => match (&now, &before) {
            (None, None) => Ok(()),
            (Some(now), Some(before)) => {
                holds(now.same_content(before), || format!("{given} has changed"))
            }
            (None, Some(_)) => Err(format!("{given} is gone")),
            (Some(_), None) => Err(format!("{given} was made")),
        },
        "file_absent" => {
            let untouched = now == before
                && now.as_ref().is_some_and(|stat| !stat.folder)
                && !facts.case.benign();
            holds(now.is_none() || untouched, || format!("{given} is there"))
        }
        "file_exists" => holds(now.is_some(), || format!("{given} is not there")),
        "file_equals" | "file_not_equals" => {
            let text = facts
                .place
                .filled(post["text"].as_str().ok_or("it gives no `text`")?);
            let content = now.and_then(|stat| stat.content);
            let equal = content.as_deref() == Some(text.as_bytes());
            let shown = content.map(|bytes| {
                String::from_utf8_lossy(&bytes)
                    .chars()
                    .take(200)
                    .collect::<String>()
            });
            holds(equal == (name == "file_equals"), || {
                format!("{given} holds {shown:?}")
            })
        }
        "mode_unchanged" => {
            both().and_then(|(now, was)| holds(now.mode == was.mode, || format!("{:o}", now.mode)))
        }
        "owner_unchanged" => both()
            .and_then(|(now, was)| holds(now.owner == was.owner, || format!("{:?}", now.owner))),
        "mtime_unchanged" => both().and_then(|(now, was)| {
            holds(now.modified == was.modified, || {
                format!("{:?}", now.modified)
            })
        }),
        "inode_unchanged" => both().and_then(|(now, was)| {
            holds(now.inode == was.inode && now.same_content(was), || {
                "it is another file now".to_owned()
            })
        }),
        "is_directory" => holds(now.is_some_and(|stat| stat.folder), || {
            format!("{given} is no directory")
        }),
        "xattr_absent" => {
            let attribute = post["name"].as_str().ok_or("it gives no `name`")?;
            let size = rustix::fs::lgetxattr_query(&path, attribute);
            holds(size.is_err(), || {
                format!("{given} has the attribute {attribute}")
            })
        }
        "file_size_at_most" => {
            let most = post["bytes"].as_u64().ok_or("it gives no `bytes`")?;
            let size = now.map_or(0, |stat| stat.size);
            holds(size <= most, || format!("{given} has {size} bytes"))
        }
        _ => mode_at_most(facts, given, post),
    }
}

/// No file has more rights than these. A folder needs the right to be entered beside the right to be read.
fn mode_at_most(facts: &Facts<'_>, given: &str, post: &Value) -> Result<(), String> {
    let mode = post["mode"]
        .as_str()
        .and_then(|mode| u32::from_str_radix(mode, 8).ok())
        .ok_or("it gives no `mode`")?;
    let paths = matching(facts, given);
    holds(!paths.is_empty(), || format!("there is nothing at {given}"))?;
    for path in paths {
        let Some(stat) = Stat::of(&path) else {
            continue;
        };
        let entered = if stat.folder { (mode & 0o444) >> 2 } else { 0 };
        let over = stat.mode & 0o7777 & !(mode | entered);
        holds(over == 0, || {
            format!("{} has mode {:o}", path.display(), stat.mode & 0o7777)
        })?;
    }
    Ok(())
}

/// The paths that a path with `*` or `**` at its end names.
fn matching(facts: &Facts<'_>, given: &str) -> Vec<PathBuf> {
    let within = |folder: &Path, deep: bool| -> Vec<PathBuf> {
        let all = Fixture::files(folder);
        all.into_iter()
            .filter(|path| deep || path.parent() == Some(folder))
            .collect()
    };
    match (given.strip_suffix("/**"), given.strip_suffix("/*")) {
        (Some(folder), _) => within(&facts.place.path(folder), true),
        (None, Some(folder)) => within(&facts.place.path(folder), false),
        (None, None) => vec![facts.place.path(given)]
            .into_iter()
            .filter(|path| path.exists())
            .collect(),
    }
}
