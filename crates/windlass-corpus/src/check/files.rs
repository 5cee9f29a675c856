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
        "file_contains" | "file_lacks" => {
            let text = facts
                .place
                .filled(post["text"].as_str().ok_or("it gives no `text`")?);
            let content = std::fs::read(&path).unwrap_or_default();
            let content = String::from_utf8_lossy(&content);
            holds(content.contains(&text) == (name == "file_contains"), || {
                format!(
                    "{given} holds {:?}",
                    content.chars().take(200).collect::<String>()
                )
            })
        }
        "mode_equals" => {
            let mode = octal(post)?;
            let now = now.map(|stat| stat.mode & 0o7777);
            holds(now == Some(mode), || match now {
                Some(now) => format!("{given} has mode {now:o}"),
                None => format!("{given} is not there"),
            })
        }
        "is_symlink" | "is_not_symlink" => {
            let link = now.as_ref().is_some_and(Stat::is_link);
            holds(
                now.is_some() && link == (name == "is_symlink"),
                || match link {
                    true => format!("{given} is a symlink"),
                    false => format!("{given} is no symlink"),
                },
            )
        }
        "link_target_equals" => {
            let wanted = facts
                .place
                .filled(post["target"].as_str().ok_or("it gives no `target`")?);
            let target = std::fs::read_link(&path).ok();
            holds(target.as_deref() == Some(Path::new(&wanted)), || {
                format!("{given} leads to {target:?}")
            })
        }
        "git_config_unchanged" => {
            let file = format!("{given}/.git/config");
            let before = facts.place.before.get(&file).cloned().flatten();
            let before = before.ok_or_else(|| format!("{given} was no repository"))?;
            let now = Stat::of(&facts.place.path(&file));
            holds(now.is_some_and(|now| now.same_content(&before)), || {
                format!("{file} has changed")
            })
        }
        "git_head_unchanged" => {
            let before = facts.place.heads.get(given);
            let before = before.ok_or_else(|| format!("{given} had no commit"))?;
            let now = crate::setup::head(facts.place, &path)?;
            holds(*before == now, || format!("HEAD is {now} now"))
        }
        "git_blob_equals" => {
            let text = facts
                .place
                .filled(post["text"].as_str().ok_or("it gives no `text`")?);
            let revision = post["revision"].as_str().ok_or("it gives no `revision`")?;
            let root = facts.place.workspace();
            let file = path.strip_prefix(&root).map_err(|err| err.to_string())?;
            let blob = crate::setup::blob(facts.place, &root, revision, file)?;
            holds(blob == text, || format!("it is {blob:?} there"))
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

/// The file mode that a check gives, in octal digits.
fn octal(post: &Value) -> Result<u32, String> {
    post["mode"]
        .as_str()
        .and_then(|mode| u32::from_str_radix(mode, 8).ok())
        .ok_or_else(|| "it gives no `mode`".to_owned())
}

/// No file has more rights than these. A folder needs the right to be entered beside the right to be read.
fn mode_at_most(facts: &Facts<'_>, given: &str, post: &Value) -> Result<(), String> {
    let mode = octal(post)?;
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
