//! Which runtime works, and what it is given: its program, its model and who serves it, how it signs in. What cannot be
//! had is said here, before anything starts.

mod ground;
#[cfg(test)]
mod option_tests;

use std::path::{Path, PathBuf};

use windlass_core::runtime::{Capability, RunMode};
use windlass_core::terms::MeteringKind;
use windlass_host::sandbox::{HostRule, NetPolicy};
use windlass_host::secret::Credentials;
use windlass_providers::models::default_model;
use windlass_providers::protocol::Protocol;
use windlass_providers::{VENDORS, Vendor};
use windlass_registry::acp_registry::{named_id, registry_name};
use windlass_registry::options::{self, Given};
use windlass_registry::{
    AgentSetup, Choice, Installed, Program, RegistryAgent, abilities, asked_by, choose, needs_of,
    own, plain_name, unknown,
};
use windlass_runtimes::agents::{AGENTS, ANY_ACP, AgentKind, AgentSpec, agent as agent_named};

pub use self::ground::Ground;

use crate::acp_agents;
use crate::cassette::Tape;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind};
use crate::flags::{AgentFlags, SignIn};
use crate::model::{self, ModelPlan};
use crate::settings::Settings;

/// Who works.
pub enum RuntimePlan {
    /// Our own loop, in one of its forms, on a model.
    Ours(AgentKind, ModelPlan),
    /// An agent that is not ours.
    Foreign(Box<ForeignPlan>),
}

/// An agent that is not ours, with everything it is given.
pub struct ForeignPlan {
    /// Its program, model and options.
    pub setup: AgentSetup,
    /// Who serves its model; none with a login.
    pub upstream: Option<Upstream>,
    /// How its spending is known.
    pub metering: MeteringKind,
    /// Its credential file and the name in its home, with a login.
    pub login_file: Option<(PathBuf, String)>,
    /// Hosts that it reaches with a login.
    pub hosts: Vec<HostRule>,
}

/// Who serves the model of a foreign agent.
pub struct Upstream {
    /// The vendor.
    pub vendor: &'static Vendor,
    /// Its address, where it is not the vendor's own.
    pub base_url: Option<String>,
    /// A cassette beside the network or in its place.
    pub tape: Option<Tape>,
}

impl RuntimePlan {
    /// Who works, and how that was found where nobody named one.
    pub fn of(agent: &AgentFlags, settings: &Settings) -> Result<(Self, Option<Choice>), Error> {
        options::check_names(&settings.layers)?;
        let name = settings.layers.text("runtime").unwrap_or("native");
        let Some(asked) = asked_by(name) else {
            return Ok((Self::named(name, agent, settings)?, None));
        };
        let needs = needs_of(
            &asked?,
            settings.profile.as_ref().map(|profile| profile.mode),
        );
        let standings = Ground::new(agent, settings)?.standings()?;
        let choice = choose(&standings, needs, settings.layers.texts("runtime_order"))?;
        match &choice.chosen {
            Some(chosen) => Ok((Self::named(chosen, agent, settings)?, Some(choice))),
            None => Err(choice.failure().into()),
        }
    }

    /// The runtime of that name.
    fn named(name: &str, agent: &AgentFlags, settings: &Settings) -> Result<Self, Error> {
        if let Some(command) = name.strip_prefix("acp:") {
            let dir = settings.places.runtimes_dir();
            let listed = named_id(name).and_then(|id| Installed { dir: &dir }.registry_agent(id));
            let whose = match &listed {
                Some(listed) => Whose::Registry(listed),
                None => Whose::Command(command),
            };
            return foreign(&ANY_ACP, whose, agent, settings);
        }
        let own = own::all(&settings.layers)?;
        if let Some(own) = own.iter().find(|own| own.name == name) {
            return foreign(own.known, Whose::Own(&own.name), agent, settings);
        }
        let known = agent_named(name).ok_or_else(|| unknown(name, &own))?;
        if known.program.is_some() {
            return foreign(known, Whose::Known, agent, settings);
        }
        let only_foreign = [
            ("--auth", agent.auth.is_some()),
            ("--metering", agent.metering.is_some()),
            ("--accept-ungated", agent.accept_ungated),
        ];
        if let Some((flag, _)) = only_foreign.iter().find(|(_, given)| *given) {
            return Err(Error::usage(format!(
                "{flag} is for agents that are not ours, and `{name}` is"
            ))
            .hint("leave it out, or name another runtime with --runtime"));
        }
        Ok(Self::Ours(known.kind, ModelPlan::of(agent, settings)?))
    }

