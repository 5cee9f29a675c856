//! Runs commands in the real sandbox without namespaces: they work on a copy, and the broker performs the calls that
//! Landlock does not restrict.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use lab::{READ_ONLY_LINE, check_pause, helper, run, wait_until};
use windlass_sandbox::{
    Access, AgentHome, Ended, HELPER_ARG, Limits, Net, PRIVATE, SandboxSession, SignalBarrier,
    Spec, Standard, StartedHelper, Tier, Tree, Within,
};

mod lab;

/// A workspace, its copy, a folder next to them and a home.
struct BrokerLab {
    _scratch: tempfile::TempDir,
    base: PathBuf,
    spec: Spec,
}

impl BrokerLab {
    fn new(net: Net) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        for folder in [
            "ws",
            "copy/src",
            "out",
            "home/.ssh",
            "home/tools/bin",
            "boxes",
        ] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        fs::write(base.join("copy/README.md"), "hello\n").unwrap();
        fs::write(base.join("ws/README.md"), "theirs\n").unwrap();
        fs::write(base.join("out/victim.txt"), "original\n").unwrap();
        fs::write(base.join("home/.ssh/id_x"), "planted\n").unwrap();
        fs::write(base.join("home/tools/a"), "tool\n").unwrap();
        fs::write(base.join("home/tools/credentials"), "planted\n").unwrap();
        let spec = Spec {
            tree: Tree::Copy {
                from: base.join("copy"),
            },
            tier: Tier::Broker,
            net,
            home: Some(base.join("home")),
            read: vec![base.join("home/tools")],
            // The engine's own folder, which contains the private directories, is hidden as well.
            hide: vec![base.join("home/tools/credentials"), base.join("boxes")],
            scratch: Some(base.join("boxes")),
            ..Spec::around(base.join("ws"))
        };
        Self {
            _scratch: scratch,
            base,
            spec,
        }
    }

    /// The lab as it is on this kernel, and as it is on a kernel whose Landlock does not restrict signals.
    fn with_both_signals(net: Net) -> [Self; 2] {
        [SignalBarrier::of_this_kernel(), SignalBarrier::Broker].map(|signals| {
            let mut lab = Self::new(net);
            lab.spec.signals = signals;
            lab
        })
    }

    fn open(&self) -> SandboxSession {
        SandboxSession::open(&helper(), &self.spec).unwrap().session
    }

    fn run(&self, line: &str) -> (Ended, String) {
        run(
            &self.open(),
            &self.base.join("copy"),
            &line.replace("@", self.base.to_str().unwrap()),
        )
    }

    /// Checks the exit code and the output of a command line in which `@` stands for the base folder.
    #[track_caller]
    fn check(&self, line: &str, code: i32, expect: &str) {
        let (ended, output) = self.run(line);
        let output = output.replace(self.base.to_str().unwrap(), "@");
        assert_eq!(
            (ended.status.code(), output.trim()),
            (Some(code), expect),
            "{line}"
        );
    }

    /// Checks that the command line fails and changes nothing outside the copy.
    #[track_caller]
    fn check_refused(&self, line: &str) {
        let before = fs::metadata(self.base.join("out/victim.txt")).unwrap();
        let (ended, output) = self.run(line);
        assert_ne!(ended.status.code(), Some(0), "{line}: {output}");
        let after = fs::metadata(self.base.join("out/victim.txt")).unwrap();
        assert_eq!(
            (before.mode(), before.mtime(), before.uid()),
            (after.mode(), after.mtime(), after.uid()),
            "{line}"
        );
        assert_eq!(
            fs::read_to_string(self.base.join("out/victim.txt")).unwrap(),
            "original\n",
            "{line}"
        );
        assert_eq!(
            fs::read_to_string(self.base.join("ws/README.md")).unwrap(),
            "theirs\n",
            "{line}"
        );
        assert!(!output.contains("planted"), "{line}: {output}");
    }
}

