//! The choice of a runtime, with its program, its model, the vendor and the sign-in. Missing programs, keys and other
//! errors are reported here, before a run starts.

#[cfg(test)]
mod option_tests;
mod runtime_checker;

use std::path::{Path, PathBuf};

use windlass_core::runtime::{Capability, RunMode};
use windlass_core::terms::MeteringKind;
use windlass_host::sandbox::{HostRule, NetPolicy};
use windlass_host::secret::Credentials;
use windlass_providers::models::default_model;
use windlass_providers::protocol::Protocol;
use windlass_providers::{VENDORS, Vendor};
use windlass_registry::acp_registry::{named_id, registry_name};
use windlass_registry::agent_settings::{self, AgentSettings};
use windlass_registry::{
    AgentProgram, AgentSetup, InstalledAgents, RegistryAgent, RuntimeChoice, abilities, choose,
    custom_agents, needs_of, parse_auto, plain_name, unknown_runtime,
};
use windlass_runtimes::agents::{AGENTS, ANY_ACP, AgentKind, AgentSpec, agent as agent_named};

pub use self::runtime_checker::RuntimeChecker;

use crate::acp_agents;
use crate::cassette::CassetteUse;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind};
use crate::flags::{AgentFlags, SignIn};
use crate::model::{self, ModelPlan};
use crate::settings::Settings;

/// The runtime of a run, with everything that it needs to start.
pub enum RuntimePlan {
    /// The built-in agent in one of its forms, and its model.
    Ours(AgentKind, ModelPlan),
    Foreign(Box<ForeignPlan>),
}

/// A foreign agent with its program, model access and sign-in.
pub struct ForeignPlan {
    pub setup: AgentSetup,
    /// The model server; `None` if the agent uses its own login.
    pub upstream: Option<Upstream>,
    pub metering: MeteringKind,
    /// With the agent's own login: the credential file, and its path in the agent's home directory.
    pub login_file: Option<(PathBuf, String)>,
    /// With the agent's own login: hosts to which the agent may connect.
    pub hosts: Vec<HostRule>,
}

/// The model server that the meter of a foreign agent forwards to.
pub struct Upstream {
    pub vendor: &'static Vendor,
    /// The address, if it differs from the vendor's own.
    pub base_url: Option<String>,
    /// A cassette to record to, or to play in place of the network.
    pub cassette: Option<CassetteUse>,
}

impl RuntimePlan {
    /// The runtime that the flags and settings name; for `auto`, also the record of the choice.
    pub fn of(
        agent: &AgentFlags,
        settings: &Settings,
    ) -> Result<(Self, Option<RuntimeChoice>), Error> {
        agent_settings::check_names(&settings.layers)?;
        let name = settings.layers.text("runtime").unwrap_or("native");
        let Some(asked) = parse_auto(name) else {
            return Ok((Self::named(name, agent, settings)?, None));
        };
        let needs = needs_of(
            &asked?,
            settings.profile.as_ref().map(|profile| profile.mode),
        );
        let statuses = RuntimeChecker::new(agent, settings)?.statuses()?;
        let choice = choose(&statuses, needs, settings.layers.texts("runtime_order"))?;
        match &choice.chosen {
            Some(chosen) => Ok((Self::named(chosen, agent, settings)?, Some(choice))),
            None => Err(choice.failure().into()),
        }
    }

    /// Plans a run with the runtime of this name.
    fn named(name: &str, agent: &AgentFlags, settings: &Settings) -> Result<Self, Error> {
        if let Some(command) = name.strip_prefix("acp:") {
            let dir = settings.places.runtimes_dir();
            let listed =
                named_id(name).and_then(|id| InstalledAgents { dir: &dir }.registry_agent(id));
            let agent_ref = match &listed {
                Some(listed) => AgentRef::Registry(listed),
                None => AgentRef::Command(command),
            };
            return foreign(&ANY_ACP, agent_ref, agent, settings);
        }
        let own = custom_agents::all(&settings.layers)?;
        if let Some(own) = own.iter().find(|own| own.name == name) {
            return foreign(own.known, AgentRef::Own(&own.name), agent, settings);
        }
        let known = agent_named(name).ok_or_else(|| unknown_runtime(name, &own))?;
        if known.program.is_some() {
            return foreign(known, AgentRef::Known, agent, settings);
        }
        let only_foreign = [
            ("--auth", agent.auth.is_some()),
            ("--metering", agent.metering.is_some()),
            ("--accept-ungated", agent.accept_ungated),
        ];
        if let Some((flag, _)) = only_foreign.iter().find(|(_, given)| *given) {
            return Err(Error::usage(format!(
                "`{flag}` is only for foreign agents, and `{name}` is built in"
            ))
            .hint("omit the flag, or choose another runtime with `--runtime`"));
        }
        Ok(Self::Ours(known.kind, ModelPlan::of(agent, settings)?))
    }

