//! Token usage that an agent reports, from the fields that agents use. The numbers of different agents are not
//! comparable, and the meter overrides them.

use serde_json::Value;
use windlass_core::budget::Usage;

/// The tokens of a turn, from the response to its prompt.
pub(super) fn of_turn(answer: &Value) -> Option<Usage> {
    let places = [&answer["usage"], &answer["_meta"]["quota"]["token_count"]];
    let tokens = places.into_iter().find(|tokens| tokens.is_object())?;
    let number = |names: &[&str]| {
        let mut all = names.iter().filter_map(|name| tokens[*name].as_u64());
        all.next().unwrap_or_default()
    };
    let mut usage = Usage {
        input: number(&["inputTokens", "input_tokens"]),
        cache_read: number(&["cachedReadTokens", "cachedInputTokens"]),
        cache_write: number(&["cachedWriteTokens", "cacheWriteInputTokens"]),
        output: number(&["outputTokens", "output_tokens"]),
    };
    // Some agents include thinking tokens in the output, others count them separately. The total tells which.
    let thought = number(&["thoughtTokens", "reasoningOutputTokens"]);
    let sum = usage.total_input().saturating_add(usage.output);
    if thought > 0 && sum.saturating_add(thought) <= number(&["totalTokens", "total_tokens"]) {
        usage.output = usage.output.saturating_add(thought);
    }
    (usage != Usage::default()).then_some(usage)
}

/// The model of a turn, if it was a single one.
pub(super) fn model_of_turn(answer: &Value) -> Option<String> {
    match answer["_meta"]["quota"]["model_usage"]
        .as_array()?
        .as_slice()
    {
        [one] => one["model"].as_str().map(str::to_owned),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(answer: &Value, numbers: Option<[u64; 4]>) {
        let usage = of_turn(answer).map(|usage| {
            [
                usage.input,
                usage.cache_read,
                usage.cache_write,
                usage.output,
            ]
        });
        assert_eq!(usage, numbers, "{answer}");
    }

    #[test]
    fn usage_is_found_in_the_fields_of_each_agent() {
        let beside = json!({ "inputTokens": 200, "outputTokens": 20, "totalTokens": 1230, "thoughtTokens": 10,
            "cachedReadTokens": 1000 });
        check(&json!({ "usage": beside }), Some([200, 1000, 0, 30]));
        let within = json!({ "totalTokens": 2460, "inputTokens": 400, "cachedReadTokens": 2000, "outputTokens": 60,
            "thoughtTokens": 20 });
        check(&json!({ "usage": within }), Some([400, 2000, 0, 60]));
        let meta = json!({ "quota": { "token_count": { "input_tokens": 4800, "output_tokens": 120 },
            "model_usage": [{ "model": "m" }] } });
        let answer = json!({ "stopReason": "end_turn", "_meta": meta });
        check(&answer, Some([4800, 0, 0, 120]));
        assert_eq!(model_of_turn(&answer).as_deref(), Some("m"));
        check(&json!({ "stopReason": "end_turn" }), None);
        check(
            &json!({ "usage": null, "_meta": { "quota": { "token_count": null } } }),
            None,
        );
        check(
            &json!({ "usage": { "inputTokens": "many", "outputTokens": -1 } }),
            None,
        );
    }
}
