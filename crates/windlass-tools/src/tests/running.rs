//! Tests of the tools that run commands, and of those that need only the session.

use serde_json::json;
use windlass_core::ask::Answer;
use windlass_core::tool::Touch;
use windlass_core::workspace::ProcessEnd;

use super::ToolBench;

#[test]
fn stdout_and_stderr_are_both_returned() {
    let bench = ToolBench::new(&[("sub/f", "")]);
    bench.check(
        "bash",
        json!({"command": "echo out; echo err >&2"}),
        "out\nerr\n",
    );
    bench.check("bash", json!({"command": "ls", "workdir": "sub"}), "f\n");
    bench.check("bash", json!({"command": "true"}), "[no output]");
    let output = bench.output("bash", json!({"command": "exit 3"})).unwrap();
    assert_eq!(output.command.unwrap().end, ProcessEnd::Exited { code: 3 });
}

#[test]
fn a_failing_command_is_an_error_with_its_output() {
    let bench = ToolBench::new(&[]);
    bench.check(
        "bash",
        json!({"command": "echo 'assertion failed' >&2; echo tail; exit 7"}),
        "Error [exception]: exit code 7\nassertion failed\ntail\n",
    );
}

#[test]
fn a_timeout_is_reported_with_the_output_so_far() {
    let bench = ToolBench::new(&[]);
    let found = bench.call(
        "bash",
        json!({"command": "echo begun; sleep 60", "timeout_s": 1}),
    );
    assert!(
        found.starts_with("Error [timeout]: timed out after 1 s") && found.contains("begun"),
        "{found}"
    );
}

#[test]
fn the_result_of_a_cancelled_command_warns_of_partial_effects() {
    let bench = ToolBench::new(&[]);
    bench.cancel.cancel();
    bench.check_start(
        "bash",
        json!({"command": "sleep 60"}),
        "Error [interrupted]: cancelled",
    );
}

#[test]
fn long_output_is_cut_and_stored() {
    let bench = ToolBench::new(&[]);
    let output = bench
        .output("bash", json!({"command": "seq 1 200000"}))
        .unwrap();
    assert!(output.text.len() < 50_000, "{}", output.text.len());
    let artifact = output.artifact.unwrap();
    let note = format!(
        "[all 1288895 bytes are stored; read_file with path \"artifact:{}\" reads them by range]",
        artifact.id
    );
    assert!(
        output.text.ends_with(&note),
        "{}",
        &output.text[output.text.len() - 200..]
    );
}

#[test]
fn bad_calls_of_bash_are_refused() {
    let bench = ToolBench::new(&[]);
    bench.check(
        "bash",
        json!({}),
        "Error [invalid_arguments]: give exactly one of `command`, `poll` and `stop`",
    );
    bench.check(
        "bash",
        json!({"command": " "}),
        "Error [invalid_arguments]: `command` is empty",
    );
    bench.check_start(
        "bash",
        json!({"command": "ls", "timeout_s": 601}),
        "Error [invalid_arguments]: timeout_s must be from 1 to 600",
    );
    bench.check_start(
        "bash",
        json!({"command": "ls", "workdir": "/etc"}),
        "Error [blocked]: workdir /etc is outside the workspace",
    );
    bench.check_start(
        "bash",
        json!({"command": "ls", "workdir": "zz"}),
        "Error [exception]: cannot start a command there",
    );
    bench.check_start("bash", json!({"poll": "nope"}), "Error [not_found]: ");
    bench.check_start("bash", json!({"stop": "nope"}), "Error [not_found]: ");
}

#[test]
fn a_background_job_is_started_polled_and_stopped() {
    let bench = ToolBench::new(&[]);
    // The job needs one runtime for its whole handle, as in a run.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let call = |args| {
        runtime
            .block_on(bench.tools.get("bash").unwrap().run(args, bench.ctx()))
            .unwrap()
            .text
    };
    let started = call(
        json!({"command": "echo ready; mkfifo gate; read x < gate; echo got $x; exit 4", "background": true}),
    );
    let job = started
        .strip_prefix("started job ")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let wait_for = |word: &str| {
        for _ in 0..500 {
            let text = call(json!({"poll": job}));
            if text.contains(word) {
                return text;
            }
            call(json!({"command": "sleep 0.02"}));
        }
        panic!("{word} never came: {}", call(json!({"poll": job})));
    };
    assert!(wait_for("ready").contains("still running"));
    call(json!({"command": "until [ -p gate ]; do :; done; echo word > gate", "timeout_s": 20}));
    let ended = wait_for("ended with exit code 4");
    assert!(ended.starts_with("ready\ngot word\n"), "{ended}");
    let second = call(json!({"command": "sleep 600", "background": true}));
    let second = second
        .strip_prefix("started job ")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(
        call(json!({"stop": second})),
        format!("job {second} is stopped")
    );
}

