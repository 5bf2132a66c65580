//! The results of the simulated events. `-o json` prints their fields.

use std::time::Duration;

use cloud_adapter::vendor::Operation;
use cloud_budget::Time;
use serde::Serialize;

use crate::limits::{
    Question,
    cloud::Collection,
    cluster::Cluster,
    quantiles::{Quantiles, rounded, seconds},
};

/// If less than this share of a limit is used, the limit does not determine the duration.
const BINDS: f64 = 0.8;
/// Default limit of calls in flight, for a family that the file does not name.
const IN_FLIGHT: u32 = 16;

/// The result of an event after which the cluster converges.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scenario {
    /// Time until everything has converged, in seconds. `None`: more than a week.
    pub(crate) converged_seconds: Option<f64>,
    /// Time until all nodes are known.
    pub(crate) nodes_seconds: Option<f64>,
    /// Time until all routes are created.
    pub(crate) routes_seconds: Option<f64>,
    /// Time until all load balancers are ready.
    pub(crate) load_balancers_seconds: Option<f64>,
    /// The limit that determines the duration. `None` if the latency of the calls determines the duration.
    pub(crate) bound_by: Option<Bound>,
    pub(crate) calls: Vec<CallCount>,
    /// How long calls waited, most urgent class first.
    pub(crate) waits: Vec<ClassWait>,
    pub(crate) buckets: Vec<BucketUse>,
    /// Calls that the full queue refused at first.
    pub(crate) refused: u64,
}

/// A limit, and how much of it was used.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bound {
    /// The key of the limit in the file.
    pub(crate) key: String,
    /// The used share of the limit, from 0 to 1.
    pub(crate) used: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallCount {
    pub(crate) family: &'static str,
    pub(crate) reads: u32,
    pub(crate) writes: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClassWait {
    pub(crate) class: &'static str,
    pub(crate) calls: usize,
    pub(crate) wait: Quantiles,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketUse {
    pub(crate) bucket: String,
    /// The rate of the bucket, in calls per second.
    pub(crate) rate: f64,
    pub(crate) calls: u64,
    /// Number of these calls that a user or node waited for: all except periodic listings.
    pub(crate) awaited: u64,
    /// Used share of the bucket's capacity until the end, from 0 to 1.
    pub(crate) used: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Users {
    pub(crate) services: u32,
    /// How long each call of these Services waited in the queue.
    pub(crate) wait: Quantiles,
    /// Time from the request until the load balancer was ready.
    pub(crate) ready: Quantiles,
}

/// An hour without changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Steady {
    pub(crate) families: Vec<FamilyShare>,
    /// The periodic listings that cause the calls.
    pub(crate) listings: Vec<Listed>,
}

/// Calls of one family in an average hour.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FamilyShare {
    pub(crate) family: &'static str,
    pub(crate) calls_per_hour: f64,
    /// Used share of the capacity of the family's bucket, from 0 to 1.
    pub(crate) share: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    /// The collection's section below `cache` in the file.
    pub(crate) collection: &'static str,
    pub(crate) every_seconds: f64,
    /// Calls of one listing, by family.
    pub(crate) calls: Vec<CallCount>,
}

impl Listed {
    pub(crate) fn new(what: Collection, every: Duration, calls: &[Operation]) -> Self {
        let mut counts: Vec<CallCount> = Vec::new();
        for operation in calls {
            let family = operation.family.word();
            match counts.iter_mut().find(|count| count.family == family) {
                Some(count) => count.reads += 1,
                None => counts.push(CallCount { family, reads: 1, writes: 0 }),
            }
        }
        Self { collection: what.key(), every_seconds: seconds(every), calls: counts }
    }
}

impl Scenario {
    pub(crate) fn of(cluster: &Cluster, question: &Question) -> Self {
        let reached = &cluster.reached;
        let at = |time: Option<Time>| time.map(|time| seconds(time.since(Time::ZERO)));
        let tally = &cluster.world.tally;
        let waits = tally.waits.iter().rev().filter_map(|(class, waits)| {
            Some(ClassWait { class: class.word(), calls: waits.len(), wait: Quantiles::of(waits)? })
        });
        let calls = tally.families.iter().map(|(family, calls)| CallCount {
            family: family.word(),
            reads: calls.reads,
            writes: calls.writes,
        });
        let lasted = cluster.world.now().since(Time::ZERO).as_secs_f64();
        let buckets = buckets(cluster, question, lasted);
        Self {
            converged_seconds: at(reached.all()),
            nodes_seconds: at(reached.nodes),
            routes_seconds: at(reached.routes),
            load_balancers_seconds: at(reached.balancers),
            bound_by: bound(&buckets, in_flight(cluster, question, lasted)),
            calls: calls.collect(),
            waits: waits.collect(),
            buckets,
            refused: tally.refused,
        }
    }
}

fn buckets(cluster: &Cluster, question: &Question, lasted: f64) -> Vec<BucketUse> {
    let buckets = cluster.world.report().buckets.into_iter().map(|bucket| {
        let limit = question.config.limits.buckets.get(&bucket.name).map(|bucket| bucket.limit);
        let burst = limit.filter(|_| !cluster.starts).map_or(0.0, |limit| f64::from(limit.burst));
        let rate = limit.map_or(bucket.ceiling, |limit| limit.rate);
        let used = part(bucket.calls, rate * lasted + burst);
        let pays = |family: &str| bucket.name == "account" || bucket.name == family;
        let families = cluster.world.tally.families.iter().filter(|(family, _)| pays(family.word()));
        let periodic: u64 = families.map(|(_, calls)| u64::from(calls.periodic)).sum();
        let (calls, awaited) = (bucket.calls, bucket.calls.saturating_sub(periodic));
        BucketUse { bucket: bucket.name, rate: rounded(rate, 1_000.0), calls, awaited, used }
    });
    buckets.filter(|bucket| bucket.calls > 0).collect()
}

/// Used share of the limit on calls in flight, by family.
fn in_flight<'a>(
    cluster: &'a Cluster,
    question: &'a Question,
    lasted: f64,
) -> impl Iterator<Item = Bound> + use<'a> {
    cluster.world.tally.families.iter().map(move |(family, calls)| {
        let word = family.word();
        let most = most_in_flight(question, word);
        let used = calls.in_progress.as_secs_f64() / (f64::from(most) * lasted);
        Bound { key: format!("limits.concurrency.{word}"), used: rounded(used.min(1.0), 1_000.0) }
    })
}

pub(crate) fn most_in_flight(question: &Question, family: &str) -> u32 {
    question.config.limits.concurrency.get(family).copied().unwrap_or(IN_FLIGHT)
}

/// Returns the most heavily used limit, if at least the share [`BINDS`] of it is used.
fn bound(buckets: &[BucketUse], in_flight: impl Iterator<Item = Bound>) -> Option<Bound> {
    let buckets = buckets.iter().map(|bucket| Bound { key: bucket_key(&bucket.bucket), used: bucket.used });
    let most = buckets.chain(in_flight).max_by(|one, other| one.used.total_cmp(&other.used));
    most.filter(|most| most.used >= BINDS)
}

/// Returns the path of a bucket in the adapter's configuration file, such as `limits.buckets.account`.
pub(crate) fn bucket_key(name: &str) -> String {
    if name.contains(':') { format!("limits.buckets.\"{name}\"") } else { format!("limits.buckets.{name}") }
}

#[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^52 calls")]
fn part(calls: u64, allowed: f64) -> f64 {
    rounded((calls as f64 / allowed).min(1.0), 1_000.0)
}
