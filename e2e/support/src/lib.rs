//! What tests of several crates need.

pub mod chance;
pub mod ports;

/// Multiplies how many cases a property is tried with. `cargo xtask test deep` sets it.
const FACTOR: &str = "PROPERTY_FACTOR";

/// How many cases a property is tried with: `usual`, or that many times what `PROPERTY_FACTOR` says.
///
/// For properties that set a number of their own: proptest reads `PROPTEST_CASES` only for the others.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "tests have no flags of their own")]
pub fn cases(usual: u32) -> u32 {
    let factor = std::env::var(FACTOR).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    usual.saturating_mul(factor)
}
