//! The workspace keeps its shape: dependencies point the way ARCHITECTURE.md draws them, and each crate bans what
//! it must not know. Reads what cargo says about the workspace; builds nothing.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Who may know whom; tests, examples and build scripts included.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("windlass-core", &[]),
    ("windlass-engine", &["windlass-core", "windlass-testing"]),
    // Fakes of the ports, for tests of ours and of embedders. It needs core alone, so that the engine's own tests use it.
    ("windlass-testing", &["windlass-core"]),
    // Tests of kernel features ask it whether this machine has them; it is no dependency of anything that ships.
    ("windlass-needs", &[]),
    // Keeps edits and patches free of IO, so that tools and runtimes compute them without knowing the host.
    ("windlass-edit", &["windlass-needs"]),
    ("windlass-host", &["windlass-core", "windlass-sandbox"]),
    // Changes to the user's tree: copies, landing and undo, apart from the door to the machine that they go through.
    (
        "windlass-transaction",
        &[
            "windlass-core",
            "windlass-edit",
            "windlass-host",
            "windlass-sandbox",
            "windlass-needs",
        ],
    ),
    ("windlass-sandbox", &["windlass-needs"]),
    (
        "windlass-providers",
        &["windlass-core", "windlass-needs", "windlass-scripted"],
    ),
    // Keeps the C grammar and the tables of programs out of core; reads lines, runs nothing.
    ("windlass-shell", &["windlass-core"]),
    (
        "windlass-tools",
        &[
            "windlass-core",
            "windlass-edit",
            "windlass-host",
            "windlass-shell",
        ],
    ),
    // Keeps the parsers of twenty languages out of everything else.
    ("windlass-validators", &["windlass-core"]),
    // Counts what foreign agents spend where it leaves; keeps HTTP servers out of the protocols.
    (
        "windlass-meter",
        &["windlass-core", "windlass-providers", "windlass-scripted"],
    ),
    // Reads session files of other agents; keeps vendors' formats out of the engine.
    (
        "windlass-import",
        &["windlass-core", "windlass-engine", "windlass-testing"],
    ),
    // The built-in loop with one answer; keeps patches out of the engine. Its tests run whole sessions.
    (
        "windlass-proposal",
        &[
            "windlass-core",
            "windlass-edit",
            "windlass-engine",
            "windlass-host",
            "windlass-testing",
            "windlass-tools",
            "windlass-transaction",
        ],
    ),
    // Agents that are not ours, inside the envelope; engine | runtimes keeps process supervision out of the loop. Its
    // tests run whole attempts on fakes.
    (
        "windlass-runtimes",
        &[
            "windlass-core",
            "windlass-edit",
            "windlass-meter",
            "windlass-providers",
            "windlass-engine",
            "windlass-host",
            "windlass-testing",
        ],
    ),
    // Finds, installs, probes and chooses agents; runtimes | registry keeps files and installers out of the protocols.
    (
        "windlass-registry",
        &[
            "windlass-core",
            "windlass-engine",
            "windlass-host",
            "windlass-proposal",
            "windlass-providers",
            "windlass-runtimes",
            "windlass-scripted",
            "windlass-transaction",
        ],
    ),
    // Makes traces of events; what it sends leaves through a port that the binary fills.
    ("windlass-telemetry", &["windlass-core"]),
    // Drives a windlass binary as a user would; knows nothing else of ours but the server on loopback. It starts
    // processes, opens files and listens by nature, so it bans nothing.
    ("windlass-corpus", &["windlass-scripted"]),
    // Kills a windlass binary and lets it resume; knows no other crate of ours, for the same reasons.
    ("windlass-crash", &["windlass-needs"]),
    // Plays a vendor on loopback, for the kit and for the binary's own probe of a runtime, and has the one HTTP server of
    // tests; it knows no crate of ours.
    ("windlass-scripted", &[]),
    // Runs agents under a windlass binary with a scripted model; knows nothing else of ours, for the same reasons.
    ("windlass-kit", &["windlass-scripted"]),
    // The library that every surface uses: it puts the crates above together.
    (
        "windlass",
        &[
            "windlass-core",
            "windlass-edit",
            "windlass-engine",
            "windlass-host",
            "windlass-import",
            "windlass-meter",
            "windlass-proposal",
            "windlass-providers",
            "windlass-registry",
            "windlass-runtimes",
            "windlass-sandbox",
            "windlass-telemetry",
            "windlass-tools",
            "windlass-transaction",
            "windlass-validators",
            // Its tests run a program against it.
            "windlass-scripted",
            "windlass-needs",
            "windlass-testing",
        ],
    ),
    // A view: it ships the library alone. Its tests use the built binary as the sandbox helper and drive it from below.
    (
        "windlass-cli",
        &[
            "windlass",
            "windlass-host",
            "windlass-sandbox",
            "windlass-shell",
            "windlass-transaction",
            "windlass-corpus",
            "windlass-crash",
            "windlass-needs",
            "windlass-scripted",
        ],
    ),
    (
        "windlass-bench",
        &[
            "windlass-core",
            "windlass-engine",
            "windlass-host",
            "windlass-meter",
            "windlass-providers",
            "windlass-scripted",
            "windlass-transaction",
        ],
    ),
    ("xtask", &[]),
];

