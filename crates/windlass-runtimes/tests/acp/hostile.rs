//! Agents that request forbidden things, violate the protocol, produce too much output, or do not react.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_core::runtime::Stop;

use crate::harness::{AcpHarness, ScriptedAgent};

/// A permission request for a command, as agents send it.
fn permission_request(command: &str) -> Value {
    json!({
        "toolCall": { "toolCallId": format!("c-{command}"), "kind": "execute", "rawInput": { "command": command } },
        "options": [
            { "optionId": "always", "name": "Always", "kind": "allow_always" },
            { "optionId": "once", "name": "Once", "kind": "allow_once" },
            { "optionId": "no", "name": "No", "kind": "reject_once" },
        ],
    })
}

#[tokio::test(start_paused = true)]
async fn anything_worse_than_the_stated_kind_is_judged_too() {
    let (_, record) = AcpHarness::default()
        .play(|mut agent| async move {
            let prompt = agent.open().await;
            let cases = [
                json!({ "kind": "read", "rawInput": { "command": "curl x" }, "locations": [{ "path": "a" }] }),
                json!({ "kind": "think", "content": [{ "type": "diff", "path": "b", "newText": "n" }] }),
                json!({ "kind": "read" }),
                json!({ "kind": "delete", "locations": [{ "path": "../x" }] }),
                json!({ "kind": "move", "rawInput": { "source": "a", "destination": "/etc/b" } }),
                json!({ "kind": "search", "rawInput": { "pattern": "k", "path": "/etc" } }),
                json!({ "kind": "edit", "rawInput": { "file_path": "e", "old_string": "o", "new_string": "n" } }),
                json!({ "kind": "execute", "rawInput": { "command": ["bash", "-lc", "make x"] } }),
                json!({ "kind": "fetch", "rawInput": { "url": "http://x" } }),
                json!({ "kind": "brand_new" }),
            ];
            for (n, case) in cases.into_iter().enumerate() {
                let mut params = permission_request("x");
                params["toolCall"] = case;
                params["toolCall"]["toolCallId"] = json!(n.to_string());
                agent.ask(&n.to_string(), "session/request_permission", params).await;
            }
            agent.done(&prompt).await;
        })
        .await;
    let asked = record.asked.lock();
    let asked: Vec<String> = asked
        .iter()
        .map(|call| {
            let likes: Vec<String> = call
                .like
                .iter()
                .map(|like| format!("{} {}", like.tool, like.args))
                .collect();
            format!("{:?}: {}", call.effect, likes.join(" + "))
        })
        .collect();
    let expected = [
        r#"Execute: bash {"command":"curl x"} + read_file {"path":"a"}"#,
        r#"Write: write_file {"path":"b","content":"n"}"#,
        "Execute: ",
        r#"Write: delete_file {"path":"../x"}"#,
        r#"Write: move_file {"from":"a","to":"/etc/b","overwrite":true}"#,
        r#"Read: grep {"pattern":"k","literal":true,"path":"/etc"}"#,
        r#"Write: edit_file {"path":"e","old":"o","new":"n"}"#,
        r#"Execute: bash {"command":"make x"}"#,
        "Network: ",
        "Execute: ",
    ];
    assert_eq!(asked, expected);
}

