//! The paths that the verdict of a command depends on: the tests that it runs, its scripts, the settings that it reads.
//! A run that changes one of them has changed the check that judges it, and the engine reports that.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Globs of tests and CI files by their usual names, in any project.
const TESTS: &str = "**/test/** **/tests/** **/__tests__/** **/spec/** **/specs/** **/testdata/** **/__snapshots__/** **/test_*.py \
    **/*_test.py **/conftest.py **/*_test.go **/*.test.* **/*.spec.* **/*_test.* **/*_spec.rb **/*Test.java \
    **/*Tests.java **/*Test.kt **/*Tests.cs **/*Test.php **/src/test/** **/tests.rs **/*_tests.rs **/*.snap \
    .github/workflows/** .gitlab-ci.yml .circleci/** azure-pipelines.yml Jenkinsfile .travis.yml";

/// Modules of Python and of its test tools. A file of such a name in a directory that Python searches first shadows the
/// module, also in the tests.
const PYTHON_MODULES: &str = "\
    _pytest abc aifc annotationlib argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb \
    binascii bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop collections \
    colorsys compileall compression concurrent configparser contextlib contextvars copy copyreg coverage crypt \
    csv ctypes curses dataclasses datetime dbm decimal difflib dis distutils doctest email encodings ensurepip \
    enum errno faulthandler fcntl filecmp fileinput fnmatch fractions ftplib functools gc genericpath getopt \
    getpass gettext glob graphlib grp gzip hashlib heapq hmac html http hypothesis imaplib imghdr imp importlib \
    inspect io ipaddress itertools json keyword lib2to3 linecache locale logging lzma mailbox mailcap marshal \
    math mimetypes mmap mock modulefinder multiprocessing netrc nis nntplib nose ntpath nturl2path numbers \
    opcode operator optparse os ossaudiodev pathlib pdb pickle pickletools pipes pkgutil platform plistlib \
    pluggy poplib posix posixpath pprint profile pstats pty pwd py_compile pyclbr pydoc pydoc_data pyexpat \
    pytest queue quopri random re readline reprlib resource rlcompleter runpy sched secrets select selectors \
    shelve shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 sre_compile \
    sre_constants sre_parse ssl stat statistics string stringprep struct subprocess sunau symtable sys sysconfig \
    syslog tabnanny tarfile telnetlib tempfile termios textwrap threading time timeit tkinter token tokenize \
    tomllib trace traceback tracemalloc tty turtle types typing unicodedata unittest urllib uu uuid venv \
    warnings wave weakref webbrowser wsgiref xdist xdrlib xml xmlrpc zipapp zipfile zipimport zlib zoneinfo";

/// Programs that run or read Python.
const PYTHON: &str = "pytest python python3 tox nox unittest ruff mypy flake8 pylint uv poetry";

/// The settings that a program reads: the names of the programs, and the globs of their files, both separated by spaces.
const SETTINGS: &[(&str, &str)] = &[
    (
        "cargo",
        "**/Cargo.toml Cargo.lock **/build.rs **/.cargo/** rust-toolchain* clippy.toml .clippy.toml rustfmt.toml \
         .config/nextest.toml",
    ),
    (
        "npm npx pnpm yarn bun node jest vitest mocha eslint tsc biome",
        "**/package.json package-lock.json pnpm-lock.yaml pnpm-workspace.yaml yarn.lock bun.lock* .npmrc .yarnrc* \
         **/tsconfig*.json **/jest.config.* **/jest.setup.* **/vitest.config.* **/vitest.setup.* **/vite.config.* \
         **/.mocharc* **/eslint.config.* **/.eslintrc* .eslintignore **/.prettierrc* **/babel.config.* .babelrc* \
         **/playwright.config.* **/cypress.config.* **/karma.conf.* biome.json* turbo.json nx.json",
    ),
    (
        PYTHON,
        "**/pytest.ini pyproject.toml setup.cfg setup.py tox.ini noxfile.py **/conftest.py .coveragerc mypy.ini \
         .mypy.ini .flake8 .pylintrc ruff.toml .ruff.toml **/sitecustomize.py requirements*.txt",
    ),
    (
        "go golangci-lint",
        "go.mod go.sum go.work vendor/modules.txt .golangci.*",
    ),
    ("mvn mvnw", "**/pom.xml .mvn/** mvnw mvnw.cmd"),
    (
        "gradle gradlew",
        "**/build.gradle* **/settings.gradle* gradle.properties gradle/** gradlew gradlew.bat buildSrc/**",
    ),
    (
        "make gmake",
        "**/Makefile **/makefile **/GNUmakefile **/*.mk",
    ),
    (
        "cmake ctest ninja meson",
        "**/CMakeLists.txt **/*.cmake CMakePresets.json **/meson.build",
    ),
    (
        "dotnet",
        "**/*.csproj **/*.fsproj **/*.sln **/*.slnx **/Directory.*.props global.json nuget.config",
    ),
    (
        "mix",
        "mix.exs mix.lock config/** .formatter.exs .credo.exs",
    ),
    (
        "rake rspec bundle rubocop ruby",
        "Rakefile Gemfile Gemfile.lock .rspec **/*.rake .rubocop.yml",
    ),
    (
        "composer phpunit pest",
        "composer.json composer.lock phpunit.xml* phpstan.neon*",
    ),
    ("deno", "deno.json* deno.lock"),
    ("just", "justfile Justfile .justfile"),
];

