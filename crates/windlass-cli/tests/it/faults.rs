//! Every fault a model server can make, through the real binary and the real HTTP stack. The cases are data: the
//! corpus in `tests/corpus` says what the server does and what must be true afterwards.

mod case;
mod server;

use std::sync::Mutex;

use serde_json::Value;

const CORPUS: &str = include_str!("../corpus/model-streams.jsonl");

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
    check(CORPUS);
}
