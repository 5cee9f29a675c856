//! `tools`: lists the tools that the model can call.

use std::process::ExitCode;

use windlass::core::workspace::Files;
use windlass::settings::nearest;

use crate::args::ToolsArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::process;
use windlass::program_tools::all_tools;
use windlass::transcript::first_line;

pub(super) fn run(args: &ToolsArgs) -> Result<ExitCode, CommandError> {
    let root = process::open_workspace(None).ok();
    let settings = process::load_settings(root.as_ref().map(Files::root))?;
    let tools = all_tools(&settings)?;
    let mut text = String::new();
    match &args.name {
        Some(name) => {
            let Some(tool) = tools.iter().find(|tool| tool.spec().name == *name) else {
                let error = CommandError::usage(format!("there is no tool `{name}`"));
                let near = nearest(name, tools.iter().map(|tool| tool.spec().name.as_str()));
                return Err(match near {
                    Some(near) => error.hint(format!("did you mean `{near}`?")),
                    None => error.hint("`windlass tools` lists the tools"),
                });
            };
            let spec = tool.spec();
            if args.json {
                text.push_str(&crate::sanitize::json_line(spec));
            } else {
                text.push_str(&format!("{}\n\n{:#}\n", spec.description, spec.schema));
            }
        }
        None => {
            for tool in &tools {
                let spec = tool.spec();
                if args.json {
                    text.push_str(&crate::sanitize::json_line(spec));
                } else {
                    let effect = format!("{:?}", spec.effect).to_lowercase();
                    text.push_str(&format!(
                        "{:<16} {effect:<8} {}\n",
                        spec.name,
                        first_line(&spec.description, 90)
                    ));
                }
            }
        }
    }
    Ok(exit::print(&text))
}
