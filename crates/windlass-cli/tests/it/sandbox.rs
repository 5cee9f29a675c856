//! The kernel sandbox with the real binary: everyday work succeeds inside, and access to the outside fails.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

use windlass_needs::{Need, lacks, lacks_program};
use windlass_scripted::{Act, ByteServer, http};

use crate::cli_fixture::{BINARY, CliFixture, CliOutput};

/// Runs a line in the sandbox, with the real home directory in the search path for tools.
fn hold(fixture: &CliFixture, flags: &[&str], line: &str) -> CliOutput {
    let mut args = vec!["sandbox"];
    args.extend_from_slice(flags);
    args.extend(["--", "bash", "-c", line]);
    fixture.run(&args)
}

#[track_caller]
fn works(fixture: &CliFixture, flags: &[&str], line: &str, expect: &str) {
    let output = hold(fixture, flags, line);
    assert!(
        output.code == 0 && output.out.contains(expect),
        "{line}: {}\n{}\n{}",
        output.code,
        output.out,
        output.err
    );
}

#[track_caller]
fn fails(fixture: &CliFixture, flags: &[&str], line: &str) {
    let output = hold(fixture, flags, line);
    assert!(output.code != 0, "{line}: {}", output.out);
}

#[test]
fn a_program_keeps_its_arguments_stdin_and_exit_code() {
    let fixture = CliFixture::new();
    let command = fixture.command(&[
        "sandbox",
        "--",
        "sh",
        "-c",
        "cat; echo \"$1\" >&2; exit 7",
        "x",
        "a b",
    ]);
    let output = fixture.run_with(command, "typed");
    assert_eq!(
        (output.code, output.out.as_str(), output.err.as_str()),
        (7, "typed", "a b\n")
    );
    let missing = fixture.run(&["sandbox", "--", "no-such-program"]);
    assert!(
        missing.code == 127 && missing.err.contains("no-such-program"),
        "{}",
        missing.err
    );
    let none = fixture.run(&["sandbox", "-s", "full", "--", "true"]);
    assert!(
        none.code == 2 && none.err.contains("no sandbox at all"),
        "{}",
        none.err
    );
    let wrong = fixture.run(&["sandbox", "--net", "somewhere", "--", "true"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("loopback"),
        "{}",
        wrong.err
    );
}

#[test]
fn builds_and_commits_work_in_the_sandbox() {
    let fixture = CliFixture::new();
    fixture.write(
        "Cargo.toml",
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    fixture.write("src/main.rs", "fn main() { println!(\"built\"); }\n");
    // The toolchain is in the real home directory, which is visible read-only.
    let mut command = fixture.command(&[
        "sandbox",
        "--",
        "bash",
        "-c",
        "cargo build --offline -q && target/debug/tiny",
    ]);
    for name in ["CARGO_HOME", "RUSTUP_HOME"] {
        let usual = std::env::var_os("HOME").map(|home| {
            std::path::Path::new(&home)
                .join(if name == "CARGO_HOME" {
                    ".cargo"
                } else {
                    ".rustup"
                })
                .into_os_string()
        });
        if let Some(folder) = std::env::var_os(name).or(usual) {
            command.env(name, folder);
        }
    }
    let output = fixture.run_with(command, "");
    assert!(
        output.code == 0 && output.out.contains("built"),
        "{}\n{}",
        output.out,
        output.err
    );
    let git = "git init -q . && git -c user.name=t -c user.email=t@t.invalid commit -q --allow-empty -m first && \
               git status --porcelain && git log --oneline";
    works(&fixture, &[], git, "first");
    let git = "git add -A && git -c user.name=t -c user.email=t@t.invalid commit -qm second && git log --oneline | head -1";
    works(&fixture, &[], git, "second");
    fails(&fixture, &[], "git config core.pager x");
    fails(&fixture, &[], "touch ~/x");
    assert!(!fixture.home().join("x").exists());
    assert!(!fixture.work().join(".vscode").exists() && !fixture.work().join("AGENTS.md").exists());
}

#[test]
fn node_packages_are_tested_in_the_sandbox() {
    if lacks_program("npm") {
        return;
    }
    let fixture = CliFixture::new();
    fixture.write(
        "package.json",
        r#"{"name":"tiny","version":"1.0.0","scripts":{"test":"node test.js"}}"#,
    );
    fixture.write(
        "test.js",
        "require('fs').writeFileSync('out.txt', 'x'); console.log('passed');\n",
    );
    works(&fixture, &[], "npm test --silent", "passed");
    assert_eq!(fixture.read("out.txt"), "x");
}

/// A package index on loopback with one package.
fn index(wheel: Vec<u8>) -> ByteServer {
    let answer = move |_: usize, request: &str| {
        let first = request.lines().next().unwrap_or_default();
        let (kind, body) = match first.contains(".whl") {
            true => ("application/octet-stream", wheel.clone()),
            false => (
                "text/html",
                b"<a href=\"/tinydep-1.0-py3-none-any.whl\">tinydep-1.0-py3-none-any.whl</a>"
                    .to_vec(),
            ),
        };
        let headers = format!("content-type: {kind}\r\nconnection: close\r\n");
        vec![Act::Say(http::whole(200, &headers, body)), Act::Close]
    };
    ByteServer::start(answer).unwrap()
}

const MAKE_WHEEL: &str = "import zipfile,sys
z=zipfile.ZipFile('tinydep-1.0-py3-none-any.whl','w')
z.writestr('tinydep.py','WORD=\"fetched\"\\n')
z.writestr('tinydep-1.0.dist-info/METADATA','Metadata-Version: 2.1\\nName: tinydep\\nVersion: 1.0\\n')
z.writestr('tinydep-1.0.dist-info/WHEEL','Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
z.writestr('tinydep-1.0.dist-info/RECORD','')
z.close()
";

/// A build backend in the tree, so that only the dependency is downloaded.
const BACKEND: &str = "import zipfile,os
def _wheel(d):
    n='tiny-1.0-py3-none-any.whl'
    z=zipfile.ZipFile(os.path.join(d,n),'w')
    z.writestr('tiny.pth',os.getcwd()+'\\n')
    z.writestr('tiny-1.0.dist-info/METADATA','Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\nRequires-Dist: tinydep\\n')
    z.writestr('tiny-1.0.dist-info/WHEEL','Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr('tiny-1.0.dist-info/RECORD','')
    z.close()
    return n
def build_wheel(d,*a,**k): return _wheel(d)
def build_editable(d,*a,**k): return _wheel(d)
def get_requires_for_build_editable(*a): return []
def get_requires_for_build_wheel(*a): return []
";

#[test]
fn python_packages_are_installed_from_an_allowed_host() {
    if lacks_program("python3") {
        return;
    }
    let fixture = CliFixture::new();
    fixture.write("make.py", MAKE_WHEEL);
    works(&fixture, &[], "python3 make.py", "");
    let wheel = std::fs::read(fixture.work().join("tinydep-1.0-py3-none-any.whl")).unwrap();
    let index = index(wheel);
    let url = &index.url;
    fixture.write("pyproject.toml", "[build-system]\nrequires=[]\nbuild-backend='backend'\nbackend-path=['.']\n[project]\nname='tiny'\nversion='1.0'\n");
    fixture.write("backend.py", BACKEND);
    fixture.write("tiny.py", "import tinydep\nprint(tinydep.WORD)\n");
    let line = format!(
        "python3 -m venv .venv && .venv/bin/pip install -q --disable-pip-version-check --no-cache-dir --isolated --index-url \
         {url}/simple --trusted-host 127.0.0.1 -e . && .venv/bin/python -m tiny"
    );
    // Without this setting, pip would bypass the proxy for this address.
    let net = url.replace("http://", "allow:");
    let line = format!("unset NO_PROXY no_proxy; {line}");
    works(&fixture, &["--net", &net], &line, "fetched");
}

/// Answers every connection with `hello`, and counts them.
fn greeter() -> (u16, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n",
            );
        }
    });
    (port, seen)
}

