//! Tests of webhooks on loopback, the command of the user, and the queue.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use windlass_core::outcome::RunSummary;
use windlass_core::workspace::{Change, FileChange};
use windlass_host::config::SettingsLayer;
use windlass_scripted::{Act, ByteServer, http};

use super::*;
use crate::environment::Environment;
use crate::notices::{Notice, Notices};

fn finished() -> Event {
    let mut run = RunSummary::new(Outcome::Completed);
    run.totals.cost_micros = 20_000;
    run.files.push(FileChange {
        path: "a.txt".to_owned(),
        change: Change::Created,
        added: None,
        removed: None,
        diff: None,
    });
    let mut event = landed(7);
    event.run = "r1".parse().ok();
    event.kind = EventKind::RunFinished(run);
    event
}

fn landed(seq: u64) -> Event {
    let text = format!(
        r#"{{"v":2,"seq":{seq},"at":"2026-11-15T00:00:00.000Z","session":"s1","trace":"t","kind":"landed","data":{{"files":["a"]}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

struct Fixture {
    dir: tempfile::TempDir,
    settings: Settings,
    warnings: Arc<Mutex<Vec<String>>>,
    notifier: Notifier,
}

impl Fixture {
    fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::none(dir.path());
        let file = Path::new("config.toml");
        settings
            .layers
            .add_text(SettingsLayer::User, file, config)
            .unwrap();
        settings.environment = Environment::empty()
            .with("PATH", "/usr/bin:/bin")
            .with("HOOK_SECRET", "abc")
            .with("WORD", "hello");
        settings.places.home = Some(dir.path().to_owned());
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let list = warnings.clone();
        settings.notices = Notices::new(move |notice| {
            if let Notice::Warning(text) = notice {
                list.lock().push(text.to_owned());
            }
        });
        let notifier = Notifier::with_pause(settings.notices.clone(), Duration::from_millis(1));
        Self {
            dir,
            settings,
            warnings,
            notifier,
        }
    }

    fn run(&self, channels: Channels) -> RunNotifications {
        RunNotifications::open(&self.settings, &self.notifier, Path::new("/w"), channels)
    }

    async fn send(&self, event: &Event) -> Vec<String> {
        self.run(Channels::All).event(event);
        assert!(self.notifier.flush(Duration::from_secs(60)).await);
        std::mem::take(&mut *self.warnings.lock())
    }
}

fn answer(status: u16) -> Vec<Act> {
    vec![Act::Say(http::whole(status, "", "x"))]
}

fn webhook(url: &str, more: &str) -> String {
    format!("[webhooks.ci]\nurl = \"{url}/hook\"\nallow_private = true\n{more}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_gets_signed_requests_and_failed_ones_again() {
    let server = ByteServer::start(|number, _| answer(if number < 2 { 503 } else { 204 })).unwrap();
    let fixture = Fixture::new(&webhook(&server.url, "secret_env = \"HOOK_SECRET\""));
    assert_eq!(fixture.send(&finished()).await, Vec::<String>::new());
    let requests = server.requests();
    assert_eq!(requests.len(), 3, "two retries");
    let (head, body) = requests[2].split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /hook "), "{head}");
    let header = |name: &str| {
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("{name} is missing: {head}"))
            .to_owned()
    };
    assert_eq!(header("webhook-id"), "s1:7");
    let signed = format!("s1:7.{}.{body}", header("webhook-timestamp"));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"abc");
    let tag = ring::hmac::sign(&key, signed.as_bytes());
    let expect = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, tag);
    assert_eq!(header("webhook-signature"), format!("v1,{expect}"));
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        body,
        json!({ "id": "s1:7", "kind": "run_finished", "at": "2026-11-15T00:00:00.000Z", "session": "s1",
            "workspace": "/w", "run": "r1", "summary": "completed (1 file changed, $0.0200)",
            "data": { "outcome": { "is": "completed" }, "cost_usd": 0.02,
                "files": [{ "path": "a.txt", "change": "created" }] } })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_gives_up_after_five_retries_and_does_not_follow_redirects() {
    let server = ByteServer::start(|_, _| answer(500)).unwrap();
    let fixture = Fixture::new(&webhook(&server.url, ""));
    let warnings = fixture.send(&landed(3)).await;
    assert_eq!(server.requests().len(), 6);
    assert!(
        warnings[0].contains("`ci` did not get the notification s1:3")
            && warnings[0].contains("500"),
        "{warnings:?}"
    );
    let other = ByteServer::start(|_, _| answer(200)).unwrap();
    let moved = format!(
        "HTTP/1.1 307 Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
        other.url
    );
    let server = ByteServer::saying(vec![Act::Say(moved.into_bytes())]).unwrap();
    let fixture = Fixture::new(&webhook(&server.url, ""));
    let warnings = fixture.send(&landed(3)).await;
    assert!(warnings[0].contains("307"), "{warnings:?}");
    assert_eq!((server.requests().len(), other.connections()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_refused_without_a_connection() {
    let server = ByteServer::start(|_, _| answer(200)).unwrap();
    let port = server.url.rsplit_once(':').unwrap().1;
    for host in [
        "127.0.0.1",
        "localhost",
        "169.254.169.254",
        "[::ffff:127.0.0.1]",
    ] {
        let fixture = Fixture::new(&format!("webhooks.ci.url = \"http://{host}:{port}/\""));
        let warnings = fixture.send(&landed(3)).await;
        assert!(
            warnings[0].contains("private address") && warnings[0].contains("allow_private"),
            "{warnings:?}"
        );
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_choose_their_events_and_surfaces_choose_their_channels() {
    let server = ByteServer::start(|_, _| answer(200)).unwrap();
    let fixture = Fixture::new(&webhook(&server.url, "events = [\"landed\"]"));
    fixture.send(&finished()).await;
    assert_eq!(server.connections(), 0);
    fixture.run(Channels::Command).event(&landed(3));
    assert!(fixture.notifier.flush(Duration::from_secs(60)).await);
    assert_eq!(server.connections(), 0);
    fixture.send(&landed(3)).await;
    assert_eq!(server.requests().len(), 1);
    assert!(!server.requests()[0].contains("webhook-signature"));
}

#[tokio::test]
async fn a_webhook_that_cannot_be_used_is_a_warning() {
    #[track_caller]
    fn check(config: &str, expect: &str) {
        let fixture = Fixture::new(config);
        fixture.run(Channels::All);
        let warnings = fixture.warnings.lock();
        assert!(
            warnings[0].contains("`a b` is not used") && warnings[0].contains(expect),
            "{warnings:?}"
        );
    }
    check("[webhooks.\"a b\"]\nevents = []", "`url` is missing");
    check(
        "[webhooks.\"a b\"]\nurl = \"file:///etc\"",
        "not an address",
    );
    check(
        "[webhooks.\"a b\"]\nurl = \"http://u:p@x.example/\"",
        "password",
    );
    check(
        "[webhooks.\"a b\"]\nurl = \"http://x.example/\"\nevents = [\"said\"]",
        "`said` is not a notification",
    );
    check(
        "[webhooks.\"a b\"]\nurl = \"http://x.example/\"\nsecret_env = \"NO_SECRET\"",
        "NO_SECRET is not set",
    );
    check(
        "[webhooks.\"a b\"]\nurl = \"http://x.example/\"\nsecret_env = \"WORD\"",
        "no command of an agent",
    );
}

#[tokio::test]
async fn the_command_of_the_user_gets_the_notification_without_secrets() {
    let fixture = Fixture::new("notify.command = \"cat > note; echo $WORD$HOOK_SECRET > env\"");
    fixture.run(Channels::Command).event(&finished());
    assert!(fixture.notifier.flush(Duration::from_secs(60)).await);
    let read = |name: &str| std::fs::read_to_string(fixture.dir.path().join(name)).unwrap();
    let note: Value = serde_json::from_str(&read("note")).unwrap();
    assert_eq!(
        (&note["id"], &note["kind"]),
        (&json!("s1:7"), &json!("run_finished"))
    );
    assert_eq!(read("env"), "hello\n");
    let fixture = Fixture::new("notify.command = \"exit 3\"");
    assert!(fixture.send(&landed(3)).await[0].contains("`notify.command` failed"));
}

#[tokio::test]
async fn a_full_queue_drops_the_oldest_notifications() {
    let fixture = Fixture::new("notify.command = \"cat >> ids\"");
    let run = fixture.run(Channels::Command);
    // On this runtime of one thread, nothing is delivered before the next wait.
    for seq in 1..=1_003 {
        run.event(&landed(seq));
    }
    let warnings = fixture.warnings.lock();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("1000 notifications wait"),
        "{warnings:?}"
    );
}
