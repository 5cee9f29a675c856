//! Reads zip archives by the central directory at their end. Entries may be stored or deflated; zip64 and encrypted
//! archives are rejected.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::Unpacker;

/// The signature of the end record, and its size without a comment.
const END: (&[u8], u64) = (b"PK\x05\x06", 22);
const ENTRY: (&[u8], usize) = (b"PK\x01\x02", 46);
const LOCAL: (&[u8], usize) = (b"PK\x03\x04", 30);
/// Maximum size of the central directory in bytes.
const MAX_DIRECTORY: u64 = 64 << 20;
/// Maximum length of the target of a symlink.
const MAX_LINK: u64 = 4_096;
/// The bits of a file mode for the file type.
const KIND: u32 = 0o170_000;
const SYMLINK: u32 = 0o120_000;

/// Unpacks all entries of an archive.
pub(super) fn read(mut from: File, into: &mut Unpacker<'_>) -> Result<(), String> {
    let directory = directory(&mut from).map_err(|err| err.to_string())?;
    let mut rest = &directory[..];
    while !rest.is_empty() {
        let head = rest.get(..ENTRY.1).filter(|head| head.starts_with(ENTRY.0));
        let head = head.ok_or_else(broken)?;
        let name_end = ENTRY.1 + usize::from(short(head, 28));
        let end = name_end + usize::from(short(head, 30)) + usize::from(short(head, 32));
        let name = rest.get(ENTRY.1..name_end).ok_or_else(broken)?;
        let name =
            std::str::from_utf8(name).map_err(|_| "the name of an entry is not valid UTF-8")?;
        rest = rest.get(end..).ok_or_else(broken)?;
        if short(head, 8) & 1 != 0 {
            return Err(format!("{name} is encrypted"));
        }
        let mode = long(head, 38) >> 16;
        if name.ends_with('/') {
            into.directory(Path::new(name))?;
            continue;
        }
        let content = Content::open(&mut from, head)?;
        if mode & KIND == SYMLINK {
            let mut target = String::new();
            let read = content.take(MAX_LINK + 1).read_to_string(&mut target);
            read.map_err(|err| format!("{name}: {err}"))?;
            into.link(Path::new(name), Path::new(&target))?;
        } else {
            into.file(Path::new(name), mode & 0o100 != 0, content)?;
        }
    }
    Ok(())
}

/// The content of an entry. At the end of the stream, its checksum and its length are checked.
struct Content<'a> {
    bytes: Box<dyn Read + 'a>,
    sum: crc32fast::Hasher,
    expected: u32,
    left: u64,
}

impl<'a> Content<'a> {
    fn open(from: &'a mut File, head: &[u8]) -> Result<Self, String> {
        let (packed, size, at) = (long(head, 20), long(head, 24), long(head, 42));
        if [packed, size, at].contains(&u32::MAX) {
            return Err("the zip64 format is not supported".to_owned());
        }
        let mut local = [0; LOCAL.1];
        let read = from
            .seek(SeekFrom::Start(u64::from(at)))
            .and_then(|_| from.read_exact(&mut local));
        read.map_err(|_| broken())?;
        if !local.starts_with(LOCAL.0) {
            return Err(broken());
        }
        let skip = i64::from(short(&local, 26)) + i64::from(short(&local, 28));
        from.seek(SeekFrom::Current(skip)).map_err(|_| broken())?;
        let stored = BufReader::new(from.take(u64::from(packed)));
        let bytes: Box<dyn Read> = match short(head, 10) {
            0 => Box::new(stored),
            8 => Box::new(flate2::bufread::DeflateDecoder::new(stored)),
            other => return Err(format!("compression method {other} is not supported")),
        };
        Ok(Self {
            bytes,
            sum: crc32fast::Hasher::new(),
            expected: long(head, 16),
            left: u64::from(size),
        })
    }
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        self.sum.update(&buffer[..read]);
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "its checksum or size is wrong");
        self.left = self.left.checked_sub(read as u64).ok_or_else(wrong)?;
        let over = read == 0 && !buffer.is_empty();
        if over && (self.left > 0 || self.sum.clone().finalize() != self.expected) {
            return Err(wrong());
        }
        Ok(read)
    }
}