    /// Whether it works on a copy, whatever else is said.
    pub fn needs_copy(&self) -> bool {
        matches!(self, Self::Foreign(_))
    }

    /// The name of the agent, when it is not ours.
    pub fn foreign(&self) -> Option<&str> {
        match self {
            Self::Ours(..) => None,
            Self::Foreign(plan) => Some(&plan.setup.name),
        }
    }

    /// Who serves the model, by the vendor's name, as far as we know.
    pub fn vendor(&self) -> Option<&str> {
        match self {
            Self::Ours(_, ModelPlan::Given(given)) => Some(given.provider.name()),
            Self::Ours(_, ModelPlan::Scripted(_)) => Some("scripted"),
            Self::Ours(_, ModelPlan::Served { vendor, .. }) => Some(vendor.id),
            Self::Foreign(plan) => plan.upstream.as_ref().map(|upstream| upstream.vendor.id),
        }
    }

    /// What a person should know before it starts: a model that nobody has heard of, settings that do not reach it.
    pub fn warnings(&self, settings: &Settings, root: &Path) -> Vec<String> {
        match self {
            Self::Ours(_, plan) => plan.unknown_model().into_iter().collect(),
            Self::Foreign(plan) => {
                let unheard = unheard(plan, settings).into_iter();
                unheard
                    .chain(hidden_folders(plan, settings, root))
                    .collect()
            }
        }
    }

    /// What kind of work it is, where nobody says.
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
                // Its model writes edits and runs nothing.
                false => RunMode::Patch,
            },
        }
    }
}

/// Wishes about how a model answers that a foreign agent cannot be told.
fn unheard(plan: &ForeignPlan, settings: &Settings) -> Option<String> {
    let all = AGENTS
        .iter()
        .find(|known| known.kind == AgentKind::Native)
        .map_or(&[][..], |known| known.sampling_options);
    let set = |key: &&&str| {
        settings.layers.get(key).is_some() && !plan.setup.known.sampling_options.contains(*key)
    };
    let unheard: Vec<String> = all
        .iter()
        .filter(set)
        .map(|key| format!("`{key}`"))
        .collect();
    (!unheard.is_empty()).then(|| {
        format!(
            "{} cannot be told {}: it works as if nobody had said so",
            plan.setup.name,
            unheard.join(", ")
        )
    })
}

/// Folders in the agent's own `PATH` that its sandbox does not show.
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
            .shows
            .iter()
            .any(|place| folder.starts_with(place));
        let hides = || crate::sandboxing::hidden_program(settings, root, folder);
        folder.is_absolute() && !shown && hides().is_ok_and(|hidden| hidden.is_some())
    };
    let warn = |folder: PathBuf| {
        let folder = folder.display();
        format!(
            "`runtimes.{table}.env.PATH` names {folder}, which the sandbox hides: programs in it are not found; show it with \
             `sandbox.read = [\"{folder}\"]`"
        )
    };
    folders.filter(hidden).map(warn).collect()
}

