//! `doctor`: what works on this machine, what does not, and what to do about it.

use std::process::{Command, ExitCode};

use futures_util::future::join_all;
use serde_json::{Value, json};
use windlass_core::workspace::Files;
use windlass_host::config::Places;
use windlass_host::secret::Credentials;
use windlass_providers::VENDORS;

use super::runtimes::{row, to_probe};
use super::{block_on, models};
use crate::args::{AgentArgs, DoctorArgs};
use crate::failure::Failure;
use crate::out::say;
use crate::runtimes::{Found, Ground, Rehearsal, Standing};
use crate::safe::{json_line, one_line};
use crate::settings::Settings;
use crate::{exit, plan};

struct Finding {
    what: String,
    ok: bool,
    /// Without it nothing can be done.
    needed: bool,
    detail: String,
    /// What else there is to say, a line each.
    more: Vec<String>,
}

pub(super) fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let (mut findings, settings) = examine();
    let runtimes = match &settings {
        Some(settings) => block_on(runtimes(args, settings, &mut findings))?,
        None => Vec::new(),
    };
    let text = if args.json {
        let rows: Vec<_> = findings
            .iter()
            .map(|one| {
                let detail = [&one.detail].into_iter().chain(&one.more).cloned().collect::<Vec<_>>().join("; ");
                json!({ "what": one.what, "ok": one.ok, "needed": one.needed, "detail": detail })
            })
            .collect();
        json_line(&json!({ "version": env!("CARGO_PKG_VERSION"), "findings": rows, "runtimes": runtimes }))
    } else {
        let mut text = format!("windlass {}\n", env!("CARGO_PKG_VERSION"));
        for one in &findings {
            let mark = match (one.ok, one.needed) {
                (true, _) => "ok     ",
                (false, true) => "BROKEN ",
                (false, false) => "missing",
            };
            // What is said in several sentences stands below each other.
            let rest = one.more.iter().map(|line| format!("\n{:32}{}", "", one_line(line)));
            let rest: String = rest.collect();
            text.push_str(&format!("{mark}  {:<22} {}{rest}\n", one.what, one_line(&one.detail)));
        }
        text
    };
    let failed_probe = runtimes.iter().any(|row| row["probe"]["works"] == false);
    let broken = failed_probe || findings.iter().any(|one| one.needed && !one.ok);
    let printed = exit::printed(&text);
    Ok(if broken { ExitCode::from(exit::FAILED) } else { printed })
}

/// How runtimes stand and, where that is wanted, whether they work: as findings, and as rows for programs.
async fn runtimes(args: &DoctorArgs, settings: &Settings, findings: &mut Vec<Finding>) -> Result<Vec<Value>, Failure> {
    let agent = AgentArgs::default();
    let mut standings = match Ground::new(&agent, settings).and_then(|ground| ground.standings()) {
        Ok(standings) => standings,
        Err(failure) => {
            let (what, detail) = ("runtimes".to_owned(), failure.message());
            findings.push(Finding { what, ok: false, needed: true, detail, more: Vec::new() });
            return Ok(Vec::new());
        }
    };
    join_all(standings.iter_mut().map(Standing::look_closer)).await;
    findings.extend(standings.iter().filter_map(finding));
    let mut rows: Vec<Value> = standings.iter().map(row).collect();
    let Some(names) = &args.probe else { return Ok(rows) };
    let mut rehearsal = Rehearsal::new(settings)?;
    for name in to_probe(names, &standings, settings)? {
        say!("probing {} …", one_line(&name));
        let probed = rehearsal.probe(&name).await?;
        let said = probed.result.as_ref().err().map_or("", |fell| fell.said.as_str());
        findings.push(Finding {
            what: format!("probe of {name}"),
            ok: probed.result.is_ok(),
            needed: false,
            detail: probed.line(),
            more: said.lines().map(|line| format!("| {line}")).collect(),
        });
        match rows.iter_mut().find(|row| row["name"] == name.as_str()) {
            Some(row) => row["probe"] = probed.json(),
            None => rows.push(json!({ "name": name, "probe": probed.json() })),
        }
    }
    Ok(rows)
}

