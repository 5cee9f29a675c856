//! Containers from this machine's own files: an image with only empty folders, and this machine's programs mounted
//! read-only. No image registry is used.

use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::profile;
use super::rows::{Container, Owner, READ_ONLY_FOLDER, SeccompProfile};
use crate::cargo;
use crate::process::{Running, last_lines, step};

/// The timeout of an installation or of building the image.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);
/// The timeout of a container that does nothing.
const EMPTY_RUN_TIMEOUT: Duration = Duration::from_secs(60);
/// Folders that are symlinks into /usr on some machines and real folders on others.
const PROGRAM_FOLDERS: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64"];
/// Further folders that every container has.
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
/// The tmpfs of a container with a read-only root.
const SMALL_TMP: &str = "/tmp:rw,size=64m,mode=1777";

/// The image, the profile and the folders of this run. The image is removed at the end.
pub(super) struct Podman {
    image: String,
    docker_profile: Option<PathBuf>,
    mounts: Vec<(PathBuf, String)>,
    folder: PathBuf,
    /// As root, podman gets an explicit runtime and cgroup manager.
    root: bool,
}

impl Podman {
    /// Builds the image in `folder`. The inner error tells why there are no containers on this machine.
    pub(super) fn prepare(folder: &Path, root: bool) -> Result<Result<Self, String>> {
        if let Err(why) = install(folder, root) {
            return Ok(Err(format!("{why:#}")));
        }
        let mounts = make_tree(&folder.join("image"))?;
        let docker_profile = profile::podman_profile()?
            .map(|podman_profile| write_profile(folder, podman_profile))
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
        step(&mut tar, &self.folder.join("tar.log"), INSTALL_TIMEOUT).context("`tar` failed")?;
        let mut import = Command::new("podman");
        import.arg("import").arg(&archive).arg(&self.image);
        step(
            &mut import,
            &self.folder.join("import.log"),
            INSTALL_TIMEOUT,
        )
        .context("`podman import` failed")
    }

    /// Starts one container. Containers need privileges that a machine may not give, for example if it is a container
    /// itself.
    fn try_one(&self) -> Result<()> {
        let mut command = self.base("windlass-rows-first");
        command.arg(&self.image).args(["/bin/sh", "-c", ":"]);
        step(
            &mut command,
            &self.folder.join("first.log"),
            EMPTY_RUN_TIMEOUT,
        )
        .context("no container starts here")
    }

    /// Returns why a container of this kind cannot be created.
    pub(super) fn lacks(&self, container: &Container) -> Option<String> {
        if container.profile == SeccompProfile::Docker && self.docker_profile.is_none() {
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
            // Other runtimes and the systemd cgroup manager fail if both versions of cgroups are mounted.
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
        // The limits in podman's own settings may be higher than this machine allows.
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

    /// Returns `podman run` up to, but not including, the image.
    pub(super) fn run(&self, name: &str, container: &Container) -> Result<Command> {
        let mut command = self.base(name);
        if container.profile == SeccompProfile::Docker {
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

    /// Creates a repository that belongs to neither of the users of the rows.
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

    /// Removes a container that is still running after its timeout; does nothing for others.
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

/// Adds a mount. Paths with a colon are not supported.
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

/// Creates the folders of the image; returns the mounts of each container.
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

fn write_profile(folder: &Path, podman_profile: serde_json::Value) -> Result<PathBuf> {
    let path = folder.join("docker.json");
    std::fs::write(
        &path,
        serde_json::to_vec(&profile::docker_like(podman_profile)?)?,
    )?;
    Ok(path)
}

/// Installs podman if it is missing, but only as root and with the package manager.
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
    step(&mut apt, &log, INSTALL_TIMEOUT)
        .context("podman is missing, and `apt-get install podman runc` failed")?;
    ensure!(
        found(),
        "podman does not start after it was installed: {}",
        last_lines(&log)
    );
    Ok(())
}

/// Runs a command to its end, at most this long; returns its exit code and output.
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
