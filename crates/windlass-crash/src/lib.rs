//! Kills a windlass binary at each operation that changes a file, or lets the operation fail, resumes the binary, and
//! checks that nothing is lost or done twice. It uses the binary as a user does, and knows only the command line and
//! the log, not our other crates.
//!
//! `seccomp` makes the kernel ask us before each such system call, [`op`](Op) identifies the file, `supervise` counts
//! the operations and injects the fault. `scratch` is the scratch directory and `script` the scripted task,
//! `conversation` folds the log, `case` runs one fault with all checks, [`CrashReport`] counts the results, and [`run`]
//! goes through all operations. [`run_campaign`] randomly combines cases that users meet: many runs in one workspace,
//! kills of runs, undos and redos, saves during a run, and small disks that fill up.
#![cfg(target_os = "linux")]

mod campaign;
mod case;
mod conversation;
mod op;
mod report;
mod run;
mod scratch;
mod script;
mod seccomp;
mod supervise;

pub use campaign::{Campaign, Tally, run_campaign};
pub use case::{CrashCase, Violation, WorkMode};
pub use op::{Op, OpKind};
pub use report::{CrashReport, CrashRow};
pub use run::{CrashOptions, CrashProgress, Pick, run};
pub use supervise::FaultKind;
