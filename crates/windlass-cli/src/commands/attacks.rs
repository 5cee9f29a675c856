//! `debug attacks`: holds this very binary to cases of attack and of everyday work, the project's or anybody's own.
//! It judges nothing itself; the driver does.

use std::process::ExitCode;

use windlass_corpus::Options;

use crate::args::AttacksArgs;
use crate::failure::Failure;
use crate::{exit, out};

pub(super) fn run(args: AttacksArgs) -> Result<ExitCode, Failure> {
    let json = args.json;
    let options = Options {
        binary: std::env::current_exe()?,
        paths: args.paths,
        categories: args.category,
        ids: args.id,
        jobs: args.jobs,
        scratch: args.scratch,
    };
    let tell = |row: &windlass_corpus::Row| {
        let line = if json {
            row.json().to_string()
        } else {
            row.line()
        };
        out::out(&format!("{line}\n"));
    };
    let report = windlass_corpus::run(&options, &tell).map_err(Failure::usage)?;
    let summary = if json {
        format!("{}\n", report.summary_json())
    } else {
        format!("\n{}", report.summary())
    };
    out::out(&summary);
    Ok(exit::unless_broken(if report.passed() {
        0
    } else {
        exit::FAILED
    }))
}