#[test]
fn commands_work_on_the_copy() {
    let lab = BrokerLab::new(Net::Off);
    lab.check(
        "cat README.md && echo hi > src/a && mkdir d && mv src/a d/b && cat d/b && ln -s b d/c && rm d/c",
        0,
        "hello\nhi",
    );
    assert_eq!(
        fs::read_to_string(lab.base.join("copy/d/b")).unwrap(),
        "hi\n"
    );
    lab.check("pwd; cat @/home/tools/a", 0, "@/copy\ntool");
    // `mv` would fall back to copying.
    lab.check(
        "python3 -c \"import os; os.rename('d/b', 'src/e'); os.link('src/e', 'd/f'); print('moved')\"",
        0,
        "moved",
    );
}

#[test]
fn nothing_outside_the_copy_is_read_or_written() {
    let lab = BrokerLab::new(Net::Off);
    for line in [
        "echo x > @/out/victim.txt",
        "echo x > @/ws/README.md",
        "cat @/ws/README.md",
        "cat @/home/.ssh/id_x",
        "cat @/home/tools/credentials",
        "ln @/out/victim.txt h && echo x > h",
        "mv @/out/victim.txt stolen",
        "truncate -s 0 @/out/victim.txt",
        "rm -f @/out/victim.txt; test ! -e @/out/victim.txt",
        "mkdir @/out/new",
        "ls @/out",
        "echo x > /proc/self/root@/out/victim.txt",
        "echo x > /tmp/windlass-broker-test",
    ] {
        lab.check_refused(line);
    }
}

#[test]
fn attributes_are_changed_in_the_copy_alone() {
    let lab = BrokerLab::new(Net::Off);
    for line in [
        "chmod 777 @/out/victim.txt",
        "cd @/out && chmod 777 victim.txt",
        "ln -s @/out/victim.txt l; chmod 777 l",
        "touch -t 200001010000 @/out/victim.txt",
        "chown 1:1 @/out/victim.txt",
        "chmod 777 @/home/tools/a",
        "python3 -c \"import os; os.fchmod(os.open('@/home/tools/a', 0), 0o777)\"",
        "python3 -c \"import os; os.utime(os.open('@/home/tools/a', 0), (1, 1))\"",
        "python3 -c \"import os; os.setxattr('@/home/tools/a', 'user.x', b'1')\"",
    ] {
        lab.check_refused(line);
    }
    lab.check(
        "chmod 750 README.md && stat -c %a README.md && cd src && chmod 600 ../README.md && stat -c %a ../README.md",
        0,
        "750\n600",
    );
    lab.check(
        "touch -t 200001010000 README.md && stat -c %y README.md | cut -c1-10",
        0,
        "2000-01-01",
    );
    lab.check("ln -sf README.md s; touch -h -t 200101010000 s && stat -c %y s | cut -c1-10 && stat -c %y README.md | cut -c1-10", 0, "2001-01-01\n2000-01-01");
    lab.check("cp -p README.md copy.md && stat -c %a copy.md; tar cf a.tar README.md && mkdir x && tar xpf a.tar -C x && stat -c '%a %y' x/README.md | cut -c1-14", 0, "600\n600 2000-01-01");
    lab.check("python3 -c \"import os; f=os.open('README.md',0); os.fchmod(f,0o644); os.utime(f,(5,5)); os.chmod('/proc/self/fd/%d'%f, 0o640); print(oct(os.stat('README.md').st_mode))\"", 0, "0o100640");
}

#[test]
fn a_server_of_a_command_is_reached_by_its_clients() {
    let lab = BrokerLab::new(Net::Loopback);
    let serve = "python3 - <<'E'
import socket, threading
def serve(host, family):
    s = socket.socket(family); s.bind((host, 0)); s.listen(5)
    def answer():
        c, _ = s.accept(); c.sendall(b'hi ' + c.recv(9)); c.close()
    threading.Thread(target=answer).start()
    return s.getsockname()[1]
for host, family, to in [('127.0.0.1', 2, '127.0.0.1'), ('0.0.0.0', 2, 'localhost'), ('::', 10, '127.0.0.1'), ('', 2, '127.0.0.1')]:
    port = serve(host, family)
    c = socket.create_connection((to, port), 5); c.sendall(b'you'); print(c.recv(99).decode()); c.close()
E";
    lab.check(serve, 0, "hi you\nhi you\nhi you\nhi you");
}

