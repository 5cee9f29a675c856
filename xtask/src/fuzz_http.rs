//! `cargo xtask fuzz-http`: sends generated requests to a running server and checks its replies against the OpenAPI document.
//! The server has a temporary home, a workspace with git, a scripted model and a few sessions, so that requests take effect.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::cargo;
use crate::process::{Running, last_lines, step, until};

/// The command line that runs it alone.
pub(crate) const REPEAT: &str = "cargo xtask fuzz-http";
/// The version that is installed from PyPI.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";
const DOCUMENT: &str = "crates/windlass-http/openapi.json";
const CONFIGURATION: &str = "crates/windlass-http/schemathesis.toml";
const HOOKS: &str = "crates/windlass-http/schemathesis_hooks.py";
const KEY: &str = "sk-test-0123456789";
const MINUTE: Duration = Duration::from_secs(60);
/// Time in which the installation must end.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);
/// Time in which a phase must end. The number of examples limits it earlier.
const RUN_TIMEOUT: Duration = Duration::from_secs(6 * 3_600);
/// The number of sequences of requests for each example of an operation.
const SEQUENCES: u32 = 10;
/// Maximum number of rounds with sequences of requests.
const MAX_ROUNDS: u32 = 1_000;
/// A check that fails after every second run, so that some runs are kept and others land.
const CHECK: &str = "test $(($(wc -l < notes.txt) % 2)) = 0";

/// The options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FuzzOptions {
    /// The number of generated requests for each operation.
    examples: u32,
    seed: u32,
}

impl Default for FuzzOptions {
    fn default() -> Self {
        Self {
            examples: 10,
            seed: 1,
        }
    }
}

impl FuzzOptions {
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let target = match name.as_str() {
                "--examples" => &mut options.examples,
                "--seed" => &mut options.seed,
                other => bail!(
                    "{}",
                    crate::unknown("option", other, ["--examples", "--seed"].into_iter())
                ),
            };
            let number = args.next().and_then(|text| text.parse().ok());
            *target = number
                .filter(|number| *number > 0)
                .with_context(|| format!("`{name}` needs a number above zero"))?;
        }
        Ok(options)
    }
}

/// Runs all phases of schemathesis. Without Python, it only says so.
pub(crate) fn run(root: &Path, options: &FuzzOptions) -> Result<()> {
    let mut python = Command::new("python3");
    python.args(["-c", "import venv, ensurepip"]);
    if !cargo::answers(python) {
        println!("    not run: {SCHEMATHESIS} needs python3 with the modules venv and ensurepip");
        return Ok(());
    }
    let target = cargo::target_directory(root)?;
    let schemathesis = install(&target)?;
    let programs = cargo::build(root, &["--workspace"])?;
    cargo::build(root, &["-p", "windlass-scripted", "--example", "model"])?;
    let fuzzed = FuzzedServer::start(&programs)?;
    let fuzz = Schemathesis {
        program: schemathesis,
        root,
        target: &target,
        server: &fuzzed,
    };
    let mut passed = fuzz
        .run("coverage,fuzzing", options.examples, options.seed)?
        .passed;
    // A sequence whose replies differ when it is repeated ends the phase early, because runs take their time. Further rounds
    // with other seeds make up for it.
    let (wanted, mut done) = (options.examples.saturating_mul(SEQUENCES), 0);
    for round in 0..MAX_ROUNDS {
        let result = fuzz.run(
            "stateful",
            wanted - done,
            options.seed.saturating_add(round),
        )?;
        passed &= result.passed;
        done = done.saturating_add(result.sequences);
        if done >= wanted || !result.passed {
            break;
        }
    }
    let finished = fuzzed.finish();
    ensure!(
        passed,
        "the replies of the server contradict the document (see above)\n  to repeat it: {REPEAT} --examples {} --seed {}",
        options.examples,
        options.seed
    );
    println!("    {done} sequences of requests");
    finished
}

