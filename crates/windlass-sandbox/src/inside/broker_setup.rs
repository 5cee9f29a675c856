//! What a session without namespaces needs before its first command: a copy to work on, private directories, Landlock
//! rules, and a kernel that hands system calls to the broker. Each is tried, and a refusal says what is missing.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use super::broker::{Network, Ports};
use super::command::BrokerTerms;
use super::fence::BrokerFences;
use super::filter::Filters;
use super::private::Private;
use super::{Refusal, sys};
use crate::spec::{Access, NO_LAYERS, Spec, Tree};

/// The first version of Landlock that judges truncating files.
const LEAST_LANDLOCK: u32 = 3;

/// A handle of the copy that commands work on without namespaces. Nothing else may stand at the workspace's path.
pub(crate) fn brokered_tree(spec: &Spec) -> Result<Option<OwnedFd>, Refusal> {
    if !spec.layers.is_empty() && spec.tree == Tree::Itself {
        return Err(Refusal::NoLayers(NO_LAYERS.to_owned()));
    }
    match &spec.tree {
        Tree::Copy { from } => {
            let missing = |err| {
                Refusal::Invalid(format!(
                    "the copy `{}` cannot be opened: {err}",
                    from.display()
                ))
            };
            Ok(Some(super::layer::open_folder(from).map_err(missing)?))
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

/// Tries in a child that does nothing else whether calls can be suspended and its memory can be read.
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
        // Lives until the parent has looked at it.
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
            "system calls cannot be handed to a broker (seccomp user notification): {said}"
        )
        .into());
    }
    memory.map(drop).map_err(|err| {
        let why = "the memory of a child cannot be read, which the broker needs (kernel.yama.ptrace_scope above 1, or a \
                   profile that forbids ptrace)";
        Refusal::Unavailable(format!("{why}: {err}"))
    })
}

/// What commands need without namespaces; none where the kernel has no Landlock.
pub(crate) fn broker_terms(spec: &Spec, engine: Vec<u16>) -> Result<Option<BrokerTerms>, Refusal> {
    let Some(scratch) = &spec.scratch else {
        return Err("there is no directory for private files".into());
    };
    let version = crate::probe::landlock_version();
    if (1..LEAST_LANDLOCK).contains(&version) {
        return Err(Refusal::Unavailable(format!(
            "Landlock of this kernel has version {version} and does not judge truncating files; version {LEAST_LANDLOCK} \
             (Linux 6.2) is needed"
        )));
    }
    let private = Private::make(scratch, spec).map_err(|err| {
        format!(
            "the private directories in `{}` cannot be made: {err}",
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
            "`{}` cannot be shown to the agent: it is not there",
            file.display()
        )));
    }
    let tree = match &spec.tree {
        Tree::Copy { from } => from,
        Tree::Itself | Tree::Layered { .. } => &spec.root,
    };
    let fences = BrokerFences::new(spec, tree, &private)
        .map_err(|err| format!("the Landlock rules: {err}"))?;
    let Some(fences) = fences else {
        return Ok(None);
    };
    let own = Rc::new(Ports::new().map_err(|err| format!("the list of ports: {err}"))?);
    Ok(Some(BrokerTerms {
        fences,
        private,
        network: Network {
            net: spec.net,
            engine,
            own,
        },
    }))
}