#[test]
fn a_port_that_was_given_up_can_be_bound_again() {
    let lab = BrokerLab::new(Net::Loopback);
    let line = "python3 - <<'E'
import socket
s = socket.socket(); s.bind(('', 0)); port = s.getsockname()[1]; s.close()
t = socket.socket(); t.bind(('127.0.0.1', port)); t.listen(); t.listen(9)
c = socket.create_connection(('127.0.0.1', port)); print('again')
E";
    lab.check(line, 0, "again");
}

#[test]
fn a_closed_connection_is_closed_for_the_other_side() {
    let lab = BrokerLab::new(Net::Loopback);
    let line = "python3 - <<'E'
import socket
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
c = socket.create_connection(s.getsockname()); p, _ = s.accept(); c.close()
p.settimeout(5); print(p.recv(1))
E";
    lab.check(line, 0, "b''");
}

#[test]
fn nothing_else_of_this_machine_is_reached() {
    let lab = BrokerLab::new(Net::Loopback);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = lab.base.join("out/s");
    let _unix = UnixListener::bind(&socket).unwrap();
    let name = std::os::unix::net::SocketAddr::from_abstract_name(b"windlass-test").unwrap();
    let _abstract = UnixListener::bind_addr(&name).unwrap();
    for line in [
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}"),
        format!("python3 -c \"import socket; socket.create_connection(('127.0.0.1',{port}),2)\""),
        format!(
            "python3 -c \"import socket; s=socket.socket(10); s.connect(('::ffff:127.0.0.1',{port}))\""
        ),
        format!(
            "python3 -c \"import socket; s=socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1',{port}))\""
        ),
        "python3 -c \"import socket; socket.socket(2,2)\"".to_owned(),
        "python3 -c \"import socket; socket.socket(2,3,1)\"".to_owned(),
        "python3 -c \"import socket; socket.socket(17,3)\"".to_owned(),
        "python3 -c \"import socket; socket.socketpair(1,2)\"".to_owned(),
        "python3 -c \"import socket; socket.socketpair(1,3)\"".to_owned(),
        "python3 -c \"import socket; s=socket.socket(); s.setsockopt(1,25,b'lo')\"".to_owned(),
        "python3 -c \"import socket; s=socket.socket(1); s.connect('@/out/s')\"".to_owned(),
        "ln -s @/out/s s; python3 -c \"import socket; s=socket.socket(1); s.connect('s')\""
            .to_owned(),
        "python3 -c \"import socket; s=socket.socket(1); s.bind('@/out/t')\"".to_owned(),
        "python3 -c \"import socket; s=socket.socket(1); s.connect(chr(0)+'windlass-test')\""
            .to_owned(),
        "python3 -c \"import socket; s=socket.create_connection(('10.1.1.1',80),1)\"".to_owned(),
    ] {
        lab.check_refused(&line);
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
    lab.check(
        "python3 -c \"
import socket
s=socket.socket(1); s.bind('here'); s.listen()
c=socket.socket(1); c.connect('here'); p,_=s.accept(); c.send(b'x'); print(p.recv(1))\"",
        0,
        "b'x'",
    );
}

#[test]
fn a_server_on_a_path_tells_its_own_path() {
    let lab = BrokerLab::new(Net::Off);
    let line = "python3 -c \"
import socket, os
s = socket.socket(1); s.bind('here'); s.listen(); print(s.getsockname() == os.getcwd() + '/here')
c = socket.socket(1); c.connect(s.getsockname()); print('connected')\"";
    lab.check(line, 0, "True\nconnected");
    let line = "python3 -c \"
import socket, os
name = chr(0) + 'windlass-test-%d' % os.getpid()
s = socket.socket(1); s.bind(name); s.listen()
c = socket.socket(1); c.connect(name); p, _ = s.accept(); c.send(b'x'); print(p.recv(1))\"";
    lab.check(line, 0, "b'x'");
}

#[test]
fn without_a_network_nothing_is_bound_or_reached() {
    let lab = BrokerLab::new(Net::Off);
    lab.check_refused("python3 -c \"import socket; s=socket.socket(); s.bind(('127.0.0.1',0))\"");
    lab.check_refused("python3 -c \"import socket; s=socket.socket(); s.listen()\"");
    lab.check_refused("exec 3<>/dev/tcp/127.0.0.1/1");
}

