use std::borrow::Cow;

use windlass_core::workspace::KeyFinding;

use super::*;
use crate::testing::{CheckFixture, text};

/// A redactor that recognises one kind of secret.
struct OneKindOfSecret;

impl Redactor for OneKindOfSecret {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        text.into()
    }
    fn scan(&self, text: &str) -> Vec<KeyFinding> {
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains("SECRET"));
        lines
            .map(|(at, _)| KeyFinding {
                line: at + 1,
                kind: "a key",
            })
            .collect()
    }
}

#[track_caller]
fn check(now: &[(&str, &[u8])], before: Option<&[(&str, &[u8])]>, expect: &str) {
    let scan = SecretScan {
        redactor: Arc::new(OneKindOfSecret),
    };
    assert_eq!(text(&CheckFixture::new(now, before).look(&scan)), expect);
}

#[test]
fn only_added_secrets_are_found_and_none_is_shown() {
    let found =
        "this looks like a key; remove it and read it from the environment or a secret store";
    check(
        &[("a", b"x\nk = SECRET1\n")],
        Some(&[]),
        &format!("fail\na:2: {found}"),
    );
    check(&[("a", b"x\n")], Some(&[]), "pass");
    check(
        &[("a", b"y\n  k = SECRET1\n")],
        Some(&[("a", b"k = SECRET1\n")]),
        "pass",
    );
    check(
        &[("a", b"k = SECRET1\nk = SECRET1\n")],
        Some(&[("a", b"k = SECRET1\n")]),
        &format!("fail\na:2: {found}"),
    );
    check(
        &[("a", b"k = SECRET2\n")],
        Some(&[("a", b"k = SECRET1\n")]),
        &format!("fail\na:1: {found}"),
    );
    let doubt = "fail\na:1: this looks like a key (the previous content is not known); remove it and read it from the \
                 environment or a secret store";
    check(&[("a", b"k = SECRET1\n")], None, doubt);
}

#[test]
fn an_unread_file_is_not_a_pass() {
    let large = vec![b'x'; 3 << 20];
    check(
        &[("a.bin", &large)],
        Some(&[]),
        "unverifiable\na.bin: it was not searched for secrets: it is too large",
    );
}
