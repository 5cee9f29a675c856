//! The registry of ACP agents: which agents there are, in which version, and how each comes onto a machine. Reads the
//! format of the public registry (`registry.json`); a copy of it is part of the program, and a user can name another file.
//! Installs nothing.

use std::collections::BTreeMap;

use serde::Deserialize;
use windlass_host::config::nearest;
use windlass_runtimes::agents::{AGENTS, AgentSpec};
use windlass_runtimes::install::Install;

use crate::error::RegistryError;

/// The copy of the public registry that is part of the program: the facts that an install needs, for Linux.
const SHIPPED: &str = include_str!("acp-registry.json");
/// The largest file that is read.
pub const MAX_BYTES: u64 = 4 << 20;
const MAX_AGENTS: usize = 2_000;
/// The longest id: it is the name of a folder, too.
const MAX_ID: usize = 40;
const MAX_TEXT: usize = 4_096;
/// The beginning of the folder, the home and the settings of such an agent.
const PREFIX: &str = "acp-";

/// All agents of a registry.
#[derive(Debug, Clone, Deserialize)]
pub struct AcpRegistry {
    /// In the order of the file.
    pub agents: Vec<AcpEntry>,
}

/// One agent of the registry. Fields that an install does not need are not read.
#[derive(Debug, Clone, Deserialize)]
pub struct AcpEntry {
    /// The id, as in `acp:ID`.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The version that is installed.
    pub version: String,
    pub(crate) distribution: Distribution,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Distribution {
    #[serde(default)]
    pub(crate) binary: BTreeMap<String, BinaryTarget>,
    npx: Option<PackageTarget>,
    uvx: Option<PackageTarget>,
}

/// A program that is downloaded.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct BinaryTarget {
    /// The address of an archive, or of the program itself.
    pub(crate) archive: String,
    /// Where the program is in the archive.
    pub(crate) cmd: String,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// In hexadecimal digits.
    pub(crate) sha256: Option<String>,
}

/// A program of a package.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PackageTarget {
    /// The package with its version.
    pub(crate) package: String,
    /// The program, where it is not called as the package.
    pub(crate) cmd: Option<String>,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
}

/// The way an agent is installed on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    Binary(&'a BinaryTarget),
    Npm(&'a PackageTarget),
    PyPi(&'a PackageTarget),
}

impl Source<'_> {
    fn word(&self) -> &'static str {
        match self {
            Self::Binary(_) => "binary",
            Self::Npm(_) => "npm",
            Self::PyPi(_) => "PyPI",
        }
    }
}

impl AcpRegistry {
    /// The copy that is part of the program.
    pub fn shipped() -> Result<Self, RegistryError> {
        Self::read(SHIPPED)
    }

    /// A registry in the format of `registry.json`.
    pub fn read(text: &str) -> Result<Self, RegistryError> {
        let registry: Self = serde_json::from_str(text).map_err(|err| {
            RegistryError::usage(format!("this is no registry of ACP agents: {err}")).hint(
                "it is a JSON object with a list `agents`, as `registry.json` of the ACP registry",
            )
        })?;
        if registry.agents.len() > MAX_AGENTS {
            return Err(RegistryError::usage(format!(
                "the registry has {} agents, and at most {MAX_AGENTS} are read",
                registry.agents.len()
            )));
        }
        for agent in &registry.agents {
            check_id(&agent.id)?;
            check_version(&agent.id, &agent.version)?;
        }
        Ok(registry)
    }

    /// The agent of this id.
    pub fn find(&self, id: &str) -> Result<&AcpEntry, RegistryError> {
        let found = self.agents.iter().find(|agent| agent.id == id);
        found.ok_or_else(|| {
            let failure = RegistryError::usage(format!("the ACP registry has no agent `{id}`"));
            match nearest(id, self.agents.iter().map(|agent| agent.id.as_str())) {
                Some(near) => failure.hint(format!("did you mean `acp:{near}`?")),
                None => failure.hint(
                    "`windlass runtimes --registry` lists those that it has; `acp_registry` in the settings names \
                     another file",
                ),
            }
        })
    }
}

impl AcpEntry {
    /// The way it is installed: `binary`, `npm` or `PyPI`; `None` if the registry has nothing for this machine.
    #[must_use]
    pub fn source_word(&self) -> Option<&'static str> {
        self.source(&platform()).map(|source| source.word())
    }

    /// A program that needs nothing else comes before a package.
    pub(crate) fn source(&self, platform: &str) -> Option<Source<'_>> {
        let Distribution { binary, npx, uvx } = &self.distribution;
        let binary = binary.get(platform).map(Source::Binary);
        let npm = npx.as_ref().map(Source::Npm);
        binary.or(npm).or(uvx.as_ref().map(Source::PyPi))
    }

    /// The built-in row for the same agent, which says more of it than the registry can.
    #[must_use]
    pub fn built_in(&self) -> Option<&'static AgentSpec> {
        let package = self.distribution.npx.as_ref();
        let package = package.map(|target| split_version(&target.package).0);
        let same = |spec: &&AgentSpec| match spec.install {
            Install::Npm { package: known, .. } => package == Some(known) || spec.name == self.id,
            _ => spec.name == self.id,
        };
        AGENTS.iter().find(same)
    }
}

