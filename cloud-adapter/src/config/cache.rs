//! The section `cache`: maximum ages of shared listings, and batching of look-ups.

use std::time::Duration;

use super::section::Section;

/// Maximum page size; no vendor returns larger pages.
const PAGE_MAX: u32 = 10_000;

/// How listings and look-ups are cached and batched.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSettings {
    /// Settings of the listing of instances.
    pub instances: CollectionSettings,
    /// Settings of the listing of load balancers.
    pub load_balancers: CollectionSettings,
    /// Settings of the listing of routes.
    pub routes: CollectionSettings,
    /// Settings for batches of look-ups by ID.
    pub batch: BatchWindow,
}

/// Settings for refreshing a collection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectionSettings {
    /// Maximum age of the listing while there are watches.
    pub max_age: Duration,
    /// The number of items per page, at least 1. `None`: the vendor's page size.
    pub page_size: Option<u32>,
    /// The share of the family's rate that refreshes may use, above 0 and at most 1.
    pub refresh_share: f64,
}

/// When a batch of look-ups is sent: as soon as either limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchWindow {
    /// The maximum time since the last look-up joined the batch.
    pub idle: Duration,
    /// The maximum time since the first look-up joined the batch.
    pub max: Duration,
}

impl CollectionSettings {
    pub(crate) const fn aged(max_age: Duration) -> Self {
        Self { max_age, page_size: None, refresh_share: 0.25 }
    }

    /// Returns the interval between listings: the maximum age, or a longer interval if the listings would exceed their share of the
    /// family's rate.
    #[must_use]
    pub fn period(&self, rate: f64, pages: usize) -> Duration {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        let share = f64::from(pages) / (self.refresh_share * rate);
        // A rate of zero means a pause, which the budget enforces.
        Duration::try_from_secs_f64(share).unwrap_or(self.max_age).max(self.max_age)
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
            instances: CollectionSettings::aged(Duration::from_secs(30)),
            load_balancers: CollectionSettings::aged(Duration::from_mins(1)),
            routes: CollectionSettings::aged(Duration::from_mins(2)),
            batch: BatchWindow::default(),
        }
    }
}

pub(super) fn read(cache: &mut Section<'_>) -> CacheSettings {
    let usual = CacheSettings::default();
    CacheSettings {
        instances: cache.section("instances", |one| collection(one, usual.instances)),
        load_balancers: cache.section("loadBalancers", |one| collection(one, usual.load_balancers)),
        routes: cache.section("routes", |one| collection(one, usual.routes)),
        batch: cache.section("batch", |one| batch(one, usual.batch)),
    }
}

fn collection(section: &mut Section<'_>, usual: CollectionSettings) -> CollectionSettings {
    let part = |one: f64| one > 0.0 && one <= 1.0;
    let share =
        section.number("refreshShare", part, "use a share of the family's rate, above 0 and at most 1");
    CollectionSettings {
        max_age: section.duration("maxAge").unwrap_or(usual.max_age),
        page_size: section.count("pageSize", PAGE_MAX),
        refresh_share: share.unwrap_or(usual.refresh_share),
    }
}

fn batch(section: &mut Section<'_>, usual: BatchWindow) -> BatchWindow {
    let max = section.duration("max").unwrap_or(usual.max);
    let idle = section.duration("idle").unwrap_or(usual.idle.min(max));
    if idle > max {
        section.fault("idle", "is above max: use a value of at most max");
    }
    BatchWindow { idle, max }
}