/// What is said of an agent that is not ours; what is built in needs a model, and those are listed.
fn finding(standing: &Standing) -> Option<Finding> {
    let place = match &standing.found {
        Found::BuiltIn => return None,
        Found::At(program) => Some(program.file.display().to_string()),
        Found::Nowhere => None,
    };
    let (detail, todo) = match &standing.usable {
        Ok(with) => (with.clone(), None),
        Err(why) => (why.what.clone(), why.hint.as_ref().map(|hint| format!("→ {hint}"))),
    };
    let more = [todo, place, standing.versions()].into_iter().flatten().collect();
    Some(Finding { what: standing.name.clone(), ok: standing.usable.is_ok(), needed: false, detail, more })
}

fn examine() -> (Vec<Finding>, Option<Settings>) {
    let mut findings = Vec::new();
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let root = plan::open_workspace(None, home.as_deref());
    let mut add = |what: &str, needed, result: Result<String, String>| {
        let ok = result.is_ok();
        let detail = result.unwrap_or_else(|why| why);
        findings.push(Finding { what: what.to_owned(), ok, needed, detail, more: Vec::new() });
    };
    add(
        "workspace",
        false,
        root.as_ref().map(|root| root.root().display().to_string()).map_err(|failure| failure.message()),
    );
    add("git", false, version("git"));
    add("bash", false, version("bash").map_err(|why| format!("{why}; commands run with sh instead")));
    let settings = match Settings::load(root.as_ref().ok().map(Files::root)) {
        Ok(settings) => settings,
        Err(failure) => {
            add("settings", true, Err(failure.message()));
            return (findings, None);
        }
    };
    add("settings", true, Ok(settings.places.config_file().display().to_string()));
    add("session folder", true, writable(&settings.places.data_dir));
    let (whole, weaker) = kernel(root.as_ref().map(Files::root).unwrap_or(std::path::Path::new("/tmp")));
    add("isolated runs", false, copies(&settings.places, whole.is_ok()));
    add("kernel sandbox", false, whole);
    add("landlock", false, weaker);
    add("network path", false, Ok(network()));
    match Credentials::read(&settings.places.credentials_file()) {
        Ok(credentials) => {
            for vendor in VENDORS {
                add(vendor.id, false, models::state(vendor, &settings, &credentials));
            }
        }
        Err(err) => add("credentials", true, Err(err.to_string())),
    }
    (findings, Some(settings))
}

/// What this kernel offers to hold commands, by trying it.
fn kernel(folder: &std::path::Path) -> (Result<String, String>, Result<String, String>) {
    let offer = match crate::sandboxing::offer(folder) {
        Ok(offer) => offer,
        Err(failure) => return (Err(failure.message()), Err(failure.message())),
    };
    let whole = match offer.namespaces {
        Ok(()) => Ok("namespaces, Landlock and system call filters hold commands".to_owned()),
        Err(why) => Err(format!(
            "{why}; allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns), else commands are refused"
        )),
    };
    let version = offer.landlock_version;
    let weaker = match offer.landlock {
        Ok(()) => Ok(format!("version {version}; `sandbox.accept = \"landlock\"` takes it alone where need be")),
        Err(why) => Err(format!("version {version}: {why}")),
    };
    (whole, weaker)
}

/// How isolated runs would work here, by trying.
fn copies(places: &Places, sandbox: bool) -> Result<String, String> {
    if !sandbox {
        return Err("they need the kernel sandbox (below); `run --in-place` works on the tree itself".to_owned());
    }
    let helper = crate::sandboxing::helper().map_err(|failure| failure.message())?;
    match windlass_host::isolated::try_layer(&helper, &places.transactions_dir()) {
        Ok(()) => Ok("a layer over the tree, which costs the same for a tree of any size".to_owned()),
        Err(why) => Ok(format!("a copy of the tree, up to 2 GB and 200,000 files, because no layer can be had: {why}")),
    }
}

fn version(program: &str) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|err| format!("{program} cannot be started: {err}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

/// Sessions are written below this folder; the nearest part of it that exists must take new files.
fn writable(dir: &std::path::Path) -> Result<String, String> {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    rustix::fs::access(there, rustix::fs::Access::WRITE_OK)
        .map(|()| dir.display().to_string())
        .map_err(|err| format!("{} cannot be written: {err}", there.display()))
}

fn network() -> String {
    let proxy =
        ["https_proxy", "HTTPS_PROXY"].iter().find_map(|name| std::env::var(name).ok()).filter(|p| !p.is_empty());
    match proxy {
        // A proxy's address may hold a password.
        Some(proxy) => format!("through the proxy {}", proxy.rsplit('@').next().unwrap_or_default()),
        None => "direct; system root certificates".to_owned(),
    }
}
