//! Installs agents in their certified versions, as npm packages or Python environments in the data directory of Windlass.
//! Nothing else on the machine is changed. An installed agent takes precedence over one in `PATH`.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use windlass_runtimes::agents::AgentSpec;
use windlass_runtimes::install::{Install, for_this_platform};

use crate::acp_install::EntryLaunch;
use crate::error::RegistryError;
use crate::program::{AgentProgram, ProgramSearch};
use crate::python;
use crate::short_command::{short_output, wait_timeout};

/// The file that marks a complete installation. Without it, the directory is incomplete.
const NOTE: &str = "windlass-install.json";
/// The npm package and version of Node, for agents that need a newer Node than that of the machine.
const NODE: (&str, &str) = ("node", "22.23.3");

/// The record of a complete installation, with the start command for an agent of the ACP registry.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InstallNote {
    pub(crate) version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) launch: Option<EntryLaunch>,
}

impl InstallNote {
    fn of(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            launch: None,
        }
    }

    pub(crate) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(folder.join(NOTE)).ok()?).ok()
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), RegistryError> {
        let note = folder.join(NOTE);
        let text =
            serde_json::to_vec(self).map_err(|err| RegistryError::failed(err.to_string()))?;
        std::fs::write(&note, text).map_err(at(&note))
    }
}

/// The agents that Windlass installed.
pub struct InstalledAgents<'a> {
    /// The directory with a subdirectory for each agent.
    pub dir: &'a Path,
}

