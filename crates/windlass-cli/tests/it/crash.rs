//! A sample of the crash harness through the built binary; `cargo xtask crash` does all of it. One operation of each
//! kind on each kind of file, and the last ones, so that every way of being interrupted is met each time.

use std::path::PathBuf;

use windlass_crash::{How, Kind, Options, Pick, Where, run};
use windlass_needs::{Need, lacks};

/// So many cases at a time; each is one process that mostly waits for the disk.
const WORKERS: usize = 4;
/// Each of these happens often, and each is struck.
const COMMON: [Kind; 6] = [
    Kind::Write,
    Kind::Sync,
    Kind::Rename,
    Kind::Create,
    Kind::Mkdir,
    Kind::Unlink,
];

/// The harness listens to the system calls of the binary, and the kernel allows one listener for a process and what it
/// starts. So the binary cannot hold commands by a listener of its own here; it needs the other tier.
fn cannot_run() -> bool {
    lacks(Need::Notifications) || lacks(Need::Namespaces)
}

#[track_caller]
fn check(place: Where, hows: &[&str], pick: Pick) {
    let options = Options {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_windlass")),
        places: vec![place],
        hows: hows.iter().map(|word| How::of(word).unwrap()).collect(),
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
        assert!(row.blows() > 0, "nothing was struck:\n{}", report.table());
        if row.how == How::Kill {
            // Threads make the order vary a little, so that the rare kinds may be missed by one.
            let missed: Vec<_> = COMMON
                .iter()
                .filter(|kind| !row.struck.contains_key(kind))
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
    check(Where::InPlace, &["kill"], Pick::Sample(24, 6));
}

#[test]
fn an_isolated_run_that_is_killed_goes_on_where_it_was() {
    if cannot_run() {
        return;
    }
    check(Where::Isolated, &["kill"], Pick::Sample(24, 6));
}

#[test]
fn a_write_that_is_torn_costs_that_one_event() {
    if cannot_run() || lacks(Need::PidfdGetfd) {
        return;
    }
    check(Where::InPlace, &["torn"], Pick::Every(240, 7));
}

#[test]
fn a_disk_that_fails_is_a_clear_end_and_no_loss() {
    if cannot_run() {
        return;
    }
    check(
        Where::InPlace,
        &["enospc", "eio", "erofs"],
        Pick::Every(380, 11),
    );
    check(
        Where::Isolated,
        &["enospc", "eio", "erofs"],
        Pick::Every(380, 11),
    );
}
