//! A model that refuses: many agents report that only as text, and some repeat the request again and again.

use windlass_core::budget::Budget;

use super::lab::{Act, ByteServer, MeterLab, events, upstream};
use super::{ASK_MESSAGES, END, MESSAGES, START, TEXT};
use crate::endpoint::{Endpoint as _, Trip};

/// Sends requests with and without tools, and checks what the meter reports after each.
async fn check_declined(asks: &'static [(&'static str, bool)], ends: Option<Trip>) {
    let script = |_: usize, heard: &str| {
        let declines = heard.contains("decline");
        let end = if declines {
            END.replace("end_turn", "refusal")
        } else {
            END.to_owned()
        };
        vec![Act::Say(events(format!("{START}{TEXT}{end}")))]
    };
    let vendor = ByteServer::start(script).unwrap();
    let lab = MeterLab::new(vec![upstream("anthropic", &vendor.url)], Budget::UNLIMITED);
    let (declined, trip) = lab
        .during(async {
            let mut all = Vec::new();
            for (more, _) in asks {
                let ask =
                    ASK_MESSAGES.replace(r#""messages":[]"#, &format!(r#""messages":[],{more}"#));
                lab.ask(&lab.post(MESSAGES, &ask)).await;
                all.push(lab.meter.declined());
            }
            all
        })
        .await;
    assert_eq!(
        declined,
        asks.iter()
            .map(|(_, declined)| *declined)
            .collect::<Vec<_>>()
    );
    assert_eq!(trip, ends);
}

#[tokio::test]
async fn a_model_that_declines_is_seen_and_not_asked_without_end() {
    const WORK: &str = r#""tools":[{"name":"a"}]"#;
    const NO: &str = r#""tools":[{"name":"decline"}]"#;
    const ASIDE: &str = r#""tools":[]"#;
    const ASIDE_NO: &str = r#""tools":[],"metadata":"decline""#;
    check_declined(
        &[
            (WORK, false),
            (NO, true),
            (ASIDE, true),
            (WORK, false),
            (ASIDE_NO, false),
        ],
        None,
    )
    .await;
    check_declined(&[(ASIDE_NO, true), (ASIDE, false)], None).await;
    check_declined(
        &[
            (NO, true),
            (NO, true),
            (WORK, false),
            (NO, true),
            (NO, true),
        ],
        None,
    )
    .await;
    check_declined(&[(NO, true), (NO, true), (NO, true)], Some(Trip::Declined)).await;
}
