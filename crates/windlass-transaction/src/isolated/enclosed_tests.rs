//! Agents that are not ours, played by shell scripts, in real sandboxes over real copies in scratch folders: what they
//! reach, what they do not, and that nothing of them is left.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use windlass_core::CancellationToken;
use windlass_core::clock::Timestamp;
use windlass_core::enclosure::{Enclosure, Inmate, Launch, Wire};
use windlass_core::id::{RunId, SessionId};
use windlass_core::terms::{Isolation, Strategy};

use super::*;
use crate::test_helper::helper;
use windlass_host::sandbox::{AgentPlan, HomeFile, HostRule, SandboxPlan};
use windlass_needs::{Need, lacks};

/// How long anything here may take before it is stuck.
const PATIENCE: Duration = Duration::from_secs(20);

/// A workspace, a person's home and a data folder that exist for one test.
struct Lab {
    _scratch: tempfile::TempDir,
    base: PathBuf,
    plan: SandboxPlan,
}

/// Which kind of copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Layer,
    Copied,
}

impl Lab {
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

    /// The same with the login of a person and the host it is for.
    fn logged_in(net: &str) -> Self {
        let mut lab = Self::new(net);
        let agent = lab.plan.agent.as_mut().unwrap();
        agent.home_files = vec![HomeFile {
            from: lab.base.join("home/.agent/auth.json"),
            to: ".agent/auth.json".into(),
        }];
        agent.hosts = vec![HostRule::parse("login.example").unwrap()];
        lab
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
        let (shelf, undo) = (
            Shelf::new(self.base.join("data/transactions")),
            self.base.join("data/undo"),
        );
        Transactions::new(root, env, sandbox, shelf, undo).unwrap()
    }

    async fn open_how(&self, how: Isolation, session: u64) -> Run {
        let session = SessionId::fresh(Timestamp::from_millis(0), session);
        let opening = Opening {
            session: &session,
            run: &RunId::nth(1),
            isolation: how,
            kept: None,
        };
        Run(self.transactions().open(opening).await.unwrap())
    }

    async fn open(&self) -> Run {
        self.open_how(Isolation::Isolated, 1).await
    }

    async fn open_as(&self, kind: Kind) -> Run {
        if kind == Kind::Layer {
            let run = self.open().await;
            assert_eq!(run.0.terms().strategy, Strategy::Overlay);
            return run;
        }
        let desk = Arc::clone(&self.transactions().desk);
        let sandbox = desk
            .sandbox
            .clone()
            .unwrap()
            .lodging("s1")
            .unwrap()
            .unwrap();
        let slot = desk.shelf.create(desk.root.root(), "s1", "r1").unwrap();
        Run(Box::new(IsolatedRun(Arc::new(
            Work::copied(desk, Arc::new(sandbox), slot, "a test").unwrap(),
        ))))
    }

    fn at(&self, name: &str) -> String {
        self.base.join(name).to_str().unwrap().to_owned()
    }
}

/// A run.
struct Run(Box<dyn Transaction>);

impl Run {
    async fn enclose(&self) -> Arc<dyn Enclosure> {
        self.0.processes().enclose().await.unwrap()
    }