    /// Whether runs of this runtime must be isolated, even if the user asks for an in-place run.
    pub fn needs_copy(&self) -> bool {
        matches!(self, Self::Foreign(_))
    }

    /// The name of the foreign agent; `None` for the built-in one.
    pub fn foreign(&self) -> Option<&str> {
        match self {
            Self::Ours(..) => None,
            Self::Foreign(plan) => Some(&plan.setup.name),
        }
    }

    /// The id of the vendor that serves the model; `None` if the agent uses its own login.
    pub fn vendor(&self) -> Option<&str> {
        match self {
            Self::Ours(_, ModelPlan::Given(given)) => Some(given.provider.name()),
            Self::Ours(_, ModelPlan::Scripted(_)) => Some("scripted"),
            Self::Ours(_, ModelPlan::Served { vendor, .. }) => Some(vendor.id),
            Self::Foreign(plan) => plan.upstream.as_ref().map(|upstream| upstream.vendor.id),
        }
    }

    /// Warnings for the user before the run starts: an unknown model, settings that do not reach the agent.
    pub fn warnings(&self, settings: &Settings, root: &Path) -> Vec<String> {
        match self {
            Self::Ours(_, plan) => plan.unknown_model().into_iter().collect(),
            Self::Foreign(plan) => {
                let ignored = ignored_sampling(plan, settings).into_iter();
                ignored
                    .chain(hidden_folders(plan, settings, root))
                    .collect()
            }
        }
    }

    /// The default mode of runs with this runtime.
    pub fn mode(&self) -> RunMode {
        match self {
            Self::Ours(AgentKind::Patch, _) => RunMode::Patch,
            Self::Ours(AgentKind::Completion, _) => RunMode::Analysis,
            Self::Ours(..) => RunMode::Full,
            Self::Foreign(plan) => match abilities(plan.setup.known)
                .0
                .has(Capability::NativeToolLoop)
            {
                true => RunMode::Full,
                // The agent has no tools: its model only writes edits.
                false => RunMode::Patch,
            },
        }
    }
}

/// A warning about sampling settings that cannot be passed to a foreign agent.
fn ignored_sampling(plan: &ForeignPlan, settings: &Settings) -> Option<String> {
    let all = AGENTS
        .iter()
        .find(|known| known.kind == AgentKind::Native)
        .map_or(&[][..], |known| known.sampling_options);
    let set = |key: &&&str| {
        settings.layers.get(key).is_some() && !plan.setup.known.sampling_options.contains(*key)
    };
    let ignored: Vec<String> = all
        .iter()
        .filter(set)
        .map(|key| format!("`{key}`"))
        .collect();
    (!ignored.is_empty()).then(|| {
        format!(
            "{} does not support these settings, which are ignored: {}",
            plan.setup.name,
            ignored.join(", ")
        )
    })
}

/// Warnings about directories in the agent's own `PATH` that its sandbox hides.
fn hidden_folders(plan: &ForeignPlan, settings: &Settings, root: &Path) -> Vec<String> {
    let (setup, table) = (&plan.setup, &plan.setup.settings);
    let path = setup
        .options
        .get("env")
        .and_then(|env| env.get("PATH")?.as_str());
    let folders = std::env::split_paths(path.unwrap_or_default());
    let hidden = |folder: &PathBuf| {
        let shown = setup
            .program
            .visible_paths
            .iter()
            .any(|place| folder.starts_with(place));
        let hides = || crate::sandboxing::hidden_program(settings, root, folder);
        folder.is_absolute() && !shown && hides().is_ok_and(|hidden| hidden.is_some())
    };
    let warn = |folder: PathBuf| {
        let folder = folder.display();
        format!(
            "`runtimes.{table}.env.PATH` contains {folder}, which the sandbox hides: programs in it are not found; show it \
             with `sandbox.read = [\"{folder}\"]`"
        )
    };
    folders.filter(hidden).map(warn).collect()
}

