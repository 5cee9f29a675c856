//! Changes to the user's tree: the isolated copy of a run, work in place, the one landing that both use, and undo.
//!
//! [`isolated`] opens copies and brings them home, [`in_place`] opens the user's own tree. [`landing`] brings a set of
//! changes into the tree, all of them or none, and plans how to undo them. `working_copy` is the copy that commands in
//! place work on where the kernel has no layers.
//!
//! Nothing here reads the environment, prints or judges what may be done.

mod git_dirs;
pub mod in_place;
pub mod isolated;
pub mod landing;
mod links;
mod path;
#[cfg(test)]
mod test_helper;
mod working_copy;

pub use self::working_copy::copy_workspace;
