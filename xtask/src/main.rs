//! The daily commands of this repository, so that a fresh machine needs nothing but cargo. It runs other programs and
//! reports their results; it contains no product code and never changes the user's settings. It may print.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod agents;
mod attacks;
mod bench;
mod book;
mod cargo;
mod check;
mod clients;
mod containers;
mod crash;
mod cross;
mod everyday;
mod fuzz_http;
mod install;
mod kit;
mod lines;
mod live;
mod not_run;
mod process;
mod size;
mod style;
mod without;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};

/// A command of `cargo xtask`.
struct XtaskCommand {
    name: &'static str,
    takes: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<()>,
}

const COMMANDS: &[XtaskCommand] = &[
    XtaskCommand {
        name: "test",
        takes: "[--agents | --all-agents | --live-local]",
        about: "check everything: format, layout, clippy, all tests, docs, licences, attacks, clients, runtimes; --agents: with \
                the real agents that CI certifies; --all-agents: with all of them; --live-local: a real model",
        run: |args| match args {
            [only] if only == "--live-local" => live::run(),
            args => check::run(kit_agents(args, &["--live-local"])?),
        },
    },
    XtaskCommand {
        name: "bench",
        takes: "[--write] [--quick] [--only NAME]",
        about: "measure the shipped build compared with its floors; --write updates docs/performance.md",
        run: bench::run,
    },
    XtaskCommand {
        name: "schema",
        takes: "",
        about: "write the JSON schema of the event log to crates/windlass-core/schema/event.json",
        run: |args| {
            no_arguments("schema", args)?;
            schema()
        },
    },
    XtaskCommand {
        name: "docs",
        takes: "[--serve]",
        about: "write docs/reference.md from the code and build the docs as a site into target/book; --serve: also serve it on \
                loopback until you stop it",
        run: |args| {
            reference()?;
            match args {
                [] => {
                    println!("the site: {}", book::build()?.display());
                    Ok(())
                }
                [only] if only == "--serve" => book::serve(),
                [other, ..] => bail!("{}", unknown("option", other, ["--serve"].into_iter())),
            }
        },
    },
    XtaskCommand {
        name: "style",
        takes: "[--list]",
        about: "check the spelling and measure how plainly names and comments are written; --list: print every place",
        run: |args| match args {
            [] => style::run(false),
            [only] if only == "--list" => style::run(true),
            [other, ..] => bail!("{}", unknown("option", other, ["--list"].into_iter())),
        },
    },
    XtaskCommand {
        name: "attacks",
        takes: "[CASES …] [--id ID] [--category NAME] …",
        about: "run the corpus of attacks and of everyday work, or your own cases, through the built binary; without arguments \
                as the last stage of `test` does",
        run: |args| attacks::run(&cargo::root()?, args),
    },
    XtaskCommand {
        name: "agents",
        takes: "[--all]",
        about: "install the agents that runtimes are certified with into target/agents or $WINDLASS_AGENTS; --all: also those \
                that CI does not run",
        run: |args| match args {
            [] => kit::install(&cargo::root()?, false),
            [only] if only == "--all" => kit::install(&cargo::root()?, true),
            [other, ..] => bail!("{}", unknown("option", other, ["--all"].into_iter())),
        },
    },
    XtaskCommand {
        name: "kit",
        takes: "[--agents | --all-agents] [--without FEATURE]",
        about: "run the conformance kit through the built binary; also the last stage of `test`; with agents it writes \
                docs/runtimes-matrix.md; --without: without a kernel feature, and nothing is written",
        run: |args| kit::run(&cargo::root()?, &kit::KitOptions::parse(args)?),
    },
    XtaskCommand {
        name: "clients",
        takes: "[--write]",
        about: "check the TypeScript package: generated types, compilation, and tests against the built binary; --write: generate \
                its types from the OpenAPI document; needs Node and npm",
        run: |args| match args {
            [] => clients::run(&cargo::root()?),
            [only] if only == "--write" => clients::write(&cargo::root()?),
            [other, ..] => bail!("{}", unknown("option", other, ["--write"].into_iter())),
        },
    },
    XtaskCommand {
        name: "fuzz-http",
        takes: "[--examples N] [--seed N]",
        about: "send generated requests to a running server and check the replies against the OpenAPI document; --examples: \
                requests for each operation, 10 by default; needs python3 with venv",
        run: |args| fuzz_http::run(&cargo::root()?, &fuzz_http::FuzzOptions::parse(args)?),
    },
    XtaskCommand {
        name: "containers",
        takes: "[--test] [--everyday] [--only TEXT] [--list]",
        about: "run `windlass demo` and a few commands in containers made from this machine's files, and with parts of the kernel \
                switched off; --test: also the test suite, in two containers; --everyday: also the tasks of `everyday`, in four; --only: rows whose name has this text",
        run: containers::run,
    },
    XtaskCommand {
        name: "everyday",
        takes: "[--only TEXT] [--sample] [--without FEATURE] [--uid N]",
        about: "run ordinary tasks of development (builds, tests, git, package managers) through the built binary, isolated and \
                in place; --sample: a few of each kind; --without, --uid: without a kernel feature, as another user",
        run: everyday::run,
    },
    XtaskCommand {
        name: "without",
        takes: "FEATURE … [--uid N] -- COMMAND …",
        about: "run a command as on a kernel that lacks a feature: namespaces, user-namespaces, namespace-capabilities, \
                landlock, notifications, pidfd-getfd, ptrace",
        run: without::run,
    },
    XtaskCommand {
        name: "crash",
        takes: "[--every N] [--how HOW] … | campaign [--kills N] …",
        about: "kill the binary at every write, sync and rename, resume it, and report what does not hold; --errors all: fail them; \
                campaign: many runs at once, random kills, saves beside runs, full disks",
        run: crash::run,
    },
    XtaskCommand {
        name: "size",
        takes: "[--binary PATH | --lines]",
        about: "print the size of the shipped binary by section and by crate, and the lines of product code by crate; \
                --binary: of a built binary with symbols; --lines: the lines alone",
        run: size::run,
    },
    XtaskCommand {
        name: "cross",
        takes: "",
        about: "build for aarch64 and run unit tests and the demo under qemu; docs/aarch64.md lists what it needs",
        run: |args| {
            no_arguments("cross", args)?;
            cross::run()
        },
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    let Some((name, rest)) = args.split_first() else {
        print!("{}", overview());
        return Ok(());
    };
    if matches!(name.as_str(), "help" | "-h" | "--help") {
        print!("{}", overview());
        return Ok(());
    }
    match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => (command.run)(rest),
        None => bail!(
            "{}",
            unknown("command", name, COMMANDS.iter().map(|command| command.name))
        ),
    }
}