/// The kernel treats an address without a family as "any address".
#[test]
fn an_address_without_a_family_is_refused() {
    for net in [Net::Off, Net::Loopback] {
        let lab = BrokerLab::new(net);
        lab.check(
            "python3 -c \"
import socket, ctypes, struct
s = socket.socket(); libc = ctypes.CDLL(None, use_errno=True)
for call in (libc.bind, libc.connect):
    print(call(s.fileno(), struct.pack('=H', 0) + struct.pack('!H', 45999) + bytes(12), 16), ctypes.get_errno())\"",
            0,
            "-1 97\n-1 97",
        );
    }
}

#[test]
fn a_socket_that_listens_without_an_address_is_bound_to_loopback() {
    let lab = BrokerLab::new(Net::Loopback);
    lab.check(
        "python3 -c \"import socket; s=socket.socket(); s.listen(); print(s.getsockname()[0])\"",
        0,
        "127.0.0.1",
    );
}

#[test]
fn the_engine_is_reached_where_it_listens_for_commands() {
    let mut lab = BrokerLab::new(Net::Proxy);
    let opened = SandboxSession::open(&helper(), &lab.spec).unwrap();
    let (port, listener) = opened.listener.unwrap();
    let accept = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    let (ended, output) = run(
        &opened.session,
        &lab.base.join("copy"),
        &format!("echo hello > /dev/tcp/127.0.0.1/{port}"),
    );
    assert!(ended.status.success(), "{output}");
    assert_eq!(accept.join().unwrap(), "hello\n");
    drop(opened.session);
    // Commands must not reach the listeners of an agent.
    lab.spec.agent = Some(AgentHome {
        from: lab.base.join("home"),
        files: Vec::new(),
    });
    lab.spec.net = Net::Off;
    let session = lab.open();
    let (done, made) = std::sync::mpsc::channel();
    session
        .enclose(1, move |result| drop(done.send(result)))
        .unwrap();
    let (place, listeners) = made.recv().unwrap().unwrap();
    let port = listeners[0].0;
    let (ended, _) = run(
        &session,
        &lab.base.join("copy"),
        &format!("echo x > /dev/tcp/127.0.0.1/{port}"),
    );
    assert!(!ended.status.success());
    let line = format!(
        "echo x > /dev/tcp/127.0.0.1/{port} && echo note > {}/home/note",
        lab.base.display()
    );
    let null = || {
        fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .unwrap()
            .into()
    };
    let standard = Standard {
        input: null(),
        output: null(),
        error: null(),
    };
    let (done, ended) = std::sync::mpsc::channel();
    let argv = ["/bin/bash".into(), "-c".into(), line.into()];
    let child = session
        .start(
            &argv,
            &[],
            &lab.base.join("copy"),
            Within::Place(&place),
            standard,
            move |end| drop(done.send(end)),
        )
        .unwrap();
    assert!(ended.recv().unwrap().unwrap().status.success());
    drop(child);
    assert_eq!(
        fs::read_to_string(lab.base.join("home/note")).unwrap(),
        "note\n"
    );
}

#[test]
fn a_paused_command_does_nothing_until_it_is_resumed() {
    for lab in BrokerLab::with_both_signals(Net::Off) {
        check_pause(&lab.open(), &lab.base.join("copy"));
    }
}

#[test]
fn a_command_that_only_reads_changes_nothing() {
    let lab = BrokerLab::new(Net::Off);
    let (_, output) = lab.run(READ_ONLY_LINE);
    assert!(output.starts_with("hello\n"), "{output}");
    assert!(!lab.base.join("copy/new").exists());
}

