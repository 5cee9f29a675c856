//! How an ACP agent is started: its command, its variables and the files of its home, with the words in braces filled in.
//! Nothing is started here.

use agent_client_protocol::v1::schema::Meta;
use windlass_core::enclosure::Launch;

use super::Acp;
use crate::agent::AgentAttempt;
use crate::filling::Values;

/// What to start, and how it is pointed at its model.
pub(super) fn launch(acp: &Acp, attempt: &AgentAttempt<'_>) -> Result<Launch, String> {
    let words = acp.words();
    let values = Values::new(attempt, &acp.name, acp.model.as_deref(), &words);
    let argv: Result<Vec<String>, String> = acp.argv.iter().map(|word| values.word(word)).collect();
    Ok(Launch::new(argv?, values.prepare(attempt, &acp.texts)?))
}

/// What the agent is told beside the protocol as a session begins.
pub(super) fn session_meta(acp: &Acp, attempt: &AgentAttempt<'_>) -> Result<Option<Meta>, String> {
    let Some(text) = acp.session_meta() else {
        return Ok(None);
    };
    let (name, words) = (&acp.name, acp.words());
    let filled = Values::new(attempt, name, acp.model.as_deref(), &words).fill(text);
    let Some(text) = filled else {
        return Err(format!(
            "`session_meta` of {name} names what this run does not have"
        ));
    };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|err| format!("`session_meta` of {name} is no JSON object: {err}"))
}
