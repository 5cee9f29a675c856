//! Checks of what was said: to the model, to the log, and to a person.

use serde_json::Value;

use crate::facts::Facts;
use crate::holds;
use crate::product::{self, WORDS};

pub(super) fn check(facts: &Facts<'_>, name: &str, post: &Value) -> Result<(), String> {
    let text = || {
        Ok::<_, String>(
            facts
                .place
                .filled(post["text"].as_str().ok_or("it gives no `text`")?),
        )
    };
    let output = facts.output();
    let short = |text: &str| text.chars().take(200).collect::<String>();
    // What a command says is only asked of one that ran.
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
            let pattern = post["regex"].as_str().ok_or("it gives no `regex`")?;
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
            let most = post["bytes"].as_u64().ok_or("it gives no `bytes`")?;
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

fn output_lacks(facts: &Facts<'_>, post: &Value, text: &str) -> Result<(), String> {
    let place = post["where"].as_str().unwrap_or("everything");
    let texts: Vec<String> = match place {
        "result" => {
            let results = facts
                .of("call_finished")
                .filter_map(|event| event["data"]["result"]["text"].as_str());
            results.map(str::to_owned).chain(stored(facts)).collect()
        }
        "log" => facts.logs(),
        "everything" => facts.everything(),
        other => return Err(format!("`{other}` is no place that is known here")),
    };
    holds(!texts.iter().any(|have| have.contains(text)), || {
        format!("it is in {place}")
    })
}

/// Results that are too long for the model are stored, and it can read them there.
fn stored(facts: &Facts<'_>) -> Vec<String> {
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

/// What reached a terminal, without what the product itself draws with.
fn undrawn(text: &str, colour: bool) -> String {
    let text = text.replace("\r\n", "\n");
    if !colour {
        return text;
    }
    let own = regex::Regex::new("\r?\u{1b}\\[2K|\u{1b}\\[[0-9;]*m");
    own.map_or(text.clone(), |own| own.replace_all(&text, "").into_owned())
}

fn terminal_safe(facts: &Facts<'_>) -> Result<(), String> {
    holds(!facts.screens.is_empty(), || "nothing was shown".to_owned())?;
    for screen in &facts.screens {
        let text = undrawn(&screen.text, screen.colour);
        if let Some(at) = text.find(drives_terminals) {
            let around: String = text[at..].chars().take(20).collect();
            return Err(format!("{} gets {around:?}", screen.view));
        }
    }
    Ok(())
}

/// What was shown when somebody was asked.
fn asked(facts: &Facts<'_>) -> Vec<String> {
    let shown = facts
        .screens
        .iter()
        .map(|screen| undrawn(&screen.text, screen.colour));
    shown
        .filter(|text| text.contains(product::PROMPT))
        .collect()
}

fn approval_shows(facts: &Facts<'_>, text: &str) -> Result<(), String> {
    let asked = asked(facts);
    // What is refused without a question hides nothing.
    if asked.is_empty() && facts.of("denied").next().is_some() {
        return Ok(());
    }
    holds(!asked.is_empty(), || "nobody was asked".to_owned())?;
    holds(asked.iter().all(|shown| shown.contains(text)), || {
        "it is not shown".to_owned()
    })
}

/// Characters nobody sees.
fn invisible(c: char) -> bool {
    turns_direction(c)
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}' | '\u{61c}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

fn marks_invisible(facts: &Facts<'_>) -> Result<(), String> {
    let hidden: Vec<char> = facts.text.chars().filter(|c| invisible(*c)).collect();
    holds(!hidden.is_empty(), || "the text hides nothing".to_owned())?;
    let asked = asked(facts);
    holds(!asked.is_empty(), || "nobody was asked".to_owned())?;
    for shown in &asked {
        holds(!shown.contains(invisible), || {
            "a character nobody sees is shown as it is".to_owned()
        })?;
        let lower = shown.to_lowercase();
        for c in &hidden {
            let named =
                lower.contains(&format!("{:x}", u32::from(*c))) || shown.contains('\u{fffd}');
            holds(named, || {
                format!("nothing stands where U+{:04X} was", u32::from(*c))
            })?;
        }
    }
    Ok(())
}
