//! The composition root: builds the ports from the settings and passes them to the engine. The crates below this one read
//! no settings and no environment variables.
//!
//! ```
//! use windlass::machine::Credentials;
//! use windlass::model::VENDORS;
//! use windlass::settings::Settings;
//! use windlass::wire::{
//!     aws_keys, session_engine, http_options, key, price, read_text, redactor, served, window,
//! };
//!
//! let dir = tempfile::tempdir()?;
//! let settings = Settings::none(dir.path());
//! let credentials = Credentials::read(&settings.places.credentials_file())?;
//! let vendor = VENDORS.iter().find(|vendor| vendor.id == "anthropic").ok_or("no such vendor")?;
//! assert!(key(&settings, vendor, &credentials).is_none());
//! assert!(aws_keys(vendor, &settings.environment).is_none());
//! assert!(served(&settings, vendor, None, &credentials).is_err(), "there is no key");
//! assert!(http_options(&settings)?.https_proxy.is_none());
//! assert!(price(&settings, "mine").is_none() && window(&settings, "mine").is_none());
//! assert_eq!(redactor(&settings)?.redact("nothing secret"), "nothing secret");
//! assert!(read_text(&dir.path().join("none"), 1 << 20, "the file").is_err());
//! session_engine(&settings)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agents;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::budget::Price;
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::gate::{Level, Mode, PermissionGate, Rule, Verdict};
use windlass_core::provider::{Chunk, ModelFacts, Provider, ProviderError, Request};
use windlass_core::runtime::{Capabilities, Capability, Job, RunMode, Runtime, RuntimeError, Stop};
use windlass_core::terms::{GateKind, Strategy, Terms};
use windlass_core::tool::Tool;
use windlass_core::validator::Validator;
use windlass_core::workspace::{
    Files, Opening, Redactor, Transaction, WorkspaceError, WorkspaceErrorKind, Workspaces,
};
use windlass_core::{BoxFuture, BoxStream};
use windlass_engine::Engine;
use windlass_host::clock::SystemClock;
use windlass_host::exec::child_env;
use windlass_host::sandbox::Sandbox;
use windlass_host::secret::{Credentials, Secret, Secrets};
use windlass_host::session_log::SessionLog;
use windlass_host::workspace::{OutsideReads, Root};
use windlass_providers::auth::Auth;
use windlass_providers::{
    AwsKeys, Http, HttpOptions, JsonActions, ProviderOptions, ScriptFormat, ScriptedModelProvider,
    SecretString, SetupError, Vendor, VendorSetting, WireProvider,
};
use windlass_transaction::isolated::{KeptRuns, Transactions};

use crate::cassette::RequestMatching;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind};
use crate::instructions::{Prompt, PromptInputs};
use crate::model::ModelPlan;
use crate::runtime_plan::RuntimePlan;
use crate::settings::Settings;
use crate::{program_tools, sandboxing};

use self::agents::{BuiltRuntime, RuntimeBuilder};

/// Rules that a refusal lists before "N more".
const MAX_NAMED: usize = 5;
/// Maximum size of a script, schema or certificate file in bytes.
const MAX_FILE: u64 = 16 << 20;

/// An engine with its store and mode.
pub(crate) struct BuiltEngine {
    pub engine: Engine,
    pub store: Arc<SessionLog>,
    /// The mode of the runs, after a fallback.
    pub mode: RunMode,
    /// The event that records the fallback to a lesser mode, if there was one.
    pub fell_back: Option<EventKind>,
}

/// The agent of an engine.
pub(crate) enum EngineAgent<'a> {
    Runtime(RuntimeRequest<'a>),
    /// No agent: the engine only judges changes that exist.
    None,
}

