//! Containers from this machine's own files: an image with nothing but folders, and this machine's programs mounted
//! read-only. No image registry is asked.

use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::profile;
use super::rows::{Container, Owner, Profile, READ_ONLY_FOLDER};
use crate::cargo;
use crate::process::{Running, last_lines, step};

/// How long an installation or the making of the image may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a container that does nothing may take.
const EMPTY_RUN: Duration = Duration::from_secs(60);
/// Folders that a machine may have as links below /usr or as folders of their own.
const PROGRAM_FOLDERS: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64"];
/// What every container has, beside those.
const FOLDERS: &[&str] = &[
    "usr",
    "etc",
    "proc",
    "sys",
    "dev",
    "tmp",
    "run",
    "var",
    "wl",
    "project",
    "read-only",
];
/// The small file system in memory of a container with a read-only root.
const SMALL_TMP: &str = "/tmp:rw,size=64m,mode=1777";

/// The image, the profile and the folders of this run; the image is removed at the end.
pub(super) struct Podman {
    image: String,
    docker_profile: Option<PathBuf>,
    mounts: Vec<(PathBuf, String)>,
    folder: PathBuf,
    /// As root, podman is told which runtime and which manager of control groups to use.
    root: bool,
}

impl Podman {
    /// Makes the image in `folder`; the inner error says why there are no containers here.
    pub(super) fn prepare(folder: &Path, root: bool) -> Result<Result<Self, String>> {
        if let Err(why) = install(folder, root) {
            return Ok(Err(format!("{why:#}")));
        }
        let mounts = make_tree(&folder.join("image"))?;
        let docker_profile = profile::podmans()?
            .map(|podmans| write_profile(folder, podmans))
            .transpose()?;
        for name in ["empty", "foreign"] {
            std::fs::create_dir_all(folder.join(name))?;
        }
        let image = format!("localhost/windlass-rows:{}", std::process::id());
        let podman = Self {
            image,
            docker_profile,
            mounts,
            folder: folder.to_owned(),
            root,
        };
        Ok(podman
            .import()
            .and_then(|()| podman.try_one())
            .map(|()| podman)
            .map_err(|why| format!("{why:#}")))
    }

    fn import(&self) -> Result<()> {
        let archive = self.folder.join("image.tar");
        let mut tar = Command::new("tar");
        tar.arg("-C")
            .arg(self.folder.join("image"))
            .arg("-cf")
            .arg(&archive)
            .arg(".");
        step(&mut tar, &self.folder.join("tar.log"), PATIENCE).context("`tar` failed")?;
        let mut import = Command::new("podman");
        import.arg("import").arg(&archive).arg(&self.image);
        step(&mut import, &self.folder.join("import.log"), PATIENCE)
            .context("`podman import` failed")
    }

    /// Containers need rights that a machine may not give, for example one that is a container itself.
    fn try_one(&self) -> Result<()> {
        let mut command = self.base("windlass-rows-first");
        command.arg(&self.image).args(["/bin/sh", "-c", ":"]);
        step(&mut command, &self.folder.join("first.log"), EMPTY_RUN)
            .context("no container starts here")
    }

    /// Why a container of this profile cannot be made.
    pub(super) fn lacks(&self, container: &Container) -> Option<String> {
        if container.profile == Profile::Docker && self.docker_profile.is_none() {
            return Some(
                "podman came without a seccomp profile (seccomp.json) to make the stricter one from".to_owned(),
            );
        }
        let needs_root = container.owner == Owner::Another && !self.root;
        needs_root.then(|| "needs root, to give a folder to another user".to_owned())
    }

    fn base(&self, name: &str) -> Command {
        let mut command = Command::new("podman");
        if self.root {
            // Other runtimes and the manager of systemd fail where both versions of control groups are mounted.
            command.arg("--cgroup-manager=cgroupfs");
            if let Some(runc) = runc() {
                command.arg("--runtime").arg(runc);
            }
        }
        command.args([
            "run",
            "--rm",
            "--network",
            "none",
            "--security-opt",
            "label=disable",
            "--name",
            name,
        ]);
        // The limits of podman's own settings can be above those that this machine allows.
        command.args([
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=1024:1024",
        ]);
        for (source, target) in &self.mounts {
            mount(&mut command, source, target, "ro");
        }
        command
    }

    /// `podman run` up to, and without, the image.
    pub(super) fn run(&self, name: &str, container: &Container) -> Result<Command> {
        let mut command = self.base(name);
        if container.profile == Profile::Docker {
            let profile = self
                .docker_profile
                .as_deref()
                .context("there is no stricter profile")?;
            let mut option = OsString::from("seccomp=");
            option.push(profile);
            command.arg("--security-opt").arg(option);
        }
        if container.drop_capabilities {
            command.arg("--cap-drop=all");
        }
        if container.read_only {
            command.args([
                "--read-only",
                "--read-only-tmpfs=false",
                "--tmpfs",
                SMALL_TMP,
            ]);
        }
        mount(
            &mut command,
            &self.folder.join("empty"),
            READ_ONLY_FOLDER,
            "ro",
        );
        if container.owner == Owner::Another {
            mount(&mut command, &self.foreign_project(name)?, "/project", "rw");
        }
        command.args(["--user", &container.uid.to_string()]);
        command.args([
            "-e",
            &format!("HOME={}", container.home),
            "-e",
            "PATH=/usr/local/bin:/usr/bin:/bin",
        ]);
        Ok(command)
    }