#[test]
fn variables_lead_to_private_directories() {
    let lab = BrokerLab::new(Net::Off);
    let session = lab.open();
    let (mut reads, writes) = std::io::pipe().unwrap();
    let input = fs::File::open("/dev/null").unwrap().into();
    let standard = Standard {
        input,
        output: writes.try_clone().unwrap().into(),
        error: writes.into(),
    };
    let env = [
        ("TMPDIR".into(), format!("{PRIVATE}/tmp").into()),
        ("HOME".into(), format!("{PRIVATE}/home").into()),
    ];
    let line = "t=$(mktemp) && chmod 640 $t && echo x > $t && echo y > ~/.cache/z && cat $t ~/.cache/z; echo no > ~/z; cat ~/tools/a";
    let argv = ["/bin/bash".into(), "-c".into(), line.into()];
    let (done, ended) = std::sync::mpsc::channel();
    let dir = lab.base.join("copy");
    let child = session
        .start(&argv, &env, &dir, Access::Write, standard, move |end| {
            drop(done.send(end))
        })
        .unwrap();
    let mut output = String::new();
    reads.read_to_string(&mut output).unwrap();
    ended.recv().unwrap().unwrap();
    drop(child);
    assert!(
        output.starts_with("x\ny\n") && output.ends_with("denied\ntool\n"),
        "{output}"
    );
    drop(session);
    wait_until(|| {
        fs::read_dir(lab.base.join("boxes"))
            .unwrap()
            .next()
            .is_none()
    });
}

#[test]
fn the_helpers_argument_alone_makes_no_helper() {
    // The test program takes the argument as a test name filter that matches no test.
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .arg(HELPER_ARG)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("running 0 tests"), "{text}");
}

#[test]
fn a_closed_session_leaves_no_process_to_reap() {
    let lab = BrokerLab::new(Net::Off);
    let opened = SandboxSession::open(&helper(), &lab.spec).unwrap();
    run(&opened.session, &lab.base.join("copy"), "echo done");
    drop(opened.session);
    // On a busy machine the helper may need longer than a caller waits.
    opened.exit.wait_within(Duration::from_secs(10));
    assert!(opened.exit.is_over());
    drop(StartedHelper::spawn(&helper()).unwrap());
    // Both helpers were reaped. Children of this process have its id as their parent.
    let own = format!("PPid:\t{}\n", std::process::id());
    let children = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        status.contains(&own)
    });
    assert_eq!(children.count(), 0);
}

#[test]
fn nothing_outlives_its_command() {
    BrokerLab::with_both_signals(Net::Off)
        .iter()
        .for_each(check_nothing_outlives);
}

fn check_nothing_outlives(lab: &BrokerLab) {
    let mark = format!("windlass-{}", std::process::id());
    lab.check(
        &format!("(setsid sh -c 'sleep 60; : {mark}' >/dev/null 2>&1 &); (sleep 61 # {mark}\n) & disown; echo done"),
        0,
        "done",
    );
    let alive = |mark: &str| {
        fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            entry.file_name() != *std::process::id().to_string()
                && String::from_utf8_lossy(&line).contains(mark)
        })
    };
    assert!(!alive(&mark));
    // The same applies if the command is killed, and if the whole session is closed.
    let session = lab.open();
    let null = || {
        fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .unwrap()
            .into()
    };
    let standard = Standard {
        input: null(),
        output: null(),
        error: null(),
    };
    let line = format!("setsid sh -c 'touch started; sleep 60; : {mark}' & wait");
    let argv = ["/bin/bash".into(), "-c".into(), line.into()];
    let (done, ended) = std::sync::mpsc::channel();
    let dir = lab.base.join("copy");
    let child = session
        .start(&argv, &[], &dir, Access::Write, standard, move |end| {
            drop(done.send(end))
        })
        .unwrap();
    wait_until(|| lab.base.join("copy/started").exists());
    assert!(alive(&mark));
    child.kill();
    ended.recv().unwrap().unwrap();
    assert!(!alive(&mark));
}

#[test]
fn signals_and_memory_of_other_processes_are_out_of_reach() {
    BrokerLab::with_both_signals(Net::Off)
        .iter()
        .for_each(check_others_out_of_reach);
}

