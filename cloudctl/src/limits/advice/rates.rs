//! Advice on rates and on limits of calls in flight that delay users.

use std::{collections::BTreeMap, time::Duration};

use cloud_budget::RateLimit;

use super::{Advice, Change, figure, with_burst, written};
use crate::limits::{
    Question,
    cases::{CONVERGENCE_MAX, Case, Kind, USERS},
    quantiles::{in_words, span},
    results::{bucket_key, most_in_flight},
    world::WRITE,
};

/// Factor by which the advised limit of calls in flight exceeds the need of the rate, so that calls remain for slower requests.
const HEADROOM: f64 = 1.1;

/// What is known about a bucket whose rate is too low.
struct Short {
    /// Whether the start or the new node waits mainly for this bucket.
    binds: bool,
    calls: u64,
    /// Seconds that the calls of this bucket take at its rate.
    takes: f64,
    wanted: f64,
    what: String,
}

/// Advises on rates. `within` is the time that the calls of one bucket may take.
pub(super) fn advise(question: &Question, cases: &[Case], within: Duration) -> Vec<Advice> {
    let mut short: BTreeMap<String, Short> = BTreeMap::new();
    let late = || cases.iter().filter(|case| case.late);
    for (name, found) in late().flat_map(|case| lacking(question, case, within)) {
        let wanted = short.get(&name).map_or(0.0, |there| there.wanted);
        if found.wanted > wanted {
            short.insert(name, found);
        }
    }
    let mut advice: Vec<_> = short.iter().filter_map(|(name, short)| rate(question, name, short)).collect();
    let faster = |family: &str| short.get(family).map(|short| short.wanted);
    for more in late().flat_map(|case| in_flight(question, case, faster)) {
        if advice.iter().all(|there| there.key != more.key) {
            advice.push(more);
        }
    }
    advice
}

/// Returns the buckets whose calls alone take longer than `within` for the simulated events.
fn lacking(question: &Question, case: &Case, within: Duration) -> impl Iterator<Item = (String, Short)> {
    case.whole.buckets.iter().filter_map(move |used| {
        let limit = question.config.limits.buckets.get(&used.bucket)?.limit;
        let takes = case.waiting(used, limit.burst) / limit.rate;
        let wanted = nice(case.wanted(used, limit.burst, within));
        let binds = case.bound_by.as_ref().is_some_and(|bound| bound.key == bucket_key(&used.bucket));
        let what = what(question, &used.bucket, case.kind);
        let short = Short { binds, calls: used.awaited, takes, wanted, what };
        (takes > within.as_secs_f64()).then(|| (used.bucket.clone(), short))
    })
}

fn rate(question: &Question, name: &str, short: &Short) -> Option<Advice> {
    let limit = question.config.limits.buckets.get(name)?.limit;
    let Short { binds, calls, takes, wanted, what } = short;
    let binds = if *binds { "is the tightest limit" } else { "is too slow" };
    let (burst, also) = with_burst(question, name, limit.burst);
    let wanted = RateLimit { rate: *wanted, burst };
    Some(Advice {
        text: format!(
            "{name} {binds}: {what} {calls} calls, which take {} at {}/s; to converge in {}, set the \
            rate to {}/s, if the vendor allows that{also}",
            in_words(*takes),
            figure(limit.rate),
            span(CONVERGENCE_MAX),
            figure(wanted.rate)
        ),
        key: bucket_key(name),
        value: written(question, wanted),
        change: Change::Limit(name.to_owned(), wanted),
    })
}

/// Describes the objects that need the calls of a bucket.
fn what(question: &Question, bucket: &str, kind: Kind) -> String {
    let Question { nodes, services, routes, .. } = question;
    let users = match kind {
        Kind::Joins => return format!("one node that joins {services} load balancers needs"),
        Kind::Start => String::new(),
        Kind::Users => format!(" and {USERS} that users create during the start"),
    };
    match bucket.split(':').next() {
        Some("compute") => format!("{nodes} nodes need"),
        Some("loadbalancer") => format!("{services} load balancers{users} need"),
        Some(_) | None => format!("{nodes} nodes, {routes} routes and {services} load balancers{users} need"),
    }
}

/// Advises on families whose limit of calls in flight is too low for their rate. `faster`: the advised rates, by family.
fn in_flight(question: &Question, case: &Case, faster: impl Fn(&str) -> Option<f64>) -> Vec<Advice> {
    let limits = &question.config.limits;
    let families = case.whole.calls.iter().filter_map(|calls| {
        let family = calls.family;
        let most = most_in_flight(question, family);
        let key = format!("limits.concurrency.{family}");
        let binds = case.bound_by.as_ref().is_some_and(|bound| bound.key == key);
        let rate = faster(family).or(Some(limits.buckets.get(family)?.limit.rate).filter(|_| binds))?;
        let wanted = whole(rate * WRITE.as_secs_f64() * HEADROOM);
        (wanted > most).then(|| Advice {
            text: format!(
                "a limit of {most} for calls in flight of {family} allows {}/s, because a write \
                takes {}: a rate of {}/s needs a limit of {wanted}",
                figure(f64::from(most) / WRITE.as_secs_f64()),
                span(WRITE),
                figure(rate)
            ),
            key,
            value: wanted.to_string(),
            change: Change::InFlight(family, wanted),
        })
    });
    families.collect()
}

/// Rounds up to two significant digits.
fn nice(rate: f64) -> f64 {
    let step = 10_f64.powf(rate.log10().floor() - 1.0);
    (rate / step).ceil() * step
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are at most 100,000, and not negative"
)]
fn whole(calls: f64) -> u32 {
    calls.ceil() as u32
}
