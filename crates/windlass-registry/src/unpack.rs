//! Unpacks archives of agents into an empty directory. Nothing is written outside of it: paths with `..` and absolute
//! paths are rejected, and symlinks are made last and must point inside. The size and the number of entries are limited.

mod tar;
mod zip;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

/// Maximum size of all files of an archive together, in bytes.
const MAX_BYTES: u64 = 4 << 30;
const MAX_ENTRIES: usize = 200_000;
const MAX_PATH: usize = 4_096;
/// File extensions of installers, which cannot be unpacked.
const INSTALLERS: [&str; 6] = [".dmg", ".pkg", ".deb", ".rpm", ".msi", ".appimage"];

/// The format of a downloaded file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArchiveFormat {
    TarGz,
    TarBz2,
    Zip,
    /// Not an archive: the file is the program.
    Program,
}

impl ArchiveFormat {
    /// The format for a file name or URL path, by its extension.
    pub(crate) fn of(name: &str) -> Result<Self, String> {
        let name = name.to_ascii_lowercase();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        if ends(&INSTALLERS) {
            return Err(format!(
                "`{name}` is an installer, which cannot be unpacked"
            ));
        }
        if ends(&[".tar.xz", ".txz", ".tar.zst", ".7z", ".tar"]) {
            return Err(format!("the archive format of `{name}` is not supported"));
        }
        Ok(match () {
            () if ends(&[".tar.gz", ".tgz"]) => Self::TarGz,
            () if ends(&[".tar.bz2", ".tbz2"]) => Self::TarBz2,
            () if ends(&[".zip"]) => Self::Zip,
            () => Self::Program,
        })
    }
}

/// Unpacks a file into an empty directory. If the file is the program itself, `program` is its path there.
pub(crate) fn unpack(
    file: File,
    format: ArchiveFormat,
    folder: &Path,
    program: &Path,
) -> Result<(), String> {
    let mut into = Unpacker::new(folder);
    match format {
        ArchiveFormat::TarGz => {
            let unpacked = flate2::read::MultiGzDecoder::new(BufReader::new(file));
            tar::read(unpacked, &mut into)?;
        }
        ArchiveFormat::TarBz2 => {
            let unpacked = bzip2::read::MultiBzDecoder::new(BufReader::new(file));
            tar::read(unpacked, &mut into)?;
        }
        ArchiveFormat::Zip => zip::read(file, &mut into)?,
        ArchiveFormat::Program => into.file(program, true, file)?,
    }
    into.finish()
}

/// Writes entries of an archive into a directory, within the limits.
struct Unpacker<'a> {
    folder: &'a Path,
    bytes_left: u64,
    entries_left: usize,
    /// Symlinks and their targets. They are made after all files, so that no file is written through a symlink.
    links: Vec<(PathBuf, PathBuf)>,
}

impl<'a> Unpacker<'a> {
    fn new(folder: &'a Path) -> Self {
        Self {
            folder,
            bytes_left: MAX_BYTES,
            entries_left: MAX_ENTRIES,
            links: Vec::new(),
        }
    }

    fn directory(&mut self, name: &Path) -> Result<(), String> {
        self.count()?;
        match below(name)? {
            Some(path) => self.make_directory(&path),
            None => Ok(()),
        }
    }

    fn file(&mut self, name: &Path, runs: bool, content: impl Read) -> Result<(), String> {
        self.count()?;
        let path = below(name)?.ok_or_else(|| format!("{} is not a file", name.display()))?;
        self.make_directory(parent(&path))?;
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(if runs { 0o755 } else { 0o644 })
            .open(self.folder.join(&path));
        let mut file = file.map_err(|err| failed(&path, &err))?;
        let most = self.bytes_left;
        let copied = io::copy(&mut content.take(most.saturating_add(1)), &mut file);
        let copied = copied.map_err(|err| failed(&path, &err))?;
        self.bytes_left = most
            .checked_sub(copied)
            .ok_or_else(|| format!("its files together are larger than {MAX_BYTES} bytes"))?;
        Ok(())
    }

    /// Makes a hard link to a file that was already unpacked.
    fn hard_link(&mut self, name: &Path, other: &Path) -> Result<(), String> {
        self.count()?;
        let (Some(path), Some(other)) = (below(name)?, below(other)?) else {
            return Err(format!("{} is not a file", name.display()));
        };
        self.make_directory(parent(&path))?;
        std::fs::hard_link(self.folder.join(&other), self.folder.join(&path))
            .map_err(|err| failed(&path, &err))
    }