    /// An ordinary command.
    async fn sh(&self, line: &str) -> (ProcessEnd, String) {
        let (timeout, workdir) = (PATIENCE, String::new());
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

const FINE: ProcessEnd = ProcessEnd::Exited { code: 0 };

/// Plays a script to its end; what it said, and how it ended.
async fn play(place: &dyn Enclosure, text: &str) -> (ProcessEnd, String) {
    finish(place.start(script(text)).await.unwrap()).await
}

/// Reads to the end, which comes when nobody holds the pipes any more.
async fn finish(inmate: Inmate) -> (ProcessEnd, String) {
    let Inmate {
        stdin,
        mut stdout,
        mut stderr,
        mut life,
    } = inmate;
    drop(stdin);
    let all = async {
        let (mut said, mut complained) = (String::new(), String::new());
        let both = tokio::join!(
            stdout.read_to_string(&mut said),
            stderr.read_to_string(&mut complained)
        );
        both.0.and(both.1).unwrap();
        (life.wait().await.unwrap(), said + &complained)
    };
    tokio::time::timeout(PATIENCE, all)
        .await
        .expect("somebody still holds the pipes")
}

async fn accept(place: &dyn Enclosure) -> Box<dyn Wire> {
    tokio::time::timeout(PATIENCE, place.accept())
        .await
        .expect("nobody connects")
        .unwrap()
}

#[tokio::test]
async fn a_program_is_spoken_with_line_by_line() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = Lab::new("off");
    let run = lab.open().await;
    let place = run.enclose().await;
    let text = "while read -r line; do echo \"heard $line\"; echo \"noted $line\" >&2; done; echo bye; exit 3";
    let Inmate {
        mut stdin,
        stdout,
        mut stderr,
        mut life,
    } = place.start(script(text)).await.unwrap();
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
        assert_eq!(life.wait().await.unwrap(), ProcessEnd::Exited { code: 3 });
    }
    let launch = Launch {
        workdir: "sub".into(),
        env: vec![("HOME".into(), "/x".into())],
        ..script("pwd; echo $HOME")
    };
    let (_, said) = finish(place.start(launch).await.unwrap()).await;
    assert!(said.ends_with("/work/sub\n/x\n"), "{said}");
}

#[tokio::test]
async fn what_it_changes_is_what_the_run_changed() {
    if lacks(Need::Overlay) {
        return;
    }
    for kind in [Kind::Layer, Kind::Copied] {
        let lab = Lab::new("off");
        let run = lab.open_as(kind).await;
        let place = run.enclose().await;
        let (end, said) = play(
            &*place,
            "echo more >> a.txt && mkdir new && echo n > new/n.txt && cat sub/b.txt",
        )
        .await;
        assert_eq!((end, said.as_str()), (FINE, "b\n"), "{kind:?}");
        assert_eq!(run.changes().await, ["a.txt", "new/n.txt"], "{kind:?}");
        assert_eq!(run.sh("cat a.txt").await.1, "a\nmore\n", "{kind:?}");
        assert_eq!(
            std::fs::read_to_string(lab.at("work/a.txt")).unwrap(),
            "a\n",
            "{kind:?}"
        );
    }
}

/// The line works, or it does not.
#[track_caller]
fn check<'a>(
    place: &'a dyn Enclosure,
    line: &'a str,
    works: bool,
) -> impl Future<Output = ()> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let (end, said) = play(place, line).await;
        assert_eq!(end == FINE, works, "{caller}: {line}: {end:?}: {said}");
    }
}

#[tokio::test]
async fn its_walls_hold() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = Lab::new("off");
    let machine = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = machine.local_addr().unwrap().port();
    let run = lab.open().await;
    let place = run.enclose().await;
    for line in [
        "echo x > \"$HOME/mine\"",
        "echo x > /tmp/x",
        "test \"$TERM\" = dumb",
        "git --version",
    ] {
        check(&*place, line, true).await;
    }
    for line in [
        format!("echo x > {}", lab.at("outside/new")),
        format!("cat {}", lab.at("outside/kept.txt")),
        format!("cat {}", lab.at("home/secret.txt")),
        format!("cat {}", lab.at("home/.agent/auth.json")),
        format!("echo x > {}", lab.at("home/new")),
        format!("ls {}/sessions", lab.at("data")),
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}"),
        "echo x > /etc/windlass-test".to_owned(),
        "echo x > /.windlass/x".to_owned(),
        "env | grep 'key-of-the-person\\|proxy.example\\|^XDG'".to_owned(),
        "cat /proc/1/environ | tr '\\0' '\\n' | grep key-of".to_owned(),
    ] {
        check(&*place, &line, false).await;
    }
    assert!(!lab.base.join("outside/new").exists());
}

