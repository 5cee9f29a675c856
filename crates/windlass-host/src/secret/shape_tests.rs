#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

/// Checks a text with one key between `«` and `»`: exactly that key must be found.
#[track_caller]
fn check(marked: &str, kind: &str) {
    let start = marked.find('«').unwrap();
    let end = marked.find('»').unwrap() - '«'.len_utf8();
    let text = marked.replace(['«', '»'], "");
    let found: Vec<_> = hits(&text)
        .into_iter()
        .map(|hit| (&text[hit.start..hit.end], hit.kind))
        .collect();
    assert_eq!(found, [(&text[start..end], kind)], "{text}");
}

#[test]
fn keys_are_found_completely() {
    let rows: &[(&str, &str)] = &[
        ("«ghp_0123456789abcdefghijABCDEFGHIJ012345»", "github token"),
        (
            "x=«gho_0123456789abcdefghijABCDEFGHIJ012345»;",
            "github token",
        ),
        (
            "\"«ghs_0123456789abcdefghijABCDEFGHIJ012345»\"",
            "github token",
        ),
        (
            r"a\n«ghp_0123456789abcdefghijABCDEFGHIJ012345»\n",
            "github token",
        ),
        (
            "TOKEN_«ghu_0123456789abcdefghijABCDEFGHIJ012345»",
            "github token",
        ),
        (
            "«github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789»",
            "github token",
        ),
        (
            "https://«ghp_0123456789abcdefghijABCDEFGHIJ012345»@github.com/x/y",
            "password in an address",
        ),
        ("id «AKIAIOSFODNN7EXAMPLE» end", "aws key id"),
        ("(«ASIAIOSFODNN7EXAMPLE»)", "aws key id"),
        (
            "aws_secret_access_key = «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
            "aws secret key",
        ),
        (
            "\"SecretAccessKey\": \"«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»\"",
            "aws secret key",
        ),
        (
            "export AWS_SECRET_ACCESS_KEY=«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»\n",
            "aws secret key",
        ),
        ("«xoxb-123456789012-abcdefghijkl»", "slack token"),
        ("«xoxp-1234567890-1234567890-abcdef»", "slack token"),
        ("«xapp-1-A0123456789-1234567890123-abcdef»", "slack token"),
        (
            "https://hooks.slack.com/services/«T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX»",
            "slack webhook",
        ),
        ("«glpat-ABCDEFGHIJKLMNOPQRST»", "gitlab token"),
        ("«glpat-ab_cd-0123456789abcd»", "gitlab token"),
        (
            "key: «sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AA»",
            "anthropic key",
        ),
        (
            "«sk-proj-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789»",
            "openai key",
        ),
        (
            "«sk-or-v1-0123456789abcdef0123456789abcdef»",
            "openrouter key",
        ),
        (
            "«sk-0123456789abcdef0123456789abcdef0123456789abcdef»",
            "api key",
        ),
        ("«sk_live_0123456789abcdefABCDEFGH»", "stripe key"),
        ("«rk_live_0123456789abcdefABCDEFGH»", "stripe key"),
        ("«whsec_0123456789abcdefABCDEFGHijkl»", "webhook secret"),
        (
            "?key=«AIzaSyA0123456789abcdefghijklmnopqrstuv»&x",
            "google key",
        ),
        ("«ya29.a0AfH6SMBx0123456789abcdef»", "google token"),
        ("«npm_0123456789abcdefghijABCDEFGHIJ012345»", "npm token"),
        (
            "«pypi-AgEIcHlwaS5vcmcCJDAxMjM0NTY3LTg5YWItY2RlZi0wMTIzLTQ1Njc4OWFiY2RlZg»",
            "pypi token",
        ),
        (
            "«hf_abcdefghijklmnopqrstuvwxyz01234567»",
            "huggingface token",
        ),
        (
            "«gsk_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP»",
            "groq key",
        ),
        (
            "«xai-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP»",
            "xai key",
        ),
        ("«hvs.CAESIJ0123456789abcdefghij»", "vault token"),
        (
            "«SG.0123456789abcdefghijkl.0123456789abcdefghijklmnopqrstuvwxyz0123456»",
            "sendgrid key",
        ),
        (
            "«eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U»",
            "json web token",
        ),
        (
            "Authorization: Bearer «0123456789abcdefghijABCDEFGHIJ»",
            "bearer token",
        ),
        (
            "authorization: bearer «abc.def-ghi_jkl0123456789==»",
            "bearer token",
        ),
        (
            "Authorization: Basic «dXNlcjpodW50ZXIyaHVudGVyMg==»",
            "basic authorization",
        ),
        (
            "postgres://app:«s3cr3tpw»@db.internal:5432/x",
            "password in an address",
        ),
        (
            "http://user:«f00dfeed1234»@127.0.0.1:1/",
            "password in an address",
        ),
        (
            "https://x-access-token:«p@ss»@host/",
            "password in an address",
        ),
        (
            "https://«0123456789abcdef0123»@host/",
            "password in an address",
        ),
        (
            "«-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAx0\nabc=\n-----END RSA PRIVATE KEY-----»\nrest",
            "private key",
        ),
        (
            r#"{"key":"«-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END PRIVATE KEY-----»\n"}"#,
            "private key",
        ),
        (
            "+«-----BEGIN OPENSSH PRIVATE KEY-----\n+b3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n+-----END OPENSSH PRIVATE KEY-----»",
            "private key",
        ),
        (
            "«-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMHcCAQEEIBkg0123456789\n»[... cut ...]",
            "private key",
        ),
        (
            "[... cut ...]\n«MHcCAQEEIBkg0123456789abcdef\n-----END EC PRIVATE KEY-----»",
            "private key",
        ),
        (
            "AccountKey=«0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefghijklmn==»;",
            "azure storage key",
        ),
        (
            "«AGE-SECRET-KEY-1QYQSZQGPQYQSZQGPQYQSZQGPQYQSZQGPQYQSZQGPQYQSZQGPQYQ»",
            "age key",
        ),
    ];
    for (text, kind) in rows {
        check(text, kind);
    }
}

