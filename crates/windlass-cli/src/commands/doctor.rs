//! `doctor`: checks whether a run can work on this machine, and prints the missing parts and their fixes.

mod apparmor;
mod apparmor_command;
mod report;

use std::process::ExitCode;

use windlass::doctor::diagnose;

use super::block_on;
use crate::args::DoctorArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::process;
use crate::sanitize::json_line;

pub(super) fn run(args: &DoctorArgs) -> Result<ExitCode, CommandError> {
    if args.install_apparmor {
        return apparmor_command::install(args.yes);
    }
    if args.remove_apparmor {
        return apparmor_command::remove(args.yes);
    }
    let (environment, notices) = (process::environment(), process::notices());
    let probe = args.probe.as_deref();
    let report = block_on(async { Ok(diagnose(None, environment, probe, &notices).await?) })?;
    let printed = exit::print(&match args.json {
        true => json_line(&report),
        false => report::text(&report, args.all),
    });
    Ok(match report.is_broken() {
        true => ExitCode::from(exit::FAILED),
        false => printed,
    })
}
