//! The contract of a run, from flags and settings: the validators that must pass before it lands, the paths that it may
//! change, and the target of the landing. Checks are detected in the tree as it is before the run.
//!
//! ```
//! use windlass::contract::{chain, validators};
//! use windlass::flags::ContractFlags;
//! use windlass::machine::Root;
//! use windlass::settings::Settings;
//!
//! let dir = tempfile::tempdir()?;
//! let settings = Settings::none(&dir.path().join(".data"));
//! let root = Root::open(dir.path())?;
//! let flags = ContractFlags { validate: vec!["make test".into()], ..ContractFlags::default() };
//! let planned = chain(&settings, &flags, &root, true)?;
//! assert!(planned.iter().any(|plan| plan.name == "make test"));
//! let redactor = || windlass::wire::redactor(&settings);
//! assert_eq!(validators(&settings, &flags, &root, redactor, true)?.len(), planned.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::validator::{CheckRole, Validator};
use windlass_core::workspace::{Files as _, LandTo, Redactor};
use windlass_engine::Contract;
use windlass_host::config::Layers;
use windlass_host::workspace::Root;
use windlass_registry::install;
use windlass_validators::{
    LookAt, PlanKind, Tools, ValidatorPlan, bandit_install, build, detect, setup,
};

use crate::environment::Environment;
use crate::error::Error;
use crate::flags::ContractFlags;
use crate::sandboxing;
use crate::settings::Settings;

/// The name in a chain that stands for all checks that are detected in the project.
const DETECTED: &str = "detected";
/// The default chain of an isolated run.
const DEFAULT_CHAIN: &[&str] = &["syntax", DETECTED, "secrets", "bandit"];
const INSTALL_TIMEOUT: Duration = Duration::from_secs(180);

/// Rejects flags about landing for an in-place run, which does not land anything.
pub(crate) fn check_landing_flags(args: &ContractFlags, isolated: bool) -> Result<(), Error> {
    let given = [
        ("--commit", args.commit.is_some()),
        ("--patch", args.patch.is_some()),
        ("--land-anyway", args.land_anyway),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) if !isolated => Err(Error::usage(format!(
            "`{flag}` is only for isolated runs: an in-place run changes your files directly"
        ))
        .hint("omit `--in-place`, or add `--isolated` to `chat` and `resume`")),
        _ => Ok(()),
    }
}

/// The contract of a run, without its validators.
pub(crate) fn terms(settings: &Settings, args: &ContractFlags) -> Result<Contract, Error> {
    let to = match (&args.patch, &args.commit) {
        (Some(file), _) => LandTo::Patch(std::path::absolute(file)?),
        (None, Some(message)) => LandTo::Commit(message.clone()),
        (None, None) => LandTo::Tree,
    };
    let protect = |layers: &Layers<'_>| {
        let texts = layers.texts("validate.protect");
        texts.unwrap_or_default().to_vec()
    };
    let strict = |layers: &Layers<'_>| layers.boolean("validate.strict_judge") == Some(true);
    let own_paths = settings
        .layers
        .texts("validate.write_paths")
        .map(<[String]>::to_vec);
    Ok(Contract {
        to,
        land_anyway: args.land_anyway,
        require_changes: args.require_changes,
        strict_judge: args.strict_judge || strict(&settings.layers) || strict(&settings.project),
        protect: protect(&settings.layers),
        // An untrusted project may add restrictions, but must not choose the files that the checks see.
        forbid: protect(&settings.project),
        keep_ignored: args.keep_ignored,
        accept_preexisting: args.accept_preexisting,
        write_paths: args.write_path.clone().or(own_paths),
        ..Contract::default()
    })
}

/// The validators of a run, ready to use. Installs bandit if it was requested by name and is missing.
pub fn validators(
    settings: &Settings,
    args: &ContractFlags,
    root: &Root,
    redactor: impl FnOnce() -> Result<Arc<dyn Redactor>, Error>,
    isolated: bool,
) -> Result<Vec<Arc<dyn Validator>>, Error> {
    let plans = chain(settings, args, root, isolated)?;
    if plans.is_empty() {
        return Ok(Vec::new());
    }
    let mut bandit = None;
    if plans.iter().any(|plan| plan.kind == PlanKind::Bandit) {
        bandit = scanner(
            args.validate.iter().any(|name| name == "bandit") || asked_for(settings, "bandit"),
            settings,
        );
    }
    let tools = Tools {
        redactor: redactor()?,
        bandit,
    };
    Ok(plans.iter().map(|plan| build(plan, &tools)).collect())
}

