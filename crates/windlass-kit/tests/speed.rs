//! The bare run that the envelope is measured against, with the kit's own agent: all steps happen, and what does not
//! come to its end is no figure.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use windlass_kit::speed::{self, Floor};
use windlass_kit::{Claims, Runtime};

fn runtime(name: &str) -> Runtime {
    Runtime::new(
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
    assert_eq!(sample.asked, 6);
    assert!(
        !sample.steps.is_zero() && sample.whole > sample.steps,
        "{sample:?}"
    );
}

#[test]
fn an_agent_that_does_not_work_is_no_figure() {
    assert!(speed::bare(&runtime("acp:true"), 1, Floor::Protocol).is_err());
    assert!(
        speed::bare(&runtime("native"), 1, Floor::Protocol)
            .unwrap_err()
            .contains("no bare form")
    );
    assert!(
        speed::bare(&runtime("fixture"), 1, Floor::OneShot)
            .unwrap_err()
            .contains("no command")
    );
}
