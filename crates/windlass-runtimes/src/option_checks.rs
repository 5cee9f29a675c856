//! Checks of the user's options for agents that all adapters share. They refuse options that would undo the
//! restrictions of an agent.

use std::collections::BTreeMap;

/// Refuses arguments that the adapter sets itself. `ours` are options with their dashes.
pub(crate) fn check_args(args: &[String], ours: &[&str]) -> Result<(), String> {
    for arg in args {
        let option = arg
            .split_once('=')
            .map_or(arg.as_str(), |(option, _)| option);
        if ours.contains(&option) {
            return Err(format!(
                "`args` cannot contain `{option}`: Windlass sets it, or has an option for it"
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
                "`env` contains `{}`, which is not a valid name of a variable",
                name.escape_debug()
            ));
        }
        if ours.contains(&name.as_str()) {
            return Err(format!("`env` cannot set `{name}`: Windlass sets it"));
        }
    }
    Ok(())
}

/// The program of the options, or the default.
pub(crate) fn or_default_program(program: String, usual: &str) -> String {
    if program.is_empty() {
        usual.to_owned()
    } else {
        program
    }
}

/// Refuses an empty program name.
pub(crate) fn check_program(option: &str, program: &str, hint: &str) -> Result<(), String> {
    match program.trim() {
        "" => Err(format!("`{option}` is empty; name {hint}")),
        _ => Ok(()),
    }
}

/// Refuses an effort that is not a plain word.
pub(crate) fn check_effort(effort: Option<&str>) -> Result<(), String> {
    match effort {
        Some(effort) if effort.is_empty() || !effort.bytes().all(|b| b.is_ascii_lowercase()) => {
            Err(format!(
                "`effort` is `{effort}`; give a word such as `low`, `medium` or `high`"
            ))
        }
        _ => Ok(()),
    }
}

/// Refuses a limit of zero.
pub(crate) fn check_limit(option: &str, limit: Option<u32>) -> Result<(), String> {
    match limit {
        Some(0) => Err(format!(
            "`{option}` is 0, which allows no work; remove it or set a higher value"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    /// Parses and checks options. The error must contain `expect`; an empty `expect` means success.
    #[track_caller]
    pub(crate) fn check_options<O: DeserializeOwned>(
        options: Value,
        check: impl FnOnce(O) -> Result<(), String>,
        expect: &str,
    ) {
        let text = match serde_json::from_value::<O>(options) {
            Ok(options) => check(options).err().unwrap_or_default(),
            Err(err) => err.to_string(),
        };
        assert!(
            text.contains(expect) && text.is_empty() == expect.is_empty(),
            "{text}"
        );
    }
}
