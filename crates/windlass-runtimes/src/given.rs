//! What a person chooses about an agent, and which of it would undo what holds the agent. The checks that the options of
//! all adapters share.

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

/// The program that was named, or the usual one.
pub(crate) fn or_usual(program: String, usual: &str) -> String {
    if program.is_empty() {
        usual.to_owned()
    } else {
        program
    }
}

/// Refuses an empty name of a program.
pub(crate) fn check_program(option: &str, program: &str, hint: &str) -> Result<(), String> {
    match program.trim() {
        "" => Err(format!("`{option}` is empty; name {hint}")),
        _ => Ok(()),
    }
}

/// Refuses an effort that no model has a word for.
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

/// Refuses a limit of nothing.
pub(crate) fn check_limit(option: &str, limit: Option<u32>) -> Result<(), String> {
    match limit {
        Some(0) => Err(format!(
            "`{option}` is 0, so that nothing could be done; leave it away or give more"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    /// Reads options and checks them: what is wrong holds these words, and nothing is wrong where there are none.
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