fn overview() -> String {
    let mut text = String::from("cargo xtask COMMAND\n\n");
    for command in COMMANDS {
        let usage = format!("{} {}", command.name, command.takes);
        text.push_str(&format!("  {:<40}{}\n", usage.trim_end(), command.about));
    }
    text
}

/// Returns the message for an unknown name, with the nearest known one.
fn unknown<'a>(what: &str, given: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let near = known
        .clone()
        .max_by(|a, b| strsim::jaro_winkler(a, given).total_cmp(&strsim::jaro_winkler(b, given)));
    match near.filter(|near| strsim::jaro_winkler(near, given) > 0.7) {
        Some(near) => format!("there is no {what} `{given}`; did you mean `{near}`?"),
        None => format!(
            "there is no {what} `{given}`; there are: {}",
            known.collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Parses the option that selects the agents of the conformance kit; `others` are options that the caller handles.
fn kit_agents(args: &[String], others: &[&str]) -> Result<kit::KitAgents> {
    let known = || {
        ["--agents", "--all-agents"]
            .into_iter()
            .chain(others.iter().copied())
    };
    match args {
        [] => Ok(kit::KitAgents::Ours),
        [only] => kit::KitAgents::flag(only).with_context(|| unknown("option", only, known())),
        [_, other, ..] => bail!("{}", unknown("option", other, known())),
    }
}

fn no_arguments(command: &str, args: &[String]) -> Result<()> {
    ensure!(
        args.is_empty(),
        "`cargo xtask {command}` takes no arguments, not `{}`",
        args.join(" ")
    );
    Ok(())
}

fn schema() -> Result<()> {
    let (root, path) = (cargo::root()?, "crates/windlass-core/schema/event.json");
    let args = "run --quiet --locked -p windlass-core --example schema";
    let printed = cargo::command(args.split(' '))
        .current_dir(&root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cargo could not be started")?;
    ensure!(
        printed.status.success(),
        "{path} could not be made (see above)"
    );
    let before = std::fs::read(root.join(path)).unwrap_or_default();
    std::fs::write(root.join(path), &printed.stdout)
        .with_context(|| format!("cannot write {path}"))?;
    say_written(path, before == printed.stdout);
    Ok(())
}

/// Tests render these files, because they can access private items of the command line; here they also write them.
fn reference() -> Result<()> {
    const FILES: [&str; 3] = [
        "docs/reference.md",
        "docs/demo.svg",
        "crates/windlass-http/openapi.json",
    ];
    let root = cargo::root()?;
    let read = || FILES.map(|path| std::fs::read(root.join(path)).unwrap_or_default());
    let before = read();
    let args = "test --quiet --locked -p windlass-cli --bin windlass --test it -- the_reference_is_up_to_date \
                the_picture_in_the_readme_matches_the_demo";
    let status = cargo::command(args.split_whitespace())
        .current_dir(&root)
        .env("WINDLASS_WRITE_REFERENCE", "1")
        .stdout(std::process::Stdio::null())
        .status()
        .context("cargo could not be started")?;
    ensure!(
        status.success(),
        "{} could not be written (see above)",
        FILES.join(" and ")
    );
    let status = cargo::command([
        "test",
        "--quiet",
        "--locked",
        "-p",
        "windlass-http",
        "--test",
        "openapi",
    ])
    .current_dir(&root)
    .env("WINDLASS_WRITE_REFERENCE", "1")
    .stdout(std::process::Stdio::null())
    .status()
    .context("cargo could not be started")?;
    ensure!(
        status.success(),
        "the OpenAPI document could not be written (see above)"
    );
    for (path, same) in FILES.iter().zip(before.iter().zip(&read())) {
        say_written(path, same.0 == same.1);
    }
    Ok(())
}

fn say_written(path: &str, same: bool) {
    let what = if same {
        "is unchanged"
    } else {
        "is new: review the difference"
    };
    println!("{path} {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_unknown(given: &str, expect: &str) {
        let err = dispatch(&[given.to_owned()])
            .map_or_else(|err| err.to_string(), |()| "it ran".to_owned());
        assert!(err.contains(expect), "{err}");
    }

    #[test]
    fn an_unknown_command_names_the_nearest() {
        check_unknown("tset", "did you mean `test`?");
        check_unknown("schemas", "did you mean `schema`?");
        check_unknown("zzz", "there are: test, bench, schema");
    }

    #[track_caller]
    fn check_with(args: &[&str], expect: Result<kit::KitAgents, &str>) {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let found = kit_agents(&args, &["--live-local"]).map_err(|err| err.to_string());
        match expect {
            Ok(expect) => assert_eq!(found, Ok(expect)),
            Err(expect) => assert!(
                found.as_ref().is_err_and(|err| err.contains(expect)),
                "{found:?}"
            ),
        }
    }

    #[test]
    fn one_option_says_with_whom_the_kit_runs() {
        check_with(&[], Ok(kit::KitAgents::Ours));
        check_with(&["--agents"], Ok(kit::KitAgents::Agents));
        check_with(&["--all-agents"], Ok(kit::KitAgents::AllAgents));
        check_with(&["--agent"], Err("did you mean `--agents`?"));
        check_with(
            &["--agents", "--live-lokal"],
            Err("did you mean `--live-local`?"),
        );
    }

    #[test]
    fn the_overview_lists_every_command() {
        let text = overview();
        assert!(
            COMMANDS.iter().all(|command| text.contains(command.about)),
            "{text}"
        );
    }

    #[test]
    fn a_command_without_arguments_refuses_some() {
        let err = dispatch(&["schema".into(), "now".into()])
            .map_or_else(|err| err.to_string(), |()| String::new());
        assert_eq!(err, "`cargo xtask schema` takes no arguments, not `now`");
    }
}