/// A runtime with the requirements on it.
pub(crate) struct RuntimeRequest<'a> {
    pub plan: &'a RuntimePlan,
    pub mode: RunMode,
    /// The JSON schema of the answer, as text or as the path of a file.
    pub schema: Option<&'a str>,
    /// The directory in which the user started the run.
    pub cd: Option<&'a Path>,
    /// Fall back to a lesser mode if the runtime does not support `mode`.
    pub fallback: bool,
    /// Start an agent whose calls cannot be checked one by one, even if rules or the approval mode require it.
    pub accept_ungated: bool,
}

/// Builds the engine for a workspace.
pub(crate) fn engine(
    settings: &Settings,
    agent: &EngineAgent<'_>,
    root: Arc<Root>,
    isolated: bool,
    tools: Vec<Arc<dyn Tool>>,
    validators: Vec<Arc<dyn Validator>>,
) -> Result<BuiltEngine, Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let credentials = Credentials::read(&settings.places.credentials_file())?;
    let chosen = match agent {
        EngineAgent::None => BuiltRuntime {
            runtime: Arc::new(NoAgent),
            mode: RunMode::Full,
            fell_back: None,
        },
        EngineAgent::Runtime(works) => {
            let redactor = redactor_of(&credentials, &settings.environment);
            let inputs = PromptInputs {
                settings,
                root: &root,
                cd: works.cd,
                isolated,
                validators: &validators,
                redactor: redactor.as_ref(),
            };
            let builder = RuntimeBuilder {
                settings,
                credentials: &credentials,
                clock: &clock,
                prompt: Prompt::of(&inputs),
            };
            builder.choose(works)?
        }
    };
    let foreign = match agent {
        EngineAgent::Runtime(RuntimeRequest {
            plan: RuntimePlan::Foreign(plan),
            ..
        }) => Some(plan),
        _ => None,
    };
    let enclosure = foreign.map(|plan| agents::enclosure(plan, settings));
    let store = Arc::new(SessionLog::new(settings.places.sessions_dir()));
    let exceptions = settings.layers.texts("env.pass").unwrap_or_default();
    let env = child_env(settings.environment.variables(), exceptions);
    let artifacts = store.clone();
    let gate = settings.gate(Mode::usual(isolated), &program_tools::names(&tools))?;
    if let EngineAgent::Runtime(works) = agent
        && !works.accept_ungated
    {
        check_gate(settings, &gate, &chosen)?;
    }
    let masked_dirs = foreign.iter().flat_map(|plan| {
        let known = plan.setup.known.masked_dirs.iter();
        let own = plan.setup.masked_dirs.iter().cloned();
        known.map(|name| (*name).to_owned()).chain(own)
    });
    let hidden = gate.hidden_paths().into_iter().chain(masked_dirs).collect();
    let sandbox = sandboxing::sandbox(settings, root.root(), hidden, env.clone(), enclosure)?;
    let state_dirs = foreign.map(|plan| plan.setup.all_state_dirs());
    let transactions = transactions(settings, root.clone(), env, sandbox)?
        .with_state_dirs(state_dirs.unwrap_or_default());
    let mut builder = Engine::builder();
    for validator in validators {
        builder = builder.validator(validator);
    }
    let engine = builder
        .runtime(chosen.runtime)
        .store(store.clone())
        .describe(root.root().display().to_string(), env!("CARGO_PKG_VERSION"))
        .workspaces(Arc::new(transactions))
        .artifacts(Arc::new(move |session| {
            Arc::new(artifacts.artifacts(session))
        }))
        .clock(clock)
        .redactor(redactor_of(&credentials, &settings.environment))
        .outside(Arc::new(OutsideReads))
        .gate(gate)
        .tools(tools)
        .build()?;
    Ok(BuiltEngine {
        engine,
        store,
        mode: chosen.mode,
        fell_back: chosen.fell_back,
    })
}