/// With this network it reaches its endpoint and nobody else does.
async fn check_endpoint(net: &str) {
    let lab = Lab::new(net);
    let run = lab.open().await;
    let place = run.enclose().await;
    let port = place.endpoint().unwrap();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let ask = format!("{connect}; echo ping >&3; read -r answer <&3; echo \"$answer\"");
    let asking = place.start(script(&ask)).await.unwrap();
    let mut wire = BufReader::new(accept(&*place).await);
    let mut asked = String::new();
    wire.read_line(&mut asked).await.unwrap();
    assert_eq!(asked, "ping\n", "{net}");
    wire.write_all(b"pong\n").await.unwrap();
    assert_eq!(finish(asking).await, (FINE, "pong\n".to_owned()), "{net}");
    let (end, said) = run.sh(&connect).await;
    assert_ne!(
        end, FINE,
        "{net}: an ordinary command reaches the endpoint: {said}"
    );
    // One that is still alive finds nobody there when the place is left.
    let late = format!("echo ready; read -r; {connect}");
    let Inmate {
        mut stdin,
        stdout,
        stderr,
        life,
    } = place.start(script(&late)).await.unwrap();
    let mut stdout = BufReader::new(stdout);
    let mut ready = String::new();
    stdout.read_line(&mut ready).await.unwrap();
    drop((wire, place));
    stdin.write_all(b"\n").await.unwrap();
    let (end, said) = finish(Inmate {
        stdin,
        stdout: Box::new(stdout),
        stderr,
        life,
    })
    .await;
    assert!(end != FINE && said.contains("refused"), "{net}: {said}");
    let (end, said) = run.sh(&connect).await;
    assert_ne!(end, FINE, "{net}: somebody still listens: {said}");
    // The next iteration has another one.
    assert!(run.enclose().await.endpoint().is_some());
}

#[tokio::test]
async fn only_it_reaches_its_endpoint_and_only_while_it_has_one() {
    for net in ["off", "loopback", "allow:ok.example"] {
        check_endpoint(net).await;
    }
}

#[tokio::test]
async fn without_a_network_of_its_own_there_is_no_endpoint() {
    let lab = Lab::logged_in("open");
    let run = lab.open().await;
    let place = run.enclose().await;
    assert_eq!(place.endpoint(), None);
    assert!(
        tokio::time::timeout(Duration::ZERO, place.accept())
            .await
            .is_err()
    );
    assert_eq!(
        play(&*place, "echo $HTTPS_PROXY").await,
        (FINE, "\n".to_owned())
    );
}

/// Asks the proxy for a host, and says what it answers and what goes past it.
const ASK: &str = "exec 3<>/dev/tcp/127.0.0.1/${HTTPS_PROXY##*:}; \
                   printf 'CONNECT other.example:443 HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3; echo \"$NO_PROXY\"";

#[tokio::test]
async fn hosts_of_a_login_are_its_own_and_others_are_refused_and_told() {
    for net in ["off", "loopback", "allow:ok.example"] {
        let lab = Lab::logged_in(net);
        let run = lab.open().await;
        let place = run.enclose().await;
        let (end, said) = play(&*place, ASK).await;
        assert!(
            end == FINE && said.contains(" 403 ") && said.contains("127.0.0.1"),
            "{net}: {said}"
        );
        assert_eq!(place.take_refused(), ["other.example"], "{net}");
        assert!(place.take_refused().is_empty(), "{net}");
        // It cannot be resolved here, which is another answer than one for a host that is not allowed.
        let (_, said) = play(&*place, &ASK.replace("other.example", "login.example")).await;
        assert!(
            !said.contains(" 403 ") && place.take_refused().is_empty(),
            "{net}: {said}"
        );
    }
    // What commands may do is not more for it; an agent without a login reaches nobody, and is told so at once.
    let lab = Lab::new("off");
    let run = lab.open().await;
    let place = run.enclose().await;
    assert_eq!(run.sh("env | grep -c _PROXY").await.1, "0\n");
    let (_, said) = play(&*place, &ASK.replace("other.example", "login.example")).await;
    assert!(said.contains(" 403 "), "{said}");
    assert_eq!(place.take_refused(), ["login.example"]);
}

