//! Changes to the user's tree: isolated copies of runs, in-place runs, landing and undo.
//!
//! [`isolated`] opens private copies and lands their changes. [`in_place`] opens the user's own tree. [`landing`]
//! transfers a set of changes into the tree atomically and plans how to undo them; both use it. `working_copy` is the
//! copy that in-place commands work on if the kernel has no overlays.
//!
//! Nothing here reads the environment, prints, or decides about permissions.

mod git_dirs;
pub mod in_place;
pub mod isolated;
pub mod landing;
mod path;
mod symlinks;
#[cfg(test)]
mod test_helper;
mod working_copy;

pub use self::working_copy::copy_workspace;