/// The way in which the user named a foreign agent.
#[derive(Clone, Copy)]
enum AgentRef<'a> {
    /// By its name in the table of known agents.
    Known,
    /// By a name that the user defined in the settings.
    Own(&'a str),
    /// By its command, as `acp:COMMAND`.
    Command(&'a str),
    /// By its id in the ACP registry.
    Registry(&'a RegistryAgent),
}

impl AgentRef<'_> {
    /// The name of the agent's table in the settings, below `runtimes`.
    fn table(self, known: &'static AgentSpec) -> String {
        match self {
            Self::Known | Self::Command(_) => known.name.to_owned(),
            Self::Own(name) => name.to_owned(),
            Self::Registry(listed) => registry_name(&listed.id),
        }
    }
}

fn foreign(
    known: &'static AgentSpec,
    agent_ref: AgentRef<'_>,
    agent: &AgentFlags,
    settings: &Settings,
) -> Result<RuntimePlan, Error> {
    if agent.script.is_some() {
        return Err(Error::usage(
            "`--script` works only with the built-in agent, because a foreign agent needs a model server",
        )
        .hint("omit `--script`, or use the built-in agent"));
    }
    let table = &agent_ref.table(known);
    let mut given = AgentSettings::read(table, &settings.layers)?;
    if let AgentRef::Registry(listed) = agent_ref {
        given.add_env(&listed.env);
    }
    let (program, words) = find_program(known, agent_ref, given.command.take(), settings)?;
    let name = match agent_ref {
        AgentRef::Known | AgentRef::Own(_) | AgentRef::Registry(_) => table.clone(),
        AgentRef::Command(_) => format!("acp-{}", plain_name(&program.file)),
    };
    let (vendor, mut model) = model::named(agent, settings.layers.text("model"), settings)?;
    let auth = agent.auth.or_else(|| given.auth.take()?.parse().ok());
    let login = auth == Some(SignIn::Login);
    let metering = agent
        .metering
        .or_else(|| given.metering.take()?.parse().ok());
    let metering = metering_plan(known, table, login, metering, settings)?;
    let supported = SupportedModels::of(known, table, &given)?;
    let (mut upstream, mut login_file, mut hosts) = (None, None, Vec::new());
    if login {
        let file = given.login_file.as_deref();
        login_file = Some(find_login(known, table, file, &settings.environment)?);
        hosts = login_hosts(known, &given.login_hosts)?;
    } else {
        let served = find_upstream(&supported, table, vendor, agent, settings)?;
        if supported.needs_model && model.is_none() {
            let usual = default_model(served.vendor);
            model = Some(
                usual
                    .ok_or_else(|| no_model(table, served.vendor))?
                    .to_owned(),
            );
        }
        upstream = Some(served);
    }
    let options = &mut given.options;
    let asked = agent.reasoning_effort.is_some();
    agent_settings::add_reasoning((known, table), asked, &settings.layers, options)?;
    let temperature = settings.sampling().temperature;
    agent_settings::add_sampling(known, temperature, settings.max_output(), options);
    Ok(RuntimePlan::Foreign(Box::new(ForeignPlan {
        setup: AgentSetup {
            known,
            name,
            settings: table.clone(),
            program,
            words,
            model,
            protocol: upstream.as_ref().map(|upstream| upstream.vendor.protocol),
            masked_dirs: given.masked_dirs,
            state_dirs: given.state_dirs,
            instruction_files: given.instruction_files,
            options: given.options,
        },
        upstream,
        metering,
        login_file,
        hosts,
    })))
}

/// The protocols and vendors that an agent can use: those of the table of known agents, overridden by the settings.
struct SupportedModels<'a> {
    known: &'static AgentSpec,
    protocols: Vec<Protocol>,
    vendors: Vec<&'a str>,
    needs_model: bool,
}

impl<'a> SupportedModels<'a> {
    fn of(known: &'static AgentSpec, table: &str, given: &'a AgentSettings) -> Result<Self, Error> {
        let mut protocols = known.protocols.to_vec();
        if let Some(names) = &given.protocols {
            protocols.clear();
            for name in names {
                protocols.extend(protocols_named(name).ok_or_else(|| {
                    Error::usage(format!(
                        "`runtimes.{table}.protocols` contains the unknown protocol `{name}`"
                    ))
                    .hint("the protocols are anthropic, responses, chat and gemini")
                })?);
            }
        }
        let vendors = match &given.vendors {
            Some(own) => own.iter().map(String::as_str).collect(),
            None => known.vendors.to_vec(),
        };
        let unknown = |id: &&&str| windlass_providers::vendor(id).is_none();
        if let Some(id) = vendors.iter().find(unknown) {
            return Err(Error::usage(format!(
                "`runtimes.{table}.vendors` contains the unknown vendor `{id}`"
            ))
            .hint("docs/vendors.md lists the vendors"));
        }
        Ok(Self {
            known,
            protocols,
            vendors,
            needs_model: given.needs_model.unwrap_or(known.needs_model),
        })
    }
}

