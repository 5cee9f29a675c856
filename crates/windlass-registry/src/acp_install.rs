//! Installs agents of the ACP registry: npm packages, PyPI packages, or programs that are downloaded, checked against
//! their checksum and unpacked. The start command is stored with the installation, so that a run does not need the
//! registry.

use std::collections::BTreeMap;
use std::fs::File;
use std::future::poll_fn;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_providers::Http;
use windlass_providers::http::Url;
use windlass_runtimes::agents::ANY_ACP;

use crate::acp_registry::{
    AcpEntry, BinaryTarget, InstallSource, PackageTarget, broken, id_of, named_id, platform,
    registry_name,
};
use crate::error::RegistryError;
use crate::install::{InstallNote, InstalledAgents};
use crate::program::AgentProgram;
use crate::unpack::{ArchiveFormat, below, unpack};

/// The major version of Node for npm packages. An entry of the registry does not contain its requirement.
const NODE: u32 = 22;
/// The minor versions of Python 3 for PyPI packages, from and to. pip rejects a version that a package does not support.
const PYTHON: (u32, u32) = (10, 14);
const MAX_PACKAGE_JSON: u64 = 1 << 20;
/// Maximum number of installed agents that are listed.
const MAX_INSTALLED: usize = 1_000;

/// The command that starts an agent of the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryLaunch {
    name: String,
    /// Relative to the directory of the installation.
    program: PathBuf,
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

/// An installed agent of the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryAgent {
    /// The id, as in `acp:ID`.
    pub id: String,
    /// The display name.
    pub name: String,
    pub version: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// The directory of the installation.
    pub folder: PathBuf,
}

