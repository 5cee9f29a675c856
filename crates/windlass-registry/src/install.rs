//! Agents installed for us alone, in the version that was certified: npm packages or a Python environment below our own
//! data, so that nothing of the person's is changed. What is there is used before what is in `PATH`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use windlass_runtimes::agents::AgentSpec;
use windlass_runtimes::install::{Install, for_this_platform};

use crate::acp_install::EntryLaunch;
use crate::error::RegistryError;
use crate::program::{Program, Search};
use crate::python;
use crate::said::{ended_within, said};

/// The note of a whole install; without it, what is there is a part of one.
const NOTE: &str = "windlass-install.json";
/// The Node that scripts get where the machine's is older than they want.
const NODE: (&str, &str) = ("node", "22.23.3");

/// The note of a whole install: what is here, and how an agent of the ACP registry is started.
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

/// Agents that were installed for us.
pub struct Installed<'a> {
    /// Below which each has a folder of its name.
    pub dir: &'a Path,
}

impl Installed<'_> {
    /// The program of an agent, where all of it is there.
    pub fn program(&self, known: &AgentSpec) -> Option<PathBuf> {
        let folder = self.dir.join(known.name);
        let program = folder.join(known.install.program()?);
        (self.version(known.name).is_some() && program.is_file()).then_some(program)
    }

    /// The version of what is installed under this name.
    pub fn version(&self, name: &str) -> Option<String> {
        Some(InstallNote::read(&self.dir.join(name))?.version)
    }

    /// Where programs are looked for, with the Node of ours before others.
    pub fn search(&self) -> Search {
        let node = self.dir.join(NODE.0).join("node_modules/.bin");
        let own = self.version(NODE.0).map(|_| node).into_iter().collect();
        Search {
            own,
            ..Search::of_environment()
        }
    }

    /// The program of an agent: as it was named, else as we installed it, else as it is in `PATH`.
    pub fn find(&self, known: &AgentSpec, named: Option<&str>) -> Result<Program, RegistryError> {
        let own = self.program(known).filter(|_| named.is_none());
        let own = own.map(|program| program.display().to_string());
        let wanted = named.or(own.as_deref()).or(known.program).ok_or_else(|| {
            RegistryError::usage("acp: names no command").hint(
                "name the agent's program and its words, as in `--runtime \"acp:my-agent --acp\"`",
            )
        })?;
        self.search().find(wanted).map_err(|why| {
            let failure = RegistryError::usage(why);
            match known.program {
                Some(_) => failure.hint(format!(
                    "install it (`windlass runtimes install {0}`), or set `runtimes.{0}.command` to its path",
                    known.name
                )),
                None => failure.hint("name a program that is in PATH, or its path"),
            }
        })
    }

    /// Installs an agent; what is there in this version stays. Says what it does as it goes.
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
                        .hint("there is nothing to install"),
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
                "`{}` was installed, and its program is not where it should be",
                known.name
            ))
            .hint(format!(
                "remove {} and try again",
                self.dir.join(known.name).display()
            ))
        })
    }

    /// Removes what was installed; whether there was something.
    pub fn remove(&self, name: &str) -> Result<bool, RegistryError> {
        let folder = self.dir.join(name);
        if !folder.exists() {
            return Ok(false);
        }
        let _lock = self.lock(name)?;
        cleared(&folder)?;
        Ok(true)
    }

    /// A Node that is new enough: the machine's, or one of ours.
    pub(crate) fn node(
        &self,
        wanted: Option<u32>,
        say: &dyn Fn(&str),
    ) -> Result<(), RegistryError> {
        let Some(wanted) = wanted else { return Ok(()) };
        let enough = |search: &Search| {
            let node = search.find("node").ok()?;
            main_version(&said(&node.file, &["--version"])?).filter(|version| *version >= wanted)
        };
        if enough(&self.search()).is_some() {
            return Ok(());
        }
        let (_lock, folder) = self.npm(NODE.0, NODE.0, NODE.1, say)?;
        InstallNote::of(NODE.1).write(&folder)
    }

    /// Fills the folder of an agent with a package of npm; the install is whole with its note.
    pub(crate) fn npm(
        &self,
        name: &str,
        package: &str,
        version: &str,
        say: &dyn Fn(&str),
    ) -> Result<(File, PathBuf), RegistryError> {
        let search = self.search();
        let npm = search.find("npm").map_err(|_| {
            RegistryError::failed("npm is needed to install this agent, and was not found".to_owned()).hint(
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
        // What is found beside the folder that it runs in is nobody's program.
        let before = search
            .own
            .iter()
            .chain(&search.folders)
            .filter(|folder| folder.is_absolute());
        if let Ok(path) = std::env::join_paths(before) {
            command.env("PATH", path);
        }
        ran(
            command,
            &folder,
            &format!("npm could not install {package}@{version}"),
        )?;
        Ok((lock, folder))
    }

    /// Fills the folder of an agent with packages of PyPI; the install is whole with its note.
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
        ran(
            command,
            &folder,
            "the Python environment could not be made (is Python's venv module installed?)",
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
        ran(
            command,
            &folder,
            &format!("pip could not install {}", packages.join(" ")),
        )?;
        Ok((lock, folder))
    }

    /// An empty folder for an agent, which nobody else fills meanwhile.
    pub(crate) fn begin(&self, name: &str) -> Result<(File, PathBuf), RegistryError> {
        let folder = self.dir.join(name);
        std::fs::create_dir_all(self.dir).map_err(at(self.dir))?;
        let lock = self.lock(name)?;
        cleared(&folder)?;
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
            Err(_) => Err(RegistryError::failed(format!(
                "`{name}` is being installed by another process"
            ))
            .hint("wait until that is done, and try again")),
        }
    }
}

/// Runs a line of the shell that installs something, within this time. The error is the last line that it printed.
pub fn run_line(line: &str, time: Duration) -> Result<(), String> {
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
        .env("PIP_RETRIES", "1")
        .env("PIP_DEFAULT_TIMEOUT", "15")
        .env("PIP_NO_INPUT", "1");
    let mut child = command.spawn().map_err(|err| err.to_string())?;
    match ended_within(&mut child, time).map_err(|err| err.to_string())? {
        Some(status) if status.success() => Ok(()),
        Some(_) => {
            let mut said = String::new();
            if let Some(mut err) = child.stderr.take() {
                let _ = std::io::Read::read_to_string(&mut err, &mut said);
            }
            let last = said.trim().lines().next_back();
            Err(last.unwrap_or("it failed").to_owned())
        }
        None => Err(format!("it took longer than {} seconds", time.as_secs())),
    }
}

/// Removes a folder; first its note, so that what a broken removal leaves is not taken for an install.
fn cleared(folder: &Path) -> Result<(), RegistryError> {
    let _ = std::fs::remove_file(folder.join(NOTE));
    match std::fs::remove_dir_all(folder) {
        Err(err) if err.kind() != std::io::ErrorKind::NotFound => Err(RegistryError::failed(
            format!("{} cannot be removed: {err}", folder.display()),
        )),
        _ => Ok(()),
    }
}

/// Runs a tool in the folder that it fills: where a person stands may be anybody's, and tools read settings and modules
/// from there.
fn ran(mut command: Command, folder: &Path, otherwise: &str) -> Result<(), RegistryError> {
    command.current_dir(folder);
    // What it says is for the person; standard output is ours.
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(RegistryError::failed(format!("{otherwise} (see above)"))),
        Err(err) => Err(RegistryError::failed(format!("{otherwise}: {err}"))),
    }
}

/// The error of an operation on this path.
fn at(path: &Path) -> impl Fn(std::io::Error) -> RegistryError {
    move |err| RegistryError::failed(format!("{}: {err}", path.display()))
}

fn main_version(said: &str) -> Option<u32> {
    said.trim()
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
    fn only_a_whole_install_counts() {
        let dir = tempfile::tempdir().unwrap();
        let installed = Installed { dir: dir.path() };
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
    fn nobody_installs_the_same_twice_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let installed = Installed { dir: dir.path() };
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
    fn tools_run_in_the_folder_that_they_fill_and_not_where_the_person_stands() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("here"), "").unwrap();
        let test = |name: &str| {
            let mut command = Command::new("test");
            command.args(["-f", name]);
            ran(command, dir.path(), "it is not there").is_ok()
        };
        assert!(test("here"));
        assert!(!test("Cargo.toml"));
    }

    #[test]
    fn the_main_version_of_node_is_read() {
        assert_eq!(main_version("v22.23.3\n"), Some(22));
        assert_eq!(main_version("v8.0.0"), Some(8));
        assert_eq!(main_version("no node"), None);
    }
}