/// Refuses an agent that does not ask before its calls, if deny rules, ask rules or the approval mode require it.
fn check_gate(
    settings: &Settings,
    gate: &PermissionGate,
    chosen: &BuiltRuntime,
) -> Result<(), Error> {
    let mut terms = Terms::unconfined(Strategy::InPlace);
    chosen.runtime.terms(&mut terms);
    if terms.gate == GateKind::PerCall {
        return Ok(());
    }
    // A run that lands nothing complies with the rules of its profile, even if its calls are not checked.
    let profile = settings.profile.as_ref();
    let lands_nothing =
        chosen.mode == RunMode::Analysis || profile.is_some_and(|profile| profile.lands_nothing);
    let is_unenforced = |rule: &&Rule| {
        rule.verdict != Verdict::Allow && !(lands_nothing && rule.level == Level::Profile)
    };
    let mut unenforced: Vec<String> = gate
        .rules
        .iter()
        .filter(is_unenforced)
        .map(|rule| {
            let verb = if rule.verdict == Verdict::Deny {
                "deny"
            } else {
                "ask"
            };
            format!("the {verb} rule `{rule}`")
        })
        .collect();
    // Plan mode is enforced without asking: the workspace is read-only in the sandbox of the agent.
    if !matches!(gate.mode, Mode::Auto | Mode::Plan) {
        unenforced.push(format!("the approval mode `{}`", gate.mode));
    }
    if unenforced.is_empty() {
        return Ok(());
    }
    let more = unenforced.len().saturating_sub(MAX_NAMED);
    unenforced.truncate(MAX_NAMED);
    if more > 0 {
        unenforced.push(format!("{more} more"));
    }
    Err(Error::usage(format!(
        "`{}` does not ask before its calls, so these cannot be enforced: {}",
        chosen.runtime.name(),
        unenforced.join(", ")
    ))
    .hint(
        "start it anyway with `--accept-ungated` (calls are compared with the rules afterwards, and a run that breaks a \
         rule does not land), use a runtime whose calls are checked, such as native, or set `runtimes.NAME.asks` for an \
         ACP agent of your own that asks before each call",
    ))
}

/// An engine without an agent, for operations on a session and its workspace between runs, such as undo.
pub(crate) fn idle_engine(settings: &Settings, root: Arc<Root>) -> Result<BuiltEngine, Error> {
    engine(
        settings,
        &EngineAgent::None,
        root,
        false,
        Vec::new(),
        Vec::new(),
    )
}

/// An engine without an agent and a workspace, for operations on sessions only, such as forking and queueing prompts.
pub fn session_engine(settings: &Settings) -> Result<Engine, Error> {
    let store = Arc::new(SessionLog::new(settings.places.sessions_dir()));
    let artifacts = store.clone();
    let engine = Engine::builder()
        .runtime(Arc::new(NoAgent))
        .store(store)
        .describe("", env!("CARGO_PKG_VERSION"))
        .workspaces(Arc::new(NoWorkspaces))
        .redactor(redactor(settings)?)
        .artifacts(Arc::new(move |session| {
            Arc::new(artifacts.artifacts(session))
        }))
        .clock(Arc::new(SystemClock::new()))
        .build()?;
    Ok(engine)
}

/// Refuses to open any workspace.
struct NoWorkspaces;

impl Workspaces for NoWorkspaces {
    fn open<'a>(
        &'a self,
        _: Opening<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, WorkspaceError>> {
        let message = "this engine has no workspace".to_owned();
        Box::pin(std::future::ready(Err(WorkspaceError {
            kind: WorkspaceErrorKind::Isolation,
            message,
        })))
    }
}

/// The port that opens workspaces: in place, or as copies in the data directory.
pub(crate) fn transactions(
    settings: &Settings,
    root: Arc<Root>,
    env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    sandbox: Option<Sandbox>,
) -> Result<Transactions, Error> {
    let places = &settings.places;
    let shelf = KeptRuns::new(places.transactions_dir());
    Transactions::new(root, env, sandbox.map(Arc::new), shelf, places.undo_dir())
        .map_err(|err| Error::new(ErrorKind::Failed, err.to_string()))
}

/// A runtime that ends at once, without any change.
struct NoAgent;

impl Runtime for NoAgent {
    fn name(&self) -> &str {
        "none"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(Capability::ALL)
    }

