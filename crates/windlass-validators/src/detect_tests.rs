use std::collections::BTreeMap;

use super::*;
use crate::plan::PlanKind;

struct ProjectTree(BTreeMap<&'static str, &'static str>);

impl ProjectFiles for ProjectTree {
    fn exists(&self, path: &str) -> bool {
        self.0
            .keys()
            .any(|known| *known == path || known.starts_with(&format!("{path}/")))
    }
    fn read(&self, path: &str) -> Option<String> {
        self.0.get(path).map(|text| (*text).to_owned())
    }
    fn top(&self) -> Vec<String> {
        self.0
            .keys()
            .filter(|path| !path.contains('/'))
            .map(|path| (*path).to_owned())
            .collect()
    }
}

/// In `expect`, `!` after the name marks a blocking command.
#[track_caller]
fn check(files: &[(&'static str, &'static str)], expect: &[&str]) {
    let found: Vec<_> = detect(&ProjectTree(files.iter().copied().collect()))
        .into_iter()
        .map(|plan| {
            let PlanKind::Command { line } = plan.kind else {
                panic!("only commands are detected")
            };
            format!(
                "{}{}: {line}",
                plan.name,
                if plan.blocking { "!" } else { "" }
            )
        })
        .collect();
    assert_eq!(found, expect, "{files:?}");
}

#[test]
fn each_kind_of_project_has_its_commands() {
    check(&[], &[]);
    check(&[("README.md", "")], &[]);
    check(
        &[("Cargo.toml", "[package]\nname='a'")],
        &[
            "cargo-check!: cargo check --all-targets",
            "cargo-test!: cargo test",
        ],
    );
    check(
        &[(
            "Cargo.toml",
            "[workspace]\n[workspace.lints.clippy]\nx='deny'",
        )],
        &[
            "cargo-check!: cargo check --workspace --all-targets",
            "cargo-test!: cargo test --workspace",
            "cargo-clippy: cargo clippy --workspace --all-targets -- -D warnings",
        ],
    );
    check(
        &[("go.mod", "module a")],
        &[
            "go-build!: go build ./...",
            "go-test!: go test ./...",
            "go-vet: go vet ./...",
        ],
    );
    check(
        &[("pom.xml", ""), ("mvnw", "")],
        &[
            "maven-compile!: sh ./mvnw -q -B test-compile",
            "maven-test!: sh ./mvnw -q -B test",
        ],
    );
    check(
        &[("build.gradle.kts", "")],
        &[
            "gradle-build!: gradle --console=plain testClasses",
            "gradle-test!: gradle --console=plain test",
        ],
    );
    check(
        &[("App.sln", "")],
        &[
            "dotnet-build!: dotnet build --nologo",
            "dotnet-test!: dotnet test --nologo",
        ],
    );
    check(
        &[("mix.exs", "")],
        &["mix-compile!: mix compile", "mix-test!: mix test"],
    );
    check(
        &[("Gemfile", ""), (".rspec", "")],
        &["rspec!: bundle exec rspec"],
    );
    check(
        &[("Rakefile", "Rake::TestTask.new"), (".rubocop.yml", "")],
        &["rake-test!: rake test", "rubocop: rubocop"],
    );
    check(
        &[("composer.json", r#"{"scripts":{"test":"phpunit"}}"#)],
        &["composer-test!: composer test"],
    );
    check(
        &[("phpunit.xml.dist", "")],
        &["phpunit!: vendor/bin/phpunit"],
    );
    check(
        &[("deno.json", r#"{"tasks": {"test": "deno test -A"}}"#)],
        &[
            "deno-check!: deno check .",
            "deno-test!: deno task test",
            "deno-lint: deno lint",
        ],
    );
}

#[test]
fn scripts_run_with_the_package_manager_of_the_project() {
    let scripts = r#"{"scripts":{"test":"jest","lint":"eslint .","build":"tsc","dev":"vite"}}"#;
    for (lock, manager) in [
        ("package-lock.json", "npm"),
        ("pnpm-lock.yaml", "pnpm"),
        ("yarn.lock", "yarn"),
        ("bun.lock", "bun"),
        ("x", "npm"),
    ] {
        let found = detect(&ProjectTree(
            [("package.json", scripts), (lock, "")]
                .into_iter()
                .collect(),
        ));
        let lines: Vec<_> = found.iter().map(|plan| plan.name.clone()).collect();
        assert_eq!(
            lines,
            [
                format!("{manager}-build"),
                format!("{manager}-test"),
                format!("{manager}-lint")
            ]
        );
    }
    let placeholder = r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#;
    check(&[("package.json", placeholder)], &[]);
    check(&[("package.json", "not json")], &[]);
    let named = r#"{"packageManager":"pnpm@9.1.0","scripts":{"test":"vitest"}}"#;
    check(
        &[("package.json", named), ("package-lock.json", "")],
        &["pnpm-test!: CI=true pnpm run test"],
    );
}

#[test]
fn python_test_runners_are_found_in_many_files() {
    let pytest = &["pytest!: python3 -m pytest -q"];
    check(&[("pytest.ini", "")], pytest);
    check(
        &[("pyproject.toml", "[tool.pytest.ini_options]\nx=1")],
        pytest,
    );
    check(&[("setup.cfg", "[tool:pytest]")], pytest);
    check(&[("requirements.txt", ""), ("tests/test_a.py", "")], pytest);
    check(&[("setup.py", "")], &[]);
    check(
        &[
            ("setup.py", ""),
            ("Makefile", "test:\n\tpython -m unittest"),
            ("tests/a.py", ""),
        ],
        &["unittest!: python3 -m unittest discover"],
    );
    check(&[("tox.ini", "[tox]")], &["tox!: tox -q"]);
    check(&[("noxfile.py", "")], &["nox!: nox"]);
    check(
        &[
            ("pyproject.toml", "[tool.ruff]\n[tool.mypy]"),
            ("conftest.py", ""),
            (".venv/bin/python", ""),
        ],
        &[
            "pytest!: .venv/bin/python -m pytest -q",
            "ruff: .venv/bin/python -m ruff check .",
            "mypy: .venv/bin/python -m mypy .",
        ],
    );
}

#[test]
fn make_and_just_are_used_only_without_another_command() {
    check(
        &[("Makefile", "CC := gcc\ntest: all\n\t./t\nlint:\n\tx\n")],
        &["make-test!: make test", "make-lint: make lint"],
    );
    check(
        &[("Makefile", "check: all\n")],
        &["make-check!: make check"],
    );
    check(&[("Makefile", "test := 1\nall:\n")], &[]);
    check(
        &[("justfile", "test *args:\n  x\n")],
        &["just-test!: just test"],
    );
    check(
        &[("Makefile", "test:\n"), ("go.mod", "")],
        &[
            "go-build!: go build ./...",
            "go-test!: go test ./...",
            "go-vet: go vet ./...",
        ],
    );
}
