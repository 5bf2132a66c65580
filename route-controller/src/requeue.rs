//! Room 4.
pub(crate) mod attempts;
