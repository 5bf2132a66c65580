//! The section `limits`: parses the vendor call limits into the scheduler's [`cloud_budget::Config`].

use std::collections::BTreeMap;

use cloud_budget::{
    Adaptive, BreakerLimits, BucketConfig, Config, Deadlines, Mode, QueueLimits, RateLimit, Weights,
};
use telemetry::{hint, nearest};

use super::section::Section;
use crate::{driver::VendorLimit, vendor::Family};

/// The bucket of the whole account. If the file configures this bucket, each call also takes a token from it.
const ACCOUNT: &str = "account";
/// Default safety factor. A factor below 1 leaves part of a vendor's limit unused.
const SAFETY: f64 = 0.9;
/// Maximum rate, in calls a second, and maximum burst. A larger value is a typing error, because no vendor allows such a rate, and such a
/// bucket would have no effect.
const RATE_MAX: f64 = 100_000.0;
const BURST_MAX: u32 = 100_000;
const LIMIT_MAX: f64 = 1e9;
const WEIGHT_MAX: u32 = 1_000;
/// Maximum length of a queue, because each queued call takes memory; and maximum number of concurrent calls.
const QUEUE_MAX: u32 = 1_000_000;
const CONCURRENCY_MAX: u32 = 10_000;
const CALLS_MAX: u32 = 1_000_000;

#[derive(Debug)]
pub(super) struct Limits {
    pub(super) scheduler: Config,
    pub(super) share: f64,
    /// Families without a configured limit.
    pub(super) assumed: Vec<&'static str>,
}

/// A bucket as configured in the file.
#[derive(Debug)]
struct Wanted {
    parent: Option<String>,
    limit: RateLimit,
    adaptive: Option<Adaptive>,
}

#[derive(Clone, Copy, Debug)]
struct Scale {
    /// The fraction of each limit that is used.
    safety: f64,
    share: f64,
}

/// Parses the section. Buckets that are not in the section are taken from the driver's `defaults`. A family that is in neither the section
/// nor `defaults` gets [`BucketConfig::unconfigured`].
pub(super) fn read(limits: &mut Section<'_>, defaults: &[(&str, VendorLimit)]) -> Limits {
    let whole = Config::default();
    let part = |one: f64| one > 0.0 && one <= 1.0;
    let mode = limits.word("mode", &[("enforce", Mode::Enforce), ("shadow", Mode::Shadow)]);
    let safety = limits.number("safety", part, "use a fraction of the limit, above 0 and at most 1");
    let share = limits.number("share", part, "use this cluster's share, above 0 and at most 1");
    let scale = Scale { safety: safety.unwrap_or(SAFETY), share: share.unwrap_or(1.0) };
    let rest = |one: f64| (0.0..1.0).contains(&one);
    let free_floor =
        limits.number("freeFloor", rest, "use a fraction of the vendor's count, at least 0 and below 1");
    let reserve = limits.number("reserve", rest, "use a fraction of each burst, at least 0 and below 1");
    let (buckets, assumed) = buckets(limits, defaults, scale);
    let scheduler = Config {
        mode: mode.unwrap_or(whole.mode),
        buckets,
        reserve: reserve.unwrap_or(whole.reserve),
        free_floor: free_floor.unwrap_or(whole.free_floor),
        weights: limits.section("weights", weights),
        queue: limits.section("queue", queue),
        concurrency: limits.section("concurrency", concurrency),
        deadline: limits.section("deadline", deadline),
        breaker: limits.section("breaker", breaker),
    };
    Limits { scheduler, share: scale.share, assumed }
}

