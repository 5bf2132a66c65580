//! What a vendor allows, in its own words.

use std::time::Duration;

use cloud_budget::RateLimit;

/// A vendor's limit on calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VendorLimit {
    /// So many calls in any window: `3,600 an hour`.
    Window {
        /// Calls that a window holds, at least 1.
        limit: f64,
        /// How long it is.
        window: Duration,
        /// The calls of those that may be spent at once, at least 1.
        burst: u32,
    },
    /// A token bucket at the vendor: `10 a second, 50 at once`.
    Bucket {
        /// Calls a second, above 0.
        rate: f64,
        /// Calls at once, at least 1.
        burst: u32,
    },
}

impl VendorLimit {
    /// The rate that one cluster gets of it. `safety`: the part of a window that is used; `share`: the cluster's part of the account.
    ///
    /// # Errors
    /// If a window cannot hold the burst: which burst it could.
    pub(crate) fn scaled(self, (safety, share): (f64, f64)) -> Result<RateLimit, String> {
        match self {
            Self::Bucket { rate, burst } => {
                Ok(RateLimit { rate: rate * share, burst: part_of(burst, share) })
            }
            Self::Window { limit, window, burst } => {
                let limit = limit * share;
                RateLimit::within(limit, window, part_of(burst, share), safety).ok_or_else(|| {
                    format!(
                        "{burst} calls at once are all that the window may hold ({:.0}, with safety and share), so that \
                         nothing is left for a rate: use less",
                        limit * safety
                    )
                })
            }
        }
    }
}

/// Whole calls, at least 1.
fn part_of(burst: u32, share: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a u32, rounded down on purpose"
    )]
    let part = (f64::from(burst) * share) as u32;
    part.max(1)
}
