//! Finds out which sandbox tiers this machine supports, by running a command in each.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use crate::helper::Helper;
use crate::session::{Ended, SandboxError, SandboxSession, Standard};
use crate::spec::{Access, Spec, Tier};

/// The timeout for the test command, which does nothing.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The sandbox tiers that work on this machine. An error is the reason why a tier does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// [`Tier::Namespaces`], the full sandbox.
    pub namespaces: Result<(), String>,
    /// [`Tier::Broker`], which needs no namespaces.
    pub broker: Result<(), String>,
    /// [`Tier::Landlock`], with Landlock and system call filters only.
    pub landlock: Result<(), String>,
    /// The version of the kernel's Landlock interface; 0 means that there is no Landlock.
    pub landlock_version: u32,
    /// The kernel limits the memory of all commands together. Otherwise their memory is only watched.
    pub limits_memory: bool,
}

/// Tries every tier by running a command that does nothing in `folder`. Creates private directories in `scratch` and
/// removes them again.
#[must_use]
pub fn probe(helper: &Helper, folder: &Path, scratch: &Path) -> Offer {
    let attempt =
        |tier: Tier| one_run(helper, folder, scratch, tier).map_err(|err| err.to_string());
    Offer {
        namespaces: attempt(Tier::Namespaces),
        broker: attempt(Tier::Broker),
        landlock: attempt(Tier::Landlock),
        landlock_version: landlock_version(),
        limits_memory: crate::inside::limits_memory(),
    }
}

/// Returns the version of the kernel's Landlock interface; 0 means that there is no Landlock.
#[must_use]
pub fn landlock_version() -> u32 {
    // SAFETY: with this flag the kernel reads no attributes and returns the version.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0,
            1,
        )
    };
    u32::try_from(version).unwrap_or(0)
}

/// Returns whether another mount covers a part of `/proc`, as in a container. The kernel then refuses to mount a new
/// `/proc`, so commands see the processes of the container in the existing one. The mounts are read once: a container
/// has its masks before any process starts in it, and each run asks several times.
#[must_use]
pub fn proc_is_masked() -> bool {
    static MASKED: OnceLock<bool> = OnceLock::new();
    *MASKED.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        text.lines()
            .filter_map(|line| line.split(' ').nth(4))
            .any(is_mask)
    })
}

fn is_mask(mount: &str) -> bool {
    // The kernel ignores this mount, which most systems have.
    mount.starts_with("/proc/") && mount != "/proc/sys/fs/binfmt_misc"
}

fn one_run(helper: &Helper, folder: &Path, scratch: &Path, tier: Tier) -> Result<(), SandboxError> {
    let scratch = Some(scratch.to_owned());
    let spec = Spec {
        access: Access::ReadOnly,
        tier,
        scratch,
        ..Spec::around(folder.to_owned())
    };
    let opened = SandboxSession::open(helper, &spec)?;
    let ended = run_true(&opened.session, folder);
    opened.close();
    let status = ended?.status;
    match status.success() {
        true => Ok(()),
        false => Err(SandboxError::Unavailable(format!(
            "a test command failed in the sandbox: {status}"
        ))),
    }
}

/// Runs a command that does nothing.
fn run_true(session: &SandboxSession, folder: &Path) -> Result<Ended, SandboxError> {
    let null = || -> Result<std::os::fd::OwnedFd, SandboxError> {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null");
        file.map(Into::into)
            .map_err(|err| SandboxError::Unavailable(format!("/dev/null: {err}")))
    };
    let standard = Standard {
        input: null()?,
        output: null()?,
        error: null()?,
    };
    let (done, ended) = std::sync::mpsc::channel();
    let argv = ["/bin/sh".into(), "-c".into(), ":".into()];
    let child = session.start(&argv, &[], folder, Access::Write, standard, move |result| {
        drop(done.send(result))
    })?;
    let ended = ended.recv_timeout(PROBE_TIMEOUT).unwrap_or_else(|_| {
        Err(SandboxError::Gone(
            "the test command did not end in time".to_owned(),
        ))
    });
    drop(child);
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_below_proc_masks_it() {
        assert!(is_mask("/proc/kcore") && is_mask("/proc/sys"));
        assert!(
            !is_mask("/proc") && !is_mask("/proc/sys/fs/binfmt_misc") && !is_mask("/processes")
        );
    }
}
