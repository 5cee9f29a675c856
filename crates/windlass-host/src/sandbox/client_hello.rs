//! Parses the first message of a TLS client for the server name. The proxy compares it with the allowed host of a
//! tunnel; nothing is decrypted. Each length is checked against the available bytes, and the total is limited.

/// The maximum size of a hello in bytes. With post-quantum key shares a hello has about 2 kB.
pub(super) const MAX_HELLO: usize = 16 << 10;

/// The type of a handshake record, and of the first handshake message.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// The extensions for the server name, and for an encrypted hello, which may name another server.
const SERVER_NAME: u16 = 0;
const ENCRYPTED_HELLO: u16 = 0xfe0d;
/// The only name type that the standard defines.
const HOST_NAME: u8 = 0;

/// The result of parsing the bytes so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hello {
    /// The bytes are the beginning of a hello.
    Partial,
    /// A hello for this server, as the client wrote the name; `None` if it has no server name.
    Names(Option<String>),
    /// The message cannot be checked; the text is the reason.
    Refused(&'static str),
}

/// Parses the first bytes of a client.
pub(super) fn read(bytes: &[u8]) -> Hello {
    let mut message = Vec::new();
    let mut records = TlsReader(bytes);
    // A message may be split into several records.
    loop {
        if let Some(hello) = whole_message(&message) {
            return match hello {
                Some(body) => of_body(body),
                None => Hello::Refused("it is not a TLS handshake"),
            };
        }
        match records.0 {
            [] => return Hello::Partial,
            [HANDSHAKE] | [HANDSHAKE, 3] => return Hello::Partial,
            [HANDSHAKE, 3, ..] => {}
            _ => return Hello::Refused("it is not a TLS handshake"),
        }
        let Some(piece) = records.skip(3).and_then(|()| records.vector(2)) else {
            return Hello::Partial;
        };
        if piece.is_empty() || message.len() + piece.len() > MAX_HELLO {
            return Hello::Refused("its TLS handshake cannot be read");
        }
        message.extend_from_slice(piece);
    }
}

/// Returns the body of the hello once it is complete; `Some(None)` for another message.
fn whole_message(message: &[u8]) -> Option<Option<&[u8]>> {
    let mut bytes = TlsReader(message);
    match bytes.number(1)? {
        kind if kind != u32::from(CLIENT_HELLO) => Some(None),
        _ => bytes.vector(3).map(Some),
    }
}

fn of_body(body: &[u8]) -> Hello {
    match extensions(body) {
        None => Hello::Refused("its TLS handshake cannot be read"),
        Some(Ok(name)) => Hello::Names(name),
        Some(Err(why)) => Hello::Refused(why),
    }
}

/// Returns the server name among the extensions; the outer `None` means a malformed message.
fn extensions(body: &[u8]) -> Option<Result<Option<String>, &'static str>> {
    let mut bytes = TlsReader(body);
    // Skip the version and the random bytes, then the session id, the cipher suites and the compression methods.
    bytes.skip(2 + 32)?;
    bytes.vector(1)?;
    bytes.vector(2)?;
    bytes.vector(1)?;
    if bytes.0.is_empty() {
        return Some(Ok(None));
    }
    let mut all = TlsReader(bytes.vector(2)?);
    let mut name = None;
    while !all.0.is_empty() {
        let kind = u16::try_from(all.number(2)?).ok()?;
        let value = all.vector(2)?;
        match kind {
            SERVER_NAME if name.is_some() => {
                return Some(Err("its TLS handshake names two servers"));
            }
            SERVER_NAME => name = Some(host_name(value)?),
            ENCRYPTED_HELLO => return Some(Err("its TLS handshake hides the server's name")),
            _ => {}
        }
    }
    Some(Ok(name))
}