/// What a crate's `clippy.toml` must ban, one word for each kind of thing it must not do itself.
const MUST_BAN: &[(&str, &[&str])] = &[
    (
        "windlass-core",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
            "std::time::SystemTime::now",
            "std::env::set_current_dir",
            "std::panic::set_hook",
        ],
    ),
    (
        "windlass-engine",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
            "std::time::SystemTime::now",
            "std::env::set_current_dir",
            "std::panic::set_hook",
            "tokio::signal::unix::signal",
        ],
    ),
    (
        "windlass-edit",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
            "std::time::SystemTime::now",
        ],
    ),
    (
        "windlass",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
            "std::time::SystemTime::now",
        ],
    ),
    (
        "windlass-tools",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
        ],
    ),
    (
        "windlass-runtimes",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
        ],
    ),
    (
        "windlass-meter",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
        ],
    ),
    (
        "windlass-import",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
        ],
    ),
    (
        "windlass-proposal",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
        ],
    ),
    (
        "windlass-providers",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
        ],
    ),
    (
        "windlass-shell",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
        ],
    ),
    (
        "windlass-validators",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
        ],
    ),
    (
        "windlass-transaction",
        &[
            "std::process::Command::new",
            "std::env::var",
            "std::env::set_current_dir",
            "std::panic::set_hook",
        ],
    ),
    (
        "windlass-telemetry",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
            "std::time::SystemTime::now",
        ],
    ),
];

/// The one crate that may do all of this.
const HOST: &str = "windlass-host";

/// A crate of ours and the crates of ours that it names.
type Edges = BTreeMap<String, BTreeSet<String>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn workspace() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = [
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
        "--locked",
    ];
    let said = Command::new(cargo)
        .args(args)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    serde_json::from_slice(&said.stdout).unwrap()
}

fn edges(metadata: &Value) -> Edges {
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<_> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap();
            let ours = dependencies
                .iter()
                .map(|dependency| dependency["name"].as_str().unwrap());
            let ours = ours
                .filter(|name| names.contains(name))
                .map(str::to_owned)
                .collect();
            (package["name"].as_str().unwrap().to_owned(), ours)
        })
        .collect()
}

/// One sentence for each thing that is not as the table says.
fn wrong(edges: &Edges) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, found) in edges {
        let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(known, _)| known == name) else {
            wrong.push(format!(
                "{name} is not in the table of this test: say there what it may depend on, and why"
            ));
            continue;
        };
        for other in found
            .iter()
            .filter(|other| !allowed.contains(&other.as_str()))
        {
            let may = if allowed.is_empty() {
                "nothing of ours".to_owned()
            } else {
                allowed.join(", ")
            };
            wrong.push(format!(
                "{name} must not depend on {other}: the direction is broken; it may know {may}"
            ));
        }
    }
    for (name, _) in MAY_DEPEND_ON {
        if !edges.contains_key(*name) {
            wrong.push(format!(
                "{name} is in the table of this test and not in the workspace"
            ));
        }
    }
    wrong
}

#[test]
fn dependencies_point_in_one_direction() {
    let wrong = wrong(&edges(&workspace()));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_wrong_edge_is_named_with_its_direction() {
    let mut edges = edges(&workspace());
    edges
        .get_mut("windlass-core")
        .unwrap()
        .insert("windlass-engine".into());
    edges.insert("windlass-new".into(), BTreeSet::new());
    assert_eq!(
        wrong(&edges),
        [
            "windlass-core must not depend on windlass-engine: the direction is broken; it may know nothing of ours",
            "windlass-new is not in the table of this test: say there what it may depend on, and why",
        ]
    );
}

#[test]
fn each_crate_bans_what_it_must_not_do() {
    for (name, banned) in MUST_BAN {
        let path = root().join("crates").join(name).join("clippy.toml");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|err| {
            panic!("{name} has no clippy.toml with the bans of its place: {err}")
        });
        for method in *banned {
            let entry = format!("path = \"{method}\"");
            assert!(
                text.contains(&entry),
                "{name}/clippy.toml must ban {method}"
            );
        }
    }
    assert!(
        !root()
            .join("crates")
            .join(HOST)
            .join("clippy.toml")
            .exists(),
        "{HOST} is the door to the machine"
    );
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for package in workspace()["packages"].as_array().unwrap() {
        let manifest = std::fs::read_to_string(package["manifest_path"].as_str().unwrap()).unwrap();
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{} has lints of its own",
            package["name"]
        );
    }
}

#[test]
fn the_command_line_ships_only_the_library() {
    let workspace = workspace();
    let mut packages = workspace["packages"].as_array().unwrap().iter();
    let cli = packages.find(|one| one["name"] == "windlass-cli").unwrap();
    let shipped = cli["dependencies"].as_array().unwrap().iter();
    for other in shipped.filter(|one| one["kind"] != "dev") {
        let name = other["name"].as_str().unwrap();
        assert!(
            !name.starts_with("windlass-"),
            "windlass-cli must not depend on {name}: re-export what it needs from `windlass`"
        );
    }
}

/// `windlass-scripted` is not here: `windlass runtimes --probe` rehearses with it.
const TEST_CRATES: &[&str] = &[
    "windlass-corpus",
    "windlass-crash",
    "windlass-kit",
    "windlass-needs",
    "windlass-testing",
];

#[test]
fn test_crates_are_no_part_of_the_product() {
    for package in workspace()["packages"].as_array().unwrap() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            assert!(
                !TEST_CRATES.contains(&name) || dependency["kind"] == "dev",
                "{} must name {name} among its dev-dependencies",
                package["name"]
            );
        }
    }
}
