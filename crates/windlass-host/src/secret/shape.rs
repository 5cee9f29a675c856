//! The shapes of keys: their prefixes, found in one pass over the text, and the characters that must follow. It knows
//! no values and works in linear time. It prefers to miss a short token over matching an ordinary word.

use self::Class::{Alnum, Base64, Upper, Url, Word};

/// The maximum size of a private key block, and of the text that is held back until a key ends.
const MAX_BLOCK: usize = 16 << 10;
/// The maximum length of user and password in a URL.
const MAX_AUTHORITY: usize = 512;
/// The longest line of a private key has at least this many bytes.
const KEY_RUN: usize = 16;
/// If a key needs a digit, it must be among this many first bytes.
const DIGIT_WITHIN: usize = 64;

/// A range of a text that looks like a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) kind: &'static str,
}

/// The prefix of a key, and its continuation.
struct Shape {
    start: &'static str,
    kind: &'static str,
    rest: Rest,
}

/// The continuation of a key after its prefix.
enum Rest {
    /// Bytes of a class: at least `min`, or exactly `min` if `exact`; one of them a digit if `digit`.
    Run {
        class: Class,
        min: usize,
        exact: bool,
        digit: bool,
    },
    /// Further parts of at least `min` bytes, separated by dots.
    Dotted { min: usize },
    /// The header of a block that ends with its own footer line.
    Block,
    /// The footer line of such a block.
    BlockEnd,
    /// `user:password@` in a URL.
    Authority,
    /// A value after a name: quotes, spaces, `=` or `:`, and then at least `min` bytes of a class.
    Assigned { class: Class, min: usize },
}

/// The characters of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Alnum,
    Upper,
    Word,
    Url,
    Base64,
}

impl Class {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Word => byte.is_ascii_alphanumeric() || byte == b'_',
            Self::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Self::Base64 => {
                byte.is_ascii_alphanumeric()
                    || matches!(byte, b'+' | b'/' | b'=' | b'.' | b'_' | b'-' | b'~')
            }
        }
    }
}

const fn shape(start: &'static str, kind: &'static str, rest: Rest) -> Shape {
    Shape { start, kind, rest }
}

/// At least `min` bytes of a class.
const fn run(class: Class, min: usize) -> Rest {
    Rest::Run {
        class,
        min,
        exact: false,
        digit: false,
    }
}

/// Like [`run`], with at least one digit.
const fn digits(class: Class, min: usize) -> Rest {
    Rest::Run {
        class,
        min,
        exact: false,
        digit: true,
    }
}

const AWS_KEY_ID: Rest = Rest::Run {
    class: Upper,
    min: 16,
    exact: true,
    digit: false,
};
const AWS_SECRET: Rest = Rest::Assigned {
    class: Base64,
    min: 40,
};
const AZURE_KEY: Rest = Rest::Assigned {
    class: Base64,
    min: 80,
};

