//! Finds the build, test and lint commands of a project from the files at its root. It runs nothing. The caller passes the
//! tree as it was before the run, so that a run cannot choose the checks that judge it.

mod scripts;

use std::time::Duration;

use windlass_core::validator::CheckRole;
use windlass_core::workspace::Files;

use crate::plan::{Purpose, ValidatorPlan};

/// A larger settings file of a project is not read.
const MAX_SETTINGS: u64 = 1 << 20;
/// The time limit of a detected command.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Read access to the files of a project.
pub trait ProjectFiles {
    /// Whether a file or a directory exists.
    fn exists(&self, path: &str) -> bool;
    /// The text of a file, if it can be read.
    fn read(&self, path: &str) -> Option<String>;
    /// The names at the root, for tools whose file can have any name. Empty if they are not known.
    fn top(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The project in a workspace. Use it only before the run has changed anything.
pub struct LookAt<'a>(pub &'a dyn Files);

impl ProjectFiles for LookAt<'_> {
    fn exists(&self, path: &str) -> bool {
        self.0.stat(path).is_ok()
    }

    fn read(&self, path: &str) -> Option<String> {
        let bytes = self.0.read(path, MAX_SETTINGS).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn top(&self) -> Vec<String> {
        let listed = self.0.list("", 1_000).map(|listing| listing.entries);
        let listed = listed.unwrap_or_default().into_iter();
        listed.map(|(name, _, _)| name).collect()
    }
}

/// The commands of a project: builds first, then tests, then linters. Builds and tests block landing, linters do not.
#[must_use]
pub fn detect(look: &dyn ProjectFiles) -> Vec<ValidatorPlan> {
    let mut detector = CommandDetector {
        look,
        commands: Vec::new(),
    };
    detector.cargo();
    detector.node();
    detector.deno();
    detector.python();
    detector.go();
    detector.jvm();
    detector.dotnet();
    detector.elixir();
    detector.ruby();
    detector.php();
    // These mostly call the commands found above, so they are used only for a purpose that has no command yet.
    detector.recipes("make", &["GNUmakefile", "makefile", "Makefile"]);
    detector.recipes("just", &["justfile", "Justfile", ".justfile"]);
    let mut plans: Vec<_> = detector.commands.into_iter().map(plan).collect();
    plans.sort_by_key(|plan| plan.purpose);
    plans
}

struct CommandDetector<'a> {
    look: &'a dyn ProjectFiles,
    commands: Vec<(String, Purpose, String)>,
}

fn plan((name, purpose, line): (String, Purpose, String)) -> ValidatorPlan {
    ValidatorPlan {
        purpose: Some(purpose),
        role: CheckRole::Detected,
        blocking: purpose != Purpose::Lint,
        timeout: TIMEOUT,
        ..ValidatorPlan::command(&name, &line)
    }
}