fn buckets(
    limits: &mut Section<'_>,
    defaults: &[(&str, VendorLimit)],
    scale: Scale,
) -> (BTreeMap<String, BucketConfig>, Vec<&'static str>) {
    let mut wanted = limits.sections("buckets", |name, section| bucket(name, section, scale));
    for (name, limit) in defaults {
        // The driver's tests check the driver's limits, so impossible limits are ignored here.
        if let (false, Ok(limit)) = (wanted.contains_key(*name), limit.scaled(scale.safety, scale.share)) {
            wanted.insert((*name).to_owned(), Wanted { parent: None, limit, adaptive: None });
        }
    }
    let parents: BTreeMap<_, _> =
        wanted.iter().map(|(name, one)| (name.clone(), parent(name, one, &wanted))).collect();
    for (name, fault) in parents.keys().filter_map(|name| Some((name, misplaced(name, &parents)?))) {
        limits.fault(&format!("buckets.{name}.parent"), fault);
    }
    let mut buckets: BTreeMap<_, _> = wanted
        .into_iter()
        .map(|(name, Wanted { limit, adaptive, .. })| {
            let parent = parents.get(&name).cloned().flatten();
            let adaptive = Some(adaptive.unwrap_or_else(|| cautious(limit)));
            (name, BucketConfig { parent, limit, adaptive })
        })
        .collect();
    let families = Family::ALL.map(Family::word).into_iter();
    let assumed: Vec<_> = families.filter(|family| !buckets.contains_key(*family)).collect();
    for family in &assumed {
        buckets.insert((*family).to_owned(), BucketConfig::unconfigured());
    }
    (buckets, assumed)
}

/// Returns the default adaptive settings. The floor is below the rate of even slow buckets, so that a throttle can lower the rate of these
/// buckets, too.
fn cautious(limit: RateLimit) -> Adaptive {
    let usual = Adaptive::default();
    Adaptive { floor: usual.floor.min(limit.rate * usual.decrease), ..usual }
}

fn bucket(name: &str, section: &mut Section<'_>, scale: Scale) -> Option<Wanted> {
    let family = name.split(':').next().unwrap_or_default();
    let families = Family::ALL.map(Family::word);
    if name != ACCOUNT && !families.contains(&family) {
        let hint = hint(family, [ACCOUNT].into_iter().chain(families));
        section.fault_here(format!("unknown family{hint}, or an operation such as compute:ListInstances"));
    }
    let parent = section.text("parent");
    let faults = section.faults();
    let rate = rate(section, "rate");
    let whole = format!("use the number of calls per window, 1 to {LIMIT_MAX}");
    let limit = section.number("limit", |limit| (1.0..=LIMIT_MAX).contains(&limit), &whole);
    let window = section.duration("window");
    let burst = section.count("burst", BURST_MAX);
    let limit = match (rate, limit.zip(window), burst) {
        (Some(rate), None, Some(burst)) => Some(VendorLimit::Bucket { rate, burst }),
        (None, Some((limit, window)), Some(burst)) => Some(VendorLimit::Window { limit, window, burst }),
        (Some(_) | None, Some(_) | None, Some(_) | None) => {
            if section.faults() == faults {
                section.fault_here("use either rate and burst, or limit, window and burst");
            }
            None
        }
    };
    let limit = limit.map(|limit| limit.scaled(scale.safety, scale.share)).transpose();
    let limit = limit.map_err(|fault| section.fault("burst", fault)).ok().flatten();
    if let Some(RateLimit { rate, .. }) = limit.filter(|limit| limit.rate > RATE_MAX) {
        section.fault(
            "window",
            format!("results in {rate:.0} calls a second: use a longer window, so that the rate is at most {RATE_MAX}"),
        );
    }
    let adaptive = section.section("adaptive", |section| adaptive(section, limit));
    Some(Wanted { parent, limit: limit?, adaptive })
}

fn rate(section: &mut Section<'_>, key: &'static str) -> Option<f64> {
    let fix = format!("use calls a second, above 0 and at most {RATE_MAX}");
    section.number(key, |rate| rate > 0.0 && rate <= RATE_MAX, &fix)
}

fn adaptive(section: &mut Section<'_>, limit: Option<RateLimit>) -> Option<Adaptive> {
    let floor = rate(section, "floor");
    let inside = |part: f64| part > 0.0 && part < 1.0;
    let decrease = section.number("decrease", inside, "use the factor after a throttle, above 0 and below 1");
    let usual = cautious(limit?);
    let found =
        Adaptive { floor: floor.unwrap_or(usual.floor), decrease: decrease.unwrap_or(usual.decrease) };
    if limit.is_some_and(|limit| found.floor > limit.rate) {
        section.fault("floor", format!("{} is above the bucket's rate: use a smaller one", found.floor));
    }
    Some(found)
}

