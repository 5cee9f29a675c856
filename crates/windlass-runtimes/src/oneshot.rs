//! Programs that do one prompt and end: they are started for each, told what was said before where they have no
//! conversations of their own, and read by what they print. They ask about nothing: their calls are noted where they
//! tell of them, and what holds them is their place, the meter and the time.
//!
//! In the order of one prompt: [`program`] is what is known of one, [`options`] what a person says of it, `launch` fills
//! it in, `dialogue` follows it, [`fields`] reads its lines and `printed` its words. [`aider`] is one of them.

pub mod aider;
mod dialogue;
pub mod fields;
mod launch;
pub mod options;
mod printed;
pub mod program;

use windlass_core::runtime::{Capabilities, Capability, Feature, Features, RuntimeError};

use self::dialogue::OneShotDialogue;
use self::program::{Output, Program};
use crate::agent::{Adapter, AgentAttempt, Answer, Answering, told_anew};
use crate::driver::{Conversation, Started, one_turn, start};

/// A program for one prompt at a time.
pub struct OneShot {
    program: Program,
}

/// Something was said to it in this try.
struct Spoken;

impl OneShot {
    /// This one, or what is wrong about it.
    pub fn new(program: Program) -> Result<Self, String> {
        program.check()?;
        Ok(Self { program })
    }

    async fn start(
        &self,
        attempt: &AgentAttempt<'_>,
        session: Option<String>,
        say: String,
    ) -> Started<OneShotDialogue> {
        let Program { name, output, .. } = &self.program;
        let (launch, input) = launch::launch(&self.program, attempt, session.as_deref(), &say)
            .map_err(|why| format!("{name} was not started: {why}"))?;
        let program = start(attempt, Ok(launch), name).await?;
        let (name, resumed) = (name.clone(), session.is_some());
        let dialogue = OneShotDialogue::new(name, output.clone(), input, resumed);
        Ok(Conversation::new(dialogue, program))
    }

    async fn one(&self, attempt: &AgentAttempt<'_>, say: &str) -> Result<Answer, RuntimeError> {
        let again = attempt.take_kept::<Spoken>().is_some();
        let session = attempt
            .session()
            .filter(|_| !self.program.resume_args.is_empty());
        // The first words of an attempt are told whole already; later ones only where it remembers the others.
        let say = if again && session.is_none() {
            told_anew(attempt, say)
        } else {
            say.to_owned()
        };
        one_turn(attempt, session, &say, |session, say| {
            Box::pin(self.start(attempt, session, say))
        })
        .await
    }
}

impl Adapter for OneShot {
    fn name(&self) -> &str {
        &self.program.name
    }

    fn model(&self) -> Option<&str> {
        self.program.model.as_deref()
    }

    fn capabilities(&self) -> Capabilities {
        use Capability as C;
        let all = [
            C::TextCompletion,
            C::StructuredOutput,
            C::FilesystemRead,
            C::FilesystemEdit,
        ];
        // Aider's model writes edits, and has no tools. Of any other program a person says that it can do the work.
        let tools: &[C] = match self.program.output {
            Output::Aider => &[],
            Output::Text | Output::Lines(_) => &[C::NativeToolLoop, C::Shell],
        };
        Capabilities::of(all.into_iter().chain(tools.iter().copied()))
    }

    fn features(&self) -> Features {
        let (tokens, cost) = match &self.program.output {
            Output::Text => (false, false),
            Output::Lines(fields) => (fields.has_tokens(), fields.cost_usd.is_some()),
            Output::Aider => (true, true),
        };
        let known = [
            (Feature::ReportsTokens, tokens),
            (Feature::ReportsCost, cost),
            (Feature::Resume, !self.program.resume_args.is_empty()),
            (Feature::ModelChoice, self.program.names_model()),
        ];
        Features::of(
            known
                .into_iter()
                .filter_map(|(one, has)| has.then_some(one)),
        )
    }

    fn converse<'a>(&'a self, attempt: &'a AgentAttempt<'a>, say: &'a str) -> Answering<'a> {
        Box::pin(async move {
            // One that has conversations names them first.
            let names =
                matches!(&self.program.output, Output::Lines(fields) if fields.session.is_some());
            if !names {
                attempt.began(None).await?;
            }
            let answer = self.one(attempt, say).await?;
            attempt.began(None).await?;
            attempt.keep(Spoken);
            Ok(answer)
        })
    }
}
