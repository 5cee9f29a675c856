//! Builds runtimes: the built-in agent in its forms, and foreign agents with their enclosure and meter.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;
use windlass_core::budget::Price;
use windlass_core::clock::Clock;
use windlass_core::event::EventKind;
use windlass_core::provider::Sampling;
use windlass_core::runtime::{Capability, RunMode, Runtime};
use windlass_core::terms::MeteringKind;
use windlass_engine::{NativeOptions, NativeRuntime};
use windlass_host::sandbox::{AgentPlan, HomeFile};
use windlass_host::secret::Credentials;
use windlass_meter::Meter;
use windlass_proposal::{AnswerForm, OneAnswer, patch_proposal};
use windlass_providers::WireProvider;
use windlass_registry::adapter;
use windlass_runtimes::agent::{ForeignRuntime, Metering, PausedAgent, WantedOutput};
use windlass_runtimes::agents::AgentKind;

use super::{
    RuntimeRequest, check_price, output_schema, provider, provider_options, redactor_of,
    setup_failure,
};
use crate::cassette::RequestMatching;
use crate::error::{Error, ErrorKind};
use crate::instructions::Prompt;
use crate::model::ModelPlan;
use crate::runtime_plan::{ForeignPlan, RuntimePlan};
use crate::settings::Settings;

/// The inputs for building a runtime.
pub(super) struct RuntimeBuilder<'a> {
    pub(super) settings: &'a Settings,
    pub(super) credentials: &'a Credentials,
    pub(super) clock: &'a Arc<dyn Clock>,
    pub(super) prompt: Prompt,
}

/// A runtime with the mode of its runs.
pub(super) struct BuiltRuntime {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) mode: RunMode,
    /// The event that records the fallback to a lesser mode, if there was one.
    pub(super) fell_back: Option<EventKind>,
}

impl RuntimeBuilder<'_> {
    /// Builds the runtime for the requested mode, or for a lesser mode if a fallback is allowed.
    pub(super) fn choose(self, works: &RuntimeRequest<'_>) -> Result<BuiltRuntime, Error> {
        let (kind, model) = match works.plan {
            RuntimePlan::Foreign(plan) => {
                let runtime = self.foreign(plan, works.schema)?;
                return chosen_foreign(runtime, works);
            }
            RuntimePlan::Ours(kind, model) => (*kind, model),
        };
        let mut mode = works.mode;
        let mut fell_back = None;
        loop {
            let runtime = self.ours(form(kind, mode), model, works.schema)?;
            let Err(unmet) = runtime.capabilities().require(runtime.name(), mode.work()) else {
                return Ok(BuiltRuntime {
                    runtime,
                    mode,
                    fell_back,
                });
            };
            let Some(below) = mode.below().filter(|_| works.fallback) else {
                // The engine reports the missing capability when the session is opened.
                return Ok(BuiltRuntime {
                    runtime,
                    mode,
                    fell_back,
                });
            };
            let (from, to) = (works.mode.word().to_owned(), below.word().to_owned());
            fell_back = Some(EventKind::FailedOver {
                from,
                to,
                reason: format!("missing: {}", unmet.missing),
            });
            mode = below;
        }
    }

    fn ours(
        &self,
        form: AgentKind,
        plan: &ModelPlan,
        schema: Option<&str>,
    ) -> Result<Arc<dyn Runtime>, Error> {
        let (provider, model) = provider(self.settings, plan, self.credentials)?;
        check_price(self.settings, provider.as_ref(), &model)?;
        let schema = match (form, schema) {
            (AgentKind::Patch, None) => Some(patch_proposal::schema()),
            (AgentKind::Patch, Some(_)) => {
                return Err(Error::usage(
                    "`--json-schema` cannot be used in patch mode, where the answer is always a patch",
                )
                .hint("omit `--json-schema`, or use `--runtime completion` for an answer"));
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
            accepts: (form == AgentKind::Patch).then(patch_proposal::accepted_schema),
            max_output: self.settings.max_output(),
            instructions: self.prompt.instructions.clone(),
        };
        let inner = Arc::new(NativeRuntime::new(provider, self.clock.clone(), options));
        let form = match form {
            AgentKind::Patch => AnswerForm::Patch,
            AgentKind::Completion => AnswerForm::Words,
            _ => return Ok(inner),
        };
        Ok(Arc::new(OneAnswer { form, inner }))
    }

    fn foreign(&self, plan: &ForeignPlan, schema: Option<&str>) -> Result<Arc<dyn Runtime>, Error> {
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
        let adapter = adapter(&plan.setup)?;
        let metering = self.metering(plan)?;
        let instructions = match plan.setup.known.kind {
            // A sidecar uses the tools of Windlass and has no system prompt of its own, so it gets that of the built-in
            // agent.
            AgentKind::Sidecar(_) => self.prompt.system(),
            _ => self.prompt.for_foreign_agent(|file| {
                plan.setup.known.instruction_files.contains(&file)
                    || plan.setup.instruction_files.iter().any(|own| own == file)
            }),
        };
        Ok(Arc::new(ForeignRuntime {
            adapter,
            metering,
            clock: self.clock.clone(),
            output,
            instructions,
            version: plan.setup.version(),
            paused: PausedAgent::default(),
        }))
    }

    fn metering(&self, plan: &ForeignPlan) -> Result<Metering, Error> {
        let price = plan
            .setup
            .model
            .as_deref()
            .and_then(|model| super::price(self.settings, model));
        Ok(match plan.metering {
            MeteringKind::Reported => Metering::Reported { price },
            MeteringKind::None => Metering::None,
            MeteringKind::Wire => Metering::Wire(Arc::new(self.meter(plan)?)),
        })
    }

    /// The meter that forwards the model calls of an agent.
    fn meter(&self, plan: &ForeignPlan) -> Result<Meter, Error> {
        let mut upstreams = Vec::new();
        for upstream in plan.upstream.iter() {
            let (vendor, base_url) = (upstream.vendor, upstream.base_url.clone());
            let mut options = provider_options(self.settings, vendor, base_url, self.credentials)?;
            if let Some(cassette) = &upstream.cassette {
                cassette.apply_to(
                    &mut options,
                    vendor,
                    redactor_of(self.credentials, &self.settings.environment),
                    RequestMatching::Loose,
                    &self.settings.notices,
                )?;
            }
            upstreams.push(Arc::new(
                WireProvider::new(*vendor, options).map_err(setup_failure)?,
            ));
        }
        if let (Some(model), Some(provider)) = (&plan.setup.model, upstreams.first())
            && super::price(self.settings, model).is_none()
        {
            check_price(self.settings, provider.as_ref(), model)?;
        }
        let prices = prices(self.settings);
        let price_of = move |model: &str| prices.get(model).copied();
        let cost_is_explicit = self.settings.limit("max_budget_usd").flatten().is_some();
        Meter::new(upstreams, Arc::new(price_of), cost_is_explicit).map_err(|err| {
            Error::new(
                ErrorKind::Failed,
                format!("the system random number generator failed: {err}"),
            )
        })
    }
}