/// The program that generates requests, with its server.
struct Schemathesis<'a> {
    program: PathBuf,
    root: &'a Path,
    target: &'a Path,
    server: &'a FuzzedServer,
}

struct PhaseResult {
    passed: bool,
    /// The number of sequences of requests.
    sequences: u32,
}

impl Schemathesis<'_> {
    /// Runs these phases, and prints their totals and findings.
    fn run(&self, phases: &str, examples: u32, seed: u32) -> Result<PhaseResult> {
        // The requests of earlier phases delete sessions.
        self.server.prepare_sessions()?;
        let name = format!("http-fuzz-{}-{seed}.log", phases.replace(',', "-"));
        let log = self.target.join(name);
        let mut fuzz = Command::new(&self.program);
        fuzz.arg("--config-file")
            .arg(self.root.join(CONFIGURATION))
            .arg("run")
            .arg(self.root.join(DOCUMENT))
            .args(["--url", &self.server.url, "--no-color", "--phases", phases])
            .args(["--max-examples", &examples.to_string()])
            .args(["--seed", &seed.to_string()])
            .arg("--header")
            .arg(format!("Authorization: Bearer {}", self.server.token))
            .env("SCHEMATHESIS_HOOKS", self.root.join(HOOKS))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(self.server.dir.path());
        let began = Instant::now();
        let status =
            Running::start(&mut fuzz, &log, &log.with_extension("err"))?.wait(RUN_TIMEOUT)?;
        let report = fs::read_to_string(&log).unwrap_or_default();
        let (totals, sequences) = totals(&report);
        println!(
            "    {phases}, seed {seed}: {totals} ({:.1} s)",
            began.elapsed().as_secs_f64()
        );
        if !status.success() {
            println!("{}", findings(&report));
            println!("    the complete report: {}", log.display());
        }
        Ok(PhaseResult {
            passed: status.success(),
            sequences,
        })
    }
}