impl CommandDetector<'_> {
    fn add(&mut self, name: &str, purpose: Purpose, line: impl Into<String>) {
        self.commands.push((name.to_owned(), purpose, line.into()));
    }

    fn build(&mut self, name: &str, line: impl Into<String>) {
        self.add(name, Purpose::Build, line);
    }

    fn test(&mut self, name: &str, line: impl Into<String>) {
        self.add(name, Purpose::Test, line);
    }

    fn lint(&mut self, name: &str, line: impl Into<String>) {
        self.add(name, Purpose::Lint, line);
    }

    fn has(&self, purpose: Purpose) -> bool {
        self.commands.iter().any(|(_, known, _)| *known == purpose)
    }

    fn any(&self, paths: &[&str]) -> bool {
        paths.iter().any(|path| self.look.exists(path))
    }

    /// Returns `there` if the path exists, else `otherwise`.
    fn either(&self, path: &str, there: &'static str, otherwise: &'static str) -> &'static str {
        if self.look.exists(path) {
            there
        } else {
            otherwise
        }
    }

    fn text(&self, path: &str) -> String {
        self.look.read(path).unwrap_or_default()
    }

    fn toml(&self, path: &str) -> toml::Table {
        toml::from_str(&self.text(path)).unwrap_or_default()
    }

    fn json(&self, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.text(path)).unwrap_or_default()
    }

    fn cargo(&mut self) {
        if !self.look.exists("Cargo.toml") {
            return;
        }
        let manifest = self.toml("Cargo.toml");
        let all = if manifest.contains_key("workspace") {
            " --workspace"
        } else {
            ""
        };
        self.build("cargo-check", format!("cargo check{all} --all-targets"));
        self.test("cargo-test", format!("cargo test{all}"));
        let lints =
            |table: Option<&toml::Value>| table.and_then(|table| table.get("clippy")).is_some();
        let workspace = manifest
            .get("workspace")
            .and_then(|table| table.get("lints"));
        if self.any(&["clippy.toml", ".clippy.toml"])
            || lints(manifest.get("lints"))
            || lints(workspace)
        {
            let line = format!("cargo clippy{all} --all-targets -- -D warnings");
            self.lint("cargo-clippy", line);
        }
    }

    fn node(&mut self) {
        if !self.look.exists("package.json") {
            return;
        }
        let package = self.json("package.json");
        let manager = scripts::manager(&package, |path| self.look.exists(path));
        for (script, purpose) in scripts::WANTED {
            let Some(text) = package["scripts"][*script].as_str().map(str::trim) else {
                continue;
            };
            if text.is_empty() || text.contains("no test specified") {
                continue;
            }
            // With `CI` set, test runners that would watch files exit after one round.
            let once = match purpose {
                Purpose::Test => "CI=true ",
                Purpose::Build | Purpose::Lint => "",
            };
            let line = format!("{once}{manager} run {script}");
            self.add(&format!("{manager}-{script}"), *purpose, line);
        }
    }

    fn deno(&mut self) {
        let Some(path) = ["deno.json", "deno.jsonc"]
            .into_iter()
            .find(|path| self.look.exists(path))
        else {
            return;
        };
        // A file with comments does not parse as JSON, so its own task is not found and `deno test` is used.
        let own = self.text(path).contains("\"test\":");
        let test = if own && self.json(path)["tasks"]["test"].is_string() {
            "deno task test"
        } else {
            "deno test"
        };
        self.build("deno-check", "deno check .");
        self.test("deno-test", test);
        self.lint("deno-lint", "deno lint");
    }

    fn python(&mut self) {
        let project = "pyproject.toml setup.py setup.cfg requirements.txt tox.ini pytest.ini Pipfile noxfile.py \
             conftest.py tests/__init__.py tests/conftest.py";
        if !project
            .split_whitespace()
            .any(|path| self.look.exists(path))
        {
            return;
        }
        let python = self.either(".venv/bin/python", ".venv/bin/python", "python3");
        let pyproject = self.toml("pyproject.toml");
        let tools = pyproject.get("tool");
        let tool = |name: &str| tools.and_then(|tool| tool.get(name)).is_some();
        let (tox, setup) = (self.text("tox.ini"), self.text("setup.cfg"));
        let configured = tool("pytest")
            || self.any(&[
                "pytest.ini",
                ".pytest.ini",
                "conftest.py",
                "tests/conftest.py",
            ])
            || tox.contains("[pytest]")
            || setup.contains("[tool:pytest]");
        let folder = self.any(&["tests", "test"]);
        let settings = [
            tox.as_str(),
            &setup,
            &self.text("Makefile"),
            &self.text("pyproject.toml"),
        ]
        .join("\n");
        if configured || (folder && (settings.contains("pytest") || !settings.contains("unittest")))
        {
            self.test("pytest", format!("{python} -m pytest -q"));
        } else if self.look.exists("manage.py") {
            self.test("django-test", format!("{python} manage.py test"));
        } else if folder {
            self.test("unittest", format!("{python} -m unittest discover"));
        } else if self.look.exists("tox.ini") {
            self.test("tox", "tox -q");
        } else if self.look.exists("noxfile.py") {
            self.test("nox", "nox");
        }
        if self.any(&["ruff.toml", ".ruff.toml"]) || tool("ruff") {
            self.lint("ruff", format!("{python} -m ruff check ."));
        }
        if self.any(&["mypy.ini", ".mypy.ini"]) || tool("mypy") || setup.contains("[mypy]") {
            self.lint("mypy", format!("{python} -m mypy ."));
        }
        if self.look.exists(".flake8") || setup.contains("[flake8]") || tox.contains("[flake8]") {
            self.lint("flake8", format!("{python} -m flake8"));
        }
    }

    fn go(&mut self) {
        if self.any(&["go.mod", "go.work"]) {
            self.build("go-build", "go build ./...");
            self.test("go-test", "go test ./...");
            self.lint("go-vet", "go vet ./...");
        }
    }

    fn jvm(&mut self) {
        if self.look.exists("pom.xml") {
            // The wrapper script may not be executable, so it is run with `sh`.
            let maven = self.either("mvnw", "sh ./mvnw", "mvn");
            self.build("maven-compile", format!("{maven} -q -B test-compile"));
            self.test("maven-test", format!("{maven} -q -B test"));
        }
        if self.any(&[
            "build.gradle",
            "build.gradle.kts",
            "settings.gradle",
            "settings.gradle.kts",
        ]) {
            let gradle = self.either("gradlew", "sh ./gradlew", "gradle");
            let line = format!("{gradle} --console=plain testClasses");
            self.build("gradle-build", line);
            self.test("gradle-test", format!("{gradle} --console=plain test"));
        }
    }

    fn dotnet(&mut self) {
        let ends = [".sln", ".slnx", ".csproj", ".fsproj", ".vbproj"];
        let project = |name: &String| ends.iter().any(|end| name.ends_with(end));
        if self.look.top().iter().any(project) {
            self.build("dotnet-build", "dotnet build --nologo");
            self.test("dotnet-test", "dotnet test --nologo");
        }
    }

    fn elixir(&mut self) {
        if self.look.exists("mix.exs") {
            self.build("mix-compile", "mix compile");
            self.test("mix-test", "mix test");
            if self.look.exists(".formatter.exs") {
                self.lint("mix-format", "mix format --check-formatted");
            }
        }
    }

    fn ruby(&mut self) {
        if !self.any(&["Gemfile", "Rakefile", ".rspec"]) {
            return;
        }
        let bundle = self.either("Gemfile", "bundle exec ", "");
        let rakefile = self.text("Rakefile");
        if self.any(&[".rspec", "spec/spec_helper.rb"]) {
            self.test("rspec", format!("{bundle}rspec"));
        } else if rakefile.contains("TestTask")
            || rakefile.contains("task :test")
            || rakefile.contains("task test")
        {
            self.test("rake-test", format!("{bundle}rake test"));
        }
        if self.look.exists(".rubocop.yml") {
            self.lint("rubocop", format!("{bundle}rubocop"));
        }
    }

    fn php(&mut self) {
        let own = self.json("composer.json")["scripts"]["test"].clone();
        if own.is_string() || own.is_array() {
            self.test("composer-test", "composer test");
        } else if self.any(&["phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml"]) {
            self.test("phpunit", "vendor/bin/phpunit");
        }
        if self.any(&["phpstan.neon", "phpstan.neon.dist"]) {
            self.lint("phpstan", "vendor/bin/phpstan analyse --no-progress");
        }
    }

    fn recipes(&mut self, program: &str, files: &[&str]) {
        let Some(path) = files.iter().find(|path| self.look.exists(path)) else {
            return;
        };
        let names = scripts::targets(&self.text(path));
        let has = |name: &str| names.iter().any(|known| known == name);
        let test = ["test", "check"].into_iter().find(|name| has(name));
        if let Some(test) = test.filter(|_| !self.has(Purpose::Test)) {
            self.test(&format!("{program}-{test}"), format!("{program} {test}"));
        }
        if has("lint") && !self.has(Purpose::Lint) {
            self.lint(&format!("{program}-lint"), format!("{program} lint"));
        }
    }
}

#[cfg(test)]
#[path = "detect_tests.rs"]
mod tests;
