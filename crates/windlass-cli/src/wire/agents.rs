//! Runtimes put together: our own loop in its forms, and agents that are not ours with their place and their meter.

use std::collections::HashMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use windlass_core::budget::Price;
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::provider::Sampling;
use windlass_core::runtime::{Capability, RunMode, Runtime};
use windlass_engine::{NativeOptions, NativeRuntime};
use windlass_host::sandbox::{AgentPlan, HomeFile};
use windlass_host::secret::Credentials;
use windlass_providers::WireProvider;
use windlass_providers::protocol::Protocol;
use windlass_runtimes::acp::Acp;
use windlass_runtimes::acp::options::AcpOptions;
use windlass_runtimes::acp::profiles::Profile;
use windlass_runtimes::agent::{Adapter, ForeignRuntime, Metering, WantedOutput};
use windlass_runtimes::claude_code::{ClaudeCode, ClaudeOptions};
use windlass_runtimes::codex::{Codex, CodexOptions};
use windlass_runtimes::completion::Completion;
use windlass_runtimes::dialect::Dialect;
use windlass_runtimes::meter::Meter;
use windlass_runtimes::oneshot::OneShot;
use windlass_runtimes::oneshot::aider::AiderOptions;
use windlass_runtimes::oneshot::options::CliOptions;
use windlass_runtimes::openhands::{OpenHands, OpenHandsOptions};
use windlass_runtimes::patch_proposal::{self, PatchProposal};
use windlass_runtimes::sidecar::{Sidecar, SidecarOptions};

use super::{
    Works, check_price, output_schema, provider, provider_options, redactor_of, setup_failure,
};
use crate::failure::Failure;
use crate::layers::Prompt;
use crate::plan::ModelPlan;
use crate::runtimes::{ForeignPlan, Kind, MeteringPlan, RuntimePlan};
use crate::settings::Settings;
use crate::tape::Asks;

/// Why Aider is not started.
const NO_PYTHON: &str = "it is started by its Python, and none was found for its program; install it with \
                         `windlass runtimes install aider`, or set `command` to the `aider` of a Python environment";

/// What runtimes are made from.
pub(super) struct Making<'a> {
    pub(super) settings: &'a Settings,
    pub(super) credentials: &'a Credentials,
    pub(super) clock: &'a Arc<dyn Clock>,
    pub(super) prompt: Prompt,
}

/// A runtime that can do the work, and the work that it is.
pub(super) struct Chosen {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) mode: RunMode,
    /// That it is less than what was asked for, and why.
    pub(super) fell: Option<EventKind>,
}

