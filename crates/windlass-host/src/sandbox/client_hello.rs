//! The first message of a TLS client: which server it names. Read to see that a tunnel leads to the host that was
//! allowed; nothing is decrypted. Every length is checked against what is there, and the whole is bounded.

/// The longest hello: larger ones are refused. With keys that quantum computers do not break it has about 2 kB.
pub(super) const MAX_HELLO: usize = 16 << 10;

/// The type of a record with a handshake, and of the first handshake message.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Extensions: the name of the server, and an encrypted hello, which may name another one.
const SERVER_NAME: u16 = 0;
const ENCRYPTED_HELLO: u16 = 0xfe0d;
/// The one kind of name there is.
const HOST_NAME: u8 = 0;

/// The verdict on the bytes so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hello {
    /// The beginning of a hello.
    Partial,
    /// A hello for this server, as it is written; none where it names no server.
    Names(Option<String>),
    /// No hello that can be judged, and why.
    Refused(&'static str),
}

/// Reads what a client sent first.
pub(super) fn read(bytes: &[u8]) -> Hello {
    let mut message = Vec::new();
    let mut records = Bytes(bytes);
    // A message may be cut into several records.
    loop {
        if let Some(hello) = whole_message(&message) {
            return match hello {
                Some(body) => of_body(body),
                None => Hello::Refused("it is no TLS handshake"),
            };
        }
        match records.0 {
            [] => return Hello::Partial,
            [HANDSHAKE] | [HANDSHAKE, 3] => return Hello::Partial,
            [HANDSHAKE, 3, ..] => {}
            _ => return Hello::Refused("it is no TLS handshake"),
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

/// The body of the hello once it is there; `Some(None)` for another message.
fn whole_message(message: &[u8]) -> Option<Option<&[u8]>> {
    let mut bytes = Bytes(message);
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

/// The server's name among the extensions; nothing where the message is malformed.
fn extensions(body: &[u8]) -> Option<Result<Option<String>, &'static str>> {
    let mut bytes = Bytes(body);
    // The version and the random bytes, then the session, the ciphers and the compressions.
    bytes.skip(2 + 32)?;
    bytes.vector(1)?;
    bytes.vector(2)?;
    bytes.vector(1)?;
    if bytes.0.is_empty() {
        return Some(Ok(None));
    }
    let mut all = Bytes(bytes.vector(2)?);
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

/// The only name of the list.
fn host_name(value: &[u8]) -> Option<String> {
    let mut bytes = Bytes(value);
    let mut list = Bytes(bytes.vector(2)?);
    let kind = list.number(1)?;
    let name = list.vector(2)?;
    let alone = list.0.is_empty() && bytes.0.is_empty();
    let plain = name
        .iter()
        .all(|byte| byte.is_ascii_graphic() && *byte != b'/');
    (kind == u32::from(HOST_NAME) && alone && plain && !name.is_empty())
        .then(|| String::from_utf8_lossy(name).into_owned())
}

/// Bytes that are taken from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn skip(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.get(count..)?;
        Some(())
    }

    /// A number of so many bytes, at most four.
    fn number(&mut self, size: usize) -> Option<u32> {
        let (bytes, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(
            bytes
                .iter()
                .fold(0, |number, byte| (number << 8) | u32::from(*byte)),
        )
    }

    /// A vector whose length stands before it, in so many bytes.
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

    /// The extension that names a server.
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

    /// A hello for this server.
    pub(in crate::sandbox) fn hello(name: &str) -> Vec<u8> {
        records(&server_name(name), 1 << 14)
    }

    #[test]
    fn the_server_of_a_hello_is_read() {
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
        fn any_bytes_end_in_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(&bytes);
            let mut tls = vec![HANDSHAKE, 3, 1];
            tls.extend(with_length(2, &bytes));
            let _ = read(&tls);
            let mut started = records(&bytes, 64);
            started.truncate(bytes.len() + 40);
            let _ = read(&started);
        }

        #[test]
        fn a_hello_is_partial_until_it_is_whole(name in "[a-z]{1,20}(\\.[a-z]{1,20}){1,3}", piece in 1_usize..80, cut in any::<prop::sample::Index>()) {
            let whole = records(&server_name(&name), piece);
            prop_assert_eq!(read(&whole), Hello::Names(Some(name)));
            prop_assert_eq!(read(&whole[..cut.index(whole.len())]), Hello::Partial);
        }
    }
}
