//! Shared by the git tools: converts git errors to failures for the model. The host crate runs git.

use windlass_core::message::ErrorCategory;
use windlass_core::tool::ToolFailure;
use windlass_host::git::GitError;

/// Maximum bytes of git's output for the model. Of longer output the middle is omitted.
pub(crate) const SHOWN: usize = 48_000;

/// Converts an error of git to a failure for the model.
pub(crate) fn refused(err: GitError) -> ToolFailure {
    let category = match err {
        GitError::NotARepository => ErrorCategory::NotFound,
        GitError::NotACommit(_) => ErrorCategory::InvalidArguments,
        GitError::Cancelled => ErrorCategory::Interrupted,
        GitError::TimedOut => ErrorCategory::Timeout,
        GitError::Missing | GitError::Failed(_) => ErrorCategory::Exception,
    };
    ToolFailure::new(category, err.to_string())
}