    fn run<'a>(&'a self, _: Job<'a>) -> BoxFuture<'a, Result<Stop, RuntimeError>> {
        Box::pin(std::future::ready(Ok(Stop::Done)))
    }
}

fn provider(
    settings: &Settings,
    plan: &ModelPlan,
    credentials: &Credentials,
) -> Result<(Arc<dyn Provider>, String), Error> {
    match plan {
        ModelPlan::Given(given) => {
            let provider = configured(settings, given.provider.clone());
            Ok((provider, given.model.clone()))
        }
        ModelPlan::Scripted(path) => {
            let text = read_text(path, MAX_FILE, "the script")?;
            let format = match path.extension().and_then(|ext| ext.to_str()) {
                Some("jsonl" | "ndjson" | "json") => ScriptFormat::JsonLines,
                _ => ScriptFormat::Toml,
            };
            let name = path.display().to_string();
            let scripted = ScriptedModelProvider::parse(&name, &text, format)
                .map_err(|err| Error::usage(err.to_string()))?;
            Ok((
                configured(settings, Arc::new(scripted)),
                "scripted".to_owned(),
            ))
        }
        ModelPlan::Served {
            vendor,
            model,
            base_url,
            cassette,
        } => {
            let mut options = provider_options(settings, vendor, base_url.clone(), credentials)?;
            if let Some(cassette) = cassette {
                let redactor = redactor_of(credentials, &settings.environment);
                cassette.apply_to(
                    &mut options,
                    vendor,
                    redactor,
                    RequestMatching::Exact,
                    &settings.notices,
                )?;
            }
            let wire = WireProvider::new(**vendor, options).map_err(setup_failure)?;
            Ok((configured(settings, Arc::new(wire)), model.clone()))
        }
    }
}

/// The provider of a vendor, with key, address and network settings.
pub fn served(
    settings: &Settings,
    vendor: &Vendor,
    base_url: Option<String>,
    credentials: &Credentials,
) -> Result<WireProvider, Error> {
    let options = provider_options(settings, vendor, base_url, credentials)?;
    WireProvider::new(*vendor, options).map_err(setup_failure)
}

fn provider_options(
    settings: &Settings,
    vendor: &Vendor,
    base_url: Option<String>,
    credentials: &Credentials,
) -> Result<ProviderOptions, Error> {
    let window = settings
        .layers
        .number(&Settings::named("providers", vendor.id, "context_window"));
    Ok(ProviderOptions {
        base_url,
        key: key(settings, vendor, credentials),
        aws: aws_keys(vendor, &settings.environment),
        context_window: window
            .map(|tokens| tokens.max(0.0) as u64)
            .filter(|tokens| *tokens > 0),
        settings: vendor_settings(settings, vendor),
        ..ProviderOptions::new(http(settings)?)
    })
}

/// A redactor that knows the secrets of this machine: credentials and secret environment variables.
pub fn redactor(settings: &Settings) -> Result<Arc<dyn Redactor>, Error> {
    let credentials = Credentials::read(&settings.places.credentials_file())?;
    Ok(redactor_of(&credentials, &settings.environment))
}

fn redactor_of(credentials: &Credentials, environment: &Environment) -> Arc<dyn Redactor> {
    Arc::new(Secrets::new(secrets(credentials, environment)))
}

/// The key of a vendor, from the variable that `providers.NAME.key_env` names, from the vendor's usual variable, or from
/// the credentials file.
pub fn key(
    settings: &Settings,
    vendor: &Vendor,
    credentials: &Credentials,
) -> Option<SecretString> {
    let configured = settings
        .layers
        .text(&Settings::named("providers", vendor.id, "key_env"));
    let variable = configured.or(vendor.key_env);
    let from_env = variable
        .and_then(|name| settings.environment.text(name))
        .filter(|key| !key.trim().is_empty());
    let key = from_env.or_else(|| {
        credentials
            .get(vendor.id)
            .map(|secret| secret.expose().to_owned())
    });
    key.map(|key| SecretString::from(key.trim().to_owned()))
}

