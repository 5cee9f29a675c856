//! The touches of a command line: the parsed line itself, and the files that its commands certainly read and write,
//! with resolved paths. Nothing here judges or runs the line.

use std::sync::Arc;

use windlass_core::gate::glob_match;
use windlass_core::shell::{At, ChangedDir, Simple, Word, WriteTarget};
use windlass_core::tool::{ToolCtx, Touch};

use crate::hosts::hosts;
use crate::paths::{reads, writes};

/// Maximum files of one line. A line that reads more is not treated as read-only.
const MAX_FILES: usize = 200;
/// Maximum hosts of one command.
const MAX_HOSTS: usize = 20;
/// Maximum entries of a directory that are matched against a pattern.
const MAX_ENTRIES: usize = 500;
/// Paths that do not stand for files.
const NO_FILES: &[&str] = &[
    "/dev/null",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/fd/0",
    "/dev/fd/1",
    "/dev/fd/2",
    "/dev/tty",
];

/// Everything that a command line would touch if it starts in `workdir`.
pub(crate) fn touches(ctx: &ToolCtx<'_>, line: &str, workdir: &str) -> Vec<Touch> {
    let mut script = windlass_shell::read(line);
    let mut found = Vec::new();
    for simple in &mut script.commands {
        let bases = bases(ctx, workdir, simple.dirs.as_deref());
        // Outside the workspace there may be another repository with unknown settings.
        let inside = bases
            .as_deref()
            .is_some_and(|bases| bases.iter().all(|base| !base.starts_with('/')));
        if simple.name() == "git" && !inside {
            simple.looks = false;
        }
        found.extend(named_in_history(ctx, simple));
        let seen = read_by(ctx, simple, bases.as_deref());
        match seen {
            Some(seen) if found.len() + seen.len() <= MAX_FILES => found.extend(seen),
            _ => simple.looks = false,
        }
        found.extend(
            hosts(simple)
                .into_iter()
                .take(MAX_HOSTS)
                .map(|host| Touch::Connect { host }),
        );
        for target in &mut simple.writes {
            if found.len() < MAX_FILES {
                found.extend(written(ctx, target, bases.as_deref()));
            }
        }
    }
    let mut touches = vec![Touch::Execute {
        command: line.to_owned(),
        script: Some(Arc::new(script)),
    }];
    for touch in found {
        if !touches.contains(&touch) {
            touches.push(touch);
        }
    }
    touches
}

/// The directories in which a command may run. After a directory change that may have failed, both are possible.
fn bases(ctx: &ToolCtx<'_>, workdir: &str, dirs: Option<&[ChangedDir]>) -> Option<Vec<String>> {
    let start = ctx
        .files
        .resolve(if workdir.is_empty() { "." } else { workdir })
        .ok()?;
    let mut bases = vec![start.path];
    for dir in dirs? {
        let mut next = if dir.sure { Vec::new() } else { bases.clone() };
        for base in &bases {
            let path = ctx.files.resolve(&join(base, &dir.word.text)).ok()?.path;
            if !next.contains(&path) {
                next.push(path);
            }
        }
        bases = next;
        if bases.len() > 8 {
            return None;
        }
    }
    Some(bases)
}

fn join(base: &str, path: &str) -> String {
    if path.starts_with('/') || base == "." {
        path.to_owned()
    } else {
        format!("{base}/{path}")
    }
}

/// The files that a command reads; `None` if some of them are unknown.
fn read_by(ctx: &ToolCtx<'_>, simple: &Simple, bases: Option<&[String]>) -> Option<Vec<Touch>> {
    let mut found = Vec::new();
    for word in simple
        .reads
        .iter()
        .filter(|word| !NO_FILES.contains(&word.text.as_str()))
    {
        let places = match bases {
            Some(bases) => bases,
            None if word.text.starts_with('/') => &[],
            None => return None,
        };
        if !word.known {
            return None;
        }
        let nowhere = [".".to_owned()];
        for base in if places.is_empty() { &nowhere } else { places } {
            let path = join(base, &word.text);
            if word.glob {
                found.extend(expanded(ctx, &path)?);
            } else if !is_own_temporary(ctx, &path) {
                found.push(reads(ctx, &path).ok()?);
            }
        }
    }
    Some(found)
}

