//! `prompt`: prints the instructions that the model gets before the first message, or their layers.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use windlass::core::budget::Estimator;
use windlass::core::workspace::Files;
use windlass::instructions::InstructionOwner;
use windlass_text::sanitize::{one_line, plain};

use crate::args::PromptArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::process;
use crate::sanitize::json_line;
use windlass::flags::{ContractFlags, LimitFlags};
use windlass::instructions::{Prompt, PromptInputs};
use windlass::program_tools::offered_tools;
use windlass::settings::Settings;
use windlass::{contract, wire};

pub(super) fn run(args: &PromptArgs) -> Result<ExitCode, CommandError> {
    let root = Arc::new(process::open_workspace(args.cd.as_deref())?);
    let mut settings = process::load_settings(Some(root.root()))?;
    settings.add_flags(&args.agent(), &LimitFlags::default())?;
    let isolated = !args.in_place;
    let redactor = wire::redactor(&settings)?;
    let checks = ContractFlags {
        validate: args.validate.clone(),
        ..ContractFlags::default()
    };
    let validators =
        contract::validators(&settings, &checks, &root, || Ok(redactor.clone()), isolated)?;
    let inputs = PromptInputs {
        settings: &settings,
        root: &root,
        cd: args.cd.as_deref(),
        isolated,
        validators: &validators,
        redactor: redactor.as_ref(),
    };
    let prompt = Prompt::of(&inputs);
    let whole = format!("{}{}", prompt.system(), prompt.instructions.opening);
    match (args.layers, args.json) {
        (false, false) => Ok(exit::print(&plain(&whole))),
        (false, true) => Ok(exit::print(&json_line(&json!({ "system": whole })))),
        (true, as_json) => Ok(exit::print(&rows(&prompt, &settings, as_json)?)),
    }
}

/// Lists the layers with their sizes, and the skipped files.
fn rows(prompt: &Prompt, settings: &Settings, as_json: bool) -> Result<String, CommandError> {
    let tokens = |bytes: usize| Estimator::default().tokens(bytes);
    let mut rows: Vec<(&str, String, usize)> = Vec::new();
    for layer in &prompt.layers {
        rows.push((
            layer.kind,
            layer.path.clone().unwrap_or_default(),
            layer.text.len(),
        ));
    }
    if !prompt.instructions.opening.is_empty() {
        rows.push(("opening", String::new(), prompt.instructions.opening.len()));
    }
    let tools = offered_tools(settings)?;
    let described = tools
        .iter()
        .map(|tool| tool.spec().description.len() + tool.spec().schema.to_string().len());
    rows.push(("tools", format!("{} tools", tools.len()), described.sum()));
    let whose = |whose: InstructionOwner| match whose {
        InstructionOwner::Managed => "managed",
        InstructionOwner::User => "user",
        InstructionOwner::Project => "project",
    };
    let mut text = String::new();
    if as_json {
        for (kind, path, bytes) in &rows {
            let path = Some(path).filter(|path| !path.is_empty());
            text.push_str(&json_line(
                &json!({ "layer": kind, "file": path, "bytes": bytes, "tokens": tokens(*bytes) }),
            ));
        }
        for skipped in &prompt.skipped {
            let row = json!({ "layer": whose(skipped.owner), "file": skipped.path, "skipped": skipped.why });
            text.push_str(&json_line(&row));
        }
        return Ok(text);
    }
    for (kind, path, bytes) in &rows {
        let line = format!(
            "{kind:<12} {bytes:>8} bytes  about {:>6} tokens  {}",
            tokens(*bytes),
            one_line(path)
        );
        text.push_str(&format!("{}\n", line.trim_end()));
    }
    for skipped in &prompt.skipped {
        let (path, why) = (one_line(&skipped.path), one_line(&skipped.why));
        text.push_str(&format!(
            "left out     {path} ({}): {why}\n",
            whose(skipped.owner)
        ));
    }
    Ok(text)
}
