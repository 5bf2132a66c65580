//! Batches the look-ups of new nodes whose instances the cache does not show yet.
//!
//! Nodes that join at about the same time share one call, and the next call waits until this call has ended. So a hundred nodes that join
//! at once cost no more calls than a single node. An answer triggers a reconcile of its node, which consumes the answer.
//!
//! The controller writes `spec.providerID` from an answer, and that field is immutable. An answer is therefore valid only for the node that
//! the question was about, known by its UID, and only for a while.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Existence, InstanceRef, InstanceResult, Priority, instance_ref::Ref},
};
use controller_core::{
    Again,
    adapter::{Adapter, Call, concerns_all},
    mirror::ObjectName,
    queue::Queue,
    retry::is_message_limit,
    start::Process,
};
use telemetry::traces::{self, Origin};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tracing::Instrument as _;

use crate::{
    mirror::{Found, Mirrors, trim_instance},
    plan::{Instance, Node},
};

/// Time without a further node after which the call starts.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Maximum delay of the call while further nodes are added.
const LONGEST: Duration = Duration::from_secs(2);
/// Minimum time between the starts of two calls, so that nodes that join in succession share calls.
const BATCH_INTERVAL: Duration = Duration::from_secs(2);
const CALL: &str = "BatchGetInstances";
/// Maximum number of references in one call. Source: contract.
const BATCH: usize = 500;
/// Time after which an answer expires if its node has not consumed the answer.
const KEEP: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
pub(crate) enum LookupResult {
    Seen(Arc<Instance>),
    NotVisible,
    Foreign,
    Failed { reason: Reason, error: String, again: Again },
}

/// Collects requests and keeps answers. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookup {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    asked: Notify,
}

/// The name and the UID of a node, because a recreated node of the same name is a different node.
type Asker = (ObjectName, String);

#[derive(Debug, Default)]
struct State {
    wanted: BTreeMap<Asker, Arc<Node>>,
    /// For each node of `wanted`, the trace of the last reconcile that added the node.
    origins: BTreeMap<Asker, Origin>,
    under_way: BTreeMap<Asker, Arc<Node>>,
    answers: BTreeMap<Asker, (Instant, LookupResult)>,
}

/// Starts the task that makes the calls.
pub(crate) fn start(process: &mut Process, mirrors: &Mirrors, queue: &Queue<ObjectName>) -> Lookup {
    let lookup = Lookup::default();
    let (this, mirrors, queue) = (lookup.clone(), mirrors.clone(), queue.clone());
    let adapter = process.adapter.clone();
    process.background("instance look-up", async move {
        let mut next = Instant::now();
        loop {
            this.collect().await;
            sleep_until(next).await;
            next = Instant::now() + BATCH_INTERVAL;
            if let Some(peace) = this.ask_all(&adapter, &mirrors, &queue).await {
                next = next.max(Instant::now() + peace);
            }
        }
    });
    lookup
}

impl Lookup {
    pub(crate) fn ask(&self, node: &Arc<Node>) {
        let asker = asker(node);
        let mut state = self.state();
        if !state.under_way.contains_key(&asker) {
            state.origins.insert(asker.clone(), Origin::here());
            state.wanted.insert(asker, Arc::clone(node));
        }
        drop(state);
        self.inner.asked.notify_one();
    }

    /// Takes the answer for a node, if there is one. An instance stays available for a while; any other answer is returned only once.
    pub(crate) fn answer(&self, node: &Node) -> Option<LookupResult> {
        let mut state = self.state();
        let (asker, (since, answer)) = state.answers.remove_entry(&asker(node))?;
        if since.elapsed() >= KEEP {
            return None;
        }
        if matches!(answer, LookupResult::Seen(_)) {
            state.answers.insert(asker, (since, answer.clone()));
        }
        Some(answer)
    }

    pub(crate) fn peek(&self, node: &Node) -> Option<LookupResult> {
        let state = self.state();
        let (since, answer) = state.answers.get(&asker(node))?;
        (since.elapsed() < KEEP).then(|| answer.clone())
    }

    /// Drops the answer, which the node no longer needs.
    pub(crate) fn forget(&self, node: &Node) {
        self.state().answers.remove(&asker(node));
    }

    /// Waits for the first node, and then for further nodes.
    async fn collect(&self) {
        while self.n_wanted() == 0 {
            self.inner.asked.notified().await;
        }
        let latest = Instant::now() + LONGEST;
        loop {
            let before = self.n_wanted();
            sleep(DEBOUNCE).await;
            let now = self.n_wanted();
            if now == before || now >= BATCH || Instant::now() >= latest {
                return;
            }
        }
    }

    /// Looks up at most one batch, and queues its nodes. Returns the pause that the adapter asks for.
    ///
    /// If the adapter is briefly unavailable, the nodes go into the next call, and no Event is emitted.
    async fn ask_all(
        &self,
        adapter: &Adapter,
        mirrors: &Mirrors,
        queue: &Queue<ObjectName>,
    ) -> Option<Duration> {
        let batch = self.begin(mirrors, queue);
        if batch.is_empty() {
            return None;
        }
        // The call has its own trace, since it serves several reconciles.
        let span =
            traces::child(traces::span!("look up", otel.name = "look up instances", nodes = batch.len()));
        self.question(adapter, queue, batch).instrument(span).await
    }

