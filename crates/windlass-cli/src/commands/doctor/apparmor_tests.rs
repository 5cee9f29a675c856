use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A directory of profiles with a parser that logs its arguments and exits with `code`.
fn store(code: u8) -> (tempfile::TempDir, ProfileStore) {
    let dir = tempfile::tempdir().unwrap();
    let parser = dir.path().join("parser");
    let log = dir.path().join("log");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> '{}'\necho 'no such rule' >&2\nexit {code}\n",
        log.display()
    );
    std::fs::write(&parser, script).unwrap();
    std::fs::set_permissions(&parser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let profiles = dir.path().join("profiles");
    std::fs::create_dir_all(profiles.join("abi")).unwrap();
    std::fs::write(profiles.join("abi/4.0"), "").unwrap();
    (
        dir,
        ProfileStore {
            dir: profiles,
            parser,
        },
    )
}

fn text() -> String {
    profile(Path::new("/usr/local/bin/windlass")).unwrap()
}

#[test]
fn the_profile_names_the_program_and_grants_user_namespaces() {
    let text = text();
    assert!(
        text.contains(
            "\nprofile windlass \"/usr/local/bin/windlass\" flags=(unconfined) {\n  userns,\n"
        ),
        "{text}"
    );
    assert!(
        text.starts_with(MARK) && text.contains("abi <abi/4.0>,\ninclude <tunables/global>\n"),
        "{text}"
    );
}

#[test]
fn a_path_matches_only_itself() {
    for (path, expected) in [
        ("/opt/my tools/windlass", "/opt/my tools/windlass"),
        ("/opt/a*b?c/windlass", "/opt/a\\*b\\?c/windlass"),
        (
            "/opt/[x]{y,z}^/windlass",
            "/opt/\\[x\\]\\{y,z\\}\\^/windlass",
        ),
        ("/opt/@{HOME}/windlass", "/opt/@\\{HOME\\}/windlass"),
        ("/opt/\"q\"\\/windlass", "/opt/\\\"q\\\"\\\\/windlass"),
    ] {
        assert_eq!(pattern(Path::new(path)).unwrap(), expected);
    }
    for bad in ["windlass", "/opt/a\nb", "/opt/\x7f"] {
        assert!(pattern(Path::new(bad)).is_err(), "{bad:?}");
    }
}

#[test]
fn a_profile_is_written_loaded_and_removed() {
    let (dir, store) = store(0);
    store.check().unwrap();
    store.install(&text()).unwrap();
    let file = store.file();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text());
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o644
    );
    store.install(&text()).unwrap();
    assert!(store.remove().unwrap());
    assert!(!file.exists() && !store.remove().unwrap());
    let file = file.display();
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert_eq!(log, format!("-r {file}\n-r {file}\n-R {file}\n"));
    let left: Vec<_> = std::fs::read_dir(&store.dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["abi"], "no temporary file is left");
}

#[test]
fn a_failed_load_restores_the_directory() {
    let (_dir, store) = store(1);
    let failed = store.install(&text()).unwrap_err().text();
    assert!(failed.contains("no such rule"), "{failed}");
    assert!(!store.file().exists());
    let before = format!("{MARK}\n# the one before\n");
    std::fs::write(store.file(), &before).unwrap();
    store.install(&text()).unwrap_err();
    assert_eq!(std::fs::read_to_string(store.file()).unwrap(), before);
    store.remove().unwrap_err();
    assert!(
        store.file().exists(),
        "a profile that is still loaded keeps its file"
    );
}

#[test]
fn a_file_that_windlass_did_not_write_is_left_alone() {
    let (dir, store) = store(0);
    std::fs::write(store.file(), "profile windlass {}\n").unwrap();
    for failed in [
        store.check(),
        store.install(&text()),
        store.remove().map(drop),
    ] {
        let failed = failed.unwrap_err().text();
        assert!(failed.contains("was not written by windlass"), "{failed}");
    }
    assert!(!dir.path().join("log").exists());
}

#[test]
fn a_missing_abi_and_a_missing_parser_are_reported() {
    let (_dir, mut store) = store(0);
    std::fs::remove_file(store.dir.join("abi/4.0")).unwrap();
    assert!(store.check().unwrap_err().text().contains("abi/4.0"));
    store.parser = store.dir.join("no-parser");
    assert!(
        store
            .install(&text())
            .unwrap_err()
            .text()
            .contains("cannot be started")
    );
    assert!(!store.file().exists());
}

/// Needs AppArmor 4 with `APPARMOR_PARSER=/usr/sbin/apparmor_parser APPARMOR_DIR=/etc/apparmor.d`. It loads nothing.
#[test]
#[ignore = "needs the real apparmor_parser"]
fn a_real_parser_takes_the_profile() {
    let [parser, base] =
        ["APPARMOR_PARSER", "APPARMOR_DIR"].map(|name| std::env::var(name).unwrap());
    let dir = tempfile::tempdir().unwrap();
    for path in [
        "/usr/bin/windlass",
        "/opt/my tools/a*b?c/[x]{y,z}^/@{HOME}/\"q\"\\n/é,#(x)/it's/windlass",
    ] {
        let file = dir.path().join("windlass");
        std::fs::write(&file, profile(Path::new(path)).unwrap()).unwrap();
        let mut command = std::process::Command::new(&parser);
        let output = command
            .args(["-Q", "-K", "--skip-cache", "-b", &base])
            .arg(&file)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{path}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
