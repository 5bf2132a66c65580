//! Rate limits as vendors specify them.

use std::time::Duration;

use cloud_budget::RateLimit;

/// A limit that a vendor sets on calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VendorLimit {
    /// A number of calls per window, such as 3,600 an hour.
    Window {
        /// Number of calls per window, at least 1.
        limit: f64,
        /// The length of the window.
        window: Duration,
        /// The number of calls of the window that may be made at once, at least 1.
        burst: u32,
    },
    /// A token bucket of the vendor, such as 10 calls a second and 50 at once.
    Bucket {
        /// Number of calls a second, above 0.
        rate: f64,
        /// The number of calls that may be made at once, at least 1.
        burst: u32,
    },
}

impl VendorLimit {
    /// Returns the rate limit of one cluster. `safety` is the fraction of the limit that is used, and `share` is the cluster's share of the
    /// account.
    ///
    /// Returns an error, with the largest possible burst, if the burst uses up the whole window.
    pub(crate) fn scaled(self, safety: f64, share: f64) -> Result<RateLimit, String> {
        match self {
            Self::Bucket { rate, burst } => {
                Ok(RateLimit { rate: rate * share, burst: part_of(burst, share) })
            }
            Self::Window { limit, window, burst } => {
                let limit = limit * share;
                RateLimit::within(limit, window, part_of(burst, share), safety).ok_or_else(|| {
                    format!(
                        "{burst} calls at once use up the whole window ({:.0} calls, after safety \
                         and share) and leave no rate: use a smaller burst",
                        limit * safety
                    )
                })
            }
        }
    }
}

/// Returns a share of a burst, rounded down to a whole number of calls, but at least 1.
fn part_of(burst: u32, share: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a fraction of a u32, rounded down on purpose"
    )]
    let part = (f64::from(burst) * share) as u32;
    part.max(1)
}