#[test]
fn bash_touches_its_command_and_the_files_in_it() {
    let bench = ToolBench::new(&[("sub/f", "")]);
    let ctx = bench.ctx();
    let touches = |args| {
        bench
            .tools
            .get("bash")
            .unwrap()
            .touches(&args, &ctx)
            .unwrap()
    };
    let shown = |args| {
        let one = |touch: Touch| match touch {
            Touch::Execute { command, script } => {
                let looks = if script.is_some_and(|script| script.only_looks()) {
                    "looks"
                } else {
                    "runs"
                };
                format!("{looks} {command}")
            }
            Touch::Read { path, inside } => format!("read {path} {inside}"),
            Touch::Write { path, inside, .. } => format!("write {path} {inside}"),
            Touch::Connect { host } => format!("connect {host}"),
        };
        touches(args).into_iter().map(one).collect::<Vec<_>>()
    };
    let check =
        |line: &str, expect: &[&str]| assert_eq!(shown(json!({"command": line})), expect, "{line}");
    let parent = bench.path().parent().unwrap().canonicalize().unwrap();
    check("ls", &["looks ls"]);
    assert_eq!(
        shown(json!({"command": "ls x", "workdir": "sub"})),
        ["looks ls x", "read sub/x true"]
    );
    check(
        "cat sub/../a.txt",
        &["looks cat sub/../a.txt", "read a.txt true"],
    );
    check(
        "cd sub && cat ../a.txt",
        &[
            "looks cd sub && cat ../a.txt",
            "read sub true",
            "read a.txt true",
        ],
    );
    check(
        "cd sub; git log",
        &["looks cd sub; git log", "read sub true"],
    );
    check(
        "git show HEAD:sub/f",
        &["looks git show HEAD:sub/f", "read sub/f true"],
    );
    check("cat sub/*.md", &["looks cat sub/*.md"]);
    check("git status", &["looks git status"]);
    check(
        "ls ..",
        &["looks ls ..", &format!("read {} false", parent.display())],
    );
    check(
        "cat /no/where",
        &["looks cat /no/where", "read /no/where false"],
    );
    // A temporary file that does not exist on this machine can only be in the sandbox's private directory.
    check(
        "cat /tmp/no-such-folder/x",
        &["looks cat /tmp/no-such-folder/x"],
    );
    check(
        "make > out.log",
        &["runs make > out.log", "write out.log true"],
    );
    check(
        "mkdir -p sub/x && touch y",
        &[
            "runs mkdir -p sub/x && touch y",
            "write sub/x true",
            "write y true",
        ],
    );
    check("echo x 2> /dev/null", &["looks echo x 2> /dev/null"]);
    assert_eq!(touches(json!({"poll": "1"})), []);
}

fn repository(files: &[(&str, &str)]) -> ToolBench {
    let bench = ToolBench::new(files);
    let line = "git init -q -b main . && git add -A && git -c user.name=a -c user.email=a@b.invalid commit -q -m first";
    assert_eq!(bench.call("bash", json!({"command": line})), "[no output]");
    bench
}

#[test]
fn git_tools_show_changes() {
    let bench = repository(&[
        ("a.txt", "one\n"),
        ("dir with space/ü.txt", "x\n"),
        (".env", "K=1\n"),
    ]);
    bench.check("git_status", json!({}), "## main\n[nothing changed]");
    bench.check("git_diff", json!({}), "[no difference]");
    bench.put("a.txt", b"two\n");
    bench.put("dir with space/ü.txt", b"y\n");
    bench.put(".env", b"K=secret\n");
    bench.put("new.txt", b"n\n");
    bench.check(
        "git_status",
        json!({}),
        "## main\n M .env\n M a.txt\n M \"dir with space/ü.txt\"\n?? new.txt",
    );
    let found = bench.call("git_diff", json!({}));
    assert!(
        found.contains("-one\n+two") && found.contains("-x\n+y") && !found.contains("secret"),
        "{found}"
    );
    assert!(
        found.ends_with("[changes of .env not shown: such files hold credentials]"),
        "{found}"
    );
    let found = bench.call(
        "git_diff",
        json!({"paths": ["dir with space"], "base": "HEAD"}),
    );
    assert!(
        found.contains("-x\n+y") && !found.contains("+two"),
        "{found}"
    );
    bench.check("git_diff", json!({"staged": true}), "[no difference]");
    bench.check_start(
        "git_diff",
        json!({"base": "--output=x"}),
        "Error [invalid_arguments]: `--output=x` is not a commit",
    );
    bench.check_start(
        "git_diff",
        json!({"base": "nosuchbranch"}),
        "Error [exception]: git failed: ",
    );
}

