//! A conversation with a program that is started anew for every turn, and may have forgotten what it was to go on with:
//! then it begins another one and is told what was said, shortened.

use windlass_core::BoxFuture;
use windlass_core::runtime::RuntimeError;

use crate::agent::{Answer, End, Visit, told_anew};

/// How a turn ended.
pub(crate) enum Ended {
    /// With an answer.
    Answered(Answer),
    /// The conversation it was to go on with is not known to it.
    Forgotten,
}

/// One turn, in the conversation of the visit or, where that is forgotten, in a new one. `who` is the program's own name.
pub(crate) async fn one_turn<'a>(
    visit: &'a Visit<'a>,
    say: &str,
    who: &str,
    turn: impl Fn(Option<String>, String) -> BoxFuture<'a, Result<Ended, RuntimeError>> + Send,
) -> Result<Answer, RuntimeError> {
    if let Ended::Answered(answer) = turn(visit.session(), say.to_owned()).await? {
        return Ok(answer);
    }
    let text = format!(
        "{who} does not know the conversation any more that it was to go on with; it begins a new one and is told what \
         was said before, shortened"
    );
    visit.warn("session_lost", text).await?;
    match turn(None, told_anew(visit, say)).await? {
        Ended::Answered(answer) => Ok(answer),
        Ended::Forgotten => {
            let why =
                "it says that it does not know a conversation that it was not asked for".to_owned();
            Ok(Answer {
                text: String::new(),
                output: None,
                end: End::Broken(why),
            })
        }
    }
}
