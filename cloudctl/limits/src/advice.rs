//! What to write where, and why: one rule a function. Rules look at what was simulated, and at the limits.

mod rates;
#[cfg(test)]
mod tests;

use std::time::Duration;

use cloud_budget::{Mode, RateLimit};
use serde::Serialize;

use crate::{
    Question, Steady,
    cases::Case,
    quantiles::rounded,
    report::{Listed, bucket_key},
    scenarios::span,
};

/// A family that listings take more of than this is short of it when something happens.
const MUCH: f64 = 0.2;
/// Beyond this many calls, places in a queue come by the thousand.
const PLACES: usize = 1_024;

/// What to change, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    /// For people.
    pub text: String,
    /// The key of the file.
    pub key: String,
    /// What to write there.
    pub value: String,
    /// The same for the next run.
    #[serde(skip)]
    change: Change,
}

/// What comes of advice that is taken.
#[derive(Clone, Debug, PartialEq)]
enum Change {
    Limit(String, RateLimit),
    InFlight(&'static str, u32),
    Queue(cloud_budget::QueueLimits),
    /// It changes nothing that is simulated of a start.
    Nothing,
}

/// All that there is to say. `within`: how long a bucket alone may take; `refused`: calls for which there was no place.
pub(crate) fn advise(
    question: &Question,
    (cases, within): (&[Case], Duration),
    refused: u64,
    steady: &Steady,
) -> Vec<Advice> {
    let mut advice = rates::advise(question, cases, within);
    advice.extend(queue(question, refused));
    // What was said of a bucket already counts.
    let account = account(question, &advice);
    advice.extend(account);
    let bursts = bursts(question, &advice);
    advice.extend(bursts);
    advice.extend(listings(question, steady));
    advice.extend(mode(question));
    advice
}

/// The question with all of the advice taken. `None`: a start would be as it is.
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

/// Places that there were too few of.
fn queue(question: &Question, refused: u64) -> Option<Advice> {
    let mut queue = question.config.limits.queue;
    let services = usize::try_from(question.services).unwrap_or(usize::MAX);
    let wanted = services.div_ceil(PLACES).saturating_mul(PLACES);
    let (key, places) =
        if queue.per_leaf < wanted { ("perLeaf", &mut queue.per_leaf) } else { ("total", &mut queue.total) };
    *places = places.saturating_mul(2).max(wanted);
    let value = places.to_string();
    (refused > 0).then(|| Advice {
        text: format!(
            "calls found no place in the queue {refused} times, and came back later: more places cost a little memory, and no calls"
        ),
        key: format!("limits.queue.{key}"),
        value,
        change: Change::Queue(queue),
    })
}

/// The account lets less through than its families together: what they are given beyond it they never get. `said`: what is said already.
fn account(question: &Question, said: &[Advice]) -> Option<Advice> {
    let buckets = &question.config.limits.buckets;
    let account = buckets.get("account").filter(|_| limit(said, "account").is_none())?;
    let families = buckets.iter().filter(|(_, bucket)| bucket.parent.as_deref() == Some("account"));
    let sum: f64 = families.map(|(name, bucket)| limit(said, name).unwrap_or(bucket.limit).rate).sum();
    let rate = account.limit.rate;
    (rate < sum).then(|| {
        let (burst, also) = with_burst(question, "account", account.limit.burst);
        let wanted = RateLimit { rate: sum, burst };
        Advice {
            text: format!(
                "account lets {}/s through, and the families that draw from it are given {}/s together: what is beyond the account's they \
                 never get at once. Raise it if the vendor allows that; else leave it, it is what holds{also}",
                figure(rate),
                figure(sum)
            ),
            key: bucket_key("account"),
            value: written(question, wanted),
            change: Change::Nothing,
        }
    })
}

/// A bucket that one Service empties. Where something is said of it already, that has the burst, too: there is one advice a bucket.
fn bursts(question: &Question, said: &[Advice]) -> Vec<Advice> {
    let families = question.config.limits.buckets.iter().filter_map(|(name, bucket)| {
        let (key, limit) = (bucket_key(name), bucket.limit);
        let writes = writes(question, name);
        (limit.burst < writes && said.iter().all(|one| one.key != key)).then(|| {
            let wanted = RateLimit { burst: writes, ..limit };
            Advice {
                text: format!(
                    "{name} has a burst of {}, and one Service takes {writes} writes of it: its last write waits {} though nothing else is sent",
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

/// Writes that one Service takes of a bucket.
fn writes(question: &Question, bucket: &str) -> u32 {
    let pays = |family: &str| bucket == "account" || family == bucket;
    let creation = question.cloud.creation();
    let writes = creation.iter().filter(|write| pays(write.family.word())).count();
    u32::try_from(writes).unwrap_or(u32::MAX)
}

/// A burst that has room for a Service, and a word on that where it is to grow.
fn with_burst(question: &Question, bucket: &str, burst: u32) -> (u32, String) {
    let writes = writes(question, bucket);
    if burst >= writes {
        return (burst, String::new());
    }
    (writes, format!("; a burst of {writes}, as one Service takes so many writes of it at once"))
}

/// Listings that take much of a family.
fn listings(question: &Question, steady: &Steady) -> Vec<Advice> {
    let much = steady.families.iter().filter(|family| family.share >= MUCH);
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
                "steady listings use {} % of {word}: with a maxAge of {age}s for {} it is {} %",
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
        text: "with mode shadow nothing is delayed; all figures here are those of enforce".to_owned(),
        key: "limits.mode".to_owned(),
        value: "enforce".to_owned(),
        change: Change::Nothing,
    })
}

/// What was advised for a bucket.
fn limit(said: &[Advice], name: &str) -> Option<RateLimit> {
    said.iter().find_map(|one| match &one.change {
        Change::Limit(bucket, limit) if bucket == name => Some(*limit),
        Change::Limit(..) | Change::InFlight(..) | Change::Queue(_) | Change::Nothing => None,
    })
}

/// A limit as it stands in the file, where it is taken times the cluster's share.
fn written(question: &Question, RateLimit { rate, burst }: RateLimit) -> String {
    let share = question.config.share;
    format!("{{rate: {}, burst: {}}}", figure(rate / share), (f64::from(burst) / share).ceil())
}

/// A rate with the digits that people need. A small one has two that count: it is never 0.
fn figure(rate: f64) -> f64 {
    let parts = match rate {
        high if high >= 10.0 => 1.0,
        low if low > 0.0 && low < 0.1 => 10_f64.powf(1.0 - low.log10().floor()),
        _ => 100.0,
    };
    rounded(rate, parts)
}
