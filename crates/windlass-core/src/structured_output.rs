//! Extracts the JSON value from an answer that was supposed to be one. Models often put it into a code fence or between
//! sentences despite their instructions, and another request costs as much as the first.

use serde_json::Value;

/// Maximum number of values that are tried in one answer.
const MAX_TRIED: usize = 64;

/// The first JSON value that `fits` accepts: the whole answer, the content of a code fence, or an object or array in
/// the text. If there is none, the error gives the reason.
///
/// ```
/// use windlass_core::structured_output::first_json_that_fits;
///
/// let answer = "Here it is:\n```json\n{\"n\": 1}\n```\nDone.";
/// let value = first_json_that_fits(answer, |_| Ok(())).unwrap();
/// assert_eq!(value["n"], 1);
/// ```
pub fn first_json_that_fits(
    answer: &str,
    fits: impl Fn(&Value) -> Result<(), String>,
) -> Result<Value, String> {
    let answer = answer.trim();
    let mut why = match serde_json::from_str(answer) {
        Ok(value) => match fits(&value) {
            Ok(()) => return Ok(value),
            Err(why) => Some(why),
        },
        Err(_) => None,
    };
    let fences = answer.split("```").skip(1).step_by(2).map(after_language);
    let inside = fences.filter_map(|text| serde_json::from_str(text.trim()).ok());
    for value in inside.take(MAX_TRIED).chain(JsonValues::new(answer)) {
        match fits(&value) {
            Ok(()) => return Ok(value),
            Err(not) => why = why.or(Some(not)),
        }
    }
    Err(why.unwrap_or_else(|| {
        let wrong = serde_json::from_str::<Value>(answer).map(drop);
        wrong.map_or_else(|err| format!("it is not JSON ({err})"), |()| String::new())
    }))
}

/// The content of a code fence, without the name of its language.
fn after_language(fence: &str) -> &str {
    let (first, rest) = fence.split_once('\n').unwrap_or(("", fence));
    let is_name = first.chars().all(char::is_alphanumeric);
    if is_name { rest } else { fence }
}

/// Iterates over the JSON objects and arrays in a text.
struct JsonValues<'a> {
    rest: &'a str,
    tried: usize,
}

impl<'a> JsonValues<'a> {
    fn new(rest: &'a str) -> Self {
        Self { rest, tried: 0 }
    }
}

impl Iterator for JsonValues<'_> {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        while self.tried < MAX_TRIED {
            self.tried += 1;
            self.rest = &self.rest[self.rest.find(['{', '['])?..];
            let mut values = serde_json::Deserializer::from_str(self.rest).into_iter();
            let value = values.next();
            let end = values.byte_offset();
            match value {
                Some(Ok(value)) => {
                    self.rest = &self.rest[end..];
                    return Some(value);
                }
                _ => self.rest = &self.rest[1..],
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_n(value: &Value) -> Result<(), String> {
        match value.get("n") {
            Some(_) => Ok(()),
            None => Err("`n` is missing".to_owned()),
        }
    }

    #[track_caller]
    fn check(answer: &str, expect: Result<i64, &str>) {
        let found = first_json_that_fits(answer, has_n);
        let found = found.map(|value| value["n"].as_i64().unwrap_or(-1));
        assert_eq!(found, expect.map_err(str::to_owned), "{answer:.80}");
    }

    #[test]
    fn the_first_value_that_fits_is_found_anywhere_in_the_answer() {
        check(r#" {"n":1} "#, Ok(1));
        check("```json\n{\"n\":1}\n```", Ok(1));
        check("Sure.\n\n```\n{\"n\":1}\n```\nThat is all.", Ok(1));
        check(r#"The answer is {"n":1}, as [asked] {for}."#, Ok(1));
        check(r#"First {"m":0}, then {"n":2}, then {"n":3}"#, Ok(2));
        check("```json\n{\"n\": \"a ``` b\"}\n```", Ok(-1));
        check(r#"{"m":0}"#, Err("`n` is missing"));
        check(r#"as in {"m":0}"#, Err("`n` is missing"));
        check(
            "none",
            Err("it is not JSON (expected ident at line 1 column 2)"),
        );
        check(
            &"[".repeat(10_000),
            Err("it is not JSON (recursion limit exceeded at line 1 column 128)"),
        );
    }
}