const FETCH: &str = "exec 3<>/dev/tcp/127.0.0.1/${HTTP_PROXY##*:}; printf 'GET http://HOST/ HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";

#[test]
fn the_net_flag_controls_network_access() {
    let fixture = CliFixture::new();
    let (port, seen) = greeter();
    let direct = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    fails(&fixture, &[], &direct);
    fails(&fixture, &["--net", "loopback"], &direct);
    assert_eq!(seen.load(std::sync::atomic::Ordering::SeqCst), 0);
    works(
        &fixture,
        &["--net", "open"],
        &format!("{direct}; printf 'x' >&3; cat <&3"),
        "hello",
    );
    let net = format!("allow:127.0.0.1:{port}");
    works(
        &fixture,
        &["--net", &net],
        &FETCH.replace("HOST", &format!("127.0.0.1:{port}")),
        "hello",
    );
    let refused = hold(
        &fixture,
        &["--net", &net],
        &FETCH.replace("HOST", "other.example"),
    );
    assert!(
        refused.out.contains("403")
            && refused
                .err
                .contains("refused a connection to other.example"),
        "{}",
        refused.err
    );
    works(
        &fixture,
        &["--net", "loopback"],
        "(exec 3<>/dev/tcp/127.0.0.1/9) 2>&1 | grep -q refused && echo up",
        "up",
    );
}

