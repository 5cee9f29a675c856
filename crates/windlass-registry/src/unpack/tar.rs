//! Reads tar archives as a stream: the POSIX format with the long names of GNU and pax. Only one header and its long names
//! are in memory.

use std::ffi::OsStr;
use std::io::{Read, copy, sink};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::Unpacker;

const BLOCK: usize = 512;
/// Maximum size of an extension header in bytes.
const MAX_EXTENSION: u64 = 64 << 10;

/// Values from extension headers that apply to the next entry.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

/// Unpacks all entries of an archive.
pub(super) fn read(mut from: impl Read, into: &mut Unpacker<'_>) -> Result<(), String> {
    let mut extension = Extension::default();
    while let Some(header) = next_header(&mut from)? {
        let size = match extension.size {
            Some(size) => size,
            None => number(&header[124..136]).ok_or("an entry has no size")?,
        };
        let mut content = from.by_ref().take(size);
        match header[156] {
            b'L' => extension.path = Some(name_of(&mut content)?),
            b'K' => extension.link = Some(name_of(&mut content)?),
            b'x' => extension.read(&extended(&mut content)?)?,
            // Global headers contain no names.
            b'g' => drop(extended(&mut content)?),
            kind => {
                let Extension { path, link, .. } = std::mem::take(&mut extension);
                let name = path.unwrap_or_else(|| short_name(&header));
                let link = link.unwrap_or_else(|| text(&header[157..257]).to_vec());
                let (name, link) = (as_path(&name), as_path(&link));
                match kind {
                    b'0' | 0 | b'7' if name.as_os_str().as_bytes().ends_with(b"/") => {
                        into.directory(name)?;
                    }
                    b'0' | 0 | b'7' => {
                        let mode = number(&header[100..108]).unwrap_or_default();
                        into.file(name, mode & 0o100 != 0, &mut content)?;
                        if content.limit() > 0 {
                            return Err(short());
                        }
                    }
                    b'1' => into.hard_link(name, link)?,
                    b'2' => into.link(name, link)?,
                    b'5' => into.directory(name)?,
                    other => {
                        return Err(format!(
                            "{} is not a file, a directory or a link (kind {other})",
                            name.display()
                        ));
                    }
                }
            }
        }
        // The size is untrusted, so the arithmetic must not overflow.
        let padding = size.wrapping_neg() % BLOCK as u64;
        let skip = content.limit().checked_add(padding).ok_or_else(short)?;
        let skipped = copy(&mut from.by_ref().take(skip), &mut sink());
        if skipped.map_err(|err| err.to_string())? < skip {
            return Err(short());
        }
    }
    Ok(())
}

impl Extension {
    /// Reads lines of `LENGTH KEY=VALUE`. The length includes the whole line.
    fn read(&mut self, mut lines: &[u8]) -> Result<(), String> {
        let broken = || "an entry has a broken extension header".to_owned();
        while !lines.is_empty() {
            let space = lines
                .iter()
                .position(|byte| *byte == b' ')
                .ok_or_else(broken)?;
            let length = std::str::from_utf8(&lines[..space]).ok();
            let length: usize = length
                .and_then(|text| text.parse().ok())
                .ok_or_else(broken)?;
            let line = lines.get(space + 1..length).ok_or_else(broken)?;
            let line = line.strip_suffix(b"\n").ok_or_else(broken)?;
            let equals = line
                .iter()
                .position(|byte| *byte == b'=')
                .ok_or_else(broken)?;
            let (key, value) = (&line[..equals], &line[equals + 1..]);
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => {
                    let size = std::str::from_utf8(value).ok();
                    self.size = Some(size.and_then(|text| text.parse().ok()).ok_or_else(broken)?);
                }
                _ => {}
            }
            lines = &lines[length..];
        }
        Ok(())
    }
}

/// The header of the next entry; none at the end of the archive.
fn next_header(from: &mut impl Read) -> Result<Option<[u8; BLOCK]>, String> {
    let mut header = [0; BLOCK];
    let mut read = 0;
    while read < BLOCK {
        match from.read(&mut header[read..]) {
            Ok(0) if read == 0 => return Ok(None),
            Ok(0) => return Err(short()),
            Ok(more) => read += more,
            Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err.to_string()),
        }
    }
    if header == [0; BLOCK] {
        return Ok(None);
    }
    // The checksum is computed as if its own field contained spaces.
    let blank = |(at, byte): (usize, &u8)| {
        u64::from(if (148..156).contains(&at) {
            b' '
        } else {
            *byte
        })
    };
    let sum: u64 = header.iter().enumerate().map(blank).sum();
    if number(&header[148..156]) != Some(sum) {
        return Err("it is not a tar archive, or it is damaged".to_owned());
    }
    Ok(Some(header))
}

fn extended(content: &mut impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = content.take(MAX_EXTENSION + 1).read_to_end(&mut bytes);
    read.map_err(|err| err.to_string())?;
    match bytes.len() as u64 > MAX_EXTENSION {
        true => Err("an entry has a name that is too long".to_owned()),
        false => Ok(bytes),
    }
}

