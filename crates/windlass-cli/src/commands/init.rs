//! `init`: writes an instruction file and a settings file for a project, and trusts the settings for the person at the
//! terminal.

use std::io::IsTerminal;
use std::process::ExitCode;

use serde_json::{Value, json};
use windlass::core::workspace::Files;
use windlass::init::{InitFile, InitFileState, InitReport, plan_init, trust_init, write_init};

use super::trust::refuse_inside_a_run;
use crate::args::{InitArgs, OutputFormat};
use crate::command_error::CommandError;
use crate::exit;
use crate::process;
use crate::sanitize::json_line;
use windlass_text::sanitize::one_line;

pub(super) fn run(args: &InitArgs) -> Result<ExitCode, CommandError> {
    let root = process::open_workspace(args.cd.as_deref())?;
    let plan = plan_init(&root, args.force)?;
    let json = args.json || args.output_format != OutputFormat::Text;
    let mut trusted = false;
    if !args.dry_run {
        write_init(&root, &plan)?;
        trusted = is_a_person() && trust_init(&root, &plan, &process::load_settings(None)?)?;
    }
    Ok(exit::print(&match json {
        true => json_line(&report(&plan, args.dry_run, trusted)),
        false => text(
            &plan,
            args.dry_run,
            trusted,
            &root.root().display().to_string(),
        ),
    }))
}

/// Whether a person started the command at a terminal. Only a person may trust settings.
fn is_a_person() -> bool {
    std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal()
        && refuse_inside_a_run("change trust").is_ok()
}

fn report(plan: &InitReport, dry_run: bool, trusted: bool) -> Value {
    let mut value = json!(plan);
    value["dry_run"] = dry_run.into();
    value["trusted"] = trusted.into();
    value
}

fn text(plan: &InitReport, dry_run: bool, trusted: bool, root: &str) -> String {
    let mut text = String::new();
    for file in &plan.files {
        match (&file.text, dry_run) {
            (Some(content), true) => {
                text.push_str(&format!("{}:\n\n", heading(file)));
                for line in content.lines() {
                    text.push_str(format!("    {line}").trim_end());
                    text.push('\n');
                }
                text.push('\n');
            }
            _ => text.push_str(&format!("{}\n", heading(file))),
        }
    }
    let config = plan.files.last().is_some_and(|file| file.text.is_some());
    match (dry_run, config, trusted) {
        (true, ..) => text.push_str("nothing was written\n"),
        (false, true, true) => text.push_str(
            "the settings apply, because you wrote them: they are trusted until they change (`windlass trust show`)\n",
        ),
        (false, true, false) => text.push_str(&format!(
            "the settings of {} apply after you trust them: `windlass trust add`\n",
            one_line(root)
        )),
        (false, false, _) => {}
    }
    text
}

fn heading(file: &InitFile) -> String {
    let why = file.why.as_deref().unwrap_or_default();
    match file.state {
        InitFileState::New => format!("new       {}", file.path),
        InitFileState::Replaced => format!("replaced  {}", file.path),
        InitFileState::Kept => format!("kept      {}  ({})", file.path, one_line(why)),
    }
}
