//! Tests with real processes, which also check the processes that are left.

#![allow(clippy::unwrap_used)]

use parking_lot::Mutex;

use windlass_core::workspace::Artifacts;

use super::*;
use crate::artifact::ArtifactDir;

struct ExecFixture {
    dir: tempfile::TempDir,
    processes: HostProcesses,
}

fn fixture() -> ExecFixture {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("ws")).unwrap();
    let root = Arc::new(Root::open(&dir.path().join("ws")).unwrap());
    let vars = [
        ("PATH", DEFAULT_PATH),
        ("FROM_PARENT", "yes"),
        ("MY_TOKEN", "hush"),
    ];
    let vars = vars.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    ExecFixture {
        dir,
        processes: HostProcesses::new(root, child_env(vars, &[])),
    }
}

fn command(line: &str) -> Command {
    Command {
        line: line.into(),
        workdir: String::new(),
        timeout: Duration::from_secs(20),
        keep: 50_000,
        input: None,
        looks: false,
    }
}

impl ExecFixture {
    async fn run(&self, line: &str) -> Finished {
        self.run_with(command(line), None).await.unwrap()
    }

    async fn run_with(
        &self,
        command: Command,
        artifacts: Option<&dyn Artifacts>,
    ) -> Result<Finished, ProcessError> {
        let watch = Watch {
            progress: &|_| {},
            cancel: CancellationToken::new(),
            artifacts,
        };
        self.processes.run(command, watch).await
    }
}

/// Returns whether a process is alive whose command line contains this text. (A zombie has no command line.)
fn alive(marker: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let cmdline = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&cmdline)
            .replace('\0', " ")
            .contains(marker)
    })
}

