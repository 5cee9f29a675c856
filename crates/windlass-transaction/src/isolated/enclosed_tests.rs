//! Foreign agents, played by shell scripts, in real sandboxes over real copies: what they can reach, what they cannot,
//! and that nothing of them remains.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use windlass_core::CancellationToken;
use windlass_core::clock::Timestamp;
use windlass_core::enclosure::{AgentConnection, AgentProcess, Enclosure, Launch};
use windlass_core::id::{RunId, SessionId};
use windlass_core::terms::{Isolation, Strategy};

use super::*;
use crate::test_helper::helper;
use windlass_host::sandbox::{AgentPlan, HomeFile, HostRule, SandboxPlan};
use windlass_needs::{Need, lacks};

/// Timeout of every wait in these tests.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A workspace, a user's home and a data directory for one test.
struct EnclosureFixture {
    _scratch: tempfile::TempDir,
    base: PathBuf,
    plan: SandboxPlan,
}

/// The kind of copy to test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyKind {
    Overlay,
    CopiedTree,
}

impl EnclosureFixture {
    fn new(net: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        for (file, text) in [
            ("work/a.txt", "a\n"),
            ("work/sub/b.txt", "b\n"),
            ("home/secret.txt", "person\n"),
            ("home/.agent/auth.json", "login\n"),
            ("home/.agent/history", "person\n"),
            ("data/sessions/other/events.jsonl", "log\n"),
            ("outside/kept.txt", "kept\n"),
        ] {
            std::fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
            std::fs::write(base.join(file), text).unwrap();
        }
        let agent = AgentPlan {
            name: "robot".into(),
            homes: base.join("data/sessions"),
            ..AgentPlan::default()
        };
        let plan = SandboxPlan {
            root: base.join("work"),
            home: Some(base.join("home")),
            own: vec![base.join("data")],
            data_dir: base.join("data"),
            net: net.parse().unwrap(),
            agent: Some(agent),
            ..SandboxPlan::default()
        };
        Self {
            _scratch: scratch,
            base,
            plan,
        }
    }

    /// With a login of the user and the host that it is for.
    fn logged_in(net: &str) -> Self {
        let mut fixture = Self::new(net);
        let agent = fixture.plan.agent.as_mut().unwrap();
        agent.home_files = vec![HomeFile {
            from: fixture.base.join("home/.agent/auth.json"),
            to: ".agent/auth.json".into(),
        }];
        agent.hosts = vec![HostRule::parse("login.example").unwrap()];
        fixture
    }

    fn transactions(&self) -> Transactions {
        let home = self.at("home");
        let env = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("HOME", home.as_str()),
            ("OPENAI_API_KEY", "key-of-the-person"),
            ("HTTPS_PROXY", "http://proxy.example:1"),
            ("XDG_CONFIG_HOME", "/x"),
        ];
        let env: Vec<(OsString, OsString)> = env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let root = Arc::new(Root::open(&self.plan.root).unwrap());
        let (plan, copy) = (self.plan.clone(), crate::copy_workspace);
        let sandbox = Some(Arc::new(Sandbox::new(plan, helper(), env.clone(), copy)));
        let (kept_runs, undo) = (
            KeptRuns::new(self.base.join("data/transactions")),
            self.base.join("data/undo"),
        );
        Transactions::new(root, env, sandbox, kept_runs, undo).unwrap()
    }

    async fn open_with(&self, isolation: Isolation, session: u64) -> EnclosedRun {
        let session = SessionId::fresh(Timestamp::from_millis(0), session);
        let opening = Opening {
            session: &session,
            run: &RunId::nth(1),
            isolation,
            kept: None,
        };
        EnclosedRun(self.transactions().open(opening).await.unwrap())
    }

    async fn open(&self) -> EnclosedRun {
        self.open_with(Isolation::Isolated, 1).await
    }

    async fn open_as(&self, kind: CopyKind) -> EnclosedRun {
        if kind == CopyKind::Overlay {
            let run = self.open().await;
            assert_eq!(run.0.terms().strategy, Strategy::Overlay);
            return run;
        }
        let context = Arc::clone(&self.transactions().context);
        let sandbox = context
            .sandbox
            .clone()
            .unwrap()
            .for_agent("s1")
            .unwrap()
            .unwrap();
        let slot = context
            .kept_runs
            .create(context.root.root(), "s1", "r1")
            .unwrap();
        EnclosedRun(Box::new(IsolatedRun(Arc::new(
            RunCopy::copied(context, Arc::new(sandbox), slot, "a test").unwrap(),
        ))))
    }

    fn at(&self, name: &str) -> String {
        self.base.join(name).to_str().unwrap().to_owned()
    }
}