#[test]
fn a_repository_cannot_make_git_run_its_programs() {
    let bench = repository(&[
        ("a.txt", "one\n"),
        (".gitattributes", "* filter=evil diff=evil\n"),
    ]);
    let line = "git config filter.evil.clean 'touch ran-clean; cat' && git config filter.evil.required true && git config diff.external 'touch ran-diff' \
        && git config diff.evil.textconv 'touch ran-textconv; cat' && git config core.fsmonitor 'touch ran-monitor' && git config core.pager 'touch ran-pager'";
    assert_eq!(bench.call("bash", json!({"command": line})), "[no output]");
    bench.put("a.txt", b"two!\n");
    bench.check_start("git_status", json!({}), "## main");
    assert!(bench.call("git_diff", json!({})).contains("+two!"));
    let listing = bench.call("list_directory", json!({}));
    assert!(!listing.contains("ran-"), "{listing}");
}

#[test]
fn a_missing_repository_is_reported() {
    let bench = ToolBench::new(&[]);
    bench.check(
        "git_status",
        json!({}),
        "Error [not_found]: the workspace is not in a git repository; `git init` would make it one",
    );
}

#[test]
fn notes_are_kept_in_the_session() {
    let bench = ToolBench::new(&[]);
    bench.check("notes", json!({"action": "read"}), "[no notes]");
    bench.check(
        "notes",
        json!({"action": "add", "text": "first"}),
        "- first",
    );
    bench.check(
        "notes",
        json!({"action": "add", "text": "second"}),
        "- first\n- second",
    );
    bench.check(
        "notes",
        json!({"action": "replace", "text": "- only"}),
        "- only",
    );
    bench.check(
        "notes",
        json!({"action": "add", "text": "more"}),
        "- only\n- more",
    );
    bench.check(
        "notes",
        json!({"action": "add"}),
        "Error [invalid_arguments]: add needs `text`",
    );
    bench.check_start(
        "notes",
        json!({"action": "replace", "text": "x".repeat(10_001)}),
        "Error [invalid_arguments]: the notes would have",
    );
    bench.check("notes", json!({"action": "read"}), "- only\n- more");
    bench.check(
        "notes",
        json!({"action": "replace", "text": ""}),
        "[no notes]",
    );
}

#[test]
fn the_user_is_asked() {
    let bench = ToolBench::new(&[]);
    let ask = json!({"question": "which one?", "options": ["a", "b"]});
    for (answer, expect) in [
        (Answer::Text { text: "b".into() }, "b"),
        (Answer::Once, "yes"),
        (
            Answer::No {
                note: Some("later".into()),
            },
            "no: later",
        ),
        (
            Answer::Expired,
            "Error [timeout]: nobody answered in time; go on with your best judgement and say what you assumed",
        ),
        (
            Answer::Unanswered,
            "Error [exception]: there is nobody to ask in this run; go on with your best judgement and say what you assumed",
        ),
    ] {
        bench.call_output.answers.lock().push(answer);
        bench.check("ask_user", ask.clone(), expect);
    }
    assert_eq!(bench.call_output.asked.lock()[0].options, ["a", "b"]);
    bench.check(
        "ask_user",
        json!({"question": " "}),
        "Error [invalid_arguments]: `question` is empty",
    );
}

#[test]
fn the_calculator_calculates() {
    let bench = ToolBench::new(&[]);
    bench.check("calculator", json!({"expression": "0.1 + 0.2"}), "0.3");
    bench.check(
        "calculator",
        json!({"expression": "1 +"}),
        "Error [invalid_arguments]: the expression ends too early",
    );
}
