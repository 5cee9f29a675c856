//! Finds the program of an agent, and the paths that it needs in its sandbox: a script needs its interpreter, and a Python
//! environment needs the Python from which it was made. Only files are read; no program is started.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Maximum number of symlinks on the way to a program.
const MAX_LINKS: usize = 16;
/// Maximum number of entries of a directory that are searched.
const MAX_ENTRIES: usize = 50_000;
/// Bytes of a script that are read for its first line.
const FIRST_LINE: u64 = 512;

/// The program of an agent, with the paths that it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentProgram {
    /// The file to start.
    pub file: PathBuf,
    /// Paths of the program and its interpreter, which the sandbox must show.
    pub visible_paths: Vec<PathBuf>,
    /// Directories with its interpreter, which must come first in `PATH`.
    pub path: Vec<PathBuf>,
}

impl AgentProgram {
    /// The Python of the program: that of its virtual environment, else the one in its first line.
    pub fn python(&self) -> Option<PathBuf> {
        if let Some(environment) = environment_of(&self.file) {
            return Some(environment.join("bin/python"));
        }
        let named = interpreter(&self.file)?;
        let python = named
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("python"));
        python.then_some(named)
    }

    pub(crate) fn show(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            if !self.visible_paths.contains(&path) {
                self.visible_paths.push(path);
            }
        }
    }
}

/// The directories in which programs are searched.
#[derive(Debug, Clone, Default)]
pub struct ProgramSearch {
    /// The directories of `PATH`.
    pub folders: Vec<PathBuf>,
    /// Directories of interpreters that Windlass installed, which come before `PATH`.
    pub own: Vec<PathBuf>,
    /// The user's home directory, which the sandbox must not show as a whole.
    pub home: Option<PathBuf>,
}

impl ProgramSearch {
    /// A search with `PATH` and `HOME` of this process.
    pub fn of_environment() -> Self {
        let folders = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect());
        let home = std::env::var_os("HOME").map(PathBuf::from);
        Self {
            folders: folders.unwrap_or_default(),
            own: Vec::new(),
            home,
        }
    }

    /// Finds a program by its path or its name, and the paths that it needs.
    pub fn find(&self, wanted: &str) -> Result<AgentProgram, String> {
        let file = self
            .look_up(wanted)
            .ok_or_else(|| format!("`{wanted}` is not installed"))?;
        let mut program = AgentProgram {
            file: settled(file),
            ..AgentProgram::default()
        };
        self.add(&program.file.clone(), &mut program);
        if let Some(wanted) = interpreter(&program.file) {
            let by_name = wanted.components().count() == 1;
            if !by_name && !wanted.is_absolute() {
                return Err(format!(
                    "the interpreter of `{}` is `{}`, a relative path that depends on the current directory",
                    program.file.display(),
                    wanted.display()
                ));
            }
            // The first line of a script is untrusted: a file that is not executable must not expose its directory.
            let found = self
                .look_up(&wanted.to_string_lossy())
                .filter(|file| runs(file))
                .map(settled);
            let Some(found) = found else {
                return Err(format!(
                    "`{}` needs `{}`, which is not installed",
                    program.file.display(),
                    wanted.display()
                ));
            };
            if by_name {
                program.path.extend(found.parent().map(Path::to_path_buf));
            } else {
                // The kernel opens the path in the script, so that path must be visible as well as its target.
                self.show_folder(parent(&wanted), &wanted, &mut program);
            }
            self.add(&found, &mut program);
        }
        Ok(program)
    }

    fn look_up(&self, wanted: &str) -> Option<PathBuf> {
        let path = Path::new(wanted);
        if path.components().count() > 1 {
            return path
                .is_file()
                .then(|| std::path::absolute(path).ok())
                .flatten();
        }
        let absolute = self
            .own
            .iter()
            .chain(&self.folders)
            .filter(|folder| folder.is_absolute());
        absolute
            .map(|folder| folder.join(wanted))
            .find(|file| file.is_file() && runs(file))
    }

    /// Adds the paths that a file needs: its directory; for an npm package, the whole `node_modules`; for a Python
    /// environment, also its base Python. If the directory is or contains the home directory, only the file is added,
    /// because the other files there are the user's.
    fn add(&self, file: &Path, program: &mut AgentProgram) {
        let parts: Vec<_> = file.components().collect();
        let packages = parts
            .iter()
            .position(|part| part.as_os_str() == "node_modules");
        let folder = match (environment_of(file), packages) {
            (Some(environment), _) => {
                let base = base_python(&environment).into_iter();
                program.show(base.filter(|place| !self.holds_home(place)));
                environment
            }
            (None, Some(at)) => parts[..=at].iter().collect(),
            (None, None) => pyenv_version(file).unwrap_or_else(|| parent(file)),
        };
        self.show_folder(folder, file, program);
    }

    /// Adds a directory, or only the file if the directory is or contains the home directory.
    fn show_folder(&self, folder: PathBuf, file: &Path, program: &mut AgentProgram) {
        let shown = if self.holds_home(&folder) {
            file.to_owned()
        } else {
            folder
        };
        program.show([shown]);
    }

    /// Whether a directory is or contains the home directory.
    fn holds_home(&self, folder: &Path) -> bool {
        let home = self.home.as_ref().and_then(|home| home.canonicalize().ok());
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        home.is_some_and(|home| home.starts_with(&folder))
    }
}