/// The transaction under test.
struct EnclosedRun(Box<dyn Transaction>);

impl EnclosedRun {
    async fn enclose(&self) -> Arc<dyn Enclosure> {
        self.0.processes().enclose().await.unwrap()
    }

    /// Runs an ordinary command.
    async fn sh(&self, line: &str) -> (ProcessEnd, String) {
        let (timeout, workdir) = (TIMEOUT, String::new());
        let command = Command {
            line: line.into(),
            workdir,
            timeout,
            keep: 10_000,
            input: None,
            looks: false,
        };
        let watch = Watch {
            progress: &|_| {},
            cancel: CancellationToken::new(),
            artifacts: None,
        };
        let finished = self.0.processes().run(command, watch).await.unwrap();
        (finished.end, finished.output)
    }

    async fn changes(&self) -> Vec<String> {
        self.0
            .changes()
            .await
            .unwrap()
            .files
            .into_iter()
            .map(|file| file.path)
            .collect()
    }
}

fn script(text: &str) -> Launch {
    Launch {
        argv: ["bash", "-c", text].map(str::to_owned).to_vec(),
        ..Launch::default()
    }
}

const SUCCESS: ProcessEnd = ProcessEnd::Exited { code: 0 };

/// Runs a script to its end; returns its exit and its output.
async fn play(enclosure: &dyn Enclosure, text: &str) -> (ProcessEnd, String) {
    finish(enclosure.start(script(text)).await.unwrap()).await
}

/// Reads to the end, which comes when no process holds the pipes any more.
async fn finish(process: AgentProcess) -> (ProcessEnd, String) {
    let AgentProcess {
        stdin,
        mut stdout,
        mut stderr,
        mut handle,
    } = process;
    drop(stdin);
    let all = async {
        let (mut output, mut errors) = (String::new(), String::new());
        let both = tokio::join!(
            stdout.read_to_string(&mut output),
            stderr.read_to_string(&mut errors)
        );
        both.0.and(both.1).unwrap();
        (handle.wait().await.unwrap(), output + &errors)
    };
    tokio::time::timeout(TIMEOUT, all)
        .await
        .expect("a process still holds the pipes")
}

async fn accept(enclosure: &dyn Enclosure) -> Box<dyn AgentConnection> {
    tokio::time::timeout(TIMEOUT, enclosure.accept())
        .await
        .expect("no process connects")
        .unwrap()
}

#[tokio::test]
async fn stdin_and_output_of_an_agent_are_streamed() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = EnclosureFixture::new("off");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    let text = "while read -r line; do echo \"heard $line\"; echo \"noted $line\" >&2; done; echo bye; exit 3";
    let AgentProcess {
        mut stdin,
        stdout,
        mut stderr,
        mut handle,
    } = enclosure.start(script(text)).await.unwrap();
    let mut lines = BufReader::new(stdout).lines();
    for word in ["one", "two"] {
        stdin
            .write_all(format!("{word}\n").as_bytes())
            .await
            .unwrap();
        assert_eq!(
            lines.next_line().await.unwrap().unwrap(),
            format!("heard {word}")
        );
    }
    drop(stdin);
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "bye");
    assert_eq!(lines.next_line().await.unwrap(), None);
    let mut noted = String::new();
    stderr.read_to_string(&mut noted).await.unwrap();
    assert_eq!(noted, "noted one\nnoted two\n");
    for _ in 0..2 {
        assert_eq!(handle.wait().await.unwrap(), ProcessEnd::Exited { code: 3 });
    }
    let launch = Launch {
        workdir: "sub".into(),
        env: vec![("HOME".into(), "/x".into())],
        ..script("pwd; echo $HOME")
    };
    let (_, output) = finish(enclosure.start(launch).await.unwrap()).await;
    assert!(output.ends_with("/work/sub\n/x\n"), "{output}");
}

