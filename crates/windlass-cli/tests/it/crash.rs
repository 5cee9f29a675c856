//! A sample of the crash harness with the built binary: one operation of each kind on each kind of file, and the last
//! ones, so that every kind of interruption is tested. `cargo xtask crash` runs all of it, and `cargo xtask crash
//! campaign` the long campaign.

use std::collections::BTreeSet;
use std::path::PathBuf;

use windlass_crash::{
    Campaign, CrashOptions, FaultKind, OpKind, Pick, WorkMode, run, run_campaign,
};
use windlass_needs::{Need, lacks};

/// The number of concurrent cases; each is one process that mostly waits for the disk.
const WORKERS: usize = 4;
/// Common operations; the sample interrupts each of them.
const COMMON: [OpKind; 6] = [
    OpKind::Write,
    OpKind::Sync,
    OpKind::Rename,
    OpKind::Create,
    OpKind::Mkdir,
    OpKind::Unlink,
];

/// The harness uses the seccomp listener of the binary, and the kernel allows one listener per process tree. So the
/// broker tier, which needs a listener, does not work here; the test needs namespaces.
fn cannot_run() -> bool {
    lacks(Need::Notifications) || lacks(Need::Namespaces)
}

/// Runs the cases, which must all hold. Returns the kinds of operations that were struck.
#[track_caller]
fn check(mode: WorkMode, faults: &[&str], pick: Pick) -> BTreeSet<OpKind> {
    let options = CrashOptions {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_windlass")),
        modes: vec![mode],
        faults: faults
            .iter()
            .map(|word| FaultKind::of(word).unwrap())
            .collect(),
        pick,
        workers: WORKERS,
        keep: false,
        wide_patches: false,
    };
    let report = run(&options, &|_| {}).unwrap_or_else(|err| panic!("{err:#}"));
    let told: Vec<_> = report
        .failures
        .iter()
        .map(|(case, why)| format!("{why}\n  again: {}", case.repeat()))
        .collect();
    assert!(
        told.is_empty(),
        "\n{}\n\n{}",
        told.join("\n"),
        report.table()
    );
    for row in &report.rows {
        assert!(
            row.events >= 190,
            "a run of about 200 events, not of {}",
            row.events
        );
        assert!(row.hits() > 0, "nothing was struck:\n{}", report.table());
    }
    let struck = report.rows.iter().flat_map(|row| row.hits_by_kind.keys());
    struck.copied().collect()
}

/// Kills at a sample of operations until each common kind was struck. Threads change the order of operations, so a
/// sample may miss a rare kind.
#[track_caller]
fn check_kills(mode: WorkMode) {
    let mut struck = BTreeSet::new();
    for seed in [6, 7, 8] {
        struck.append(&mut check(mode, &["kill"], Pick::Sample(24, seed)));
        if COMMON.iter().all(|kind| struck.contains(kind)) {
            return;
        }
    }
    panic!("of {COMMON:?}, only {struck:?} were struck");
}

#[test]
fn a_killed_in_place_run_is_resumed() {
    if cannot_run() {
        return;
    }
    check_kills(WorkMode::InPlace);
}

#[test]
fn a_killed_isolated_run_is_resumed() {
    if cannot_run() {
        return;
    }
    check_kills(WorkMode::Isolated);
}

#[test]
fn a_torn_write_loses_only_one_event() {
    if cannot_run() || lacks(Need::PidfdGetfd) {
        return;
    }
    check(WorkMode::InPlace, &["torn"], Pick::Every(240, 7));
}

#[test]
fn a_disk_error_fails_the_run_without_data_loss() {
    if cannot_run() {
        return;
    }
    check(
        WorkMode::InPlace,
        &["enospc", "eio", "erofs"],
        Pick::Every(380, 11),
    );
    check(
        WorkMode::Isolated,
        &["enospc", "eio", "erofs"],
        Pick::Every(380, 11),
    );
}

/// An empty campaign; each test sets its counts.
fn campaign() -> Campaign {
    Campaign {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_windlass")),
        runs: Vec::new(),
        kills: 0,
        saves: 0,
        full_disks: 0,
        seed: 11,
    }
}

#[track_caller]
fn check_campaign(campaign: &Campaign) {
    let tallies = run_campaign(campaign, &|_| {}).unwrap_or_else(|err| panic!("{err:#}"));
    assert!(!tallies.is_empty());
    for tally in tallies {
        assert!(
            tally.wrong.is_empty() && tally.cases > 0,
            "{}\n{}",
            tally.line(),
            tally.wrong.join("\n")
        );
    }
}

#[test]
fn concurrent_runs_in_one_workspace_land_or_report_that_they_did_not() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let runs = vec![2, 8];
    check_campaign(&Campaign { runs, ..campaign() });
}

#[test]
fn killed_runs_undos_and_redos_leave_an_undoable_state() {
    if cannot_run() {
        return;
    }
    check_campaign(&Campaign {
        kills: 6,
        ..campaign()
    });
}

#[test]
fn no_concurrent_edit_of_the_user_is_lost() {
    if cannot_run() {
        return;
    }
    check_campaign(&Campaign {
        saves: 20,
        ..campaign()
    });
}

#[test]
fn full_disks_lose_no_data() {
    if lacks(Need::Overlay) {
        return;
    }
    check_campaign(&Campaign {
        full_disks: 16,
        ..campaign()
    });
}
