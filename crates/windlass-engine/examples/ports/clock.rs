//! A clock: wall time, elapsed time, waiting and randomness. The engine has no other source, so a host can replay runs.
//! This clock is a simulation: waiting takes no real time and advances the simulated time; randomness is a sequence.
//! All waits of the engine (retries, answers, the time limit) use it.

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

use super::ExampleResult;
use super::fakes::Fakes;

#[derive(Default)]
struct SimulatedClock {
    passed: Mutex<Duration>,
    drawn: AtomicU64,
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.monotonic().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(passed)
    }

    fn monotonic(&self) -> Duration {
        *self.passed.lock()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Let other tasks run first: the event that the caller also waits for may have happened already.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            *self.passed.lock() += duration;
        })
    }

    fn entropy(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::Relaxed)
    }
}

pub(crate) async fn run_example() -> ExampleResult {
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
    let clock = Arc::new(SimulatedClock::default());
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
    // The time limit is also a wait, which would end at once with this clock.
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