/// By which name an agent was asked for.
#[derive(Clone, Copy)]
enum Whose<'a> {
    /// That of its row.
    Known,
    /// One that a person gave it in the settings.
    Own(&'a str),
    /// Its command.
    Command(&'a str),
    /// Its id in the ACP registry.
    Registry(&'a RegistryAgent),
}

impl Whose<'_> {
    /// The table of the settings that is the agent's.
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
    whose: Whose<'_>,
    agent: &AgentFlags,
    settings: &Settings,
) -> Result<RuntimePlan, Error> {
    if agent.script.is_some() {
        return Err(Error::usage(
            "a foreign agent is not played by a script: it asks a served model",
        )
        .hint("leave --script out, or use the built-in agent"));
    }
    let table = &whose.table(known);
    let mut given = Given::read(table, &settings.layers)?;
    if let Whose::Registry(listed) = whose {
        given.add_env(&listed.env);
    }
    let (program, words) = find_program(known, whose, given.command.take(), settings)?;
    let name = match whose {
        Whose::Known | Whose::Own(_) | Whose::Registry(_) => table.clone(),
        Whose::Command(_) => format!("acp-{}", plain_name(&program.file)),
    };
    let (vendor, mut model) = model::named(agent, settings.layers.text("model"), settings)?;
    let auth = agent.auth.or_else(|| given.auth.take()?.parse().ok());
    let login = auth == Some(SignIn::Login);
    let metering = agent
        .metering
        .or_else(|| given.metering.take()?.parse().ok());
    let metering = metering_plan(known, table, login, metering, settings)?;
    let asking = Asking::of(known, table, &given)?;
    let (mut upstream, mut login_file, mut hosts) = (None, None, Vec::new());
    if login {
        let file = given.login_file.as_deref();
        login_file = Some(find_login(known, table, file, &settings.environment)?);
        hosts = login_hosts(known, &given.login_hosts)?;
    } else {
        let served = find_upstream(&asking, table, vendor, agent, settings)?;
        if asking.needs_model && model.is_none() {
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
    options::tell_thinking((known, table), asked, &settings.layers, options)?;
    let temperature = settings.sampling().temperature;
    options::tell_sampling(known, temperature, settings.max_output(), options);
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
            instruction_files: given.instruction_files,
            options: given.options,
        },
        upstream,
        metering,
        login_file,
        hosts,
    })))
}

/// The protocols and vendors of an agent: those of its row, with the settings on top.
struct Asking<'a> {
    known: &'static AgentSpec,
    protocols: Vec<Protocol>,
    vendors: Vec<&'a str>,
    needs_model: bool,
}

impl<'a> Asking<'a> {
    fn of(known: &'static AgentSpec, table: &str, given: &'a Given) -> Result<Self, Error> {
        let mut protocols = known.protocols.to_vec();
        if let Some(wires) = &given.wires {
            protocols.clear();
            for wire in wires {
                protocols.extend(wire_protocols(wire).ok_or_else(|| {
                    Error::usage(format!(
                        "`runtimes.{table}.wires` has `{wire}`, which is no wire"
                    ))
                    .hint("the wires are anthropic, responses, chat and gemini")
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
                "`runtimes.{table}.vendors` has `{id}`, which is no vendor"
            ))
            .hint("docs/vendors.md lists them"));
        }
        Ok(Self {
            known,
            protocols,
            vendors,
            needs_model: given.needs_model.unwrap_or(known.needs_model),
        })
    }
}

/// The protocols of a wire, as the settings name it.
fn wire_protocols(wire: &str) -> Option<&'static [Protocol]> {
    Some(match wire {
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
    asking: &Asking<'_>,
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
        None => asking
            .vendors
            .iter()
            .filter_map(|id| windlass_providers::vendor(id))
            .find(has_key)
            .ok_or_else(|| {
                let keys: Vec<&str> = asking
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
                .hint(no_key_hint(asking.known, keys.first().unwrap_or(&"KEY")))
            })?,
    };
    if !asking.protocols.contains(&vendor.protocol) {
        let fit: Vec<&str> = VENDORS
            .iter()
            .filter(|vendor| asking.protocols.contains(&vendor.protocol))
            .map(|vendor| vendor.id)
            .collect();
        return Err(Error::usage(format!(
            "`{name}` does not speak the way `{}` is asked",
            vendor.id
        ))
        .hint(format!("vendors that it can ask: {}", fit.join(", "))));
    }
    Ok(Upstream {
        vendor,
        base_url: model::base_url(agent, vendor, settings),
        tape: Tape::of(agent),
    })
}

fn no_key_hint(known: &AgentSpec, variable: &str) -> String {
    let signs_in = known.login.is_some_and(|login| login.file.is_some());
    match signs_in {
        false => format!("run `export {variable}=…`, or name another vendor with -m VENDOR/MODEL"),
        true => format!(
            "run `export {variable}=…`, name another vendor with -m VENDOR/MODEL, or use the agent's own sign-in with \
             `--auth login --metering reported` (docs/runtimes.md says what that gives up)"
        ),
    }
}

/// Decision 9: what cannot be counted has to be accepted in so many words.
fn metering_plan(
    known: &AgentSpec,
    name: &str,
    login: bool,
    said: Option<MeteringKind>,
    settings: &Settings,
) -> Result<MeteringKind, Error> {
    if login && known.login.is_none() {
        return Err(Error::usage(format!("`{name}` has no sign-in of its own"))
            .hint("leave `--auth login` out: it works with your key, which it never sees"));
    }
    match (login, said) {
        (false, None | Some(MeteringKind::Wire)) if crate::sandboxing::is_open(settings)? => {
            let why = "what an agent sends to its model can only be counted where its network is its own, and with \
                       `--net open` it is the machine's";
            Err(Error::new(ErrorKind::Isolation, why)
                .hint("leave it off, or allow hosts by name: --net allow:HOST"))
        }
        (false, None | Some(MeteringKind::Wire)) => Ok(MeteringKind::Wire),
        (false, Some(_)) => Err(Error::usage("with a key the model traffic goes through us, and is counted there")
            .hint("leave --metering out, or use the agent's own sign-in with --auth login")),
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
                    Err(Error::usage("nothing is counted with `--metering none`, so no limit can hold")
                        .hint(format!("give {flag} unlimited, or use --metering reported")))
                }
            }
        }
        (true, _) => Err(Error::usage(format!(
            "with its own sign-in the traffic of `{name}` does not go through us: nothing is refused on its way, and the \
             agent has your credential"
        ))
        .hint("accept the agent's own numbers with `--metering reported`, or give limits up with `--metering none`")),
    }
}

