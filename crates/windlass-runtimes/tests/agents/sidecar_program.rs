//! Tests of the sidecar's Python program with any Python and a fake SDK: lines, calls, the single `done`, and that
//! output of libraries does not mix with the protocol.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// A fake SDK that calls a tool for each word of the prompt, all at once, and answers with the results.
const FAKE: &str = r#"
import asyncio
print("a library that prints")
from host import Done
class Conversation:
    def __init__(self, history): self.said = [entry["text"] for entry in history]
    async def turn(self, start, host):
        print("and prints again")
        if start["prompt"] == "fail": raise ValueError("no " * 2000)
        if start["prompt"] == "long": return Done("completed", "x" * (17 * 2**20))
        calls = [host.call(f"c{n}", word, word) for n, word in enumerate(start["prompt"].split())]
        results = await asyncio.gather(*calls)
        self.said += [result.content for result in results]
        return Done("completed", self.said)
def failed(error): return Done.error(type(error).__name__, str(error))
"#;

struct SidecarProcess {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    _home: tempfile::TempDir,
}

impl SidecarProcess {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sidecar/python");
        for file in ["__main__.py", "host.py"] {
            std::fs::copy(source.join(file), home.path().join(file)).unwrap();
        }
        std::fs::write(home.path().join("openai_agents.py"), FAKE).unwrap();
        let about = home.path().join("openai_agents-1.2.3.dist-info");
        std::fs::create_dir(&about).unwrap();
        std::fs::write(
            about.join("METADATA"),
            "Metadata-Version: 2.1\nName: openai-agents\nVersion: 1.2.3\n",
        )
        .unwrap();
        let mut command = Command::new("python3");
        command
            .args(["-I", "-B"])
            .arg(home.path())
            .arg("openai-agents")
            .env("HOME", home.path());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 must be installed");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            lines,
            _home: home,
        }
    }

    fn say(&mut self, line: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    #[track_caller]
    fn hear(&mut self, expect: Value) {
        let line: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
        let held = expect
            .as_object()
            .unwrap()
            .iter()
            .all(|(key, value)| line.get(key) == Some(value));
        assert!(held, "{line}\nis not\n{expect}");
    }
}

#[test]
fn the_program_follows_the_protocol() {
    let mut sidecar = SidecarProcess::start();
    sidecar.hear(
        json!({"type": "ready", "protocol": 1, "sdk": "openai-agents", "sdk_version": "1.2.3"}),
    );
    let earlier = json!([{"type": "user", "text": "earlier"}]);
    sidecar.say(&json!({"type": "start", "id": "1", "prompt": "{} [1]", "history": earlier}));
    sidecar.hear(json!({"type": "tool_call", "call_id": "c0", "arguments": {}, "name": "{}"}));
    sidecar
        .hear(json!({"type": "tool_call", "call_id": "c1", "arguments": {}, "malformed": "[1]"}));
    writeln!(sidecar.child.stdin.as_mut().unwrap(), "no JSON\n[]").unwrap();
    for (id, content) in [
        ("c9", "of nobody"),
        ("c1", "one"),
        ("c1", "again"),
        ("c0", "zero"),
    ] {
        sidecar.say(
            &json!({"type": "tool_result", "call_id": id, "content": content, "is_error": false}),
        );
    }
    sidecar.hear(json!({"type": "done", "id": "1", "status": "completed", "output": ["earlier", "zero", "one"]}));
    // Without a history the conversation continues, and a cancel ends a waiting turn.
    sidecar.say(&json!({"type": "start", "id": "2", "prompt": ""}));
    sidecar.hear(json!({"type": "done", "id": "2", "output": ["earlier", "zero", "one"]}));
    sidecar.say(&json!({"type": "start", "id": "3", "prompt": "{}"}));
    sidecar.hear(json!({"type": "tool_call", "call_id": "c0"}));
    sidecar.say(&json!({"type": "start", "id": "beside another", "prompt": ""}));
    sidecar.say(&json!({"type": "cancel"}));
    sidecar.hear(json!({"type": "done", "id": "3", "status": "cancelled", "output": null}));
    sidecar.say(&json!({"type": "start", "id": "4", "prompt": "fail", "history": []}));
    let message = "no ".repeat(2000)[..2000].to_owned();
    let error = json!({"kind": "ValueError", "message": message, "model": false, "status": null});
    sidecar.hear(json!({"type": "done", "id": "4", "status": "error", "error": error}));
    sidecar.say(&json!({"type": "start", "id": "5", "prompt": "long"}));
    sidecar.hear(json!({"type": "done", "id": "5", "status": "error", "output": null}));
    sidecar.say(&json!({"type": "shutdown"}));
    assert!(sidecar.lines.next().is_none());
    assert!(sidecar.child.wait().unwrap().success());
}
