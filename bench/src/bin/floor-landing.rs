//! The floor of a landing: copies files to another directory, renames each copy over its file, and syncs the file
//! system once.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use windlass_bench::flags::Flags;

fn main() -> Result<()> {
    let flags = Flags::from_env(&["--dir", "--files"])?;
    let dir = PathBuf::from(flags.need::<String>("--dir")?);
    let wanted: usize = flags.need("--files")?;
    let mut files = Vec::new();
    find(&dir, wanted, &mut files)?;
    ensure!(
        files.len() == wanted,
        "there are only {} files",
        files.len()
    );
    let aside = dir.join(".floor-landing");
    std::fs::create_dir(&aside)?;
    for (at, file) in files.iter().enumerate() {
        std::fs::copy(file, aside.join(at.to_string()))?;
    }
    for (at, file) in files.iter().enumerate() {
        std::fs::rename(aside.join(at.to_string()), file)?;
    }
    std::fs::remove_dir(&aside)?;
    rustix::fs::syncfs(std::fs::File::open(&dir)?).context("the files cannot be synced")
}

/// Collects the first files below a directory, without those of git.
fn find(dir: &Path, wanted: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if files.len() == wanted || entry.file_name() == ".git" {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => find(&entry.path(), wanted, files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}
