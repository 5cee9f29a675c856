//! The scripted task: about two hundred durable events of commands, edits, patches and moves. Each step leaves its own
//! mark, so that a missing or repeated step shows in the tree. Pure text; this module starts nothing.

use serde_json::{Value, json};

/// The task, as a user would type it.
pub(crate) const TASK: &str = "Do all steps.";
/// The prompt that a user types to continue an interrupted session.
pub(crate) const CONTINUE: &str = "Go on.";

/// The number of steps before the final text. With these, an in-place run has about 200 durable events.
const STEPS: usize = 30;

/// The files of the project before the task.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("README.md", "# A project\n"),
    ("counter.txt", "value = 0\n"),
    (
        "src/lib.rs",
        "//! A library.\n\n/// FaultKind far we are.\npub const STEP: u32 = 0;\n",
    ),
];

/// The script of a short second task.
pub(crate) const NEXT: &str = r#"
[[step]]
text = "A little more."
calls = [{ name = "bash", args = { command = "echo more >> more.log" } }]

[[step]]
text = "Done."
"#;

/// Returns the script of the model, which follows the conversation.
pub(crate) fn script(wide_patches: bool) -> String {
    let mut text = String::from("follow = \"history\"\n");
    let mut made = ScriptState::default();
    for step in 1..=STEPS {
        let calls: Vec<String> = made.calls(step, wide_patches).iter().map(inline).collect();
        text.push_str(&format!(
            "\n[[step]]\ntext = \"Step {step} of {STEPS}.\"\ncalls = [\n"
        ));
        calls
            .iter()
            .for_each(|call| text.push_str(&format!("  {call},\n")));
        text.push_str("]\n");
    }
    text.push_str("\n[[step]]\ntext = \"All steps are done.\"\n");
    text
}

/// The values in the files at the current step.
#[derive(Default)]
struct ScriptState {
    counter: usize,
    constant: usize,
}

impl ScriptState {
    fn calls(&mut self, step: usize, wide_patches: bool) -> Vec<Value> {
        match step % 8 {
            1 => vec![append(step)],
            2 => vec![self.count()],
            3 => vec![note(step)],
            4 => vec![append(step), self.edit()],
            5 => vec![copies(step)],
            6 => vec![self.patch(step, wide_patches)],
            7 => vec![
                json!({ "name": "read_file", "args": { "path": "steps.log" } }),
                json!({ "name": "grep", "args": { "pattern": "STEP", "path": "src" } }),
            ],
            _ => vec![moved(step)],
        }
    }

    fn count(&mut self) -> Value {
        let (old, new) = (
            format!("value = {}", self.counter),
            format!("value = {}", self.counter + 1),
        );
        self.counter += 1;
        json!({
            "name": "edit_file",
            "args": { "path": "counter.txt", "old": old, "new": new },
            "check": { "name": "read_file", "args": { "path": "counter.txt" }, "shows": new },
        })
    }

    fn edit(&mut self) -> Value {
        let (old, new) = (
            format!("u32 = {};", self.constant),
            format!("u32 = {};", self.constant + 1),
        );
        self.constant += 1;
        json!({
            "name": "edit_file",
            "args": { "path": "src/lib.rs", "old": old, "new": new },
            "check": { "name": "read_file", "args": { "path": "src/lib.rs" }, "shows": new },
        })
    }

    /// Returns a patch. A `wide` patch changes two files, one after the other, so that a crash in between leaves a
    /// partial patch, which a model that only repeats its calls cannot repair. Therefore it is used only on request.
    fn patch(&mut self, step: usize, wide: bool) -> Value {
        let path = format!("patched/{step}.txt");
        let mut patch = format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+patch {step}.\n");
        if wide {
            let (old, new) = (self.counter, self.counter + 1);
            self.counter += 1;
            patch = format!(
                "--- a/counter.txt\n+++ b/counter.txt\n@@ -1 +1 @@\n-value = {old}\n+value = {new}\n{patch}"
            );
        }
        json!({
            "name": "apply_patch",
            "args": { "patch": patch },
            "check": { "name": "read_file", "args": { "path": path }, "shows": format!("patch {step}.") },
        })
    }
}

fn append(step: usize) -> Value {
    json!({
        "name": "bash",
        "args": { "command": format!("echo 'step {step}.' >> steps.log") },
        "check": { "name": "bash", "args": { "command": "cat steps.log" }, "shows": format!("step {step}.") },
    })
}

/// Creates several files with one command: all of them exist afterwards, or none.
fn copies(step: usize) -> Value {
    let command = format!(
        "mkdir -p out/{step} && cp counter.txt out/{step}/counter.txt && cp src/lib.rs out/{step}/lib.rs && echo \
         'step {step}.' >> steps.log"
    );
    json!({
        "name": "bash",
        "args": { "command": command },
        "check": { "name": "bash", "args": { "command": "cat steps.log" }, "shows": format!("step {step}.") },
    })
}

fn note(step: usize) -> Value {
    let path = format!("notes/{step}.md");
    json!({
        "name": "write_file",
        "args": { "path": path, "content": format!("# Note {step}\n\nwritten once\n") },
        "check": { "name": "read_file", "args": { "path": path }, "shows": format!("# Note {step}") },
    })
}

/// Moves the note of five steps before.
fn moved(step: usize) -> Value {
    let (from, to) = (
        format!("notes/{}.md", step - 5),
        format!("kept/{}.md", step - 5),
    );
    json!({
        "name": "move_file",
        "args": { "from": from, "to": to },
        "check": { "name": "read_file", "args": { "path": to }, "shows": format!("# Note {}", step - 5) },
    })
}

/// Formats a JSON value as TOML on one line. Both quote text in the same way.
pub(crate) fn inline(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name} = {}", inline(value)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(inline).collect::<Vec<_>>().join(", ")
        ),
        other => other.to_string(),
    }
}
