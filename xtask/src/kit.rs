//! The conformance kit as a stage of `cargo xtask test`: our own runtimes, the kit's honest agent and its hostile one
//! through the built binary; with the real programs, the tables of the documentation are made from that run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::without::Feature;
use crate::{agents, cargo, unknown};

/// As it is typed to run it alone.
pub(crate) const REPEAT: &str = "target/debug/windlass-kit run --windlass target/debug/windlass --runtime native --runtime fixture --runtime hostile";
/// The tables for people.
const TABLES: &str = "docs/runtimes-matrix.md";
const OURS: &[&str] = &[
    "native",
    "patch",
    "completion",
    "fixture",
    "cli:fixture",
    "hostile",
];
const KNOWN: &[&str] = &["--agents", "--all-agents", "--without"];
/// The kit's word for every program that it knows.
const EVERY_PROGRAM: &str = "all";

/// With whom the kit runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum With {
    /// What needs no package.
    Ours,
    /// Also the agents that CI certifies.
    Agents,
    /// Also all others that this machine can have.
    AllAgents,
}

/// The options of `cargo xtask kit`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    with: With,
    /// Kernel features that are switched off for the runtimes.
    without: Vec<Feature>,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self {
            with: With::Ours,
            without: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match (arg.as_str(), With::flag(arg)) {
                ("--without", _) => {
                    options.without.push(Feature::parse(
                        args.next().context("--without needs a feature")?,
                    )?);
                }
                (_, Some(with)) if options.with == With::Ours => options.with = with,
                (_, Some(_)) => bail!("--agents and --all-agents exclude each other"),
                (other, None) => bail!("{}", unknown("option", other, KNOWN.iter().copied())),
            }
        }
        Ok(options)
    }
}

impl From<With> for Options {
    fn from(with: With) -> Self {
        Self {
            with,
            without: Vec::new(),
        }
    }
}

impl With {
    /// The flag that asks for it.
    pub(crate) fn flag(flag: &str) -> Option<Self> {
        match flag {
            "--agents" => Some(Self::Agents),
            "--all-agents" => Some(Self::AllAgents),
            _ => None,
        }
    }
}

/// Runs the kit; with real agents it installs them first and writes the tables. The tables say what holds where no
/// kernel feature is missing.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let Options { with, without } = options;
    let program = built(root)?;
    let mut command = if without.is_empty() {
        Command::new(program("windlass-kit"))
    } else {
        let mut command = Command::new(cargo::own_program()?);
        command
            .arg("without")
            .args(without.iter().map(|feature| feature.name()));
        command.arg("--").arg(program("windlass-kit"));
        command
    };
    command
        .current_dir(root)
        .arg("run")
        .arg("--windlass")
        .arg(program("windlass"));
    let mut runtimes = OURS.to_vec();
    if *with != With::Ours {
        println!("==> agents: cargo xtask agents");
        let all = *with == With::AllAgents;
        let installed = agents::run(&program("windlass"), all)?;
        command.arg("--installed").arg(installed.folder);
        if without.is_empty() {
            command.args(["--markdown", TABLES]);
        }
        if all {
            runtimes.push(EVERY_PROGRAM);
            command.arg("--if-installed");
        } else {
            runtimes.extend(agents::CERTIFIED);
        }
    }
    command.args(runtimes.iter().flat_map(|runtime| ["--runtime", runtime]));
    let ended = command.status().context("the kit could not be started")?;
    if ended.success() {
        Ok(())
    } else {
        bail!(
            "not every runtime keeps the contract (see above)\n  to repeat it: {REPEAT} --verbose"
        )
    }
}

/// Installs the agents alone.
pub(crate) fn install(root: &Path, all: bool) -> Result<()> {
    let program = built(root)?;
    agents::run(&program("windlass"), all).map(drop)
}

/// Builds the binary and the kit; where a program of theirs is.
fn built(root: &Path) -> Result<impl Fn(&str) -> PathBuf> {
    let programs = cargo::build(root, &["--workspace"])?;
    Ok(move |name: &str| programs.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(args: &str, expect: Result<(With, &[Feature]), &str>) {
        let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        match (Options::parse(&args), expect) {
            (Ok(options), Ok((with, without))) => {
                assert_eq!((options.with, &*options.without), (with, without))
            }
            (Err(err), Err(expect)) => assert!(err.to_string().contains(expect), "{err}"),
            (found, expect) => panic!("{found:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn options_say_with_which_agents_and_without_which_features_it_runs() {
        check("", Ok((With::Ours, &[])));
        check("--all-agents", Ok((With::AllAgents, &[])));
        check(
            "--without namespaces --agents",
            Ok((With::Agents, &[Feature::Namespaces])),
        );
        check("--without", Err("--without needs a feature"));
        check("--without namespace", Err("did you mean `namespaces`?"));
        check("--agents --all-agents", Err("exclude each other"));
        check("--agent", Err("did you mean `--agents`?"));
    }
}
