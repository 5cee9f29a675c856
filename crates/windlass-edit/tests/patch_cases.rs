//! Applies patches to directories: each case under `patches/` has `before/`, `patch` and either `after/` or `error`
//! (a substring of the error message).

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use windlass_edit::patch::{Patch, PatchChange, PatchedPath};

type Files = BTreeMap<String, Vec<u8>>;

fn load(dir: &Path, under: &str, into: &mut Files) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let entry = entry.unwrap();
        let name = format!("{under}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            load(&entry.path(), &format!("{name}/"), into);
        } else {
            into.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
}

/// Returns the files after the patch, or the error message.
fn apply(before: &Files, patch: &str) -> Result<Files, String> {
    let patch = Patch::parse(patch).map_err(|err| err.to_string())?;
    let plan = patch.plan(|path| match before.get(path) {
        Some(bytes) => PatchedPath::File(bytes.clone()),
        None if before
            .keys()
            .any(|name| name.starts_with(&format!("{path}/"))) =>
        {
            PatchedPath::Unusable("is a directory".into())
        }
        None => PatchedPath::Absent,
    });
    let mut files = before.clone();
    for change in plan.map_err(|err| err.to_string())?.changes {
        match change {
            PatchChange::Create { path, after } | PatchChange::Modify { path, after, .. } => {
                drop(files.insert(path, after))
            }
            PatchChange::Delete { path, .. } => drop(files.remove(&path)),
            PatchChange::Move {
                from, to, after, ..
            } => {
                files.remove(&from);
                files.insert(to, after);
            }
        }
    }
    Ok(files)
}

#[test]
fn every_directory_case_has_the_expected_result() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/patches");
    let mut failures = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let dir = entry.unwrap().path();
        if !dir.is_dir() {
            continue;
        }
        count += 1;
        let (mut before, mut after) = (Files::new(), Files::new());
        load(&dir.join("before"), "", &mut before);
        load(&dir.join("after"), "", &mut after);
        let patch = std::fs::read_to_string(dir.join("patch")).unwrap();
        let result = apply(&before, &patch);
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        match (std::fs::read_to_string(dir.join("error")), result) {
            (Ok(expect), Err(found)) if found.contains(expect.trim_end()) => {}
            (Err(_), Ok(found)) if found == after => {}
            (expect, found) => {
                failures.push(format!("{name}\n  expected {expect:?}\n  found {found:?}"))
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(count > 50, "cases are missing");
}

fn patch_like() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("*** Begin Patch".to_owned()),
        Just("*** End Patch".to_owned()),
        Just("*** Update File: a.txt".to_owned()),
        Just("*** Add File: b.txt".to_owned()),
        Just("*** Delete File: a.txt".to_owned()),
        Just("*** Move to: c.txt".to_owned()),
        Just("*** End of File".to_owned()),
        Just("diff --git a/a.txt b/a.txt".to_owned()),
        Just("--- a/a.txt".to_owned()),
        Just("+++ b/a.txt".to_owned()),
        Just("--- /dev/null".to_owned()),
        Just("new file mode 100644".to_owned()),
        Just("rename from a.txt".to_owned()),
        Just("\\ No newline at end of file".to_owned()),
        Just("@@".to_owned()),
        "@@ -[0-9]{1,2},[0-9] \\+[0-9],[0-9] @@",
        "[-+ ][abc]",
        "\\PC{0,10}",
    ];
    proptest::collection::vec(line, 0..14).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn anything_shaped_like_a_patch_ends_without_panic(patch in patch_like(), text in "[abc\r\n]{0,20}") {
        let before = Files::from([("a.txt".to_owned(), text.into_bytes())]);
        let _ = apply(&before, &patch);
    }

    #[test]
    fn any_bytes_end_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Patch::parse(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn applying_a_diff_gives_the_new_text(lines in proptest::collection::vec("[a-d]{0,2}", 1..30), edits in proptest::collection::vec((any::<prop::sample::Index>(), "[x-z]{1,3}"), 1..5)) {
        let before: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let mut changed = lines.clone();
        for (index, text) in &edits {
            let at = index.index(changed.len());
            changed[at] = text.clone();
        }
        let after: String = changed.iter().map(|line| format!("{line}\n")).collect();
        prop_assume!(before != after);
        let diff = windlass_edit::diff::unified("a/f", "b/f", &before, &after, 100_000);
        let files = Files::from([("f".to_owned(), before.into_bytes())]);
        prop_assert_eq!(apply(&files, &diff.text).map(|files| String::from_utf8(files["f"].clone()).unwrap()), Ok(after));
    }
}
