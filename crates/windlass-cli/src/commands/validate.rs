//! `debug validate`: runs the built-in syntax check on rows of text and prints one verdict per row. A row has no earlier
//! version, so every error counts as new. It opens no other file and runs nothing.

use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::checks::{Checked, Language, Project, check};
use windlass::core::validator::Judgement;
use windlass_text::sanitize::plain;

use crate::args::ValidateArgs;
use crate::command_error::CommandError;
use crate::out::{self, say};
use crate::{commands::debug::each_line, exit};

/// A text to check.
#[derive(Debug, Deserialize)]
struct SyntaxRow {
    id: Value,
    lang: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    text_b64: Option<String>,
    /// The file name, if it determines the dialect: `a.mjs`, `tsconfig.json`.
    #[serde(default)]
    name: Option<String>,
}

/// The verdict on a row.
#[derive(Debug, Serialize)]
struct SyntaxVerdict {
    id: Value,
    verdict: Judgement,
    findings: Vec<SyntaxFinding>,
    validator: &'static str,
}

#[derive(Debug, Serialize)]
struct SyntaxFinding {
    line: u32,
    column: u32,
    message: String,
}

pub(super) fn run(args: &ValidateArgs) -> Result<ExitCode, CommandError> {
    let mut unreadable = false;
    each_line(&args.file, |number, line| {
        let row = line.and_then(|line| {
            serde_json::from_slice::<SyntaxRow>(line).map_err(|err| err.to_string())
        });
        match row.and_then(|row| Ok((bytes(&row)?, row))) {
            Ok((bytes, row)) => out::json(&judge(row, &bytes)),
            Err(why) => {
                unreadable = true;
                say!(
                    "line {number} is not a row of `id`, `lang` and `text` or `text_b64`: {}",
                    plain(&why)
                );
            }
        }
    })?;
    Ok(exit::after_output(if unreadable { exit::USAGE } else { 0 }))
}

fn bytes(row: &SyntaxRow) -> Result<Vec<u8>, String> {
    match (&row.text, &row.text_b64) {
        (Some(text), None) => Ok(text.as_bytes().to_vec()),
        (None, Some(coded)) => STANDARD
            .decode(coded.trim())
            .map_err(|err| format!("`text_b64` is not base64: {err}")),
        (Some(_), Some(_)) => Err("it has both `text` and `text_b64`".into()),
        (None, None) => Err("it has neither `text` nor `text_b64`".into()),
    }
}

fn judge(row: SyntaxRow, bytes: &[u8]) -> SyntaxVerdict {
    let checked = match Language::named(&row.lang) {
        Some(language) => {
            // A language such as `jsx` or `pyi` is also a file extension.
            let name = row
                .name
                .unwrap_or_else(|| format!("row.{}", row.lang.trim().to_ascii_lowercase()));
            // The name is used only if it makes the language more precise.
            let precise = Language::of(&name, bytes)
                .filter(|of| (language, *of) == (Language::Json, Language::Jsonc));
            check(
                precise.unwrap_or(language),
                &name,
                bytes,
                &Project::default(),
            )
            .settled()
        }
        None => {
            let known: Vec<_> = Language::all().map(Language::name).collect();
            Checked::Unsure(format!(
                "unknown language `{}`; the languages are {}",
                row.lang,
                known.join(", ")
            ))
        }
    };
    let (verdict, findings) = match checked {
        Checked::Flaws(flaws) if flaws.is_empty() => (Judgement::Pass, Vec::new()),
        Checked::Flaws(flaws) => {
            let found = |flaw: windlass::checks::Flaw| SyntaxFinding {
                line: flaw.line,
                column: flaw.column,
                message: flaw.message,
            };
            (Judgement::Fail, flaws.into_iter().map(found).collect())
        }
        Checked::Unsure(why) => (
            Judgement::Unverifiable,
            vec![SyntaxFinding {
                line: 0,
                column: 0,
                message: why,
            }],
        ),
    };
    SyntaxVerdict {
        id: row.id,
        verdict,
        findings,
        validator: "syntax",
    }
}