/// The plan of the validators of a run, in order.
pub fn chain(
    settings: &Settings,
    args: &ContractFlags,
    root: &Root,
    isolated: bool,
) -> Result<Vec<ValidatorPlan>, Error> {
    // An in-place run does not land, so it has validators only if the user asked for them.
    if !isolated && args.validate.is_empty() && settings.layers.texts("validate.chain").is_none() {
        return Ok(Vec::new());
    }
    plans(settings, args, root, isolated)
}

fn plans(
    settings: &Settings,
    args: &ContractFlags,
    root: &Root,
    isolated: bool,
) -> Result<Vec<ValidatorPlan>, Error> {
    if args.validate.iter().any(|name| name == "none") {
        return match args.validate.len() {
            1 => Ok(Vec::new()),
            _ => Err(Error::usage(
                "`--validate none` cannot be combined with another `--validate`",
            )),
        };
    }
    let configured = configured(settings, isolated)?;
    let found = detect(&LookAt(root));
    let known: Vec<ValidatorPlan> = found.iter().chain(&configured).cloned().collect();
    let named = |name: &str| {
        ValidatorPlan::named(name, &known).map_err(|err| Error::usage(err.to_string()))
    };
    let mut plans = Vec::new();
    let default_chain: Vec<String> = DEFAULT_CHAIN
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let mut chain = match settings.layers.texts("validate.chain") {
        Some(chain) => chain.to_vec(),
        None if isolated => default_chain,
        None => vec![DETECTED.to_owned()],
    };
    // Checks of `--validate` take the place of `detected`, and are added if the chain does not contain it.
    if !args.validate.is_empty() && !chain.iter().any(|name| name == DETECTED) {
        chain.push(DETECTED.to_owned());
    }
    for name in &chain {
        match name.as_str() {
            DETECTED if args.validate.is_empty() => {
                plans.extend(
                    found
                        .iter()
                        .filter(|plan| is_installed(plan, settings))
                        .cloned(),
                );
                plans.extend(
                    configured
                        .iter()
                        .filter(|plan| !chain.contains(&plan.name))
                        .cloned(),
                );
            }
            DETECTED => {
                for given in &args.validate {
                    let plan = match given.as_str() {
                        DETECTED => None,
                        // A word that is not the name of a validator is a command.
                        name => ValidatorPlan::named(name, &known).ok(),
                    };
                    match plan {
                        Some(plan) => plans.push(ValidatorPlan {
                            role: CheckRole::Given,
                            ..plan
                        }),
                        None if given == DETECTED => plans.extend(
                            found
                                .iter()
                                .filter(|plan| is_installed(plan, settings))
                                .cloned(),
                        ),
                        None => plans.push(ValidatorPlan::command(given, given)),
                    }
                }
            }
            name => plans.push(named(name)?),
        }
    }
    // A scanner that is not installed is skipped, unless the user requested it by name.
    let wanted =
        |name: &str| asked_for(settings, name) || args.validate.iter().any(|given| given == name);
    plans.retain(|plan| {
        plan.kind != PlanKind::Bandit || wanted("bandit") || scanner(false, settings).is_some()
    });
    for plan in &mut plans {
        // The chain may contain a check that the user also gave, and the first of two duplicates is kept.
        if args.validate.contains(&plan.name) {
            plan.role = CheckRole::Given;
        }
        adjust(plan, settings)?;
    }
    plans = skip_hidden_programs(plans, settings, root)?;
    if !plans.is_empty() {
        let lines = settings.layers.texts("validate.setup").unwrap_or_default();
        plans.extend(lines.iter().map(|line| setup(line)));
    }
    let mut seen = std::collections::HashSet::new();
    plans.retain(|plan| seen.insert(plan.name.clone()));
    Ok(plans)
}

fn asked_for(settings: &Settings, name: &str) -> bool {
    settings
        .layers
        .texts("validate.chain")
        .is_some_and(|chain| chain.iter().any(|one| one == name))
}

