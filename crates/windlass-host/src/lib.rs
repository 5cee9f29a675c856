//! The one door to this machine: workspace, patches, processes, session log, settings files, clock.

pub mod edit;