impl InstalledAgents<'_> {
    /// The program of an agent, if its installation is complete.
    pub fn program(&self, known: &AgentSpec) -> Option<PathBuf> {
        let folder = self.dir.join(known.name);
        let program = folder.join(known.install.program()?);
        (self.version(known.name).is_some() && program.is_file()).then_some(program)
    }

    /// The installed version of the agent with this name.
    pub fn version(&self, name: &str) -> Option<String> {
        Some(InstallNote::read(&self.dir.join(name))?.version)
    }

    /// The search for programs, with the Node that Windlass installed before others.
    pub fn search(&self) -> ProgramSearch {
        let node = self.dir.join(NODE.0).join("node_modules/.bin");
        let own = self.version(NODE.0).map(|_| node).into_iter().collect();
        ProgramSearch {
            own,
            ..ProgramSearch::of_environment()
        }
    }

    /// Finds the program of an agent: the one that the user named, else the installed one, else the one in `PATH`.
    pub fn find(
        &self,
        known: &AgentSpec,
        named: Option<&str>,
    ) -> Result<AgentProgram, RegistryError> {
        let own = self.program(known).filter(|_| named.is_none());
        let own = own.map(|program| program.display().to_string());
        let wanted = named.or(own.as_deref()).or(known.program).ok_or_else(|| {
            RegistryError::usage("`acp:` needs a command").hint(
                "add the agent's program and arguments, as in `--runtime \"acp:my-agent --acp\"`",
            )
        })?;
        self.search().find(wanted).map_err(|why| {
            let failure = RegistryError::usage(why);
            match known.program {
                Some(_) => failure.hint(format!(
                    "install it with `windlass runtimes install {0}`, or set `runtimes.{0}.command` to its path",
                    known.name
                )),
                None => failure.hint("use the name of a program in PATH, or a path"),
            }
        })
    }

    /// Installs an agent, unless the same version is already installed. `say` receives progress messages.
    pub fn install(&self, known: &AgentSpec, say: &dyn Fn(&str)) -> Result<PathBuf, RegistryError> {
        let there = self
            .program(known)
            .filter(|_| self.version(known.name).as_deref() == known.install.version());
        if let Some(program) = there {
            return Ok(program);
        }
        match known.install {
            Install::BuiltIn => {
                return Err(
                    RegistryError::usage(format!("`{}` is built in", known.name))
                        .hint("it needs no installation"),
                );
            }
            Install::Npm {
                package,
                version,
                node,
                ..
            } => {
                self.node(node, say)?;
                let (_lock, folder) =
                    self.npm(known.name, &for_this_platform(package), version, say)?;
                InstallNote::of(version).write(&folder)?;
            }
            Install::Pip {
                packages,
                version,
                pins,
                python,
                ..
            } => {
                let (_lock, folder) = self.pip(known.name, packages, (pins, python), say)?;
                InstallNote::of(version).write(&folder)?;
            }
        }
        self.program(known).ok_or_else(|| {
            RegistryError::failed(format!(
                "`{}` was installed, but its program is missing",
                known.name
            ))
            .hint(format!(
                "delete {} and try again",
                self.dir.join(known.name).display()
            ))
        })
    }

    /// Removes an installed agent. Returns `false` if it was not installed.
    pub fn remove(&self, name: &str) -> Result<bool, RegistryError> {
        let folder = self.dir.join(name);
        if !folder.exists() {
            return Ok(false);
        }
        let _lock = self.lock(name)?;
        remove_install(&folder)?;
        Ok(true)
    }

    /// Installs Node, unless the machine has a version that is new enough.
    pub(crate) fn node(
        &self,
        wanted: Option<u32>,
        say: &dyn Fn(&str),
    ) -> Result<(), RegistryError> {
        let Some(wanted) = wanted else { return Ok(()) };
        let enough = |search: &ProgramSearch| {
            let node = search.find("node").ok()?;
            main_version(&short_output(&node.file, &["--version"])?)
                .filter(|version| *version >= wanted)
        };
        if enough(&self.search()).is_some() {
            return Ok(());
        }
        let (_lock, folder) = self.npm(NODE.0, NODE.0, NODE.1, say)?;
        InstallNote::of(NODE.1).write(&folder)
    }

    /// Installs an npm package into the directory of an agent. The caller must write the note while it holds the lock.
    pub(crate) fn npm(
        &self,
        name: &str,
        package: &str,
        version: &str,
        say: &dyn Fn(&str),
    ) -> Result<(File, PathBuf), RegistryError> {
        let search = self.search();
        let npm = search.find("npm").map_err(|_| {
            RegistryError::failed("this agent needs npm, which is not installed".to_owned()).hint(
                "install Node with the system's package manager, for example `apt-get install npm` or `brew install \
                 node`",
            )
        })?;
        let (lock, folder) = self.begin(name)?;
        say(&format!(
            "installing {package} {version} into {}",
            folder.display()
        ));
        let mut command = Command::new(npm.file);
        command
            .args([
                "install",
                "--no-audit",
                "--no-fund",
                "--loglevel=error",
                "--prefix",
            ])
            .arg(&folder);
        command.arg(format!("{package}@{version}"));
        // Relative entries of `PATH` are dropped: they would refer to the directory of the installation.
        let before = search
            .own
            .iter()
            .chain(&search.folders)
            .filter(|folder| folder.is_absolute());
        if let Ok(path) = std::env::join_paths(before) {
            command.env("PATH", path);
        }
        run_tool(
            command,
            &folder,
            &format!("npm could not install {package}@{version}"),
        )?;
        Ok((lock, folder))
    }

    /// Installs PyPI packages into a Python environment for an agent. The caller must write the note while it holds the
    /// lock.
    pub(crate) fn pip(
        &self,
        name: &str,
        packages: &[&str],
        (pins, range): (&str, (u32, u32)),
        say: &dyn Fn(&str),
    ) -> Result<(File, PathBuf), RegistryError> {
        let python = python::find(range).map_err(|why| {
            RegistryError::failed(format!("`{name}` cannot be installed: {why}")).hint(format!(
                "install Python 3.{} with the system's package manager, pyenv or uv, and try again",
                range.1
            ))
        })?;
        let (lock, folder) = self.begin(name)?;
        say(&format!(
            "installing {} into {}",
            packages.join(" "),
            folder.display()
        ));
        let mut command = Command::new(python);
        command.args(["-I", "-m", "venv"]).arg(&folder);
        run_tool(
            command,
            &folder,
            "the Python environment could not be created (is Python's venv module installed?)",
        )?;
        let constraints = folder.join("constraints.txt");
        std::fs::write(&constraints, pins).map_err(at(&constraints))?;
        let mut command = Command::new(folder.join("bin/python"));
        command.args([
            "-I",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
            "--constraint",
        ]);
        command.arg(constraints).args(packages);
        run_tool(
            command,
            &folder,
            &format!("pip could not install {}", packages.join(" ")),
        )?;
        Ok((lock, folder))
    }

    /// Locks the installation of an agent and makes its directory empty.
    pub(crate) fn begin(&self, name: &str) -> Result<(File, PathBuf), RegistryError> {
        let folder = self.dir.join(name);
        std::fs::create_dir_all(self.dir).map_err(at(self.dir))?;
        let lock = self.lock(name)?;
        remove_install(&folder)?;
        std::fs::create_dir(&folder).map_err(at(&folder))?;
        Ok((lock, folder))
    }

    fn lock(&self, name: &str) -> Result<File, RegistryError> {
        let path = self.dir.join(format!("{name}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        let file = file.map_err(at(&path))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(_) => Err(
                RegistryError::failed(format!("another process is installing `{name}`"))
                    .hint("wait until it is done, and try again"),
            ),
        }
    }
}

