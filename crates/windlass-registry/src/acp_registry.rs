//! Reads the ACP registry: a list of agents with their versions and installation sources, in the format of the public
//! `registry.json`. A copy of the public registry is part of the program; the user can name another file.

use std::collections::BTreeMap;

use serde::Deserialize;
use windlass_host::config::nearest;
use windlass_runtimes::agents::{AGENTS, AgentSpec};
use windlass_runtimes::install::Install;

use crate::error::RegistryError;

/// The copy of the public registry, reduced to the installation on Linux.
const SHIPPED: &str = include_str!("acp-registry.json");
/// Maximum size of a registry file in bytes.
pub const MAX_BYTES: u64 = 4 << 20;
const MAX_AGENTS: usize = 2_000;
/// Maximum length of an id, which is also the name of a directory.
const MAX_ID: usize = 40;
const MAX_TEXT: usize = 4_096;
/// The prefix for the directory, the home directory and the settings of an agent from the registry.
const PREFIX: &str = "acp-";

/// A list of ACP agents.
#[derive(Debug, Clone, Deserialize)]
pub struct AcpRegistry {
    /// In the order of the file.
    pub agents: Vec<AcpEntry>,
}

/// One agent of the registry. Fields that the installation does not need are ignored.
#[derive(Debug, Clone, Deserialize)]
pub struct AcpEntry {
    /// The id, as in `acp:ID`.
    pub id: String,
    /// The display name.
    pub name: String,
    /// The version that would be installed.
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

/// A program to download.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct BinaryTarget {
    /// The URL of an archive, or of the program itself.
    pub(crate) archive: String,
    /// The path of the program in the archive.
    pub(crate) cmd: String,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// The checksum in hexadecimal digits.
    pub(crate) sha256: Option<String>,
}

/// A program in an npm or PyPI package.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PackageTarget {
    /// The name and the version of the package.
    pub(crate) package: String,
    /// The name of the program, if it differs from that of the package.
    pub(crate) cmd: Option<String>,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
}

/// The source from which an agent is installed on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InstallSource<'a> {
    Binary(&'a BinaryTarget),
    Npm(&'a PackageTarget),
    PyPi(&'a PackageTarget),
}

impl InstallSource<'_> {
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

    /// Parses a registry in the format of `registry.json`.
    pub fn read(text: &str) -> Result<Self, RegistryError> {
        let registry: Self = serde_json::from_str(text).map_err(|err| {
            RegistryError::usage(format!("this is not a registry of ACP agents: {err}")).hint(
                "it must be a JSON object with a list `agents`, like `registry.json` of the ACP registry",
            )
        })?;
        if registry.agents.len() > MAX_AGENTS {
            return Err(RegistryError::usage(format!(
                "the registry has {} agents, which is more than the limit of {MAX_AGENTS}",
                registry.agents.len()
            )));
        }
        for agent in &registry.agents {
            check_id(&agent.id)?;
            check_version(&agent.id, &agent.version)?;
        }
        Ok(registry)
    }

    /// The agent with this id. For an unknown id, the error suggests a similar one.
    pub fn find(&self, id: &str) -> Result<&AcpEntry, RegistryError> {
        let found = self.agents.iter().find(|agent| agent.id == id);
        found.ok_or_else(|| {
            let failure = RegistryError::usage(format!("the ACP registry has no agent `{id}`"));
            match nearest(id, self.agents.iter().map(|agent| agent.id.as_str())) {
                Some(near) => failure.hint(format!("did you mean `acp:{near}`?")),
                None => failure.hint(
                    "`windlass runtimes --registry` lists its agents; the setting `acp_registry` selects another file",
                ),
            }
        })
    }
}

impl AcpEntry {
    /// The installation source: `binary`, `npm` or `PyPI`; `None` if the registry has no source for this machine.
    #[must_use]
    pub fn source_word(&self) -> Option<&'static str> {
        self.source(&platform()).map(|source| source.word())
    }

    /// The installation source for a platform. A binary is preferred, because it has no dependencies.
    pub(crate) fn source(&self, platform: &str) -> Option<InstallSource<'_>> {
        let Distribution { binary, npx, uvx } = &self.distribution;
        let binary = binary.get(platform).map(InstallSource::Binary);
        let npm = npx.as_ref().map(InstallSource::Npm);
        binary.or(npm).or(uvx.as_ref().map(InstallSource::PyPi))
    }

    /// The same agent in the table of known agents, which has more information than the registry.
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
    /// The name of the npm package, and its version.
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

    /// The name of the PyPI package with its extras, and its version.
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
            return Err(broken(
                entry,
                &format!("`{}` is not a valid package", self.package),
            ));
        }
        let version = version.unwrap_or(&entry.version);
        check_version(&entry.id, version)?;
        Ok((name.to_owned(), version.to_owned()))
    }

    /// The name of the program in the entry, else that of the package.
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
            false => Err(broken(
                entry,
                &format!("`{program}` is not a valid program name"),
            )),
        }
    }
}

