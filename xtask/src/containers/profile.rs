//! Makes a seccomp profile like Docker's default one from podman's.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// The possible paths of podman's profile.
const PODMAN_PROFILES: &[&str] = &[
    "/etc/containers/seccomp.json",
    "/usr/share/containers/seccomp.json",
];

/// System calls that Docker allows only with a capability that containers do not have by default, or not at all.
const FORBIDDEN: &[&str] = &[
    "unshare",
    "setns",
    "mount",
    "umount",
    "umount2",
    "pivot_root",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "clone",
    "clone3",
    "pidfd_getfd",
    "kcmp",
    "process_madvise",
    "keyctl",
    "add_key",
    "request_key",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
];
/// All flags of `clone` that create a namespace.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;
const EPERM: i32 = 1;
const ENOSYS: i32 = 38;

/// Reads podman's profile; `None` if podman came without one.
pub(super) fn podman_profile() -> Result<Option<Value>> {
    let Some(path) = PODMAN_PROFILES
        .iter()
        .map(Path::new)
        .find(|path| path.exists())
    else {
        return Ok(None);
    };
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .map(Some)
        .with_context(|| format!("{} is not JSON", path.display()))
}

/// Makes podman's profile as strict as Docker's.
pub(super) fn docker_like(mut profile: Value) -> Result<Value> {
    let groups = profile["syscalls"]
        .as_array_mut()
        .context("the profile of podman has no list of system calls")?;
    for group in groups.iter_mut() {
        if let Some(names) = group["names"].as_array_mut() {
            names.retain(|name| !name.as_str().is_some_and(|name| FORBIDDEN.contains(&name)));
        }
    }
    // The container runtime rejects a group without names.
    groups.retain(|group| {
        group["names"]
            .as_array()
            .is_some_and(|names| !names.is_empty())
    });
    let no_flags =
        json!({ "index": 0, "value": NAMESPACE_FLAGS, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" });
    groups.push(json!({ "names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [no_flags] }));
    groups.push(json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS }));
    profile["defaultErrnoRet"] = json!(EPERM);
    profile["defaultErrno"] = json!("EPERM");
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withheld_calls_are_in_no_group() {
        let podman_profile = json!({ "defaultErrnoRet": 38, "syscalls": [
            { "names": ["read", "unshare", "clone", "pidfd_getfd"], "action": "SCMP_ACT_ALLOW" },
            { "names": ["setns"], "action": "SCMP_ACT_ALLOW" },
        ] });
        let docker = docker_like(podman_profile).unwrap_or_default();
        let names: Vec<_> = docker["syscalls"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|group| &group["names"])
            .collect();
        assert_eq!(
            names,
            [&json!(["read"]), &json!(["clone"]), &json!(["clone3"])]
        );
        assert_eq!(docker["defaultErrnoRet"], EPERM);
    }
}
