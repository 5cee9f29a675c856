//! Outside: lets a call read outside the workspace, after these reads were judged, and nothing else.
//! It gets the files of the run and the exact approved paths, and returns files that can also read those paths.
//! Without this port, no call can read outside, even with approval.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use windlass_core::CancellationToken;
use windlass_core::ask::Answer;
use windlass_core::event::EventKind;
use windlass_core::tool::{Effect, Tool, ToolOutput};
use windlass_core::workspace::*;
use windlass_engine::Request;
use windlass_testing::{FnTool, call, says};

use super::ExampleResult;
use super::fakes::Fakes;
use super::files::{MapTree, error};
use super::workspaces::Copies;

/// The files outside the workspace.
struct OutsideTree(Arc<MapTree>);

/// The files of a run, and the granted paths outside.
struct FilesWithGrants {
    files: Arc<dyn Files>,
    outside: Arc<MapTree>,
    reads: Vec<String>,
}

impl Outside for OutsideTree {
    fn grant(&self, files: &Arc<dyn Files>, reads: Vec<String>) -> Arc<dyn Files> {
        Arc::new(FilesWithGrants {
            files: files.clone(),
            outside: self.0.clone(),
            reads,
        })
    }
}

impl FilesWithGrants {
    fn of(&self, path: &str) -> &dyn Files {
        if self.reads.iter().any(|granted| granted == path) {
            self.outside.as_ref()
        } else {
            self.files.as_ref()
        }
    }
}

impl Files for FilesWithGrants {
    fn root(&self) -> &Path {
        self.files.root()
    }
    fn resolve(&self, path: &str) -> Result<Resolved, FileError> {
        self.files.resolve(path)
    }
    fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, FileError> {
        self.of(path).read(path, max)
    }
    fn read_range(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        self.of(path).read_range(path, offset, len)
    }
    fn stat(&self, path: &str) -> Result<FileStat, FileError> {
        self.of(path).stat(path)
    }
    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.files.write(path, bytes)
    }
    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.files.remove(path)
    }
    fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), FileError> {
        self.files.rename(from, to, replace)
    }
    fn list(&self, path: &str, max: usize) -> Result<Listing, FileError> {
        self.files.list(path, max)
    }
    fn find(&self, query: &FindQuery, cancel: &CancellationToken) -> Result<FoundPaths, FileError> {
        self.files.find(query, cancel)
    }
    fn grep(&self, query: &GrepQuery, cancel: &CancellationToken) -> Result<Grepped, FileError> {
        self.files.grep(query, cancel)
    }
}

/// A tool that announces one read, and then also reads another file.
fn read_file() -> Arc<dyn Tool> {
    let read = FnTool::new("read_file", Effect::Read, |args, ctx| {
        Box::pin(async move {
            let path = args["path"].as_str().unwrap_or_default();
            let other = ctx.files.read("/books/diary", 100).err();
            let other =
                other.unwrap_or_else(|| error(FileErrorKind::Io, "/books/diary", "was given away"));
            let text = String::from_utf8_lossy(&ctx.files.read(path, 100)?).into_owned();
            Ok(ToolOutput::text(format!("{text}; but {other}")))
        })
    });
    read.boxed()
}

pub(crate) async fn run_example() -> ExampleResult {
    let books = MapTree::of(&[
        ("/books/atlas", "here be dragons"),
        ("/books/diary", "dear diary"),
    ]);
    let read = || call("1", "read_file", &json!({ "path": "/books/atlas" }));
    for (outside, expect) in [
        (true, "here be dragons; but `/books/diary` is not there"),
        (false, "[not_found]"),
    ] {
        let fakes = Fakes::new([read(), says("I see")]);
        let mut builder = fakes
            .builder()
            .workspaces(Arc::new(Copies::of(&MapTree::of(&[]))))
            .tools([read_file()]);
        if outside {
            builder = builder.outside(Arc::new(OutsideTree(books.clone())));
        }
        let request = Request::new("what is on the map?");
        let mut run = builder.build()?.stream(request).await?;
        while let Some(event) = run.next().await {
            if let EventKind::Asked { ask } = event.kind {
                run.answer(&ask.id, Answer::Once)?;
            }
        }
        let told = format!("{:?}", fakes.provider.asked().last());
        assert!(told.contains(expect), "{told}");
    }
    Ok(())
}