#[tokio::test]
async fn changes_of_an_agent_are_changes_of_the_run() {
    if lacks(Need::Overlay) {
        return;
    }
    for kind in [CopyKind::Overlay, CopyKind::CopiedTree] {
        let fixture = EnclosureFixture::new("off");
        let run = fixture.open_as(kind).await;
        let enclosure = run.enclose().await;
        let (end, output) = play(
            &*enclosure,
            "echo more >> a.txt && mkdir new && echo n > new/n.txt && cat sub/b.txt",
        )
        .await;
        assert_eq!((end, output.as_str()), (SUCCESS, "b\n"), "{kind:?}");
        assert_eq!(run.changes().await, ["a.txt", "new/n.txt"], "{kind:?}");
        assert_eq!(run.sh("cat a.txt").await.1, "a\nmore\n", "{kind:?}");
        assert_eq!(
            std::fs::read_to_string(fixture.at("work/a.txt")).unwrap(),
            "a\n",
            "{kind:?}"
        );
    }
}

/// Checks whether a command line succeeds.
#[track_caller]
fn check<'a>(
    enclosure: &'a dyn Enclosure,
    line: &'a str,
    works: bool,
) -> impl Future<Output = ()> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let (end, output) = play(enclosure, line).await;
        assert_eq!(end == SUCCESS, works, "{caller}: {line}: {end:?}: {output}");
    }
}

#[tokio::test]
async fn an_agent_cannot_leave_its_sandbox() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = EnclosureFixture::new("off");
    let machine = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = machine.local_addr().unwrap().port();
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    for line in [
        "echo x > \"$HOME/mine\"",
        "echo x > /tmp/x",
        "test \"$TERM\" = dumb",
        "git --version",
    ] {
        check(&*enclosure, line, true).await;
    }
    for line in [
        format!("echo x > {}", fixture.at("outside/new")),
        format!("cat {}", fixture.at("outside/kept.txt")),
        format!("cat {}", fixture.at("home/secret.txt")),
        format!("cat {}", fixture.at("home/.agent/auth.json")),
        format!("echo x > {}", fixture.at("home/new")),
        format!("ls {}/sessions", fixture.at("data")),
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}"),
        "echo x > /etc/windlass-test".to_owned(),
        "echo x > /.windlass/x".to_owned(),
        "env | grep 'key-of-the-person\\|proxy.example\\|^XDG'".to_owned(),
        "cat /proc/1/environ | tr '\\0' '\\n' | grep key-of".to_owned(),
    ] {
        check(&*enclosure, &line, false).await;
    }
    assert!(!fixture.base.join("outside/new").exists());
}

/// In this network, the agent reaches its endpoint, and no other process does.
async fn check_endpoint(net: &str) {
    let fixture = EnclosureFixture::new(net);
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    let port = enclosure.endpoint().unwrap();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let ask = format!("{connect}; echo ping >&3; read -r answer <&3; echo \"$answer\"");
    let asking = enclosure.start(script(&ask)).await.unwrap();
    let mut wire = BufReader::new(accept(&*enclosure).await);
    let mut asked = String::new();
    wire.read_line(&mut asked).await.unwrap();
    assert_eq!(asked, "ping\n", "{net}");
    wire.write_all(b"pong\n").await.unwrap();
    assert_eq!(
        finish(asking).await,
        (SUCCESS, "pong\n".to_owned()),
        "{net}"
    );
    let (end, output) = run.sh(&connect).await;
    assert_ne!(
        end, SUCCESS,
        "{net}: an ordinary command reaches the endpoint: {output}"
    );
    // An agent that is still alive cannot connect after the enclosure was dropped.
    let late = format!("echo ready; read -r; {connect}");
    let AgentProcess {
        mut stdin,
        stdout,
        stderr,
        handle,
    } = enclosure.start(script(&late)).await.unwrap();
    let mut stdout = BufReader::new(stdout);
    let mut ready = String::new();
    stdout.read_line(&mut ready).await.unwrap();
    drop((wire, enclosure));
    stdin.write_all(b"\n").await.unwrap();
    let (end, output) = finish(AgentProcess {
        stdin,
        stdout: Box::new(stdout),
        stderr,
        handle,
    })
    .await;
    assert!(
        end != SUCCESS && output.contains("refused"),
        "{net}: {output}"
    );
    let (end, output) = run.sh(&connect).await;
    assert_ne!(end, SUCCESS, "{net}: a process still listens: {output}");
    // The next iteration gets another endpoint.
    assert!(run.enclose().await.endpoint().is_some());
}

