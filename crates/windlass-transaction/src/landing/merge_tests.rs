//! Cases of the three-way merge, and properties of every merge.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(base: &str, ours: &str, theirs: &str, expect: Result<&str, MergeConflict>) {
    let merged = |ours: &str, theirs: &str| {
        three_way(base.as_bytes(), ours.as_bytes(), theirs.as_bytes())
            .map(|bytes| String::from_utf8(bytes).unwrap())
    };
    assert_eq!(merged(ours, theirs), expect.clone().map(str::to_owned));
    assert_eq!(
        merged(theirs, ours),
        expect.map(str::to_owned),
        "the other way round"
    );
}

#[test]
fn separate_changes_are_merged() {
    check(
        "1\n2\n3\n4\n5\n",
        "1\nX\n3\n4\n5\n",
        "1\n2\n3\n4\nY\n",
        Ok("1\nX\n3\n4\nY\n"),
    );
    check(
        "1\n2\n3\n",
        "0\n1\n2\n3\n",
        "1\n2\n3\n4\n",
        Ok("0\n1\n2\n3\n4\n"),
    );
    check(
        "1\n2\n3\n4\n5\n",
        "1\n3\n4\n5\n",
        "1\n2\n3\n4\n",
        Ok("1\n3\n4\n"),
    );
    check(
        "1\n2\n3\n4\n5\n6\n7\n",
        "1\n2\n4\n5\n6\n7\n",
        "1\n2\n3\n4\nX\nY\n6\n7\n",
        Ok("1\n2\n4\nX\nY\n6\n7\n"),
    );
}

#[test]
fn equal_changes_are_applied_once() {
    check("1\n2\n3\n", "1\nX\n3\n", "1\nX\n3\n", Ok("1\nX\n3\n"));
    check(
        "1\n2\n3\n4\n5\n",
        "1\nX\n3\n4\n5\n",
        "1\nX\n3\n4\nY\n",
        Ok("1\nX\n3\n4\nY\n"),
    );
}

#[test]
fn adjacent_changes_conflict() {
    check(
        "1\n2\n3\n",
        "1\nX\n3\n",
        "1\nY\n3\n",
        Err(MergeConflict::Lines(2)),
    );
    check(
        "1\n2\n3\n",
        "X\n2\n3\n",
        "1\nY\n3\n",
        Err(MergeConflict::Lines(1)),
    );
    check(
        "1\n2\n",
        "1\nX\n2\n",
        "1\nY\n2\n",
        Err(MergeConflict::Lines(2)),
    );
    check("", "X\n", "Y\n", Err(MergeConflict::Lines(1)));
    check("1\n2\n3\n", "", "1\nX\n3\n", Err(MergeConflict::Lines(1)));
}

#[test]
fn line_endings_stay() {
    check(
        "1\r\n2\r\n3\r\n",
        "1\r\n2\r\nX\r\n",
        "0\r\n2\r\n3\r\n",
        Ok("0\r\n2\r\nX\r\n"),
    );
    check("1\n2\n3", "X\n2\n3", "1\n2\n3\n", Ok("X\n2\n3\n"));
    check("1\n2\n3\n", "X\n2\n3\n", "1\n2\n3", Ok("X\n2\n3"));
    check(
        "1\n2\n3\n",
        "1\n2\n3\n4",
        "1\n2\n3\n5\n",
        Err(MergeConflict::Lines(4)),
    );
}

#[test]
fn binary_files_are_taken_whole_or_refused() {
    check("a\0", "b\0", "a\0", Ok("b\0"));
    check(
        "a\0\n2\n3\n",
        "b\0\n2\n3\n",
        "a\0\n2\nX\n",
        Err(MergeConflict::Binary),
    );
}

#[test]
fn a_long_text_is_merged_in_bounded_time_and_a_longer_one_is_refused() {
    let text = |mark: usize, mark_line: &str, len: usize| -> Vec<u8> {
        (0..len)
            .flat_map(|n| {
                if n == mark {
                    mark_line.to_owned()
                } else {
                    format!("{}\n", n % 7)
                }
                .into_bytes()
            })
            .collect()
    };
    let (base, ours, theirs) = (
        text(0, "0\n", 50_000),
        text(10, "X\n", 50_000),
        text(49_000, "Y\n", 50_000),
    );
    let merged = three_way(&base, &ours, &theirs).unwrap();
    assert!(merged.windows(2).any(|it| it == b"X\n") && merged.windows(2).any(|it| it == b"Y\n"));
    let (base, ours, theirs) = (
        text(0, "", 200_002),
        text(10, "X\n", 200_002),
        text(11, "Y\n", 200_002),
    );
    assert_eq!(
        three_way(&base, &ours, &theirs),
        Err(MergeConflict::TooLong)
    );
}

/// Lines of few kinds, so that they repeat, with all line endings.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just("a\n"),
        Just("b\n"),
        Just("c\r\n"),
        Just("\n"),
        Just("d\n")
    ];
    (
        prop::collection::vec(line, 0..12),
        prop_oneof![3 => Just(""), 1 => Just("end")],
    )
        .prop_map(|(lines, last)| (lines.concat() + last).into_bytes())
}

/// A text with lines inserted, removed and replaced. New lines are marked with `who`.
fn edited(base: &[u8], edits: &[(u8, u8)], who: &str) -> Vec<u8> {
    let mut all: Vec<Vec<u8>> = lines(base).into_iter().map(<[u8]>::to_vec).collect();
    for (number, (at, what)) in edits.iter().enumerate() {
        let at = usize::from(*at) % (all.len() + 1);
        let fresh = format!("{who}{number}\n").into_bytes();
        match what % 3 {
            0 if all
                .get(at.wrapping_sub(1))
                .is_none_or(|line| line.ends_with(b"\n")) =>
            {
                all.insert(at, fresh)
            }
            1 if at < all.len() => drop(all.remove(at)),
            _ if at < all.len() => all[at] = fresh,
            _ => {}
        }
    }
    all.concat()
}

fn edits() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec((any::<u8>(), any::<u8>()), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn properties_of_every_merge(base in text(), ours in edits(), theirs in edits()) {
        let (ours, theirs) = (edited(&base, &ours, "ours"), edited(&base, &theirs, "theirs"));
        prop_assert_eq!(three_way(&base, &ours, &base).unwrap(), ours.clone());
        prop_assert_eq!(three_way(&base, &base, &theirs).unwrap(), theirs.clone());
        prop_assert_eq!(three_way(&base, &ours, &ours).unwrap(), ours.clone());
        let merged = three_way(&base, &ours, &theirs);
        prop_assert_eq!(&merged, &three_way(&base, &theirs, &ours));
        if let Ok(merged) = merged {
            let found = lines(&merged);
            for line in lines(&ours).into_iter().chain(lines(&theirs)) {
                let new = line.starts_with(b"ours") || line.starts_with(b"theirs");
                prop_assert!(!new || found.contains(&line), "{:?} is lost", String::from_utf8_lossy(line));
            }
            // Every line comes from one of the inputs.
            for line in &found {
                let from = [&base, &ours, &theirs].iter().any(|side| lines(side).contains(line));
                prop_assert!(from, "{:?} is made up", String::from_utf8_lossy(line));
            }
        }
    }
}
