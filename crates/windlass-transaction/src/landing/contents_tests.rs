//! Tests of the content store: eviction, damaged bytes and abandoned drafts.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use super::super::path_state::CHUNK;
use super::super::testing::{file, scratch, swap};
use super::*;

fn text(contents: &Contents, name: &str) -> Result<String, ContentsError> {
    let mut text = String::new();
    contents.read(name)?.read_to_string(&mut text).unwrap();
    Ok(text)
}

fn place(dir: &Path, name: &str) -> PathBuf {
    dir.join(&name[..2]).join(&name[2..])
}

#[test]
fn stored_bytes_are_found_by_hash_and_are_private() {
    let dir = scratch();
    let dir = dir.path().join("store");
    let contents = Contents::open(&dir, 1000).unwrap();
    let (name, size) = contents.put_bytes(b"hello\n").unwrap();
    assert_eq!(
        (name.as_str(), size),
        (blake3::hash(b"hello\n").to_hex().as_str(), 6)
    );
    assert_eq!(text(&contents, &name).unwrap(), "hello\n");
    assert!(contents.has(&name));
    assert_eq!(contents.put_bytes(b"hello\n").unwrap().0, name);
    assert_eq!(contents.used().unwrap(), 6);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&place(&dir, &name))), (0o700, 0o600));
    assert_eq!(mode(place(&dir, &name).parent().unwrap()), 0o700);
    drop(contents);
    assert_eq!(Contents::open(&dir, 1000).unwrap().used().unwrap(), 6);
}

#[test]
fn a_file_is_kept_whole_wherever_it_stands_and_whatever_its_size() {
    let dir = scratch();
    let contents = Contents::open(&dir.path().join("store"), 1 << 30).unwrap();
    let bytes: Vec<u8> = (0..3 * CHUNK + 17).map(|n| (n % 251) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    file.seek(SeekFrom::Start(5)).unwrap();
    let (name, size) = contents.put(&file).unwrap();
    assert_eq!(
        (name.as_str(), size),
        (blake3::hash(&bytes).to_hex().as_str(), bytes.len() as u64)
    );
    let mut back = Vec::new();
    contents
        .read(&name)
        .unwrap()
        .read_to_end(&mut back)
        .unwrap();
    assert!(back == bytes);
}

#[test]
fn the_cap_bounds_older_bytes_and_not_what_a_change_replaces() {
    let dir = scratch();
    let contents = Contents::open(&dir.path().join("store"), 10).unwrap();
    let (first, _) = contents.put_bytes(b"12345678").unwrap();
    let change = [swap(
        "a",
        file("much longer than the cap", 0o644),
        file("new", 0o644),
    )];
    let source = Contents::open(&dir.path().join("source"), 1000).unwrap();
    source.put_bytes(b"new").unwrap();
    contents
        .store_after(&change, &source, Durability::Synced, &|_| false)
        .unwrap();
    assert!(!contents.has(&first), "older bytes go first");
    assert_eq!(
        contents.used().unwrap(),
        0,
        "new bytes are stored only under the cap"
    );
    assert_eq!(contents.over_cap(), None);
    let (large, size) = contents.put_bytes(b"much longer than the cap").unwrap();
    let over_cap = contents.over_cap().unwrap();
    assert_eq!((over_cap.used, over_cap.cap), (size, 10));
    // The bytes stay while `keep` accepts them; otherwise the next change evicts them.
    let next = [swap("b", file("old", 0o644), file("new", 0o644))];
    contents
        .store_after(&next, &source, Durability::Synced, &|name| name == large)
        .unwrap();
    assert!(contents.has(&large));
    contents
        .store_after(&next, &source, Durability::Synced, &|_| false)
        .unwrap();
    assert!(!contents.has(&large) && contents.has(blake3::hash(b"new").to_hex().as_str()));
}

#[test]
fn the_oldest_unneeded_bytes_are_evicted_first() {
    let dir = scratch();
    let store = dir.path().join("store");
    let contents = Contents::open(&store, 9).unwrap();
    let names: Vec<String> = ["aaa", "bbb", "ccc"]
        .map(|it| contents.put_bytes(it.as_bytes()).unwrap().0)
        .into();
    for (age, name) in names.iter().rev().enumerate() {
        let file = File::options()
            .write(true)
            .open(place(&store, name))
            .unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(10 + age as u64))
            .unwrap();
    }
    assert_eq!(contents.make_room(3, &|name| name == names[0]).unwrap(), 3);
    let there = || {
        names
            .iter()
            .map(|name| contents.has(name))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (there(), contents.used().unwrap()),
        (vec![true, false, true], 6)
    );
    assert_eq!(contents.make_room(3, &|_| true).unwrap(), 0);
    // If it cannot free enough, it frees as much as it can.
    assert_eq!(contents.make_room(9, &|name| name == names[0]).unwrap(), 3);
    assert_eq!(there(), vec![true, false, false]);
}

#[test]
fn damaged_bytes_are_not_used_and_are_replaced_by_good_ones() {
    let dir = scratch();
    let contents = Contents::open(dir.path(), 100).unwrap();
    let (name, _) = contents.put_bytes(b"good").unwrap();
    std::fs::write(place(dir.path(), &name), b"evil").unwrap();
    assert_eq!(
        text(&contents, &name),
        Err(ContentsError::Damaged(name.clone()))
    );
    contents.put_bytes(b"good").unwrap();
    assert_eq!(text(&contents, &name).unwrap(), "good");
}

#[test]
fn a_name_that_is_not_a_hash_finds_nothing() {
    let dir = scratch();
    let contents = Contents::open(&dir.path().join("store"), 100).unwrap();
    std::fs::write(dir.path().join("secret"), "s").unwrap();
    for name in [
        "",
        "../secret",
        "é",
        &"../".repeat(21).replace("../../..", "../secr"),
        &"A".repeat(64),
    ] {
        assert_eq!(
            text(&contents, name),
            Err(ContentsError::Missing(name.to_owned())),
            "{name}"
        );
        assert!(!contents.has(name));
    }
}

#[test]
fn old_drafts_of_killed_processes_are_removed() {
    let dir = scratch();
    let contents = Contents::open(dir.path(), 100).unwrap();
    for (name, age) in [("draft-old", 2), ("draft-young", 0)] {
        let file = File::create(dir.path().join(name)).unwrap();
        file.set_modified(SystemTime::now() - DRAFT_MAX_AGE * age)
            .unwrap();
    }
    contents.make_room(0, &|_| true).unwrap();
    assert!(!dir.path().join("draft-old").exists() && dir.path().join("draft-young").exists());
}
