//! What a command line would touch: itself, taken apart, and the files that its commands read and write for certain,
//! as they resolve. Judges nothing and runs nothing.

use std::sync::Arc;

use windlass_core::gate::glob_match;
use windlass_core::shell::{At, Dir, Simple, Target, Word};
use windlass_core::tool::{ToolCtx, Touch};

use crate::hosts::hosts;
use crate::place::{reads, writes};

/// The most files of one line; what a line reads beyond that is not taken for looking.
const MAX_FILES: usize = 200;
/// The most hosts of one command.
const MAX_HOSTS: usize = 20;
/// The most entries of a directory that a pattern is held against.
const MAX_ENTRIES: usize = 500;
/// Names that are no files.
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

/// Everything that a line would touch when it starts in `workdir`.
pub(crate) fn touches(ctx: &ToolCtx<'_>, line: &str, workdir: &str) -> Vec<Touch> {
    let mut script = windlass_shell::read(line);
    let mut found = Vec::new();
    for simple in &mut script.commands {
        let bases = bases(ctx, workdir, simple.dirs.as_deref());
        // Outside there may be another repository, whose settings nobody has looked at.
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

/// Where a command may run. A change of directory that may have failed leaves both places.
fn bases(ctx: &ToolCtx<'_>, workdir: &str, dirs: Option<&[Dir]>) -> Option<Vec<String>> {
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

/// What a command reads, where all of it can be told.
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

/// A temporary file that is not there on this machine: an earlier command made it in the sandbox's own folder, or nobody.
fn is_own_temporary(ctx: &ToolCtx<'_>, path: &str) -> bool {
    let temporary = |path: &str| {
        ["/tmp/", "/var/tmp/", "/dev/shm/"]
            .iter()
            .any(|folder| path.starts_with(folder))
    };
    let found = ctx.files.resolve(path);
    found.is_ok_and(|found| !found.inside && found.kind.is_none() && temporary(&found.path))
}

/// The files whose content git is asked for as it was (`HEAD:path`): they are read, wherever their bytes are.
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

/// The files that a pattern of the shell stands for. Only its last part may be a pattern.
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

/// Where a target leads, when that is known; the strictest place when there are several.
fn written(ctx: &ToolCtx<'_>, target: &mut Target, bases: Option<&[String]>) -> Vec<Touch> {
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

/// A pattern as a target: the place it is held against, and the pattern in it.
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