/// The validators that the settings define. Those of an untrusted project are used only in isolated runs, where they run
/// in the sandbox.
fn configured(settings: &Settings, isolated: bool) -> Result<Vec<ValidatorPlan>, Error> {
    let mut plans: Vec<ValidatorPlan> = Vec::new();
    let project = Some((&settings.project, CheckRole::Detected)).filter(|_| isolated);
    let own = (&settings.layers, CheckRole::Given);
    for (layers, role) in std::iter::once(own).chain(project) {
        for (key, _) in layers.iter() {
            let Some(name) = key
                .strip_prefix("validators.")
                .and_then(|rest| rest.rsplit_once('.'))
            else {
                continue;
            };
            let name = name.0.trim_matches('"');
            if plans.iter().any(|plan| plan.name == name) {
                continue;
            }
            let text = |what: &str| {
                layers
                    .text(&Settings::named("validators", name, what))
                    .map(str::to_owned)
            };
            let kind = match (text("command"), text("custom")) {
                (Some(_), Some(_)) => {
                    return Err(Error::usage(format!(
                        "the validator `{name}` has both `command` and `custom`"
                    ))
                    .hint(
                        "keep one: `command` reports by its exit code, `custom` reports in JSON",
                    ));
                }
                (Some(line), None) => PlanKind::Command { line },
                (None, Some(line)) => PlanKind::Custom { line },
                (None, None) => continue,
            };
            plans.push(ValidatorPlan {
                kind,
                role,
                ..ValidatorPlan::command(name, "")
            });
        }
    }
    Ok(plans)
}

/// Applies the settings `validators.NAME.*` to a validator of any kind.
fn adjust(plan: &mut ValidatorPlan, settings: &Settings) -> Result<(), Error> {
    let key = |what: &str| Settings::named("validators", &plan.name, what);
    if let Some(blocking) = settings.layers.boolean(&key("blocking")) {
        plan.blocking = blocking;
    }
    if let Some(fixes) = settings.layers.boolean(&key("fixes")) {
        plan.fixes = fixes;
    }
    if let Some(judges) = settings.layers.texts(&key("judges")) {
        plan.judges = judges.to_vec();
    }
    match settings.layers.number(&key("timeout_s")) {
        None => {}
        Some(seconds) if (1.0..=86_400.0).contains(&seconds) => {
            plan.timeout = Duration::from_secs_f64(seconds)
        }
        Some(_) => {
            return Err(Error::usage(format!(
                "`{}` must be a number of seconds, from 1 to 86400",
                key("timeout_s")
            )));
        }
    }
    Ok(())
}

/// Whether the program of a detected check is installed. If not, the user is warned.
fn is_installed(plan: &ValidatorPlan, settings: &Settings) -> bool {
    let PlanKind::Command { line } = &plan.kind else {
        return true;
    };
    // Variable assignments may precede the program.
    let Some(program) = line.split_whitespace().find(|word| !word.contains('=')) else {
        return true;
    };
    let there = program.contains('/') || on_path(program, &settings.environment).is_some();
    if !there {
        settings.notices.warn(&format!(
            "the check `{line}` is skipped, because {program} is not installed"
        ));
    }
    there
}

/// Skips detected checks whose program the sandbox hides, and refuses the run if the user gave such a check. Without this,
/// the error would appear only after the model's work.
fn skip_hidden_programs(
    plans: Vec<ValidatorPlan>,
    settings: &Settings,
    root: &Root,
) -> Result<Vec<ValidatorPlan>, Error> {
    let mut usable = Vec::with_capacity(plans.len());
    for plan in plans {
        let Some((program, real)) = hidden_program(&plan, settings, root)? else {
            usable.push(plan);
            continue;
        };
        let folder = real.parent().unwrap_or(&real);
        // A program in `bin` usually needs the directories next to it, for example `lib`.
        let around = folder.parent().filter(|_| folder.ends_with("bin"));
        let grant = format!("sandbox.read = [{:?}]", around.unwrap_or(folder));
        let name = &plan.name;
        let why = format!(
            "the check `{name}` cannot run: {program} is hidden by the sandbox (it is at {})",
            real.display()
        );
        if plan.role == CheckRole::Given {
            return Err(Error::usage(why).hint(format!("show it with `{grant}` in the settings")));
        }
        let text = format!("{why}; the check is skipped. Show it with `{grant}` in the settings");
        settings.notices.warn(&text);
    }
    Ok(usable)
}

