//! What the git tools share: how a refusal of git reads to the model. The calls themselves are the host's.

use windlass_core::message::ErrorCategory;
use windlass_core::tool::ToolFailure;
use windlass_host::git::GitError;

/// Bytes of git's output that the model gets; the middle is left out of what is longer.
pub(crate) const SHOWN: usize = 48_000;

/// The failure for the model.
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