/// Returns the program, after installing it into a virtual environment below the target directory.
fn install(target: &Path) -> Result<PathBuf> {
    let home = target.join("tools").join(SCHEMATHESIS.replace("==", "-"));
    let program = home.join("bin/schemathesis");
    let mut version = Command::new(&program);
    version.arg("--version");
    if cargo::answers(version) {
        return Ok(program);
    }
    println!(
        "    installing {SCHEMATHESIS} into {}, once",
        home.display()
    );
    fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let log = home.join("install.log");
    step(
        Command::new("python3").args(["-m", "venv"]).arg(&home),
        &log,
        INSTALL_TIMEOUT,
    )
    .context("a virtual environment could not be made; python3 with its venv module is needed")?;
    let mut pip = Command::new(home.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-input"])
        .args(["--disable-pip-version-check", SCHEMATHESIS]);
    step(&mut pip, &log, INSTALL_TIMEOUT)
        .with_context(|| format!("pip could not install {SCHEMATHESIS}; it needs PyPI"))?;
    Ok(program)
}

/// The counts of operations, links and test cases in a report, and the number of sequences.
fn totals(report: &str) -> (String, u32) {
    let mut lines = report.lines().map(str::trim);
    let (mut parts, mut sequences) = (Vec::new(), 0);
    while let Some(line) = lines.next() {
        if line == "Test cases:" {
            parts.extend(lines.next().map(str::to_owned));
        } else if let Some(count) = line.strip_prefix("Tested: ") {
            parts.push(format!("{count} operations"));
        } else if let Some(count) = line.strip_prefix("Scenarios:") {
            parts.push(format!("{} sequences", count.trim()));
            sequences = count.trim().parse().unwrap_or(0);
        } else if let Some(count) = line.strip_prefix("API Links:") {
            parts.push(format!("links: {}", count.trim()));
        }
    }
    (parts.join("; "), sequences)
}

/// The part of a report that describes failures and errors.
fn findings(report: &str) -> &str {
    let begin = ["= FAILURES =", "= ERRORS ="]
        .iter()
        .filter_map(|head| report.find(head))
        .min();
    begin.map_or(report, |at| &report[at..])
}

/// A server with a scripted model, in temporary directories.
struct FuzzedServer {
    server: Running,
    _model: Running,
    url: String,
    token: String,
    dir: tempfile::TempDir,
}

impl FuzzedServer {
    fn start(programs: &Path) -> Result<Self> {
        let dir = tempfile::tempdir().context("a temporary directory could not be made")?;
        let (home, work) = (dir.path().join("home"), dir.path().join("work"));
        fs::create_dir_all(home.join(".config/windlass"))?;
        fs::create_dir_all(&work)?;
        fs::write(work.join("a.txt"), "one\n")?;
        let identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
        for args in [
            &["init", "--quiet"][..],
            &["add", "."],
            &[&identity[..], &["commit", "--quiet", "-m", "first"]].concat(),
        ] {
            let mut git = Command::new("git");
            git.args(args).current_dir(&work).env("HOME", &home);
            ensure!(cargo::answers(git), "`git {}` failed", args.join(" "));
        }

        let script = json!({
            "root": work,
            "moves": [{ "shell": "echo line >> notes.txt" }],
        });
        let out = dir.path().join("model.out");
        let mut model = Command::new(programs.join("examples/model"));
        model.arg(script.to_string());
        let model = Running::start(&mut model, &out, &out.with_extension("err"))?;
        let model_url = line_with(&out, "http://").context("the scripted model did not start")?;
        fs::write(
            home.join(".config/windlass/config.toml"),
            format!(
                "approval = \"auto\"\nmodel = \"anthropic/some-model\"\nmax_iterations = 1\n\
                 validate.chain = [\"even\"]\nvalidators.even.command = \"{CHECK}\"\n[providers.anthropic]\nbase_url = \"{model_url}\"\n"
            ),
        )?;

        let mut serve = Command::new(programs.join("windlass"));
        serve
            .args(["serve", "--port", "0", "--max-requests", "1000000"])
            .args(["--max-runs", "2"])
            .current_dir(&work)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &home)
            .env("ANTHROPIC_API_KEY", KEY);
        let messages = dir.path().join("server.err");
        let server = Running::start(&mut serve, &dir.path().join("server.out"), &messages)?;
        let url = line_with(&messages, "listening on ")
            .with_context(|| format!("the server did not start:\n{}", last_lines(&messages)))?;
        let token = home.join(".local/share/windlass/server/token");
        let token = fs::read_to_string(&token)
            .with_context(|| format!("cannot read {}", token.display()))?;
        Ok(Self {
            server,
            _model: model,
            url,
            token: token.trim().to_owned(),
            dir,
        })
    }

    /// Makes a session with an open ask, one with a finished run, and one with a kept run.
    fn prepare_sessions(&self) -> Result<()> {
        let sessions = [
            (json!({ "in_place": true, "approval": "ask" }), "waiting"),
            (json!({ "in_place": true }), "idle"),
            (json!({ "in_place": false, "validate": ["false"] }), "idle"),
        ];
        for (options, state) in sessions {
            let body = json!({ "prompt": "write notes", "options": options });
            let created = self.request("POST", "/v1/sessions", &body.to_string())?;
            let id = created["id"]
                .as_str()
                .with_context(|| format!("no session was created: {created}"))?;
            let path = format!("/v1/sessions/{id}");
            let reached = until(MINUTE, || {
                // The runs first: before its run, a session is idle as well.
                let runs = self.request("GET", &format!("{path}/runs"), "")?;
                let detail = self.request("GET", &path, "")?;
                let began = runs.as_array().is_some_and(|runs| !runs.is_empty());
                Ok(began && detail["state"] == state)
            })?;
            ensure!(reached, "a session did not become `{state}`: {options}");
        }
        let kept = self.request("GET", "/v1/kept", "")?;
        ensure!(
            kept.as_array().is_some_and(|kept| !kept.is_empty()),
            "there is no kept run: {kept}"
        );
        Ok(())
    }

    /// Sends a request with the token, and returns the JSON of the reply.
    fn request(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        let address = self.url.strip_prefix("http://").unwrap_or_default();
        let mut stream = TcpStream::connect(address).context("the server does not answer")?;
        stream.set_read_timeout(Some(MINUTE))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        )?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        let (_, body) = reply
            .split_once("\r\n\r\n")
            .context("the reply has no body")?;
        serde_json::from_str(body).with_context(|| format!("the reply is not JSON: {reply}"))
    }

    /// Checks that the server is healthy, that only callers with a token started runs, and that SIGTERM ends the server.
    fn finish(mut self) -> Result<()> {
        let health = self.request("GET", "/healthz", "")?;
        ensure!(
            health["status"] == "ok",
            "the server is not healthy: {health}"
        );
        let sessions = self.dir.path().join("home/.local/share/windlass/sessions");
        let (mut prompts, mut runs) = (0, 0);
        for session in fs::read_dir(&sessions)? {
            let log = session?.path().join("events.jsonl");
            for line in fs::read_to_string(&log).unwrap_or_default().lines() {
                let event: Value = serde_json::from_str(line).unwrap_or_default();
                runs += usize::from(event["kind"] == "run_started");
                if event["kind"] == "queued" {
                    prompts += 1;
                    ensure!(
                        event["data"]["by"].is_string(),
                        "a caller without a token queued a prompt: {line}"
                    );
                }
            }
        }
        self.server.terminate()?;
        let status = self
            .server
            .wait(MINUTE)
            .context("the server did not stop")?;
        let messages = self.dir.path().join("server.err");
        ensure!(
            status.success(),
            "the server stopped with {status}:\n{}",
            last_lines(&messages)
        );
        let text = fs::read_to_string(&messages)?;
        ensure!(
            !text.contains("panicked at"),
            "the server panicked:\n{text}"
        );
        println!(
            "    {prompts} prompts and {runs} runs, all of callers with a token; SIGTERM stopped the server"
        );
        Ok(())
    }
}

