//! Builds and runs a program of five lines, outside of this workspace, that depends only on this crate. It uses the
//! settings of a user, and its model is a scripted server on loopback.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_scripted::{Move, Script, Server};

const PROGRAM: &str = r#"
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let result = windlass::Windlass::open(".")?
        .model("anthropic/claude-sonnet-5-5")
        .validate("sh check.sh")
        .budget_usd(2.0)
        .run("make the failing test pass").await?;
    println!("{:?}, {} file changed", result.outcome(), result.files().len());
    Ok(())
}
"#;

/// The manifest of the program. The build profiles are those of this workspace, so that cargo reuses its build outputs.
fn manifest() -> String {
    let windlass = env!("CARGO_MANIFEST_DIR");
    let mut text = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         windlass = {{ path = {windlass:?} }}\ntokio = {{ version = \"1\", features = [\"rt-multi-thread\", \"macros\"] }}\n\n\
         [profile.dev]\ndebug = \"line-tables-only\"\n[profile.dev.package]\n\"*\" = {{ debug = false }}\n"
    );
    let crates = std::fs::read_dir(Path::new(windlass).join("..")).unwrap();
    for name in crates.flatten().map(|entry| entry.file_name()) {
        let name = name.to_string_lossy();
        text.push_str(&format!("{name} = {{ debug = \"line-tables-only\" }}\n"));
    }
    text
}

/// Whether cargo has the sources of the dependencies. They are missing on a machine that runs tests built elsewhere.
fn has_sources() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    home.or_else(usual)
        .is_some_and(|home| home.join("registry/src").is_dir())
}

/// Builds the program with the versions that this workspace uses; nothing is downloaded.
fn build(folder: &Path) -> PathBuf {
    std::fs::create_dir_all(folder.join("src")).unwrap();
    std::fs::write(folder.join("Cargo.toml"), manifest()).unwrap();
    std::fs::write(folder.join("src/main.rs"), PROGRAM).unwrap();
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    std::fs::copy(lock, folder.join("Cargo.lock")).unwrap();
    // The target directory of this test, so that cargo reuses its build outputs.
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--offline"]);
    cargo.current_dir(folder).env("CARGO_TARGET_DIR", target);
    let output = cargo.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    target.join("debug/outside")
}

#[test]
fn a_program_of_five_lines_runs_an_agent() {
    if !has_sources() {
        windlass_needs::not_run("needs the sources of the dependencies (cargo downloads them)");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let program = build(&scratch.path().join("outside"));
    let (work, home) = (scratch.path().join("work"), scratch.path().join("home"));
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("sum.sh"), "echo $(($1 - $2))\n").unwrap();
    std::fs::write(work.join("check.sh"), "test \"$(sh sum.sh 2 3)\" = 5\n").unwrap();
    let edit = Move::Edit {
        path: "sum.sh".to_owned(),
        old: "echo $(($1 - $2))".to_owned(),
        new: "echo $(($1 + $2))".to_owned(),
    };
    let script = Script::new(&work, vec![edit, Move::Say("It adds now.".to_owned())]);
    let server = Server::start(script).unwrap();
    let config = home.join(".config/windlass");
    std::fs::create_dir_all(&config).unwrap();
    let address = format!("providers.anthropic.base_url = \"{}\"\n", server.url);
    std::fs::write(config.join("config.toml"), address).unwrap();
    let output = Command::new(program)
        .current_dir(&work)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", &home)
        .env("ANTHROPIC_API_KEY", "not-a-key")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.trim(), "Some(Completed), 1 file changed", "{error}");
    let sum = std::fs::read_to_string(work.join("sum.sh")).unwrap();
    assert_eq!(sum, "echo $(($1 + $2))\n");
}
