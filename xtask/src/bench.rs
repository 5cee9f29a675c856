//! `cargo xtask bench`: the shipped build measured beside its floors in the same minutes on the same machine, as a
//! Markdown table. It needs no network and leaves nothing behind.

mod broker;
mod envelope;
mod isolated;
mod lab;
mod machine;
mod measure;
mod report;
mod rows;
mod server;
mod store;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{agents, cargo, unknown};

use self::lab::Lab;
use self::report::Row;

/// What was asked for.
#[derive(Debug, Default)]
struct Options {
    /// Update the document.
    write: bool,
    /// A tenth of the repetitions: to try the benchmark itself, not to quote.
    quick: bool,
    /// Only this group of rows.
    only: Option<String>,
}

/// A group of rows that is measured together.
struct Group {
    name: &'static str,
    measure: fn(&Lab) -> Result<Vec<Row>>,
}

const GROUPS: &[Group] = &[
    Group {
        name: "start",
        measure: rows::start,
    },
    Group {
        name: "oneshot",
        measure: rows::one_shot,
    },
    Group {
        name: "step",
        measure: rows::hundred_steps,
    },
    Group {
        name: "sandbox",
        measure: rows::sandbox,
    },
    Group {
        name: "broker",
        measure: broker::rows,
    },
    Group {
        name: "growth",
        measure: rows::thousand_steps,
    },
    Group {
        name: "flood",
        measure: rows::flood,
    },
    Group {
        name: "decode",
        measure: rows::decode,
    },
    Group {
        name: "meter",
        measure: rows::meter,
    },
    Group {
        name: "agents",
        measure: envelope::rows,
    },
    Group {
        name: "size",
        measure: rows::size,
    },
    Group {
        name: "store",
        measure: store::rows,
    },
    Group {
        name: "server",
        measure: server::rows,
    },
    // Last: it looks at every file of a large tree, and what this process holds shows in the memory of its children.
    Group {
        name: "isolated",
        measure: isolated::rows,
    },
];

/// Measures and prints.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let root = cargo::root()?;
    ensure!(
        !options.write || agents::installed_already()?.is_some(),
        "--write is for a whole measurement, with the agents of others: install them with `cargo xtask agents`"
    );
    eprintln!("==> building what is shipped");
    let packages = [
        "-p",
        "windlass-cli",
        "-p",
        "windlass-bench",
        "-p",
        "windlass-kit",
    ];
    let built = cargo::command(["build", "--profile", "dist", "--locked"])
        .args(packages)
        .current_dir(&root)
        .status()
        .context("cargo could not be started")?;
    ensure!(built.success(), "it could not be built (see above)");
    let lab = Lab::open(options.quick)?;
    let mut rows = Vec::new();
    for group in GROUPS.iter().filter(|group| {
        options
            .only
            .as_deref()
            .is_none_or(|only| only == group.name)
    }) {
        eprintln!("==> measuring: {}", group.name);
        rows.extend(
            (group.measure)(&lab)
                .with_context(|| format!("`{}` could not be measured", group.name))?,
        );
    }
    let table = report::table(&rows);
    let machine = machine::describe(lab.dir())?;
    println!("{table}\n{machine}");
    if options.write {
        report::write(&root.join("docs/performance.md"), &table, &machine)?;
        eprintln!("==> docs/performance.md is updated");
    }
    let missed = rows.iter().filter(|row| row.missed()).count();
    if missed > 0 {
        eprintln!("==> {missed} of {} figures miss their target", rows.len());
    }
    Ok(())
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--write" => options.write = true,
                "--quick" => options.quick = true,
                "--only" => {
                    let name = args.next().context("`--only` needs the name of a group")?;
                    let known = GROUPS.iter().map(|group| group.name);
                    ensure!(
                        known.clone().any(|known| known == name),
                        "{}",
                        unknown("group", name, known)
                    );
                    options.only = Some(name.clone());
                }
                other => bail!(
                    "{}",
                    unknown(
                        "option",
                        other,
                        ["--write", "--quick", "--only"].into_iter()
                    )
                ),
            }
        }
        ensure!(
            !options.write || (!options.quick && options.only.is_none()),
            "--write is for a whole measurement: leave out --quick and --only"
        );
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(line: &str, expect: &str) {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let err = Options::parse(&args)
            .map_or_else(|err| err.to_string(), |options| format!("{options:?}"));
        assert!(err.contains(expect), "{err}");
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        check_refused("--wirte", "did you mean `--write`?");
        check_refused("--only floods", "did you mean `flood`?");
        check_refused("--only", "needs the name");
        check_refused("--write --quick", "whole measurement");
    }
}
