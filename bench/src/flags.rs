//! Parses the command line of the benchmark programs: `--name value` pairs. Every flag must be known, and every value
//! must parse.

use std::str::FromStr;

use anyhow::{Context as _, Result, bail};

/// The flags of a command line.
#[derive(Debug, Default)]
pub struct Flags {
    given: Vec<(String, String)>,
}

impl Flags {
    /// Parses the program's own command line; only `known` names are allowed.
    pub fn from_env(known: &[&str]) -> Result<Self> {
        Self::parse(std::env::args().skip(1), known)
    }

    /// Parses pairs of a name and a value.
    pub fn parse(mut args: impl Iterator<Item = String>, known: &[&str]) -> Result<Self> {
        let mut given = Vec::new();
        while let Some(name) = args.next() {
            if !known.contains(&name.as_str()) {
                bail!("unknown flag `{name}`; known: {}", known.join(", "));
            }
            let value = args
                .next()
                .with_context(|| format!("`{name}` needs a value"))?;
            given.push((name, value));
        }
        Ok(Self { given })
    }

    /// Returns the value of a flag, if it was given.
    pub fn get<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let Some((_, value)) = self.given.iter().rev().find(|(given, _)| given == name) else {
            return Ok(None);
        };
        let Ok(value) = value.parse() else {
            bail!("`{value}` is not a valid value for `{name}`")
        };
        Ok(Some(value))
    }

    /// Returns the value of a required flag.
    pub fn need<T: FromStr>(&self, name: &str) -> Result<T> {
        self.get(name)?
            .with_context(|| format!("`{name}` is missing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expect: &str) {
        let args = line.split_whitespace().map(str::to_owned);
        let said = Flags::parse(args, &["--steps", "--url"])
            .and_then(|flags| flags.need::<u32>("--steps"));
        assert_eq!(
            said.map_or_else(|err| err.to_string(), |steps| steps.to_string()),
            expect
        );
    }

    #[test]
    fn flags_are_known_and_their_values_usable() {
        check("--url x --steps 3 --steps 4", "4");
        check("--url x", "`--steps` is missing");
        check("--steps", "`--steps` needs a value");
        check("--steps many", "`many` is not a valid value for `--steps`");
        check("--step 3", "unknown flag `--step`; known: --steps, --url");
    }
}
