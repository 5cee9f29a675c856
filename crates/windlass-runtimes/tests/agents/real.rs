//! The real programs, where a person names them.