#[tokio::test]
async fn what_it_leaves_behind_ends_with_it() {
    let lab = Lab::new("off");
    let run = lab.open().await;
    let place = run.enclose().await;
    // The daemon holds the pipes: only its end is the end of what they say.
    let (end, said) = play(
        &*place,
        "setsid sleep 1000 & (setsid nohup sleep 1000 &) ; echo left",
    )
    .await;
    assert_eq!((end, said.as_str()), (FINE, "left\n"));
}

#[tokio::test]
async fn frozen_with_its_run_it_does_nothing_until_it_is_resumed() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = Lab::new("off");
    let run = lab.open().await;
    let place = run.enclose().await;
    // A child of it writes all the time, and is stopped with it.
    let text = "echo x > ticks; (while :; do echo x >> ticks; done) & \
                while read -r line; do echo \"heard $line\"; done; kill $!";
    let Inmate {
        mut stdin,
        stdout,
        stderr,
        mut life,
    } = place.start(script(text)).await.unwrap();
    let mut lines = BufReader::new(stdout).lines();
    stdin.write_all(b"one\n").await.unwrap();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "heard one");

    run.0.freeze().await.unwrap();
    stdin.write_all(b"two\n").await.unwrap();
    // Commands of the run work meanwhile, and see a file that does not grow.
    let look = "test -s ticks; a=$(stat -c %s ticks); for n in 1 2 3 4 5 6 7 8 9; do cat ticks > /dev/null; done; \
                test \"$(stat -c %s ticks)\" = \"$a\" && echo same";
    assert_eq!(run.sh(look).await, (FINE, "same\n".to_owned()));

    assert!(place.resume());
    let heard = tokio::time::timeout(PATIENCE, lines.next_line()).await;
    assert_eq!(heard.unwrap().unwrap().unwrap(), "heard two");
    drop((stdin, stderr));
    let ended = tokio::time::timeout(PATIENCE, life.wait()).await;
    assert_eq!(ended.unwrap().unwrap(), FINE);
    assert!(!place.resume(), "nothing is left to resume");
}

#[tokio::test]
async fn dropped_or_with_its_run_it_is_gone_at_once() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = Lab::new("off");
    let run = lab.open().await;
    let place = run.enclose().await;
    let stubborn = "trap '' TERM; (setsid sleep 1000 &); echo on; sleep 1000";
    for how in ["dropped", "stopped", "closed"] {
        let Inmate {
            stdin,
            stdout,
            stderr,
            mut life,
        } = place.start(script(stubborn)).await.unwrap();
        let mut stdout = BufReader::new(stdout);
        let mut said = String::new();
        stdout.read_line(&mut said).await.unwrap();
        let began = Instant::now();
        match how {
            "dropped" => drop(life),
            "stopped" => {
                run.0.processes().stop_all().await;
                assert_eq!(
                    life.wait().await.unwrap(),
                    ProcessEnd::Signalled { signal: 9 }
                );
            }
            _ => {
                run.0.catch_up().await.unwrap();
                let _ = life.wait().await;
            }
        }
        let rest = tokio::time::timeout(PATIENCE, stdout.read_to_string(&mut said)).await;
        assert_eq!(rest.expect("it is still there").unwrap(), 0);
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{how}: {:?}",
            began.elapsed()
        );
        drop((stdin, stderr));
    }
}