#[test]
fn a_refused_connection_is_an_event_and_a_hint() {
    let fixture = CliFixture::new();
    fixture.write("fetch.sh", &FETCH.replace("HOST", "other.example"));
    let script = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"bash fetch.sh; exit 1\" } }]\n[[step]]\ntext = \"done\"\n";
    let output = fixture.play(
        script,
        &[
            "--approval",
            "auto",
            "--net",
            "allow:some.example",
            "-o",
            "stream-json",
        ],
    );
    assert_eq!(output.code, 0, "{}", output.err);
    let log = fixture.log();
    let refused = log
        .iter()
        .find(|event| event["kind"] == "connection_refused")
        .expect("an event");
    assert_eq!(refused["data"]["host"], "other.example");
    let result = log
        .iter()
        .find(|event| event["kind"] == "call_finished")
        .expect("a result");
    let text = result["data"]["result"]["text"].as_str().unwrap();
    assert!(
        text.contains("--net allow:some.example,other.example"),
        "{text}"
    );
    let opened = log
        .iter()
        .find(|event| event["kind"] == "transaction_opened")
        .expect("the terms");
    assert!(
        ["namespaces", "broker"].contains(&opened["data"]["tier"].as_str().unwrap()),
        "{opened}"
    );
    assert_eq!(opened["data"]["network"]["hosts"][0], "some.example");
}

