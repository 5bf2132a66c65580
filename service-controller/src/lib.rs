//! Placeholder.
mod plan;
