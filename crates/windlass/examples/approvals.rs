//! Answers asks with a callback: it approves edits of files and denies every command.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example is a program of its own"
)]

mod scratch;

use scratch::Scratch;
use serde_json::json;
use windlass::core::ask::{About, Answer};
use windlass::core::gate::Mode;
use windlass_testing::{call, says};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new()?;
    let edit = json!({ "path": "sum.sh", "old": "$1 - $2", "new": "$1 + $2" });
    let model = scratch::model([
        call("1", "edit_file", &edit),
        call(
            "2",
            "bash",
            &json!({ "command": "touch made-by-a-command" }),
        ),
        says("I edited the script; the command was refused."),
    ]);
    let result = scratch
        .windlass()?
        .provider(model, "scripted")
        .approval(Mode::Ask)
        .in_place()
        .on_ask(|ask| async move {
            match ask.about {
                About::Approval(approval) if approval.call.name == "edit_file" => Answer::Once,
                About::Approval(approval) => {
                    println!("refused {}: {}", approval.call.name, approval.reason);
                    Answer::No {
                        note: Some("edit files instead".to_owned()),
                    }
                }
                _ => Answer::No { note: None },
            }
        })
        .run("make the check pass")
        .await?;
    println!("{:?}: {}", result.outcome(), result.text);
    let refused = !scratch.workspace().join("made-by-a-command").exists();
    println!("the command ran: {}", !refused);
    Ok(())
}
