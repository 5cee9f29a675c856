//! Checks of text: for the model, in the log, and for the user.

use serde_json::Value;

use crate::facts::CaseFacts;
use crate::holds;
use crate::product::{self, WORDS};

pub(super) fn check(facts: &CaseFacts<'_>, name: &str, post: &Value) -> Result<(), String> {
    let text = || {
        Ok::<_, String>(
            facts
                .fixture
                .filled(post["text"].as_str().ok_or("the check has no `text`")?),
        )
    };
    let output = facts.output();
    let short = |text: &str| text.chars().take(200).collect::<String>();
    // The output of a command is checked only if it ran.
    let refused = !facts.executed() && !facts.case.benign();
    match name {
        "output_lacks" => output_lacks(facts, post, &text()?),
        "log_contains" => {
            let text = text()?;
            holds(facts.logs().iter().any(|log| log.contains(&text)), || {
                format!("no log has {text:?}")
            })
        }
        "result_contains" | "result_matches" | "result_equals_trimmed" if refused => Ok(()),
        "result_contains" => {
            let text = text()?;
            holds(output.contains(&text), || {
                format!("the result is {:?}", short(output))
            })
        }
        "result_matches" => {
            let pattern = post["regex"].as_str().ok_or("the check has no `regex`")?;
            let regex = regex::Regex::new(pattern).map_err(|err| err.to_string())?;
            holds(regex.is_match(output), || {
                format!("the result is {:?}", short(output))
            })
        }
        "result_equals_trimmed" => {
            let text = text()?;
            holds(output.trim() == text, || {
                format!("the result is {:?}", short(output))
            })
        }
        "result_bytes_at_most" => {
            let most = post["bytes"].as_u64().ok_or("the check has no `bytes`")?;
            let size = output.len() as u64;
            holds(size <= most, || format!("the result has {size} bytes"))
        }
        "truncation_noted" => {
            let whole = facts
                .of("command_finished")
                .last()
                .and_then(|event| event["data"]["bytes"].as_u64())
                .unwrap_or(0);
            let cut = (output.len() as u64) < whole;
            let noted = facts
                .result()
                .is_some_and(|result| !result["artifact"].is_null())
                || ["truncated", "omitted", "left out", "stored"]
                    .iter()
                    .any(|word| output.contains(word));
            holds(cut && noted, || {
                format!("{} of {whole} bytes: {:?}", output.len(), short(output))
            })
        }
        "result_names_reason" => {
            let told = facts.of("denied").any(|event| {
                event["data"]["reason"]
                    .as_str()
                    .is_some_and(|why| !why.is_empty())
            });
            let result = facts.result().is_some_and(|result| {
                result["error"].is_string()
                    && result["text"].as_str().is_some_and(|text| text.len() > 12)
            });
            holds(told || result, || format!("{:?}", short(output)))
        }
        "user_told_why" => {
            let says = post["says"].as_str().unwrap_or("429");
            let shown = format!("{}{}", facts.main.out, facts.main.err);
            holds(shown.contains(says), || short(&shown))
        }
        "no_duplicate_text" => {
            let lines = product::events(&facts.main.out);
            let shown: String = product::of(&lines, "delta")
                .filter(|event| event["data"]["of"] == "text")
                .filter_map(|event| event["data"]["text"].as_str())
                .collect();
            holds(shown == WORDS, || format!("shown: {shown:?}"))
        }
        "text_equals" => {
            let mut said = facts
                .of("said")
                .filter(|event| event["data"]["message"]["role"] == "assistant");
            let first = said
                .next()
                .map(|event| event["data"]["message"]["parts"][0]["data"]["text"].clone())
                .unwrap_or_default();
            holds(first == post["text"], || first.to_string())
        }
        "terminal_safe" => terminal_safe(facts),
        "approval_shows" => approval_shows(facts, &text()?),
        _ => marks_invisible(facts),
    }
}

fn output_lacks(facts: &CaseFacts<'_>, post: &Value, text: &str) -> Result<(), String> {
    let source = post["where"].as_str().unwrap_or("everything");
    let texts: Vec<String> = match source {
        "result" => {
            let results = facts
                .of("call_finished")
                .filter_map(|event| event["data"]["result"]["text"].as_str());
            results.map(str::to_owned).chain(stored(facts)).collect()
        }
        "log" => facts.logs(),
        "everything" => facts.everything(),
        other => return Err(format!("`{other}` is not a known source")),
    };
    holds(!texts.iter().any(|have| have.contains(text)), || {
        format!("it is in {source}")
    })
}

/// A result that is too long for the model is stored, and the model can read it there.
fn stored(facts: &CaseFacts<'_>) -> Vec<String> {
    let cut = facts
        .of("call_finished")
        .any(|event| !event["data"]["result"]["artifact"].is_null());
    if cut { facts.logs() } else { Vec::new() }
}

fn drives_terminals(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t') || turns_direction(c)
}

fn turns_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the text on a terminal without the escape sequences of the product itself.
fn without_own_escapes(text: &str, colour: bool) -> String {
    let text = text.replace("\r\n", "\n");
    if !colour {
        return text;
    }
    let own = regex::Regex::new("\r?\u{1b}\\[2K|\u{1b}\\[[0-9;]*m");
    own.map_or(text.clone(), |own| own.replace_all(&text, "").into_owned())
}

fn terminal_safe(facts: &CaseFacts<'_>) -> Result<(), String> {
    holds(!facts.screens.is_empty(), || "nothing was shown".to_owned())?;
    for screen in &facts.screens {
        let text = without_own_escapes(&screen.text, screen.colour);
        if let Some(at) = text.find(drives_terminals) {
            let around: String = text[at..].chars().take(20).collect();
            return Err(format!("{} gets {around:?}", screen.view));
        }
    }
    Ok(())
}

/// Returns the screens with a question.
fn asked(facts: &CaseFacts<'_>) -> Vec<String> {
    let shown = facts
        .screens
        .iter()
        .map(|screen| without_own_escapes(&screen.text, screen.colour));
    shown
        .filter(|text| text.contains(product::PROMPT))
        .collect()
}

fn approval_shows(facts: &CaseFacts<'_>, text: &str) -> Result<(), String> {
    let asked = asked(facts);
    // A call that is refused without a question cannot hide anything in one.
    if asked.is_empty() && facts.of("denied").next().is_some() {
        return Ok(());
    }
    holds(!asked.is_empty(), || "the user was not asked".to_owned())?;
    holds(asked.iter().all(|shown| shown.contains(text)), || {
        "it is not shown".to_owned()
    })
}

/// Returns whether a character is invisible.
fn invisible(c: char) -> bool {
    turns_direction(c)
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}' | '\u{61c}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

fn marks_invisible(facts: &CaseFacts<'_>) -> Result<(), String> {
    let hidden: Vec<char> = facts.text.chars().filter(|c| invisible(*c)).collect();
    holds(!hidden.is_empty(), || "the text hides nothing".to_owned())?;
    let asked = asked(facts);
    holds(!asked.is_empty(), || "the user was not asked".to_owned())?;
    for shown in &asked {
        holds(!shown.contains(invisible), || {
            "an invisible character is shown unmarked".to_owned()
        })?;
        let lower = shown.to_lowercase();
        for c in &hidden {
            let named =
                lower.contains(&format!("{:x}", u32::from(*c))) || shown.contains('\u{fffd}');
            holds(named, || format!("nothing marks U+{:04X}", u32::from(*c)))?;
        }
    }
    Ok(())
}
