//! A minimal tar writer for hostile archives: names are written unchecked.

/// One entry: a file with its content, or a symlink with its target.
pub(crate) enum TarEntry<'a> {
    File { name: &'a str, content: &'a [u8] },
    Link { name: &'a str, target: &'a str },
}

const BLOCK: usize = 512;

/// Returns the bytes of the archive.
pub(crate) fn archive(entries: &[TarEntry<'_>]) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    for entry in entries {
        let (name, content, kind, target): (&str, &[u8], u8, &str) = match entry {
            TarEntry::File { name, content } => (name, content, b'0', ""),
            TarEntry::Link { name, target } => (name, &[], b'2', target),
        };
        if name.len() > 100 || target.len() > 100 {
            return Err(format!(
                "the name {name} or its target is longer than an entry holds"
            ));
        }
        let mut header = [0_u8; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, name.as_bytes());
        put(100, b"0000644\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, &[kind]);
        put(157, target.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        all.extend_from_slice(&header);
        all.extend_from_slice(content);
        all.resize(all.len().next_multiple_of(BLOCK), 0);
    }
    all.resize(all.len() + 2 * BLOCK, 0);
    Ok(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_what_tar_reads() {
        let entries = [
            TarEntry::Link {
                name: "l",
                target: "../../out",
            },
            TarEntry::File {
                name: "../../out/pwned",
                content: b"x",
            },
        ];
        let bytes = archive(&entries).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        std::fs::write(&path, bytes).unwrap();
        let said = std::process::Command::new("tar")
            .arg("-tvf")
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(
            text.contains("l -> ../../out") && text.contains("../../out/pwned"),
            "{text}"
        );
    }
}
