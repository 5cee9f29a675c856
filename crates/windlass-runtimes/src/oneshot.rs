//! Programs that do one prompt and end: they are started for each, told what was said before where they have no
//! conversations of their own, and read by what they print. They ask about nothing: their calls are noted where they
//! tell of them, and what holds them is their place, the meter and the time.
//!
//! In the order of one prompt: [`program`] is what is known of one, [`options`] what a person says of it, `launch` fills
//! it in, `turn` follows it, [`fields`] reads its lines and `printed` its words. [`aider`] is one of them.

pub mod aider;
pub mod fields;
mod launch;
pub mod options;
mod printed;
pub mod program;
mod turn;

use windlass_core::BoxFuture;
use windlass_core::runtime::{Capabilities, Capability, Feature, Features, RuntimeError};

use self::program::{Output, Program};
use self::turn::Turn;
use crate::agent::{Adapter, Answer, End, Visit, told_anew};
use crate::peer::Peer;

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

    async fn prompt(
        &self,
        visit: &Visit<'_>,
        session: Option<&str>,
        say: &str,
    ) -> Result<turn::Ended, RuntimeError> {
        let broken = |why: String| {
            let answer = Answer {
                text: String::new(),
                output: None,
                end: End::Broken(why),
            };
            turn::Ended {
                answer,
                failed_at_once: false,
            }
        };
        let (launch, input) = match launch::launch(&self.program, visit, session, say) {
            Ok(ready) => ready,
            Err(why) => {
                return Ok(broken(format!(
                    "{} was not started: {why}",
                    self.program.name
                )));
            }
        };
        let inmate = match visit.place.start(launch).await {
            Ok(inmate) => inmate,
            Err(err) => {
                return Ok(broken(format!(
                    "{} could not be started: {}",
                    self.program.name, err.0
                )));
            }
        };
        Turn::new(visit, Peer::new(inmate), &self.program.output)
            .follow(&input)
            .await
    }

    async fn one(&self, visit: &Visit<'_>, say: &str) -> Result<Answer, RuntimeError> {
        let again = visit.take_kept::<Spoken>().is_some();
        let session = visit
            .session()
            .filter(|_| !self.program.resume_args.is_empty());
        // The first words of a try are told whole already; later ones only where it remembers the others.
        let say = if again && session.is_none() {
            told_anew(visit, say)
        } else {
            say.to_owned()
        };
        if let Some(session) = &session {
            let ended = self.prompt(visit, Some(session), &say).await?;
            if !ended.failed_at_once {
                return Ok(ended.answer);
            }
            let text = format!(
                "{} could not go on with its conversation; it begins a new one and is told what was said before, shortened",
                self.program.name
            );
            visit.warn("session_lost", text).await?;
            return Ok(self
                .prompt(visit, None, &told_anew(visit, &say))
                .await?
                .answer);
        }
        Ok(self.prompt(visit, None, &say).await?.answer)
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
                .filter(|(_, has)| *has)
                .map(|(feature, _)| feature),
        )
    }

    fn converse<'a>(
        &'a self,
        visit: &'a Visit<'a>,
        say: &'a str,
    ) -> BoxFuture<'a, Result<Answer, RuntimeError>> {
        Box::pin(async move {
            // One that has conversations names them first.
            let names =
                matches!(&self.program.output, Output::Lines(fields) if fields.session.is_some());
            if !names {
                visit.began(None).await?;
            }
            let answer = self.one(visit, say).await?;
            visit.began(None).await?;
            visit.keep(Spoken);
            Ok(answer)
        })
    }
}