fn name_of(content: &mut impl Read) -> Result<Vec<u8>, String> {
    Ok(text(&extended(content)?).to_vec())
}

/// The name in the header, with its prefix from a separate field.
fn short_name(header: &[u8; BLOCK]) -> Vec<u8> {
    let name = text(&header[..100]);
    let prefix = text(&header[345..500]);
    // The older GNU format uses the field for other values.
    match &header[257..263] == b"ustar\0" && !prefix.is_empty() {
        true => [prefix, b"/", name].concat(),
        false => name.to_vec(),
    }
}

fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0);
    &field[..end.unwrap_or(field.len())]
}

/// A number in octal digits, or in binary for large numbers.
fn number(field: &[u8]) -> Option<u64> {
    if field.first()? & 0x80 != 0 {
        let (head, tail) = field.split_at(field.len().checked_sub(8)?);
        let empty = head
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == if at == 0 { 0x80 } else { 0 });
        return empty.then(|| u64::from_be_bytes(tail.try_into().unwrap_or_default()));
    }
    let digits = std::str::from_utf8(text(field)).ok()?.trim();
    match digits {
        "" => Some(0),
        digits => u64::from_str_radix(digits, 8).ok(),
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn short() -> String {
    "the archive ends too early".to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::TestEntry;
    use super::*;

    fn header(name: &[u8], kind: u8, mode: u32, size: usize, link: &str) -> Vec<u8> {
        let mut header = vec![0; BLOCK];
        let short = &name[..name.len().min(100)];
        header[..short.len()].copy_from_slice(short);
        header[100..107].copy_from_slice(format!("{mode:07o}").as_bytes());
        header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        header[148..156].copy_from_slice(b"        ");
        header[156] = kind;
        header[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header[257..263].copy_from_slice(b"ustar\0");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        header
    }

    fn padded(bytes: &[u8]) -> Vec<u8> {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(BLOCK), 0);
        padded
    }

    /// An archive of these entries. Long names are in GNU extension headers.
    pub(in super::super) fn pack(entries: &[TestEntry]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in entries {
            let (name, kind, mode, content, link) = match entry {
                TestEntry::File(name, content) => (name, b'0', 0o644, *content, ""),
                TestEntry::Program(name, content) => (name, b'0', 0o755, *content, ""),
                TestEntry::Link(name, target) => (name, b'2', 0o777, "", *target),
                TestEntry::Hard(name, other) => (name, b'1', 0o644, "", *other),
            };
            if name.len() > 100 {
                bytes.extend(header(b"././@LongLink", b'L', 0, name.len() + 1, ""));
                bytes.extend(padded(&[name.as_bytes(), b"\0"].concat()));
            }
            bytes.extend(header(name.as_bytes(), kind, mode, content.len(), link));
            bytes.extend(padded(content.as_bytes()));
        }
        bytes.extend([0; 2 * BLOCK]);
        bytes
    }

    /// Unpacks an archive with this pax header before a file with the name `short`, and returns the name of the file.
    fn with_pax(pax: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().map_err(|err| err.to_string())?;
        let mut bytes = header(b"pax", b'x', 0, pax.len(), "");
        bytes.extend(padded(pax.as_bytes()));
        bytes.extend(pack(&[TestEntry::File("short", "text")]));
        let mut into = Unpacker::new(folder.path());
        read(&bytes[..], &mut into)?;
        let entry = std::fs::read_dir(folder.path())
            .map_err(|err| err.to_string())?
            .next();
        Ok(entry.map_or_else(String::new, |entry| {
            entry.map_or_else(
                |err| err.to_string(),
                |entry| entry.file_name().to_string_lossy().into_owned(),
            )
        }))
    }

    #[test]
    fn pax_names_override_those_of_the_header() {
        assert_eq!(with_pax("13 path=long\n").as_deref(), Ok("long"));
        assert_eq!(with_pax("11 mtime=1\n").as_deref(), Ok("short"));
        for broken in ["x", "99 path=long\n", "13 path=longx", "0 =\n", "5 ab\n"] {
            assert!(with_pax(broken).is_err(), "{broken}");
        }
        assert!(with_pax("13 size=9999\n").is_err_and(|err| err.contains("too early")));
        let long = "x".repeat(MAX_EXTENSION as usize);
        assert!(with_pax(&long).is_err());
        assert!(with_pax(&format!("{long}x")).is_err_and(|err| err.contains("too long")));
    }

    #[test]
    fn a_size_near_the_maximum_is_an_error() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let pax = "29 size=18446744073709551615\n";
        let mut bytes = header(b"pax", b'x', 0, pax.len(), "");
        bytes.extend(padded(pax.as_bytes()));
        bytes.extend(header(b"folder", b'5', 0o755, 0, ""));
        let mut into = Unpacker::new(folder.path());
        assert!(read(&bytes[..], &mut into).is_err_and(|err| err.contains("too early")));
    }

    #[test]
    fn devices_are_refused() {
        let folder = std::env::temp_dir();
        let mut into = Unpacker::new(&folder);
        let bytes = header(b"null", b'3', 0o666, 0, "");
        assert!(read(&bytes[..], &mut into).is_err_and(|err| err.contains("kind 51")));
    }
}