/// Chooses the mode for a foreign agent. An agent with tools of its own changes files itself and proposes no patch, so it
/// can fall back only to an answer.
fn chosen_foreign(
    runtime: Arc<dyn Runtime>,
    works: &RuntimeRequest<'_>,
) -> Result<BuiltRuntime, Error> {
    let patches = !runtime.capabilities().has(Capability::NativeToolLoop);
    if works.mode == RunMode::Patch && !patches {
        return Err(Error::usage(format!(
            "`{}` does not support patch mode, because it changes files itself",
            runtime.name()
        ))
        .hint("use `--runtime patch`, or another mode"));
    }
    let able = |mode: RunMode| runtime.capabilities().require(runtime.name(), mode.work());
    let Some(unmet) = able(works.mode).err().filter(|_| works.fallback) else {
        // The engine reports missing capabilities when the session is opened.
        return Ok(BuiltRuntime {
            runtime,
            mode: works.mode,
            fell_back: None,
        });
    };
    let less = if patches && works.mode == RunMode::Full && able(RunMode::Patch).is_ok() {
        RunMode::Patch
    } else {
        RunMode::Analysis
    };
    let (from, to) = (works.mode.word().to_owned(), less.word().to_owned());
    let fell_back = Some(EventKind::FailedOver {
        from,
        to,
        reason: format!("missing: {}", unmet.missing),
    });
    Ok(BuiltRuntime {
        runtime,
        mode: less,
        fell_back,
    })
}

/// The prices in the settings, by model.
fn prices(settings: &Settings) -> HashMap<String, Price> {
    let named = settings
        .layers
        .iter()
        .filter_map(|(key, _)| key.strip_prefix("prices.")?.strip_suffix(".input"));
    let bare = named.map(|name| name.trim_matches('"').to_owned());
    bare.filter_map(|model| Some((model.clone(), super::price(settings, &model)?)))
        .collect()
}

/// The form of the built-in agent for a mode.
fn form(kind: AgentKind, mode: RunMode) -> AgentKind {
    match (kind, mode) {
        (AgentKind::Native | AgentKind::Completion, RunMode::Patch) => AgentKind::Patch,
        (AgentKind::Patch, RunMode::Analysis) => AgentKind::Completion,
        (kind, _) => kind,
    }
}

/// The enclosure of a foreign agent: the paths, files and hosts that it can access.
pub(super) fn enclosure(plan: &ForeignPlan, settings: &Settings) -> AgentPlan {
    AgentPlan {
        name: plan.setup.name.clone(),
        read: plan.setup.program.visible_paths.clone(),
        path: plan.setup.program.path.clone(),
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
