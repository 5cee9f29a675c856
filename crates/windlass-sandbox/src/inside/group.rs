//! A control group for a session, where the system hands one on: then the kernel itself bounds the memory and the
//! tasks of all its commands together. Nothing is lost without one; the limits of each command hold anyway.

use std::path::{Path, PathBuf};

use crate::spec::Limits;

const TREE: &str = "/sys/fs/cgroup";
/// Tasks of a session, threads among them; processes are counted one by one elsewhere.
const MOST_TASKS: u32 = 8192;

/// The group. It goes when it is dropped.
pub(crate) struct Group {
    folder: PathBuf,
    limits_memory: bool,
}

/// Whether the kernel limits the memory of all commands together here. Otherwise it limits each process, and a command
/// that holds more in all is ended when it is next looked at.
pub(crate) fn limits_memory() -> bool {
    Group::make(&Limits::default()).is_some_and(|group| group.limits_memory)
}

impl Group {
    /// Makes one beside or below the group of this process, wherever limits can be set.
    pub(crate) fn make(limits: &Limits) -> Option<Self> {
        let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        candidates(&text).into_iter().find_map(|folder| {
            let own = folder.join(format!("windlass-{}", std::process::id()));
            std::fs::create_dir(&own).ok()?;
            // Dropped, it is gone again.
            let mut group = Self {
                folder: own,
                limits_memory: false,
            };
            group.limits_memory = group.write("memory.max", &limits.memory.to_string());
            let tasks = group.write("pids.max", &MOST_TASKS.to_string());
            (group.limits_memory || tasks).then_some(group)
        })
    }

    /// Puts a process into it, with all that it will start.
    pub(crate) fn add(&self, pid: i32) -> bool {
        self.write("cgroup.procs", &pid.to_string())
    }

    fn write(&self, file: &str, text: &str) -> bool {
        // A control file is never made: one that is not there is not handed on.
        let mut options = std::fs::File::options();
        let file = options.write(true).open(self.folder.join(file));
        file.is_ok_and(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()).is_ok())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It can only go when nobody is in it; what is left of it is empty and does nothing.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Where a group may be made, by what the kernel says of this process: beside its own group, whose parent hands
/// limits on, then below it.
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