/// The error of an entry that cannot be installed.
pub(crate) fn broken(entry: &AcpEntry, why: &str) -> RegistryError {
    RegistryError::usage(format!(
        "the entry `{}` of the ACP registry cannot be installed: {why}",
        entry.id
    ))
}

/// The name of an agent of the registry in paths and in the settings (`runtimes.acp-ID`).
#[must_use]
pub fn registry_name(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// The inverse of [`registry_name`].
pub(crate) fn id_of(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX).filter(|id| is_id(id))
}

/// The id in `acp:ID`; `None` if the text is not a valid id, for example a command with arguments.
#[must_use]
pub fn named_id(runtime: &str) -> Option<&str> {
    runtime.strip_prefix("acp:").filter(|id| is_id(id))
}

/// The platform of this machine, as the registry names it.
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
            "the registry contains the invalid id `{}`",
            id.escape_debug()
        ))
        .hint("an id has lower-case letters, digits, `-` and `_`")),
    }
}

/// Rejects versions that are not fixed, such as `latest`, and versions that are not safe on a command line.
fn check_version(id: &str, version: &str) -> Result<(), RegistryError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_');
    let fixed = version.starts_with(|c: char| c.is_ascii_digit())
        && version.len() <= 64
        && version.chars().all(plain);
    match fixed {
        true => Ok(()),
        false => Err(RegistryError::usage(format!(
            "the entry `{id}` of the ACP registry has no fixed version: `{}`",
            version.escape_debug()
        ))),
    }
}

/// Splits a package at its last `@` into name and version. An `@` at the beginning belongs to an npm scope.
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

/// Whether a name is safe for an installer, which must not take it for an option, a path or a URL.
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

    /// The package that an entry installs on Linux, or the error.
    fn installs(distribution: &str) -> String {
        let entry = entry(distribution);
        let pinned = |target: &PackageTarget, (name, version): (String, String)| {
            let program = target.program(&entry).unwrap_or_else(|err| err.text());
            format!("{name} {version} {program}")
        };
        match entry.source("linux-x86_64") {
            None => "nothing".to_owned(),
            Some(InstallSource::Binary(target)) => target.archive.clone(),
            Some(InstallSource::Npm(target)) => target
                .npm(&entry)
                .map_or_else(|err| err.text(), |named| pinned(target, named)),
            Some(InstallSource::PyPi(target)) => target
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
                None => panic!("{} has no source for this machine", agent.id),
                Some(InstallSource::Binary(target)) => {
                    assert!(target.archive.starts_with("https://"), "{}", agent.id)
                }
                Some(InstallSource::Npm(target)) => {
                    assert_eq!(target.npm(agent).unwrap().1, agent.version);
                    target.program(agent).unwrap();
                }
                Some(InstallSource::PyPi(target)) => {
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
                assert!(text.contains("not a valid package"), "{package}: {text}");
            }
        }
        check(
            r#"{"npx":{"package":"a@latest"}}"#,
            "the entry `my-agent` of the ACP registry has no fixed version",
        );
        let program = installs(r#"{"npx":{"package":"a@1.0.0","cmd":"../x"}}"#);
        assert!(program.contains("not a valid program name"), "{program}");
    }

    #[test]
    fn an_id_is_a_safe_directory_name() {
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
