//! What lines are taken for: the shared corpus and many lines of our own, as data. Nothing here is run.
#![allow(clippy::unwrap_used)]

use serde_json::Value;

fn rows(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

#[test]
fn the_corpus_is_told_apart() {
    let mut wrong = Vec::new();
    for row in rows(include_str!("data/corpus.jsonl")) {
        let line = row["line"].as_str().unwrap();
        let script = windlass_shell::read(line);
        let free = row["expect"][0] == "allow";
        let should_look = free && row["mode"] == "ask";
        let fits =
            if free { script.is_certain() && (!should_look || script.only_looks()) } else { !script.only_looks() };
        if !fits {
            wrong.push(format!("{} {line}\n    {:?} {:?}", row["id"], script.unclear, script.doubt));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
