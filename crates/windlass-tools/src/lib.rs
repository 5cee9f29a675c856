//! The built-in tools: one file each, in three parts (spec, touches, run), with the description for the model
//! in `descriptions/`.
//!
//! A tour: `args` turns an argument struct into a schema and back, `place` resolves paths and moves work off the
//! async threads, `seen` remembers what the model has read, `lines` pages through what is too large to hold, `change` writes files all or nothing and reports it.
//! Nothing here opens a file or starts a program by itself: everything goes through the ports of the call's context.

mod apply_patch;
mod ask_user;
mod bash;
mod calculator;
mod change;
mod delete_file;
mod edit_file;
mod edit_lines;
mod find_files;
mod git;
mod git_diff;
mod git_status;
mod grep;
mod hosts;
mod line;
mod lines;
mod list_directory;
mod move_file;
mod notes;
mod place;
mod process;
mod python;
mod ran;
mod read_file;
mod refuse;
mod seen;
mod write_file;

use std::sync::Arc;

use windlass_core::tool::Tool;
use windlass_core::typed_tool::typed;

pub use self::process::ProcessTool;

/// All built-in tools, in the order the model sees them. One set belongs to one session: it remembers what
/// was read, so that an edit of a file that changed since is refused.
pub fn all() -> Vec<Arc<dyn Tool>> {
    let seen = Arc::new(seen::Seen::default());
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
        typed(notes::Notes),
        typed(ask_user::AskUser),
        typed(refuse::Refuse),
        typed(calculator::Calculator),
        typed(python::Python),
    ]
}

#[cfg(test)]
mod tests;
