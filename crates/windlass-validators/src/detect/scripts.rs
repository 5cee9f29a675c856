//! Reads the scripts of a `package.json` and the targets of a makefile, as far as detection needs them.

use serde_json::Value;

use crate::plan::Purpose;

/// The script names whose purpose is known.
pub(super) const WANTED: &[(&str, Purpose)] = &[
    ("build", Purpose::Build),
    ("typecheck", Purpose::Build),
    ("type-check", Purpose::Build),
    ("check-types", Purpose::Build),
    ("test", Purpose::Test),
    ("lint", Purpose::Lint),
];

/// The package manager: the one named by `packageManager`, else the one whose lock file exists, else npm.
pub(super) fn manager(package: &Value, exists: impl Fn(&str) -> bool) -> &'static str {
    let named = package["packageManager"].as_str().unwrap_or_default();
    let by_name = ["pnpm", "yarn", "bun", "npm"]
        .into_iter()
        .find(|name| named.starts_with(&format!("{name}@")));
    let locks = [
        ("bun.lock", "bun"),
        ("bun.lockb", "bun"),
        ("pnpm-lock.yaml", "pnpm"),
        ("yarn.lock", "yarn"),
        ("package-lock.json", "npm"),
    ];
    by_name
        .or_else(|| {
            locks
                .iter()
                .find(|(lock, _)| exists(lock))
                .map(|(_, name)| *name)
        })
        .unwrap_or("npm")
}

/// The names before the first colon of a line: targets of make, recipes of just. Assignments are skipped.
pub(super) fn targets(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.starts_with(['\t', ' ', '#', '.', '@']))
    {
        let Some((before, after)) = line.split_once(':') else {
            continue;
        };
        if after.starts_with('=') || after.starts_with(":=") || before.contains('=') {
            continue;
        }
        names.extend(before.split_whitespace().take(20).map(str::to_owned));
    }
    names
}