#[tokio::test]
async fn only_the_agent_reaches_its_endpoint() {
    for net in ["off", "loopback", "allow:ok.example"] {
        check_endpoint(net).await;
    }
}

#[tokio::test]
async fn without_a_network_of_its_own_there_is_no_endpoint() {
    let fixture = EnclosureFixture::logged_in("open");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    assert_eq!(enclosure.endpoint(), None);
    assert!(
        tokio::time::timeout(Duration::ZERO, enclosure.accept())
            .await
            .is_err()
    );
    assert_eq!(
        play(&*enclosure, "echo $HTTPS_PROXY").await,
        (SUCCESS, "\n".to_owned())
    );
}

/// Asks the proxy for a host, and prints its answer and the hosts that bypass it.
const ASK: &str = "exec 3<>/dev/tcp/127.0.0.1/${HTTPS_PROXY##*:}; \
                   printf 'CONNECT other.example:443 HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3; echo \"$NO_PROXY\"";

#[tokio::test]
async fn only_hosts_of_the_login_are_allowed_and_refused_hosts_are_reported() {
    for net in ["off", "loopback", "allow:ok.example"] {
        let fixture = EnclosureFixture::logged_in(net);
        let run = fixture.open().await;
        let enclosure = run.enclose().await;
        let (end, output) = play(&*enclosure, ASK).await;
        assert!(
            end == SUCCESS && output.contains(" 403 ") && output.contains("127.0.0.1"),
            "{net}: {output}"
        );
        assert_eq!(enclosure.take_refused(), ["other.example"], "{net}");
        assert!(enclosure.take_refused().is_empty(), "{net}");
        // The name cannot be resolved here, which is a different answer from the one for a refused host.
        let (_, output) = play(&*enclosure, &ASK.replace("other.example", "login.example")).await;
        assert!(
            !output.contains(" 403 ") && enclosure.take_refused().is_empty(),
            "{net}: {output}"
        );
    }
    // The login grants nothing to commands. An agent without a login reaches no host, and gets an error at once.
    let fixture = EnclosureFixture::new("off");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    assert_eq!(run.sh("env | grep -c _PROXY").await.1, "0\n");
    let (_, output) = play(&*enclosure, &ASK.replace("other.example", "login.example")).await;
    assert!(output.contains(" 403 "), "{output}");
    assert_eq!(enclosure.take_refused(), ["login.example"]);
}

#[tokio::test]
async fn background_processes_of_an_agent_end_with_it() {
    let fixture = EnclosureFixture::new("off");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    // The daemon holds the pipes, so reading ends only when it ends.
    let (end, output) = play(
        &*enclosure,
        "setsid sleep 1000 & (setsid nohup sleep 1000 &) ; echo left",
    )
    .await;
    assert_eq!((end, output.as_str()), (SUCCESS, "left\n"));
}

#[tokio::test]
async fn a_frozen_agent_does_nothing_until_it_is_resumed() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = EnclosureFixture::new("off");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    // A child of the agent writes all the time, and is stopped with it.
    let text = "echo x > ticks; (while :; do echo x >> ticks; done) & \
                while read -r line; do echo \"heard $line\"; done; kill $!";
    let AgentProcess {
        mut stdin,
        stdout,
        stderr,
        mut handle,
    } = enclosure.start(script(text)).await.unwrap();
    let mut lines = BufReader::new(stdout).lines();
    stdin.write_all(b"one\n").await.unwrap();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "heard one");

    run.0.freeze().await.unwrap();
    stdin.write_all(b"two\n").await.unwrap();
    // Commands of the run work meanwhile, and see a file that does not grow.
    let look = "test -s ticks; a=$(stat -c %s ticks); for n in 1 2 3 4 5 6 7 8 9; do cat ticks > /dev/null; done; \
                test \"$(stat -c %s ticks)\" = \"$a\" && echo same";
    assert_eq!(run.sh(look).await, (SUCCESS, "same\n".to_owned()));

    assert!(enclosure.resume());
    let heard = tokio::time::timeout(TIMEOUT, lines.next_line()).await;
    assert_eq!(heard.unwrap().unwrap().unwrap(), "heard two");
    drop((stdin, stderr));
    let ended = tokio::time::timeout(TIMEOUT, handle.wait()).await;
    assert_eq!(ended.unwrap().unwrap(), SUCCESS);
    assert!(!enclosure.resume(), "nothing is left to resume");
}

