//! Checks of the HTTP interface: the responses, the ids of sessions, and the addresses of the server.

use std::collections::HashMap;
use std::net::IpAddr;

use serde_json::Value;

use crate::facts::CaseFacts;
use crate::holds;
use crate::http_client::HttpReply;
use crate::product;
use crate::product::http::answered;

pub(super) fn check(facts: &CaseFacts<'_>, name: &str, post: &Value) -> Result<(), String> {
    match name {
        "listens_only_on" => listens_only_on(facts, post),
        "ids_random" => ids_random(facts, post),
        "http_status" => {
            let wanted = statuses(post);
            every_reply(facts, |reply| wanted.contains(&reply.status))
        }
        "header_not" => {
            let name = post["name"].as_str().ok_or("the check has no `name`")?;
            let name = name.to_lowercase();
            let forbidden: Vec<&str> = crate::words(&post["one_of"]).collect();
            every_reply(facts, |reply| {
                reply.values(&name).all(|value| !forbidden.contains(&value))
            })
        }
        // A test of the product checks how its source compares tokens; from outside, all similar tokens are refused.
        "source_uses_constant_time_compare" => every_reply(facts, |reply| reply.status == 401),
        "second_status" => {
            let wanted = statuses(post);
            every_round(facts, |round| {
                let (accepted, others): (Vec<_>, Vec<_>) =
                    round.replies.iter().partition(|reply| reply.is_success());
                accepted.len() == 1
                    && !others.is_empty()
                    && others.iter().all(|reply| wanted.contains(&reply.status))
            })
        }
        "single_decision_logged" => every_round(facts, |round| {
            let accepted: Vec<&str> = round
                .replies
                .iter()
                .zip(&round.decisions)
                .filter(|(reply, _)| reply.is_success())
                .map(|(_, decision)| decision.as_str())
                .collect();
            let logged: Vec<&str> = product::of(&round.events, "answered")
                .map(answered)
                .collect();
            let executed = product::of(&round.events, "call_started").count();
            accepted == logged
                && accepted.len() == 1
                && executed == usize::from(accepted == ["allow"])
        }),
        other => Err(format!("`{other}` is for tool servers")),
    }
}

fn statuses(post: &Value) -> Vec<u16> {
    let list = post["one_of"].as_array().into_iter().flatten();
    list.filter_map(|status| u16::try_from(status.as_u64()?).ok())
        .collect()
}

fn every_reply(facts: &CaseFacts<'_>, fits: impl Fn(&HttpReply) -> bool) -> Result<(), String> {
    let mut replies = facts
        .rounds
        .iter()
        .flat_map(|round| &round.replies)
        .peekable();
    holds(replies.peek().is_some(), || {
        "no request was sent over HTTP".to_owned()
    })?;
    match replies.find(|reply| !fits(reply)) {
        Some(wrong) => Err(described(wrong)),
        None => Ok(()),
    }
}

fn every_round(
    facts: &CaseFacts<'_>,
    fits: impl Fn(&crate::facts::HttpRound) -> bool,
) -> Result<(), String> {
    holds(!facts.rounds.is_empty(), || {
        "no request was sent over HTTP".to_owned()
    })?;
    match facts.rounds.iter().find(|round| !fits(round)) {
        Some(wrong) => {
            let replies: Vec<String> = wrong.replies.iter().map(described).collect();
            Err(format!("{:?}: {}", wrong.decisions, replies.join(", ")))
        }
        None => Ok(()),
    }
}

fn described(reply: &HttpReply) -> String {
    let body: String = reply.body.chars().take(200).collect();
    format!("status {}: {body}", reply.status)
}

fn listens_only_on(facts: &CaseFacts<'_>, post: &Value) -> Result<(), String> {
    let allowed: Vec<IpAddr> = crate::words(&post["addresses"])
        .filter_map(|address| address.parse().ok())
        .collect();
    let found = &facts.listening;
    let fits = !found.is_empty() && found.iter().all(|address| allowed.contains(address));
    holds(fits, || format!("it listens on {found:?}"))
}

/// Estimates how many bits of the ids are random, from the frequencies of the characters at each position: of the ids, and
/// of the differences between one id and the next.
fn ids_random(facts: &CaseFacts<'_>, post: &Value) -> Result<(), String> {
    let bits = post["bits"].as_f64().ok_or("the check has no `bits`")?;
    let replies = facts.rounds.iter().flat_map(|round| &round.replies);
    let ids: Vec<Vec<u8>> = replies
        .filter_map(|reply| {
            let id = reply.json()["id"].as_str()?.to_owned();
            // The part before the last dash is a time.
            Some(id.rsplit('-').next()?.as_bytes().to_vec())
        })
        .collect();
    every_reply(facts, |reply| {
        reply.is_success() && reply.json()["id"].is_string()
    })?;
    holds(ids.len() > 100, || format!("{} ids are too few", ids.len()))?;
    let distinct: std::collections::HashSet<&Vec<u8>> = ids.iter().collect();
    holds(distinct.len() == ids.len(), || {
        "an id was given twice".to_owned()
    })?;
    let steps: Vec<Vec<u8>> = ids
        .windows(2)
        .map(|pair| {
            pair[0]
                .iter()
                .zip(&pair[1])
                .map(|(one, next)| one ^ next)
                .collect()
        })
        .collect();
    for all in [&ids, &steps] {
        let found = entropy(all);
        holds(found >= bits, || {
            format!("the ids have {found:.1} random bits")
        })?;
    }
    Ok(())
}

/// Returns the sum of the entropies of all positions, in bits.
fn entropy(texts: &[Vec<u8>]) -> f64 {
    let length = texts.iter().map(Vec::len).min().unwrap_or(0);
    let total = texts.len() as f64;
    (0..length)
        .map(|at| {
            let mut counts: HashMap<u8, f64> = HashMap::new();
            for text in texts {
                *counts.entry(text[at]).or_default() += 1.0;
            }
            let shares = counts.values().map(|count| count / total);
            -shares.map(|share| share * share.log2()).sum::<f64>()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_not_random() {
        let counted: Vec<Vec<u8>> = (0..1000)
            .map(|n| format!("{n:032x}").into_bytes())
            .collect();
        assert!(entropy(&counted) < 12.0, "{}", entropy(&counted));
        let mut state = 1_u128;
        let mut next = || {
            // A linear generator: its high bits vary enough for this estimate.
            state = state
                .wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645)
                .wrapping_add(7);
            format!("{:016x}", (state >> 64) as u64).into_bytes()
        };
        let varied: Vec<Vec<u8>> = (0..1000).map(|_| next()).collect();
        assert!(entropy(&varied) > 60.0, "{}", entropy(&varied));
    }
}
