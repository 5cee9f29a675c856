//! A snapshot is used only with the log whose first events it contains.

use std::io::Read as _;

use super::*;

impl LogFixture {
    /// Returns a log with a snapshot of its first 40 events, and ten events after it.
    async fn with_snapshot() -> Self {
        let f = fixture();
        let (mut writer, _) = f.open(OpenLog::New).await.unwrap();
        f.append(&mut writer, 1..=40).await;
        assert!(writer.snapshot_due());
        writer.save_snapshot(&|to| to.write_all(b"the state"));
        assert!(!writer.snapshot_due());
        f.append(&mut writer, 41..=50).await;
        f
    }

    fn snapshot_path(&self) -> PathBuf {
        self.path().with_extension("snap")
    }

    async fn state(&self) -> Option<String> {
        let mut snapshot = self.log.snapshot(&self.id).await?;
        let mut state = String::new();
        snapshot.read_to_string(&mut state).unwrap();
        Some(state)
    }

    async fn check_unused(&self, change: impl FnOnce(&mut Vec<u8>), path: PathBuf) {
        let mut bytes = std::fs::read(&path).unwrap();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(self.state().await, None);
    }
}

#[tokio::test]
async fn a_snapshot_of_the_first_events_is_found() {
    let f = LogFixture::with_snapshot().await;
    assert_eq!(f.state().await, Some("the state".to_owned()));
}

#[tokio::test]
async fn a_log_without_a_snapshot_returns_none() {
    let f = LogFixture::written(20).await;
    assert_eq!(f.state().await, None);
}

#[tokio::test]
async fn a_changed_byte_in_the_log_invalidates_the_snapshot() {
    let f = LogFixture::with_snapshot().await;
    f.check_unused(|log| log[700] ^= 1, f.path()).await;
}

#[tokio::test]
async fn a_shorter_log_invalidates_the_snapshot() {
    let f = LogFixture::with_snapshot().await;
    f.check_unused(|log| log.truncate(700), f.path()).await;
}

#[tokio::test]
async fn a_damaged_state_is_not_used() {
    for at in [0, 9, 17, 21, 26] {
        let f = LogFixture::with_snapshot().await;
        f.check_unused(|bytes| bytes[at] ^= 1, f.snapshot_path())
            .await;
    }
    let f = LogFixture::with_snapshot().await;
    f.check_unused(|bytes| bytes.truncate(20), f.snapshot_path())
        .await;
}

#[tokio::test]
async fn a_failed_save_keeps_the_previous_snapshot() {
    let f = LogFixture::with_snapshot().await;
    let (mut writer, _) = f.open(OpenLog::Existing).await.unwrap();
    writer.save_snapshot(&|to| {
        to.write_all(b"half")?;
        Err(std::io::Error::other("full"))
    });
    assert_eq!(f.state().await, Some("the state".to_owned()));
    let names = std::fs::read_dir(f.path().parent().unwrap()).unwrap();
    let left = names.filter(|name| {
        name.as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .contains("new")
    });
    assert_eq!(left.count(), 0);
}