#[tokio::test]
async fn an_agent_is_killed_at_once_when_it_is_dropped_or_its_run_ends() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = EnclosureFixture::new("off");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    let stubborn = "trap '' TERM; (setsid sleep 1000 &); echo on; sleep 1000";
    for how in ["dropped", "stopped", "closed"] {
        let AgentProcess {
            stdin,
            stdout,
            stderr,
            mut handle,
        } = enclosure.start(script(stubborn)).await.unwrap();
        let mut stdout = BufReader::new(stdout);
        let mut output = String::new();
        stdout.read_line(&mut output).await.unwrap();
        let began = Instant::now();
        match how {
            "dropped" => drop(handle),
            "stopped" => {
                run.0.processes().stop_all().await;
                assert_eq!(
                    handle.wait().await.unwrap(),
                    ProcessEnd::Signalled { signal: 9 }
                );
            }
            _ => {
                run.0.catch_up().await.unwrap();
                let _ = handle.wait().await;
            }
        }
        let rest = tokio::time::timeout(TIMEOUT, stdout.read_to_string(&mut output)).await;
        assert_eq!(rest.expect("it is still running").unwrap(), 0);
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{how}: {:?}",
            began.elapsed()
        );
        drop((stdin, stderr));
    }
}

#[tokio::test]
async fn a_remounted_copy_has_a_new_enclosure() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = EnclosureFixture::new("off");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    assert_eq!(play(&*enclosure, "echo x > x.txt").await.0, SUCCESS);
    std::fs::write(fixture.at("work/a.txt"), "mine\n").unwrap();
    run.0.catch_up().await.unwrap();
    let again = run.enclose().await;
    assert_eq!(
        play(&*again, "cat a.txt x.txt").await,
        (SUCCESS, "mine\nx\n".to_owned())
    );
    let Err(refused) = enclosure.start(script("true")).await else {
        panic!("the old enclosure belongs to another sandbox")
    };
    assert!(refused.0.contains("closed"), "{refused}");
}

