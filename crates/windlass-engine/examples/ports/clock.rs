//! A clock: wall time, time that passes, waiting, and chance. The engine has none of its own, so a host can replay.
//! This one is a simulation's: waiting takes no time and moves the simulated one, and chance is a sequence.
//! The engine's waits (after a busy upstream, for a person, for the time limit) all go through it.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass_core::BoxFuture;
use windlass_core::clock::{Clock, Timestamp};
use windlass_core::outcome::Outcome;
use windlass_core::provider::{ProviderError, ProviderErrorKind};
use windlass_engine::{NativeOptions, NativeRuntime, Request, RunOptions};
use windlass_testing::says;

use super::Shown;
use super::fakes::Fakes;

#[derive(Default)]
struct Simulated {
    passed: Mutex<Duration>,
    drawn: AtomicU64,
}

impl Clock for Simulated {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.monotonic().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(passed)
    }

    fn monotonic(&self) -> Duration {
        *self.passed.lock()
    }

    fn sleep(&self, how_long: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Others go first: what is waited for beside this sleep may be there already.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            *self.passed.lock() += how_long;
        })
    }

    fn entropy(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::Relaxed)
    }
}

pub(crate) async fn show() -> Shown {
    let kind = ProviderErrorKind::RateLimited {
        retry_after: Some(Duration::from_secs(40)),
    };
    let busy = || {
        vec![Err(ProviderError {
            kind: kind.clone(),
            message: "busy".into(),
            status: Some(429),
        })]
    };
    let fakes = Fakes::new([busy(), busy(), says("at last")]);
    let clock = Arc::new(Simulated::default());
    let provider = Arc::new(fakes.provider.clone());
    let options = NativeOptions {
        model: "any".into(),
        ..NativeOptions::default()
    };
    let native = NativeRuntime::new(provider, clock.clone(), options);
    let engine = fakes
        .builder()
        .runtime(Arc::new(native))
        .clock(clock.clone())
        .build()?;
    // The time limit is a wait as well, and this clock would be through with it at once.
    let mut options = RunOptions::default();
    options.budget.seconds = None;
    let result = engine
        .execute(Request {
            options,
            ..Request::new("when you can")
        })
        .await?;
    assert_eq!(
        (result.outcome(), result.text.as_str()),
        (Some(&Outcome::Completed), "at last")
    );
    assert_eq!(
        result.summary.map(|summary| summary.ms),
        Some(80_000),
        "two waits of forty seconds, in no time"
    );
    assert!(
        result.session.to_string().starts_with("19700101-000000"),
        "{}",
        result.session
    );
    Ok(())
}