/// Returns the name, if the list has exactly one.
fn host_name(value: &[u8]) -> Option<String> {
    let mut bytes = TlsReader(value);
    let mut list = TlsReader(bytes.vector(2)?);
    let kind = list.number(1)?;
    let name = list.vector(2)?;
    let alone = list.0.is_empty() && bytes.0.is_empty();
    let plain = name
        .iter()
        .all(|byte| byte.is_ascii_graphic() && *byte != b'/');
    (kind == u32::from(HOST_NAME) && alone && plain && !name.is_empty())
        .then(|| String::from_utf8_lossy(name).into_owned())
}

/// A cursor over bytes.
struct TlsReader<'a>(&'a [u8]);

impl<'a> TlsReader<'a> {
    fn skip(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.get(count..)?;
        Some(())
    }

    /// Reads a big-endian number of `size` bytes, at most four.
    fn number(&mut self, size: usize) -> Option<u32> {
        let (bytes, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(
            bytes
                .iter()
                .fold(0, |number, byte| (number << 8) | u32::from(*byte)),
        )
    }

    /// Reads a vector that follows its length of `size` bytes.
    fn vector(&mut self, size: usize) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number(size)?).ok()?;
        let (vector, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(vector)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with_length(size: usize, bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).expect("short").to_be_bytes();
        [&length[4 - size..], bytes].concat()
    }

    /// Returns the extension that names a server.
    fn server_name(name: &str) -> Vec<u8> {
        let entry = [&[HOST_NAME][..], &with_length(2, name.as_bytes())].concat();
        [vec![0, 0], with_length(2, &with_length(2, &entry))].concat()
    }

    fn records(extensions: &[u8], piece: usize) -> Vec<u8> {
        let ciphers = with_length(2, &[0x13, 1]);
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[0],
            &ciphers,
            &[1, 0],
            &with_length(2, extensions),
        ]
        .concat();
        let message = [&[CLIENT_HELLO][..], &with_length(3, &body)].concat();
        let record = |piece: &[u8]| [&[HANDSHAKE, 3, 1][..], &with_length(2, piece)].concat();
        message.chunks(piece.max(1)).flat_map(record).collect()
    }

    /// Returns a hello for this server.
    pub(in crate::sandbox) fn hello(name: &str) -> Vec<u8> {
        records(&server_name(name), 1 << 14)
    }

    #[test]
    fn the_server_name_of_a_hello_is_parsed() {
        assert_eq!(
            read(&hello("a.example")),
            Hello::Names(Some("a.example".to_owned()))
        );
        assert_eq!(read(&records(&[], 1000)), Hello::Names(None));
        let two = [server_name("a"), server_name("b")].concat();
        assert!(matches!(read(&records(&two, 1000)), Hello::Refused(why) if why.contains("two")));
        let hidden = [server_name("a"), vec![0xfe, 0x0d, 0, 1, 0]].concat();
        assert!(
            matches!(read(&records(&hidden, 1000)), Hello::Refused(why) if why.contains("hides"))
        );
        for bad in [server_name(""), server_name("a\0b"), vec![0, 0, 0, 9, 1]] {
            assert!(
                matches!(read(&records(&bad, 1000)), Hello::Refused(_)),
                "{bad:?}"
            );
        }
        for other in [
            &b"GET / HTTP/1.1"[..],
            b"SSH-2.0-x",
            &[HANDSHAKE, 3, 1, 0, 1, 2],
        ] {
            assert!(matches!(read(other), Hello::Refused(_)), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(&bytes);
            let mut tls = vec![HANDSHAKE, 3, 1];
            tls.extend(with_length(2, &bytes));
            let _ = read(&tls);
            let mut started = records(&bytes, 64);
            started.truncate(bytes.len() + 40);
            let _ = read(&started);
        }

        #[test]
        fn a_hello_is_partial_until_it_is_complete(name in "[a-z]{1,20}(\\.[a-z]{1,20}){1,3}", piece in 1_usize..80, cut in any::<prop::sample::Index>()) {
            let whole = records(&server_name(&name), piece);
            prop_assert_eq!(read(&whole), Hello::Names(Some(name)));
            prop_assert_eq!(read(&whole[..cut.index(whole.len())]), Hello::Partial);
        }
    }
}