#[test]
fn a_granted_path_is_visible_and_a_missing_one_is_an_error() {
    let fixture = CliFixture::new();
    let shared = fixture.home().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::write(shared.join("x"), "granted").unwrap();
    fixture.write(".env.test", "A=1");
    fails(&fixture, &[], "cat ~/shared/x");
    fails(&fixture, &[], "cat .env.test");
    let grant = |text: &str| {
        let mut command =
            fixture.command(&["sandbox", "--", "bash", "-c", "cat ~/shared/x .env.test"]);
        command.env("WINDLASS_SANDBOX_READ", text);
        fixture.run_with(command, "")
    };
    let output = grant(r#"["~/shared", ".env.test", "other.env"]"#);
    assert_eq!(
        (output.code, output.out.as_str()),
        (0, "grantedA=1"),
        "{}",
        output.err
    );
    let output = grant(r#"["~/nowhere"]"#);
    assert!(
        output.code == 2 && output.err.contains("`~/nowhere`, which does not exist"),
        "{}",
        output.err
    );
}

#[test]
fn a_unix_socket_in_the_workspace_is_not_reachable() {
    if lacks_program("python3") {
        return;
    }
    let fixture = CliFixture::new();
    let path = fixture.work().canonicalize().unwrap().join("service.sock");
    let _service = std::os::unix::net::UnixListener::bind(&path).unwrap();
    fixture.write(
        "knock.py",
        "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect('service.sock')\nprint('in')\n",
    );
    fails(&fixture, &[], "python3 knock.py");
    // A socket without a listener is an ordinary file, and commands can use their own sockets.
    std::os::unix::net::UnixListener::bind(fixture.work().join("old.sock")).unwrap();
    let own = "import os,socket\nos.unlink('old.sock')\na=socket.socket(socket.AF_UNIX)\na.bind('old.sock')\na.listen()\n\
               b=socket.socket(socket.AF_UNIX)\nb.connect('old.sock')\nprint('own')\n";
    fixture.write("own.py", own);
    works(&fixture, &[], "python3 own.py", "own");
}

#[test]
fn processes_and_placeholders_of_a_killed_engine_are_removed() {
    if lacks(Need::Namespaces) {
        return;
    }
    let fixture = CliFixture::new();
    let mut command = fixture.command(&[
        "sandbox",
        "--",
        "bash",
        "-c",
        "echo up; sleep 987654 & wait",
    ]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut up = [0; 3];
    child.stdout.take().unwrap().read_exact(&mut up).unwrap();
    assert!(fixture.work().join(".vscode").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let alive = || {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.starts_with(b"sleep\0987654"))
        })
    };
    for _ in 0..250 {
        if !alive() && !fixture.work().join(".vscode").exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!(
        "something is left: {:?}",
        std::fs::read_dir(fixture.work())
            .unwrap()
            .collect::<Vec<_>>()
    );
}

/// Runs the binary without user namespaces.
fn without_namespaces(fixture: &CliFixture, args: &[&str]) -> CliOutput {
    let mut command = fixture.command(&[]);
    let line = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    let mut outer = std::process::Command::new("unshare");
    outer
        .args(["--user", "--map-root-user", "sh", "-c", line, "sh", BINARY])
        .args(args)
        .current_dir(fixture.work());
    outer.env_clear().envs(
        command
            .env("XDG_DATA_HOME", fixture.home().join("data"))
            .get_envs()
            .filter_map(|(k, v)| Some((k, v?))),
    );
    fixture.run_with(outer, "")
}

#[test]
fn without_namespaces_the_broker_contains_commands_on_a_copy() {
    if lacks(Need::Namespaces) {
        return;
    }
    let fixture = CliFixture::new();
    let held = without_namespaces(
        &fixture,
        &["sandbox", "--", "sh", "-c", "touch x; echo y > ../outside"],
    );
    assert!(
        held.code != 0 && fixture.work().join("x").exists(),
        "{} {}",
        held.code,
        held.err
    );
    assert!(!fixture.work().join("../outside").exists());
    let script = fixture.script(
        "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"echo hi > new; rm -f x; mkdir d\" } }]\n\
         [[step]]\ntext = \"done\"\n",
    );
    let base = [
        "run",
        "--approval",
        "auto",
        "--yes",
        "--validate",
        "none",
        "--script",
        script.as_str(),
        "go",
    ];
    let run = without_namespaces(
        &fixture,
        &[&base[..], &["--in-place", "-o", "stream-json"]].concat(),
    );
    assert!(
        run.code == 0 && run.out.contains("\"tier\":\"broker\""),
        "{} {}",
        run.code,
        run.out
    );
    assert!(run.out.contains("\"not_held\":["), "{}", run.out);
    assert_eq!(
        std::fs::read_to_string(fixture.work().join("new")).unwrap(),
        "hi\n"
    );
    assert!(!fixture.work().join("x").exists() && fixture.work().join("d").is_dir());
    let undone = without_namespaces(&fixture, &["undo"]);
    assert!(
        undone.code == 0 && !fixture.work().join("new").exists(),
        "{} {}",
        undone.code,
        undone.err
    );
    assert!(fixture.work().join("x").exists());
    fixture.script(
        "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"echo hi > new\" } }]\n[[step]]\ntext = \"done\"\n",
    );
    let isolated = without_namespaces(&fixture, &[&base[..], &["-o", "stream-json"]].concat());
    assert!(
        isolated.code == 0 && isolated.out.contains("\"tier\":\"broker\""),
        "{} {}",
        isolated.code,
        isolated.out
    );
    assert_eq!(
        std::fs::read_to_string(fixture.work().join("new")).unwrap(),
        "hi\n"
    );
}

#[test]
fn an_unavailable_sandbox_is_refused_with_a_fix() {
    if lacks(Need::Namespaces) {
        return;
    }
    let fixture = CliFixture::new();
    let config = fixture.home().join(".config/windlass/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "[sandbox]\nrequire = \"namespaces\"\n").unwrap();
    let refused = without_namespaces(&fixture, &["sandbox", "--", "touch", "x"]);
    let (err, told) = (
        &refused.err,
        [
            "sandbox.require",
            "user namespaces are not available",
            "windlass doctor",
        ],
    );
    assert!(
        refused.code == 8 && told.iter().all(|part| err.contains(part)),
        "{} {err}",
        refused.code
    );
    let script = fixture.script(
        "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"touch x\" } }]\n[[step]]\ntext = \"done\"\n",
    );
    let base = [
        "run",
        "--in-place",
        "--approval",
        "auto",
        "--yes",
        "--script",
        script.as_str(),
        "go",
    ];
    let asked = without_namespaces(
        &fixture,
        &[&base[..], &["--sandbox", "workspace-write"]].concat(),
    );
    assert!(
        asked.code == 8 && asked.err.contains("not available"),
        "{} {}",
        asked.code,
        asked.err
    );
    assert!(!fixture.work().join("x").exists());
    let full = without_namespaces(&fixture, &[&base[..], &["--sandbox", "full"]].concat());
    assert!(
        full.code == 8 && full.err.contains("sandbox.require"),
        "{} {}",
        full.code,
        full.err
    );
    std::fs::remove_file(&config).unwrap();
    let full = without_namespaces(&fixture, &[&base[..], &["--sandbox", "full"]].concat());
    assert!(
        full.code == 0 && fixture.work().join("x").exists(),
        "{} {}",
        full.code,
        full.err
    );
}