/// A prefix may come before a longer one only if the longer one demands more.
const SHAPES: &[Shape] = &[
    shape("ghp_", "github token", run(Alnum, 30)),
    shape("gho_", "github token", run(Alnum, 30)),
    shape("ghu_", "github token", run(Alnum, 30)),
    shape("ghs_", "github token", run(Alnum, 30)),
    shape("ghr_", "github token", run(Alnum, 30)),
    shape("github_pat_", "github token", digits(Word, 22)),
    shape("glpat-", "gitlab token", run(Url, 20)),
    shape("glptt-", "gitlab token", run(Url, 20)),
    shape("gldt-", "gitlab token", run(Url, 20)),
    shape("glrt-", "gitlab token", run(Url, 20)),
    shape("glcbt-", "gitlab token", run(Url, 20)),
    shape("AKIA", "aws key id", AWS_KEY_ID),
    shape("ASIA", "aws key id", AWS_KEY_ID),
    shape("ABIA", "aws key id", AWS_KEY_ID),
    shape("ACCA", "aws key id", AWS_KEY_ID),
    shape("xoxb-", "slack token", digits(Url, 10)),
    shape("xoxp-", "slack token", digits(Url, 10)),
    shape("xoxa-", "slack token", digits(Url, 10)),
    shape("xoxr-", "slack token", digits(Url, 10)),
    shape("xoxs-", "slack token", digits(Url, 10)),
    shape("xoxe-", "slack token", digits(Url, 10)),
    shape("xoxo-", "slack token", digits(Url, 10)),
    shape("xoxc-", "slack token", digits(Url, 10)),
    shape("xoxd-", "slack token", digits(Url, 10)),
    shape("xapp-", "slack token", digits(Url, 20)),
    shape(
        "hooks.slack.com/services/",
        "slack webhook",
        digits(Base64, 20),
    ),
    shape("sk-ant-", "anthropic key", digits(Url, 20)),
    shape("sk-proj-", "openai key", digits(Url, 20)),
    shape("sk-svcacct-", "openai key", digits(Url, 20)),
    shape("sk-admin-", "openai key", digits(Url, 20)),
    shape("sk-or-v1-", "openrouter key", digits(Url, 20)),
    shape("sk-", "api key", digits(Alnum, 32)),
    shape("sk_live_", "stripe key", run(Alnum, 16)),
    shape("sk_test_", "stripe key", run(Alnum, 16)),
    shape("rk_live_", "stripe key", run(Alnum, 16)),
    shape("whsec_", "webhook secret", run(Alnum, 24)),
    shape("AIza", "google key", run(Url, 35)),
    shape("ya29.", "google token", run(Url, 20)),
    shape("GOCSPX-", "google secret", run(Url, 20)),
    shape("npm_", "npm token", digits(Alnum, 30)),
    shape("pypi-AgE", "pypi token", run(Url, 40)),
    shape("hf_", "huggingface token", digits(Alnum, 30)),
    shape("gsk_", "groq key", digits(Alnum, 40)),
    shape("xai-", "xai key", digits(Alnum, 40)),
    shape("r8_", "replicate token", digits(Alnum, 32)),
    shape("dop_v1_", "digitalocean token", digits(Alnum, 40)),
    shape("shpat_", "shopify token", digits(Alnum, 32)),
    shape("dckr_pat_", "docker token", digits(Url, 20)),
    shape("lin_api_", "linear key", digits(Alnum, 32)),
    shape("hvs.", "vault token", digits(Url, 24)),
    shape("dapi", "databricks token", digits(Alnum, 32)),
    shape("AGE-SECRET-KEY-1", "age key", run(Upper, 50)),
    shape("SG.", "sendgrid key", Rest::Dotted { min: 16 }),
    shape("eyJ", "json web token", Rest::Dotted { min: 10 }),
    shape("-----BEGIN ", "private key", Rest::Block),
    shape("-----END ", "private key", Rest::BlockEnd),
    shape("://", "password in an address", Rest::Authority),
    shape("Bearer ", "bearer token", digits(Base64, 20)),
    shape("bearer ", "bearer token", digits(Base64, 20)),
    shape(
        "Authorization: Basic ",
        "basic authorization",
        run(Base64, 12),
    ),
    shape(
        "authorization: Basic ",
        "basic authorization",
        run(Base64, 12),
    ),
    shape(
        "authorization: basic ",
        "basic authorization",
        run(Base64, 12),
    ),
    shape("aws_secret_access_key", "aws secret key", AWS_SECRET),
    shape("AWS_SECRET_ACCESS_KEY", "aws secret key", AWS_SECRET),
    shape("SecretAccessKey", "aws secret key", AWS_SECRET),
    shape("AccountKey=", "azure storage key", AZURE_KEY),
];

/// Passwords of examples and local servers, which need not be hidden.
const EXAMPLES: &[&str] = &[
    "password", "passwd", "pass", "pwd", "pw", "secret", "user", "username", "token", "example",
    "changeme", "postgres", "root", "test", "admin", "guest", "mysql", "docker", "dev", "local",
];