    async fn question(
        &self,
        adapter: &Adapter,
        queue: &Queue<ObjectName>,
        batch: Vec<Arc<Node>>,
    ) -> Option<Duration> {
        self.state().link(&batch);
        let refs = batch.iter().map(|node| reference(node)).collect();
        // The answer is not older than the call, and therefore younger than these nodes. It contains no instance of an earlier node with
        // the same name.
        let call = Call::with_priority(Priority::Interactive).no_older_than(Duration::ZERO);
        let answered = match adapter.batch_get_instances(call, refs).await {
            Ok(response) => located(adapter, &batch).await.map(|()| response),
            Err(error) => Err(error),
        };
        let answers: Vec<LookupResult> = match answered {
            Ok(response) if response.results.len() == batch.len() => {
                batch.iter().zip(response.results).map(|(node, result)| answer(node, result)).collect()
            }
            Ok(_) => vec![failed(&AdapterError::new(Reason::Internal, "too few results")); batch.len()],
            Err(error) if concerns_all(error.reason) && !adapter.call_health().is_refused(CALL) => {
                self.put_back();
                return error.retry_after;
            }
            Err(error) => vec![failed(&error); batch.len()],
        };
        let now = Instant::now();
        let mut state = self.state();
        for asker in mem::take(&mut state.under_way).into_keys() {
            state.origins.remove(&asker);
        }
        state.answers.retain(|_, (since, _)| now.duration_since(*since) < KEEP);
        state.answers.extend(
            batch.iter().map(|node| asker(node)).zip(answers.into_iter().map(|answer| (now, answer))),
        );
        drop(state);
        for node in batch {
            queue.add(ObjectName::cluster(node.name.clone()));
        }
        None
    }

    /// Puts nodes without an answer into the next call.
    fn put_back(&self) {
        let mut state = self.state();
        let unanswered = mem::take(&mut state.under_way);
        state.wanted.extend(unanswered);
    }

    /// Takes the next batch. Nodes whose instances the cache shows by now are queued, and not looked up.
    fn begin(&self, mirrors: &Mirrors, queue: &Queue<ObjectName>) -> Vec<Arc<Node>> {
        let mut state = self.state();
        for (asker, node) in mem::take(&mut state.wanted) {
            match mirrors.cached_instance(&node) {
                Found::Nothing if state.under_way.len() < BATCH => drop(state.under_way.insert(asker, node)),
                Found::Nothing => drop(state.wanted.insert(asker, node)),
                Found::One(_) | Found::Many(_) => {
                    state.origins.remove(&asker);
                    queue.add(asker.0);
                }
            }
        }
        state.under_way.values().cloned().collect()
    }

    fn n_wanted(&self) -> usize {
        self.state().wanted.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Links the call's trace to the reconciles that it serves.
    fn link(&self, batch: &[Arc<Node>]) {
        batch.iter().filter_map(|node| self.origins.get(&asker(node))).for_each(Origin::link);
    }
}

fn asker(node: &Node) -> Asker {
    (ObjectName::cluster(node.name.clone()), node.uid.clone())
}

fn reference(node: &Node) -> InstanceRef {
    let by = match &node.provider_id {
        Some(id) => Ref::ProviderId(id.clone()),
        None => Ref::NodeName(node.name.clone()),
    };
    let addresses = node.addresses.iter().map(|(_, address)| address.to_owned()).collect();
    InstanceRef { r#ref: Some(by), system_uuid: String::new(), addresses }
}

fn answer(node: &Node, result: InstanceResult) -> LookupResult {
    let existence = result.existence();
    match (existence, result.instance.map(trim_instance), result.error) {
        // A new node cannot run on an instance that is being deleted, so such an instance belongs to an earlier node of that name.
        (Existence::Exists, Some(instance), _) if instance.ends && node.provider_id.is_none() => {
            LookupResult::NotVisible
        }
        (Existence::Exists, Some(instance), _) => LookupResult::Seen(Arc::new(instance)),
        (Existence::Foreign, ..) => LookupResult::Foreign,
        // A new node whose instance is gone is treated like other waiting nodes, since `lifecycle` deletes nodes.
        (Existence::Gone | Existence::NotVisible, ..) => LookupResult::NotVisible,
        (Existence::Exists | Existence::Unknown | Existence::Unspecified, _, error) => {
            let error = error.map(|item| {
                let delay = item.retry_after.and_then(|delay| delay.try_into().ok());
                let error = AdapterError::new(item.reason(), item.message);
                delay.map_or_else(|| error.clone(), |delay| error.clone().retry_after(delay))
            });
            failed(
                &error.unwrap_or_else(|| AdapterError::new(Reason::Unspecified, "the cloud gave no reason")),
            )
        }
    }
}

/// Gets the scope of the adapter that answered. A watch might report a new scope too late, and in another scope, another instance may have
/// the node's name. Cost: no vendor call.
async fn located(adapter: &Adapter, batch: &[Arc<Node>]) -> Result<(), AdapterError> {
    let by_name = batch.iter().any(|node| node.provider_id.is_none());
    if by_name { adapter.get_info().await.map(drop) } else { Ok(()) }
}

/// Retries after an error, since no watch reports that its cause is fixed. Only an error about the message size is permanent.
fn failed(error: &AdapterError) -> LookupResult {
    let again = Again::after_error(error);
    let again = if is_message_limit(error) { again } else { again.sooner(Again::Backoff) };
    LookupResult::Failed { reason: error.reason, error: error.to_string(), again }
}

#[cfg(test)]
mod tests;
