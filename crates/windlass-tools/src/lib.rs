//! The built-in tools: one file each, in three parts (spec, touches, run), with the description for the model
//! in `descriptions/`.
//!
//! A tour: `args` turns an argument struct into a schema and back, `place` resolves paths and moves work off the
//! async threads, `seen` remembers what the model has read, `lines` pages through what is too large to hold, `change` writes files all or nothing and reports it.
//! Nothing here opens a file or starts a program by itself: everything goes through the ports of the call's context.

mod apply_patch;
mod args;
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

pub use self::process::ProcessTool;

/// All built-in tools, in the order the model sees them. One set belongs to one session: it remembers what
/// was read, so that an edit of a file that changed since is refused.
pub fn all() -> Vec<Arc<dyn Tool>> {
    let seen = Arc::new(seen::Seen::default());
    vec![
        Arc::new(read_file::ReadFile::new(seen.clone())),
        Arc::new(write_file::WriteFile::new(seen.clone())),
        Arc::new(edit_file::EditFile::new(seen.clone())),
        Arc::new(edit_lines::EditLines::new(seen.clone())),
        Arc::new(apply_patch::ApplyPatch::new(seen.clone())),
        Arc::new(delete_file::DeleteFile::new(seen.clone())),
        Arc::new(move_file::MoveFile::new(seen)),
        Arc::new(list_directory::ListDirectory::new()),
        Arc::new(find_files::FindFiles::new()),
        Arc::new(grep::Grep::new()),
        Arc::new(bash::Bash::new()),
        Arc::new(git_status::GitStatus::new()),
        Arc::new(git_diff::GitDiff::new()),
        Arc::new(notes::Notes::new()),
        Arc::new(ask_user::AskUser::new()),
        Arc::new(refuse::Refuse::new()),
        Arc::new(calculator::Calculator::new()),
        Arc::new(python::Python::new()),
    ]
}

#[cfg(test)]
mod tests;
