//! How old shared listings may become, and how look-ups are gathered. May change while the adapter runs.

use std::time::Duration;

/// The `cache` part of the configuration. Source of the defaults: budgets, section 4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheSettings {
    /// The listing of instances.
    pub instances: Cadence,
    /// The listing of load balancers.
    pub load_balancers: Cadence,
    /// The listing of routes.
    pub routes: Cadence,
    /// How look-ups by ID are gathered.
    pub batch: BatchWindow,
}

/// How often a collection is listed while somebody watches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cadence {
    /// The target age of the listing.
    pub max_age: Duration,
    /// Part of the family's rate that the refresher may spend, above 0 and at most 1: a longer listing comes less often.
    pub refresh_share: f64,
}

/// How long look-ups by ID wait for others, so that one vendor call answers many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchWindow {
    /// Sent once nobody has joined for so long,
    pub idle: Duration,
    /// and at the latest after so long.
    pub max: Duration,
}

impl Cadence {
    /// With the usual share.
    #[must_use]
    pub const fn every(max_age: Duration) -> Self {
        Self { max_age, refresh_share: 0.25 }
    }
}

impl Default for BatchWindow {
    fn default() -> Self {
        Self { idle: Duration::from_millis(20), max: Duration::from_millis(200) }
    }
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            instances: Cadence::every(Duration::from_secs(30)),
            load_balancers: Cadence::every(Duration::from_mins(1)),
            routes: Cadence::every(Duration::from_mins(2)),
            batch: BatchWindow::default(),
        }
    }
}
