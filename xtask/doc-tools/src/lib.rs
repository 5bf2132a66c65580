//! Tools for tests, benchmarks and `cargo xtask` that read or write documentation.

pub mod bench;
pub mod pages;
pub mod reference;
