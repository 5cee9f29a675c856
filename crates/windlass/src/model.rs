//! Resolves the model, the vendor, the workspace and the prompt from flags and settings. Errors are reported here, before
//! a run starts; a [`ModelPlan`] is always valid.
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass::{Environment, Notices};
//! use windlass::flags::AgentFlags;
//! use windlass::model::{
//!     GivenModel, ModelPlan, VENDORS, attach, base_url, configured_base_url, named, open_workspace, prompt,
//!     vendor_of,
//! };
//! use windlass::settings::Settings;
//! use windlass_testing::{ScriptedProvider, says};
//!
//! let dir = tempfile::tempdir()?;
//! std::fs::write(dir.path().join("notes.txt"), "buy milk")?;
//! let mut settings = Settings::none(dir.path());
//! let agent = AgentFlags { model: Some("anthropic/claude-x".into()), ..AgentFlags::default() };
//! let (vendor, model) = named(&agent, agent.model.as_deref(), &settings)?;
//! assert_eq!((vendor.map(|one| one.id), model.as_deref()), (Some("anthropic"), Some("claude-x")));
//! assert_eq!(vendor_of(&agent, agent.model.as_deref()).as_deref(), Some("anthropic"));
//! assert_eq!(base_url(&agent, &VENDORS[0], &settings), None);
//! assert_eq!(configured_base_url(&VENDORS[0], &settings), None);
//!
//! let provider = Arc::new(ScriptedProvider::new([says("hello")]));
//! settings.given_model = Some(GivenModel { provider, model: "mine".into() });
//! assert!(matches!(ModelPlan::of(&agent, &settings)?, ModelPlan::Given(_)));
//!
//! let root = open_workspace(Some(dir.path()), &Environment::empty())?;
//! let notices = Notices::default();
//! assert!(prompt("  ".into(), &root, &notices).is_err());
//! assert!(attach("read @notes.txt now".into(), &root, &notices)?.text().contains("buy milk"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use windlass_providers::models::table_date;
pub use windlass_providers::{Http, HttpOptions, VENDORS, Vendor, models};

mod rows;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use windlass_core::message::{Message, Origin, Part, Role};
use windlass_core::provider::Provider;
use windlass_core::workspace::Files;
use windlass_host::config::nearest;
use windlass_host::secret::Credentials;
use windlass_host::workspace::{Root, discover};
use windlass_providers::models::default_model;
use windlass_providers::vendor;

use crate::cassette::{self, CassetteUse};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind};
use crate::flags::AgentFlags;
use crate::notices::Notices;
use crate::settings::Settings;

pub use self::rows::{KnownModel, VendorRow, known_models, vendor_access, vendor_rows};

/// Maximum size of a prompt from standard input, or of an attached text file, in bytes.
const MAX_TEXT: u64 = 4 << 20;
/// Words that the warning about missing attachments lists before "and N more".
const MAX_NAMED: usize = 5;
/// Maximum size of an attached image in bytes.
const MAX_IMAGE: u64 = 10 << 20;

/// A provider that the embedding program made itself, and the model to request from it.
#[derive(Clone)]
pub struct GivenModel {
    pub provider: Arc<dyn Provider>,
    pub model: String,
}

impl std::fmt::Debug for GivenModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GivenModel({}/{})", self.provider.name(), self.model)
    }
}

/// The model of a run, and the access to it.
#[derive(Debug)]
pub enum ModelPlan {
    /// A model of the embedding program.
    Given(GivenModel),
    /// A scripted model from this file.
    Scripted(PathBuf),
    /// A model of a vendor.
    Served {
        vendor: &'static Vendor,
        model: String,
        /// The address, if it differs from the vendor's own.
        base_url: Option<String>,
        /// A cassette to record to, or to play in place of the network.
        cassette: Option<CassetteUse>,
    },
}

impl ModelPlan {
    /// The model that the flags and the settings name.
    pub fn of(agent: &AgentFlags, settings: &Settings) -> Result<Self, Error> {
        if let Some(given) = &settings.given_model {
            return Ok(Self::Given(given.clone()));
        }
        if let Some(script) = &agent.script {
            return Ok(Self::Scripted(script.clone()));
        }
        let recorded = match &agent.cassette {
            Some(file) if agent.model.is_none() && agent.provider.is_none() => {
                Some(recorded_model(file)?)
            }
            _ => None,
        };
        let (named, model) = named(
            agent,
            recorded.as_deref().or(settings.layers.text("model")),
            settings,
        )?;
        let vendor = match named {
            Some(vendor) => vendor,
            None => guess_vendor(model.as_deref(), settings)?,
        };
        let model = match (model, default_model(vendor)) {
            (Some(model), _) => model,
            (None, Some(model)) => model.to_owned(),
            (None, None) => {
                return Err(
                    Error::usage(format!("there is no default model for `{}`", vendor.id)).hint(
                        format!(
                            "name one with `-m`, for example `-m {}/MODEL`, or with the setting `model`",
                            vendor.id
                        ),
                    ),
                );
            }
        };
        let (base_url, cassette) = (base_url(agent, vendor, settings), CassetteUse::of(agent));
        Ok(Self::Served {
            vendor,
            model,
            base_url,
            cassette,
        })
    }
}