/// For each byte, the shapes whose prefix has it at this offset: bit `n` stands for `SHAPES[n]`.
const fn shapes_by_byte(offset: usize) -> [u128; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < SHAPES.len() {
        table[SHAPES[index].start.as_bytes()[offset] as usize] |= 1 << index;
        index += 1;
    }
    table
}

// The compiler builds these tables, because an automaton would be built in each short run.
static FIRST: [u128; 256] = shapes_by_byte(0);
static SECOND: [u128; 256] = shapes_by_byte(1);
static THIRD: [u128; 256] = shapes_by_byte(2);

/// Returns the first prefix from an offset, and where it begins; of several that begin there, the longest.
fn next_start(bytes: &[u8], from: usize) -> Option<(&'static Shape, usize)> {
    let rest = bytes.get(from..)?;
    for (at, three) in rest.windows(3).enumerate() {
        let [first, second, third] = [three[0], three[1], three[2]].map(usize::from);
        let mut candidates = FIRST[first] & SECOND[second] & THIRD[third];
        let mut longest: Option<&Shape> = None;
        while candidates != 0 {
            let shape = &SHAPES[candidates.trailing_zeros() as usize];
            candidates &= candidates - 1;
            if longest.is_none_or(|longest| longest.start.len() < shape.start.len())
                && rest[at..].starts_with(shape.start.as_bytes())
            {
                longest = Some(shape);
            }
        }
        if let Some(shape) = longest {
            return Some((shape, from + at));
        }
    }
    None
}

/// Returns all ranges of the text that look like a key, in order.
pub(crate) fn hits(text: &str) -> Vec<Hit> {
    let mut found = Vec::new();
    walk(text, |hit, _| found.extend(hit));
    found
}

/// Returns the offset from which the text may be the beginning of a key that continues after the end.
pub(crate) fn open_from(text: &str) -> usize {
    let mut open = text.len();
    walk(text, |_, unfinished| {
        if let Some(at) = unfinished {
            open = open.min(at);
        }
    });
    let bytes = text.as_bytes();
    for shape in SHAPES {
        let start = shape.start.as_bytes();
        let most = (start.len() - 1).min(bytes.len());
        for len in (1..=most).rev() {
            let at = bytes.len() - len;
            if bytes[at..] == start[..len] && (shape.free() || begins(bytes, at)) {
                open = open.min(at);
                break;
            }
        }
    }
    open
}

/// Visits each prefix. Passes the complete key, and the start of a key that may continue after the end of the text.
fn walk(text: &str, mut each: impl FnMut(Option<Hit>, Option<usize>)) {
    let bytes = text.as_bytes();
    let mut runs = Runs::default();
    let mut at = 0;
    while let Some((shape, start)) = next_start(bytes, at) {
        at = start + shape.start.len();
        if !shape.free() && !begins(bytes, start) {
            continue;
        }
        let (hit, end) = shape.judge(bytes, start, at, &mut runs);
        let unfinished = (end == bytes.len() && bytes.len() - start <= MAX_BLOCK).then_some(start);
        if let Some(hit) = hit {
            at = at.max(hit.end);
        }
        each(hit, unfinished);
    }
}

/// Returns whether a key may begin here, which is not inside a word: `disk-` contains no `sk-`. An escaped line end
/// separates words.
fn begins(bytes: &[u8], at: usize) -> bool {
    match at.checked_sub(1).map(|before| bytes[before]) {
        Some(byte) if byte.is_ascii_alphanumeric() => {
            matches!(byte, b'n' | b't' | b'r') && at >= 2 && bytes[at - 2] == b'\\'
        }
        _ => true,
    }
}

/// The end of the last run of each class, so that text after many prefixes is scanned only once.
#[derive(Default)]
struct Runs([(usize, usize); 5]);

impl Runs {
    fn end(&mut self, bytes: &[u8], from: usize, class: Class) -> usize {
        let (start, end) = &mut self.0[class as usize];
        if !(*start..=*end).contains(&from) || *end == 0 {
            (*start, *end) = (
                from,
                from + bytes[from..]
                    .iter()
                    .take_while(|byte| class.has(**byte))
                    .count(),
            );
        }
        *end
    }
}

