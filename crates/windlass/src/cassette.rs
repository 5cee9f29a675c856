//! Cassette files: recordings of exchanges with a model server, and their playback. The crate `windlass-providers` defines
//! the content of a row, and which headers and secrets are never recorded.

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

/// Maximum size of a cassette in bytes.
const MAX_CASSETTE: u64 = 512 << 20;

/// The use of a cassette file in a run.
///
/// ```
/// use windlass::cassette::CassetteUse;
///
/// let cassette = CassetteUse::Play("exchanges.jsonl".into());
/// assert!(matches!(cassette, CassetteUse::Play(_)));
/// ```
#[derive(Debug, Clone)]
pub enum CassetteUse {
    /// Records exchanges with the model server to this file.
    Record(PathBuf),
    /// Plays the recorded exchanges in place of the model server.
    Play(PathBuf),
}

/// The comparison of requests with recorded ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestMatching {
    /// The request must be equal: the built-in agent repeats its requests exactly.
    Exact,
    /// The request must be similar: a foreign agent puts new ids and paths into each request.
    Loose,
}

impl CassetteUse {
    /// The cassette that the flags `--record` or `--cassette` name.
    pub(crate) fn of(agent: &AgentFlags) -> Option<Self> {
        match (&agent.record, &agent.cassette) {
            (Some(file), _) => Some(Self::Record(file.clone())),
            (None, Some(file)) => Some(Self::Play(file.clone())),
            (None, None) => None,
        }
    }

    /// Configures a provider to record its exchanges, or to play the cassette in place of the network.
    pub(crate) fn apply_to(
        &self,
        options: &mut ProviderOptions,
        vendor: &Vendor,
        redactor: Arc<dyn Redactor>,
        matching: RequestMatching,
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
                // No server receives the key, so a placeholder is sufficient.
                options
                    .key
                    .get_or_insert_with(|| SecretString::from("played".to_owned()));
                options.http = options.http.clone().playing(match matching {
                    RequestMatching::Exact => player,
                    RequestMatching::Loose => player.loosely(),
                });
            }
        }
        Ok(())
    }
}

/// The vendor's id and the model of the first exchange in a cassette.
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

/// Records exchanges to a file. Each exchange is written when it ends.
fn recorder(file: &Path, redactor: Arc<dyn Redactor>, notices: Notices) -> Result<Recorder, Error> {
    let cannot = |why: &str| format!("{} cannot be written: {why}", file.display());
    let out = windlass_host::workspace::create_file(file)
        .map_err(|err| Error::usage(cannot(&err.message)))?;
    let (out, file) = (Mutex::new(Some(out)), file.display().to_string());
    Ok(Recorder::new(redactor, move |line| {
        let mut out = out.lock();
        let Some(open) = out.as_mut() else { return };
        if let Err(err) = open.write_all(format!("{line}\n").as_bytes()) {
            // A cassette with gaps cannot be played, so recording stops at the first error.
            notices.warn(&format!(
                "recording stopped, because {file} cannot be written: {err}"
            ));
            *out = None;
        }
    }))
}
