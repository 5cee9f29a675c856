//! Cassettes as files: where exchanges with a model server are taken down, or played from. What is in a row, and what
//! never is, is decided by the providers.

pub use windlass_providers::cassette::{
    DecodeOptions, DecodedAnswer, DecodedError, RecordedExchange, decode,
};

use parking_lot::Mutex;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_core::workspace::{NoSecrets, Redactor};
use windlass_providers::{CassettePlayer, ProviderOptions, Recorder, SecretString, Vendor};

use crate::error::Error;
use crate::flags::AgentFlags;
use crate::notices::Notices;
use crate::wire::read_text;

/// The largest cassette.
const MAX_CASSETTE: u64 = 512 << 20;

/// A cassette, and what to do with it.
///
/// ```
/// use windlass::cassette::Tape;
///
/// let tape = Tape::Play("exchanges.jsonl".into());
/// assert!(matches!(tape, Tape::Play(_)));
/// ```
#[derive(Debug, Clone)]
pub enum Tape {
    /// Take down what happens.
    Record(PathBuf),
    /// Play what was taken down.
    Play(PathBuf),
}

/// Who asks: a foreign agent puts new ids and folders into every request, so that none is the same twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The built-in agent.
    Ours,
    /// Another agent.
    Foreign,
}

impl Tape {
    /// The one that was asked for.
    pub(crate) fn of(agent: &AgentFlags) -> Option<Self> {
        match (&agent.record, &agent.cassette) {
            (Some(file), _) => Some(Self::Record(file.clone())),
            (None, Some(file)) => Some(Self::Play(file.clone())),
            (None, None) => None,
        }
    }

    /// Puts the cassette beside the network, or in its place.
    pub(crate) fn put_in(
        &self,
        options: &mut ProviderOptions,
        vendor: &Vendor,
        redactor: Arc<dyn Redactor>,
        asks: Asks,
        notices: &Notices,
    ) -> Result<(), Error> {
        match self {
            Self::Record(file) => {
                options.http =
                    options
                        .http
                        .clone()
                        .recording(recorder(file, redactor, notices.clone())?)
            }
            Self::Play(file) => {
                let player = player(file, redactor)?;
                if options.base_url.is_none() && vendor.base_url.is_none() {
                    let row = player
                        .first_model()
                        .map(|(row, _)| row.request.path.as_str());
                    let path = row
                        .and_then(|path| path.split('?').next())
                        .unwrap_or_default();
                    options.base_url = Some(format!("http://127.0.0.1{path}"));
                }
                // Nobody is asked, so no key is needed.
                options
                    .key
                    .get_or_insert_with(|| SecretString::from("played".to_owned()));
                options.http = options.http.clone().playing(match asks {
                    Asks::Ours => player,
                    Asks::Foreign => player.loosely(),
                });
            }
        }
        Ok(())
    }
}

/// Who was asked for what when a cassette was made: the vendor's id and the model.
pub(crate) fn recorded_model(file: &Path) -> Result<Option<(String, String)>, Error> {
    let player = player(file, Arc::new(NoSecrets))?;
    Ok(player
        .first_model()
        .map(|(row, model)| (row.provider.clone(), model)))
}

fn player(file: &Path, redactor: Arc<dyn Redactor>) -> Result<CassettePlayer, Error> {
    let text = read_text(file, MAX_CASSETTE, "the cassette")?;
    CassettePlayer::parse(&text, redactor)
        .map_err(|err| Error::usage(format!("{}: {err}", file.display())))
}

/// Takes down exchanges in a file, each as it ends.
fn recorder(file: &Path, redactor: Arc<dyn Redactor>, notices: Notices) -> Result<Recorder, Error> {
    let cannot = |why: &str| format!("{} cannot be written: {why}", file.display());
    let out = windlass_host::workspace::create_file(file)
        .map_err(|err| Error::usage(cannot(&err.message)))?;
    let (out, file) = (Mutex::new(Some(out)), file.display().to_string());
    Ok(Recorder::new(redactor, move |line| {
        let mut out = out.lock();
        let Some(open) = out.as_mut() else { return };
        if let Err(err) = open.write_all(format!("{line}\n").as_bytes()) {
            // Half a cassette plays wrongly, so it is said once and left.
            notices.warn(&format!(
                "{file} cannot be written, nothing more is taken down: {err}"
            ));
            *out = None;
        }
    }))
}
