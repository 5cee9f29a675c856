use std::time::{Duration, Instant};

use super::*;

const PATHS: &[&str] = &[
    "README.md",
    "src/",
    "src/main.rs",
    "src/lib.rs",
    "src/view/",
    "src/view/main view.rs",
    "tests/main.rs",
    "docs/Überblick.md",
];

#[track_caller]
fn check(query: &str, expect: &[&str]) {
    let index = FileIndex::from_paths(PATHS.iter().copied());
    let found = FileSearch::default().find(&index, query, 4);
    let paths: Vec<&str> = found.iter().map(|found| found.path.as_str()).collect();
    assert_eq!(paths, expect, "{query:?}");
    // The same query, typed letter by letter.
    let mut search = FileSearch::default();
    let mut typed = String::new();
    let mut last = search.find(&index, "", 4);
    for c in query.chars() {
        typed.push(c);
        last = search.find(&index, &typed, 4);
    }
    assert_eq!(last, found, "{query:?} typed");
}

#[test]
fn the_best_files_come_first() {
    check(
        "main",
        &["src/main.rs", "tests/main.rs", "src/view/main view.rs"],
    );
    check(
        "smain",
        &["src/main.rs", "src/view/main view.rs", "tests/main.rs"],
    );
    check("README", &["README.md"]);
    check("xyz", &[]);
    check("über", &["docs/Überblick.md"]);
    check("", &["src/", "README.md", "src/view/", "src/lib.rs"]);
}

#[test]
fn a_directory_narrows_the_files() {
    check(
        "src/",
        &[
            "src/view/",
            "src/lib.rs",
            "src/main.rs",
            "src/view/main view.rs",
        ],
    );
    check("src/main", &["src/main.rs", "src/view/main view.rs"]);
    check("./tests/", &["tests/main.rs"]);
    check("sr/vi/", &["src/view/", "src/view/main view.rs"]);
}

#[test]
fn files_found_later_are_added_to_the_results() {
    let mut search = FileSearch::default();
    let few = FileIndex::from_paths(PATHS.iter().copied().take(3));
    let all = FileIndex::from_paths(PATHS.iter().copied());
    assert_eq!(search.find(&few, "main", 9).len(), 1);
    assert_eq!(search.find(&all, "main", 9).len(), 3);
}

/// Run it with `cargo test --release -p windlass-tui -- --ignored --nocapture a_key_of_the_picker`.
#[test]
#[ignore = "measures time; run it in release"]
#[allow(clippy::print_stderr)]
fn a_key_of_the_picker_takes_less_than_30_ms() {
    let words = [
        "engine", "session", "composer", "view", "parser", "Tests", "util_x", "mod",
    ];
    let word = |n: usize| words[n % words.len()];
    let paths: Vec<String> = (0..100_000)
        .map(|n| {
            let (a, b, c) = (word(n), word(n / 7), word(n / 49));
            format!("crates/{a}-{}/src/{b}/{c}_{n}.rs", n % 97)
        })
        .collect();
    let index = FileIndex::from_paths(paths.iter().map(String::as_str));
    let mut worst = Duration::ZERO;
    for query in [
        "composer",
        "srcviewmod",
        "c/e/s9",
        "crates/engine-1/src/par",
        "zzz",
        "rs",
    ] {
        let mut search = FileSearch::default();
        for end in 0..=query.len() {
            let (start, cpu_start) = (Instant::now(), cpu_time());
            let found = search.find(&index, &query[..end], 50).len();
            let time = cpu_time().saturating_sub(cpu_start);
            worst = worst.max(time);
            eprintln!(
                "{:24} {found:3} results {time:?} of CPU, {:?}",
                &query[..end],
                start.elapsed()
            );
        }
    }
    assert!(worst.as_millis() < 30, "{worst:?}");
}

/// The time that this thread used, so that other work on the machine does not matter.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
