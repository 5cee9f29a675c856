//! Checks the shape of the workspace: dependencies point in the direction that ARCHITECTURE.md shows, and each crate
//! bans what it must not use. Reads the output of `cargo metadata`; builds nothing.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The crates that each crate may depend on, including its tests, examples and build scripts.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("windlass-core", &[]),
    ("windlass-engine", &["windlass-core", "windlass-testing"]),
    // Fakes of the ports, for the tests of this workspace and of embedders. It needs only core, so that the engine's
    // own tests can use it.
    ("windlass-testing", &["windlass-core"]),
    // Tells tests whether this machine has a kernel feature; nothing that ships depends on it.
    ("windlass-needs", &[]),
    // Keeps edits and patches free of IO, so that tools and runtimes compute them without knowing the host.
    ("windlass-edit", &["windlass-needs"]),
    ("windlass-host", &["windlass-core", "windlass-sandbox"]),
    // Changes the user's tree: copies, landing and undo. It accesses the machine through the host.
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
    // Keeps the C grammar and the tables of programs out of core; parses command lines and runs nothing.
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
    // Counts what agents that are not built in spend; keeps the HTTP server out of the protocols.
    (
        "windlass-meter",
        &["windlass-core", "windlass-providers", "windlass-scripted"],
    ),
    // Reads session files of other agents; keeps vendors' formats out of the engine.
    (
        "windlass-import",
        &["windlass-core", "windlass-engine", "windlass-testing"],
    ),
    // The built-in loop with one answer; keeps patches out of the engine. Its tests run complete sessions.
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
    // Agents that are not built in; keeps process supervision out of the engine. Its tests run complete attempts on
    // fakes.
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
    // Finds, installs, probes and chooses agents; keeps files and installers out of the runtimes' protocols.
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
    // Makes traces of events; the binary provides the port through which they are sent.
    ("windlass-telemetry", &["windlass-core"]),
    // Drives a windlass binary as a user would; besides that it uses only the server on loopback. It starts processes,
    // opens files and listens, so it bans nothing.
    ("windlass-corpus", &["windlass-scripted"]),
    // Kills a windlass binary and lets it resume; it uses no other crate for the same reason.
    ("windlass-crash", &["windlass-needs"]),
    // Plays a vendor on loopback, for the kit and for the binary's own probe of a runtime, and has the only HTTP server
    // of the tests; it uses no other crate of the workspace.
    ("windlass-scripted", &[]),
    // Runs agents under a windlass binary with a scripted model; it uses no other crate for the same reason.
    ("windlass-kit", &["windlass-scripted"]),
    // The library that every surface uses: it connects the crates above.
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
            "windlass-text",
            "windlass-tools",
            "windlass-transaction",
            "windlass-validators",
            // Only its tests use these.
            "windlass-scripted",
            "windlass-needs",
            "windlass-testing",
        ],
    ),
    // Speaks to a server; other programs can use it without the library.
    (
        "windlass-client",
        &["windlass-core", "windlass-providers", "windlass-scripted"],
    ),
    // The operations on sessions as one table, for every transport.
    (
        "windlass-service",
        &["windlass", "windlass-scripted", "windlass-testing"],
    ),
    // Translates HTTP into calls of the table. Its tests build the OpenAPI document from the types of the library.
    (
        "windlass-http",
        &["windlass-service", "windlass", "windlass-scripted"],
    ),
    // Styled text for every view that shows text; pure, so that it is tested without a terminal.
    ("windlass-text", &[]),
    // A view: events of the service or of a remote server, on a terminal.
    (
        "windlass-tui",
        &[
            "windlass",
            "windlass-client",
            "windlass-service",
            "windlass-text",
            "windlass-scripted",
        ],
    ),
    // A view: it ships with the library and the service only. Its tests use the built binary as the sandbox helper.
    (
        "windlass-cli",
        &[
            "windlass",
            "windlass-client",
            "windlass-service",
            "windlass-http",
            "windlass-text",
            "windlass-tui",
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

/// The functions that a crate's `clippy.toml` must ban, one for each kind of access that it must not have.
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
        "windlass-text",
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
        "windlass-service",
        &["std::process::Command::new", "std::env::var"],
    ),
    (
        "windlass-http",
        &[
            "std::fs::read",
            "std::process::Command::new",
            "std::env::var",
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

/// The only crate that may do all of this.
const HOST: &str = "windlass-host";

/// A crate of the workspace, and the crates of the workspace that it depends on.
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

/// Returns one sentence for each difference from the table.
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

/// The crates that the command line ships, besides `windlass`: the service, its HTTP server, the client of such a server,
/// the terminal interface, and the styled text of all views.
const SHIPPED: &[&str] = &[
    "windlass-client",
    "windlass-http",
    "windlass-service",
    "windlass-text",
    "windlass-tui",
];

#[test]
fn the_command_line_ships_only_the_library_and_the_service() {
    let workspace = workspace();
    let mut packages = workspace["packages"].as_array().unwrap().iter();
    let cli = packages.find(|one| one["name"] == "windlass-cli").unwrap();
    let shipped = cli["dependencies"].as_array().unwrap().iter();
    for other in shipped.filter(|one| one["kind"] != "dev") {
        let name = other["name"].as_str().unwrap();
        assert!(
            !name.starts_with("windlass-") || SHIPPED.contains(&name),
            "windlass-cli must not depend on {name}: re-export what it needs from `windlass`"
        );
    }
}

/// `windlass-scripted` is not in this list: `windlass runtimes --probe` uses it.
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