impl ModelPlan {
    /// A warning about an unknown model whose name resembles that of a known one.
    pub(crate) fn unknown_model(&self) -> Option<String> {
        let Self::Served { vendor, model, .. } = self else {
            return None;
        };
        if vendor.local || models::lookup(vendor.id, model).is_some() {
            return None;
        }
        let near = nearest(model, models::model_names(vendor.id))?;
        Some(format!(
            "`{model}` is not a known model of `{}`; did you mean `{near}`?",
            vendor.id
        ))
    }
}

/// The vendor and model of a cassette, as `vendor/model`.
fn recorded_model(file: &Path) -> Result<String, Error> {
    match cassette::recorded_model(file)? {
        Some((by, model)) if vendor(&by).is_some() => Ok(format!("{by}/{model}")),
        _ => Err(Error::usage(format!(
            "the cassette {} does not contain the name of its model",
            file.display()
        ))
        .hint("name it with `-m VENDOR/MODEL`")),
    }
}

/// The vendor and the model that the user named; each is `None` if it was not named. A vendor in `vendor/model` overrides
/// the setting `provider`, but must agree with the flag `--provider`.
pub fn named(
    agent: &AgentFlags,
    text: Option<&str>,
    settings: &Settings,
) -> Result<(Option<&'static Vendor>, Option<String>), Error> {
    let (named, model) = split_model(text);
    let provider = settings.layers.text("provider");
    if let (None, None, None, Some(model)) = (named, provider, &agent.base_url, &model) {
        refuse_unknown_vendor(model)?;
    }
    match (provider, named) {
        (_, Some(named)) if agent.provider.is_none() => Ok((Some(named), model)),
        (Some(id), Some(named)) if id != named.id => Err(Error::usage(format!(
            "the vendor of the model is `{}`, but `--provider` names `{id}`",
            named.id
        ))),
        (Some(id), _) => Ok((Some(known_vendor(id)?), model)),
        (None, named) => Ok((named, model)),
    }
}

/// The address of a vendor from the flag, the settings or the environment; `None` for the vendor's own address.
pub fn base_url(agent: &AgentFlags, vendor: &Vendor, settings: &Settings) -> Option<String> {
    let given = agent.base_url.clone();
    given.or_else(|| configured_base_url(vendor, settings))
}

/// The address of a vendor in the settings, else in the variable that the vendor's own programs use.
#[must_use]
pub fn configured_base_url(vendor: &Vendor, settings: &Settings) -> Option<String> {
    let configured = settings
        .layers
        .text(&Settings::named("providers", vendor.id, "base_url"));
    let from_env = || settings.environment.text(vendor.base_url_env()?);
    configured
        .map(str::to_owned)
        .or_else(from_env)
        .filter(|url| !url.trim().is_empty())
}

/// Splits `vendor/model` if the first part is a known vendor; any other text is the name of a model.
fn split_model(text: Option<&str>) -> (Option<&'static Vendor>, Option<String>) {
    let parts = text.and_then(|text| text.split_once('/'));
    match parts.and_then(|(first, rest)| Some((vendor(first)?, rest))) {
        Some((vendor, rest)) => (Some(vendor), Some(rest.to_owned())),
        None => (None, text.map(str::to_owned)),
    }
}

/// Rejects `foo/bar` if `foo` is not a vendor and no known vendor serves the model. Otherwise the request would go to a
/// vendor that the user did not mean.
fn refuse_unknown_vendor(model: &str) -> Result<(), Error> {
    let Some((first, _)) = model.split_once('/') else {
        return Ok(());
    };
    let is_served = |v: &Vendor| models::lookup(v.id, model).is_some();
    if VENDORS.iter().any(is_served) {
        return Ok(());
    }
    let ids = || VENDORS.iter().map(|v| v.id);
    let hint = match nearest(first, ids()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "name the vendor that serves `{model}`, as in `-m openrouter/{model}`, or with `--provider`: {}",
            ids().collect::<Vec<_>>().join(", ")
        ),
    };
    Err(Error::usage(format!("there is no vendor `{first}`")).hint(hint))
}

