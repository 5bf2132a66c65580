//! Step 3: executes a plan. Calls the adapter first, then writes the conditions of the nodes, then emits the Events.
//!
//! All decisions are made elsewhere: `error` interprets the adapter's answers.

pub(crate) mod batch;
pub(crate) mod record;

use std::time::Duration;

use cloud_api_proto::v1alpha1::{ApplyRoutesRequest, Priority};
use controller_core::Clock;
use controller_core::adapter::{Adapter, Call};
use controller_core::kube_api::{self, Held, within};
use controller_core::leadership::{ShardPass, Shards};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;
use tracing::info;

use self::batch::{Batch, batches};
use self::record::Store;
use crate::config::ClusterCidrs;
use crate::error::attempts::{Attempts, Outcome};
use crate::error::write_order::WriteOrder;
use crate::error::{CallFailure, Error, judge_call, judge_item};
use crate::events::Events;
use crate::metrics::Metrics;
use crate::plan::condition::{Change, NETWORK_UNAVAILABLE};
use crate::plan::{Creation, Plan, Removal};

/// Number of conditions written at once. In a cluster of a thousand nodes, each node's condition is usually written only once.
const PATCHES_AT_ONCE: usize = 16;

/// Time after which a pass starts no further route call. With a slow vendor, one call takes up to half of this time.
const APPLY: Duration = Duration::from_mins(1);

/// Time after which a pass starts no further write of a condition. Each write has a deadline of about the same length.
const CONDITION_WRITES: Duration = Duration::from_secs(15);

const FIELD_MANAGER: &str = "route-controller";

pub(crate) struct Executor {
    pub(crate) adapter: Adapter,
    pub(crate) nodes: Api<Node>,
    pub(crate) store: Store,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    pub(crate) cluster_cidrs: ClusterCidrs,
    pub(crate) shards: Shards,
    pub(crate) clock: Clock,
}

#[derive(Debug)]
pub(crate) struct Applied {
    /// Whether routes were left for the next pass, which should then begin at once; or the error that ended the pass.
    pub(crate) left_out: Result<bool, Error>,
    /// The shard that was processed last.
    pub(crate) reached: usize,
}

impl Executor {
    /// Creates and removes routes and records the outcomes. Starts no further call after [`APPLY`], so that a slow cloud delays neither the
    /// conditions of other nodes nor the end of the pass.
    ///
    /// Cost: one call per 200 routes of a shard, and as many earlier calls for routes that must be removed first.
    pub(crate) async fn apply(&self, passes: &[&ShardPass], due: &Plan, attempts: &mut Attempts) -> Applied {
        let until = Instant::now() + APPLY;
        let (mut reached, mut lapsed) = (0, false);
        for pass in passes {
            reached = pass.shard();
            match pass.run(self.apply_shard(pass, due, attempts, until)).await {
                Ok(false) => (),
                // Only this shard was lost, to another replica or temporarily. The other shards are still valid.
                Err(Error::Adapter { .. }) if !pass.is_valid() => lapsed = true,
                ended => return Applied { left_out: ended, reached },
            }
        }
        Applied { left_out: Ok(lapsed), reached }
    }

    /// Returns whether routes were left for the next pass. After an error, the next pass makes the remaining calls, too.
    async fn apply_shard(
        &self,
        pass: &ShardPass,
        due: &Plan,
        attempts: &mut Attempts,
        until: Instant,
    ) -> Result<bool, Error> {
        let creations: Vec<&Creation> =
            due.creations.iter().filter(|creation| pass.is_for(creation.shard_key())).collect();
        let in_the_way: Vec<&Removal> = creations.iter().flat_map(|creation| &creation.instead_of).collect();
        for batch in batches(&[], &in_the_way) {
            if Instant::now() >= until {
                return Ok(true);
            }
            self.send(&batch, attempts).await?;
        }
        let mut free = Vec::new();
        for creation in creations {
            match attempts.obstacle(creation) {
                Some(Outcome::Failed { why, .. } | Outcome::Refused { why, .. }) => {
                    self.events.failed_to_create(creation, Duration::ZERO, why);
                }
                Some(Outcome::Pending { .. } | Outcome::Done) => (),
                None => free.push(creation),
            }
        }
        let removals: Vec<&Removal> =
            due.removals.iter().filter(|removal| pass.is_for(&removal.shard_key())).collect();
        for batch in batches(&free, &removals) {
            if Instant::now() >= until {
                return Ok(true);
            }
            self.send(&batch, attempts).await?;
        }
        Ok(false)
    }