    pub(super) fn image(&self) -> &str {
        &self.image
    }

    /// A repository that belongs to neither of the users of the rows.
    fn foreign_project(&self, name: &str) -> Result<PathBuf> {
        let project = self.folder.join("foreign").join(name);
        std::fs::create_dir_all(&project)?;
        let mut git = Command::new("git");
        git.args(["init", "-q"]).arg(&project);
        ensure!(cargo::answers(git), "git could not make a repository");
        let mut chmod = Command::new("chmod");
        chmod.args(["-R", "a+rwX"]).arg(&project);
        let mut chown = Command::new("chown");
        chown.args(["-R", "2000:2000"]).arg(&project);
        ensure!(
            cargo::answers(chmod) && cargo::answers(chown),
            "the project could not be given to another user"
        );
        Ok(project)
    }

    /// Ends a container that is still there after its time; nothing to do for the others.
    pub(super) fn remove(&self, name: &str) {
        let mut command = Command::new("podman");
        command.args(["rm", "-f", "-t", "0", name]);
        cargo::answers(command);
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let mut command = Command::new("podman");
        command.args(["rmi", "-f", &self.image]);
        cargo::answers(command);
    }
}

/// Adds a mount; paths with a colon cannot be said.
pub(super) fn mount(command: &mut Command, source: &Path, target: &str, mode: &str) {
    let mut volume = OsString::from(source);
    volume.push(format!(":{target}:{mode}"));
    command.arg("-v").arg(volume);
}

fn runc() -> Option<PathBuf> {
    let folders = [
        "/usr/sbin",
        "/usr/bin",
        "/usr/local/sbin",
        "/usr/local/bin",
        "/sbin",
    ];
    folders
        .iter()
        .map(|folder| Path::new(folder).join("runc"))
        .find(|path| path.exists())
}

/// The folders of the image; returns what is mounted into each container.
fn make_tree(image: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut mounts = vec![
        ("/usr".into(), "/usr".to_owned()),
        ("/etc".into(), "/etc".to_owned()),
    ];
    for name in FOLDERS {
        std::fs::create_dir_all(image.join(name))?;
    }
    std::fs::set_permissions(image.join("tmp"), std::fs::Permissions::from_mode(0o1777))?;
    for name in PROGRAM_FOLDERS {
        let ours = Path::new("/").join(name);
        match std::fs::read_link(&ours) {
            Ok(target) => symlink(target, image.join(name))?,
            Err(_) if ours.is_dir() => {
                std::fs::create_dir_all(image.join(name))?;
                mounts.push((ours, format!("/{name}")));
            }
            Err(_) => {}
        }
    }
    Ok(mounts)
}

fn write_profile(folder: &Path, podmans: serde_json::Value) -> Result<PathBuf> {
    let path = folder.join("docker.json");
    std::fs::write(&path, serde_json::to_vec(&profile::docker_like(podmans)?)?)?;
    Ok(path)
}

/// Installs podman where that needs nobody's consent: as root, by the package manager.
fn install(folder: &Path, root: bool) -> Result<()> {
    let found = || {
        let mut command = Command::new("podman");
        command.arg("--version");
        cargo::answers(command)
    };
    if found() {
        return Ok(());
    }
    let mut apt = Command::new("apt-get");
    apt.arg("--version");
    ensure!(
        root && cargo::answers(apt),
        "podman is missing; install podman and runc with the system's package manager"
    );
    println!("    podman is missing: apt-get install podman runc");
    let log = folder.join("apt.log");
    let mut apt = Command::new("apt-get");
    apt.args(["install", "-y", "--no-install-recommends", "podman", "runc"])
        .env("DEBIAN_FRONTEND", "noninteractive");
    step(&mut apt, &log, PATIENCE)
        .context("podman is missing, and `apt-get install podman runc` failed")?;
    ensure!(
        found(),
        "podman does not start after it was installed: {}",
        last_lines(&log)
    );
    Ok(())
}

/// Runs a prepared command to its end, at most so long, and returns its exit code and output.
pub(super) fn finish(
    command: &mut Command,
    log: &Path,
    most: Duration,
) -> Result<(Option<i32>, String)> {
    let errors = log.with_extension("err");
    let status = Running::start(command, log, &errors)?.wait(most);
    let read = |path: &Path| {
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    };
    let output = read(log) + &read(&errors);
    match status {
        Ok(status) => Ok((status.code(), output)),
        Err(err) => Ok((None, format!("{output}\n{err:#}"))),
    }
}