impl InstalledAgents<'_> {
    /// An agent of the registry, if its installation is complete.
    #[must_use]
    pub fn registry_agent(&self, id: &str) -> Option<RegistryAgent> {
        let folder = self.dir.join(registry_name(id));
        let InstallNote { version, launch } = InstallNote::read(&folder)?;
        let launch = launch?;
        let program = folder.join(&launch.program);
        program.is_file().then(|| RegistryAgent {
            id: id.to_owned(),
            name: launch.name,
            version,
            program,
            args: launch.args,
            env: launch.env,
            folder,
        })
    }

    /// The name of the settings table, below `runtimes`, for a value of `--runtime`.
    #[must_use]
    pub fn settings_table(&self, runtime: &str) -> String {
        let listed = named_id(runtime).filter(|id| self.registry_agent(id).is_some());
        match (listed, runtime.starts_with("acp:")) {
            (Some(id), _) => registry_name(id),
            (None, true) => ANY_ACP.name.to_owned(),
            (None, false) => runtime.to_owned(),
        }
    }

    /// All installed agents of the registry, sorted by id.
    #[must_use]
    pub fn registry_agents(&self) -> Vec<RegistryAgent> {
        let entries = std::fs::read_dir(self.dir).into_iter().flatten().flatten();
        let mut all: Vec<RegistryAgent> = entries
            .filter_map(|entry| {
                let name = entry.file_name();
                self.registry_agent(id_of(name.to_str()?)?)
            })
            .take(MAX_INSTALLED)
            .collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all
    }

    /// The program of an agent of the registry. Its sandbox shows the whole directory of the installation.
    pub fn find_registry_agent(
        &self,
        agent: &RegistryAgent,
    ) -> Result<AgentProgram, RegistryError> {
        let wanted = agent.program.display().to_string();
        let found = self.search().find(&wanted);
        let mut program = found.map_err(|why| {
            RegistryError::usage(why).hint(format!(
                "install it again with `windlass runtimes install acp:{}`",
                agent.id
            ))
        })?;
        program.show([agent.folder.clone()]);
        Ok(program)
    }

    /// Installs an agent of the registry, unless the same version with the same command is already installed. `say`
    /// receives progress messages.
    pub async fn install_entry(
        &self,
        entry: &AcpEntry,
        http: &Http,
        say: &dyn Fn(&str),
    ) -> Result<PathBuf, RegistryError> {
        let source = entry.source(&platform()).ok_or_else(|| {
            broken(entry, &format!("it has no source for {}", platform()))
                .hint("see the website of the agent for other installation methods")
        })?;
        let (args, env) = match source {
            InstallSource::Binary(BinaryTarget { args, env, .. })
            | InstallSource::Npm(PackageTarget { args, env, .. })
            | InstallSource::PyPi(PackageTarget { args, env, .. }) => (args.clone(), env.clone()),
        };
        let same = |agent: &RegistryAgent| {
            (&agent.version, &agent.args, &agent.env) == (&entry.version, &args, &env)
        };
        if let Some(agent) = self.registry_agent(&entry.id).filter(same) {
            return Ok(agent.program);
        }
        let name = registry_name(&entry.id);
        let ((_lock, folder), program) = match source {
            InstallSource::Npm(target) => {
                let (package, version) = target.npm(entry)?;
                self.node(Some(NODE), say)?;
                let filled = self.npm(&name, &package, &version, say)?;
                let program = npm_program(target, entry, &filled.1, &package)?;
                (filled, Path::new("node_modules/.bin").join(program))
            }
            InstallSource::PyPi(target) => {
                let (package, version) = target.pypi(entry)?;
                let wanted = format!("{package}=={version}");
                let filled = self.pip(&name, &[&wanted], ("", PYTHON), say)?;
                (filled, Path::new("bin").join(target.program(entry)?))
            }
            InstallSource::Binary(target) => self.download(&name, entry, target, http, say).await?,
        };
        let installed = folder.join(&program);
        if !installed.is_file() {
            return Err(broken(
                entry,
                &format!("it does not contain its program `{}`", program.display()),
            ));
        }
        InstallNote {
            version: entry.version.clone(),
            launch: Some(EntryLaunch {
                name: entry.name.clone(),
                program,
                args,
                env,
            }),
        }
        .write(&folder)?;
        Ok(installed)
    }

    /// Downloads a program, checks its checksum and unpacks it.
    async fn download(
        &self,
        name: &str,
        entry: &AcpEntry,
        target: &BinaryTarget,
        http: &Http,
        say: &dyn Fn(&str),
    ) -> Result<((File, PathBuf), PathBuf), RegistryError> {
        let url = Url::parse(&target.archive).ok().filter(is_allowed_url);
        let url =
            url.ok_or_else(|| broken(entry, &format!("`{}` is not an https URL", target.archive)))?;
        let format = ArchiveFormat::of(url.path()).map_err(|why| broken(entry, &why))?;
        let program = match below(Path::new(&target.cmd)) {
            Ok(Some(program)) => program,
            Ok(None) | Err(_) => {
                return Err(broken(
                    entry,
                    &format!("`{}` is not a path in the archive", target.cmd),
                ));
            }
        };
        let (lock, folder) = self.begin(name)?;
        say(&format!(
            "downloading {} {} into {}",
            entry.name,
            entry.version,
            folder.display()
        ));
        let (file, sum) = fetch(http, &url, self.dir).await.map_err(|why| {
            RegistryError::failed(format!("{} could not be downloaded: {why}", target.archive))
                .hint("check the network, or install the agent yourself and use `--runtime acp:COMMAND`")
        })?;
        match &target.sha256 {
            Some(expected) if !expected.eq_ignore_ascii_case(&sum) => {
                return Err(RegistryError::failed(format!(
                    "the checksum of {} is wrong: its SHA-256 is {sum}, and the registry expects {expected}",
                    target.archive
                ))
                .hint("nothing was unpacked; the download may be damaged or manipulated"));
            }
            Some(_) => {}
            None => say(&format!(
                "the registry has no checksum for it; the SHA-256 of the download is {sum}"
            )),
        }
        unpack(file, format, &folder, &program).map_err(|why| {
            RegistryError::failed(format!("{} cannot be unpacked: {why}", target.archive))
        })?;
        let installed = folder.join(&program);
        // Some archives do not contain permissions.
        if let Ok(metadata) = installed.metadata()
            && metadata.permissions().mode() & 0o111 == 0
        {
            std::fs::set_permissions(&installed, PermissionsExt::from_mode(0o755))?;
        }
        Ok(((lock, folder), program))
    }
}

