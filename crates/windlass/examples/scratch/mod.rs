//! Shared by the examples: a workspace and a scripted model, so that the examples run without a key. In your own program,
//! call `.model("vendor/model")` instead of `.provider(…)`.
#![allow(dead_code, reason = "each example uses its own part")]

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use windlass::Windlass;
use windlass::core::provider::{Chunk, ProviderError};
use windlass_testing::{ScriptedProvider, call, says};

/// A workspace whose check fails: `sum.sh` subtracts.
pub(crate) struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> std::io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let workspace = dir.path().join("workspace");
        std::fs::create_dir(&workspace)?;
        std::fs::write(workspace.join("sum.sh"), "echo $(($1 - $2))\n")?;
        std::fs::write(
            workspace.join("check.sh"),
            "test \"$(sh sum.sh 2 3)\" = 5\n",
        )?;
        Ok(Self { dir })
    }

    pub(crate) fn workspace(&self) -> std::path::PathBuf {
        self.dir.path().join("workspace")
    }

    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    /// Opens the workspace without settings, so that an example does the same on every machine.
    pub(crate) fn windlass(&self) -> Result<Windlass, windlass::Error> {
        Windlass::without_settings(self.workspace(), self.data())
    }
}

/// A scripted model with these answers.
pub(crate) fn model(
    answers: impl IntoIterator<Item = Vec<Result<Chunk, ProviderError>>>,
) -> Arc<ScriptedProvider> {
    Arc::new(ScriptedProvider::new(answers))
}

/// A scripted model that repairs `sum.sh`.
pub(crate) fn repairs_the_sum() -> Arc<ScriptedProvider> {
    let edit = json!({ "path": "sum.sh", "old": "$1 - $2", "new": "$1 + $2" });
    model([
        call("1", "edit_file", &edit),
        says("The script subtracted; it adds now."),
    ])
}

/// Prints the path and the content of a file.
pub(crate) fn print(path: &Path) -> std::io::Result<()> {
    print!("{}: {}", path.display(), std::fs::read_to_string(path)?);
    Ok(())
}
