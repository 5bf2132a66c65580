//! Advice on which limits to change, and why. Each function is one rule; it reads the simulation's results and the limits.

mod rates;
#[cfg(test)]
mod tests;

use std::time::Duration;

use cloud_budget::{Mode, RateLimit};
use serde::Serialize;

use crate::limits::{
    Question, Steady,
    cases::Case,
    quantiles::{rounded, span},
    results::{Listed, bucket_key},
};

/// Share of a family's rate above which listings leave too little for changes.
const LISTINGS_SHARE: f64 = 0.2;
/// Advised queue limits are rounded up to a multiple of this number of calls.
const QUEUE_STEP: usize = 1_024;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Advice {
    /// The reason for the change, as a sentence.
    pub(crate) text: String,
    /// The key in the file.
    pub(crate) key: String,
    pub(crate) value: String,
    /// The same change, applied to the next simulation.
    #[serde(skip)]
    change: Change,
}

/// What a piece of advice changes in the simulation.
#[derive(Clone, Debug, PartialEq)]
enum Change {
    Limit(String, RateLimit),
    InFlight(&'static str, u32),
    Queue(cloud_budget::QueueLimits),
    /// The change has no effect on the simulation of a start.
    Nothing,
}

/// Returns all advice. `within` is the time that the calls of one bucket may take. `refused` is the number of calls that the full queue
/// refused.
pub(crate) fn advise(
    question: &Question,
    cases: &[Case],
    within: Duration,
    refused: u64,
    steady: &Steady,
) -> Vec<Advice> {
    let mut advice = rates::advise(question, cases, within);
    advice.extend(queue(question, refused));
    // Later rules take advice on other buckets into account.
    let account = account(question, &advice);
    advice.extend(account);
    let bursts = bursts(question, &advice);
    advice.extend(bursts);
    advice.extend(listings(question, steady));
    advice.extend(mode(question));
    advice
}

/// Returns the question with all advice followed. `None`: the advice would not change a start.
pub(crate) fn applied(question: &Question, advice: &[Advice]) -> Option<Question> {
    let mut better = question.clone();
    let limits = &mut better.config.limits;
    for one in advice {
        match &one.change {
            Change::Limit(bucket, limit) => {
                limits.buckets.entry(bucket.clone()).and_modify(|bucket| bucket.limit = *limit);
            }
            Change::InFlight(family, most) => {
                limits.concurrency.insert((*family).to_owned(), *most);
            }
            Change::Queue(queue) => limits.queue = *queue,
            Change::Nothing => (),
        }
    }
    (better.config.limits != question.config.limits).then_some(better)
}

fn queue(question: &Question, refused: u64) -> Option<Advice> {
    let mut queue = question.config.limits.queue;
    let services = usize::try_from(question.services).unwrap_or(usize::MAX);
    let wanted = services.div_ceil(QUEUE_STEP).saturating_mul(QUEUE_STEP);
    let (key, places) =
        if queue.per_leaf < wanted { ("perLeaf", &mut queue.per_leaf) } else { ("total", &mut queue.total) };
    *places = places.saturating_mul(2).max(wanted);
    let value = places.to_string();
    (refused > 0).then(|| Advice {
        text: format!(
            "the full queue refused calls {refused} times, and they were retried later: a longer \
            queue needs a little more memory, but no more calls"
        ),
        key: format!("limits.queue.{key}"),
        value,
        change: Change::Queue(queue),
    })
}

/// Advises on an account whose rate is lower than the sum of the rates of its families. Such families cannot all reach their rates at the
/// same time. `earlier` is the advice so far.
fn account(question: &Question, earlier: &[Advice]) -> Option<Advice> {
    let buckets = &question.config.limits.buckets;
    let account = buckets.get("account").filter(|_| limit(earlier, "account").is_none())?;
    let families = buckets.iter().filter(|(_, bucket)| bucket.parent.as_deref() == Some("account"));
    let sum: f64 = families.map(|(name, bucket)| limit(earlier, name).unwrap_or(bucket.limit).rate).sum();
    let rate = account.limit.rate;
    (rate < sum).then(|| {
        let (burst, also) = with_burst(question, "account", account.limit.burst);
        let wanted = RateLimit { rate: sum, burst };
        Advice {
            text: format!(
                "account allows {}/s, but its families together have {}/s, which they can never use \
                all at once. Raise the rate of account if the vendor allows that; otherwise leave it, \
                since it is the effective limit{also}",
                figure(rate),
                figure(sum)
            ),
            key: bucket_key("account"),
            value: written(question, wanted),
            change: Change::Nothing,
        }
    })
}

/// Advises on a bucket whose burst is smaller than the writes of one Service. A bucket with other advice is skipped, because that advice
/// includes the burst.
fn bursts(question: &Question, earlier: &[Advice]) -> Vec<Advice> {
    let families = question.config.limits.buckets.iter().filter_map(|(name, bucket)| {
        let (key, limit) = (bucket_key(name), bucket.limit);
        let writes = writes(question, name);
        (limit.burst < writes && earlier.iter().all(|one| one.key != key)).then(|| {
            let wanted = RateLimit { burst: writes, ..limit };
            Advice {
                text: format!(
                    "{name} has a burst of {}, but one Service needs {writes} writes: the last of \
                    these writes waits {} even if no other call is sent",
                    limit.burst,
                    span(Duration::from_secs_f64(f64::from(writes - limit.burst) / limit.rate))
                ),
                key,
                value: written(question, wanted),
                change: Change::Limit(name.clone(), wanted),
            }
        })
    });
    families.collect()
}

/// Number of writes from this bucket that one Service needs.
fn writes(question: &Question, bucket: &str) -> u32 {
    let pays = |family: &str| bucket == "account" || family == bucket;
    let creation = question.cloud.model().creation;
    let writes = creation.iter().filter(|write| pays(write.family.word())).count();
    u32::try_from(writes).unwrap_or(u32::MAX)
}

/// Returns a burst that is sufficient for one Service, and a text about it if the burst has to be raised.
fn with_burst(question: &Question, bucket: &str, burst: u32) -> (u32, String) {
    let writes = writes(question, bucket);
    if burst >= writes {
        return (burst, String::new());
    }
    (writes, format!("; also a burst of {writes}, since one Service needs that many writes at once"))
}

/// Advises on listings that use a large share of a family's rate.
fn listings(question: &Question, steady: &Steady) -> Vec<Advice> {
    let much = steady.families.iter().filter(|family| family.share >= LISTINGS_SHARE);
    let of = |listed: &Listed, family: &str| {
        let calls = listed.calls.iter().find(|calls| calls.family == family);
        calls.map_or(0.0, |calls| f64::from(calls.reads) / listed.every_seconds)
    };
    much.filter_map(|family| {
        let word = family.family;
        let most = steady.listings.iter().max_by(|one, other| of(one, word).total_cmp(&of(other, word)))?;
        let rate = question.config.limits.buckets.get(word)?.limit.rate;
        let after = family.share - of(most, word) / rate / 2.0;
        let age = (most.every_seconds * 2.0).ceil();
        Some(Advice {
            text: format!(
                "periodic listings use {} % of {word}: with a maxAge of {age}s for {} they use {} %",
                (family.share * 100.0).round(),
                most.collection,
                (after * 100.0).round()
            ),
            key: format!("cache.{}.maxAge", most.collection),
            value: format!("{age}s"),
            change: Change::Nothing,
        })
    })
    .collect()
}

fn mode(question: &Question) -> Option<Advice> {
    (question.config.limits.mode == Mode::Shadow).then(|| Advice {
        text: "mode shadow does not delay calls; all figures here are for mode enforce".to_owned(),
        key: "limits.mode".to_owned(),
        value: "enforce".to_owned(),
        change: Change::Nothing,
    })
}

fn limit(earlier: &[Advice], name: &str) -> Option<RateLimit> {
    earlier.iter().find_map(|one| match &one.change {
        Change::Limit(bucket, limit) if bucket == name => Some(*limit),
        Change::Limit(..) | Change::InFlight(..) | Change::Queue(_) | Change::Nothing => None,
    })
}

/// A limit in the form that the file contains. The adapter multiplies it by the cluster's share.
fn written(question: &Question, RateLimit { rate, burst }: RateLimit) -> String {
    let share = question.config.share;
    format!("{{rate: {}, burst: {}}}", figure(rate / share), (f64::from(burst) / share).ceil())
}

/// Rounds a rate. A small rate keeps two significant digits, so that it is never 0.
fn figure(rate: f64) -> f64 {
    let parts = match rate {
        high if high >= 10.0 => 1.0,
        low if low > 0.0 && low < 0.1 => 10_f64.powf(1.0 - low.log10().floor()),
        _ => 100.0,
    };
    rounded(rate, parts)
}
