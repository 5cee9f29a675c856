//! The command line of the kit.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use windlass_kit::speed::{self, Floor, Speed};
use windlass_kit::{
    ATTACKS, CellResult, Claims, KitReport, KitRuntime, MatrixCell, Product, SCENARIOS,
    TestSelection,
};
use windlass_scripted::{RecordedRequest, Script, Server};

const USAGE: &str = "\
usage: windlass-kit run --windlass PATH --runtime NAME … [--model VENDOR/MODEL] [--scenario NAME …] [--jobs N]
                        [--settings FILE] [--installed DIR] [--if-installed] [--markdown FILE] [--verbose]
       windlass-kit speed --windlass PATH --runtime NAME … [--model VENDOR/MODEL] [--installed DIR] [--steps N] [--times N]
                          [--one-shot]
       windlass-kit list
       windlass-kit serve SCRIPT.json PORT [LOG.jsonl]

    --runtime       Test this runtime: a name that windlass knows, acp:COMMAND, a name in --settings, all (every foreign agent
                    with a name), fixture or cli:fixture (the kit's honest agent, by ACP or as a one-shot program), or
                    hostile (the agent that attacks); may be repeated
    --model         Use this model for the runtimes named after it
    --settings      Read a TOML file with a table [runtimes.NAME], for your own agents; scratch it before --runtime NAME
    --installed     Use the agents that `windlass runtimes install` installed into this directory
    --if-installed  Skip runtimes that cannot run on this machine, without a failure
    --scenario      Run only this scenario; may be repeated
    --jobs          Run this many scenarios at a time [default: 2]
    --markdown      Also write the tables into this file, between their markers; results that were not tested are kept
    --verbose       Print the log of failures
    --steps         Measure runs with this many commands [default: 100]
    --times         Measure this many pairs of runs, through windlass and bare [default: 5]
    --one-shot      Compare with the agent's own command for one prompt, with approvals off (claude-code, codex, goose)";

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
        Some(("run", rest)) => run(KitArgs::read(rest)?),
        Some(("speed", rest)) => speed(KitArgs::read(rest)?),
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

/// The arguments of `run` or `speed`.
#[derive(Default)]
struct KitArgs {
    windlass: Option<PathBuf>,
    runtimes: Vec<RuntimeArg>,
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

/// A `--runtime` argument, with the `--model` and `--settings` before it.
struct RuntimeArg {
    name: String,
    model: Option<String>,
    settings: String,
}

impl KitArgs {
    fn read(args: &[String]) -> Result<Self> {
        let (mut parsed, mut args, mut model, mut settings) =
            (Self::default(), args.iter(), None, String::new());
        while let Some(flag) = args.next() {
            let switch = match flag.as_str() {
                "--verbose" => Some(&mut parsed.verbose),
                "--one-shot" => Some(&mut parsed.one_shot),
                "--if-installed" => Some(&mut parsed.if_installed),
                _ => None,
            };
            if let Some(switch) = switch {
                *switch = true;
                continue;
            }
            let value = args
                .next()
                .with_context(|| format!("{flag} needs a value\n{USAGE}"))?;
            match flag.as_str() {
                "--windlass" => parsed.windlass = Some(value.into()),
                "--runtime" => parsed.runtimes.push(RuntimeArg {
                    name: value.clone(),
                    model: model.map(str::to_owned),
                    settings: settings.clone(),
                }),
                "--settings" => {
                    settings = std::fs::read_to_string(value)
                        .with_context(|| format!("cannot read {value}"))?;
                }
                "--installed" => parsed.installed = Some(value.into()),
                "--model" => model = Some(value.as_str()),
                "--scenario" => parsed.scenarios.push(value.clone()),
                "--jobs" => parsed.jobs = Some(value.parse().context("--jobs needs a number")?),
                "--steps" => parsed.steps = Some(value.parse().context("--steps needs a number")?),
                "--times" => parsed.times = Some(value.parse().context("--times needs a number")?),
                "--markdown" => parsed.markdown = Some(value.into()),
                other => bail!("unknown flag `{other}`\n{USAGE}"),
            }
        }
        Ok(parsed)
    }
}

impl KitArgs {
    /// Returns the product and the runtimes under test.
    fn product(&self) -> Result<(Product, Vec<KitRuntime>)> {
        let windlass = self.windlass.as_ref();
        let windlass = windlass
            .with_context(|| format!("name the binary under test with --windlass\n{USAGE}"))?;
        if self.runtimes.is_empty() {
            bail!("name at least one runtime with --runtime\n{USAGE}");
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
                "all" => runtimes.extend(KitRuntime::programs(&listed)),
                _ => runtimes.push(named.find(&listed)?),
            }
        }
        Ok((product, runtimes))
    }
}

impl RuntimeArg {
    /// Finds the runtime in the settings, in windlass or in the kit.
    fn find(&self, listed: &[Claims]) -> Result<KitRuntime> {
        let (name, model) = (self.name.as_str(), self.model.as_deref());
        match KitRuntime::of_settings(name, model, &self.settings, listed) {
            Some(runtime) => Ok(runtime),
            None => KitRuntime::new(name, model, &own()?, listed).map_err(|err| anyhow!(err)),
        }
    }
}

fn run(args: KitArgs) -> Result<ExitCode> {
    let (product, runtimes) = args.product()?;
    let claims = product.claims(&runtimes).map_err(|err| anyhow!(err))?;
    let missing = |claims: &Claims| Some((claims.name.clone(), claims.missing.clone()?));
    let missing: Vec<_> = claims
        .iter()
        .filter(|_| args.if_installed)
        .filter_map(missing)
        .collect();
    let (hostile, others): (Vec<_>, Vec<_>) =
        runtimes.into_iter().partition(KitRuntime::is_hostile);
    let mut failures = 0;
    for (attacks, runtimes) in [(false, others), (true, hostile)] {
        if runtimes.is_empty() {
            continue;
        }
        let options = TestSelection {
            product: product.clone(),
            runtimes,
            scenarios: args.scenarios.clone(),
            attacks,
            jobs: args.jobs.unwrap_or(2),
            hostile: own()?,
            missing: missing.clone(),
        };
        let matrix = windlass_kit::run(&options, &print_result).map_err(|err| anyhow!(err))?;
        println!("\n{}", matrix.text());
        for (runtime, scenario, why) in matrix.failures() {
            let message = if args.verbose {
                why
            } else {
                why.lines().next().unwrap_or_default()
            };
            println!("FAIL {runtime} {scenario}: {message}");
            failures += 1;
        }
        let report = KitReport::new(&matrix, &claims);
        for (runtime, words) in report.unproven() {
            println!("claimed and not proven: {runtime} {}", words.join(", "));
        }
        if let Some(file) = &args.markdown {
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

/// Measures each runtime. The lines before the table are for programs: milliseconds through windlass and bare. The
/// first word of each line is read by `xtask bench`.
fn speed(args: KitArgs) -> Result<ExitCode> {
    let (product, runtimes) = args.product()?;
    let speed = Speed {
        product,
        steps: args.steps.unwrap_or(100).clamp(1, 1000),
        times: args.times.unwrap_or(5).clamp(1, 1000),
        floor: if args.one_shot {
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

/// Returns the path of the kit's own agent, which is next to this program.
fn own() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    Ok(program.with_file_name("windlass-hostile-agent"))
}

fn print_result(result: &CellResult<'_>) {
    let (word, why) = match result.cell {
        MatrixCell::Pass => ("pass", String::new()),
        MatrixCell::Fail(why) => (
            "FAIL",
            format!(": {}", why.lines().next().unwrap_or_default()),
        ),
        MatrixCell::NotApplicable(why) => ("-", format!(": {why}")),
    };
    let (runtime, scenario, took) = (
        result.runtime.short(),
        result.scenario.name,
        result.took.as_secs_f64(),
    );
    println!("{word:<4} {runtime} {scenario} ({took:.1} s){why}");
}

/// Plays a script until the process is killed, and prints the requests. With a log file, also writes each whole request
/// as a line.
fn serve(file: &str, port: &str, log: Option<&Path>) -> Result<ExitCode> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let script: Script =
        serde_json::from_str(&text).with_context(|| format!("{file} is not a valid script"))?;
    let server = Server::start_on(script, port.parse().context("the port is not a number")?)
        .context("cannot listen")?;
    println!("{}", server.url);
    let mut printed = 0;
    loop {
        for seen in server.seen().iter().skip(printed) {
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
            printed += 1;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Appends a request to a file, as a line of JSON.
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
