//! What a person can set for a program of their own that does one prompt and ends. A key that is not here is an error.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::fields::Fields;
use super::program::{Output, Program};
use crate::filling::{EVERY_CLIENT, StartTexts, owned};

/// The options of one program; see [`Program`] for the words in braces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CliOptions {
    /// What it is called. Absent: as its command.
    pub name: Option<String>,
    /// The program, with whoever runs it in front.
    pub command: Vec<String>,
    /// Its words.
    pub args: Vec<String>,
    /// Further words with which it goes on with an earlier conversation.
    pub resume_args: Vec<String>,
    /// Variables for it.
    pub env: BTreeMap<String, String>,
    /// The model to tell it.
    pub model: Option<String>,
    /// What it prints. Absent: its answer in words.
    pub output: Format,
    /// What stands where in its lines.
    pub fields: Fields,
    /// Variables that point it at the run's model endpoint. Absent: those of every client that is known.
    pub point_at: Option<BTreeMap<String, String>>,
    /// Files to put into its home, by their path there.
    pub home_files: BTreeMap<String, String>,
}

/// What a program prints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Its answer, in words.
    #[default]
    Text,
    /// JSON lines.
    Jsonl,
}

impl CliOptions {
    /// The program that they make.
    pub fn program(self) -> Result<Program, String> {
        let output = match self.output {
            Format::Text if self.fields != Fields::default() => {
                return Err("`fields` are for lines of JSON; set `output = \"jsonl\"`".to_owned());
            }
            Format::Text => Output::Text,
            Format::Jsonl if self.fields.text.is_none() && self.fields.delta.is_none() => {
                return Err(
                    "lines of JSON need `fields.text` or `fields.delta`: where its words stand"
                        .to_owned(),
                );
            }
            Format::Jsonl => Output::Lines(Box::new(self.fields)),
        };
        let own = || {
            self.command
                .last()
                .and_then(|word| word.rsplit('/').next())
                .unwrap_or_default()
                .to_owned()
        };
        Ok(Program {
            name: self.name.unwrap_or_else(own),
            command: self.command,
            args: self.args,
            resume_args: self.resume_args,
            texts: StartTexts {
                env: self.env,
                point_at: self.point_at.unwrap_or_else(|| owned(EVERY_CLIENT)),
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
    fn the_words_say_where_the_prompt_goes() {
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
    fn what_cannot_work_is_said_before_anything_starts() {
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
            Err("where its words stand"),
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
