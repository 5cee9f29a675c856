//! Every fault a model server can make, through the real binary and the real HTTP stack. The cases are data, and the
//! driver of the corpus runs them: `tests/corpus` says what the server does and what must be true afterwards.

use crate::attacks::drive;

#[test]
fn every_fault_of_a_provider_is_answered_as_listed() {
    let report = drive(
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/corpus/provider-faults.jsonl"
        ),
        &[],
    );
    assert!(report.passed(), "{}", report.summary());
}

/// What a run says when it cannot even reach its server: each reason in its own words, and how often it was tried.
#[test]
fn what_keeps_us_from_the_server_is_told_apart() {
    // Answers a greeting in a language that is not TLS.
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = format!("https://{}", plain.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let cases = [
        ("http://127.0.0.1:1", "", "refused the connection", 3),
        (
            "https://host.invalid",
            "",
            "cannot find the address of `host.invalid`",
            3,
        ),
        (
            "https://host.invalid",
            "http://127.0.0.1:1",
            "the proxy did not connect",
            3,
        ),
        (tls.as_str(), "", "TLS with", 0),
    ];
    std::thread::scope(|scope| {
        for (url, proxy, says, retries) in cases {
            scope.spawn(move || {
                let place = crate::place::Place::new();
                let args = [
                    "run",
                    "--in-place",
                    "-m",
                    "anthropic/some-model",
                    "--base-url",
                    url,
                    "go",
                ];
                let mut command = place.command(&args);
                command
                    .env("ANTHROPIC_API_KEY", "sk-corpus-0123456789abcdef")
                    .env("HTTPS_PROXY", proxy);
                let output = place.run_with(command, "");
                assert_eq!(output.code, 7, "{url}: {}", output.err);
                assert!(output.err.contains(says), "{url}: {}", output.err);
                let waits = place
                    .log()
                    .iter()
                    .filter(|event| event["kind"] == "waited")
                    .count();
                assert_eq!(waits, retries, "{url}: {}", output.err);
            });
        }
    });
}
