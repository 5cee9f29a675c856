//! `cargo xtask containers`: runs the commands of the README in containers, and on this machine with parts of the
//! kernel disabled. The table is in `rows.rs`; a row that cannot run on this machine is counted as not run, with the
//! reason.

mod everyday;
mod outcome;
mod podman;
mod profile;
mod rows;
mod suite;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use self::podman::{Podman, finish, mount};
use self::rows::{Container, ContainerRow, Owner, RowPlace};
use crate::{cargo, unknown};

/// The timeout for all commands of one row.
const ROW_TIMEOUT: Duration = Duration::from_secs(240);
const INSIDE: &str = include_str!("containers/inside.sh");
const MODEL: &str = include_str!("containers/model.toml");

/// The parsed command line.
#[derive(Debug, Default)]
struct ContainerOptions {
    test: bool,
    everyday: bool,
    list: bool,
    only: Option<String>,
}

impl ContainerOptions {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--test" => options.test = true,
                "--everyday" => options.everyday = true,
                "--list" => options.list = true,
                "--only" => {
                    options.only = Some(args.next().context("--only needs a text")?.to_lowercase())
                }
                other => {
                    bail!(
                        "{}",
                        unknown(
                            "option",
                            other,
                            ["--test", "--everyday", "--list", "--only"].into_iter()
                        )
                    )
                }
            }
        }
        Ok(options)
    }

    fn picks(&self, name: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|text| name.to_lowercase().contains(text))
    }
}

/// Everything that rows share: the binary, the files that they read, and podman or the reason why there is none.
struct RowRunner {
    folder: tempfile::TempDir,
    binary: PathBuf,
    /// The folder with the complete output of each row.
    logs: PathBuf,
    root: bool,
    podman: Result<Podman, String>,
}

/// The result of a row.
#[derive(Debug)]
enum RowOutcome {
    Passed { isolation: String },
    Failed { isolation: String, why: Vec<String> },
    NotRun(String),
}

/// The counts for the last line.
#[derive(Debug, Default)]
struct RowTotals {
    passed: usize,
    failed: usize,
    not_run: usize,
}

/// Runs the selected rows.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = ContainerOptions::parse(args)?;
    let rows: Vec<ContainerRow> = rows::all()
        .into_iter()
        .filter(|row| options.picks(&row.name))
        .collect();
    let suites: Vec<&suite::Suite> = suite::SUITES
        .iter()
        .filter(|suite| options.test && options.picks(suite.name))
        .collect();
    let tasks: Vec<&everyday::Tasks> = everyday::ALL
        .iter()
        .filter(|tasks| options.everyday && options.picks(tasks.name))
        .collect();
    if options.list {
        tasks.iter().for_each(|tasks| println!("{}", tasks.name));
        rows.iter()
            .for_each(|row| println!("{}: {:?}", row.name, row.expect));
        suites.iter().for_each(|suite| println!("{}", suite.name));
        return Ok(());
    }
    if rows.is_empty() && suites.is_empty() && tasks.is_empty() {
        bail!("no row has this text in its name; `cargo xtask containers --list` prints the names");
    }
    let began = Instant::now();
    let root = cargo::root()?;
    let runner = RowRunner::prepare(&root)?;
    let mut totals = RowTotals::default();
    for (at, row) in rows.iter().enumerate() {
        let outcome = runner.run(row, at)?;
        report(&row.name, &outcome, &mut totals);
    }
    for suite in suites {
        let outcome = match &runner.podman {
            Ok(podman) => suite::run(suite, podman, &root, runner.folder.path(), &runner.logs)?,
            Err(why) => RowOutcome::NotRun(why.clone()),
        };
        report(suite.name, &outcome, &mut totals);
    }
    for tasks in tasks {
        let outcome = match &runner.podman {
            Ok(podman) => everyday::run(
                tasks,
                podman,
                &root,
                &runner.folder.path().join("wl"),
                &runner.logs,
            )?,
            Err(why) => RowOutcome::NotRun(why.clone()),
        };
        report(tasks.name, &outcome, &mut totals);
    }
    let RowTotals {
        passed,
        failed,
        not_run,
    } = totals;
    println!(
        "{passed} passed, {failed} failed, {not_run} not run in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    if failed > 0 {
        let logs = runner.logs.display();
        bail!(
            "{failed} rows differ from the table; `--only TEXT` repeats some of them; their output is in {logs}"
        );
    }
    Ok(())
}

fn report(name: &str, outcome: &RowOutcome, totals: &mut RowTotals) {
    match outcome {
        RowOutcome::Passed { isolation } => {
            totals.passed += 1;
            println!("ok       {name}: {isolation}");
        }
        RowOutcome::Failed { isolation, why } => {
            totals.failed += 1;
            println!("FAILED   {name}: {isolation}");
            // Print the output of the first failure only; the others mostly follow from it.
            for (at, why) in why.iter().enumerate() {
                let shown = if at == 0 {
                    why.as_str()
                } else {
                    why.lines().next().unwrap_or_default()
                };
                println!("    {}", shown.trim_end());
            }
        }
        RowOutcome::NotRun(why) => {
            totals.not_run += 1;
            println!("not run  {name}: {why}");
        }
    }
}