#[tokio::test(start_paused = true)]
async fn files_are_served_inside_the_workspace_if_the_gate_allows() {
    let harness = AcpHarness {
        files: vec![("a.txt", "one\ntwo\nthree\n"), ("key.pem", "secret")],
        judge: Arc::new(|call| {
            Some(
                !call
                    .like
                    .iter()
                    .any(|like| like.args.to_string().contains("key.pem")),
            )
        }),
        ..AcpHarness::default()
    };
    let folder = Arc::clone(&harness.folder);
    std::fs::write(folder.path().join("binary"), [0xff, 0xfe]).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", folder.path().join("link")).unwrap();
    let (stop, record) = harness
        .play(|mut agent| async move {
            let prompt = agent.open().await;
            let mut n = 0;
            let mut read = async |agent: &mut ScriptedAgent, params: Value| {
                n += 1;
                let answer = agent
                    .ask(&format!("r{n}"), "fs/read_text_file", params)
                    .await;
                match answer["result"]["content"].as_str() {
                    Some(content) => content.to_owned(),
                    None => format!("{} {}", answer["error"]["code"], answer["error"]["message"]),
                }
            };
            assert_eq!(
                read(&mut agent, json!({ "path": "a.txt" })).await,
                "one\ntwo\nthree\n"
            );
            assert_eq!(
                read(
                    &mut agent,
                    json!({ "path": "a.txt", "line": 2, "limit": 1 })
                )
                .await,
                "two\n"
            );
            assert!(
                read(&mut agent, json!({ "path": "no.txt" }))
                    .await
                    .starts_with("-32002")
            );
            assert!(
                read(&mut agent, json!({ "path": "key.pem" }))
                    .await
                    .contains("refused [denied]")
            );
            assert!(
                read(&mut agent, json!({ "path": "/etc/hostname" }))
                    .await
                    .contains("outside of the workspace")
            );
            assert!(
                read(&mut agent, json!({ "path": "link" }))
                    .await
                    .contains("outside of the workspace")
            );
            assert!(
                read(&mut agent, json!({ "path": "../x" }))
                    .await
                    .starts_with("-32603")
            );
            assert!(
                read(&mut agent, json!({ "path": "binary" }))
                    .await
                    .contains("not UTF-8")
            );
            assert!(
                read(&mut agent, json!({ "path": 7 }))
                    .await
                    .starts_with("-32602")
            );

            let write = json!({ "path": "sub/new.txt", "content": "new" });
            assert_eq!(
                agent.ask("w1", "fs/write_text_file", write).await["result"],
                json!({})
            );
            let outside = json!({ "path": "/tmp/windlass-not-here", "content": "x" });
            let answer = agent.ask("w2", "fs/write_text_file", outside).await;
            assert!(
                answer["error"]["message"]
                    .as_str()
                    .unwrap()
                    .contains("outside of the workspace"),
                "{answer}"
            );
            let denied = json!({ "path": "key.pem", "content": "x" });
            assert_eq!(
                agent.ask("w3", "fs/write_text_file", denied).await["error"]["code"],
                -32603
            );
            agent.says("That is not mine to write.").await;
            agent.done(&prompt).await;
        })
        .await;
    assert_eq!(stop, Stop::Done);
    assert_eq!(
        std::fs::read_to_string(folder.path().join("sub/new.txt")).unwrap(),
        "new"
    );
    assert_eq!(
        std::fs::read_to_string(folder.path().join("key.pem")).unwrap(),
        "secret"
    );
    // Each judged request is a call with one result.
    let asked = record.asked.lock().len();
    assert_eq!(asked, 7);
    assert_eq!(
        record
            .messages()
            .iter()
            .filter(|messages| messages.starts_with("call:"))
            .count(),
        asked
    );
    let denied = 2;
    assert_eq!(record.results.lock().len(), asked - denied);
}

/// Checks whether an agent that ends its turn after a refused call is told to continue, depending on its text before
/// and after the refusal.
async fn check_sent_on(before: &'static str, after: &'static str, sent_on: bool) {
    let harness = AcpHarness {
        judge: Arc::new(|_| Some(false)),
        ..AcpHarness::default()
    };
    let (stop, record) = harness
        .play(move |mut agent| async move {
            let prompt = agent.open().await;
            agent.says(before).await;
            let params = permission_request("make");
            agent.ask("p", "session/request_permission", params).await;
            agent.says(after).await;
            agent.done(&prompt).await;
            if sent_on {
                let prompt = agent.expect("session/prompt").await;
                agent.says("Then not.").await;
                agent.done(&prompt).await;
            }
        })
        .await;
    assert_eq!(stop, Stop::Done);
    let is_reminder = |messages: &String| messages.contains("That call was refused");
    assert_eq!(
        record.messages().iter().any(is_reminder),
        sent_on,
        "{before} {after}"
    );
}

