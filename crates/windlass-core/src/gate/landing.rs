//! Decides what may land in the user's tree (spec 5.1). It applies the safety floor once more, to all changed paths,
//! however they were changed: a call is judged by what it names, a landing by what it changes.

use super::NameTable;
use super::floor::{is_git_folder, is_shell_file};
use super::pattern::glob_match;
use super::secrets::{is_credential, trimmed};
use super::steering::{Steers, steers};

/// An obstacle between a changed path and the user's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bar {
    /// The path never lands.
    Never(String),
    /// The path lands only with a person's approval.
    Person(String),
}

/// The obstacle to landing a changed path, if any. Files that the prompt names need no approval, because the user asked
/// for the change.
#[must_use]
pub fn bar_at_landing(path: &str, is_new: bool, prompt: &str, exposed: &[String]) -> Option<Bar> {
    let lower = path.to_lowercase();
    if is_credential(path) && !exposed.iter().any(|pattern| glob_match(pattern, path)) {
        let why = "it looks like a secret".to_owned();
        return Some(if is_new {
            Bar::Person(why)
        } else {
            Bar::Never(why)
        });
    }
    if lower.split('/').any(is_git_folder) {
        return Some(Bar::Never("it belongs to git".to_owned()));
    }
    let name = trimmed(lower.rsplit('/').next().unwrap_or(&lower));
    if is_shell_file(name) {
        return Some(Bar::Never("it runs in every shell".to_owned()));
    }
    if names(prompt, path) {
        return None;
    }
    steers(path).map(|steers| {
        Bar::Person(match steers {
            Steers::Agents | Steers::Instructions => {
                "it changes what agents may do here".to_owned()
            }
            Steers::Machine => "it is run by tools on this machine".to_owned(),
        })
    })
}

