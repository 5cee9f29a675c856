//! Kills a windlass binary at every operation that changes a file, or lets the operation fail, has the binary resume,
//! and says whether anything was lost or done twice. Drives it as a user would; knows no other crate of ours, only
//! the command line and the log.
//!
//! The tour: `seccomp` has the kernel ask us before each such system call, [`op`](Op) says what the call is about,
//! `supervise` counts and strikes, `place` and `work` are the scratch directory and the scripted task, `folded` reads
//! the log, `case` is one blow with all that must hold afterwards, [`Report`] counts, and [`run`] goes through all.
//! [`run_campaign`] does by chance what users do at once: many runs in one workspace, kills of runs, undos and redos,
//! saves beside a run, and small disks that fill up.
#![cfg(target_os = "linux")]

mod campaign;
mod case;
mod folded;
mod op;
mod place;
mod report;
mod run;
mod seccomp;
mod supervise;
mod work;

pub use campaign::{Campaign, Tally, run_campaign};
pub use case::{Case, Where, Wrong};
pub use op::{Kind, Op};
pub use report::{Report, Row};
pub use run::{Options, Pick, Told, run};
pub use supervise::How;