/// Runs a shell command that installs a tool, with a timeout. The error is the last line on its standard error.
pub fn run_line(line: &str, time: Duration) -> Result<(), String> {
    // A pipe could fill up and block the command until the timeout, so standard error goes to a file.
    let mut stderr = tempfile::tempfile().map_err(|err| err.to_string())?;
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr.try_clone().map_err(|err| err.to_string())?);
    command
        .env("PIP_RETRIES", "1")
        .env("PIP_DEFAULT_TIMEOUT", "15")
        .env("PIP_NO_INPUT", "1");
    let mut child = command.spawn().map_err(|err| err.to_string())?;
    match wait_timeout(&mut child, time).map_err(|err| err.to_string())? {
        Some(status) if status.success() => Ok(()),
        Some(_) => {
            let mut output = Vec::new();
            let _ = stderr
                .rewind()
                .and_then(|()| stderr.read_to_end(&mut output));
            let output = String::from_utf8_lossy(&output);
            let last = output.trim().lines().next_back();
            Err(last.unwrap_or("it failed").to_owned())
        }
        None => Err(format!("it took longer than {} seconds", time.as_secs())),
    }
}

/// Removes an installation. The note goes first, so that an interrupted removal does not look like a complete
/// installation.
fn remove_install(folder: &Path) -> Result<(), RegistryError> {
    let _ = std::fs::remove_file(folder.join(NOTE));
    match std::fs::remove_dir_all(folder) {
        Err(err) if err.kind() != std::io::ErrorKind::NotFound => Err(RegistryError::failed(
            format!("{} cannot be removed: {err}", folder.display()),
        )),
        _ => Ok(()),
    }
}

/// Runs an installer in its target directory. The user's current directory may be untrusted, and installers read settings
/// and modules from the current directory.
fn run_tool(mut command: Command, folder: &Path, otherwise: &str) -> Result<(), RegistryError> {
    command.current_dir(folder);
    // Standard output is reserved for the output of Windlass.
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(RegistryError::failed(format!("{otherwise} (see above)"))),
        Err(err) => Err(RegistryError::failed(format!("{otherwise}: {err}"))),
    }
}

/// Converts the error of an operation on this path.
fn at(path: &Path) -> impl Fn(std::io::Error) -> RegistryError {
    move |err| RegistryError::failed(format!("{}: {err}", path.display()))
}

fn main_version(output: &str) -> Option<u32> {
    output
        .trim()
        .trim_start_matches('v')
        .split('.')
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use windlass_runtimes::agents::AGENTS;

    #[test]
    fn an_incomplete_installation_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let installed = InstalledAgents { dir: dir.path() };
        let codex = AGENTS.iter().find(|known| known.name == "codex").unwrap();
        let program = dir
            .path()
            .join("codex")
            .join(codex.install.program().unwrap());
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "").unwrap();
        assert_eq!(installed.program(codex), None);
        InstallNote::of("0.166.0")
            .write(&dir.path().join("codex"))
            .unwrap();
        assert_eq!(installed.program(codex), Some(program));
        assert_eq!(installed.version("codex").as_deref(), Some("0.166.0"));
        assert!(installed.remove("codex").unwrap());
        assert_eq!(
            (installed.program(codex), installed.remove("codex").unwrap()),
            (None, false)
        );
    }

    #[test]
    fn two_processes_cannot_install_the_same_agent() {
        let dir = tempfile::tempdir().unwrap();
        let installed = InstalledAgents { dir: dir.path() };
        let first = installed.begin("codex").unwrap();
        assert!(
            installed
                .begin("codex")
                .is_err_and(|failure| failure.message().contains("another process"))
        );
        drop(first);
        assert!(installed.begin("codex").is_ok());
    }

    #[test]
    fn installers_run_in_the_target_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("here"), "").unwrap();
        let test = |name: &str| {
            let mut command = Command::new("test");
            command.args(["-f", name]);
            run_tool(command, dir.path(), "it is missing").is_ok()
        };
        assert!(test("here"));
        assert!(!test("Cargo.toml"));
    }

    #[test]
    fn a_command_with_much_output_on_standard_error_does_not_block() {
        let line = "head -c 300000 /dev/zero >&2; echo >&2; echo last >&2; exit 1";
        let failed = run_line(line, Duration::from_secs(20));
        assert_eq!(failed, Err("last".to_owned()));
        assert_eq!(run_line("true", Duration::from_secs(20)), Ok(()));
    }

    #[test]
    fn the_main_version_of_node_is_read() {
        assert_eq!(main_version("v22.23.3\n"), Some(22));
        assert_eq!(main_version("v8.0.0"), Some(8));
        assert_eq!(main_version("no node"), None);
    }
}
