//! Faults of model servers, with the real binary and the real HTTP stack. The driver of the corpus runs the cases:
//! `tests/corpus` describes the responses of the server and the expected results.

use crate::attack_corpus::drive;

#[test]
fn every_provider_fault_has_the_expected_result() {
    let report = drive(
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/corpus/provider-faults.jsonl"
        ),
        &[],
    );
    assert!(report.passed(), "{}", report.summary());
}

/// The messages of connection errors: a distinct one for each reason, with the number of attempts.
#[test]
fn connection_errors_have_distinct_messages() {
    // A server that does not speak TLS.
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
                let fixture = crate::cli_fixture::CliFixture::new();
                let args = [
                    "run",
                    "--in-place",
                    "-m",
                    "anthropic/some-model",
                    "--base-url",
                    url,
                    "go",
                ];
                let mut command = fixture.command(&args);
                command
                    .env("ANTHROPIC_API_KEY", "sk-corpus-0123456789abcdef")
                    .env("HTTPS_PROXY", proxy);
                let output = fixture.run_with(command, "");
                assert_eq!(output.code, 7, "{url}: {}", output.err);
                assert!(output.err.contains(says), "{url}: {}", output.err);
                let waits = fixture
                    .log()
                    .iter()
                    .filter(|event| event["kind"] == "waited")
                    .count();
                assert_eq!(waits, retries, "{url}: {}", output.err);
            });
        }
    });
}