/// The bytes of the central directory.
fn directory(from: &mut File) -> io::Result<Vec<u8>> {
    let broken = || io::Error::new(io::ErrorKind::InvalidData, broken());
    let length = from.metadata()?.len();
    // A comment of at most 64 kB may follow the end record.
    let tail = length.min(END.1 + u64::from(u16::MAX));
    from.seek(SeekFrom::Start(length - tail))?;
    let mut bytes = Vec::new();
    from.take(tail).read_to_end(&mut bytes)?;
    let mut ends = bytes.windows(END.1 as usize).enumerate().rev();
    let is_end = |(at, end): &(usize, &[u8])| {
        end.starts_with(END.0) && at + end.len() + usize::from(short(end, 20)) == bytes.len()
    };
    let (_, end) = ends.find(is_end).ok_or_else(broken)?;
    let (size, at) = (u64::from(long(end, 12)), u64::from(long(end, 16)));
    if size > MAX_DIRECTORY || at.saturating_add(size) > length {
        return Err(broken());
    }
    from.seek(SeekFrom::Start(at))?;
    let mut directory = Vec::new();
    from.take(size).read_to_end(&mut directory)?;
    Ok(directory)
}

fn short(bytes: &[u8], at: usize) -> u16 {
    let field = bytes
        .get(at..at + 2)
        .and_then(|field| field.try_into().ok());
    u16::from_le_bytes(field.unwrap_or_default())
}

fn long(bytes: &[u8], at: usize) -> u32 {
    let field = bytes
        .get(at..at + 4)
        .and_then(|field| field.try_into().ok());
    u32::from_le_bytes(field.unwrap_or_default())
}

fn broken() -> String {
    "it is not a zip archive, or it is damaged".to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use std::io::Write as _;

    use super::super::tests::{TestEntry, file_of};
    use super::*;

    /// An archive of these entries; every second file is deflated.
    pub(in super::super) fn pack(entries: &[TestEntry]) -> Vec<u8> {
        let (mut bytes, mut directory) = (Vec::new(), Vec::new());
        for (at, entry) in entries.iter().enumerate() {
            let (name, mode, content) = match entry {
                TestEntry::File(name, content) => (name, 0o100_644, content),
                TestEntry::Program(name, content) => (name, 0o100_755, content),
                TestEntry::Link(name, target) => (name, SYMLINK | 0o777, target),
                TestEntry::Hard(..) => unreachable!("zip has no hard links"),
            };
            let deflated = at % 2 == 1;
            let packed = match deflated {
                true => {
                    let mut packed =
                        flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
                    packed.write_all(content.as_bytes()).unwrap();
                    packed.finish().unwrap()
                }
                false => content.as_bytes().to_vec(),
            };
            let sum = crc32fast::hash(content.as_bytes());
            let mut facts = vec![20, 0, 0, 0, if deflated { 8 } else { 0 }, 0, 0, 0, 0, 0];
            facts.extend(sum.to_le_bytes());
            facts.extend((packed.len() as u32).to_le_bytes());
            facts.extend((content.len() as u32).to_le_bytes());
            facts.extend((name.len() as u16).to_le_bytes());
            facts.extend([0, 0]);
            let start = bytes.len() as u32;
            bytes.extend([LOCAL.0, &facts, name.as_bytes(), &packed].concat());
            let mut more = vec![0; 6];
            more.extend((u32::from(mode as u16) << 16).to_le_bytes());
            more.extend(start.to_le_bytes());
            directory.extend([ENTRY.0, &[20, 3], &facts, &more, name.as_bytes()].concat());
        }
        let (start, size, count) = (
            (bytes.len() as u32).to_le_bytes(),
            (directory.len() as u32).to_le_bytes(),
            (entries.len() as u16).to_le_bytes(),
        );
        bytes.extend(directory);
        bytes.extend([END.0, &[0; 4], &count, &count, &size, &start, &[0, 0]].concat());
        bytes
    }

    fn why(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let mut into = Unpacker::new(folder.path());
        read(file_of(bytes), &mut into).unwrap_err()
    }

    #[test]
    fn a_wrong_checksum_is_an_error() {
        let bytes = pack(&[TestEntry::File("a", "text")]);
        let at = bytes.windows(4).position(|part| part == b"text").unwrap();
        let mut changed = bytes.clone();
        changed[at] = b'T';
        assert!(why(&changed).contains("checksum"));
        assert!(why(b"no archive").contains("not a zip archive"));
        assert!(why(&bytes[..bytes.len() - 1]).contains("not a zip archive"));
    }
}