#[tokio::test(start_paused = true)]
async fn text_before_a_refused_call_does_not_end_the_work() {
    check_sent_on("", "", true).await;
    check_sent_on("I will run make now.", "", true).await;
    check_sent_on("I will run make now.", "It was refused, so I stop.", false).await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_applies_once_and_only_to_the_shown_text() {
    let (_, record) = AcpHarness::default()
        .play(|mut agent| async move {
            let prompt = agent.open().await;
            let mut params = permission_request("x");
            params["toolCall"] = json!({ "toolCallId": "e", "kind": "edit",
                "content": [{ "type": "diff", "path": "a.txt", "newText": "shown" }] });
            agent.ask("p", "session/request_permission", params).await;
            for (n, text) in ["other", "shown", "shown"].iter().enumerate() {
                let write = json!({ "path": "a.txt", "content": text });
                agent.ask(&n.to_string(), "fs/write_text_file", write).await;
            }
            agent
                .update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": "e", "status": "completed" }))
                .await;
            agent.done(&prompt).await;
        })
        .await;
    let asked = record.asked.lock();
    let names: Vec<&str> = asked.iter().map(|call| call.call.name.as_str()).collect();
    assert_eq!(names, ["edit", "fs/write_text_file", "fs/write_text_file"]);
    // A later approval applies to this text.
    assert_eq!(asked[0].call.args["changes"][0]["text"], "shown");
}

#[tokio::test(start_paused = true)]
async fn terminals_run_commands_that_end_with_the_turn() {
    let harness = AcpHarness {
        judge: Arc::new(|call| {
            Some(
                !call.like[0].args["command"]
                    .as_str()
                    .unwrap()
                    .contains("forbidden"),
            )
        }),
        ..AcpHarness::default()
    };
    let (_, record) = harness
        .play(|mut agent| async move {
            let prompt = agent.open().await;
            let create = json!({ "command": "echo", "args": ["it's"], "outputByteLimit": 6 });
            let term = agent.ask("1", "terminal/create", create).await["result"]["terminalId"].clone();
            let which = json!({ "terminalId": term });
            let exit = agent.ask("2", "terminal/wait_for_exit", which.clone()).await;
            assert_eq!(exit["result"]["exitCode"], 0, "{exit}");
            let output = agent.ask("3", "terminal/output", which.clone()).await;
            assert_eq!(output["result"]["truncated"], true);
            assert_eq!(output["result"]["output"], "\\''s'\n");
            assert_eq!(output["result"]["exitStatus"]["exitCode"], 0);
            agent.ask("4", "terminal/release", which.clone()).await;
            assert_eq!(agent.ask("5", "terminal/output", which).await["error"]["code"], -32002);
            let denied = agent.ask("6", "terminal/create", json!({ "command": "forbidden" })).await;
            assert_eq!(denied["error"]["code"], -32603);
            let outside = agent.ask("7", "terminal/create", json!({ "command": "ls", "cwd": "/" })).await;
            assert!(outside["error"]["message"].as_str().unwrap().contains("outside of the workspace"), "{outside}");
            let steered = json!({ "command": "ls", "env": [{ "name": "LD_PRELOAD", "value": "x" }] });
            assert_eq!(agent.ask("8", "terminal/create", steered).await["error"]["code"], -32602);
            // The variables are judged and logged together with the line.
            let steered = json!({ "command": "make", "env": [{ "name": "MAKEFLAGS", "value": "forbidden" }] });
            assert_eq!(agent.ask("8b", "terminal/create", steered).await["error"]["code"], -32603);
            for n in 0..16 {
                agent.ask(&format!("s{n}"), "terminal/create", json!({ "command": "sleep 100" })).await;
            }
            let one_more = agent.ask("9", "terminal/create", json!({ "command": "sleep 100" })).await;
            assert!(one_more["error"]["message"].as_str().unwrap().contains("16 terminals"), "{one_more}");
            agent.ask("10", "terminal/kill", json!({ "terminalId": "term_2" })).await;
            agent.done(&prompt).await;
        })
        .await;
    let lines = record.lines.lock();
    assert_eq!(lines[0], r"echo 'it'\''s'");
    assert_eq!(lines.len(), 17);
    // One command was killed, and all of them were stopped at the end of the turn.
    assert_eq!(record.stopped.lock().len(), 17);
}

#[tokio::test(start_paused = true)]
async fn unknown_and_disabled_methods_are_answered_with_an_error() {
    let mut harness = AcpHarness::default();
    harness.options.fs = Some(false);
    harness.options.terminal = Some(false);
    let (stop, record) = harness
        .play(|mut agent| async move {
            let hello = agent.expect("initialize").await;
            let offered = &hello["params"]["clientCapabilities"];
            assert_eq!(offered["fs"]["readTextFile"], false);
            assert_ne!(offered["terminal"], true);
            agent.reply(&hello, json!({ "protocolVersion": 1 })).await;
            let new = agent.expect("session/new").await;
            agent.reply(&new, json!({ "sessionId": "s1" })).await;
            let prompt = agent.expect("session/prompt").await;
            for method in [
                "craft/drainMidTurnQueue",
                "fs/read_text_file",
                "terminal/create",
                "elicitation/create",
                "",
            ] {
                let answer = agent.ask("x", method, json!({ "path": "a" })).await;
                assert_eq!(answer["error"]["code"], -32601, "{method}");
            }
            let broken = agent
                .ask("y", "session/request_permission", json!({ "options": 3 }))
                .await;
            assert_eq!(broken["error"]["code"], -32602);
            agent.done(&prompt).await;
        })
        .await;
    assert_eq!(stop, Stop::Done);
    assert!(record.asked.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn protocol_violations_are_ignored_and_counted() {
    let (stop, record) = AcpHarness::default()
        .play(|mut agent| async move {
            let prompt = agent.open().await;
            let stop = |id: Value, why: &str| json!({ "jsonrpc": "2.0", "id": id, "result": { "stopReason": why } });
            agent.write(b"starting up...\n\n\xff\xfe\xfd\n[1,2]\n7\n{}\n").await;
            // Responses without a request, duplicate responses, and responses to answered requests.
            agent.send(stop(json!(999), "refusal")).await;
            agent.send(stop(json!("3"), "refusal")).await;
            agent.send(stop(json!(1), "refusal")).await;
            agent.send(stop(json!(null), "refusal")).await;
            agent.send(json!({ "jsonrpc": "2.0", "id": [1], "method": "fs/read_text_file" })).await;
            agent.send(json!({ "jsonrpc": "2.0", "method": "session/update", "params": 3 })).await;
            agent.send(json!({ "jsonrpc": "2.0", "method": "no/such" })).await;
            agent.send(json!({ "jsonrpc": "2.0", "method": "_own/extension" })).await;
            let other = json!({ "sessionId": "other", "update": { "sessionUpdate": "agent_message_chunk",
                "content": { "type": "text", "text": "not ours" } } });
            agent.send(json!({ "jsonrpc": "2.0", "method": "session/update", "params": other })).await;
            agent.says("still here").await;
            agent.done(&prompt).await;
            agent.done(&prompt).await;
        })
        .await;
    assert_eq!(stop, Stop::Done);
    assert_eq!(record.messages(), ["text:still here"]);
    assert_eq!(
        record.warnings(),
        ["not_understood: 10 messages of toy were not understood and were ignored"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_too_long_is_ignored() {
    let (stop, record) = AcpHarness::default()
        .play(|mut agent| async move {
            let prompt = agent.open().await;
            agent
                .write(b"{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":\"")
                .await;
            let piece = vec![b'x'; 1 << 20];
            for _ in 0..20 {
                agent.write(&piece).await;
            }
            agent.write(b"\"}\n").await;
            agent.says("after").await;
            agent.done(&prompt).await;
        })
        .await;
    assert_eq!(stop, Stop::Done);
    assert_eq!(record.messages(), ["text:after"]);
    assert_eq!(record.warnings().len(), 1);
}

/// The peak memory of this process, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_updates_needs_a_bounded_amount_of_memory() {
    let before = peak_memory();
    let (stop, record) = AcpHarness::default()
        .play(|mut agent| async move {
            let prompt = agent.open().await;
            let update = |update: Value| {
                let params = json!({ "sessionId": "s1", "update": update });
                format!("{}\n", json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))
            };
            let text = json!({ "type": "text", "text": "y".repeat(120) });
            let says = update(json!({ "sessionUpdate": "agent_message_chunk", "content": text })).repeat(99);
            for n in 0..1_000 {
                agent.write(says.as_bytes()).await;
                agent.update(json!({ "sessionUpdate": "tool_call", "toolCallId": n.to_string(), "title": "x" })).await;
            }
            agent.done(&prompt).await;
        })
        .await;
    assert_eq!(stop, Stop::Done);
    let messages: usize = record.messages().iter().map(String::len).sum();
    assert!(messages < 32 << 20, "{messages}");
    assert!(
        record
            .warnings()
            .iter()
            .any(|warning| warning.starts_with("too_much_said")),
        "{:?}",
        record.warnings()
    );
    let more = peak_memory().saturating_sub(before);
    assert!(more < 120 << 10, "{more} KiB");
}

#[tokio::test(start_paused = true)]
async fn large_calls_that_never_end_are_truncated() {
    let before = peak_memory();
    let (stop, record) = AcpHarness::default()
        .play(|mut agent| async move {
            let prompt = agent.open().await;
            let fat = "z".repeat(300 << 10);
            for n in 0..60 {
                agent
                    .update(json!({ "sessionUpdate": "tool_call", "toolCallId": format!("{n}{fat}"), "title": fat,
                    "kind": "edit", "status": "in_progress", "rawInput": { "a": fat, "path": fat }, "rawOutput": fat,
                    "content": [{ "type": "diff", "path": "p", "newText": fat }] }))
                    .await;
            }
            agent.done(&prompt).await;
        })
        .await;
    assert_eq!(stop, Stop::Done);
    assert_eq!(record.results.lock().len(), 60);
    let more = peak_memory().saturating_sub(before);
    assert!(more < 64 << 10, "{more} KiB");
}

#[tokio::test(start_paused = true)]
async fn the_output_of_an_agent_that_does_not_read_is_not_read() {
    let before = peak_memory();
    let (stop, _) = AcpHarness::default()
        .play(|agent| async move {
            let mut agent = agent;
            let prompt = agent.open().await;
            let ScriptedAgent {
                mut from,
                mut to,
                stderr,
            } = agent;
            let most = 80_000;
            let mut writing = Box::pin(async {
                use tokio::io::AsyncWriteExt;
                for n in 0..most {
                    let line = format!(
                        "{{\"jsonrpc\":\"2.0\",\"id\":{n},\"method\":\"x/y\",\"params\":{{}}}}\n"
                    );
                    to.write_all(line.as_bytes()).await.unwrap();
                }
            });
            // The agent writes until the pipe is full, and then reads.
            let early = tokio::time::timeout(std::time::Duration::from_secs(5), &mut writing).await;
            assert!(early.is_err(), "the output was read without a limit");
            let reading = async {
                use tokio::io::AsyncBufReadExt;
                let mut line = String::new();
                for n in 0..most {
                    line.clear();
                    from.read_line(&mut line).await.unwrap();
                    assert!(line.contains(&format!("\"id\":{n},")), "{line}");
                }
            };
            tokio::join!(writing, reading);
            let mut agent = ScriptedAgent { from, to, stderr };
            agent.done(&prompt).await;
        })
        .await;
    assert_eq!(stop, Stop::Done);
    let more = peak_memory().saturating_sub(before);
    assert!(more < 64 << 10, "{more} KiB");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_answers_every_pending_question_once() {
    let harness = AcpHarness {
        judge: Arc::new(|_| None),
        ..AcpHarness::default()
    };
    let cancel = harness.cancel.clone();
    let (stop, record) = harness
        .play(move |mut agent| {
            let cancel = cancel.clone();
            async move {
                let prompt = agent.open().await;
                for id in ["a", "b"] {
                    let mut params = permission_request(id);
                    params["sessionId"] = json!("s1");
                    let method = "session/request_permission";
                    agent.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                cancel.cancel();
                let cancelled = json!({ "outcome": { "outcome": "cancelled" } });
                for id in ["a", "b"] {
                    let answer = agent.next().await.unwrap();
                    assert_eq!((&answer["id"], &answer["result"]), (&json!(id), &cancelled));
                }
                agent.expect("session/cancel").await;
                let late = agent.ask("late", "session/request_permission", permission_request("c")).await;
                assert_eq!(late["result"], cancelled);
                let late = agent.ask("file", "fs/read_text_file", json!({ "path": "a" })).await;
                assert_eq!(late["error"]["code"], -32800);
                agent.reply(&prompt, json!({ "stopReason": "cancelled" })).await;
            }
        })
        .await;
    assert_eq!(stop, Stop::Cancelled);
    assert_eq!(record.asked.lock().len(), 2);
    // Each call has a result.
    assert_eq!(record.results.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_stop_is_killed() {
    let harness = AcpHarness::default();
    let cancel = harness.cancel.clone();
    let began = tokio::time::Instant::now();
    let (stop, record) = harness
        .play(move |mut agent| {
            let cancel = cancel.clone();
            async move {
                agent.open().await;
                cancel.cancel();
                loop {
                    agent.says("and on and on ").await;
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
        })
        .await;
    assert_eq!(stop, Stop::Cancelled);
    assert_eq!(*record.killed.lock(), 1);
    assert!(
        began.elapsed() < std::time::Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
}

fn permission(call: &str, command: &str) -> Value {
    json!({ "toolCall": { "toolCallId": call, "kind": "execute", "title": command, "rawInput": { "command": command } },
        "options": [{ "optionId": "y", "name": "y", "kind": "allow_once" }, { "optionId": "n", "name": "n", "kind": "reject_once" }] })
}

#[tokio::test(start_paused = true)]
async fn a_question_in_another_session_is_not_answered() {
    let (stop, record) = AcpHarness::default()
        .play(|mut agent| async move {
            let prompt = agent.open().await;
            let mut params = permission("c1", "ls");
            params["sessionId"] = json!("other");
            agent
                .send(json!({ "jsonrpc": "2.0", "id": "p", "method": "session/request_permission", "params": params }))
                .await;
            let answer = agent.next().await.unwrap();
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            agent.done(&prompt).await;
        })
        .await;
    assert_eq!(stop, Stop::Done);
    assert!(record.asked.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_second_question_is_a_new_call_but_not_while_the_first_is_pending() {
    let (stop, record) = AcpHarness {
        judge: Arc::new(|call| if call.call.args.to_string().contains("wait") { None } else { Some(true) }),
        ..AcpHarness::default()
    }
    .play(|mut agent| async move {
        let prompt = agent.open().await;
        for _ in 0..2 {
            let answer = agent.ask("p", "session/request_permission", permission("c1", "ls")).await;
            assert_eq!(answer["result"]["outcome"]["optionId"], "y", "{answer}");
        }
        let mut params = permission("c2", "wait");
        params["sessionId"] = json!("s1");
        agent
            .send(json!({ "jsonrpc": "2.0", "id": "w", "method": "session/request_permission", "params": params }))
            .await;
        let answer = agent.ask("x", "session/request_permission", permission("c2", "ls")).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        agent.done(&prompt).await;
    })
    .await;
    assert_eq!(stop, Stop::Done);
    let asked = record.asked.lock();
    let ids: Vec<&str> = asked.iter().map(|call| call.call.id.0.as_str()).collect();
    assert_eq!(ids, ["c1", "c1#1", "c2#1"]);
}