fn parent(file: &Path) -> PathBuf {
    file.parent().map(Path::to_path_buf).unwrap_or_default()
}

fn runs(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Follows symlinks to the file itself, except in a Python environment, where the path of the link identifies the
/// environment. A shim of pyenv is replaced by the program that pyenv would start.
fn settled(file: PathBuf) -> PathBuf {
    let mut file = file;
    for _ in 0..MAX_LINKS {
        let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
            break;
        };
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let at = folder.join(name);
        if let Some(program) = behind_pyenv(&folder, name) {
            file = program;
            continue;
        }
        match std::fs::read_link(&at) {
            Ok(target) if environment_of(&at).is_none() => file = folder.join(target),
            _ => return at,
        }
    }
    file
}

/// The directory of the Python environment of a program.
fn environment_of(file: &Path) -> Option<PathBuf> {
    let environment = file.parent()?.parent()?;
    environment
        .join("pyvenv.cfg")
        .is_file()
        .then(|| environment.to_owned())
}

/// The directories of programs and libraries of the Python from which an environment was made. `pyvenv.cfg` is untrusted,
/// so a directory without Python is not used.
fn base_python(environment: &Path) -> Vec<PathBuf> {
    let config = std::fs::read_to_string(environment.join("pyvenv.cfg")).unwrap_or_default();
    let home = config
        .lines()
        .filter_map(|line| line.split_once('='))
        .find(|(key, _)| key.trim() == "home");
    let Some(bin) = home
        .map(|(_, value)| Path::new(value.trim()))
        .and_then(|bin| bin.canonicalize().ok())
    else {
        return Vec::new();
    };
    if !holds(&bin, "python") {
        return Vec::new();
    }
    let libraries = bin
        .parent()
        .and_then(|base| base.join("lib").canonicalize().ok());
    std::iter::once(bin)
        .chain(libraries.filter(|lib| holds(lib, "python")))
        .collect()
}

/// Whether a directory has an entry whose name begins with `name`.
fn holds(folder: &Path, name: &str) -> bool {
    let begins = |entry: std::fs::DirEntry| {
        entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(name.as_bytes())
    };
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_ENTRIES)
        .any(begins)
}

/// The program behind a shim of pyenv: that of the selected version, else of the newest version that has it.
fn behind_pyenv(folder: &Path, name: &OsStr) -> Option<PathBuf> {
    let root = folder
        .parent()
        .filter(|_| folder.file_name() == Some(OsStr::new("shims")))?;
    let has = |version: &str| {
        Some(root.join("versions").join(version).join("bin").join(name)).filter(|p| p.is_file())
    };
    let selected = std::fs::read_to_string(root.join("version")).unwrap_or_default();
    let chosen = selected.split_whitespace().find_map(has);
    chosen.or_else(|| {
        let all = std::fs::read_dir(root.join("versions")).ok()?.flatten();
        let mut all: Vec<String> = all
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        all.sort_by_key(|version| {
            version
                .split('.')
                .filter_map(|part| part.parse().ok())
                .collect::<Vec<u32>>()
        });
        all.iter().rev().find_map(|version| has(version))
    })
}

/// The directory of the pyenv version to which a program belongs. The program needs its libraries as well.
fn pyenv_version(file: &Path) -> Option<PathBuf> {
    let version = file.parent()?.parent()?;
    let is_one = version.parent()?.ends_with("versions") && holds(&version.join("lib"), "python");
    is_one.then(|| version.to_owned())
}

/// The interpreter in the first line of a script; for `env`, only a name.
fn interpreter(file: &Path) -> Option<PathBuf> {
    let mut first = Vec::new();
    std::fs::File::open(file)
        .ok()?
        .take(FIRST_LINE)
        .read_to_end(&mut first)
        .ok()?;
    let line = first
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace();
    let program = words.next()?;
    if Path::new(program).file_name() != Some(OsStr::new("env")) {
        return Some(PathBuf::from(program));
    }
    words
        .find(|word| !word.starts_with('-') && !word.contains('='))
        .map(PathBuf::from)
}