/// The AWS keys that sign requests, from the usual variables; `None` for vendors without such signatures.
pub fn aws_keys(vendor: &Vendor, environment: &Environment) -> Option<AwsKeys> {
    let variable = |name: &str| {
        environment
            .text(name)
            .filter(|value| !value.trim().is_empty())
    };
    if !matches!(vendor.auth, Auth::SigV4(_)) {
        return None;
    }
    Some(AwsKeys {
        access_key: variable("AWS_ACCESS_KEY_ID")?,
        secret_key: variable("AWS_SECRET_ACCESS_KEY")?.into(),
        session_token: variable("AWS_SESSION_TOKEN").map(SecretString::from),
    })
}

/// The values that a vendor's address needs, from the settings or the usual variables.
fn vendor_settings(settings: &Settings, vendor: &Vendor) -> BTreeMap<String, String> {
    let value = |setting: &VendorSetting| {
        let configured =
            settings
                .layers
                .text(&Settings::named("providers", vendor.id, setting.name));
        let value = configured
            .map(str::to_owned)
            .or_else(|| settings.environment.text(setting.env))?;
        Some((setting.name.to_owned(), value))
    };
    vendor.settings.iter().filter_map(value).collect()
}

fn setup_failure(err: SetupError) -> Error {
    match err {
        SetupError::MissingKey { vendor, env } => Error::new(
            ErrorKind::Provider,
            format!("no key for `{vendor}`: {env} is not set"),
        )
        .hint(format!(
            "run `export {env}=…`, or put `{vendor} = \"…\"` into credentials.toml (mode 0600, \
                 `windlass config path` shows where)"
        )),
        SetupError::MissingUrl { vendor } => {
            Error::usage(format!("`{vendor}` has no default address")).hint(format!(
                "set one with `--base-url`, or with the setting `providers.{vendor}.base_url`"
            ))
        }
        other => Error::usage(other.to_string()),
    }
}

pub(crate) fn http(settings: &Settings) -> Result<Http, Error> {
    Http::new(&http_options(settings)?).map_err(|err| Error::usage(err.to_string()))
}

/// The options of HTTP clients: proxies, certificates and timeouts.
pub fn http_options(settings: &Settings) -> Result<HttpOptions, Error> {
    let variable = |name: &str| {
        let environment = &settings.environment;
        let lower = environment.text(&name.to_lowercase());
        lower
            .or_else(|| environment.text(name))
            .filter(|value| !value.is_empty())
    };
    let extra_ca_pem = match settings.layers.text("ca_file") {
        Some(path) => Some(read_text(Path::new(path), MAX_FILE, "ca_file")?.into_bytes()),
        None => None,
    };
    let usual = HttpOptions::default();
    Ok(HttpOptions {
        extra_ca_pem,
        idle_timeout: seconds(settings, "idle_timeout_s", usual.idle_timeout)?,
        total_timeout: seconds(settings, "request_timeout_s", usual.total_timeout)?,
        https_proxy: variable("HTTPS_PROXY"),
        http_proxy: variable("HTTP_PROXY"),
        no_proxy: variable("NO_PROXY"),
        ..usual
    })
}

fn seconds(settings: &Settings, key: &str, usual: Duration) -> Result<Duration, Error> {
    match settings.layers.number(key) {
        None => Ok(usual),
        Some(seconds) if (0.1..=86_400.0).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        Some(_) => Err(Error::usage(format!(
            "`{key}` must be a number of seconds, from 0.1 to 86400"
        ))),
    }
}

/// The values that must not reach a model or a log: stored credentials, and variables with a secret name.
fn secrets(credentials: &Credentials, environment: &Environment) -> Vec<Secret> {
    let named = environment.variables().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        windlass_core::gate::keeps_secret(&name).then(|| value.into_string().ok())?
    });
    let stored = credentials
        .secrets()
        .map(|secret| secret.expose().to_owned());
    named.chain(stored).map(Secret::new).collect()
}

