//! The built-in tools. Each has one file with three parts (spec, touches, run), and a description for the model in
//! `descriptions/`.
//!
//! Shared modules: `paths` resolves paths and runs file work on blocking threads, `last_seen` remembers the content
//! that the model has seen, `line_window` pages through files that are too large for memory, and `change` writes files
//! all or nothing and reports the changes.
//!
//! Nothing here opens a file or starts a program by itself: everything goes through the ports in the context of the
//! call.

mod apply_patch;
mod ask_user;
mod bash;
mod calculator;
mod change;
mod command_touches;
mod delete_file;
mod edit_file;
mod edit_lines;
mod find_files;
mod git;
mod git_diff;
mod git_status;
mod grep;
mod hosts;
mod last_seen;
mod line_window;
mod list_directory;
mod move_file;
mod notes;
mod paths;
mod process;
mod python;
mod read_file;
mod refuse;
mod run_command;
mod write_file;

use std::sync::Arc;

use windlass_core::tool::Tool;
use windlass_core::typed_tool::typed;

pub use self::process::ProcessTool;

/// All built-in tools, in the order in which the model sees them. Each session needs its own set: the set remembers
/// what the model has read, so that an edit of a file that has changed since is refused.
pub fn all() -> Vec<Arc<dyn Tool>> {
    let seen = Arc::new(last_seen::LastSeenFiles::default());
    vec![
        typed(read_file::ReadFile(seen.clone())),
        typed(write_file::WriteFile(seen.clone())),
        typed(edit_file::EditFile(seen.clone())),
        typed(edit_lines::EditLines(seen.clone())),
        typed(apply_patch::ApplyPatch(seen.clone())),
        typed(delete_file::DeleteFile(seen.clone())),
        typed(move_file::MoveFile(seen)),
        typed(list_directory::ListDirectory),
        typed(find_files::FindFiles),
        typed(grep::Grep),
        typed(bash::Bash),
        typed(git_status::GitStatus),
        typed(git_diff::GitDiff),
        typed(notes::NotesTool),
        typed(ask_user::AskUser),
        typed(refuse::Refuse),
        typed(calculator::Calculator),
        typed(python::Python),
    ]
}

#[cfg(test)]
mod tests;