/// Whether a prompt names a path, or its file name if that is distinctive enough.
fn names(prompt: &str, path: &str) -> bool {
    // Only CI pipelines are recognised by their file name alone. Plain words and names such as `settings.json` occur in
    // many prompts by accident.
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let known = parent.ends_with("workflows") && name.contains(|c: char| !c.is_alphabetic());
    let name = if known { name } else { path };
    let part_of_name = |c: char| c.is_alphanumeric() || matches!(c, '/' | '_' | '-');
    // A full stop may end a sentence or continue a longer file name.
    let ends_word = |rest: &str| {
        !rest
            .strip_prefix('.')
            .unwrap_or(rest)
            .starts_with(part_of_name)
    };
    let starts_word = |before: &str| {
        !before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    [path, name]
        .iter()
        .filter(|wanted| !wanted.is_empty())
        .any(|wanted| {
            prompt.match_indices(*wanted).any(|(at, found)| {
                starts_word(&prompt[..at]) && ends_word(&prompt[at + found.len()..])
            })
        })
}

/// Whether other programs on this machine execute the file at a path: build scripts, hooks, editor settings, CI
/// pipelines.
#[must_use]
pub fn executes_later(path: &str) -> bool {
    let lower = path.to_lowercase();
    let name = lower.rsplit('/').next().unwrap_or(&lower);
    steers(path).is_some()
        || BUILD_FILES.contains(name)
        || BUILD_STEMS.iter().any(|stem| {
            name.strip_prefix(stem)
                .is_some_and(|rest| rest.starts_with(['.', '-']))
        })
        || BUILD_ENDINGS.iter().any(|ending| name.ends_with(ending))
        || lower.split('/').rev().skip(1).any(|part| part == "hooks")
}

/// Whether a path may be written. The patterns are those of an ignore file, anchored at the root; the last matching one
/// decides.
#[must_use]
pub fn may_write(patterns: &[String], path: &str) -> bool {
    let mut allowed = false;
    for pattern in patterns {
        let (yes, pattern) = pattern
            .strip_prefix('!')
            .map_or((true, pattern.as_str()), |rest| (false, rest));
        let bare = pattern
            .trim_start_matches("./")
            .trim_start_matches('/')
            .trim_end_matches('/');
        if bare.is_empty()
            || bare == "."
            || glob_match(bare, path)
            || glob_match(&format!("{bare}/**"), path)
        {
            allowed = yes;
        }
    }
    allowed
}

const BUILD_FILES: NameTable = NameTable(
    "build.rs makefile gnumakefile justfile rakefile gemfile package.json binding.gyp setup.py setup.cfg \
     pyproject.toml conftest.py noxfile.py tox.ini fabfile.py tasks.py sitecustomize.py usercustomize.py \
     cmakelists.txt meson.build configure pom.xml gradlew mvnw build.sbt build.xml mix.exs composer.json cargo.toml \
     dockerfile docker-compose.yml compose.yml compose.yaml vagrantfile procfile flake.nix shell.nix default.nix \
     build build.bazel workspace taskfile.yml directory.build.props directory.build.targets .yarnrc .yarnrc.yml \
     .pnpmfile.cjs .tool-versions",
);
const BUILD_STEMS: NameTable = NameTable(
    "gulpfile gruntfile webpack.config vite.config vitest.config jest.config rollup.config babel.config eslint.config \
     .eslintrc next.config postcss.config tailwind.config metro.config karma.conf playwright.config dockerfile",
);
const BUILD_ENDINGS: NameTable =
    NameTable(".mk .gradle .gradle.kts .cmake .csproj .fsproj .vbproj .gemspec .podspec .pth");

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, prompt: &str, expect: &str) {
        let (path, is_new) = path
            .strip_prefix('+')
            .map_or((path, false), |path| (path, true));
        let said = match bar_at_landing(path, is_new, prompt, &["keys/shown.pem".to_owned()]) {
            None => "free",
            Some(Bar::Person(_)) => "person",
            Some(Bar::Never(_)) => "never",
        };
        assert_eq!(said, expect, "{path} for {prompt:?}");
    }

    #[test]
    fn the_floor_also_applies_to_landings() {
        check("src/main.rs", "", "free");
        check("sub/.git/hooks/x", "change .git/hooks/x", "never");
        check(".ENV", "", "never");
        check("+.env", "make .env", "person");
        check("+deep/server.key", "", "person");
        check("keys/shown.pem", "", "free");
        check("home/.bashrc", "edit .bashrc", "never");
        check(".vscode/tasks.json", "", "person");
        check(
            ".vscode/tasks.json",
            "fix .vscode/tasks.json please",
            "free",
        );
        check(".github/workflows/ci.yml", "mend ci.yml, it fails", "free");
        check(".github/workflows/ci.yml", "mend xci.yml", "person");
        check(".github/workflows/ci.yml", "see ci.yml.bak", "person");
        check(".husky/test", "fix the test", "person");
        check(".husky/test", "fix .husky/test", "free");
        check(".husky/pre-commit", "mend the pre-commit hook", "person");
        check(".vscode/settings.json", "change settings.json", "person");
        check("AGENTS.md", "", "person");
        check("deep/.claude/settings.json", "", "person");
    }

    #[test]
    fn files_that_other_programs_run_are_recognised() {
        for path in [
            "build.rs",
            "a/package.json",
            "x.gradle",
            ".husky/pre-commit",
            "vite.config.ts",
            "git/hooks/a",
        ] {
            assert!(executes_later(path), "{path}");
        }
        for path in ["src/lib.rs", "README.md", "hooks.md", "buildings.txt"] {
            assert!(!executes_later(path), "{path}");
        }
    }

    #[test]
    fn write_paths_are_anchored_and_the_last_one_decides() {
        let allows = |patterns: &[&str], path: &str| {
            may_write(
                &patterns
                    .iter()
                    .map(|text| (*text).to_owned())
                    .collect::<Vec<_>>(),
                path,
            )
        };
        assert!(!allows(&[], "a"), "an empty list allows nothing");
        assert!(
            allows(&["src/"], "src/a/b.rs") && allows(&["/src"], "src/a.rs") && allows(&["."], "a")
        );
        assert!(!allows(&["src"], "lib/src/a.rs") && !allows(&["src"], "srcs/a.rs"));
        assert!(
            allows(&["*.md"], "README.md")
                && !allows(&["*.md"], "docs/a.md")
                && allows(&["**/*.md"], "docs/a.md")
        );
        assert!(
            !allows(&["src", "!src/gen/"], "src/gen/a.rs")
                && allows(&["src", "!src/gen/"], "src/a.rs")
        );
        assert!(!allows(&["src/**"], "src/../secret"));
    }
}