/// The set of paths that a verdict depends on.
#[derive(Debug, Clone, Default)]
pub(crate) struct VerdictInputs {
    paths: GlobSet,
    /// Files that shadow a Python module are in the set too.
    python: bool,
}

impl VerdictInputs {
    /// The paths for a command line: those of the programs in it, the paths that it names, and the globs in `more`.
    #[must_use]
    pub(crate) fn of(line: &str, more: &[String]) -> Self {
        let words = words(line);
        let runs = |programs: &str| {
            let mut called = words.iter().map(|word| word.rsplit('/').next());
            called.any(|word| programs.split(' ').any(|known| word == Some(known)))
        };
        // A target of `make` or a script can run any program.
        let anything = SETTINGS.iter().all(|(programs, _)| !runs(programs))
            || runs("make just sh bash tox nox rake");
        let read = SETTINGS
            .iter()
            .filter(|(programs, _)| anything || runs(programs));
        let tables = read.map(|(_, paths)| *paths).chain([TESTS]);
        let known = tables.flat_map(str::split_whitespace).map(str::to_owned);
        let named = words.iter().map(|word| word.trim_start_matches("./"));
        let mut globs: Vec<String> = known.chain(named.map(globset::escape)).collect();
        globs.extend(more.iter().cloned());
        Self {
            paths: set(&globs),
            python: anything || runs(PYTHON),
        }
    }

    /// Exactly the paths that match one of these globs.
    pub(crate) fn only(globs: &[&str], more: &[String]) -> Self {
        let globs: Vec<String> = globs
            .iter()
            .map(|glob| (*glob).to_owned())
            .chain(more.iter().cloned())
            .collect();
        Self {
            paths: set(&globs),
            python: false,
        }
    }

    /// Whether the verdict depends on a path.
    #[must_use]
    pub(crate) fn contains(&self, path: &str) -> bool {
        let path = path.trim_start_matches("./");
        self.paths.is_match(path) || (self.python && shadows_module(path))
    }
}

/// Whether a file shadows a Python module: it is at the root or in `src/`, which Python searches first.
fn shadows_module(path: &str) -> bool {
    let path = path.strip_prefix("src/").unwrap_or(path);
    let module = match path.split_once('/') {
        Some((package, _)) => Some(package),
        None => path.strip_suffix(".py"),
    };
    module.is_some_and(|module| PYTHON_MODULES.split_whitespace().any(|one| one == module))
}

/// The words of a command line that can be a program or a path.
fn words(line: &str) -> Vec<&str> {
    let cut = |c: char| c.is_whitespace() || "\"'`;|&()<>=$".contains(c);
    line.split(cut)
        .filter(|word| !word.is_empty() && !word.starts_with('-'))
        .collect()
}

/// Compiles globs. An invalid one is skipped; the code that reads globs from settings reports it to the user.
fn set(globs: &[String]) -> GlobSet {
    let mut builder = GlobSetBuilder::new();
    for glob in globs {
        if let Ok(glob) = GlobBuilder::new(glob).literal_separator(true).build() {
            builder.add(glob);
        }
    }
    builder.build().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, path: &str, expect: bool) {
        assert_eq!(
            VerdictInputs::of(line, &["docs/**".into()]).contains(path),
            expect,
            "{line}: {path}"
        );
    }

    #[test]
    fn verdicts_depend_on_tests_scripts_and_settings_and_not_on_sources() {
        for (line, path, expect) in [
            ("cargo test", "tests/it/main.rs", true),
            ("cargo test", "crates/a/tests/b.rs", true),
            ("cargo test", "crates/a/Cargo.toml", true),
            ("cargo test", "build.rs", true),
            ("cargo test", ".cargo/config.toml", true),
            ("cargo test", "src/lib.rs", false),
            ("cargo test", "package.json", false),
            ("npm test", "package.json", true),
            ("npm test", "src/a.test.ts", true),
            ("npm test", "src/a.ts", false),
            ("npm run lint", "web/eslint.config.mjs", true),
            ("python3 -m pytest -q", "pkg/conftest.py", true),
            ("python3 -m pytest -q", "pyproject.toml", true),
            ("python3 -m pytest -q", "pkg/test_a.py", true),
            ("python3 -m pytest -q", "pkg/a.py", false),
            ("python3 -m unittest", "unittest.py", true),
            ("python3 -m unittest", "src/json/__init__.py", true),
            ("python3 -m unittest", "app/json.py", false),
            ("cargo test", "unittest.py", false),
            ("go test ./...", "a/b_test.go", true),
            ("go test ./...", "a/b.go", false),
            ("sh check.sh", "check.sh", true),
            ("sh ./ci/check.sh --all", "ci/check.sh", true),
            ("sh check.sh", "other.sh", false),
            ("sh check.sh", "package.json", true),
            ("./verify", "verify", true),
            ("make test", "Makefile", true),
            ("make test", "Cargo.toml", true),
            ("cargo test", ".github/workflows/ci.yml", true),
            ("cargo test", "docs/a/b.md", true),
        ] {
            check(line, path, expect);
        }
    }
}