    /// Writes conditions, a few at a time, and starts no further write after [`CONDITION_WRITES`], so that a hanging API server does not
    /// delay routes. Nodes that waited longest come first. A deleted node needs no condition, and a new node of the same name triggers its
    /// own pass.
    ///
    /// Returns whether conditions were left for the next pass. After an error, the next pass also writes the remaining ones.
    pub(crate) async fn write_conditions(
        &self,
        here: &[ShardPass],
        changes: Vec<Change>,
        order: &mut WriteOrder,
    ) -> (bool, Result<(), Error>) {
        let until = Instant::now() + CONDITION_WRITES;
        let changes = order.sort(changes, Instant::now());
        let (n_changes, mut n_tried) = (changes.len(), 0);
        let begun = changes.into_iter().take_while(|_| Instant::now() < until);
        let mut answers = futures::stream::iter(begun)
            .map(|change: Change| async move {
                let pass = here.iter().find(|pass| pass.is_for(&change.node_uid));
                let answer = match pass {
                    Some(pass) => pass.run(self.patch(&change)).await,
                    None => Err(kube_api::Error::Held(Held::NotLeading)),
                };
                (change, answer)
            })
            .buffer_unordered(PATCHES_AT_ONCE);
        let (mut n_nodes, mut last) = (0, None);
        while let Some((change, answer)) = answers.next().await {
            n_tried += 1;
            order.attempted(&change);
            match answer {
                Ok(()) => {
                    order.wrote(&change, Instant::now());
                    self.metrics.conditions.inc();
                    let status = change.network.status();
                    info!(node = %change.node_name, status, reason = change.network.reason(), "Set \
                                                                                               condition NetworkUnavailable");
                }
                Err(error) if error.is_not_found() || error.is_about_another() => (),
                Err(error) => {
                    n_nodes += 1;
                    last = Some(Box::new(error));
                }
            }
        }
        let result = last.map_or(Ok(()), |source| Err(Error::Conditions { n_nodes, source }));
        (n_tried < n_changes, result)
    }

    async fn send(&self, batch: &Batch<'_>, attempts: &mut Attempts) -> Result<(), Error> {
        let began = Instant::now();
        let answer =
            self.adapter.apply_routes(Call::with_priority(Priority::Traffic), self.request(batch)).await;
        let outcomes: Box<dyn Iterator<Item = Outcome>> = match &answer {
            Ok(answer) => Box::new((0..).map(|at| judge_item(answer.results.get(at)))),
            Err(error) => match judge_call(error) {
                CallFailure::Pass => {
                    return Err(Error::Adapter { call: "ApplyRoutes", source: Box::new(error.clone()) });
                }
                CallFailure::Superseded => return Err(Error::Superseded { source: Box::new(error.clone()) }),
                CallFailure::Routes(outcome) => Box::new(std::iter::repeat(outcome)),
            },
        };
        self.note(batch, outcomes, began, attempts);
        Ok(())
    }

    pub(crate) fn request(&self, batch: &Batch<'_>) -> ApplyRoutesRequest {
        ApplyRoutesRequest {
            context: None,
            fence: Some(self.shards.fence()),
            upserts: batch.upserts(self.adapter.cluster_id()),
            deletes: batch.deletes(self.adapter.cluster_id()),
            dry_run: false,
            cluster_cidrs: batch.cidrs(&self.cluster_cidrs),
        }
    }

    /// Records and logs the outcomes of a call: first the outcomes of the new routes, then the outcomes of the removals.
    fn note(
        &self,
        batch: &Batch<'_>,
        mut outcomes: Box<dyn Iterator<Item = Outcome> + '_>,
        began: Instant,
        attempts: &mut Attempts,
    ) {
        let now = Instant::now();
        for (creation, outcome) in batch.creations.iter().zip(outcomes.by_ref()) {
            self.metrics.created(&outcome);
            let took = now.duration_since(began);
            self.report_creation(creation, &outcome, took);
            attempts.created(creation, outcome, took, now);
        }
        for (removal, outcome) in batch.removals.iter().zip(outcomes) {
            self.metrics.removed(&outcome);
            report_removal(removal, &outcome);
            attempts.removed(removal, outcome, now);
        }
    }

    fn report_creation(&self, creation: &Creation, outcome: &Outcome, after: Duration) {
        match outcome {
            Outcome::Done => {
                info!(node = %creation.node_name, to = %creation.claim.to, via = %creation.via, "Created route");
            }
            Outcome::Pending { .. } => (),
            Outcome::Failed { why, .. } | Outcome::Refused { why, .. } => {
                self.events.failed_to_create(creation, after, why);
            }
        }
    }