impl Shape {
    /// Returns whether the prefix may also occur inside a word.
    fn free(&self) -> bool {
        matches!(
            self.rest,
            Rest::Authority | Rest::Block | Rest::BlockEnd | Rest::Assigned { .. }
        )
    }

    /// Returns the key that begins here, and the end of the scanned bytes: the end of the text if the key may continue.
    fn judge(
        &self,
        bytes: &[u8],
        start: usize,
        from: usize,
        runs: &mut Runs,
    ) -> (Option<Hit>, usize) {
        let hit = |start, end| {
            Some(Hit {
                start,
                end,
                kind: self.kind,
            })
        };
        match self.rest {
            Rest::Run {
                class,
                min,
                exact,
                digit,
            } => {
                let end = runs.end(bytes, from, class);
                let len = end - from;
                let fits = if exact { len == min } else { len >= min };
                let head = &bytes[from..end.min(from + DIGIT_WITHIN)];
                let fits = fits && (!digit || head.iter().any(u8::is_ascii_digit));
                // If the prefix is a word, only the value is redacted.
                let start = if self.start.ends_with(' ') || self.start.ends_with('/') {
                    from
                } else {
                    start
                };
                (if fits { hit(start, end) } else { None }, end)
            }
            Rest::Dotted { min } => {
                let mut end = runs.end(bytes, from, Class::Url);
                let parts = if self.start.ends_with('.') { 1 } else { 2 };
                for _ in 0..parts {
                    if end - from < min || bytes.get(end) != Some(&b'.') {
                        return (None, end);
                    }
                    let next = end + 1;
                    end = runs.end(bytes, next, Class::Url);
                    if end - next < min {
                        return (None, end);
                    }
                }
                (hit(start, end), end)
            }
            Rest::Block => match block(bytes, from) {
                KeyBlock::No => (None, from),
                KeyBlock::Open(end) => (hit(start, end).filter(|_| end > from), bytes.len()),
                KeyBlock::Whole(end) => (hit(start, end), end),
            },
            Rest::BlockEnd => (
                block_end(bytes, start, from).and_then(|(start, end)| hit(start, end)),
                from,
            ),
            Rest::Authority => authority(bytes, from, self.kind),
            Rest::Assigned { class, min } => {
                let gap = bytes[from..]
                    .iter()
                    .take(8)
                    .take_while(|byte| matches!(byte, b'"' | b'\'' | b' ' | b'=' | b':' | b'\\'));
                let value = from + gap.count();
                let end = runs.end(bytes, value, class);
                (
                    if end - value >= min {
                        hit(value, end)
                    } else {
                        None
                    },
                    end,
                )
            }
        }
    }
}

enum KeyBlock {
    No,
    /// There is no footer; the offset is the end of the existing part.
    Open(usize),
    Whole(usize),
}

/// Recognizes a private key block. A header alone, in prose or in code, does not count.
fn block(bytes: &[u8], from: usize) -> KeyBlock {
    let label = &bytes[from..bytes.len().min(from + 64)];
    let Some(dashes) = memchr::memmem::find(label, b"-----") else {
        return if label.len() < 64 {
            KeyBlock::Open(from)
        } else {
            KeyBlock::No
        };
    };
    let words = &label[..dashes];
    if !words.ends_with(b"PRIVATE KEY") && !words.ends_with(b"PRIVATE KEY BLOCK") {
        return KeyBlock::No;
    }
    let body = from + dashes + 5;
    let within = &bytes[body..bytes.len().min(body + MAX_BLOCK)];
    let Some(next) = memchr::memmem::find(within, b"-----") else {
        let end = key_lines(within);
        return match longest_run(&within[..end]) >= KEY_RUN {
            true => KeyBlock::Open(body + end),
            false if end == within.len() => KeyBlock::Open(from),
            false => KeyBlock::No,
        };
    };
    let after = &within[next..within.len().min(next + 64)];
    let closing = after
        .strip_prefix(b"-----END ")
        .and_then(|rest| memchr::memmem::find(rest, b"-----"));
    match closing {
        Some(dashes) if longest_run(&within[..next]) >= KEY_RUN => {
            KeyBlock::Whole(body + next + 9 + dashes + 5)
        }
        // The footer line is incomplete.
        None if after.len() < 64 && longest_run(&within[..next]) >= KEY_RUN => {
            KeyBlock::Open(bytes.len())
        }
        _ => KeyBlock::No,
    }
}