/// Waits until the killed processes are gone, because a signal takes effect after it was sent.
async fn gone(marker: &str) -> bool {
    // Long enough for a busy machine; a test that passes does not wait.
    for _ in 0..1_000 {
        if !alive(marker) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// Returns a duration for `sleep` that no other process on this machine uses.
fn unique(seconds: u32) -> String {
    format!(
        "{seconds}.{:012}",
        crate::clock::random_u64() % 1_000_000_000_000
    )
}

#[track_caller]
fn check_end(finished: &Finished, end: ProcessEnd, output: &str) {
    assert_eq!((finished.end, finished.output.as_str()), (end, output));
}

#[tokio::test]
async fn output_and_errors_come_in_the_order_they_were_written() {
    let f = fixture();
    let finished = f.run("echo a; echo b >&2; echo c; exit 3").await;
    check_end(&finished, ProcessEnd::Exited { code: 3 }, "a\nb\nc\n");
    assert_eq!(finished.total_bytes, 6);
    check_end(
        &f.run("kill -9 $$").await,
        ProcessEnd::Signalled { signal: 9 },
        "",
    );
    check_end(
        &f.run(r"printf 'a\377b'").await,
        ProcessEnd::Exited { code: 0 },
        "a\u{fffd}b",
    );
}

#[tokio::test]
async fn a_command_starts_in_its_directory_without_input_terminal_or_secrets() {
    let f = fixture();
    std::fs::create_dir(f.dir.path().join("ws/sub")).unwrap();
    let here = Command {
        workdir: "sub".into(),
        ..command("pwd; cat; echo $FROM_PARENT-$MY_TOKEN-$PAGER")
    };
    let finished = f.run_with(here, None).await.unwrap();
    let ws = std::fs::canonicalize(f.dir.path().join("ws")).unwrap();
    check_end(
        &finished,
        ProcessEnd::Exited { code: 0 },
        &format!("{}/sub\nyes--cat\n", ws.display()),
    );
    assert_eq!(
        f.run("(exec 3</dev/tty) 2>/dev/null || echo none")
            .await
            .output,
        "none\n"
    );
}

#[tokio::test]
async fn each_kind_of_detachment_gives_a_command_its_group_and_directory() {
    let mut f = fixture();
    std::fs::create_dir(f.dir.path().join("ws/sub")).unwrap();
    for own_session in [false, true] {
        f.processes.detachment = Detachment { own_session };
        let long = unique(30);
        let line = format!(
            "pwd -P; cut -d' ' -f5 /proc/$$/stat; echo $$; (exec 3</dev/tty) 2>/dev/null || echo none; sleep {long} &"
        );
        let finished = f
            .run_with(
                Command {
                    workdir: "sub".into(),
                    ..command(&line)
                },
                None,
            )
            .await
            .unwrap();
        let lines: Vec<_> = finished.output.lines().collect();
        assert!(lines[0].ends_with("/ws/sub"), "{lines:?}");
        assert_eq!(lines[1], lines[2], "it leads its own group");
        if own_session {
            assert_eq!(lines[3], "none");
        }
        assert!(gone(&long).await);
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_started_reports_the_reason() {
    let f = fixture();
    let err = |workdir: &str| Command {
        workdir: workdir.into(),
        ..command("true")
    };
    let missing = f.run_with(err("nope"), None).await.unwrap_err();
    assert!(
        missing.to_string().contains("nope: no such file"),
        "{missing}"
    );
    let outside = f.run_with(err(".."), None).await.unwrap_err();
    assert!(outside.to_string().contains("leads out"), "{outside}");
    std::fs::remove_dir_all(f.dir.path().join("ws")).unwrap();
    let deleted = f.run_with(command("true"), None).await.unwrap_err();
    assert!(deleted.to_string().contains("was deleted"), "{deleted}");
}

#[tokio::test]
async fn a_timeout_ends_the_whole_group_within_its_time() {
    let f = fixture();
    let (short, long) = (unique(6), unique(30));
    let line = format!("echo begun; sleep {short} & sleep {long}");
    let command = Command {
        timeout: Duration::from_secs(1),
        ..command(&line)
    };
    let finished = f.run_with(command, None).await.unwrap();
    check_end(&finished, ProcessEnd::TimedOut, "begun\n");
    assert!(
        finished.took < Duration::from_secs(2),
        "{:?}",
        finished.took
    );
    assert!(gone(&short).await && gone(&long).await);
}

#[tokio::test]
async fn a_command_that_ignores_sigterm_is_killed() {
    let f = fixture();
    let long = unique(30);
    let line = format!("trap '' TERM; echo begun; while true; do sleep {long}; done");
    let command = Command {
        timeout: Duration::from_millis(200),
        ..command(&line)
    };
    let finished = f.run_with(command, None).await.unwrap();
    check_end(&finished, ProcessEnd::TimedOut, "begun\n");
    assert!(
        finished.took < Duration::from_secs(5),
        "{:?}",
        finished.took
    );
    assert!(gone(&long).await);
}

#[tokio::test]
async fn a_cancel_ends_the_group_and_keeps_the_output() {
    let f = fixture();
    let long = unique(30);
    let cancel = CancellationToken::new();
    let on_output = |text: &str| {
        if text.contains("begun") {
            cancel.cancel();
        }
    };
    let watch = Watch {
        progress: &on_output,
        cancel: cancel.clone(),
        artifacts: None,
    };
    let line = format!("echo begun; sleep {long}");
    let finished = f.processes.run(command(&line), watch).await.unwrap();
    check_end(&finished, ProcessEnd::Cancelled, "begun\n");
    assert!(
        finished.took < Duration::from_secs(1),
        "{:?}",
        finished.took
    );
    assert!(gone(&long).await);
}

#[tokio::test]
async fn a_background_grandchild_neither_delays_nor_outlives_the_command() {
    let f = fixture();
    let (holds, quiet) = (unique(30), unique(31));
    let finished = f
        .run(&format!(
            "sleep {holds} & sleep {quiet} >/dev/null 2>&1 & echo done"
        ))
        .await;
    check_end(&finished, ProcessEnd::Exited { code: 0 }, "done\n");
    assert!(
        finished.took < Duration::from_secs(5),
        "{:?}",
        finished.took
    );
    assert!(gone(&holds).await && gone(&quiet).await);
}

#[tokio::test]
async fn dropping_the_future_ends_the_command() {
    let f = fixture();
    let long = unique(30);
    let line = format!("sleep {long}");
    let run = f.run(&line);
    assert!(
        tokio::time::timeout(Duration::from_millis(150), run)
            .await
            .is_err()
    );
    assert!(gone(&long).await);
}

#[tokio::test]
async fn a_daemon_ends_with_the_run() {
    let f = fixture();
    let (stopped, dropped) = (unique(30), unique(30));
    let daemon =
        |long: &str| format!("(setsid nohup sh -c 'sleep {long}; true' >/dev/null 2>&1 &); true");
    f.run(&daemon(&stopped)).await;
    f.processes.stop_all().await;
    assert!(gone(&stopped).await);
    f.run(&daemon(&dropped)).await;
    drop(f);
    assert!(gone(&dropped).await);
}

#[tokio::test]
#[ignore = "the other half of the test below, which starts and kills it"]
async fn a_program_with_two_commands() {
    let Some(marker) = std::env::var_os("WINDLASS_TEST_MARKER") else {
        return;
    };
    let marker = marker.to_string_lossy();
    let f = fixture();
    // One command is finished and not in the list, one is a background job, and one runs in the foreground with a
    // child.
    f.run("true").await;
    f.processes
        .start(command(&format!("sleep {marker}1; true")))
        .unwrap();
    let line = format!("sleep {marker}2 & sleep {marker}2; true");
    let mut front = std::pin::pin!(f.run(&line));
    // The command was started and the watcher has its group: from here on the program may be killed.
    assert!(futures_util::poll!(&mut front).is_pending());
    std::fs::write(std::env::var_os("WINDLASS_TEST_READY").unwrap(), "").unwrap();
    front.await;
}

#[tokio::test]
async fn commands_die_with_a_program_that_is_killed() {
    let marker = unique(30);
    let dir = tempfile::tempdir().unwrap();
    let ready = dir.path().join("ready");
    let mut program = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "exec::tests::a_program_with_two_commands",
        ])
        .env("WINDLASS_TEST_MARKER", &marker)
        .env("WINDLASS_TEST_READY", &ready)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let both = [format!("sleep {marker}1"), format!("sleep {marker}2")];
    for _ in 0..1000 {
        if ready.exists() && both.iter().all(|sleep| alive(sleep)) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(both.iter().all(|sleep| alive(sleep)));
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(gone(&marker).await);
}

#[tokio::test]
async fn huge_output_needs_constant_memory_and_a_bounded_artifact() {
    let f = fixture();
    let mut artifacts = ArtifactDir::new(f.dir.path().join("artifacts"));
    artifacts.cap = 1_000_000;
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let before = peak();
    let finished = f
        .run_with(command("head -c 200000000 /dev/zero"), Some(&artifacts))
        .await
        .unwrap();
    assert_eq!(
        (finished.end, finished.total_bytes),
        (ProcessEnd::Exited { code: 0 }, 200_000_000)
    );
    assert_eq!(finished.artifact.unwrap().bytes, 1_000_000);
    // Tests may share a process; a tenth of the output is far more than this code keeps.
    assert!(peak() - before < 20_000, "{} kB", peak() - before);
}

#[tokio::test]
async fn a_command_may_close_its_output_or_lose_its_directory() {
    let f = fixture();
    check_end(
        &f.run("exec >&- 2>&-; sleep 0.05; exit 4").await,
        ProcessEnd::Exited { code: 4 },
        "",
    );
    std::fs::create_dir(f.dir.path().join("ws/sub")).unwrap();
    let line = Command {
        workdir: "sub".into(),
        ..command("rmdir ../sub; echo on")
    };
    check_end(
        &f.run_with(line, None).await.unwrap(),
        ProcessEnd::Exited { code: 0 },
        "on\n",
    );
}

#[tokio::test]
async fn large_output_is_bounded_in_memory_and_complete_in_an_artifact() {
    let f = fixture();
    let artifacts = ArtifactDir::new(f.dir.path().join("artifacts"));
    let command = Command {
        keep: 1000,
        ..command("seq 1 200000")
    };
    let finished = f.run_with(command, Some(&artifacts)).await.unwrap();
    let artifact = finished.artifact.unwrap();
    assert_eq!(
        (finished.total_bytes, artifact.bytes),
        (1_288_895, 1_288_895)
    );
    assert!(finished.output.len() < 1100, "{}", finished.output.len());
    assert!(finished.output.starts_with("1\n2\n") && finished.output.ends_with("\n200000\n"));
    assert_eq!(
        artifacts
            .read(&artifact.id, artifact.bytes - 7, 99)
            .unwrap(),
        b"200000\n"
    );
}

#[tokio::test]
async fn progress_is_reported_at_intervals_with_the_newest_lines() {
    let f = fixture();
    let reports = Mutex::new(Vec::new());
    let progress = |text: &str| reports.lock().push(text.to_owned());
    let watch = Watch {
        progress: &progress,
        cancel: CancellationToken::new(),
        artifacts: None,
    };
    let line = "for i in $(seq 1 1000); do echo line $i; done; sleep 0.25; echo last; sleep 0.15";
    f.processes.run(command(line), watch).await.unwrap();
    let reports = reports.into_inner();
    assert!((2..=50).contains(&reports.len()), "{}", reports.len());
    assert!(
        reports
            .iter()
            .any(|text| text.ends_with("line 999\nline 1000")),
        "{reports:?}"
    );
    assert!(reports.last().unwrap().ends_with("last"));
}

#[tokio::test]
async fn jobs_run_in_the_background_until_they_are_stopped() {
    let f = fixture();
    let long = unique(30);
    let job = f
        .processes
        .start(command(&format!("echo hello; sleep {long}")))
        .unwrap();
    let mut seen = f.processes.poll(&job, 0, 100).unwrap();
    for _ in 0..200 {
        if !seen.text.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        seen = f.processes.poll(&job, 0, 100).unwrap();
    }
    assert_eq!(
        seen,
        JobOutput {
            text: "hello\n".into(),
            next_offset: 6,
            end: None
        }
    );
    assert_eq!(f.processes.poll(&job, 2, 2).unwrap().text, "ll");
    assert_eq!(f.processes.poll(&job, 999, 2).unwrap().next_offset, 6);
    f.processes.stop(&job).await.unwrap();
    assert_eq!(
        f.processes.poll(&job, 6, 100).unwrap().end,
        Some(ProcessEnd::Cancelled)
    );
    assert!(gone(&long).await);
    let unknown = f.processes.poll(&JobId("j9".into()), 0, 1).unwrap_err();
    assert!(
        unknown.to_string().contains("the jobs of this run are: j1"),
        "{unknown}"
    );
}

#[tokio::test]
async fn jobs_are_limited_and_end_with_the_run() {
    let f = fixture();
    let long = unique(30);
    for _ in 0..16 {
        f.processes
            .start(command(&format!("sleep {long}")))
            .unwrap();
    }
    let err = f.processes.start(command("true")).unwrap_err();
    assert!(err.to_string().contains("stop one first"), "{err}");
    f.processes.stop_all().await;
    assert!(gone(&long).await);
    let last = unique(30);
    f.processes
        .start(command(&format!("sleep {last}")))
        .unwrap();
    drop(f);
    assert!(gone(&last).await);
}

#[tokio::test]
async fn a_job_reports_the_size_of_output_that_was_dropped() {
    let f = fixture();
    let job = f.processes.start(command("seq 1 100000")).unwrap();
    let mut seen = f.processes.poll(&job, 0, 100).unwrap();
    for _ in 0..500 {
        if seen.end.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        seen = f.processes.poll(&job, 0, 100).unwrap();
    }
    assert_eq!(seen.end, Some(ProcessEnd::Exited { code: 0 }));
    assert!(
        seen.text.starts_with("[... 326751 bytes left out ...]\n"),
        "{}",
        seen.text
    );
    let rest = f
        .processes
        .poll(&job, seen.next_offset, usize::MAX)
        .unwrap();
    assert!(rest.text.ends_with("\n100000\n") && rest.next_offset == 588_895);
}
