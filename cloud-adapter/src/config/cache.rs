//! The section `cache`: how old shared listings become, and how look-ups are gathered.

use std::time::Duration;

use super::section::Section;

/// No vendor gives more items on a page.
const PAGE_MAX: u32 = 10_000;

/// How vendor calls are saved.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSettings {
    /// The listing of instances.
    pub instances: CollectionSettings,
    /// The listing of load balancers.
    pub load_balancers: CollectionSettings,
    /// The listing of routes.
    pub routes: CollectionSettings,
    /// How look-ups of single objects become one.
    pub batch: BatchWindow,
}

/// How a collection is kept fresh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectionSettings {
    /// How old the listing becomes while somebody watches.
    pub max_age: Duration,
    /// Items on a page, at least 1; `None`: as many as the vendor gives.
    pub page_size: Option<u32>,
    /// The part of the family's rate that refreshing may use, above 0 and at most 1.
    pub refresh_share: f64,
}

/// When a batch of look-ups is closed: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchWindow {
    /// Nobody joined for so long.
    pub idle: Duration,
    /// The first has waited for so long.
    pub max: Duration,
}

impl CollectionSettings {
    pub(crate) const fn aged(max_age: Duration) -> Self {
        Self { max_age, page_size: None, refresh_share: 0.25 }
    }

    /// From one listing to the next: the target age, or longer where that would take more than its share of the family's rate.
    #[must_use]
    pub fn period(&self, rate: f64, pages: usize) -> Duration {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        let share = f64::from(pages) / (self.refresh_share * rate);
        // A rate of zero is a pause: the budget holds the listing back, not we.
        Duration::try_from_secs_f64(share).unwrap_or(self.max_age).max(self.max_age)
    }
}

impl Default for BatchWindow {
    /// Source: budgets, section 4.
    fn default() -> Self {
        Self { idle: Duration::from_millis(20), max: Duration::from_millis(200) }
    }
}

impl Default for CacheSettings {
    /// Source: budgets, section 4.
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
        section.number("refreshShare", part, "use a part of the family's rate, above 0 and at most 1");
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
        section.fault("idle", "is above max: use at most that");
    }
    BatchWindow { idle, max }
}