impl Making<'_> {
    /// The runtime for the work; where less will do, for less.
    pub(super) fn choose(self, works: &Works<'_>) -> Result<Chosen, Failure> {
        let (kind, model) = match works.plan {
            RuntimePlan::Foreign(plan) => {
                let runtime = self.foreign(plan, works.schema)?;
                return chosen_foreign(runtime, works);
            }
            RuntimePlan::Ours(kind, model) => (*kind, model),
        };
        let mut mode = works.mode;
        let mut fell = None;
        loop {
            let runtime = self.ours(form(kind, mode), model, works.schema)?;
            let Err(unmet) = runtime.capabilities().require(runtime.name(), mode.work()) else {
                return Ok(Chosen {
                    runtime,
                    mode,
                    fell,
                });
            };
            let Some(below) = mode.below().filter(|_| works.fallback) else {
                // Whoever opens the session says it.
                return Ok(Chosen {
                    runtime,
                    mode,
                    fell,
                });
            };
            let (from, to) = (works.mode.word().to_owned(), below.word().to_owned());
            fell = Some(EventKind::FailedOver {
                from,
                to,
                reason: format!("missing: {}", unmet.missing),
            });
            mode = below;
        }
    }

    fn ours(
        &self,
        form: Kind,
        plan: &ModelPlan,
        schema: Option<&str>,
    ) -> Result<Arc<dyn Runtime>, Failure> {
        let (provider, model) = provider(self.settings, plan, self.credentials)?;
        check_price(self.settings, provider.as_ref(), &model)?;
        let schema = match (form, schema) {
            (Kind::Patch, None) => Some(patch_proposal::schema()),
            (Kind::Patch, Some(_)) => {
                return Err(Failure::usage(
                    "the answer of a patch coder is its patch, so --json-schema has no place",
                )
                .hint("leave --json-schema out, or use `--runtime completion` for an answer"));
            }
            (_, schema) => schema.map(output_schema).transpose()?,
        };
        let options = NativeOptions {
            model,
            system: self.prompt.system(),
            sampling: Sampling {
                output_schema: schema,
                ..self.settings.sampling()
            },
            max_output: self.settings.max_output(),
            instructions: self.prompt.instructions.clone(),
        };
        let inner = Arc::new(NativeRuntime::new(provider, self.clock.clone(), options));
        Ok(match form {
            Kind::Patch => Arc::new(PatchProposal { inner }),
            Kind::Completion => Arc::new(Completion { inner }),
            _ => inner,
        })
    }

    fn foreign(
        &self,
        plan: &ForeignPlan,
        schema: Option<&str>,
    ) -> Result<Arc<dyn Runtime>, Failure> {
        let output = match schema.map(output_schema).transpose()? {
            None => None,
            Some(schema) => {
                let held = schema.clone();
                let check = move |value: &Json| windlass_engine::check_output(&held, value);
                Some(WantedOutput {
                    schema,
                    check: Arc::new(check),
                })
            }
        };
        let adapter = adapter(plan, self.clock)?;
        let metering = self.metering(plan)?;
        let runtime =
            ForeignRuntime::new(adapter, metering, self.clock.clone()).versioned(plan.version());
        let words = match plan.known.kind {
            // It has our tools and no words of its own, so that it is told what the built-in agent is told.
            Kind::Sidecar(_) => self.prompt.system(),
            _ => self
                .prompt
                .for_others(|file| plan.known.reads.contains(&file)),
        };
        Ok(Arc::new(runtime.answering(output).instructed(words)))
    }

    fn metering(&self, plan: &ForeignPlan) -> Result<Metering, Failure> {
        let price = plan
            .model
            .as_deref()
            .and_then(|model| super::price(self.settings, model));
        Ok(match plan.metering {
            MeteringPlan::Reported => Metering::Reported { price },
            MeteringPlan::None => Metering::None,
            MeteringPlan::Wire => Metering::Wire(Arc::new(self.meter(plan)?)),
        })
    }

    /// The endpoint that an agent's model is asked through.
    fn meter(&self, plan: &ForeignPlan) -> Result<Meter, Failure> {
        let mut upstreams = Vec::new();
        for upstream in plan.upstream.iter() {
            let (vendor, base_url) = (upstream.vendor, upstream.base_url.clone());
            let mut options = provider_options(self.settings, vendor, base_url, self.credentials)?;
            if let Some(tape) = &upstream.tape {
                tape.put_in(
                    &mut options,
                    vendor,
                    redactor_of(self.credentials),
                    Asks::Foreign,
                )?;
            }
            upstreams.push(Arc::new(
                WireProvider::new(*vendor, options).map_err(setup_failure)?,
            ));
        }
        if let (Some(model), Some(provider)) = (&plan.model, upstreams.first())
            && super::price(self.settings, model).is_none()
        {
            check_price(self.settings, provider.as_ref(), model)?;
        }
        let prices = prices(self.settings);
        let price_of = move |model: &str| prices.get(model).copied();
        let cost_is_explicit = self.settings.limit("max_budget_usd").flatten().is_some();
        Meter::new(upstreams, Arc::new(price_of), cost_is_explicit).map_err(|err| {
            Failure::new(
                crate::exit::FAILED,
                format!("there is no chance to be had on this machine: {err}"),
            )
        })
    }
}

/// An agent with tools of its own changes files itself: it proposes no patch, so that an answer is all that is less.
fn chosen_foreign(runtime: Arc<dyn Runtime>, works: &Works<'_>) -> Result<Chosen, Failure> {
    let patches = !runtime.capabilities().has(Capability::NativeToolLoop);
    if works.mode == RunMode::Patch && !patches {
        return Err(Failure::usage(format!(
            "`{}` changes files itself, and proposes no patch",
            runtime.name()
        ))
        .hint("use `--runtime patch`, or leave the mode `patch` out"));
    }
    let able = |mode: RunMode| runtime.capabilities().require(runtime.name(), mode.work());
    let Some(unmet) = able(works.mode).err().filter(|_| works.fallback) else {
        // Whoever opens the session says what is missing.
        return Ok(Chosen {
            runtime,
            mode: works.mode,
            fell: None,
        });
    };
    let less = if patches && works.mode == RunMode::Full && able(RunMode::Patch).is_ok() {
        RunMode::Patch
    } else {
        RunMode::Analysis
    };
    let (from, to) = (works.mode.word().to_owned(), less.word().to_owned());
    let fell = Some(EventKind::FailedOver {
        from,
        to,
        reason: format!("missing: {}", unmet.missing),
    });
    Ok(Chosen {
        runtime,
        mode: less,
        fell,
    })
}

/// What the settings say of prices, by model.
fn prices(settings: &Settings) -> HashMap<String, Price> {
    let named = settings
        .layers
        .iter()
        .filter_map(|(key, _)| key.strip_prefix("prices.")?.strip_suffix(".input"));
    let bare = named.map(|name| name.trim_matches('"').to_owned());
    bare.filter_map(|model| Some((model.clone(), super::price(settings, &model)?)))
        .collect()
}

