//! The user's options for a program that handles one prompt and exits. Unknown keys are errors.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::fields::Fields;
use super::program::{OneShotProgram, ProgramOutput};
use crate::placeholders::{COMMON_CLIENT_ENV, LaunchTexts, owned};

/// The options of one program. [`OneShotProgram`] documents the placeholders.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CliOptions {
    /// Default: the name of the command.
    pub name: Option<String>,
    /// The program, after an interpreter if it needs one.
    pub command: Vec<String>,
    pub args: Vec<String>,
    /// Additional arguments that resume an earlier conversation.
    pub resume_args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub model: Option<String>,
    /// The output format. Default: text.
    pub output: CliOutputFormat,
    /// The positions of values in JSON lines.
    pub fields: Fields,
    /// Variables for the run's model endpoint. Default: those of all known clients.
    pub point_at: Option<BTreeMap<String, String>>,
    /// Files in the program's home, by their path there.
    pub home_files: BTreeMap<String, String>,
}

/// The output format of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CliOutputFormat {
    /// The answer as plain text.
    #[default]
    Text,
    /// One JSON value per line.
    Jsonl,
}

impl CliOptions {
    /// The description of the program.
    pub fn program(self) -> Result<OneShotProgram, String> {
        let output = match self.output {
            CliOutputFormat::Text if self.fields != Fields::default() => {
                return Err("`fields` needs JSON lines; set `output = \"jsonl\"`".to_owned());
            }
            CliOutputFormat::Text => ProgramOutput::Text,
            CliOutputFormat::Jsonl if self.fields.text.is_none() && self.fields.delta.is_none() => {
                return Err(
                    "JSON lines need `fields.text` or `fields.delta`, the position of the text"
                        .to_owned(),
                );
            }
            CliOutputFormat::Jsonl => ProgramOutput::Lines(Box::new(self.fields)),
        };
        let own = || {
            self.command
                .last()
                .and_then(|word| word.rsplit('/').next())
                .unwrap_or_default()
                .to_owned()
        };
        Ok(OneShotProgram {
            name: self.name.unwrap_or_else(own),
            command: self.command,
            args: self.args,
            resume_args: self.resume_args,
            texts: LaunchTexts {
                env: self.env,
                point_at: self.point_at.unwrap_or_else(|| owned(COMMON_CLIENT_ENV)),
                home_files: self.home_files,
                clear: Vec::new(),
            },
            model: self.model,
            output,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::OneShot;
    use super::super::program::PromptBy;
    use super::*;

    #[track_caller]
    fn check(options: &str, expect: Result<PromptBy, &str>) {
        let options: CliOptions = serde_json::from_str(options).unwrap();
        let made = options.program().and_then(|program| {
            let by = program.prompt_by();
            OneShot::new(program).map(|_| by)
        });
        match (made, expect) {
            (Ok(by), Ok(wanted)) => assert_eq!(by, wanted),
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (made, expect) => panic!("{made:?}, and not {expect:?}"),
        }
    }

    #[test]
    fn the_arguments_determine_where_the_prompt_goes() {
        check(r#"{"command":["a"]}"#, Ok(PromptBy::Stdin));
        check(
            r#"{"command":["a"],"args":["-p","{prompt}"]}"#,
            Ok(PromptBy::Argument),
        );
        check(
            r#"{"command":["a"],"args":["--file={prompt_file}"]}"#,
            Ok(PromptBy::File),
        );
        check(
            r#"{"command":["a"],"args":["{prompt}","{prompt_file}"]}"#,
            Err("not both"),
        );
    }

    #[test]
    fn unusable_options_are_refused_before_the_start() {
        check("{}", Err("set `command`"));
        check(
            r#"{"command":["a"],"args":["-m","{model}"]}"#,
            Err("no model was named"),
        );
        check(
            r#"{"command":["a"],"args":["-m","{model}"],"model":"m"}"#,
            Ok(PromptBy::Stdin),
        );
        check(
            r#"{"command":["a"],"fields":{"text":"a"}}"#,
            Err("output = \"jsonl\""),
        );
        check(
            r#"{"command":["a"],"output":"jsonl"}"#,
            Err("the position of the text"),
        );
        check(
            r#"{"command":["a"],"args":["{session}"]}"#,
            Err("a first prompt has no conversation"),
        );
        check(
            r#"{"command":["a"],"resume_args":["-c"]}"#,
            Err("it needs `{session}`"),
        );
        check(
            r#"{"command":["a"],"resume_args":["-r","{session}"]}"#,
            Err("`fields.session`"),
        );
        let whole = r#"{"command":["a"],"output":"jsonl","fields":{"text":"t","session":"s"},"resume_args":["{session}"]}"#;
        check(whole, Ok(PromptBy::Stdin));
    }
}
