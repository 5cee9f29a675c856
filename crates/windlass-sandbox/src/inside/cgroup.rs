//! A cgroup for a session, if the system delegates one to this user: then the kernel limits the memory and the tasks of
//! all its commands together. Without one, the limits of each command still apply.

use std::path::{Path, PathBuf};

use crate::spec::Limits;

const TREE: &str = "/sys/fs/cgroup";
/// The most tasks of a session, including threads. The first process of each command counts processes.
const MAX_TASKS: u32 = 8192;

/// A cgroup that is removed when this is dropped.
pub(crate) struct SessionCgroup {
    folder: PathBuf,
    limits_memory: bool,
}

/// Whether the kernel limits the memory of all commands together here. Otherwise the kernel limits each process, and the
/// helper kills a command whose processes together exceed the limit when it next checks.
pub(crate) fn limits_memory() -> bool {
    SessionCgroup::make(&Limits::default()).is_some_and(|group| group.limits_memory)
}

impl SessionCgroup {
    /// Creates a cgroup next to or below the one of this process, wherever limits can be set.
    pub(crate) fn make(limits: &Limits) -> Option<Self> {
        let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        candidates(&text).into_iter().find_map(|folder| {
            let own = folder.join(format!("windlass-{}", std::process::id()));
            std::fs::create_dir(&own).ok()?;
            // If no limit can be set, dropping it removes the directory.
            let mut group = Self {
                folder: own,
                limits_memory: false,
            };
            group.limits_memory = group.write("memory.max", &limits.memory.to_string());
            let tasks = group.write("pids.max", &MAX_TASKS.to_string());
            (group.limits_memory || tasks).then_some(group)
        })
    }

    /// Moves a process into the cgroup; its future children are in it as well.
    pub(crate) fn add(&self, pid: i32) -> bool {
        self.write("cgroup.procs", &pid.to_string())
    }

    fn write(&self, file: &str, text: &str) -> bool {
        // Never create a control file: if it is missing, the controller is not delegated.
        let mut options = std::fs::File::options();
        let file = options.write(true).open(self.folder.join(file));
        file.is_ok_and(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()).is_ok())
    }
}

impl Drop for SessionCgroup {
    fn drop(&mut self) {
        // This fails while a process is in the cgroup. A leftover cgroup is empty and harmless.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Lists the directories in which to create the cgroup, from the text of `/proc/self/cgroup`: first next to the own
/// cgroup, whose parent may delegate limits, then below it.
fn candidates(text: &str) -> Vec<PathBuf> {
    let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let own = Path::new(TREE).join(own.trim_end());
    let beside = own
        .parent()
        .filter(|beside| beside.starts_with(TREE))
        .map(Path::to_path_buf);
    beside.into_iter().chain([own]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_looked_for_beside_and_below_our_own() {
        let user = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope\n";
        let found: Vec<String> = candidates(user)
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let slice = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice";
        assert_eq!(found, [slice.to_owned(), format!("{slice}/term.scope")]);
        assert_eq!(candidates("1:name=systemd:/\n"), Vec::<PathBuf>::new());
        assert_eq!(candidates("0::/\n").len(), 1);
    }
}