fn check_others_out_of_reach(lab: &BrokerLab) {
    let mut canary = std::process::Command::new("sleep")
        .arg("60")
        .env("CANARY", "planted")
        .spawn()
        .unwrap();
    let pid = canary.id();
    for line in [
        format!("kill -9 {pid}"),
        format!(
            "python3 -c \"import os,signal; signal.pidfd_send_signal(os.pidfd_open({pid}), 9)\""
        ),
        format!("python3 -c \"import ctypes; assert ctypes.CDLL(None).syscall(200,{pid},9)==0\""),
        format!(
            "python3 -c \"import ctypes; assert ctypes.CDLL(None).syscall(234,{pid},{pid},9)==0\""
        ),
        format!("python3 -c \"import ctypes; assert ctypes.CDLL(None).sigqueue({pid},9,0)==0\""),
        format!(
            "python3 -c \"import os,fcntl; r,w=os.pipe(); fcntl.fcntl(r,8,{pid}); fcntl.fcntl(r,10,9); fcntl.fcntl(r,4,0o20000); os.write(w,b'x'); import time; time.sleep(.2); os.kill({pid},0)\""
        ),
        "kill -9 $PPID".to_owned(),
        format!("tr '\\0' '\\n' < /proc/{pid}/environ"),
        format!("cat /proc/{pid}/root/etc/hostname"),
        format!("prlimit --pid {pid} --nofile=1"),
        format!("renice 19 {pid}"),
        format!(
            "python3 -c \"import ctypes; l=ctypes.CDLL(None); assert l.ptrace(16,{pid},0,0)==0\""
        ),
        "python3 -c \"import ctypes; l=ctypes.CDLL(None); assert l.shmget(1,4096,0o1666)>=0\""
            .to_owned(),
    ] {
        lab.check_refused(&line);
    }
    assert!(canary.try_wait().unwrap().is_none());
    canary.kill().unwrap();
    canary.wait().unwrap();
}

#[test]
fn commands_signal_their_own_processes() {
    for lab in BrokerLab::with_both_signals(Net::Off) {
        lab.check("sleep 60 & kill $!; wait $!; echo $?", 0, "143");
        lab.check(
            "sh -c 'kill -KILL $$' 2>&1 | cat; echo ${PIPESTATUS[0]}",
            0,
            "137",
        );
        lab.check("timeout -s INT 0.1 sleep 60; echo $?", 0, "124");
        lab.check(
            "kill -0 999999 2>&1 | grep -o 'No such process'",
            0,
            "No such process",
        );
        lab.check("(set -m; (sleep 60 & sleep 61) & kill -TERM -$!; wait $! 2>/dev/null; echo $? >&2) 2>&1 >/dev/null | tail -1", 0, "143");
        // Process group 0 and "all processes". Processes without a handler ignore SIGWINCH.
        for target in ["0", "-1"] {
            let line = "import os,signal,time; pid=os.fork()\nif pid: os.waitpid(pid,0)\nelse:\n  signal.signal(signal.SIGWINCH, lambda *_: (print('told', flush=True), os._exit(0)))\n  os.spawnvp(os.P_NOWAIT,'sh',['sh','-c','kill -WINCH TARGET'])\n  time.sleep(60)";
            lab.check(
                &format!(
                    "python3 -c $'{}'",
                    line.replace("TARGET", target).replace('\'', "\\'")
                ),
                0,
                "told",
            );
        }
        lab.check(
            "python3 -c \"import os; os.abort()\" 2>/dev/null | cat; echo ${PIPESTATUS[0]}",
            0,
            "134",
        );
        lab.check(
            "python3 -c \"import signal,threading; signal.signal(10, lambda *_: print('got')); signal.pthread_kill(threading.get_ident(), 10)\"",
            0,
            "got",
        );
        lab.check(
            "python3 -c \"import os,signal; p=os.fork() or signal.pause(); signal.pidfd_send_signal(os.pidfd_open(p), 9); print(os.waitpid(p,0)[1])\"",
            0,
            "9",
        );
    }
}

#[test]
fn a_command_has_terminals_of_its_own() {
    let lab = BrokerLab::new(Net::Off);
    // The C library asks the kernel for the slave end of a terminal.
    let opened = r#"python3 -c "
import os
first, second = os.openpty()
os.write(second, b'one\n')
print(os.read(first, 9), os.isatty(second), os.get_inheritable(second), os.ttyname(second).startswith('/dev/pts/'))
""#;
    lab.check(opened, 0, r"b'one\r\n' True False True");
    let controls = r#"python3 -c "
import os, pty
pid, terminal = pty.fork()
if pid == 0:
    os.execvp('sh', ['sh', '-c', 'echo hi > /dev/tty'])
print(os.read(terminal, 9), os.waitpid(pid, 0)[1])
""#;
    lab.check(controls, 0, r"b'hi\r\n' 0");
}