/// Returns the end of the lines that may belong to a key. Line ends may be escaped.
fn key_lines(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let line = &text[at..];
        let len = line
            .iter()
            .position(|byte| matches!(byte, b'\n' | b'\\'))
            .unwrap_or(line.len());
        let words = line[..len].trim_ascii();
        let belongs = words.iter().all(|byte| strict(*byte))
            || words.starts_with(b"Proc-Type:")
            || words.starts_with(b"DEK-Info:");
        if !belongs {
            return at;
        }
        if len == line.len() {
            return text.len();
        }
        // An escaped line end has two bytes. A backslash before anything else is not one, and must not split a
        // character.
        at += len
            + 1
            + usize::from(line[len] == b'\\' && line.get(len + 1).is_some_and(u8::is_ascii));
    }
}

fn strict(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

fn longest_run(text: &[u8]) -> usize {
    text.split(|byte| !strict(*byte))
        .map(<[u8]>::len)
        .max()
        .unwrap_or(0)
}

/// Recognizes the end of a block whose beginning was cut off: the lines of the key before its footer.
fn block_end(bytes: &[u8], start: usize, from: usize) -> Option<(usize, usize)> {
    let label = &bytes[from..bytes.len().min(from + 64)];
    let dashes = memchr::memmem::find(label, b"-----")?;
    if !label[..dashes].ends_with(b"PRIVATE KEY") {
        return None;
    }
    let before = &bytes[start.saturating_sub(MAX_BLOCK)..start];
    let lines = before
        .iter()
        .rev()
        .take_while(|byte| strict(**byte) || matches!(byte, b'\n' | b'\r'))
        .count();
    let lines = before[before.len() - lines..].trim_ascii_start();
    (longest_run(lines) >= KEY_RUN).then_some((start - lines.len(), from + dashes + 5))
}

/// Recognizes the password, or a token in its place, in `://user:password@host`.
fn authority(bytes: &[u8], from: usize, kind: &'static str) -> (Option<Hit>, usize) {
    let most = &bytes[from..bytes.len().min(from + MAX_AUTHORITY)];
    let stops = |byte: &u8| {
        byte.is_ascii_whitespace()
            || matches!(
                byte,
                b'/' | b'?' | b'#' | b'"' | b'\'' | b'<' | b'>' | b'`' | b'\\'
            )
    };
    let len = most.iter().position(stops).unwrap_or(most.len());
    let Some(sign) = memchr::memrchr(b'@', &most[..len]) else {
        return (None, from + len);
    };
    let user = &most[..sign];
    let (value, name) = match memchr::memchr(b':', user) {
        Some(colon) => (from + colon + 1, &user[..colon]),
        None if sign >= 20 && user.iter().any(u8::is_ascii_digit) => (from, &user[..0]),
        None => return (None, from + len),
    };
    let password = &bytes[value..from + sign];
    let made_up = password.len() < 4
        || password == name
        || password
            .iter()
            .any(|byte| matches!(byte, b'$' | b'{' | b'(' | b'*' | b'['))
        || password.iter().all(|byte| *byte == password[0])
        || password.starts_with(b"%s")
        || password.starts_with(b"your")
        || EXAMPLES
            .iter()
            .any(|example| password.eq_ignore_ascii_case(example.as_bytes()));
    let hit = (!made_up).then_some(Hit {
        start: value,
        end: from + sign,
        kind,
    });
    (hit, from + len)
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