#[tokio::test]
async fn a_copy_that_is_mounted_anew_has_a_place_again() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = Lab::new("off");
    let run = lab.open().await;
    let place = run.enclose().await;
    assert_eq!(play(&*place, "echo x > x.txt").await.0, FINE);
    std::fs::write(lab.at("work/a.txt"), "mine\n").unwrap();
    run.0.catch_up().await.unwrap();
    let again = run.enclose().await;
    assert_eq!(
        play(&*again, "cat a.txt x.txt").await,
        (FINE, "mine\nx\n".to_owned())
    );
    let Err(refused) = place.start(script("true")).await else {
        panic!("the old place is of another sandbox")
    };
    assert!(refused.0.contains("closed"), "{refused}");
}

#[tokio::test]
async fn its_home_stays_for_the_session_and_is_nobody_elses() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = Lab::new("off");
    let run = lab.open().await;
    let place = run.enclose().await;
    place.put("conf/deep/settings.json", b"{}").unwrap();
    let line =
        "test \"$HOME\" = /.windlass/home && cat ~/conf/deep/settings.json && echo kept > ~/memory";
    assert_eq!(play(&*place, line).await, (FINE, "{}".to_owned()));
    let home = std::fs::read_dir(lab.base.join("data/sessions"))
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
    assert_eq!(run.sh("ls -A /.windlass/home").await, (FINE, String::new()));
    drop((place, run));

    let run = lab.open().await;
    assert_eq!(run.enclose().await.read("memory", 10).unwrap(), b"kept\n");
    drop(run);
    let other = lab.open_how(Isolation::Isolated, 2).await;
    assert!(other.enclose().await.read("memory", 10).is_err());
}

#[tokio::test]
async fn links_in_its_home_lead_nowhere() {
    let lab = Lab::new("off");
    let run = lab.open().await;
    let place = run.enclose().await;
    let plant = format!(
        "ln -s {0} ~/file; ln -s {0} ~/conf.json; ln -s {1} ~/folder; ln -s ../../.. ~/up; mkfifo ~/pipe; \
         head -c 100 /dev/zero > ~/large",
        lab.at("outside/kept.txt"),
        lab.at("outside")
    );
    assert_eq!(play(&*place, &plant).await.0, FINE);
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
        assert!(place.read(path, 50).is_err(), "{path}");
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
        assert!(place.put(path, b"ours").is_err(), "{path}");
    }
    assert_eq!(
        std::fs::read_to_string(lab.at("outside/kept.txt")).unwrap(),
        "kept\n"
    );
    assert!(!lab.base.join("outside/new").exists());
    // A person may keep their login behind a link.
    let mut lab = Lab::logged_in("off");
    symlink(lab.at("home/.agent/auth.json"), lab.at("home/link.json")).unwrap();
    lab.plan.agent.as_mut().unwrap().home_files[0].from = lab.base.join("home/link.json");
    let run = lab.open().await;
    assert_eq!(
        play(&*run.enclose().await, "cat ~/.agent/auth.json").await,
        (FINE, "login\n".to_owned())
    );
}

#[tokio::test]
async fn what_it_left_for_itself_can_be_removed_and_nothing_else() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = Lab::new("off");
    let run = lab.open().await;
    let place = run.enclose().await;
    let plant = format!(
        "mkdir -p ~/conf/rules; echo x > ~/conf/rules/a; ln -s {} ~/folder; ln -s folder ~/chain",
        lab.at("outside")
    );
    assert_eq!(play(&*place, &plant).await.0, FINE);
    for path in [
        "folder/kept.txt",
        "chain/kept.txt",
        "../robot",
        "..",
        "",
        "/etc/hosts",
    ] {
        assert!(place.clear(path).is_err(), "{path}");
    }
    for path in ["conf/rules", "chain", "folder", "absent", "absent/too"] {
        place.clear(path).unwrap();
    }
    assert_eq!(
        play(&*place, "ls -A ~ ~/conf")
            .await
            .1
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
        "/.windlass/home: conf /.windlass/home/conf:"
    );
    assert_eq!(
        std::fs::read_to_string(lab.at("outside/kept.txt")).unwrap(),
        "kept\n"
    );
}

