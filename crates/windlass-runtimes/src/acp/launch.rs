//! Assembles the start of an ACP agent: its command, its environment and the files in its home, with the placeholders
//! filled in. This module spawns nothing.

use agent_client_protocol::v1::schema::Meta;
use windlass_core::enclosure::Launch;

use super::Acp;
use crate::agent::AgentAttempt;
use crate::placeholders::PlaceholderValues;

/// The command and environment of the agent. Writes the files into its home.
pub(super) fn launch(acp: &Acp, attempt: &AgentAttempt<'_>) -> Result<Launch, String> {
    let words = acp.placeholders();
    let values = PlaceholderValues::new(attempt, &acp.name, acp.model.as_deref(), &words);
    let argv: Result<Vec<String>, String> = acp.argv.iter().map(|word| values.word(word)).collect();
    Ok(Launch::new(argv?, values.prepare(attempt, &acp.texts)?))
}

/// Metadata for the request that creates a session.
pub(super) fn session_meta(acp: &Acp, attempt: &AgentAttempt<'_>) -> Result<Option<Meta>, String> {
    let Some(text) = acp.session_meta() else {
        return Ok(None);
    };
    let (name, words) = (&acp.name, acp.placeholders());
    let filled = PlaceholderValues::new(attempt, name, acp.model.as_deref(), &words).fill(text);
    let Some(text) = filled else {
        return Err(format!(
            "`session_meta` of {name} contains a placeholder that has no value in this run"
        ));
    };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|err| format!("`session_meta` of {name} is not a JSON object: {err}"))
}
