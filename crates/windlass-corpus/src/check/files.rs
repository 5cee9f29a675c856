//! Checks of the file system: the state of a path now, compared with the state before.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::facts::CaseFacts;
use crate::fixture::{CaseFixture, Stat};
use crate::holds;

pub(super) fn check(facts: &CaseFacts<'_>, name: &str, post: &Value) -> Result<(), String> {
    let given = post["path"].as_str().ok_or("the check has no `path`")?;
    let path = facts.fixture.path(given);
    let now = Stat::of(&path);
    let before = facts.fixture.before.get(given).cloned().flatten();
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
                .fixture
                .filled(post["text"].as_str().ok_or("the check has no `text`")?);
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
                .fixture
                .filled(post["text"].as_str().ok_or("the check has no `text`")?);
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
                    false => format!("{given} is not a symlink"),
                },
            )
        }
        "link_target_equals" => {
            let wanted = facts
                .fixture
                .filled(post["target"].as_str().ok_or("the check has no `target`")?);
            let target = std::fs::read_link(&path).ok();
            holds(target.as_deref() == Some(Path::new(&wanted)), || {
                format!("{given} leads to {target:?}")
            })
        }
        "git_config_unchanged" => {
            let file = format!("{given}/.git/config");
            let before = facts.fixture.before.get(&file).cloned().flatten();
            let before = before.ok_or_else(|| format!("{given} was not a repository"))?;
            let now = Stat::of(&facts.fixture.path(&file));
            holds(now.is_some_and(|now| now.same_content(&before)), || {
                format!("{file} has changed")
            })
        }
        "git_head_unchanged" => {
            let before = facts.fixture.heads.get(given);
            let before = before.ok_or_else(|| format!("{given} had no commit"))?;
            let now = crate::setup::head(facts.fixture, &path)?;
            holds(*before == now, || format!("HEAD is {now} now"))
        }
        "git_blob_equals" => {
            let text = facts
                .fixture
                .filled(post["text"].as_str().ok_or("the check has no `text`")?);
            let revision = post["revision"]
                .as_str()
                .ok_or("the check has no `revision`")?;
            let root = facts.fixture.workspace();
            let file = path.strip_prefix(&root).map_err(|err| err.to_string())?;
            let blob = crate::setup::blob(facts.fixture, &root, revision, file)?;
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
            format!("{given} is not a directory")
        }),
        "xattr_absent" => {
            let attribute = post["name"].as_str().ok_or("the check has no `name`")?;
            let size = rustix::fs::lgetxattr_query(&path, attribute);
            holds(size.is_err(), || {
                format!("{given} has the attribute {attribute}")
            })
        }
        "file_size_at_most" => {
            let most = post["bytes"].as_u64().ok_or("the check has no `bytes`")?;
            let size = now.map_or(0, |stat| stat.size);
            holds(size <= most, || format!("{given} has {size} bytes"))
        }
        _ => mode_at_most(facts, given, post),
    }
}

/// Returns the file mode of a check, which is in octal digits.
fn octal(post: &Value) -> Result<u32, String> {
    post["mode"]
        .as_str()
        .and_then(|mode| u32::from_str_radix(mode, 8).ok())
        .ok_or_else(|| "the check has no `mode`".to_owned())
}

/// Checks that no file has more permissions than these. A folder that may be read may also be entered.
fn mode_at_most(facts: &CaseFacts<'_>, given: &str, post: &Value) -> Result<(), String> {
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

/// Returns the paths that match a path with `*` or `**` at its end.
fn matching(facts: &CaseFacts<'_>, given: &str) -> Vec<PathBuf> {
    let within = |folder: &Path, deep: bool| -> Vec<PathBuf> {
        let all = CaseFixture::files(folder);
        all.into_iter()
            .filter(|path| deep || path.parent() == Some(folder))
            .collect()
    };
    match (given.strip_suffix("/**"), given.strip_suffix("/*")) {
        (Some(folder), _) => within(&facts.fixture.path(folder), true),
        (None, Some(folder)) => within(&facts.fixture.path(folder), false),
        (None, None) => vec![facts.fixture.path(given)]
            .into_iter()
            .filter(|path| path.exists())
            .collect(),
    }
}
