//! The table of the rows: where the commands run, and the expected result.

use crate::without::Feature;

/// The sandbox that a row must end up with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// The tier with namespaces.
    Namespaces,
    /// The tier with a broker.
    Broker,
    /// One of the two: namespaces can be created there, but some mounts in them fail.
    Either,
    /// No tier works: `demo` runs and reports that, `sandbox` and `run` refuse.
    Refusal,
    /// One of the tiers, or a refusal; `demo` must run in any case.
    Anything,
}

/// The seccomp profile of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeccompProfile {
    /// The profile that is built into podman.
    Podman,
    /// Podman's profile without the calls that Docker's default profile forbids.
    Docker,
}

/// The owner of the project folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Own,
    /// A user that is neither 0 nor 1000; every user may write to the folder.
    Another,
}

/// The properties of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) profile: SeccompProfile,
    pub(super) uid: u32,
    pub(super) drop_capabilities: bool,
    /// The root is read-only, and /tmp is a small tmpfs.
    pub(super) read_only: bool,
    pub(super) home: &'static str,
    pub(super) owner: Owner,
    /// Names below /dev that are removed first.
    pub(super) remove_devices: &'static str,
}

/// The place where a row runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowPlace {
    Container(Container),
    /// This machine, without some features of its kernel.
    Machine {
        without: &'static [Feature],
        uid: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerRow {
    pub(super) name: String,
    pub(super) place: RowPlace,
    pub(super) expect: Expect,
}

/// The home of rows that are not about homes. It does not exist when the row starts.
const HOME: &str = "/tmp/home";
/// A folder that is mounted read-only in every container.
pub(super) const READ_ONLY_FOLDER: &str = "/read-only";

/// An ordinary user of a Docker-like container; the special rows differ from it in one point.
pub(super) const USER: Container = Container {
    profile: SeccompProfile::Docker,
    uid: 1000,
    drop_capabilities: false,
    read_only: false,
    home: HOME,
    owner: Owner::Own,
    remove_devices: "",
};

const SPECIAL: &[(&str, Container)] = &[
    ("HOME=/", Container { home: "/", ..USER }),
    (
        "HOME=/",
        Container {
            home: "/",
            uid: 0,
            ..USER
        },
    ),
    (
        "HOME=/, read-only root",
        Container {
            home: "/",
            read_only: true,
            ..USER
        },
    ),
    (
        "HOME below a read-only folder",
        Container {
            home: "/read-only/home",
            ..USER
        },
    ),
    (
        "HOME below a read-only folder",
        Container {
            home: "/read-only/home",
            uid: 0,
            ..USER
        },
    ),
    (
        "read-only HOME",
        Container {
            home: READ_ONLY_FOLDER,
            ..USER
        },
    ),
    (
        "read-only HOME",
        Container {
            home: READ_ONLY_FOLDER,
            uid: 0,
            profile: SeccompProfile::Podman,
            ..USER
        },
    ),
    (
        "project of another user",
        Container {
            owner: Owner::Another,
            ..USER
        },
    ),
    (
        "project of another user",
        Container {
            owner: Owner::Another,
            uid: 0,
            ..USER
        },
    ),
    (
        "project of another user",
        Container {
            owner: Owner::Another,
            uid: 0,
            profile: SeccompProfile::Podman,
            ..USER
        },
    ),
    (
        "few entries in /dev",
        Container {
            remove_devices: DEVICES,
            uid: 0,
            ..USER
        },
    ),
    (
        "few entries in /dev",
        Container {
            remove_devices: DEVICES,
            uid: 0,
            profile: SeccompProfile::Podman,
            ..USER
        },
    ),
];
/// Only `null`, `urandom` and the symlinks to open files remain.
const DEVICES: &str = "zero full random tty ptmx console pts shm mqueue";

const MACHINE: &[(&[Feature], Expect)] = &[
    (&[], Expect::Namespaces),
    (&[Feature::Namespaces], Expect::Broker),
    // Root can create the other namespaces without a user namespace.
    (&[Feature::UserNamespaces], Expect::Either),
    (&[Feature::NamespaceCapabilities], Expect::Broker),
    (&[Feature::Namespaces, Feature::PidfdGetfd], Expect::Broker),
    (&[Feature::Landlock], Expect::Namespaces),
    (&[Feature::Notifications], Expect::Namespaces),
    (&[Feature::Namespaces, Feature::Landlock], Expect::Refusal),
    (
        &[Feature::Namespaces, Feature::Notifications],
        Expect::Refusal,
    ),
    (
        &[Feature::Namespaces, Feature::Ptrace, Feature::PidfdGetfd],
        Expect::Anything,
    ),
];

/// Returns every row, those in containers first.
pub(super) fn all() -> Vec<ContainerRow> {
    let mut rows = Vec::new();
    for profile in [SeccompProfile::Podman, SeccompProfile::Docker] {
        for uid in [0, 1000] {
            for drop_capabilities in [false, true] {
                for read_only in [false, true] {
                    let container = Container {
                        profile,
                        uid,
                        drop_capabilities,
                        read_only,
                        ..USER
                    };
                    let capabilities = if drop_capabilities {
                        "no capabilities"
                    } else {
                        "default capabilities"
                    };
                    let root = if read_only {
                        "read-only root"
                    } else {
                        "writable root"
                    };
                    rows.push(row_in(container, &format!("{capabilities}, {root}")));
                }
            }
        }
    }
    rows.extend(
        SPECIAL
            .iter()
            .map(|(name, container)| row_in(*container, name)),
    );
    for (without, expect) in MACHINE {
        for uid in [0, 1000] {
            let place = RowPlace::Machine { without, uid };
            rows.push(ContainerRow {
                name: machine_name(without, uid),
                place,
                expect: *expect,
            });
        }
    }
    rows
}

fn row_in(container: Container, what: &str) -> ContainerRow {
    let (profile, expect) = match container.profile {
        SeccompProfile::Podman => ("podman", Expect::Either),
        SeccompProfile::Docker => ("docker", Expect::Broker),
    };
    let name = format!("{profile} profile, uid {}, {what}", container.uid);
    ContainerRow {
        name,
        place: RowPlace::Container(container),
        expect,
    }
}

fn machine_name(without: &[Feature], uid: u32) -> String {
    if without.is_empty() {
        return format!("this machine, uid {uid}");
    }
    let names: Vec<_> = without.iter().map(|feature| feature.name()).collect();
    format!("without {}, uid {uid}", names.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let rows = all();
        let names: std::collections::BTreeSet<_> =
            rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), rows.len(), "{names:?}");
    }
}
