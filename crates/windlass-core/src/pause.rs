//! A run that was paused: it stays open in the log, and any process can resume it.
//!
//! ```
//! use windlass_core::pause::PauseReason;
//!
//! let later: PauseReason = serde_json::from_str("\"a_later_version\"")?;
//! assert_eq!(later, PauseReason::Requested);
//! # Ok::<(), serde_json::Error>(())
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The reason why a run was paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum PauseReason {
    /// The process that drove the run shuts down.
    Shutdown,
    /// A user or a client requested it. Unknown values of later versions also map to this one.
    #[default]
    #[serde(other)]
    Requested,
}

/// The pause of a run that was not resumed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunPause {
    /// The reason of the pause.
    pub reason: PauseReason,
    /// The active time of the run until then, in milliseconds.
    pub run_ms: u64,
}
