//! The result. Its fields are what `-o json` prints.

use std::time::Duration;

use cloud_adapter::vendor::Operation;
use cloud_budget::Time;
use serde::Serialize;

use crate::{
    Advice, Cloud, Question,
    cloud::Collection,
    cluster::Cluster,
    quantiles::{Quantiles, rounded, seconds},
};

/// A limit that is used less than this is not the one that everything waits for.
const BINDS: f64 = 0.8;
/// Default limit of calls in flight, for a family that the file does not name.
const IN_FLIGHT: u32 = 16;

/// What the limits mean for the cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The cloud whose calls were simulated.
    pub cloud: Cloud,
    /// Nodes.
    pub nodes: u32,
    /// Services of type LoadBalancer, with one port each.
    pub services: u32,
    /// Routes to the nodes' pods.
    pub routes: u32,
    /// Families that neither the file nor the driver has limits for.
    pub assumed: Vec<&'static str>,
    /// The adapter and its controllers start, and all nodes and Services already exist.
    pub bootstrap: Scenario,
    /// Services that users create during the start. `None`: the start never ends.
    pub users: Option<Users>,
    /// Nothing changes.
    pub steady: Steady,
    /// A node joins a cluster that has converged.
    pub joins: Scenario,
    /// What to change.
    pub advice: Vec<Advice>,
    /// The start with all advice followed. `None`: it would not change.
    pub advised_bootstrap: Option<Scenario>,
}

/// An event with an end.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scenario {
    /// When everything has converged. `None`: not within a week.
    pub converged_seconds: Option<f64>,
    /// When all nodes are known.
    pub nodes_seconds: Option<f64>,
    /// When all routes are created.
    pub routes_seconds: Option<f64>,
    /// When all load balancers are ready.
    pub load_balancers_seconds: Option<f64>,
    /// The limit that determines the duration, if any; otherwise it is the latency of the calls.
    pub bound_by: Option<Bound>,
    /// The calls, by family.
    pub calls: Vec<CallCount>,
    /// How long calls waited, most urgent class first.
    pub waits: Vec<ClassWait>,
    /// How much of each bucket was used.
    pub buckets: Vec<BucketUse>,
    /// Calls that the full queue refused at first.
    pub refused: u64,
}

/// A limit, and how much of it was used.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bound {
    /// Its key in the file.
    pub key: String,
    /// 0 to 1.
    pub used: f64,
}

/// Calls of a family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallCount {
    /// The name of the family.
    pub family: &'static str,
    /// Calls that change nothing.
    pub reads: u32,
    /// Calls that change something.
    pub writes: u32,
}

/// Calls of a class.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassWait {
    /// The name of the class.
    pub class: &'static str,
    /// Number of calls.
    pub calls: usize,
    /// How long they waited in the queue.
    pub wait: Quantiles,
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BucketUse {
    /// Its name.
    pub bucket: String,
    /// Its rate, per second.
    pub rate: f64,
    /// Calls that drew from it.
    pub calls: u64,
    /// Those that a user or node waited for: all but periodic listings.
    pub awaited: u64,
    /// Part of its capacity until the end, 0 to 1.
    pub used: f64,
}

/// Services that users create during a start.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Users {
    /// Number of Services.
    pub services: u32,
    /// How long each of their calls waited in the queue.
    pub wait: Quantiles,
    /// Time from the request until the load balancer was ready.
    pub ready: Quantiles,
}

/// An hour without changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Steady {
    /// Calls by family.
    pub families: Vec<FamilyShare>,
    /// The periodic listings that cause the calls.
    pub listings: Vec<Listed>,
}

/// Calls of a family.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FamilyShare {
    /// The name of the family.
    pub family: &'static str,
    /// Calls in an average hour.
    pub calls_per_hour: f64,
    /// Part of the capacity of its bucket, 0 to 1.
    pub share: f64,
}

/// A collection that is listed periodically.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Its section below `cache` in the file.
    pub collection: &'static str,
    /// The interval.
    pub every_seconds: f64,
    /// Calls of one listing, by family.
    pub calls: Vec<CallCount>,
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
    /// The result of a run.
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
        let again: u64 = families.map(|(_, calls)| u64::from(calls.again)).sum();
        let (calls, awaited) = (bucket.calls, bucket.calls.saturating_sub(again));
        BucketUse { bucket: bucket.name, rate: rounded(rate, 1_000.0), calls, awaited, used }
    });
    buckets.filter(|bucket| bucket.calls > 0).collect()
}

/// How much of the limit of calls in flight was used, by family.
fn in_flight<'a>(
    cluster: &'a Cluster,
    question: &'a Question,
    lasted: f64,
) -> impl Iterator<Item = Bound> + use<'a> {
    cluster.world.tally.families.iter().map(move |(family, calls)| {
        let word = family.word();
        let most = most_in_flight(question, word);
        let used = calls.under_way.as_secs_f64() / (f64::from(most) * lasted);
        Bound { key: format!("limits.concurrency.{word}"), used: rounded(used.min(1.0), 1_000.0) }
    })
}

/// The limit of calls in flight for a family.
pub(crate) fn most_in_flight(question: &Question, family: &str) -> u32 {
    question.config.limits.concurrency.get(family).copied().unwrap_or(IN_FLIGHT)
}

/// The limit that is used most, if it is used up.
fn bound(buckets: &[BucketUse], in_flight: impl Iterator<Item = Bound>) -> Option<Bound> {
    let buckets = buckets.iter().map(|bucket| Bound { key: bucket_key(&bucket.bucket), used: bucket.used });
    let most = buckets.chain(in_flight).max_by(|one, other| one.used.total_cmp(&other.used));
    most.filter(|most| most.used >= BINDS)
}

/// A bucket's key in the file.
pub(crate) fn bucket_key(name: &str) -> String {
    if name.contains(':') { format!("limits.buckets.\"{name}\"") } else { format!("limits.buckets.{name}") }
}

#[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^52 calls")]
fn part(calls: u64, allowed: f64) -> f64 {
    rounded((calls as f64 / allowed).min(1.0), 1_000.0)
}