#[test]
fn ordinary_text_is_not_redacted() {
    let rows = [
        "sha 3f786850e387550fdab836ed7e6dc881de23001b is a commit; sk-learn is a library; AKIA is a prefix",
        "pip install scikit-learn sk-learn sk-optimize",
        "550e8400-e29b-41d4-a716-446655440000",
        "blake3 af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "src/task-0123456789abcdef0123456789abcdef.rs",
        "disk-0123456789abcdef0123456789abcdef0123456789",
        "risk-0123456789abcdef0123456789abcdef0123456789",
        "sk-",
        "sk-ant- is how such keys begin",
        "sk-ant-api03-short",
        "ghp_ is a prefix, ghp_short is not a token",
        "github_pat_ is another prefix",
        "AKIAIOSFODNN7EXAMPL",
        "AKIAIOSFODNN7EXAMPLEX",
        "ZAKIAIOSFODNN7EXAMPLE",
        "xoxb-",
        "xoxb-your-token-here",
        "let npm_config_registry_of_the_whole_project = 1;",
        "npm_lifecycle_script",
        "hf_hub_download(repo_id)",
        "hf_transfer_enabled_and_something_else",
        "the bearer of bad news",
        "Bearer authentication is required for everything",
        "Authorization: Bearer $TOKEN",
        "Authorization: Bearer <token>",
        "Authorization: Basic ",
        "https://example.com/a@b",
        "git@github.com:a/b.git",
        "ssh://git@github.com/a/b",
        "https://user@host/x",
        "http://localhost:8080/@vite/client",
        "postgres://postgres:postgres@localhost/db",
        "postgres://user:password@localhost/db",
        "https://user:${PASS}@host/",
        "https://user:<password>@host",
        "redis://:****@host",
        "https://u:xxxx@host",
        "if text.contains(\"-----BEGIN RSA PRIVATE KEY-----\") {",
        "const A: &str = \"-----BEGIN PRIVATE KEY-----\";\nconst B: &str = \"-----END PRIVATE KEY-----\";",
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYD\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----",
        "eyJ is how such tokens begin",
        "{\"a\":\"eyJhbGciOiJIUzI1NiJ9\"}",
        "eyJhbGciOi.x.y",
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "AIza is short",
        "ya29.short",
        "SG.1 and SG.2",
        "glpat-short",
        "dapi",
        "the api dapi123",
        "aws_secret_access_key = os.environ[\"AWS_SECRET_ACCESS_KEY\"]",
        "AccountKey=$KEY",
        "whsec_",
        "pypi-package-name-of-some-length-0123456789-abcdef",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@host",
        "integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
        "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde-1.0.0",
        "call_0123456789abcdef0123456789abcdef toolu_01A09q90qw90lq917835lq9",
        "résumé «naïve» 日本語 ‐ ok",
    ];
    for text in rows {
        assert_eq!(hits(text), [], "{text}");
    }
}

