//! A sample of the crash harness through the built binary; `cargo xtask crash` does all of it, and `cargo xtask crash
//! campaign` the long form of the campaign. One operation of each kind on each kind of file, and the last ones, so that
//! every way of being interrupted is met each time.

use std::path::PathBuf;

use windlass_crash::{
    Campaign, CrashOptions, FaultKind, OpKind, Pick, WorkMode, run, run_campaign,
};
use windlass_needs::{Need, lacks};

/// So many cases at a time; each is one process that mostly waits for the disk.
const WORKERS: usize = 4;
/// Each of these happens often, and each is struck.
const COMMON: [OpKind; 6] = [
    OpKind::Write,
    OpKind::Sync,
    OpKind::Rename,
    OpKind::Create,
    OpKind::Mkdir,
    OpKind::Unlink,
];

/// The harness listens to the system calls of the binary, and the kernel allows one listener for a process and what it
/// starts. So the binary cannot hold commands by a listener of its own here; it needs the other tier.
fn cannot_run() -> bool {
    lacks(Need::Notifications) || lacks(Need::Namespaces)
}

#[track_caller]
fn check(mode: WorkMode, faults: &[&str], pick: Pick) {
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
        if row.fault == FaultKind::Kill {
            // Threads make the order vary a little, so that the rare kinds may be missed by one.
            let missed: Vec<_> = COMMON
                .iter()
                .filter(|kind| !row.hits_by_kind.contains_key(kind))
                .collect();
            assert!(
                missed.is_empty(),
                "no operation of these kinds was struck: {missed:?}\n{}",
                report.table()
            );
        }
    }
}

#[test]
fn a_run_in_place_that_is_killed_goes_on_where_it_was() {
    if cannot_run() {
        return;
    }
    check(WorkMode::InPlace, &["kill"], Pick::Sample(24, 6));
}

#[test]
fn an_isolated_run_that_is_killed_goes_on_where_it_was() {
    if cannot_run() {
        return;
    }
    check(WorkMode::Isolated, &["kill"], Pick::Sample(24, 6));
}

#[test]
fn a_write_that_is_torn_costs_that_one_event() {
    if cannot_run() || lacks(Need::PidfdGetfd) {
        return;
    }
    check(WorkMode::InPlace, &["torn"], Pick::Every(240, 7));
}

#[test]
fn a_disk_that_fails_is_a_clear_end_and_no_loss() {
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

/// A campaign of nothing; each test says what it adds.
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
fn many_runs_in_one_workspace_land_or_say_that_they_did_not() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let runs = vec![2, 8];
    check_campaign(&Campaign { runs, ..campaign() });
}

#[test]
fn runs_undos_and_redos_that_are_killed_leave_one_state_that_can_be_undone() {
    if cannot_run() {
        return;
    }
    check_campaign(&Campaign {
        kills: 6,
        ..campaign()
    });
}

#[test]
fn no_save_beside_a_run_is_lost() {
    if cannot_run() {
        return;
    }
    check_campaign(&Campaign {
        saves: 20,
        ..campaign()
    });
}

#[test]
fn disks_that_are_full_lose_nothing() {
    if lacks(Need::Overlay) {
        return;
    }
    check_campaign(&Campaign {
        full_disks: 16,
        ..campaign()
    });
}