/// Allows https, and http only to this machine.
fn is_allowed_url(url: &Url) -> bool {
    let is_local = matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    url.scheme() == "https" || (url.scheme() == "http" && is_local)
}

/// Downloads into an unnamed file in this directory, and returns its checksum.
async fn fetch(http: &Http, url: &Url, folder: &Path) -> Result<(File, String), String> {
    let mut file = tempfile::tempfile_in(folder).map_err(|err| err.to_string())?;
    let mut response = http.download(url).await.map_err(|err| err.message)?;
    if response.status != 200 {
        return Err(format!(
            "the server answered with status {}",
            response.status
        ));
    }
    let mut sum = Context::new(&SHA256);
    while let Some(piece) = poll_fn(|cx| response.body.poll_piece(cx)).await {
        let piece = piece.map_err(|err| err.message)?;
        sum.update(&piece);
        file.write_all(&piece).map_err(|err| err.to_string())?;
    }
    file.rewind().map_err(|err| err.to_string())?;
    let digits = sum
        .finish()
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok((file, digits))
}

/// The program of an npm package: the one in the entry, else the only program of the package, else the one with the name
/// of the package.
fn npm_program(
    target: &PackageTarget,
    entry: &AcpEntry,
    folder: &Path,
    package: &str,
) -> Result<String, RegistryError> {
    let named = target.program(entry)?;
    if target.cmd.is_some() {
        return Ok(named);
    }
    let file = folder
        .join("node_modules")
        .join(package)
        .join("package.json");
    let mut text = String::new();
    File::open(&file)
        .and_then(|file| file.take(MAX_PACKAGE_JSON).read_to_string(&mut text))
        .map_err(|err| RegistryError::failed(format!("{}: {err}", file.display())))?;
    let metadata: Value = serde_json::from_str(&text).unwrap_or_default();
    let programs: Vec<&String> = metadata["bin"]
        .as_object()
        .into_iter()
        .flat_map(|all| all.keys())
        .collect();
    match programs[..] {
        [only] if !only.contains('/') => Ok(only.clone()),
        _ => Ok(named),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use windlass_providers::HttpOptions;
    use windlass_scripted::{Act, ByteServer, http::whole};

    use super::*;
    use crate::acp_registry::AcpRegistry;

    /// A registry with one agent, whose archive is at this URL.
    fn registry(url: &str, file: &str, more: &str) -> AcpRegistry {
        let text = format!(
            r#"{{"agents":[{{"id":"my-agent","name":"My Agent","version":"1.2.3","distribution":{{"binary":{{"{}":
            {{"archive":"{url}/{file}","cmd":"./bin/agent","args":["acp"],"env":{{"A":"b"}}{more}}}}}}}}}]}}"#,
            platform()
        );
        AcpRegistry::read(&text).unwrap()
    }

    impl AcpRegistry {
        fn set_command(&mut self, command: &str) {
            let targets = self.agents[0].distribution.binary.values_mut();
            targets.for_each(|target| target.cmd = command.to_owned());
        }
    }

    async fn install(dir: &Path, registry: &AcpRegistry) -> Result<PathBuf, RegistryError> {
        let http = Http::new(&HttpOptions::default()).unwrap();
        let installed = InstalledAgents { dir };
        installed
            .install_entry(registry.find("my-agent").unwrap(), &http, &|_| ())
            .await
    }

    fn digest(bytes: &[u8]) -> String {
        let sum = ring::digest::digest(&SHA256, bytes);
        sum.as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    #[tokio::test]
    async fn a_program_is_downloaded_checked_and_found() {
        let program: &[u8] = b"#!/bin/sh\n";
        let server =
            ByteServer::start(move |_, _| vec![Act::Say(whole(200, "", program))]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let sum = format!(r#","sha256":"{}""#, digest(program));
        let listed = registry(&server.url, "agent-linux", &sum);
        let file = install(dir.path(), &listed).await.unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), program);
        let installed = InstalledAgents { dir: dir.path() };
        let agent = installed.registry_agent("my-agent").unwrap();
        assert_eq!(
            (
                agent.version.as_str(),
                &agent.args[..],
                agent.env["A"].as_str()
            ),
            ("1.2.3", &["acp".to_owned()][..], "b")
        );
        let tables = ["acp:my-agent", "acp:other", "acp:my-agent --acp", "goose"];
        assert_eq!(
            tables.map(|name| installed.settings_table(name)),
            ["acp-my-agent", "acp", "acp", "goose"]
        );
        assert_eq!(installed.registry_agents(), std::slice::from_ref(&agent));
        let found = installed.find_registry_agent(&agent).unwrap();
        assert!(found.visible_paths.contains(&agent.folder), "{found:?}");
        // An installed agent stays as it is.
        install(dir.path(), &listed).await.unwrap();
        assert_eq!(server.requests().len(), 1);
        assert!(installed.remove("acp-my-agent").unwrap());
        assert_eq!(installed.registry_agent("my-agent"), None);
    }

    #[tokio::test]
    async fn a_download_with_a_wrong_checksum_is_not_unpacked() {
        let server = ByteServer::start(|_, _| vec![Act::Say(whole(200, "", "another"))]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let sum = format!(r#","sha256":"{}""#, digest(b"the program"));
        let listed = registry(&server.url, "agent-linux", &sum);
        let err = install(dir.path(), &listed).await.unwrap_err().text();
        assert!(err.contains("checksum"), "{err}");
        assert!(!dir.path().join("acp-my-agent/bin").exists());
        assert_eq!(
            InstalledAgents { dir: dir.path() }.registry_agent("my-agent"),
            None
        );
    }

    #[tokio::test]
    async fn failed_downloads_and_invalid_entries_are_errors() {
        let server = ByteServer::start(|_, _| vec![Act::Say(whole(404, "", ""))]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let why = async |url: &str, file: &str, more: &str| {
            let listed = registry(url, file, more);
            install(dir.path(), &listed).await.unwrap_err().text()
        };
        let missing = why(&server.url, "agent", "").await;
        assert!(missing.contains("status 404"), "{missing}");
        let plain = why("http://example.invalid", "agent", "").await;
        assert!(plain.contains("not an https URL"), "{plain}");
        let mut listed = registry(&server.url, "agent", "");
        listed.set_command("../agent");
        let outside = install(dir.path(), &listed).await.unwrap_err().text();
        assert!(outside.contains("not a path in the archive"), "{outside}");
        let installer = why(&server.url, "agent.deb", "").await;
        assert!(installer.contains("is an installer"), "{installer}");
    }

    #[test]
    fn the_program_of_an_npm_package_is_the_only_one_or_that_of_its_name() {
        let check = |package_json: &str, cmd: &str, expect: &str| {
            let text = format!(
                r#"{{"agents":[{{"id":"a","name":"a","version":"1","distribution":{{"npx":{{"package":"@s/agent@1"{cmd}}}}}}}]}}"#
            );
            let registry = AcpRegistry::read(&text).unwrap();
            let entry = registry.find("a").unwrap();
            let Some(InstallSource::Npm(target)) = entry.source("any") else {
                panic!()
            };
            let folder = tempfile::tempdir().unwrap();
            let package = folder.path().join("node_modules/@s/agent");
            std::fs::create_dir_all(&package).unwrap();
            std::fs::write(package.join("package.json"), package_json).unwrap();
            let program = npm_program(target, entry, folder.path(), "@s/agent").unwrap();
            assert_eq!(program, expect, "{package_json}");
        };
        check(r#"{"bin":"cli.js"}"#, "", "agent");
        check(r#"{"bin":{"other":"cli.js"}}"#, "", "other");
        check(r#"{"bin":{"other":"a.js","agent":"b.js"}}"#, "", "agent");
        check(r#"{"bin":{"other":"a.js"}}"#, r#","cmd":"third""#, "third");
    }
}