/// The protocols for a value of the setting `runtimes.NAME.protocols`.
fn protocols_named(name: &str) -> Option<&'static [Protocol]> {
    Some(match name {
        "anthropic" => &[
            Protocol::AnthropicMessages,
            Protocol::BedrockAnthropic,
            Protocol::VertexAnthropic,
        ],
        "responses" => &[Protocol::OpenAiResponses],
        "chat" => &[Protocol::OpenAiChat],
        "gemini" => &[Protocol::Gemini],
        _ => return None,
    })
}

fn find_upstream(
    supported: &SupportedModels<'_>,
    name: &str,
    named: Option<&'static Vendor>,
    agent: &AgentFlags,
    settings: &Settings,
) -> Result<Upstream, Error> {
    let credentials = Credentials::read(&settings.places.credentials_file())?;
    let played = agent.cassette.is_some();
    let has_key = |vendor: &&'static Vendor| {
        played || crate::wire::key(settings, vendor, &credentials).is_some()
    };
    let vendor = match named {
        Some(vendor) => vendor,
        None => supported
            .vendors
            .iter()
            .filter_map(|id| windlass_providers::vendor(id))
            .find(has_key)
            .ok_or_else(|| {
                let keys: Vec<&str> = supported
                    .vendors
                    .iter()
                    .filter_map(|id| windlass_providers::vendor(id)?.key_env)
                    .collect();
                Error::new(
                    ErrorKind::Provider,
                    format!(
                        "no key for the model of `{name}`: {} is not set",
                        keys.join(" or ")
                    ),
                )
                .hint(no_key_hint(supported.known, keys.first().unwrap_or(&"KEY")))
            })?,
    };
    if !supported.protocols.contains(&vendor.protocol) {
        let fit: Vec<&str> = VENDORS
            .iter()
            .filter(|vendor| supported.protocols.contains(&vendor.protocol))
            .map(|vendor| vendor.id)
            .collect();
        return Err(Error::usage(format!(
            "`{name}` does not support the protocol of `{}`",
            vendor.id
        ))
        .hint(format!("it works with these vendors: {}", fit.join(", "))));
    }
    Ok(Upstream {
        vendor,
        base_url: model::base_url(agent, vendor, settings),
        cassette: CassetteUse::of(agent),
    })
}

fn no_key_hint(known: &AgentSpec, variable: &str) -> String {
    let signs_in = known.login.is_some_and(|login| login.file.is_some());
    match signs_in {
        false => {
            format!("run `export {variable}=…`, or name another vendor with `-m VENDOR/MODEL`")
        }
        true => format!(
            "run `export {variable}=…`, name another vendor with `-m VENDOR/MODEL`, or use the agent's own login with \
             `--auth login --metering reported` (docs/runtimes.md describes the disadvantages)"
        ),
    }
}

/// Decides the metering (decision 9). With its own login, an agent calls its model directly, so its spending cannot be
/// metered on the wire; the user must accept that explicitly with `--metering reported` or `--metering none`.
fn metering_plan(
    known: &AgentSpec,
    name: &str,
    login: bool,
    requested: Option<MeteringKind>,
    settings: &Settings,
) -> Result<MeteringKind, Error> {
    if login && known.login.is_none() {
        return Err(Error::usage(format!("`{name}` has no login of its own"))
            .hint("omit `--auth login`: the agent works with your key, which it never sees"));
    }
    match (login, requested) {
        (false, None | Some(MeteringKind::Wire)) if crate::sandboxing::is_open(settings)? => {
            let why = "the model calls of a foreign agent can be metered only in a network namespace of its own, and \
                       with `--net open` the agent would share the network of this machine";
            Err(Error::new(ErrorKind::Isolation, why)
                .hint("omit `--net open`, or allow single hosts with `--net allow:HOST`"))
        }
        (false, None | Some(MeteringKind::Wire)) => Ok(MeteringKind::Wire),
        (false, Some(_)) => Err(Error::usage("with a key, the model calls go through Windlass, which always meters them")
            .hint("omit `--metering`, or use the agent's own login with `--auth login`")),
        (true, Some(MeteringKind::Reported)) => Ok(MeteringKind::Reported),
        (true, Some(MeteringKind::None)) => {
            let budget = settings.budget()?;
            let open = [
                ("--max-budget-usd", budget.cost_micros.is_none()),
                ("--max-tokens", budget.tokens.is_none() && budget.tokens_uncached.is_none()),
                ("--max-steps", budget.steps.is_none()),
            ];
            match open.iter().find(|(_, unlimited)| !unlimited) {
                None => Ok(MeteringKind::None),
                Some((flag, _)) => {
                    Err(Error::usage("with `--metering none`, spending is not counted, so no limit can be enforced")
                        .hint(format!("add `{flag} unlimited`, or use `--metering reported`")))
                }
            }
        }
        (true, _) => Err(Error::usage(format!(
            "with its own login, the model calls of `{name}` do not go through Windlass: they cannot be metered or \
             refused, and the agent has your credential"
        ))
        .hint("accept the numbers that the agent reports with `--metering reported`, or run without limits with `--metering none`")),
    }
}