#[tokio::test]
async fn without_a_baseline_every_changed_file_is_a_conflict_whatever_its_name() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = EnclosureFixture::new("off");
    let run = fixture.open().await;
    let line = "echo x >> a.txt; echo y > $(printf 'odd-\\377')";
    assert_eq!(run.sh(line).await.0, SUCCESS);
    let name = run.0.keep().await.unwrap().unwrap();
    let copy = fixture.base.join("data/transactions").join(&name);
    std::fs::remove_file(copy.join("survey")).unwrap();
    let session = SessionId::fresh(Timestamp::from_millis(0), 1);
    let opening = Opening {
        session: &session,
        run: &RunId::nth(1),
        isolation: Isolation::Isolated,
        kept: Some(&name),
    };
    let run = fixture.transactions().open(opening).await.unwrap();
    assert_eq!(run.moved().await.unwrap(), ["a.txt", r#""odd-\377""#]);
    let conflict = run.catch_up().await.unwrap_err().message;
    assert!(
        conflict.contains("a.txt: ") && conflict.contains("odd-"),
        "{conflict}"
    );
}

#[tokio::test]
async fn the_home_of_an_agent_belongs_to_one_session() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = EnclosureFixture::new("off");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    enclosure.put("conf/deep/settings.json", b"{}").unwrap();
    let line =
        "test \"$HOME\" = /.windlass/home && cat ~/conf/deep/settings.json && echo kept > ~/memory";
    assert_eq!(play(&*enclosure, line).await, (SUCCESS, "{}".to_owned()));
    let home = std::fs::read_dir(fixture.base.join("data/sessions"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let home = home
        .map(|session| session.join("agents/robot"))
        .find(|home| home.is_dir())
        .unwrap();
    let mode = |name: &str| {
        std::fs::metadata(home.join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        (mode(""), mode("conf/deep"), mode("conf/deep/settings.json")),
        (0o700, 0o700, 0o600)
    );
    assert_eq!(
        run.sh("ls -A /.windlass/home").await,
        (SUCCESS, String::new())
    );
    drop((enclosure, run));

    let run = fixture.open().await;
    assert_eq!(run.enclose().await.read("memory", 10).unwrap(), b"kept\n");
    drop(run);
    let other = fixture.open_with(Isolation::Isolated, 2).await;
    assert!(other.enclose().await.read("memory", 10).is_err());
}

#[tokio::test]
async fn symlinks_in_the_home_of_an_agent_are_not_followed() {
    let fixture = EnclosureFixture::new("off");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    let plant = format!(
        "ln -s {0} ~/file; ln -s {0} ~/conf.json; ln -s {1} ~/folder; ln -s ../../.. ~/up; mkfifo ~/pipe; \
         head -c 100 /dev/zero > ~/large",
        fixture.at("outside/kept.txt"),
        fixture.at("outside")
    );
    assert_eq!(play(&*enclosure, &plant).await.0, SUCCESS);
    for path in [
        "file",
        "folder/kept.txt",
        "up/events.jsonl",
        "pipe",
        "large",
        "../robot/large",
        "/etc/passwd",
        "",
    ] {
        assert!(enclosure.read(path, 50).is_err(), "{path}");
    }
    for path in [
        "file",
        "conf.json",
        "folder/new",
        "up/new",
        "pipe",
        "../x",
        "/tmp/windlass-x",
        "",
    ] {
        assert!(enclosure.put(path, b"ours").is_err(), "{path}");
    }
    assert_eq!(
        std::fs::read_to_string(fixture.at("outside/kept.txt")).unwrap(),
        "kept\n"
    );
    assert!(!fixture.base.join("outside/new").exists());
    // A user may keep the login behind a symlink.
    let mut fixture = EnclosureFixture::logged_in("off");
    symlink(
        fixture.at("home/.agent/auth.json"),
        fixture.at("home/link.json"),
    )
    .unwrap();
    fixture.plan.agent.as_mut().unwrap().home_files[0].from = fixture.base.join("home/link.json");
    let run = fixture.open().await;
    assert_eq!(
        play(&*run.enclose().await, "cat ~/.agent/auth.json").await,
        (SUCCESS, "login\n".to_owned())
    );
}

#[tokio::test]
async fn clear_removes_only_files_in_the_home() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = EnclosureFixture::new("off");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    let plant = format!(
        "mkdir -p ~/conf/rules; echo x > ~/conf/rules/a; ln -s {} ~/folder; ln -s folder ~/chain",
        fixture.at("outside")
    );
    assert_eq!(play(&*enclosure, &plant).await.0, SUCCESS);
    for path in [
        "folder/kept.txt",
        "chain/kept.txt",
        "../robot",
        "..",
        "",
        "/etc/hosts",
    ] {
        assert!(enclosure.clear(path).is_err(), "{path}");
    }
    for path in ["conf/rules", "chain", "folder", "absent", "absent/too"] {
        enclosure.clear(path).unwrap();
    }
    assert_eq!(
        play(&*enclosure, "ls -A ~ ~/conf")
            .await
            .1
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
        "/.windlass/home: conf /.windlass/home/conf:"
    );
    assert_eq!(
        std::fs::read_to_string(fixture.at("outside/kept.txt")).unwrap(),
        "kept\n"
    );
}

#[tokio::test]
async fn a_login_is_visible_to_the_agent_alone_and_read_only() {
    if lacks(Need::Overlay) {
        return;
    }
    let fixture = EnclosureFixture::logged_in("off");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    assert_eq!(
        play(&*enclosure, "cat ~/.agent/auth.json; ls -A ~/.agent").await,
        (SUCCESS, "login\nauth.json\n".to_owned())
    );
    for line in [
        "echo x > ~/.agent/auth.json",
        "mv ~/.agent/auth.json ~/x",
        "unlink ~/.agent/auth.json",
    ] {
        check(&*enclosure, line, false).await;
    }
    check(&*enclosure, "echo x > ~/.agent/own", true).await;
    assert!(enclosure.put(".agent/auth.json", b"x").is_err());
    assert_eq!(
        std::fs::read_to_string(fixture.at("home/.agent/auth.json")).unwrap(),
        "login\n"
    );
    assert_ne!(
        run.sh("cat /.windlass/home/.agent/auth.json").await.0,
        SUCCESS
    );
    let find = format!("find /.windlass {} -name auth.json", fixture.at(""));
    assert_eq!(run.sh(&find).await.1, "");
    // The next sandbox finds the mount point of the file as the last one left it.
    drop((enclosure, run));
    let run = fixture.open().await;
    assert_eq!(
        play(&*run.enclose().await, "cat ~/.agent/auth.json ~/.agent/own")
            .await
            .1,
        "login\nx\n"
    );
}

#[tokio::test]
async fn a_failed_start_says_why() {
    let fixture = EnclosureFixture::new("off");
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    let missing = Launch {
        argv: vec!["no-such-agent".into()],
        ..Launch::default()
    };
    let mut process = enclosure.start(missing).await.unwrap();
    let why = process.handle.wait().await.unwrap_err().0;
    assert!(why.contains("no-such-agent"), "{why}");
    let nowhere = Launch {
        workdir: "../..".into(),
        ..script("true")
    };
    assert!(enclosure.start(nowhere).await.is_err());
    assert!(enclosure.start(Launch::default()).await.is_err());
    let Err(why) = fixture
        .open_with(Isolation::InPlace, 3)
        .await
        .0
        .processes()
        .enclose()
        .await
    else {
        panic!("in enclosure")
    };
    assert!(why.0.contains("isolated"), "{why}");
    let mut none = EnclosureFixture::new("off");
    none.plan.agent = None;
    assert!(none.open().await.0.processes().enclose().await.is_err());
    let mut lost = EnclosureFixture::logged_in("off");
    lost.plan.agent.as_mut().unwrap().home_files[0].from = lost.base.join("home/gone.json");
    let session = SessionId::fresh(Timestamp::from_millis(0), 4);
    let opening = Opening {
        session: &session,
        run: &RunId::nth(1),
        isolation: Isolation::Isolated,
        kept: None,
    };
    let Err(why) = lost.transactions().open(opening).await else {
        panic!("without its login")
    };
    assert!(why.message.contains("gone.json"), "{}", why.message);
}

#[tokio::test]
async fn exceeded_limits_are_reported() {
    let mut fixture = EnclosureFixture::new("off");
    fixture.plan.limits.processes = 20;
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    let mut process = enclosure
        .start(script("for n in {1..60}; do sleep 1000 & done; wait"))
        .await
        .unwrap();
    let why = process.handle.wait().await.unwrap_err().0;
    assert!(why.contains("limit of 20 processes"), "{why}");
    drop((process, enclosure, run));

    fixture.plan.limits.memory = 256 << 20;
    let run = fixture.open().await;
    let enclosure = run.enclose().await;
    // `tail` keeps a whole line in memory, and this one does not end.
    let mut process = enclosure
        .start(script("head -c 2G /dev/zero | tail -n 1 > /dev/null"))
        .await
        .unwrap();
    match process.handle.wait().await {
        Err(why) => assert!(why.0.contains("limit of 256 MiB"), "{why}"),
        // If the system delegates a cgroup, the kernel kills the agent first.
        Ok(end) => assert_ne!(end, SUCCESS),
    }
    // The agent's limit on reserved memory differs from that of commands.
    let set_aside = |(_, output): (ProcessEnd, String)| output.trim().parse::<u64>().unwrap() >> 10;
    assert_eq!(set_aside(run.sh("ulimit -d").await), 256);
    assert!(set_aside(play(&*enclosure, "ulimit -d").await) > 32 << 10);
}