impl RowRunner {
    fn prepare(repository: &Path) -> Result<Self> {
        let programs = cargo::build(repository, &["-p", "windlass-cli"])?;
        let folder = tempfile::tempdir()?;
        // Every user of the rows must be able to read these files.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let shared = folder.path().join("wl");
        std::fs::create_dir(&shared)?;
        std::fs::write(shared.join("inside.sh"), INSIDE)?;
        std::fs::write(shared.join("model.toml"), MODEL)?;
        // Make a copy, because the target directory may be below a folder that only its owner can enter.
        let binary = shared.join("windlass");
        std::fs::copy(programs.join("windlass"), &binary)
            .context("the binary could not be copied")?;
        let logs = cargo::target_directory(repository)?.join("containers");
        std::fs::create_dir_all(&logs)
            .with_context(|| format!("cannot make {}", logs.display()))?;
        let root = is_root();
        let podman = Podman::prepare(folder.path(), root)?;
        if let Err(why) = &podman {
            println!("no containers here: {why}");
        }
        Ok(Self {
            folder,
            binary,
            logs,
            root,
            podman,
        })
    }

    fn run(&self, row: &ContainerRow, at: usize) -> Result<RowOutcome> {
        let log = self.logs.join(format!("row-{at}.log"));
        let finished = match row.place {
            RowPlace::Container(container) => match &self.podman {
                Ok(podman) => match podman.lacks(&container) {
                    Some(why) => return Ok(RowOutcome::NotRun(why)),
                    None => self.in_container(podman, &container, at, &log)?,
                },
                Err(why) => return Ok(RowOutcome::NotRun(why.clone())),
            },
            RowPlace::Machine { uid: 0, .. } if !self.root => {
                return Ok(RowOutcome::NotRun("needs root".to_owned()));
            }
            RowPlace::Machine { without, uid } => self.on_machine(without, uid, at, &log)?,
        };
        let (_, output) = finished;
        let steps = outcome::steps(&output);
        let mut why = outcome::wrong(&steps, row.expect);
        if steps.is_empty() {
            why = vec![format!(
                "the row did not start:\n{}",
                outcome::last_lines(&output)
            )];
        }
        let demo = steps.iter().find(|step| step.name == "demo");
        let line = demo
            .and_then(|step| outcome::isolation_line(step.output))
            .unwrap_or("no line about isolation");
        let code = demo
            .and_then(|step| step.code)
            .map_or("no exit code".to_owned(), |code| format!("exit {code}"));
        let isolation = format!("{code}; {line}");
        Ok(if why.is_empty() {
            RowOutcome::Passed { isolation }
        } else {
            RowOutcome::Failed { isolation, why }
        })
    }

    fn in_container(
        &self,
        podman: &Podman,
        container: &Container,
        at: usize,
        log: &Path,
    ) -> Result<(Option<i32>, String)> {
        let name = format!("windlass-rows-{}-{at}", std::process::id());
        let mut command = podman.run(&name, container)?;
        mount(&mut command, &self.folder.path().join("wl"), "/wl", "ro");
        let project = if container.owner == Owner::Another {
            "/project"
        } else {
            "/tmp/work/project"
        };
        let devices = format!("REMOVE_DEVICES={}", container.remove_devices);
        command.args([
            "-e",
            "WINDLASS=/wl/windlass",
            "-e",
            "MODEL=/wl/model.toml",
            "-e",
            &devices,
        ]);
        command.args([
            "-e",
            &format!("PROJECT={project}"),
            podman.image(),
            "/usr/bin/bash",
            "/wl/inside.sh",
        ]);
        let finished = finish(&mut command, log, ROW_TIMEOUT);
        podman.remove(&name);
        finished
    }

    fn on_machine(
        &self,
        without: &[crate::without::Feature],
        uid: u32,
        at: usize,
        log: &Path,
    ) -> Result<(Option<i32>, String)> {
        let home = self.folder.path().join(format!("home-{at}"));
        std::fs::create_dir(&home)?;
        let mut command = Command::new(cargo::own_program()?);
        command
            .arg("without")
            .args(without.iter().map(|feature| feature.name()));
        if self.root {
            std::os::unix::fs::chown(&home, Some(uid), Some(uid))?;
            command.args(["--uid", &uid.to_string()]);
        }
        command
            .args(["--", "bash"])
            .arg(self.folder.path().join("wl/inside.sh"));
        command
            .current_dir(&home)
            .env("HOME", &home)
            .env("PROJECT", home.join("project"));
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("REMOVE_DEVICES", "");
        command
            .env("WINDLASS", &self.binary)
            .env("MODEL", self.folder.path().join("wl/model.toml"));
        for name in [
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
            "XDG_STATE_HOME",
            "XDG_CACHE_HOME",
            "XDG_RUNTIME_DIR",
        ] {
            command.env_remove(name);
        }
        finish(&mut command, log, ROW_TIMEOUT)
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}