fn hidden_program(
    plan: &ValidatorPlan,
    settings: &Settings,
    root: &Root,
) -> Result<Option<(String, PathBuf)>, Error> {
    let (PlanKind::Command { line } | PlanKind::Custom { line }) = &plan.kind else {
        return Ok(None);
    };
    let Some(program) = line.split_whitespace().find(|word| !word.contains('=')) else {
        return Ok(None);
    };
    let found = match Path::new(program) {
        path if path.is_absolute() => Some(path.to_owned()),
        _ if program.contains('/') => None,
        _ => on_path(program, &settings.environment),
    };
    let Some(found) = found else { return Ok(None) };
    let real = sandboxing::hidden_program(settings, root.root(), &found)?;
    Ok(real.map(|real| (program.to_owned(), real)))
}

fn on_path(program: &str, environment: &Environment) -> Option<PathBuf> {
    let path = environment.get("PATH")?;
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|at| at.is_file())
}

/// The directory of scanners that Windlass installed. Commands in the sandbox may read it.
pub(crate) fn scanners_dir(environment: &Environment) -> Option<PathBuf> {
    let home = || Some(environment.path("HOME")?.join(".cache"));
    let cache = environment.path("XDG_CACHE_HOME").or_else(home)?;
    Some(cache.join("windlass").join("tools"))
}

/// The path of bandit: in `PATH`, or in a virtual environment of its own. If `wanted`, it is installed there.
fn scanner(wanted: bool, settings: &Settings) -> Option<String> {
    if let Some(found) = on_path("bandit", &settings.environment) {
        return Some(found.display().to_string());
    }
    let folder = scanners_dir(&settings.environment)?
        .join(format!("bandit-{}", windlass_validators::BANDIT_VERSION));
    let plan = bandit_install(&folder.display().to_string());
    if !Path::new(&plan.program).is_file() && wanted {
        settings.notices.progress(&format!(
            "installing bandit {} into {}",
            plan.version,
            folder.display()
        ));
        if let Err(why) = install::run_line(&plan.line, INSTALL_TIMEOUT) {
            // A partial environment would be taken for a complete one the next time.
            let _ = std::fs::remove_dir_all(&folder);
            settings
                .notices
                .warn(&format!("bandit could not be installed: {why}"));
        }
    }
    Path::new(&plan.program).is_file().then_some(plan.program)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;

    fn planned(settings: &Settings, root: &Path, given: &str) -> Result<Vec<ValidatorPlan>, Error> {
        let flags = ContractFlags {
            validate: vec![given.to_owned()],
            ..ContractFlags::default()
        };
        chain(settings, &flags, &Root::open(root).unwrap(), true)
    }

    #[test]
    fn a_built_in_check_that_the_user_gave_is_given() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings::none(&dir.path().join(".data"));
        let plans = planned(&settings, dir.path(), "syntax").unwrap();
        let role = |name: &str| plans.iter().find(|plan| plan.name == name).unwrap().role;
        assert_eq!(role("syntax"), CheckRole::Given);
        assert_eq!(role("secrets"), CheckRole::BuiltIn);
    }

    #[test]
    fn a_program_that_the_sandbox_hides_is_refused_with_the_grant() {
        let (work, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let bin = home.path().join("bin");
        let real = home.path().join("tools/checker/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&real).unwrap();
        std::fs::write(real.join("checker"), "#!/bin/sh\n").unwrap();
        std::os::unix::fs::symlink(real.join("checker"), bin.join("checker")).unwrap();
        let mut settings = Settings::none(&work.path().join(".data"));
        settings.environment = Environment::empty()
            .with("HOME", home.path())
            .with("PATH", &bin);
        let err = planned(&settings, work.path(), "checker --all").unwrap_err();
        let message = format!("{err} {err:?}");
        let grant = home.path().canonicalize().unwrap().join("tools/checker");
        assert!(message.contains("hidden by the sandbox"), "{message}");
        assert!(message.contains(grant.to_str().unwrap()), "{message}");
        std::fs::remove_file(bin.join("checker")).unwrap();
        std::fs::write(bin.join("checker"), "#!/bin/sh\n").unwrap();
        assert!(planned(&settings, work.path(), "checker --all").is_ok());
    }
}
