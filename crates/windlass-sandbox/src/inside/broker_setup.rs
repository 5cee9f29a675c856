//! Checks and prepares what a session in the broker tier needs before its first command: a copy of the workspace,
//! private directories, Landlock rules, and a kernel that supports user notification. Each part is tried out, and the
//! refusal names the one that is missing.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use super::broker::{Network, Ports};
use super::command::BrokerSetup;
use super::filter::Filters;
use super::landlock_rules::BrokerRulesets;
use super::private_dirs::PrivateDirs;
use super::{Refusal, sys};
use crate::spec::{Access, NO_LAYERS, Spec, Tree};

/// The first version of Landlock that restricts truncating files.
const MIN_LANDLOCK: u32 = 3;

/// Opens the copy of the workspace that commands work on; `None` if they may work on the workspace itself, because they
/// can only read it and nothing in it is hidden.
pub(crate) fn brokered_tree(spec: &Spec) -> Result<Option<OwnedFd>, Refusal> {
    if !spec.layers.is_empty() && spec.tree == Tree::Itself {
        return Err(Refusal::NoLayers(NO_LAYERS.to_owned()));
    }
    match &spec.tree {
        Tree::Copy { from } => {
            let missing =
                |err| Refusal::Invalid(format!("cannot open the copy `{}`: {err}", from.display()));
            Ok(Some(super::overlay::open_folder(from).map_err(missing)?))
        }
        Tree::Layered { .. } => Err(Refusal::NoLayers(NO_LAYERS.to_owned())),
        Tree::Itself => {
            let hidden = spec
                .hide
                .iter()
                .any(|path| path.starts_with(&spec.root) && path.symlink_metadata().is_ok());
            let changed = spec.access == Access::Write && !spec.protect.is_empty();
            match hidden || changed {
                true => Err(
                    "without namespaces no name in the workspace can be protected, so commands need a copy of it"
                        .into(),
                ),
                false => Ok(None),
            }
        }
    }
}

/// Tests in a child process whether system calls can be suspended and the child's memory can be read.
pub(crate) fn try_broker(filters: &Filters) -> Result<(), Refusal> {
    let (ours, theirs) = UnixStream::pair()?;
    let Some(child) = sys::fork()? else {
        drop(ours);
        let alone = rustix::thread::set_no_new_privs(true).map_err(std::io::Error::from);
        let said = match alone.and_then(|()| filters.install()) {
            Ok(_) => String::new(),
            Err(err) => err.to_string(),
        };
        let _ = (&theirs).write_all(said.as_bytes());
        let _ = theirs.shutdown(std::net::Shutdown::Write);
        // Wait until the parent has tried to read the memory.
        let _ = (&theirs).read(&mut [0]);
        sys::exit_now(0)
    };
    drop(theirs);
    let mut said = String::new();
    let heard = (&ours).take(4096).read_to_string(&mut said);
    let memory = File::open(format!("/proc/{child}/mem"));
    drop(ours);
    sys::kill(child, libc::SIGKILL);
    sys::wait_for(child);
    heard?;
    if !said.is_empty() {
        return Err(format!(
            "the kernel does not hand system calls to a broker (seccomp user notification): {said}"
        )
        .into());
    }
    memory.map(drop).map_err(|err| {
        let why = "the memory of a child cannot be read, which the broker needs (kernel.yama.ptrace_scope above 1, or a \
                   profile that forbids ptrace)";
        Refusal::Unavailable(format!("{why}: {err}"))
    })
}

/// Prepares what all commands share; returns `None` if the kernel has no Landlock.
pub(crate) fn prepare_broker(
    spec: &Spec,
    engine: Vec<u16>,
) -> Result<Option<BrokerSetup>, Refusal> {
    let Some(scratch) = &spec.scratch else {
        return Err("the session has no directory for private files".into());
    };
    let version = crate::probe::landlock_version();
    if (1..MIN_LANDLOCK).contains(&version) {
        return Err(Refusal::Unavailable(format!(
            "Landlock of this kernel has version {version} and does not judge truncating files; version {MIN_LANDLOCK} \
             (Linux 6.2) is needed"
        )));
    }
    let private = PrivateDirs::make(scratch, spec).map_err(|err| {
        format!(
            "cannot create private directories in `{}`: {err}",
            scratch.display()
        )
    })?;
    if let Some((file, _)) = spec
        .agent
        .iter()
        .flat_map(|home| &home.files)
        .find(|(file, _)| !file.exists())
    {
        return Err(Refusal::Invalid(format!(
            "cannot show `{}` to the agent: it does not exist",
            file.display()
        )));
    }
    let tree = match &spec.tree {
        Tree::Copy { from } => from,
        Tree::Itself | Tree::Layered { .. } => &spec.root,
    };
    let rulesets = BrokerRulesets::new(spec, tree, &private)
        .map_err(|err| format!("cannot create the Landlock rules: {err}"))?;
    let Some(rulesets) = rulesets else {
        return Ok(None);
    };
    let own =
        Rc::new(Ports::new().map_err(|err| format!("cannot allocate the list of ports: {err}"))?);
    Ok(Some(BrokerSetup {
        rulesets,
        private,
        network: Network {
            net: spec.net,
            engine,
            own,
        },
    }))
}
