//! Time and chance of this machine. Nothing else in the product asks the system for either.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A random number from the system's own source.
pub(crate) fn random_u64() -> u64 {
    // Without the system's source (a strict system-call filter) the standard library's own seeds still give
    // distinct names; every use that must be exclusive opens with O_EXCL.
    getrandom::u64().unwrap_or_else(|_| RandomState::new().build_hasher().finish())
}
