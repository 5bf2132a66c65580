//! Helpers for the tests and benchmarks of several crates.

pub mod bench;
pub mod chance;
pub mod ports;
pub mod reference;

/// Environment variable with a factor for the number of cases of property tests. `cargo xtask test deep` sets it.
const FACTOR: &str = "PROPERTY_FACTOR";

/// The number of cases of a property test: `usual`, multiplied by `PROPERTY_FACTOR` if that is set.
///
/// Only tests that set their own number of cases need this function, because proptest ignores `PROPTEST_CASES` for these tests.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "tests have no flags of their own")]
pub fn cases(usual: u32) -> u32 {
    let factor = std::env::var(FACTOR).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    usual.saturating_mul(factor)
}
