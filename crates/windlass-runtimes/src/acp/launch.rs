//! How an ACP agent is started: its command, its variables and the files of its home, with the words in braces filled in.
//! Nothing is started here.

use agent_client_protocol::v1::schema::Meta;
use windlass_core::enclosure::Launch;

use super::Acp;
use crate::agent::AgentAttempt;
use crate::filling::Values;

/// What to start, and how it is pointed at its model.
pub(super) fn launch(acp: &Acp, attempt: &AgentAttempt<'_>) -> Result<Launch, String> {
    with_values(acp, attempt, |values| launch_with(acp, attempt, values))
}

/// What the words in braces stand for in this try.
fn with_values<T>(
    acp: &Acp,
    attempt: &AgentAttempt<'_>,
    use_them: impl FnOnce(&Values<'_>) -> T,
) -> T {
    let (home, workspace) = attempt.places();
    let words = acp.profile.words_for(acp.dialect);
    use_them(&Values {
        access: &attempt.model,
        model: acp.model.as_deref(),
        home: &home,
        workspace: &workspace,
        words,
    })
}

fn launch_with(
    acp: &Acp,
    attempt: &AgentAttempt<'_>,
    values: &Values<'_>,
) -> Result<Launch, String> {
    let options = &acp.options;
    // Left out without a word is only what belongs to a model endpoint that this run does not have.
    let filled = |what: &str, text: &str| match values.fill(text) {
        Some(text) => Ok(Some(text)),
        None if acp.model.is_none() && text.contains("{model}") => Err(format!(
            "{what} of {} needs the name of a model; name one",
            acp.name
        )),
        None => Ok(None),
    };
    let mut argv = Vec::new();
    for word in &acp.argv {
        match filled("the command", word)? {
            Some(word) => argv.push(word),
            None => {
                return Err(format!(
                    "the command of {} names the model endpoint, and this run has none",
                    acp.name
                ));
            }
        }
    }
    let mut env: Vec<(String, String)> = Vec::new();
    let profile = acp.profile.env.iter().map(|(name, text)| (*name, *text));
    let pointing: Vec<(&str, &str)> = match &options.point_at {
        Some(own) => own
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect(),
        None => acp.profile.point_at.to_vec(),
    };
    let pointing = pointing.into_iter().filter(|_| attempt.model.is_metered());
    let own = options
        .env
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    for (name, text) in profile.chain(pointing).chain(own) {
        if let Some(text) = filled(name, text)? {
            env.retain(|(known, _)| known != name);
            env.push((name.to_owned(), text));
        }
    }
    attempt.clear_home(acp.profile.steered_by)?;
    attempt.clear_home(&options.steered_by)?;
    let files = acp
        .profile
        .home_files
        .iter()
        .map(|(path, text)| (*path, *text));
    let own = options
        .home_files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()));
    for (path, text) in files.chain(own) {
        if let Some(text) = filled(path, text)? {
            attempt.put_home(path, &text)?;
        }
    }
    Ok(Launch::new(argv, env))
}

/// What the agent is told beside the protocol as a session begins.
pub(super) fn session_meta(acp: &Acp, attempt: &AgentAttempt<'_>) -> Result<Option<Meta>, String> {
    let Some(text) = acp
        .options
        .session_meta
        .as_deref()
        .or(acp.profile.session_meta)
    else {
        return Ok(None);
    };
    with_values(acp, attempt, |values| match values.fill(text) {
        Some(text) => match serde_json::from_str(&text) {
            Ok(meta) => Ok(Some(meta)),
            Err(err) => Err(format!(
                "`session_meta` of {} is no JSON object: {err}",
                acp.name
            )),
        },
        None => Err(format!(
            "`session_meta` of {} names what this run does not have",
            acp.name
        )),
    })
}
