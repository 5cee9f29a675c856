//! Words and variables that a person adds to an agent's start, and which of them would undo what holds the agent.

use std::collections::BTreeMap;

/// Refuses words that say something the adapter says itself. `ours` are options, with their dashes.
pub(crate) fn check_args(args: &[String], ours: &[&str]) -> Result<(), String> {
    for arg in args {
        let option = arg
            .split_once('=')
            .map_or(arg.as_str(), |(option, _)| option);
        if ours.contains(&option) {
            return Err(format!(
                "`args` may not have `{option}`: Windlass says it itself, or has an option for it"
            ));
        }
    }
    Ok(())
}

/// Refuses variables that the adapter or the envelope sets.
pub(crate) fn check_env(env: &BTreeMap<String, String>, ours: &[&str]) -> Result<(), String> {
    for name in env.keys() {
        let plain = !name.is_empty() && !name.contains(['=', '\0']);
        if !plain {
            return Err(format!(
                "`env` has a variable with the name `{}`, which cannot be one",
                name.escape_debug()
            ));
        }
        if ours.contains(&name.as_str()) {
            return Err(format!(
                "`env` may not set `{name}`: Windlass sets it itself"
            ));
        }
    }
    Ok(())
}