#[test]
fn text_that_may_become_a_key_is_held_back() {
    let rows = [
        ("plain text", 10),
        ("see gh", 4),
        ("see ghp_0123", 4),
        ("see ghp_0123 ", 13),
        ("disk", 4),
        ("a sk", 2),
        ("url https:", 9),
        ("url https://host", 9),
        ("url https://host/", 17),
        ("x\n-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA", 2),
        (
            "x\n-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----EN",
            2,
        ),
    ];
    for (text, open) in rows {
        assert_eq!(open_from(text), open, "{text}");
    }
}

/// Text that repeats the beginning of a key without an end takes linear time.
#[test]
fn hostile_text_is_scanned_in_linear_time() {
    for piece in [
        "eyJ-",
        "ghp_",
        "sk-ant-",
        "://a:",
        "-----BEGIN RSA PRIVATE KEY-----\n",
        "-----END RSA PRIVATE KEY-----",
        "Bearer ",
        "eyJaaaaaaaaaaaa.",
        "AIza-",
    ] {
        let text = piece.repeat(2_000_000 / piece.len());
        let began = std::time::Instant::now();
        hits(&text);
        open_from(&text);
        assert!(
            began.elapsed().as_millis() < 3_000,
            "{piece}: {:?}",
            began.elapsed()
        );
    }
}

/// Measures the time: `cargo nextest run --release -p windlass-host --run-ignored only five_megabytes --no-capture`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr)]
fn five_megabytes_are_scanned_fast() {
    let text =
        "2026-01-01T00:00:00Z INFO some::module: request https://host/path took 12 ms, status=200\n".repeat(58_000);
    let mut best = std::time::Duration::MAX;
    for _ in 0..20 {
        let began = std::time::Instant::now();
        assert!(hits(&text).is_empty());
        best = best.min(began.elapsed());
    }
    eprintln!("{} bytes: {best:?}", text.len());
    assert!(best.as_millis() < 20);
}

proptest! {
    /// The search through the tables finds the same prefixes as a comparison at each offset.
    #[test]
    fn the_first_and_longest_prefix_is_found(
        pieces in prop::collection::vec((0..SHAPES.len(), 0..30_usize, "[-a-zA-Z_: ]{0,3}"), 0..6),
        from in 0..40_usize,
    ) {
        let piece = |(shape, len, after): &(usize, usize, String)| {
            let start = SHAPES[*shape].start;
            format!("{}{after}", &start[..start.len().min(*len)])
        };
        let text: String = pieces.iter().map(piece).collect();
        let bytes = text.as_bytes();
        let longest_at = |at: usize| {
            let fits = SHAPES.iter().filter(|shape| text[at..].starts_with(shape.start));
            fits.max_by_key(|shape| shape.start.len()).map(|shape| (shape.start, at))
        };
        let found = next_start(bytes, from).map(|(shape, at)| (shape.start, at));
        prop_assert_eq!(found, (from..bytes.len()).find_map(longest_at));
    }

    #[test]
    fn hits_are_valid_ranges_of_any_text(text in "(?s)([a-z:/@. \\\\n-]|ghp_|eyJ|sk-|AKIA|://|-----BEGIN |PRIVATE KEY-----|-----END |Bearer |é|[A-Z0-9]{20}){0,40}") {
        let mut last = 0;
        for hit in hits(&text) {
            prop_assert!(hit.start < hit.end && text.is_char_boundary(hit.start) && text.is_char_boundary(hit.end));
            last = last.max(hit.end);
        }
        prop_assert!(last <= text.len() && open_from(&text) <= text.len());
    }

    /// With any text around a key and any cuts, text that is released early never contains a part of the key.
    #[test]
    fn a_key_that_arrives_in_pieces_is_never_released(before in "[ a-z:=\n]{0,12}", cuts in prop::collection::vec(1..9_usize, 1..12)) {
        let key = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
        let text = format!("{before} {key}\nend");
        let (mut held, mut at) = (String::new(), 0);
        for cut in cuts.iter().cycle() {
            let next = (at + cut).min(text.len());
            held.push_str(&text[at..next]);
            at = next;
            let rest = held.split_off(open_from(&held));
            for hit in hits(&held) {
                prop_assert_eq!(&held[hit.start..hit.end], key);
            }
            prop_assert!(!held.contains("ghp_0") || held.contains(key), "{}", held);
            held = rest;
            if at == text.len() { break; }
        }
    }
}