fn known_vendor(id: &str) -> Result<&'static Vendor, Error> {
    vendor(id).ok_or_else(|| {
        let all: Vec<&str> = VENDORS.iter().map(|v| v.id).collect();
        let failure = Error::usage(format!("there is no vendor `{id}`"));
        match nearest(id, all.iter().copied()) {
            Some(near) => failure.hint(format!("did you mean `{near}`?")),
            None => failure.hint(format!("the vendors are {}", all.join(", "))),
        }
    })
}

/// The vendor if the user named none: a vendor that serves the model, else one for which there is a key.
fn guess_vendor(model: Option<&str>, settings: &Settings) -> Result<&'static Vendor, Error> {
    let serves =
        |v: &&'static Vendor| model.is_some_and(|model| models::lookup(v.id, model).is_some());
    if let Some(vendor) = VENDORS.iter().find(serves) {
        return Ok(vendor);
    }
    let credentials = Credentials::read(&settings.places.credentials_file())?;
    let has_key = |v: &&'static Vendor| crate::wire::key(settings, v, &credentials).is_some();
    let candidates = ["anthropic", "openai"].into_iter().filter_map(vendor);
    candidates.into_iter().find(has_key).ok_or_else(|| {
        Error::new(ErrorKind::Provider, "no model is set up: there is no key, and no vendor was named").hint(
            "set a key, for example `export ANTHROPIC_API_KEY=…` or `export OPENAI_API_KEY=…`; \
             or name a local model, for example `-m ollama/qwen3`; or try `windlass demo`, which needs neither",
        )
    })
}

/// The vendor of a logged run: from the flags, else from the name of the model.
pub fn vendor_of(agent: &AgentFlags, model: Option<&str>) -> Option<String> {
    if agent.script.is_some() {
        return Some("scripted".to_owned());
    }
    let named = agent
        .model
        .as_deref()
        .and_then(|text| text.split_once('/'))
        .and_then(|(first, _)| vendor(first));
    let serves = |v: &&Vendor| model.is_some_and(|model| models::lookup(v.id, model).is_some());
    agent
        .provider
        .clone()
        .or_else(|| Some(named.or_else(|| VENDORS.iter().find(serves))?.id.to_owned()))
}

/// Opens the workspace of a directory: the top level of its git repository, or the directory itself.
pub fn open_workspace(dir: Option<&Path>, environment: &Environment) -> Result<Root, Error> {
    let start = match dir {
        Some(dir) => dir,
        None => environment
            .current_dir()
            .ok_or_else(|| Error::usage("the current directory cannot be used"))?,
    };
    let unfit: Vec<PathBuf> = environment
        .get("HOME")
        .map(PathBuf::from)
        .into_iter()
        .collect();
    let wrong = |err: windlass_host::workspace::OpenError| Error::usage(err.to_string());
    let top = discover(start, &unfit).map_err(wrong)?;
    Root::open_workspace(&top, &unfit).map_err(wrong)
}

/// Makes a prompt and attaches the files that it names; see [`attach`]. An empty prompt is an error.
pub fn prompt(text: String, root: &Root, notices: &Notices) -> Result<Message, Error> {
    if text.trim().is_empty() {
        return Err(Error::usage("there is no prompt")
            .hint("add one, for example `windlass run \"fix the failing test\"`"));
    }
    attach(text, root, notices)
}

/// Attaches the files that a prompt names as `@path`. A word that is not a file of the workspace stays as it is, and a
/// notice warns about it. A file that looks like a credential is an error.
pub fn attach(text: String, root: &Root, notices: &Notices) -> Result<Message, Error> {
    let (mut files, mut missing) = (Vec::new(), Vec::new());
    for word in text.split_whitespace() {
        let Some(path) = word
            .strip_prefix('@')
            .map(|path| path.trim_end_matches([',', '.', ';', ':', ')']))
        else {
            continue;
        };
        if path.is_empty() || files.iter().any(|(known, _)| known == path) {
            continue;
        }
        let Ok(stat) = root.stat(path) else {
            missing.push(word);
            continue;
        };
        // A symlink may hide the name of a credential file, so its target is checked as well.
        let target = root
            .resolve(path)
            .map(|resolved| resolved.path)
            .unwrap_or_default();
        if [path, target.as_str()]
            .into_iter()
            .any(windlass_core::gate::is_credential)
        {
            return Err(Error::usage(format!(
                "`{path}` looks like a secret and is not attached"
            )));
        }
        if stat.kind == windlass_core::workspace::FileKind::File {
            let part = attachment(path, root)?;
            files.push((path.to_owned(), part));
        } else {
            missing.push(word);
        }
    }
    if !missing.is_empty() {
        notices.warn(&not_attached(&missing));
    }
    let mut parts = vec![Part::Text { text }];
    parts.extend(files.into_iter().map(|(_, part)| part));
    Ok(Message {
        role: Role::User,
        origin: Origin::Person,
        parts,
    })
}

