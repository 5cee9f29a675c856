//! Tests of salvaging damaged logs.

use super::*;

/// Salvages a log and compares the number of kept events, of lost lines, the first bad line, and the readable events
/// after it.
#[track_caller]
fn check_salvage(content: &[u8], expect: (u64, u64, Option<u64>), rest: &[u64]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let f = runtime.block_on(LogFixture::written(1));
    std::fs::write(f.path(), content).unwrap();
    let salvaged = f.log.salvage(&f.id).unwrap();
    assert_eq!(
        (salvaged.kept, salvaged.lost, salvaged.first_bad_line),
        expect
    );
    assert_eq!(
        std::fs::read(&salvaged.original).unwrap(),
        content,
        "the original stays as it was"
    );
    let undamaged = salvaged.first_bad_line.is_none();
    assert_eq!(salvaged.original == f.path(), undamaged);
    assert_eq!(undamaged, std::fs::read(f.path()).unwrap() == content);
    let after_damage = salvaged
        .rest
        .map(|rest| std::fs::read_to_string(rest).unwrap())
        .unwrap_or_default();
    let seqs: Vec<u64> = after_damage
        .lines()
        .map(|line| serde_json::from_str::<Event>(line).unwrap())
        .map(|event| event.order.seq().unwrap())
        .collect();
    assert_eq!(seqs, rest);
    // The session works again, and a second salvage finds nothing to do.
    runtime.block_on(async {
        if undamaged {
            return;
        }
        let (mut writer, notices) = f.open(OpenLog::Existing).await.unwrap();
        assert_eq!(notices, Vec::<String>::new());
        f.append(&mut writer, salvaged.kept + 1..=salvaged.kept + 1)
            .await;
        assert_eq!(f.seqs().await, (1..=salvaged.kept + 1).collect::<Vec<_>>());
        drop(writer);
        assert_eq!(f.log.salvage(&f.id).unwrap().first_bad_line, None);
    });
}

fn log_of(lines: &[&str]) -> Vec<u8> {
    lines
        .iter()
        .flat_map(|line| [line.as_bytes(), b"\n"].concat())
        .collect()
}

#[test]
fn events_before_the_damage_are_kept_and_the_rest_is_saved() {
    let id: SessionId = "s1".parse().unwrap();
    let [one, two, three, four] = [1, 2, 3, 4].map(|seq| line(&id, seq));
    let [one, two, three, four] = [&*one, &two, &three, &four];
    check_salvage(&log_of(&[one, two, three]), (3, 0, None), &[]);
    check_salvage(&log_of(&[one, two, "garbage", four]), (2, 2, Some(3)), &[4]);
    check_salvage(&log_of(&[one, three, four]), (1, 2, Some(2)), &[3, 4]);
    check_salvage(&log_of(&[one, two, two, three]), (2, 2, Some(3)), &[2, 3]);
    check_salvage(
        &log_of(&[one, "", two, "{\"v\":2}", "\u{0}"]),
        (1, 4, Some(2)),
        &[2],
    );
    check_salvage(
        &[log_of(&[one]), b"\xff\xfe\n".to_vec(), log_of(&[two])].concat(),
        (1, 2, Some(2)),
        &[2],
    );
    // An incomplete last line is not damage; opening the log repairs it.
    check_salvage(
        &[log_of(&[one, two]), b"{\"v\":".to_vec()].concat(),
        (2, 0, None),
        &[],
    );
    check_salvage(
        &[log_of(&[one, two]), vec![0; 5000]].concat(),
        (2, 0, None),
        &[],
    );
}

#[tokio::test]
async fn a_log_that_cannot_be_salvaged_stays_unchanged() {
    let f = LogFixture::written(2).await;
    let whole = std::fs::read(f.path()).unwrap();
    let (writer, _) = f.open(OpenLog::Existing).await.unwrap();
    assert_eq!(
        f.log.salvage(&f.id).unwrap_err().kind,
        StoreErrorKind::Locked
    );
    drop(writer);
    let newer = line(&f.id, 3).replacen("\"v\":2", "\"v\":3", 1) + "\n";
    let cases = [
        ("garbage\n".to_owned(), StoreErrorKind::Damaged),
        (newer, StoreErrorKind::OtherVersion),
    ];
    for (at, (bad, kind)) in cases.into_iter().enumerate() {
        let content = if at == 0 {
            bad.into_bytes()
        } else {
            [&*whole, bad.as_bytes()].concat()
        };
        std::fs::write(f.path(), &content).unwrap();
        assert_eq!(f.log.salvage(&f.id).unwrap_err().kind, kind);
        assert_eq!(std::fs::read(f.path()).unwrap(), content);
        assert!(!f.path().with_extension("jsonl.damaged-1").exists());
    }
    let nobody: SessionId = "nobody".parse().unwrap();
    assert_eq!(
        f.log.salvage(&nobody).unwrap_err().kind,
        StoreErrorKind::NotFound
    );
    assert!(!f.log.home(&nobody).exists());
}