impl PackageTarget {
    /// The package of npm and its version.
    pub(crate) fn npm(&self, entry: &AcpEntry) -> Result<(String, String), RegistryError> {
        let (name, version) = split_version(&self.package);
        let plain = name.strip_prefix('@').map_or_else(
            || is_package(name),
            |scoped| {
                let parts = scoped.split_once('/');
                parts.is_some_and(|(scope, name)| is_package(scope) && is_package(name))
            },
        );
        self.pinned(entry, plain, name, version)
    }

    /// The package of PyPI, with what it is to bring along, and its version.
    pub(crate) fn pypi(&self, entry: &AcpEntry) -> Result<(String, String), RegistryError> {
        let (name, version) = match self.package.split_once("==") {
            Some((name, version)) => (name, Some(version)),
            None => split_version(&self.package),
        };
        let (bare, extras) = split_extras(name);
        let plain = is_package(bare) && extras.is_none_or(|all| all.split(',').all(is_package));
        self.pinned(entry, plain, name, version)
    }

    fn pinned(
        &self,
        entry: &AcpEntry,
        plain: bool,
        name: &str,
        version: Option<&str>,
    ) -> Result<(String, String), RegistryError> {
        if !plain {
            return Err(broken(entry, &format!("`{}` is no package", self.package)));
        }
        let version = version.unwrap_or(&entry.version);
        check_version(&entry.id, version)?;
        Ok((name.to_owned(), version.to_owned()))
    }

    /// The name of the program: as the entry says, else that of the package.
    pub(crate) fn program(&self, entry: &AcpEntry) -> Result<String, RegistryError> {
        let package = match self.package.split_once("==") {
            Some((name, _)) => name,
            None => split_version(&self.package).0,
        };
        let bare = split_extras(package).0;
        let own = bare.rsplit_once('/').map_or(bare, |(_, name)| name);
        let program = self.cmd.as_deref().unwrap_or(own);
        match is_package(program) {
            true => Ok(program.to_owned()),
            false => Err(broken(entry, &format!("`{program}` is no program of it"))),
        }
    }
}

/// An entry that cannot be used.
pub(crate) fn broken(entry: &AcpEntry, why: &str) -> RegistryError {
    RegistryError::usage(format!(
        "the entry `{}` of the ACP registry cannot be installed: {why}",
        entry.id
    ))
}

/// The name of the folder, of the home and of the settings (`runtimes.acp-ID`) of an agent of the registry.
#[must_use]
pub fn registry_name(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// The id behind such a name.
pub(crate) fn id_of(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX).filter(|id| is_id(id))
}

/// The id of `acp:ID`, where it can be one.
#[must_use]
pub fn named_id(runtime: &str) -> Option<&str> {
    runtime.strip_prefix("acp:").filter(|id| is_id(id))
}

/// This machine, in the words of the registry.
pub(crate) fn platform() -> String {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    format!("{system}-{}", std::env::consts::ARCH)
}

fn is_id(id: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    id.len() <= MAX_ID
        && id.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && id.chars().all(plain)
}

fn check_id(id: &str) -> Result<(), RegistryError> {
    match is_id(id) {
        true => Ok(()),
        false => Err(RegistryError::usage(format!(
            "the registry has an agent with the id `{}`, which cannot be one",
            id.escape_debug()
        ))
        .hint("an id is of small letters, digits, `-` and `_`")),
    }
}

/// A version is a fixed one, and a word of a command line.
fn check_version(id: &str, version: &str) -> Result<(), RegistryError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_');
    let fixed = version.starts_with(|c: char| c.is_ascii_digit())
        && version.len() <= 64
        && version.chars().all(plain);
    match fixed {
        true => Ok(()),
        false => Err(RegistryError::usage(format!(
            "the entry `{id}` of the ACP registry names no fixed version: `{}`",
            version.escape_debug()
        ))),
    }
}

/// A package's name and the version behind its last `@`, which is not that of a scope.
fn split_version(package: &str) -> (&str, Option<&str>) {
    match package.rfind('@') {
        Some(at) if at > 0 => (&package[..at], Some(&package[at + 1..])),
        _ => (package, None),
    }
}

fn split_extras(name: &str) -> (&str, Option<&str>) {
    let extras = name.strip_suffix(']').and_then(|rest| rest.split_once('['));
    extras.map_or((name, None), |(name, extras)| (name, Some(extras)))
}