/// Waits for a line with this text in a file, and returns the URL in it.
fn line_with(path: &Path, text: &str) -> Option<String> {
    let mut found = None;
    let came = until(MINUTE, || {
        let lines = fs::read_to_string(path).unwrap_or_default();
        // The last line may be incomplete.
        let complete = lines.rsplit_once('\n').map_or("", |(complete, _)| complete);
        let line = complete.lines().find(|line| line.contains(text));
        found = line.and_then(|line| Some(line[line.find("http://")?..].to_owned()));
        Ok(found.is_some())
    });
    came.is_ok_and(|came| came).then_some(found).flatten()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_read() {
        let parse = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            FuzzOptions::parse(&args).map_err(|err| err.to_string())
        };
        assert_eq!(parse(&[]), Ok(FuzzOptions::default()));
        let expect = FuzzOptions {
            examples: 500,
            seed: 7,
        };
        assert_eq!(parse(&["--examples", "500", "--seed", "7"]), Ok(expect));
        assert!(parse(&["--examples"]).is_err_and(|err| err.contains("needs a number")));
        assert!(parse(&["--seed", "0"]).is_err());
        assert!(parse(&["--sed", "1"]).is_err_and(|err| err.contains("did you mean `--seed`?")));
    }

    #[test]
    fn the_totals_of_a_report_are_read() {
        let report = "  Scenarios:    11\n  API Links:    8 covered / 150 total\n Tested: 51\n\nTest cases:\n  9 generated, 9 passed\n";
        let expect =
            "11 sequences; links: 8 covered / 150 total; 51 operations; 9 generated, 9 passed";
        assert_eq!(totals(report), (expect.to_owned(), 11));
        assert_eq!(totals(""), (String::new(), 0));
    }

    #[test]
    fn the_findings_begin_at_the_first_failure() {
        assert_eq!(findings("a\n= FAILURES =\nb"), "= FAILURES =\nb");
        assert_eq!(findings("no heading"), "no heading");
    }
}