/// The name of a program, reduced to characters that are safe in the name of a directory.
pub fn plain_name(program: &Path) -> String {
    let name = program
        .file_stem()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let plain: String = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .take(40)
        .collect();
    if plain.is_empty() {
        "agent".to_owned()
    } else {
        plain
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// The file system of a machine in a temporary directory.
    struct FakeMachine {
        _dir: tempfile::TempDir,
        root: PathBuf,
    }

    impl FakeMachine {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap();
            Self { _dir: dir, root }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.root.join(path)
        }

        fn file(&self, path: &str, text: &str) -> PathBuf {
            let file = self.at(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
            file
        }

        fn link(&self, path: &str, target: &str) {
            std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
            symlink(target, self.at(path)).unwrap();
        }

        /// Finds a program with these directories in `PATH`, and compares its file, visible paths and `PATH` entries.
        #[track_caller]
        fn check(&self, wanted: &str, folders: &[&str], expect: (&str, &[&str], &[&str])) {
            let folders = folders.iter().map(|folder| self.at(folder)).collect();
            let search = ProgramSearch {
                folders,
                own: Vec::new(),
                home: Some(self.at("home")),
            };
            let found = search.find(wanted).unwrap();
            let all = |paths: &[&str]| paths.iter().map(|path| self.at(path)).collect::<Vec<_>>();
            let expect = AgentProgram {
                file: self.at(expect.0),
                visible_paths: all(expect.1),
                path: all(expect.2),
            };
            assert_eq!(found, expect);
        }
    }

    #[test]
    fn a_program_needs_its_directory_but_never_a_home() {
        let machine = FakeMachine::new();
        for path in [
            "home/agent",
            "agent",
            "home/agents/one",
            "opt/one/agent",
            "home/.npm/node_modules/a/cli",
        ] {
            machine.file(path, "\u{7f}ELF");
        }
        machine.link("bin/a", "../home/.npm/node_modules/a/cli");
        machine.check("agent", &["home"], ("home/agent", &["home/agent"], &[]));
        machine.check("agent", &["."], ("agent", &["agent"], &[]));
        machine.check(
            "one",
            &["home/agents"],
            ("home/agents/one", &["home/agents"], &[]),
        );
        machine.check(
            "agent",
            &["nowhere", "opt/one"],
            ("opt/one/agent", &["opt/one"], &[]),
        );
        machine.check(
            "a",
            &["bin"],
            (
                "home/.npm/node_modules/a/cli",
                &["home/.npm/node_modules"],
                &[],
            ),
        );
    }

    #[test]
    fn a_script_needs_its_interpreter() {
        let machine = FakeMachine::new();
        machine.file(
            "lib/node_modules/agent/cli.js",
            "#!/usr/bin/env -S node --flag\n",
        );
        machine.link("bin/agent", "../lib/node_modules/agent/cli.js");
        let search = ProgramSearch {
            folders: vec![machine.at("bin")],
            ..ProgramSearch::default()
        };
        assert!(
            search
                .find("agent")
                .unwrap_err()
                .contains("needs `node`, which is not installed")
        );
        machine.file("node/22/bin/node", "\u{7f}ELF");
        machine.link("bin/node", "../node/22/bin/node");
        let visible_paths: &[&str] = &["lib/node_modules", "node/22/bin"];
        machine.check(
            "agent",
            &["bin"],
            (
                "lib/node_modules/agent/cli.js",
                visible_paths,
                &["node/22/bin"],
            ),
        );
    }

    #[test]
    fn a_python_environment_needs_its_base_python() {
        let machine = FakeMachine::new();
        machine.file("py/3.12/bin/python3.12", "\u{7f}ELF");
        machine.file("py/3.12/lib/python3.12/os.py", "");
        machine.file(
            "env/pyvenv.cfg",
            &format!(
                "home = {}\nversion = 3.12.1\n",
                machine.at("py/3.12/bin").display()
            ),
        );
        machine.link(
            "env/bin/python",
            machine.at("py/3.12/bin/python3.12").to_str().unwrap(),
        );
        machine.file(
            "env/bin/agent",
            &format!(
                "#!{}\nimport agent\n",
                machine.at("env/bin/python").display()
            ),
        );
        machine.link("home/.local/bin/agent", "../../../env/bin/agent");
        let base = &["py/3.12/bin", "py/3.12/lib", "env"];
        machine.check(
            machine.at("env/bin/python").to_str().unwrap(),
            &[],
            ("env/bin/python", base, &[]),
        );
        let all: &[&str] = &["py/3.12/bin", "py/3.12/lib", "env", "env/bin"];
        machine.check("agent", &["home/.local/bin"], ("env/bin/agent", all, &[]));
        let python = |file: PathBuf| {
            AgentProgram {
                file,
                ..AgentProgram::default()
            }
            .python()
        };
        assert_eq!(
            python(machine.at("env/bin/agent")),
            Some(machine.at("env/bin/python"))
        );
        assert_eq!(
            python(machine.file("one", "#!/usr/bin/python3\n")),
            Some(PathBuf::from("/usr/bin/python3"))
        );
        assert_eq!(python(machine.file("two", "#!/bin/sh\n")), None);
    }

    #[test]
    fn scripts_and_environments_cannot_expose_more_than_an_interpreter() {
        let machine = FakeMachine::new();
        machine.file("home/run", "\u{7f}ELF");
        machine.file("home/notes/a", "");
        machine.file(
            "tools/one/agent",
            &format!("#!{}\n", machine.at("home/run").display()),
        );
        machine.check(
            "agent",
            &["tools/one"],
            ("tools/one/agent", &["tools/one", "home/run"], &[]),
        );
        machine.file(
            "tools/two/agent",
            &format!("#!{}/notes/../run\n", machine.at("home").display()),
        );
        let found = ProgramSearch {
            folders: vec![machine.at("tools/two")],
            own: Vec::new(),
            home: Some(machine.at("home")),
        };
        let found = found.find("agent").unwrap();
        assert!(
            found
                .visible_paths
                .iter()
                .all(|place| place.is_file() || place.ends_with("two")),
            "{found:?}"
        );
        for home in ["home", "home/notes", "."] {
            machine.file(
                "env/pyvenv.cfg",
                &format!("home = {}\n", machine.at(home).display()),
            );
            machine.file("env/bin/agent", "\u{7f}ELF");
            machine.check("agent", &["env/bin"], ("env/bin/agent", &["env"], &[]));
        }
        machine.file("home/python3", "\u{7f}ELF");
        machine.file(
            "env/pyvenv.cfg",
            &format!("home = {}\n", machine.at("home").display()),
        );
        machine.check("agent", &["env/bin"], ("env/bin/agent", &["env"], &[]));
        let thesis = machine.at("home/notes/thesis");
        std::fs::write(&thesis, "").unwrap();
        machine.file("tools/four/agent", &format!("#!{}\n", thesis.display()));
        let search = ProgramSearch {
            folders: vec![machine.at("tools/four")],
            ..ProgramSearch::default()
        };
        assert!(
            search
                .find("agent")
                .unwrap_err()
                .contains("is not installed")
        );
        for line in ["#!bin/python\n", "#!/usr/bin/env ../../x\n", "#!./x\n"] {
            machine.file("tools/three/agent", line);
            let search = ProgramSearch {
                folders: vec![machine.at("tools/three")],
                ..ProgramSearch::default()
            };
            assert!(
                search
                    .find("agent")
                    .unwrap_err()
                    .contains("depends on the current directory"),
                "{line}"
            );
        }
    }

    #[test]
    fn the_program_behind_a_pyenv_shim_is_found() {
        let machine = FakeMachine::new();
        machine.file(
            "home/.pyenv/shims/agent",
            "#!/usr/bin/env bash\nexec pyenv exec agent\n",
        );
        for version in ["3.9.18", "3.11.7", "3.12.1"] {
            machine.file(
                &format!("home/.pyenv/versions/{version}/bin/agent"),
                "\u{7f}ELF",
            );
        }
        let bin = |version: &str| format!("home/.pyenv/versions/{version}/bin");
        let expect = |version: &str| {
            let (file, bin) = (format!("{}/agent", bin(version)), bin(version));
            machine.check(
                "agent",
                &["home/.pyenv/shims"],
                (file.as_str(), &[bin.as_str()], &[]),
            );
        };
        expect("3.12.1");
        machine.file("home/.pyenv/version", "3.11.7\n3.9.18\n");
        expect("3.11.7");
    }

    #[test]
    fn a_program_of_a_pyenv_outside_of_the_home_needs_its_python() {
        let machine = FakeMachine::new();
        machine.file("opt/pyenv/shims/agent", "#!/usr/bin/env bash\n");
        let version = "opt/pyenv/versions/3.12.1";
        let python = machine.file(&format!("{version}/bin/python3.12"), "\u{7f}ELF");
        machine.file(&format!("{version}/lib/python3.12/os.py"), "");
        let script = format!("#!{}\n", python.display());
        machine.file(&format!("{version}/bin/agent"), &script);
        let search = ProgramSearch {
            folders: vec![machine.at("opt/pyenv/shims")],
            own: Vec::new(),
            home: Some(machine.at("home")),
        };
        let found = search.find("agent").unwrap();
        assert_eq!(found.file, machine.at(&format!("{version}/bin/agent")));
        assert!(
            found.visible_paths.contains(&machine.at(version)),
            "{found:?}"
        );
    }
}