    async fn patch(&self, change: &Change) -> Result<(), kube_api::Error> {
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({
            "type": NETWORK_UNAVAILABLE,
            "status": change.network.status(),
            "reason": change.network.reason(),
            "message": change.network.message(),
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        });
        // The API server refuses the patch if the node of this name has another UID.
        let body = json!({ "metadata": { "uid": change.node_uid }, "status": { "conditions": [condition] } });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        within(self.nodes.patch_status(&change.node_name, &params, &Patch::Strategic(body))).await.map(drop)
    }
}

/// Logs the outcome of a removal. A removal has no Event, since the node may be gone.
fn report_removal(removal: &Removal, outcome: &Outcome) {
    let (to, vendor_id) = (removal.to, removal.vendor_id.as_str());
    match outcome {
        Outcome::Done => info!(%to, vendor_id, "Removed route"),
        Outcome::Pending { .. } => (),
        Outcome::Failed { why, .. } | Outcome::Refused { why, .. } => {
            tracing::warn!(%to, vendor_id, error = %why, "Cannot remove route");
        }
    }
}

#[cfg(test)]
mod tests {
    use controller_core::testing::{FakeCloud, FakeKube, Fault, Verb, node, process};

    use super::*;
    use crate::plan::condition::Network;
    use crate::plan::{plan, tests as plans};

    fn executor(kube: &FakeKube, cloud: &FakeCloud) -> Executor {
        let mut process = process(crate::NAMES, kube, cloud);
        Executor {
            adapter: process.adapter.clone(),
            nodes: Api::all(process.kube.clone()),
            store: Store::new(process.kube.clone()),
            events: Events::new(process.recorder.clone()),
            metrics: Metrics::register(&mut process),
            cluster_cidrs: "10.244.0.0/16".parse().expect("a CIDR"),
            shards: process.shards.clone(),
            clock: process.clock,
        }
    }

    fn available(node: &str, uid: &str) -> Change {
        let (node_name, node_uid) = (node.to_owned(), uid.to_owned());
        Change { node_name, node_uid, network: Network::Available }
    }

    #[tokio::test(start_paused = true)]
    async fn condition_of_a_recreated_node_is_not_an_error() {
        let kube = FakeKube::new();
        kube.put::<Node>(node("recreated").uid("uid-2"));
        kube.put::<Node>(node("a"));
        let executor = executor(&kube, &FakeCloud::new());
        let changes =
            || vec![available("recreated", "uid-1"), available("gone", "uid-gone"), available("a", "uid-a")];
        let (_more, written) = executor
            .write_conditions(&executor.shards.enter_all(), changes(), &mut WriteOrder::default())
            .await;
        written.expect("stale conditions are not an error");
        assert_eq!((kube.writes().len(), executor.metrics.conditions.get()), (3, 1));

        kube.order(Fault::status(409).on(Verb::Patch, "nodes/status").of("a"));
        let (_more, failed) = executor
            .write_conditions(&executor.shards.enter_all(), changes(), &mut WriteOrder::default())
            .await;
        assert!(matches!(failed, Err(Error::Conditions { n_nodes: 1, .. })), "{failed:?}");
    }

    /// The cache lags behind the writes, so first attempts go before retries.
    // Behaviour: P6
    #[tokio::test(start_paused = true)]
    async fn slow_cloud_needs_more_passes_and_not_longer_ones() {
        let cloud = FakeCloud::new();
        cloud.slow("ApplyRoutes", Duration::from_secs(29));
        let executor = executor(&FakeKube::new(), &cloud);
        let nodes: Vec<_> = (0..2400)
            .map(|n| plans::node(&format!("n{n}")).pods(&format!("10.244.{}.{}/28", n / 16, n % 16 * 16)))
            .collect();
        let plan = plan(&nodes, &Vec::<crate::plan::route::Route>::new(), &plans::cluster(), None);
        let (mut attempts, mut n_passes) = (Attempts::default(), 0);
        let all = executor.shards.enter_all();
        let passes: Vec<&ShardPass> = all.iter().collect();
        loop {
            let (began, due) = (Instant::now(), attempts.due(&plan, Instant::now()));
            let applied = executor.apply(&passes, &due, &mut attempts).await;
            let more = applied.left_out.expect("all routes are accepted");
            assert!(began.elapsed() <= APPLY * 3 / 2, "{:?}", began.elapsed());
            n_passes += 1;
            if cloud.read(|state| state.routes.len()) == nodes.len() {
                break;
            }
            assert!(more && n_passes < 4, "{n_passes} passes, {more}");
        }
        assert_eq!(n_passes, 4, "three calls per pass");
    }
}