#[test]
fn terminals_of_other_programs_are_out_of_reach() {
    let lab = BrokerLab::new(Net::Off);
    let makes = "import os, sys; _, end = os.openpty(); print(os.ttyname(end), flush=True); sys.stdin.read()";
    let mut other = std::process::Command::new("python3");
    let mut other = other
        .args(["-c", makes])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut place = String::new();
    BufReader::new(other.stdout.take().unwrap())
        .read_line(&mut place)
        .unwrap();
    let place = place.trim();
    assert!(place.starts_with("/dev/pts/"), "{place}");
    lab.check_refused(&format!("echo x > {place}"));
    lab.check_refused(&format!("exec 3< {place}"));
    // Only a file descriptor that created a terminal leads to its slave end, and only with the flags of a terminal.
    let asks = |open: &str, flags: &str| {
        format!(
            "python3 -c \"import fcntl, os; fcntl.ioctl({open}, 0x5441, {flags})\" 2>&1 | tail -n 1"
        )
    };
    let not_a_terminal = "OSError: [Errno 25] Inappropriate ioctl for device";
    lab.check(&asks("os.open('README.md', 0)", "2"), 0, not_a_terminal);
    lab.check(&asks("os.open('/dev/null', 2)", "2"), 0, not_a_terminal);
    lab.check(
        &asks("99", "2"),
        0,
        "OSError: [Errno 9] Bad file descriptor",
    );
    lab.check(
        &asks("os.open('/dev/ptmx', 2)", "os.O_PATH"),
        0,
        "OSError: [Errno 22] Invalid argument",
    );
    // The command did not unlock the terminal.
    lab.check(
        &asks("os.open('/dev/ptmx', 2)", "2"),
        0,
        "OSError: [Errno 5] Input/output error",
    );
    drop(other.stdin.take());
    other.wait().unwrap();
}

#[test]
fn limits_hold() {
    let mut lab = BrokerLab::new(Net::Off);
    lab.spec.limits = Limits {
        processes: 40,
        memory: 200 << 20,
        ..Limits::default()
    };
    let (ended, _) = lab.run("for i in $(seq 100); do sleep 5 & done; wait");
    assert!(ended.limits.processes);
    let line = "python3 -c \"
import subprocess, threading, time
t = threading.Thread(target=lambda: ([subprocess.Popen(['sleep', '9']) for _ in range(100)], time.sleep(9)))
t.start(); t.join()\"";
    let (ended, _) = lab.run(line);
    assert!(ended.limits.processes, "children of other threads count");
    let (ended, _) = lab.run("python3 -c 'x=bytearray(400<<20)'");
    assert!(!ended.status.success());
}

#[test]
fn common_programs_work() {
    let lab = BrokerLab::new(Net::Loopback);
    lab.check("git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --oneline | wc -l", 0, "1");
    lab.check(
        "printf 'int main(){return 3;}' > a.c && gcc -o a a.c && ./a; echo $?",
        0,
        "3",
    );
    lab.check("cat <(echo sub)", 0, "sub");
    lab.check(
        "python3 -c \"import socket; print(socket.getaddrinfo('localhost', 80, type=1)[0][4][1])\"",
        0,
        "80",
    );
    lab.check("node -e \"const h=require('http');const s=h.createServer((q,r)=>r.end('ok')).listen(0,()=>h.get({port:s.address().port},r=>{r.pipe(process.stdout);r.on('end',()=>s.close())}))\"", 0, "ok");
    assert!(
        lab.base
            .join("copy/a")
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o111
            != 0
    );
}

#[test]
fn a_process_that_forks_and_exits_forever_is_ended() {
    for lab in BrokerLab::with_both_signals(Net::Off) {
        let mark = format!("racer-{}-{:?}", std::process::id(), lab.spec.signals);
        lab.check(
            &format!("python3 -c \"import os; m='{mark}'\nwhile True:\n  if os.fork(): os._exit(0)\" > /dev/null 2>&1 & sleep 0.2; echo done"),
            0,
            "done",
        );
        let alive = || {
            fs::read_dir("/proc").unwrap().flatten().any(|entry| {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(&mark)
            })
        };
        assert!((0..50).all(|_| !alive()), "{mark}");
    }
}
