//! Reading from the middle gives the same events with any index, and without one.

use super::*;

/// Writes lines of about a third of a part, so that every third line gets a mark.
async fn long() -> LogFixture {
    let f = fixture();
    let (mut writer, _) = f.open(OpenLog::New).await.unwrap();
    for seq in 1..=16 {
        let mut event = event(&f.id, seq);
        if seq > 2 {
            event.kind = EventKind::Noted {
                text: "x".repeat(6_000),
            };
        }
        writer
            .append(&event, &serde_json::to_string(&event).unwrap())
            .await
            .unwrap();
    }
    f
}

impl LogFixture {
    fn index(&self) -> PathBuf {
        self.path().with_extension("idx")
    }

    /// Returns the sequence numbers from `seq` on.
    async fn from(&self, seq: u64) -> Vec<u64> {
        let read = self.read_from(seq).await.into_iter();
        read.map(|event| event.unwrap().order.seq().unwrap())
            .collect()
    }
}

#[tokio::test]
async fn reading_from_the_middle_skips_earlier_lines() {
    let f = long().await;
    assert!(f.index().exists());
    for seq in [0, 1, 2, 5, 9, 16, 17, 99] {
        assert_eq!(f.from(seq).await, (seq.max(1)..=16).collect::<Vec<_>>());
    }
    // Earlier lines are not checked: damage there is found by reading the whole log.
    let mut log = std::fs::read(f.path()).unwrap();
    log[0] = b'x';
    std::fs::write(f.path(), &log).unwrap();
    assert_eq!(f.from(15).await, [15, 16]);
    let all = f.read_from(1).await;
    assert!(
        matches!(&all[..], [Err(err)] if err.kind == StoreErrorKind::Damaged),
        "{}",
        all.len()
    );
}

#[tokio::test]
async fn a_short_log_has_no_index() {
    let f = LogFixture::written(20).await;
    assert_eq!(f.from(12).await, (12..=20).collect::<Vec<_>>());
    let names = std::fs::read_dir(f.log.home(&f.id))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["events.jsonl", "writer.lock"]);
}

#[tokio::test]
async fn a_wrong_index_is_rebuilt() {
    let f = long().await;
    let right = std::fs::read(f.index()).unwrap();
    assert!(right.len() > 8 + 2 * 16, "{}", right.len());
    let shift = |at: usize, by: u8| {
        let mut bytes = right.clone();
        bytes[at] = bytes[at].wrapping_add(by);
        bytes
    };
    let last = right.len() - 16;
    let wrong: [Vec<u8>; 8] = [
        Vec::new(),
        b"not an index".to_vec(),
        right[..right.len() - 3].to_vec(),
        shift(last, 1),
        shift(last + 8, 1),
        shift(last + 13, 1),
        shift(last + 15, 255),
        [&right[..], &right[8..]].concat(),
    ];
    for (at, wrong) in wrong.into_iter().enumerate() {
        std::fs::write(f.index(), wrong).unwrap();
        assert_eq!(f.from(16).await, [16], "{at}");
        assert_eq!(std::fs::read(f.index()).unwrap(), right, "{at}");
    }
    std::fs::remove_file(f.index()).unwrap();
    assert_eq!(f.from(16).await, [16]);
    assert_eq!(std::fs::read(f.index()).unwrap(), right);
    // A log that was truncated and written again has other lines at the same offsets.
    let log = std::fs::read(f.path()).unwrap();
    let first_end = log.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let shifted = format!("{}\n", line(&f.id, 1).replace("\"/w\"", "\"/another\""));
    std::fs::write(f.path(), [shifted.as_bytes(), &log[first_end..]].concat()).unwrap();
    assert_eq!(f.from(16).await, [16]);
    assert_ne!(std::fs::read(f.index()).unwrap(), right);
}

#[tokio::test]
async fn a_writer_extends_the_existing_index() {
    let f = long().await;
    let before = std::fs::read(f.index()).unwrap();
    let (mut writer, _) = f.open(OpenLog::Existing).await.unwrap();
    for seq in 17..=24 {
        let mut event = event(&f.id, seq);
        event.kind = EventKind::Noted {
            text: "x".repeat(6_000),
        };
        writer
            .append(&event, &serde_json::to_string(&event).unwrap())
            .await
            .unwrap();
    }
    drop(writer);
    let after = std::fs::read(f.index()).unwrap();
    assert!(after.len() > before.len() && after.starts_with(&before));
    assert_eq!(f.from(24).await, [24]);
    // A missing index that cannot be written is not an error.
    std::fs::remove_file(f.index()).unwrap();
    std::fs::create_dir(f.index()).unwrap();
    assert_eq!(f.from(24).await, [24]);
}

#[test]
fn the_buffer_shrinks_after_a_long_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let long = "y".repeat(9 << 20);
    let short = "x".repeat(999) + "\n";
    std::fs::write(
        &path,
        short.repeat(500) + &long + "\n" + &short.repeat(5_000),
    )
    .unwrap();
    let mut lines = LogLines::new(File::open(&path).unwrap(), path, None);
    let (mut count, mut most) = (0, 0);
    while let Some(line) = lines.next().unwrap() {
        assert!(line.len() == 999 || line.len() == long.len());
        count += 1;
        most = most.max(lines.capacity());
    }
    assert_eq!(count, 5_501);
    assert!(
        most < 40 << 20 && lines.capacity() <= 1 << 20,
        "{most} and {}",
        lines.capacity()
    );
}
