//! `cargo xtask kit`, also a stage of `cargo xtask test`: runs the conformance kit through the built binary with the
//! built-in runtimes, the kit's honest agent and its hostile one. KitAgents real agents, the run also produces the
//! tables of the documentation.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::without::Feature;
use crate::{agents, cargo, unknown};

/// The command line that runs it alone.
pub(crate) const REPEAT: &str = "target/debug/windlass-kit run --windlass target/debug/windlass --runtime native --runtime fixture --runtime hostile";
/// The file with the tables.
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
/// The kit's name for every program that it knows.
const EVERY_PROGRAM: &str = "all";

/// The agents that the kit runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KitAgents {
    /// Only runtimes that need no package.
    Ours,
    /// Also the agents that CI certifies.
    Agents,
    /// Also all other agents that this machine can run.
    AllAgents,
}

/// The options of `cargo xtask kit`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KitOptions {
    with: KitAgents,
    /// Kernel features that are disabled for the runtimes.
    without: Vec<Feature>,
}

impl KitOptions {
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self {
            with: KitAgents::Ours,
            without: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match (arg.as_str(), KitAgents::flag(arg)) {
                ("--without", _) => {
                    options.without.push(Feature::parse(
                        args.next().context("--without needs a feature")?,
                    )?);
                }
                (_, Some(with)) if options.with == KitAgents::Ours => options.with = with,
                (_, Some(_)) => bail!("--agents and --all-agents exclude each other"),
                (other, None) => bail!("{}", unknown("option", other, KNOWN.iter().copied())),
            }
        }
        Ok(options)
    }
}

impl From<KitAgents> for KitOptions {
    fn from(with: KitAgents) -> Self {
        Self {
            with,
            without: Vec::new(),
        }
    }
}

impl KitAgents {
    /// Parses `--agents` and `--all-agents`.
    pub(crate) fn flag(flag: &str) -> Option<Self> {
        match flag {
            "--agents" => Some(Self::Agents),
            "--all-agents" => Some(Self::AllAgents),
            _ => None,
        }
    }
}

/// Runs the kit. KitAgents real agents it installs them first and writes the tables, but only if no kernel feature is
/// disabled.
pub(crate) fn run(root: &Path, options: &KitOptions) -> Result<()> {
    let KitOptions { with, without } = options;
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
    if *with != KitAgents::Ours {
        println!("==> agents: cargo xtask agents");
        let all = *with == KitAgents::AllAgents;
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

/// Installs the agents only.
pub(crate) fn install(root: &Path, all: bool) -> Result<()> {
    let program = built(root)?;
    agents::run(&program("windlass"), all).map(drop)
}

/// Builds the binary and the kit; returns a function for the paths of their programs.
fn built(root: &Path) -> Result<impl Fn(&str) -> PathBuf> {
    let programs = cargo::build(root, &["--workspace"])?;
    Ok(move |name: &str| programs.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(args: &str, expect: Result<(KitAgents, &[Feature]), &str>) {
        let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        match (KitOptions::parse(&args), expect) {
            (Ok(options), Ok((with, without))) => {
                assert_eq!((options.with, &*options.without), (with, without))
            }
            (Err(err), Err(expect)) => assert!(err.to_string().contains(expect), "{err}"),
            (found, expect) => panic!("{found:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn options_say_with_which_agents_and_without_which_features_it_runs() {
        check("", Ok((KitAgents::Ours, &[])));
        check("--all-agents", Ok((KitAgents::AllAgents, &[])));
        check(
            "--without namespaces --agents",
            Ok((KitAgents::Agents, &[Feature::Namespaces])),
        );
        check("--without", Err("--without needs a feature"));
        check("--without namespace", Err("did you mean `namespaces`?"));
        check("--agents --all-agents", Err("exclude each other"));
        check("--agent", Err("did you mean `--agents`?"));
    }
}
