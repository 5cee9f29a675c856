//! What this kernel offers, found by trying it.

use std::path::Path;
use std::time::Duration;

use crate::helper::Helper;
use crate::session::{SandboxError, Session, Standard};
use crate::spec::{Access, Spec, Tier};

/// How long a program that does nothing may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What can be had here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The sandbox with namespaces, or why not.
    pub namespaces: Result<(), String>,
    /// The sandbox with a broker, or why not.
    pub broker: Result<(), String>,
    /// Landlock and filters alone, or why not.
    pub landlock: Result<(), String>,
    /// The version of Landlock; 0 is none.
    pub landlock_version: u32,
    /// The kernel limits the memory of all commands together. Otherwise their memory is only watched.
    pub limits_memory: bool,
}

/// Tries every tier by running a program that does nothing in `folder`. Private directories are made in `scratch` and
/// removed again.
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

/// The version of Landlock that the kernel has; 0 is none.
#[must_use]
pub fn landlock_version() -> u32 {
    // SAFETY: with this flag the call takes no attributes and gives a number.
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

/// Whether parts of `/proc` are covered, as in a container. Then the kernel mounts no other one, and commands see the
/// processes that are in it.
#[must_use]
pub fn proc_is_masked() -> bool {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(is_mask)
}

fn is_mask(mount: &str) -> bool {
    // The kernel looks past this one, which is there on most systems.
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
    let session = Session::open(helper, &spec)?.session;
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
    let ended = ended
        .recv_timeout(PATIENCE)
        .unwrap_or_else(|_| Err(SandboxError::Gone("no answer".to_owned())))?;
    drop(child);
    match ended.status.success() {
        true => Ok(()),
        false => Err(SandboxError::Unavailable(format!(
            "a program that does nothing failed in it: {}",
            ended.status
        ))),
    }
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