/// Reads a text file that the user named, of at most `most` bytes. `what` names the file in error messages.
pub fn read_text(path: &Path, most: u64, what: &str) -> Result<String, Error> {
    let cannot =
        |why: String| Error::usage(format!("{what} {} cannot be read: {why}", path.display()));
    let bytes =
        windlass_host::workspace::read_file(path, most).map_err(|err| cannot(err.message))?;
    String::from_utf8(bytes).map_err(|_| cannot("it is not UTF-8 text".into()))
}

/// Parses the value of `--json-schema`: the path of a file, or the schema itself.
fn output_schema(given: &str) -> Result<serde_json::Value, Error> {
    let inline = given.trim_start().starts_with('{');
    let text = if inline {
        given.to_owned()
    } else {
        read_text(Path::new(given), MAX_FILE, "the schema")?
    };
    let name = if inline { "--json-schema" } else { given };
    let schema = serde_json::from_str(&text)
        .map_err(|err| Error::usage(format!("{name} is not JSON: {err}")))?;
    windlass_engine::check_schema(&schema)
        .map_err(|err| Error::usage(format!("{name} is not a JSON Schema: {err}")))?;
    Ok(schema)
}

/// The price of a model in the settings, if both input and output are set.
pub fn price(settings: &Settings, model: &str) -> Option<Price> {
    let rate = |what: &str| {
        settings
            .layers
            .number(&Settings::named("prices", model, what))
            .map(|usd| (usd * 1_000_000.0).max(0.0) as u64)
    };
    let (input, output) = (rate("input")?, rate("output")?);
    Some(Price {
        input,
        output,
        cache_read: rate("cache_read").unwrap_or(input),
        cache_write: rate("cache_write").unwrap_or(input),
    })
}

/// The context window of a model in the settings, in tokens.
pub fn window(settings: &Settings, model: &str) -> Option<u64> {
    let tokens = settings
        .layers
        .number(&Settings::named("models", model, "context_window"))?;
    Some(tokens.max(0.0) as u64).filter(|tokens| *tokens > 0)
}

/// Rejects a cost limit that cannot be enforced, because the price of the model is unknown.
fn check_price(settings: &Settings, provider: &dyn Provider, model: &str) -> Result<(), Error> {
    if settings.explicit_cost_limit() && provider.facts(model).price.is_none() {
        return Err(Error::usage(format!(
            "a cost limit is set, but the price of `{model}` is not known"
        ))
        .hint(format!(
            "set `{}` and `{}` in the settings, or limit tokens instead (`--max-tokens`)",
            Settings::named("prices", model, "input"),
            Settings::named("prices", model, "output"),
        )));
    }
    Ok(())
}

/// Wraps a provider, so that the settings override the facts of its models, and models without tool calls can use tools
/// through JSON.
fn configured(settings: &Settings, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
    // Every provider is wrapped, because support for tool calls may be known only after the server was probed.
    let settings = settings.clone();
    Arc::new(JsonActions::new(Arc::new(ConfiguredProvider {
        inner,
        settings,
    })))
}

/// A provider that overrides model facts with the settings. It does so for each model separately, because the warning
/// about a switch of models compares the facts of both.
struct ConfiguredProvider {
    inner: Arc<dyn Provider>,
    settings: Settings,
}

impl ConfiguredProvider {
    fn override_facts(&self, model: &str, facts: ModelFacts) -> ModelFacts {
        let settings = &self.settings;
        let tools = Settings::named("models", model, "tools");
        ModelFacts {
            price: price(settings, model).or(facts.price),
            tools: settings.layers.boolean(&tools).unwrap_or(facts.tools),
            context_window: window(settings, model).or(facts.context_window),
            ..facts
        }
    }
}

impl Provider for ConfiguredProvider {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn facts(&self, model: &str) -> ModelFacts {
        self.override_facts(model, self.inner.facts(model))
    }

