//! Files: the tree of the workspace as tools and validators see it, and the tree from before the run.
//! This one is in memory. Paths are relative to the root; a path that leaves it is an error, never a fallback.
//! A tool accesses files only through its context, so it works with any implementation.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use windlass_core::CancellationToken;
use windlass_core::outcome::Outcome;
use windlass_core::tool::{Effect, Tool, ToolOutput};
use windlass_core::validator::BaseTree;
use windlass_core::workspace::*;
use windlass_engine::{Request, RunOptions};
use windlass_testing::{FnTool, call, says};

use super::ExampleResult;
use super::fakes::Fakes;
use super::workspaces::Copies;

/// File contents by path.
#[derive(Default)]
pub(crate) struct MapTree(Mutex<BTreeMap<String, Vec<u8>>>);

impl MapTree {
    pub(crate) fn of(files: &[(&str, &str)]) -> Arc<Self> {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
        Arc::new(Self(Mutex::new(files.collect())))
    }

    pub(crate) fn all(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock()
    }

    pub(crate) fn copied(&self) -> Arc<Self> {
        Arc::new(Self(Mutex::new(self.all().clone())))
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, FileError> {
        self.all()
            .get(path)
            .cloned()
            .ok_or_else(|| error(FileErrorKind::NotFound, path, "is not there"))
    }
}

pub(crate) fn error(kind: FileErrorKind, path: &str, why: &str) -> FileError {
    FileError {
        kind,
        message: format!("`{path}` {why}"),
    }
}

impl Files for MapTree {
    fn root(&self) -> &Path {
        Path::new("/workspace")
    }
    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        let inside = !path.starts_with('/') && path.split('/').all(|part| part != "..");
        let kind = self.all().contains_key(path).then_some(FileKind::File);
        Ok(Resolved {
            path: path.to_owned(),
            inside,
            kind,
        })
    }
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        let bytes = self.get(path)?;
        let fits = bytes.len() as u64 <= max;
        fits.then_some(bytes)
            .ok_or_else(|| error(FileErrorKind::TooLarge, path, "is larger than the bound"))
    }
    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let take = usize::try_from(len).unwrap_or(usize::MAX);
        Ok(self.get(path)?.into_iter().skip(skip).take(take).collect())
    }
    fn stat(&self, path: &str) -> Result<FileStat, FileError> {
        Ok(FileStat {
            kind: FileKind::File,
            size: self.get(path)?.len() as u64,
            mode: 0o644,
        })
    }
    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        if !self.resolve(path)?.inside {
            return Err(error(
                FileErrorKind::Outside,
                path,
                "leads out of the workspace",
            ));
        }
        self.all().insert(path.to_owned(), bytes.to_vec());
        Ok(())
    }
    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.get(path)?;
        self.all().remove(path);
        Ok(())
    }
    fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError> {
        if !replace && self.all().contains_key(to) {
            return Err(error(FileErrorKind::Exists, to, "is there already"));
        }
        self.write(to, &self.get(from)?)?;
        self.remove(from)
    }
    fn list(&self, _path: &str, max: usize) -> Result<Listing, FileError> {
        let all = self.all();
        let entries = all
            .iter()
            .take(max)
            .map(|(path, bytes)| (path.clone(), FileKind::File, bytes.len() as u64));
        Ok(Listing {
            entries: entries.collect(),
            more: all.len() > max,
            kept_back: false,
        })
    }
    fn find(&self, query: &FindQuery, _: &CancellationToken) -> Result<FoundPaths, FileError> {
        let all = self.all();
        let fits = |path: &&String| windlass_core::gate::glob_match(&query.glob, path);
        let mut paths: Vec<String> = all
            .keys()
            .filter(fits)
            .take(query.max + 1)
            .cloned()
            .collect();
        let more = paths.len() > query.max;
        paths.truncate(query.max);
        Ok(FoundPaths { paths, more })
    }
    fn grep(&self, query: &GrepQuery, _: &CancellationToken) -> Result<Grepped, FileError> {
        Err(error(
            FileErrorKind::BadInput,
            &query.under,
            "is not searched here; use find_files",
        ))
    }
}

impl BaseTree for MapTree {
    fn read(&self, path: &str, _max: u64) -> Result<Option<Vec<u8>>, FileError> {
        Ok(self.all().get(path).cloned())
    }
}

/// A tool that writes `text` to `path`, through the files of the run.
pub(crate) fn write_file() -> Arc<dyn Tool> {
    let write = FnTool::new("write_file", Effect::Write, |args, ctx| {
        Box::pin(async move {
            let (path, text) = (
                args["path"].as_str().unwrap_or_default(),
                args["text"].as_str().unwrap_or_default(),
            );
            ctx.files.write(path, text.as_bytes())?;
            Ok(ToolOutput::text("written"))
        })
    });
    write.boxed()
}

pub(crate) async fn run_example() -> ExampleResult {
    let (good, bad) = (
        json!({"path": "a.txt", "text": "new"}),
        json!({"path": "b/../../c", "text": "out"}),
    );
    let fakes = Fakes::new([
        call("1", "write_file", &good),
        call("2", "write_file", &bad),
        says("done"),
    ]);
    let tree = MapTree::of(&[("a.txt", "old")]);
    let engine = fakes
        .builder()
        .workspaces(Arc::new(Copies::of(&tree)))
        .tools([write_file()])
        .build()?;
    let options = RunOptions {
        yes: true,
        ..RunOptions::default()
    };
    let result = engine
        .execute(Request {
            options,
            ..Request::new("make it new")
        })
        .await?;
    assert_eq!(result.outcome(), Some(&Outcome::Completed));
    assert!(format!("{:?}", fakes.provider.asked()).contains("leads out of the workspace"));
    let files: Vec<(String, Vec<u8>)> = tree.all().clone().into_iter().collect();
    assert_eq!(files, [("a.txt".to_owned(), b"new".to_vec())]);
    Ok(())
}