/// Whether a path is a temporary file that does not exist on this machine. If it exists at all, an earlier command
/// created it in the sandbox's private directory.
fn is_own_temporary(ctx: &ToolCtx<'_>, path: &str) -> bool {
    let temporary = |path: &str| {
        ["/tmp/", "/var/tmp/", "/dev/shm/"]
            .iter()
            .any(|folder| path.starts_with(folder))
    };
    let found = ctx.files.resolve(path);
    found.is_ok_and(|found| !found.inside && found.kind.is_none() && temporary(&found.path))
}

/// The files that git reads from a commit (`HEAD:path`). They count as read, although their content is in the
/// repository.
fn named_in_history(ctx: &ToolCtx<'_>, simple: &Simple) -> Vec<Touch> {
    if simple.name() != "git" {
        return Vec::new();
    }
    let paths = simple
        .args()
        .iter()
        .filter(|word| word.known)
        .filter_map(|word| {
            let (commit, path) = word.text.split_once(':')?;
            (!commit.contains(['/', '@', ' ']) && !path.is_empty() && !path.starts_with('/'))
                .then_some(path)
        });
    paths
        .take(20)
        .filter_map(|path| reads(ctx, path).ok())
        .collect()
}

/// The files that a shell pattern matches; `None` if they are unknown. Only the last component may be a pattern.
fn expanded(ctx: &ToolCtx<'_>, path: &str) -> Option<Vec<Touch>> {
    let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
    if folder.contains(['*', '?', '[']) || name.contains('[') || name.contains("**") {
        return None;
    }
    let place = reads(ctx, folder).ok()?;
    if !matches!(place, Touch::Read { inside: true, .. }) {
        return Some(vec![place]);
    }
    let Ok(listing) = ctx.files.list(folder, MAX_ENTRIES) else {
        return Some(vec![place]);
    };
    if listing.more {
        return None;
    }
    let names = listing.entries.iter().map(|(entry, ..)| entry);
    let names = names.filter(|entry| !entry.starts_with('.') || name.starts_with('.'));
    let names = names.filter(|entry| glob_match(name, entry));
    names
        .map(|entry| reads(ctx, &format!("{folder}/{entry}")).ok())
        .collect()
}

/// The touches of a written path. Also stores the resolved path in the target: if there are several, one outside the
/// workspace.
fn written(ctx: &ToolCtx<'_>, target: &mut WriteTarget, bases: Option<&[String]>) -> Vec<Touch> {
    let Word {
        text, known, glob, ..
    } = &target.word;
    if !known || NO_FILES.contains(&text.as_str()) {
        return Vec::new();
    }
    let nowhere = [".".to_owned()];
    let bases = match bases {
        Some(bases) => bases,
        None if text.starts_with('/') => &nowhere,
        None => return Vec::new(),
    };
    let mut found = Vec::new();
    for base in bases {
        let path = join(base, text);
        let Some(touches) = (if *glob {
            pattern_target(ctx, &path)
        } else {
            writes(ctx, &path).ok()
        }) else {
            return Vec::new();
        };
        found.extend(touches);
    }
    let places = found.iter().filter_map(|touch| match touch {
        Touch::Write { path, inside, .. } => Some(At {
            path: path.clone(),
            inside: *inside,
        }),
        _ => None,
    });
    let at = places.min_by_key(|at| at.inside);
    target.at = at;
    found
}

/// The touch of a pattern that is written: the resolved directory with the pattern in it.
fn pattern_target(ctx: &ToolCtx<'_>, path: &str) -> Option<Vec<Touch>> {
    let end = path.find(['*', '?', '['])?;
    let (folder, name) = path.split_at(path[..end].rfind('/').map_or(0, |at| at + 1));
    let place = ctx
        .files
        .resolve(if folder.is_empty() { "." } else { folder })
        .ok()?;
    let path = if place.path == "." {
        name.to_owned()
    } else {
        format!("{}/{name}", place.path)
    };
    Some(vec![Touch::Write {
        path,
        inside: place.inside,
        new: false,
    }])
}