fn no_model(name: &str, vendor: &Vendor) -> Error {
    Error::usage(format!(
        "`{name}` needs a model, and there is no default model for `{}`",
        vendor.id
    ))
    .hint(format!(
        "name one with `-m`, for example `-m {}/MODEL`, or with the setting `model`",
        vendor.id
    ))
}

fn find_login(
    known: &AgentSpec,
    name: &str,
    configured: Option<&str>,
    environment: &Environment,
) -> Result<(PathBuf, String), Error> {
    let home = environment.get("HOME").map(PathBuf::from);
    let below = configured
        .or(known.login.and_then(|login| login.file))
        .ok_or_else(|| {
            Error::usage(format!("the credential file of `{name}` is not known")).hint(format!(
                "set `runtimes.{name}.login_file` to its path relative to your home directory"
            ))
        })?;
    if !Path::new(below)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)))
    {
        return Err(Error::usage(format!(
            "`runtimes.{name}.login_file` is `{below}`, which is not a path within your home directory"
        ))
        .hint("use a path relative to your home directory, as in `.agent/credentials.json`"));
    }
    let path = home.unwrap_or_default().join(below);
    if !path.is_file() {
        return Err(Error::new(
            ErrorKind::Provider,
            format!(
                "`{name}` is not signed in: {} does not exist",
                path.display()
            ),
        )
        .hint("start the agent itself and sign in first"));
    }
    Ok((path, below.to_owned()))
}

/// The file with the agent's own login, if the user is signed in. The file is not read.
pub(crate) fn signed_in(known: &AgentSpec, name: &str, settings: &Settings) -> Option<PathBuf> {
    known.login?;
    let given = AgentSettings::read(name, &settings.layers).ok()?;
    let file = given.login_file.as_deref();
    let (path, _) = find_login(known, name, file, &settings.environment).ok()?;
    Some(path)
}

/// The hosts to which an agent with its own login must connect, as network rules.
fn login_hosts(known: &AgentSpec, own: &[String]) -> Result<Vec<HostRule>, Error> {
    let hosts = known.login.map_or(&[][..], |login| login.hosts).iter();
    let hosts: Vec<&str> = hosts
        .copied()
        .chain(own.iter().map(String::as_str))
        .collect();
    if hosts.is_empty() {
        return Ok(Vec::new());
    }
    match format!("allow:{}", hosts.join(","))
        .parse()
        .map_err(|why: String| Error::usage(why))?
    {
        NetPolicy::Hosts(rules) => Ok(rules),
        NetPolicy::Off | NetPolicy::Loopback | NetPolicy::Open => Ok(Vec::new()),
    }
}

/// The program of an agent and its first arguments: the program that the user named, else the one that Windlass
/// installed, else the one in `PATH`.
fn find_program(
    known: &AgentSpec,
    agent_ref: AgentRef<'_>,
    configured: Option<String>,
    settings: &Settings,
) -> Result<(AgentProgram, Vec<String>), Error> {
    let dir = settings.places.runtimes_dir();
    let installed = InstalledAgents { dir: &dir };
    let command = match agent_ref {
        AgentRef::Command(command) => command,
        AgentRef::Known | AgentRef::Own(_) => "",
        AgentRef::Registry(listed) => {
            let program = match configured {
                Some(command) => installed.find(known, Some(&command))?,
                None => installed.find_registry_agent(listed)?,
            };
            return Ok((program, listed.args.clone()));
        }
    };
    let mut words = command.split_whitespace().map(str::to_owned);
    let named = words.next().or(configured);
    if let (AgentRef::Own(name), None) = (agent_ref, &named) {
        return Err(custom_agents::no_command(name).into());
    }
    let program = installed.find(known, named.as_deref()).map_err(|why| {
        // If there is no such program, the word may be the id of an agent in the registry.
        let listed = acp_agents::registry(settings).is_ok_and(|all| all.find(command).is_ok());
        match listed {
            true => Error::usage(format!("`acp:{command}` is not installed")).hint(format!(
                "install it from the ACP registry with `windlass runtimes install acp:{command}`"
            )),
            false => Error::from(why),
        }
    })?;
    Ok((program, words.collect()))
}