/// The form of our loop that a kind of work needs.
fn form(kind: Kind, mode: RunMode) -> Kind {
    match (kind, mode) {
        (Kind::Native | Kind::Completion, RunMode::Patch) => Kind::Patch,
        (Kind::Patch, RunMode::Analysis) => Kind::Completion,
        (kind, _) => kind,
    }
}

/// An agent by its protocol, with the options of the settings.
pub(crate) fn adapter(
    plan: &ForeignPlan,
    clock: &Arc<dyn Clock>,
) -> Result<Box<dyn Adapter>, Failure> {
    let program = plan.program.file.display().to_string();
    let wrong = |why: String| Failure::usage(format!("runtimes.{}: {why}", plan.settings));
    let mut given = plan.options.clone();
    if let Some(model) = &plan.model {
        given
            .entry("model")
            .or_insert_with(|| Json::from(model.as_str()));
    }
    Ok(match plan.known.kind {
        Kind::ClaudeCode => {
            let options = ClaudeOptions {
                program,
                ..read(given).map_err(wrong)?
            };
            Box::new(ClaudeCode::new(options).map_err(wrong)?)
        }
        Kind::Acp => {
            let mut options: AcpOptions = read(given).map_err(wrong)?;
            options.name = Some(plan.name.clone());
            options.command = Some(program);
            if !plan.words.is_empty() {
                let more = options.args.take().unwrap_or_default();
                options.args = Some(plan.words.iter().cloned().chain(more).collect());
            }
            let profile = Profile::named(plan.known.name);
            let acp = Acp::new(profile, options, dialect(plan), clock.clone());
            Box::new(acp.map_err(|err| wrong(err.to_string()))?)
        }
        Kind::Codex => {
            let options = CodexOptions {
                program,
                ..read(given).map_err(wrong)?
            };
            Box::new(Codex::new(options).map_err(wrong)?)
        }
        Kind::Aider => {
            let python = plan
                .program
                .python()
                .ok_or_else(|| wrong(NO_PYTHON.to_owned()))?
                .display()
                .to_string();
            let options = AiderOptions {
                python,
                ..read(given).map_err(wrong)?
            };
            let program = options.program(dialect(plan)).map_err(wrong)?;
            Box::new(OneShot::new(program).map_err(wrong)?)
        }
        Kind::Cli => {
            let mut options: CliOptions = read(given).map_err(wrong)?;
            options.name = Some(plan.name.clone());
            options.command = vec![program];
            Box::new(options.program().and_then(OneShot::new).map_err(wrong)?)
        }
        Kind::Sidecar(sdk) => {
            let options = SidecarOptions {
                program,
                ..read(given).map_err(wrong)?
            };
            Box::new(Sidecar::new(sdk, dialect(plan), options).map_err(wrong)?)
        }
        Kind::OpenHands => {
            // Where a program is nobody's script, it is taken for the Python itself.
            let python = plan
                .program
                .python()
                .map_or(program, |python| python.display().to_string());
            let options = OpenHandsOptions {
                python,
                ..read(given).map_err(wrong)?
            };
            Box::new(OpenHands::new(options, dialect(plan)).map_err(wrong)?)
        }
        Kind::Native | Kind::Completion | Kind::Patch => {
            return Err(wrong("it is not an agent of its own".to_owned()));
        }
    })
}

/// The words in which the run's model is asked; where the agent asks by itself, those that it is known for.
fn dialect(plan: &ForeignPlan) -> Dialect {
    let served = plan
        .upstream
        .as_ref()
        .map(|upstream| upstream.vendor.protocol);
    match served.or_else(|| plan.known.speaks.first().copied()) {
        Some(Protocol::OpenAiResponses) => Dialect::OpenAiResponses,
        Some(Protocol::OpenAiChat) => Dialect::OpenAiChat,
        Some(Protocol::Gemini) => Dialect::Gemini,
        _ => Dialect::Anthropic,
    }
}

fn read<T: DeserializeOwned>(given: Map<String, Json>) -> Result<T, String> {
    let names: Vec<String> = given.keys().cloned().collect();
    serde_json::from_value(Json::Object(given)).map_err(|err| {
        let why = err.to_string();
        let missing = |name: &&String| why.starts_with(&format!("unknown field `{name}`"));
        match names.iter().find(missing) {
            Some(name) => format!(
                "it has no option `{name}` (`windlass config keys` says which runtime has which)"
            ),
            None => why,
        }
    })
}

/// What an agent gets of this machine.
pub(super) fn place(plan: &ForeignPlan, settings: &Settings) -> AgentPlan {
    AgentPlan {
        name: plan.name.clone(),
        read: plan.program.shows.clone(),
        path: plan.program.path.clone(),
        homes: settings.places.sessions_dir(),
        home_files: plan
            .login_file
            .iter()
            .map(|(from, to)| HomeFile {
                from: from.clone(),
                to: to.clone(),
            })
            .collect(),
        hosts: plan.hosts.clone(),
    }
}