#[tokio::test]
async fn a_login_is_shown_to_it_alone_and_not_written() {
    if lacks(Need::Overlay) {
        return;
    }
    let lab = Lab::logged_in("off");
    let run = lab.open().await;
    let place = run.enclose().await;
    assert_eq!(
        play(&*place, "cat ~/.agent/auth.json; ls -A ~/.agent").await,
        (FINE, "login\nauth.json\n".to_owned())
    );
    for line in [
        "echo x > ~/.agent/auth.json",
        "mv ~/.agent/auth.json ~/x",
        "unlink ~/.agent/auth.json",
    ] {
        check(&*place, line, false).await;
    }
    check(&*place, "echo x > ~/.agent/own", true).await;
    assert!(place.put(".agent/auth.json", b"x").is_err());
    assert_eq!(
        std::fs::read_to_string(lab.at("home/.agent/auth.json")).unwrap(),
        "login\n"
    );
    assert_ne!(run.sh("cat /.windlass/home/.agent/auth.json").await.0, FINE);
    let find = format!("find /.windlass {} -name auth.json", lab.at(""));
    assert_eq!(run.sh(&find).await.1, "");
    // The next sandbox finds the place of the file as the last one left it.
    drop((place, run));
    let run = lab.open().await;
    assert_eq!(
        play(&*run.enclose().await, "cat ~/.agent/auth.json ~/.agent/own")
            .await
            .1,
        "login\nx\n"
    );
}

#[tokio::test]
async fn what_cannot_be_had_says_why() {
    let lab = Lab::new("off");
    let run = lab.open().await;
    let place = run.enclose().await;
    let missing = Launch {
        argv: vec!["no-such-agent".into()],
        ..Launch::default()
    };
    let mut inmate = place.start(missing).await.unwrap();
    let why = inmate.life.wait().await.unwrap_err().0;
    assert!(why.contains("no-such-agent"), "{why}");
    let nowhere = Launch {
        workdir: "../..".into(),
        ..script("true")
    };
    assert!(place.start(nowhere).await.is_err());
    assert!(place.start(Launch::default()).await.is_err());
    let Err(why) = lab
        .open_how(Isolation::InPlace, 3)
        .await
        .0
        .processes()
        .enclose()
        .await
    else {
        panic!("in place")
    };
    assert!(why.0.contains("isolated"), "{why}");
    let mut none = Lab::new("off");
    none.plan.agent = None;
    assert!(none.open().await.0.processes().enclose().await.is_err());
    let mut lost = Lab::logged_in("off");
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
async fn its_limits_are_told() {
    let mut lab = Lab::new("off");
    lab.plan.limits.processes = 20;
    let run = lab.open().await;
    let place = run.enclose().await;
    let mut inmate = place
        .start(script("for n in {1..60}; do sleep 1000 & done; wait"))
        .await
        .unwrap();
    let why = inmate.life.wait().await.unwrap_err().0;
    assert!(why.contains("limit of 20 processes"), "{why}");
    drop((inmate, place, run));

    lab.plan.limits.memory = 256 << 20;
    let run = lab.open().await;
    let place = run.enclose().await;
    // It holds all of a line that does not end.
    let mut inmate = place
        .start(script("head -c 2G /dev/zero | tail -n 1 > /dev/null"))
        .await
        .unwrap();
    match inmate.life.wait().await {
        Err(why) => assert!(why.0.contains("limit of 256 MiB"), "{why}"),
        // Where the system hands on a group for it, the kernel ends it first.
        Ok(end) => assert_ne!(end, FINE),
    }
    // What is only set aside is another thing for it than for commands.
    let set_aside = |(_, said): (ProcessEnd, String)| said.trim().parse::<u64>().unwrap() >> 10;
    assert_eq!(set_aside(run.sh("ulimit -d").await), 256);
    assert!(set_aside(play(&*place, "ulimit -d").await) > 32 << 10);
}
