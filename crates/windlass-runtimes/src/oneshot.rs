//! Programs that handle one prompt and exit. They are started for each prompt. A program without conversations of its
//! own gets the earlier conversation in the prompt. The adapter parses its output. Such programs do not ask about
//! calls: the calls are logged if the program reports them, and the enclosure, the meter and the time limit restrict
//! the program.
//!
//! In the order of one prompt: [`program`] describes a program, [`options`] are the user's settings, `launch` fills in
//! the placeholders, `dialogue` follows the program, [`fields`] parses JSON lines and `printed_text` plain text. [`aider`]
//! is one of these programs.

pub mod aider;
mod dialogue;
pub mod fields;
mod launch;
pub mod options;
mod printed_text;
pub mod program;

use windlass_core::runtime::{Capabilities, Capability, Feature, Features, RuntimeError};

use self::dialogue::OneShotDialogue;
use self::program::{OneShotProgram, ProgramOutput};
use crate::agent::{Adapter, AgentAnswer, AgentAttempt, AnswerFuture, full_prompt};
use crate::driver::{Conversation, Started, run_turn, start};

/// The adapter for a program that handles one prompt and exits.
pub struct OneShot {
    program: OneShotProgram,
}

/// Marks an attempt in which the program already got a prompt.
struct PromptedBefore;

impl OneShot {
    /// Checks the description of the program.
    pub fn new(program: OneShotProgram) -> Result<Self, String> {
        program.check()?;
        Ok(Self { program })
    }

    async fn start(
        &self,
        attempt: &AgentAttempt<'_>,
        session: Option<String>,
        say: String,
    ) -> Started<OneShotDialogue> {
        let OneShotProgram { name, output, .. } = &self.program;
        let (launch, input) = launch::launch(&self.program, attempt, session.as_deref(), &say)
            .map_err(|why| format!("cannot start {name}: {why}"))?;
        let program = start(attempt, Ok(launch), name).await?;
        let (name, resumed) = (name.clone(), session.is_some());
        let dialogue = OneShotDialogue::new(name, output.clone(), input, resumed);
        Ok(Conversation::new(dialogue, program))
    }

    async fn send_prompt(
        &self,
        attempt: &AgentAttempt<'_>,
        say: &str,
    ) -> Result<AgentAnswer, RuntimeError> {
        let again = attempt.take_kept::<PromptedBefore>().is_some();
        let session = attempt
            .session()
            .filter(|_| !self.program.resume_args.is_empty());
        // The first prompt of an attempt contains the conversation already. Later prompts need it if the program has
        // none.
        let say = if again && session.is_none() {
            full_prompt(attempt, say)
        } else {
            say.to_owned()
        };
        run_turn(attempt, session, &say, |session, say| {
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
        // The model of Aider writes edits and has no tools. For other programs, the user vouches for these
        // capabilities.
        let tools: &[C] = match self.program.output {
            ProgramOutput::Aider => &[],
            ProgramOutput::Text | ProgramOutput::Lines(_) => &[C::NativeToolLoop, C::Shell],
        };
        Capabilities::of(all.into_iter().chain(tools.iter().copied()))
    }

    fn features(&self) -> Features {
        let (tokens, cost) = match &self.program.output {
            ProgramOutput::Text => (false, false),
            ProgramOutput::Lines(fields) => (fields.has_tokens(), fields.cost_usd.is_some()),
            ProgramOutput::Aider => (true, true),
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

    fn converse<'a>(&'a self, attempt: &'a AgentAttempt<'a>, say: &'a str) -> AnswerFuture<'a> {
        Box::pin(async move {
            // A program with conversations reports the id of its conversation first.
            let names = matches!(&self.program.output, ProgramOutput::Lines(fields) if fields.session.is_some());
            if !names {
                attempt.log_start(None).await?;
            }
            let answer = self.send_prompt(attempt, say).await?;
            attempt.log_start(None).await?;
            attempt.keep(PromptedBefore);
            Ok(answer)
        })
    }
}
