//! The program of the kit. Printing is its job.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use windlass_kit::speed::{self, Floor, Speed};
use windlass_kit::{ATTACKS, Cell, Claims, Options, Product, Report, Runtime, SCENARIOS, Told};
use windlass_scripted::{RecordedRequest, Script, Server};

const USAGE: &str = "\
usage: windlass-kit run --windlass PATH --runtime NAME … [--model VENDOR/MODEL] [--scenario NAME …] [--jobs N]
                        [--settings FILE] [--installed DIR] [--if-installed] [--markdown FILE] [--verbose]
       windlass-kit speed --windlass PATH --runtime NAME … [--model VENDOR/MODEL] [--installed DIR] [--steps N] [--times N]
                          [--one-shot]
       windlass-kit list
       windlass-kit serve SCRIPT.json PORT [LOG.jsonl]

  --runtime       a name that windlass knows, acp:COMMAND, a name of --settings, all (every program of others that has a
                  name), fixture or cli:fixture (the kit's own honest agent, by ACP and as a one-shot program) or hostile
                  (the agent that tries everything); may be given more than once
  --model         what the runtimes named after it are to use
  --settings      a file of TOML with a table [runtimes.NAME], for agents of your own and others, before --runtime NAME
  --installed     the folder that `windlass runtimes install` put agents into
  --if-installed  a runtime that cannot work on this machine is not tried, and that is no failure
  --scenario      only this one; may be given more than once
  --jobs          so many at a time; 2
  --markdown      also write the tables into this file, between their marks; what was not tried stays as it is there
  --verbose       show the log of what failed
  --steps         commands in a run whose time is taken; 100
  --times         how often it is taken, through windlass and bare in turn; 5
  --one-shot      bare is the agent's own command for one prompt, with approvals off (claude-code, codex, goose)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(code) => code,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(args: &[String]) -> Result<ExitCode> {
    match args
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        Some(("run", rest)) => run(Typed::read(rest)?),
        Some(("speed", rest)) => speed(Typed::read(rest)?),
        Some(("list", [])) => {
            for scenario in SCENARIOS.iter().chain(ATTACKS) {
                println!("{:<24} {}", scenario.name, scenario.about);
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(("serve", [file, port])) => serve(file, port, None),
        Some(("serve", [file, port, log])) => serve(file, port, Some(Path::new(log))),
        Some(("help" | "-h" | "--help", _)) => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("{USAGE}"),
    }
}

/// What was typed behind `run` or `speed`.
#[derive(Default)]
struct Typed {
    windlass: Option<PathBuf>,
    runtimes: Vec<Named>,
    scenarios: Vec<String>,
    installed: Option<PathBuf>,
    if_installed: bool,
    jobs: Option<usize>,
    markdown: Option<PathBuf>,
    verbose: bool,
    one_shot: bool,
    steps: Option<usize>,
    times: Option<usize>,
}

/// A runtime as it was typed, with what was typed before it.
struct Named {
    name: String,
    model: Option<String>,
    settings: String,
}

impl Typed {
    fn read(args: &[String]) -> Result<Self> {
        let (mut typed, mut args, mut model, mut settings) =
            (Self::default(), args.iter(), None, String::new());
        while let Some(flag) = args.next() {
            let switch = match flag.as_str() {
                "--verbose" => Some(&mut typed.verbose),
                "--one-shot" => Some(&mut typed.one_shot),
                "--if-installed" => Some(&mut typed.if_installed),
                _ => None,
            };
            if let Some(switch) = switch {
                *switch = true;
                continue;
            }
            let value = args
                .next()
                .with_context(|| format!("{flag} wants a value\n{USAGE}"))?;
            match flag.as_str() {
                "--windlass" => typed.windlass = Some(value.into()),
                "--runtime" => typed.runtimes.push(Named {
                    name: value.clone(),
                    model: model.map(str::to_owned),
                    settings: settings.clone(),
                }),
                "--settings" => {
                    settings = std::fs::read_to_string(value)
                        .with_context(|| format!("cannot read {value}"))?;
                }
                "--installed" => typed.installed = Some(value.into()),
                "--model" => model = Some(value.as_str()),
                "--scenario" => typed.scenarios.push(value.clone()),
                "--jobs" => typed.jobs = Some(value.parse().context("--jobs wants a number")?),
                "--steps" => typed.steps = Some(value.parse().context("--steps wants a number")?),
                "--times" => typed.times = Some(value.parse().context("--times wants a number")?),
                "--markdown" => typed.markdown = Some(value.into()),
                other => bail!("there is no flag `{other}`\n{USAGE}"),
            }
        }
        Ok(typed)
    }
}

impl Typed {
    /// The product that is tried, once it is clear that there is something to try.
    fn product(&self) -> Result<(Product, Vec<Runtime>)> {
        let windlass = self.windlass.as_ref();
        let windlass =
            windlass.with_context(|| format!("--windlass says which binary is tried\n{USAGE}"))?;
        if self.runtimes.is_empty() {
            bail!("--runtime says with what it is tried\n{USAGE}");
        }
        let product = Product::open(windlass).map_err(|err| anyhow!(err))?;
        let product = match &self.installed {
            Some(folder) => product.with_installed(folder).map_err(|err| anyhow!(err))?,
            None => product,
        };
        let listed = product.listed().map_err(|err| anyhow!(err))?;
        let mut runtimes = Vec::new();
        for named in &self.runtimes {
            match named.name.as_str() {
                "all" => runtimes.extend(Runtime::programs(&listed)),
                _ => runtimes.push(named.find(&listed)?),
            }
        }
        Ok((product, runtimes))
    }
}

impl Named {
    /// A runtime of the settings, or one that windlass or the kit knows.
    fn find(&self, listed: &[Claims]) -> Result<Runtime> {
        let (name, model) = (self.name.as_str(), self.model.as_deref());
        match Runtime::of_settings(name, model, &self.settings, listed) {
            Some(runtime) => Ok(runtime),
            None => Runtime::new(name, model, &own()?, listed).map_err(|err| anyhow!(err)),
        }
    }
}

fn run(typed: Typed) -> Result<ExitCode> {
    let (product, runtimes) = typed.product()?;
    let claims = product.claims(&runtimes).map_err(|err| anyhow!(err))?;
    let missing = |claims: &Claims| Some((claims.name.clone(), claims.missing.clone()?));
    let missing: Vec<_> = claims
        .iter()
        .filter(|_| typed.if_installed)
        .filter_map(missing)
        .collect();
    let (hostile, others): (Vec<_>, Vec<_>) = runtimes.into_iter().partition(Runtime::is_hostile);
    let mut failures = 0;
    for (attacks, runtimes) in [(false, others), (true, hostile)] {
        if runtimes.is_empty() {
            continue;
        }
        let options = Options {
            product: product.clone(),
            runtimes,
            scenarios: typed.scenarios.clone(),
            attacks,
            jobs: typed.jobs.unwrap_or(2),
            hostile: own()?,
            missing: missing.clone(),
        };
        let matrix = windlass_kit::run(&options, &tell).map_err(|err| anyhow!(err))?;
        println!("\n{}", matrix.text());
        for (runtime, scenario, why) in matrix.failures() {
            let shown = if typed.verbose {
                why
            } else {
                why.lines().next().unwrap_or_default()
            };
            println!("FAIL {runtime} {scenario}: {shown}");
            failures += 1;
        }
        let report = Report::new(&matrix, &claims);
        for (runtime, words) in report.unshown() {
            println!("claimed and not shown: {runtime} {}", words.join(", "));
        }
        if let Some(file) = &typed.markdown {
            let before = std::fs::read_to_string(file).unwrap_or_default();
            let text = if attacks {
                matrix.into_file(&before)
            } else {
                report.into_file(&before)
            };
            std::fs::write(file, text)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(if failures == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Measures each runtime. The lines before the table are for programs: milliseconds through windlass and bare.
fn speed(typed: Typed) -> Result<ExitCode> {
    let (product, runtimes) = typed.product()?;
    let speed = Speed {
        product,
        steps: typed.steps.unwrap_or(100).clamp(1, 1000),
        times: typed.times.unwrap_or(5).clamp(1, 1000),
        floor: if typed.one_shot {
            Floor::OneShot
        } else {
            Floor::Protocol
        },
    };
    println!("load {}", speed::load());
    let mut all = Vec::new();
    for runtime in &runtimes {
        let name = runtime.short();
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let measured = speed.measure(runtime, &|(ours, bare)| {
            for (what, ours, bare) in [
                ("whole", ours.whole, bare.whole),
                ("steps", ours.steps, bare.steps),
                ("cpu", ours.cpu, bare.cpu),
            ] {
                println!("{what} {name} {:.1} {:.1}", ms(ours), ms(bare));
            }
            println!("bytes {name} {} {}", ours.bytes, bare.bytes);
        });
        let measured = measured.map_err(|err| anyhow!(err))?;
        for (what, times) in [
            ("thinking", &measured.cancel_thinking),
            ("command", &measured.cancel_command),
        ] {
            times
                .iter()
                .for_each(|time| println!("cancel-{what} {name} {:.1}", ms(*time)));
        }
        all.push(measured);
    }
    println!("load {}\n\n{}", speed::load(), speed::table(&all));
    Ok(ExitCode::SUCCESS)
}

/// The kit's own agent, which is built beside this program.
fn own() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program does not know where it is")?;
    Ok(program.with_file_name("windlass-hostile-agent"))
}

fn tell(told: &Told<'_>) {
    let (word, why) = match told.cell {
        Cell::Pass => ("pass", String::new()),
        Cell::Fail(why) => (
            "FAIL",
            format!(": {}", why.lines().next().unwrap_or_default()),
        ),
        Cell::NotApplicable(why) => ("-", format!(": {why}")),
    };
    let (runtime, scenario, took) = (
        told.runtime.short(),
        told.scenario.name,
        told.took.as_secs_f64(),
    );
    println!("{word:<4} {runtime} {scenario} ({took:.1} s){why}");
}

/// Plays a script until it is ended, and says what it is asked; with a log, all of it, one request a line.
fn serve(file: &str, port: &str, log: Option<&Path>) -> Result<ExitCode> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let script: Script =
        serde_json::from_str(&text).with_context(|| format!("{file} is no script"))?;
    let server = Server::start_on(script, port.parse().context("the port is no number")?)
        .context("cannot listen")?;
    println!("{}", server.url);
    let mut shown = 0;
    loop {
        for seen in server.seen().iter().skip(shown) {
            let key = seen.key.as_deref().unwrap_or("no key");
            let tools = seen.tools.join(" ");
            println!(
                "{} {} {} {key} {} bytes [{tools}]",
                seen.status, seen.method, seen.path, seen.bytes
            );
            if let Some(missing) = &seen.unmapped {
                println!("  {missing}");
            }
            if let Some(log) = log {
                append(log, seen)?;
            }
            shown += 1;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// One request, as a line of JSON at the end of a file.
fn append(log: &Path, seen: &RecordedRequest) -> Result<()> {
    let body: serde_json::Value =
        serde_json::from_str(&seen.body).unwrap_or_else(|_| seen.body.clone().into());
    let line = serde_json::json!({ "path": seen.path, "status": seen.status, "work": seen.work, "body": body });
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log);
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.with_context(|| format!("cannot write {}", log.display()))
}