/// Returns the parent of a bucket. The parent of an operation is its family, and the parent of a family is the account, unless the file
/// names another parent.
fn parent(name: &str, one: &Wanted, all: &BTreeMap<String, Wanted>) -> Option<String> {
    let family = name.split_once(':').map(|(family, _)| family.to_owned());
    let account = || (name != ACCOUNT && all.contains_key(ACCOUNT)).then(|| ACCOUNT.to_owned());
    one.parent.clone().or(family).or_else(account)
}

/// Returns why the parent of a bucket is invalid. `None`: the parent is valid.
fn misplaced(name: &str, parents: &BTreeMap<String, Option<String>>) -> Option<String> {
    let families = Family::ALL.map(Family::word);
    let parent = parents.get(name)?.as_deref()?;
    let known: Vec<&str> = families.into_iter().chain(parents.keys().map(String::as_str)).collect();
    if !known.contains(&parent) {
        // The buckets of the file are not listed, because their names may be wrong, too.
        let near = nearest(parent, known.into_iter().chain([ACCOUNT]));
        let near = near.map(|near| format!(", did you mean '{near}'?")).unwrap_or_default();
        return Some(format!("unknown bucket '{parent}'{near}"));
    }
    let mut at = name;
    for _ in 0..=parents.len() {
        at = parents.get(at)?.as_deref()?;
        if at == name {
            return Some(format!("{parent} is itself below {name}: parents must not form a cycle"));
        }
    }
    None
}

fn weights(section: &mut Section<'_>) -> Weights {
    let usual = Weights::default();
    Weights {
        traffic: section.count("traffic", WEIGHT_MAX).unwrap_or(usual.traffic),
        interactive: section.count("interactive", WEIGHT_MAX).unwrap_or(usual.interactive),
        lifecycle: section.count("lifecycle", WEIGHT_MAX).unwrap_or(usual.lifecycle),
        background: section.count("background", WEIGHT_MAX).unwrap_or(usual.background),
    }
}

fn queue(section: &mut Section<'_>) -> QueueLimits {
    let usual = QueueLimits::default();
    let mut calls = |key| section.count(key, QUEUE_MAX).and_then(|count| usize::try_from(count).ok());
    QueueLimits {
        total: calls("total").unwrap_or(usual.total),
        per_leaf: calls("perLeaf").unwrap_or(usual.per_leaf),
        per_object: calls("perObject").unwrap_or(usual.per_object),
    }
}

fn concurrency(section: &mut Section<'_>) -> BTreeMap<String, u32> {
    // Writes to one key are sequential, because each plan starts from the result of the last write.
    if section.count("perKeyWrites", CONCURRENCY_MAX).is_some_and(|writes| writes != 1) {
        section.fault("perKeyWrites", "only 1 keeps the writes to an object in order: remove this key");
    }
    let families = Family::ALL.map(Family::word).into_iter();
    families.filter_map(|family| Some((family.to_owned(), section.count(family, CONCURRENCY_MAX)?))).collect()
}

fn deadline(section: &mut Section<'_>) -> Deadlines {
    let usual = Deadlines::default();
    let max = section.duration("max").unwrap_or(usual.max);
    let default = section.duration("default").unwrap_or(usual.default.min(max));
    if default > max {
        section.fault("default", "is above max: use a value of at most max");
    }
    Deadlines { default, max }
}

fn breaker(section: &mut Section<'_>) -> BreakerLimits {
    let usual = BreakerLimits::default();
    let part = |one: f64| one > 0.0 && one <= 1.0;
    let ratio =
        section.number("failureRatio", part, "use the fraction of calls that fail, above 0 and at most 1");
    let open = section.duration("open").unwrap_or(usual.open);
    let open_max = section.duration("openMax").unwrap_or(usual.open_max.max(open));
    if open > open_max {
        section.fault("openMax", "is below open: use a value of at least open");
    }
    BreakerLimits {
        window: section.duration("window").unwrap_or(usual.window),
        min_calls: section.count("minCalls", CALLS_MAX).unwrap_or(usual.min_calls),
        failure_ratio: ratio.unwrap_or(usual.failure_ratio),
        open,
        open_max,
    }
}