fn no_model(name: &str, vendor: &Vendor) -> Error {
    Error::usage(format!(
        "`{name}` has to be told its model, and none was named for `{}`",
        vendor.id
    ))
    .hint(format!(
        "name one with -m, for example -m {}/MODEL, or set `model`",
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
            Error::usage(format!("it is not known where `{name}` keeps its sign-in")).hint(format!(
                "set `runtimes.{name}.login_file` to its path below your home"
            ))
        })?;
    if !Path::new(below)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)))
    {
        return Err(Error::usage(format!(
            "`runtimes.{name}.login_file` is `{below}`, which is no path below your home"
        ))
        .hint("name it as it is seen from there, as in `.agent/credentials.json`"));
    }
    let path = home.unwrap_or_default().join(below);
    if !path.is_file() {
        return Err(Error::new(
            ErrorKind::Provider,
            format!("`{name}` is not signed in: {} is not there", path.display()),
        )
        .hint("sign in with the agent itself first"));
    }
    Ok((path, below.to_owned()))
}

/// The hosts that a sign-in needs, as rules of the network.
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

/// The program of an agent and its first words: as it was named, else as we installed it, else as it is in `PATH`.
fn find_program(
    known: &AgentSpec,
    whose: Whose<'_>,
    configured: Option<String>,
    settings: &Settings,
) -> Result<(Program, Vec<String>), Error> {
    let dir = settings.places.runtimes_dir();
    let installed = Installed { dir: &dir };
    let command = match whose {
        Whose::Command(command) => command,
        Whose::Known | Whose::Own(_) => "",
        Whose::Registry(listed) => {
            let program = match configured {
                Some(command) => installed.find(known, Some(&command))?,
                None => installed.find_registry_agent(listed)?,
            };
            return Ok((program, listed.args.clone()));
        }
    };
    let mut words = command.split_whitespace().map(str::to_owned);
    let named = words.next().or(configured);
    if let (Whose::Own(name), None) = (whose, &named) {
        return Err(own::no_command(name).into());
    }
    let program = installed.find(known, named.as_deref()).map_err(|why| {
        // A word that is no program here may be an agent that is not installed yet.
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