    fn probe<'a>(&'a self, model: &'a str) -> BoxFuture<'a, Result<ModelFacts, ProviderError>> {
        Box::pin(async move { Ok(self.override_facts(model, self.inner.probe(model).await?)) })
    }

    fn stream<'a>(&'a self, request: Request<'a>) -> BoxStream<'a, Result<Chunk, ProviderError>> {
        self.inner.stream(request)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use windlass_core::runtime::Runtime as _;
    use windlass_engine::{NativeOptions, NativeRuntime};
    use windlass_host::config::SettingsLayer;
    use windlass_testing::{ManualClock, ScriptedProvider};

    use super::*;

    #[test]
    fn a_switch_to_a_weaker_model_reports_the_lost_features() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::none(dir.path());
        let text = "[models.small]\ntools = false\ncontext_window = 4096\n[models.large]\ncontext_window = 200000\n";
        let file = Path::new("config.toml");
        settings
            .layers
            .add_text(SettingsLayer::User, file, text)
            .unwrap();
        let provider = configured(&settings, Arc::new(ScriptedProvider::new([])));
        let runtime = |model: &str| {
            let options = NativeOptions {
                model: model.to_owned(),
                ..NativeOptions::default()
            };
            NativeRuntime::new(provider.clone(), Arc::new(ManualClock::default()), options)
        };
        let lost = runtime("small").loses_from("large").join(", ");
        assert!(
            lost.contains("tool calls") && lost.contains("4096"),
            "{lost}"
        );
        assert!(runtime("large").loses_from("small").is_empty());
    }

    #[test]
    fn the_variables_of_vendors_name_their_addresses() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::none(dir.path());
        settings.environment = Environment::empty()
            .with("OPENAI_BASE_URL", "http://one/v1")
            .with("ANTHROPIC_BASE_URL", "http://two");
        let address = |id: &str, settings: &Settings| {
            let vendor = windlass_providers::vendor(id).unwrap();
            crate::model::configured_base_url(vendor, settings)
        };
        assert_eq!(address("openai", &settings).unwrap(), "http://one/v1");
        assert_eq!(address("openai-chat", &settings).unwrap(), "http://one/v1");
        assert_eq!(address("anthropic", &settings).unwrap(), "http://two");
        assert_eq!(address("azure", &settings), None);
        let text = "[providers.openai]\nbase_url = \"http://mine\"\n";
        let file = Path::new("config.toml");
        settings
            .layers
            .add_text(SettingsLayer::User, file, text)
            .unwrap();
        assert_eq!(address("openai", &settings).unwrap(), "http://mine");
    }

    #[tokio::test]
    async fn prompts_are_queued_without_an_agent_and_run_later() {
        use windlass_core::message::Message;
        use windlass_core::runtime::RunMode;
        use windlass_engine::{Delivery, OpenSession, QueueRequest};

        let dir = tempfile::tempdir().unwrap();
        let settings = Settings::none(dir.path());
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let idle = idle_engine(&settings, root).unwrap().engine;
        let opened = idle.open(OpenSession::New, RunMode::Full).await.unwrap();
        let id = opened.id().clone();
        drop(opened);
        let mut seqs = Vec::new();
        for engine in [session_engine(&settings).unwrap(), idle] {
            let which = OpenSession::Resume(id.clone());
            let session = engine.open(which, RunMode::Full).await.unwrap();
            let request = QueueRequest {
                by: Some("ci".to_owned()),
                ..QueueRequest::new(Message::user("go"), Delivery::FollowUp)
            };
            seqs.insert(0, session.queue_request(request).await.unwrap());
            session.reorder_queue(seqs.clone()).await.unwrap();
            let queued = session.with_history(|history| history.queue().all().to_vec());
            let order: Vec<u64> = queued.iter().map(|waiting| waiting.seq).collect();
            assert_eq!(order, seqs);
        }
    }
}
