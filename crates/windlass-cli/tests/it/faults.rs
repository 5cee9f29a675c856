//! Every fault a model server can make, through the real binary and the real HTTP stack. The cases are data: the
//! corpus in `tests/corpus` says what the server does and what must be true afterwards.

mod case;
mod server;

use std::sync::Mutex;

use serde_json::Value;

const SHARED: &str = include_str!("../corpus/model-streams.jsonl");
const OWN: &str = include_str!("../corpus/provider-faults.jsonl");

/// Runs the cases, a few at a time, and says of each that fails what did not hold.
fn check(corpus: &str) {
    let only = std::env::var("WINDLASS_CASE").ok();
    let cases: Vec<Value> = corpus.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let wanted = cases.iter().filter(|case| only.as_deref().is_none_or(|only| case["id"] == only));
    let (queue, failed) = (Mutex::new(wanted), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().next();
                    let Some(case) = next else { return };
                    let wrong = case::failures(case);
                    let name = format!("{} ({})", case["id"].as_str().unwrap(), case["title"].as_str().unwrap());
                    match wrong.is_empty() {
                        true => eprintln!("ok      {name}"),
                        false => {
                            eprintln!("FAILED  {name}");
                            failed.lock().unwrap().push(format!("{name}\n    {}", wrong.join("\n    ")));
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    eprintln!("{} of {} cases hold", cases.len() - failed.len(), cases.len());
    assert!(failed.is_empty(), "{} cases do not hold:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn every_case_of_the_shared_corpus_holds() {
    check(SHARED);
}

#[test]
fn every_fault_of_a_provider_is_answered_as_listed() {
    check(OWN);
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
        ("https://host.invalid", "", "cannot find the address of `host.invalid`", 3),
        ("https://host.invalid", "http://127.0.0.1:1", "the proxy did not connect us", 3),
        (tls.as_str(), "", "TLS with", 0),
    ];
    std::thread::scope(|scope| {
        for (url, proxy, says, retries) in cases {
            scope.spawn(move || {
                let place = crate::place::Place::new();
                let args = ["run", "--in-place", "-m", "anthropic/some-model", "--base-url", url, "go"];
                let mut command = place.command(&args);
                command.env("ANTHROPIC_API_KEY", "sk-corpus-0123456789abcdef").env("HTTPS_PROXY", proxy);
                let output = place.run_with(command, "");
                assert_eq!(output.code, 7, "{url}: {}", output.err);
                assert!(output.err.contains(says), "{url}: {}", output.err);
                let waits = place.log().iter().filter(|event| event["kind"] == "waited").count();
                assert_eq!(waits, retries, "{url}: {}", output.err);
            });
        }
    });
}