    /// Records a symlink, which is made at the end.
    fn link(&mut self, name: &Path, target: &Path) -> Result<(), String> {
        self.count()?;
        let path = below(name)?.ok_or_else(|| format!("{} is not a symlink", name.display()))?;
        if !stays_inside(&path, target) {
            return Err(format!(
                "the symlink {} points to {}, which is outside",
                path.display(),
                target.display()
            ));
        }
        self.links.push((path, target.to_owned()));
        Ok(())
    }

    fn finish(self) -> Result<(), String> {
        for (path, target) in &self.links {
            let mut above = parent(path).ancestors();
            // A symlink below another symlink would be made in the target of that one.
            if above.any(|folder| self.folder.join(folder).is_symlink()) {
                return Err(format!("{} is below a symlink", path.display()));
            }
            self.make_directory(parent(path))?;
            symlink(target, self.folder.join(path)).map_err(|err| failed(path, &err))?;
        }
        Ok(())
    }

    fn make_directory(&self, path: &Path) -> Result<(), String> {
        std::fs::create_dir_all(self.folder.join(path)).map_err(|err| failed(path, &err))
    }

    fn count(&mut self) -> Result<(), String> {
        let left = self.entries_left.checked_sub(1);
        self.entries_left =
            left.ok_or_else(|| format!("it has more than {MAX_ENTRIES} entries"))?;
        Ok(())
    }
}

/// A path in an archive, relative to its root; `None` for the root itself.
pub(crate) fn below(name: &Path) -> Result<Option<PathBuf>, String> {
    if name.as_os_str().len() > MAX_PATH {
        return Err(format!("it contains a path of more than {MAX_PATH} bytes"));
    }
    let mut path = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(format!("it contains the unsafe path {}", name.display()));
            }
        }
    }
    Ok((!path.as_os_str().is_empty()).then_some(path))
}