/// The warning about words that begin with `@` and are not files.
fn not_attached(words: &[&str]) -> String {
    let shown: Vec<String> = words
        .iter()
        .take(MAX_NAMED)
        .map(|word| format!("`{word}`"))
        .collect();
    let more = match words.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (is, file) = match words.len() {
        1 => ("is", "a file"),
        _ => ("are", "files"),
    };
    let shown = shown.join(", ");
    format!("{shown}{more} {is} not {file} of the workspace and {is} not attached")
}

fn attachment(path: &str, root: &Root) -> Result<Part, Error> {
    let unusable =
        |err: windlass_core::workspace::FileError| Error::usage(format!("@{path}: {err}"));
    let media_type = match path
        .rsplit('.')
        .next()
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        Some("png") => Some("image/png"),
        Some("jpg" | "jpeg") => Some("image/jpeg"),
        Some("gif") => Some("image/gif"),
        Some("webp") => Some("image/webp"),
        _ => None,
    };
    if let Some(media_type) = media_type {
        let bytes = root.read(path, MAX_IMAGE).map_err(unusable)?;
        return Ok(Part::Image {
            media_type: media_type.to_owned(),
            data: STANDARD.encode(&bytes),
        });
    }
    let bytes = root.read(path, MAX_TEXT).map_err(unusable)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Error::usage(format!("@{path} is not UTF-8 text"))
            .hint("only text files and images can be attached")
    })?;
    Ok(Part::Text {
        text: format!("\n<file path=\"{path}\">\n{text}\n</file>"),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn attached_files_follow_the_words_and_secrets_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.txt"), "inside").unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join(".env"), "KEY=1").unwrap();
        let root = Root::open(dir.path()).unwrap();
        let warned = Arc::new(std::sync::Mutex::new(Vec::new()));
        let list = Arc::clone(&warned);
        let notices = Notices::new(move |notice| list.lock().unwrap().push(format!("{notice:?}")));
        let attach = |text: &str| attach(text.to_owned(), &root, &notices);
        let message = attach("look at @a.txt, and mail me@example.org @nothing @d").unwrap();
        let text = "`@nothing`, `@d` are not files of the workspace and are not attached";
        assert_eq!(*warned.lock().unwrap(), [format!("Warning({text:?})")]);
        assert_eq!(message.parts.len(), 2);
        assert!(
            message
                .text()
                .contains("<file path=\"a.txt\">\ninside\n</file>")
        );
        assert!(attach("see @.env").is_err());
        std::os::unix::fs::symlink(".env", dir.path().join("notes.txt")).unwrap();
        assert!(attach("see @notes.txt").is_err());
        std::fs::write(dir.path().join("b.png"), "foob").unwrap();
        let message = attach("see @b.png").unwrap();
        let image = Part::Image {
            media_type: "image/png".into(),
            data: "Zm9vYg==".into(),
        };
        assert_eq!(message.parts[1], image);
    }

    #[test]
    fn a_model_names_its_vendor_before_the_first_slash() {
        let dir = tempfile::tempdir().unwrap();
        let check =
            |text: &str, provider: Option<&str>, expect: Result<(Option<&str>, &str), &str>| {
                let agent = AgentFlags {
                    model: Some(text.to_owned()),
                    provider: provider.map(str::to_owned),
                    ..AgentFlags::default()
                };
                let mut settings = Settings::none(dir.path());
                settings
                    .add_flags(&agent, &crate::flags::LimitFlags::default())
                    .unwrap();
                match (named(&agent, Some(text), &settings), expect) {
                    (Ok((vendor, model)), Ok(expect)) => {
                        let found = (vendor.map(|v| v.id), model.as_deref().unwrap());
                        assert_eq!(found, expect, "{text}");
                    }
                    (Err(error), Err(says)) => {
                        let all = error.text();
                        assert!(all.contains(says), "{text}: {all}");
                    }
                    (found, _) => panic!("{text}: {found:?}"),
                }
            };
        check("gpt-5", None, Ok((None, "gpt-5")));
        check(
            "openrouter/meta/llama",
            None,
            Ok((Some("openrouter"), "meta/llama")),
        );
        check("foo/bar", None, Err("there is no vendor `foo`"));
        check("foo/bar", None, Err("-m openrouter/foo/bar"));
        check("antropic/x", None, Err("did you mean `anthropic`?"));
        check(
            "foo/bar",
            Some("openrouter"),
            Ok((Some("openrouter"), "foo/bar")),
        );
    }
}
