//! Tests of the baseline measurement with the kit's own agent: all steps happen, and an incomplete run is an error.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use windlass_kit::speed::{self, Floor};
use windlass_kit::{Claims, KitRuntime};

fn runtime(name: &str) -> KitRuntime {
    KitRuntime::new(
        name,
        None,
        Path::new(env!("CARGO_BIN_EXE_windlass-hostile-agent")),
        &[Claims {
            name: "native".to_owned(),
            built_in: true,
            ..Claims::default()
        }],
    )
    .unwrap()
}

#[test]
fn every_step_of_a_bare_agent_happens() {
    let sample = speed::bare(&runtime("fixture"), 5, Floor::Protocol).unwrap();
    assert_eq!(sample.requests, 6);
    assert!(
        !sample.steps.is_zero() && sample.whole > sample.steps,
        "{sample:?}"
    );
}

#[test]
fn an_agent_that_does_not_work_is_an_error() {
    assert!(speed::bare(&runtime("acp:true"), 1, Floor::Protocol).is_err());
    assert!(
        speed::bare(&runtime("native"), 1, Floor::Protocol)
            .unwrap_err()
            .contains("no bare protocol")
    );
    assert!(
        speed::bare(&runtime("fixture"), 1, Floor::OneShot)
            .unwrap_err()
            .contains("no one-shot command")
    );
}