/// Whether the target of a symlink is inside the directory. `..` is allowed only at the beginning of the target, and only
/// as often as there are directories above the symlink. After a name, `..` could go up from the target of another symlink.
fn stays_inside(link: &Path, target: &Path) -> bool {
    let (mut depth, mut named) = (parent(link).components().count(), false);
    !target.as_os_str().is_empty()
        && target.as_os_str().len() <= MAX_PATH
        && target.components().all(|part| match part {
            Component::Normal(_) => {
                named = true;
                true
            }
            Component::CurDir => true,
            Component::ParentDir if depth > 0 && !named => {
                depth -= 1;
                true
            }
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => false,
        })
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn failed(path: &Path, err: &io::Error) -> String {
    format!("{}: {err}", path.display())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Seek as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    use super::*;

    /// One entry of a test archive.
    #[derive(Clone, Debug)]
    pub(super) enum TestEntry {
        File(&'static str, &'static str),
        Program(&'static str, &'static str),
        Link(&'static str, &'static str),
        Hard(&'static str, &'static str),
    }

    pub(super) fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        file
    }

    /// The files below a directory with their content: `x` marks programs, `->` the targets of symlinks.
    fn tree(folder: &Path) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(at) = folders.pop() {
            for entry in std::fs::read_dir(at).unwrap() {
                let path = entry.unwrap().path();
                let metadata = path.symlink_metadata().unwrap();
                let text = if metadata.is_symlink() {
                    format!("-> {}", path.read_link().unwrap().display())
                } else if metadata.is_dir() {
                    folders.push(path);
                    continue;
                } else {
                    let runs = if metadata.permissions().mode() & 0o111 == 0 {
                        ""
                    } else {
                        "x "
                    };
                    format!("{runs}{}", std::fs::read_to_string(&path).unwrap())
                };
                all.insert(
                    path.strip_prefix(folder).unwrap().display().to_string(),
                    text,
                );
            }
        }
        all
    }

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    fn bz2(bytes: &[u8]) -> Vec<u8> {
        let mut packed = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    /// Unpacks the same entries from each kind of archive, and expects the same tree or the same error.
    #[track_caller]
    fn check(entries: &[TestEntry], expect: Result<&[(&str, &str)], &str>) {
        let tar = tar::tests::pack(entries);
        let hard = entries
            .iter()
            .any(|entry| matches!(entry, TestEntry::Hard(..)));
        let mut archives = vec![
            (ArchiveFormat::TarGz, gz(&tar)),
            (ArchiveFormat::TarBz2, bz2(&tar)),
        ];
        if !hard {
            archives.push((ArchiveFormat::Zip, zip::tests::pack(entries)));
        }
        for (format, bytes) in archives {
            let around = tempfile::tempdir().unwrap();
            let folder = around.path().join("folder");
            std::fs::create_dir(&folder).unwrap();
            let result = unpack(file_of(&bytes), format, &folder, Path::new("unused"));
            match expect {
                Ok(expected) => {
                    result.unwrap();
                    let expected = expected.iter();
                    let expected =
                        expected.map(|(path, text)| (path.to_string(), text.to_string()));
                    assert_eq!(tree(&folder), expected.collect(), "{format:?}");
                }
                Err(why) => {
                    let err = result.unwrap_err();
                    assert!(err.contains(why), "{format:?}: {err}");
                }
            }
            assert_eq!(std::fs::read_dir(around.path()).unwrap().count(), 1);
        }
    }

    use TestEntry::{File as F, Hard as H, Link as L, Program as P};

    #[test]
    fn archives_are_unpacked_with_programs_and_symlinks() {
        let long: &str = "a-folder-with-a-long-name/a-folder-with-a-long-name/a-folder-with-a-long-name/\
                          a-folder-with-a-long-name/file";
        check(
            &[
                P("./bin/agent", "#!/bin/sh\n"),
                F("lib/data", "text"),
                F(long, "deep"),
                L("lib/current", "../bin/agent"),
                L("agent", "bin/agent"),
            ],
            Ok(&[
                (long, "deep"),
                ("agent", "-> bin/agent"),
                ("bin/agent", "x #!/bin/sh\n"),
                ("lib/current", "-> ../bin/agent"),
                ("lib/data", "text"),
            ]),
        );
        check(
            &[F("a", "text"), H("b/c", "a")],
            Ok(&[("a", "text"), ("b/c", "text")]),
        );
    }

    #[test]
    fn entries_cannot_escape_the_directory() {
        check(&[F("../a", "")], Err("the unsafe path ../a"));
        check(&[F("a/../../b", "")], Err("the unsafe path"));
        check(
            &[F("/tmp/windlass-escape", "")],
            Err("the unsafe path /tmp"),
        );
        check(&[L("a", "/etc")], Err("outside"));
        check(&[L("a", "..")], Err("outside"));
        check(&[L("b/a", "../../x")], Err("outside"));
        // A symlink to the directory itself, and one that goes up from there.
        check(&[L("d", "."), L("x", "d/../y")], Err("outside"));
        // A file is not written through a symlink.
        check(&[L("d", "e"), F("d/file", "text")], Err("d: File exists"));
        check(&[L("d", "e"), L("d/x", "../y")], Err("below a symlink"));
        check(&[H("a", "../b")], Err("the unsafe path ../b"));
        check(&[F("a", ""), F("a", "")], Err("a: File exists"));
    }

    #[test]
    fn the_format_is_determined_by_the_name() {
        let check = |name: &str, format| assert_eq!(ArchiveFormat::of(name).ok(), format, "{name}");
        check("a-1.0.tar.gz", Some(ArchiveFormat::TarGz));
        check("a.TGZ", Some(ArchiveFormat::TarGz));
        check("a.tar.bz2", Some(ArchiveFormat::TarBz2));
        check("a.zip", Some(ArchiveFormat::Zip));
        check("sigit-linux-amd64", Some(ArchiveFormat::Program));
        check("a.deb", None);
        check("a.tar.xz", None);
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new("bin/agent");
        unpack(
            file_of(b"text"),
            ArchiveFormat::Program,
            folder.path(),
            program,
        )
        .unwrap();
        assert_eq!(tree(folder.path())["bin/agent"], "x text");
    }

    #[test]
    fn limits_apply_to_all_files_together() {
        let folder = tempfile::tempdir().unwrap();
        let mut into = Unpacker::new(folder.path());
        into.bytes_left = 5;
        into.entries_left = 3;
        into.file(Path::new("a"), false, &b"123"[..]).unwrap();
        let err = into.file(Path::new("b"), false, &b"456"[..]).unwrap_err();
        assert!(err.contains("larger than"), "{err}");
        into.directory(Path::new("c")).unwrap();
        let err = into.directory(Path::new("d")).unwrap_err();
        assert!(err.contains("entries"), "{err}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn broken_archives_are_errors_or_stay_inside(
            at in 0usize..4_000, byte: u8, cut in 0usize..4_000, zipped: bool,
        ) {
            let entries = [P("bin/agent", "text"), L("agent", "bin/agent"), F("lib/a", "more text")];
            let mut bytes = match zipped {
                true => zip::tests::pack(&entries),
                false => tar::tests::pack(&entries),
            };
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(bytes.len() - cut % bytes.len() / 4);
            let around = tempfile::tempdir().unwrap();
            let folder = around.path().join("folder");
            std::fs::create_dir(&folder).unwrap();
            let mut into = Unpacker::new(&folder);
            let read = match zipped {
                true => zip::read(file_of(&bytes), &mut into),
                false => tar::read(&bytes[..], &mut into),
            };
            let _ = read.and_then(|()| into.finish());
            prop_assert_eq!(std::fs::read_dir(around.path()).unwrap().count(), 1);
        }
    }
}