/// Names of packages and programs: nothing that an installer takes for an option, a path or an address.
fn is_package(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    name.len() <= MAX_TEXT
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn entry(distribution: &str) -> AcpEntry {
        let text = format!(
            r#"{{"version":"1.0.0","agents":[{{"id":"my-agent","name":"My Agent","version":"1.2.3",
            "description":"unread","distribution":{distribution}}}]}}"#
        );
        AcpRegistry::read(&text).unwrap().agents.remove(0)
    }

    /// The package that an entry installs on Linux, or the reason why it installs none.
    fn installs(distribution: &str) -> String {
        let entry = entry(distribution);
        let pinned = |target: &PackageTarget, (name, version): (String, String)| {
            let program = target.program(&entry).unwrap_or_else(|err| err.text());
            format!("{name} {version} {program}")
        };
        match entry.source("linux-x86_64") {
            None => "nothing".to_owned(),
            Some(Source::Binary(target)) => target.archive.clone(),
            Some(Source::Npm(target)) => target
                .npm(&entry)
                .map_or_else(|err| err.text(), |named| pinned(target, named)),
            Some(Source::PyPi(target)) => target
                .pypi(&entry)
                .map_or_else(|err| err.text(), |named| pinned(target, named)),
        }
    }

    #[test]
    fn every_shipped_entry_can_be_installed_on_linux() {
        let registry = AcpRegistry::shipped().unwrap();
        assert!(registry.agents.len() > 30);
        for agent in &registry.agents {
            match agent.source("linux-x86_64") {
                None => panic!("{} has nothing for this machine", agent.id),
                Some(Source::Binary(target)) => {
                    assert!(target.archive.starts_with("https://"), "{}", agent.id)
                }
                Some(Source::Npm(target)) => {
                    assert_eq!(target.npm(agent).unwrap().1, agent.version);
                    target.program(agent).unwrap();
                }
                Some(Source::PyPi(target)) => {
                    assert_eq!(target.pypi(agent).unwrap().1, agent.version);
                    target.program(agent).unwrap();
                }
            }
        }
        let built_in = |id: &str| Some(registry.find(id).unwrap().built_in()?.name);
        assert_eq!(built_in("gemini"), Some("gemini-cli"));
        assert_eq!(built_in("claude-acp"), Some("claude-agent-acp"));
        assert_eq!(built_in("goose"), Some("goose"));
        assert_eq!(built_in("cline"), None);
        let near = registry.find("clime").unwrap_err().text();
        assert!(near.contains("did you mean `acp:cline`?"), "{near}");
    }

    #[test]
    fn a_package_has_a_name_a_fixed_version_and_a_program() {
        let check = |distribution: &str, expect: &str| {
            let is = installs(distribution);
            assert!(is.starts_with(expect), "{distribution}: {is}");
        };
        check(r#"{"npx":{"package":"a@2.0.0"}}"#, "a 2.0.0 a");
        check(r#"{"npx":{"package":"@s/a@2.0.0"}}"#, "@s/a 2.0.0 a");
        check(r#"{"npx":{"package":"@s/a","cmd":"b"}}"#, "@s/a 1.2.3 b");
        check(r#"{"uvx":{"package":"a==2.0"}}"#, "a 2.0 a");
        check(r#"{"uvx":{"package":"a[x,y]@2.0"}}"#, "a[x,y] 2.0 a");
        check(r#"{"npx":{"package":"a"},"uvx":{"package":"b"}}"#, "a ");
        check(
            r#"{"npx":{"package":"a"},"binary":{"linux-x86_64":{"archive":"https://x/a.zip","cmd":"a"}}}"#,
            "https://x/a.zip",
        );
        check(
            r#"{"binary":{"windows-x86_64":{"archive":"x","cmd":"a"}}}"#,
            "nothing",
        );
        check(r#"{"another":{}}"#, "nothing");
        for package in [
            "--prefix",
            "git+https://x/y",
            "../x",
            "a b",
            "",
            "@s",
            "a;b",
            "@a/b/c",
        ] {
            for kind in ["npx", "uvx"] {
                let text = installs(&format!(r#"{{"{kind}":{{"package":"{package}"}}}}"#));
                assert!(text.contains("no package"), "{package}: {text}");
            }
        }
        check(
            r#"{"npx":{"package":"a@latest"}}"#,
            "the entry `my-agent` of the ACP registry names no fixed version",
        );
        let program = installs(r#"{"npx":{"package":"a@1.0.0","cmd":"../x"}}"#);
        assert!(program.contains("no program of it"), "{program}");
    }

    #[test]
    fn an_id_is_the_name_of_a_folder() {
        for id in ["cline", "a-1", "3x_y"] {
            assert!(is_id(id), "{id}");
            assert_eq!(named_id(&format!("acp:{id}")), Some(id));
            assert_eq!(id_of(&registry_name(id)), Some(id));
        }
        for id in ["", "..", "-x", "A", "a/b", "a b", "ä", &"x".repeat(41)] {
            assert_eq!(named_id(&format!("acp:{id}")), None, "{id}");
            let text = format!(
                r#"{{"agents":[{{"id":"{id}","name":"n","version":"1","distribution":{{}}}}]}}"#
            );
            assert!(AcpRegistry::read(&text).is_err(), "{id}");
        }
    }
}
