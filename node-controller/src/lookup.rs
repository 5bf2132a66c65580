//! The one question to the cloud for all new nodes together whose instances the mirror does not show yet.
//!
//! New nodes are collected for a moment, then asked for in one call; the next call waits for the first to end. So a hundred nodes that
//! join at once cost as many questions as one. An answer wakes its node and is used up by it.

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
    adapter::{Adapter, Call},
    mirror::ObjectName,
    queue::Queue,
    start::Process,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    mirror::{Found, Mirrors, trim_instance},
    plan::{Instance, Node},
};

/// The question is asked when no further node came for so long …
const QUIET: Duration = Duration::from_millis(200);
/// … or at the latest after this.
const LONGEST: Duration = Duration::from_secs(2);
/// References in one call, as the contract says.
const BATCH: usize = 500;
/// How old the answer may be. Questions that follow each other closely share one vendor read.
const STALENESS: Duration = Duration::from_secs(1);
/// A node that does not come for its answer within this time has to ask again.
const KEEP: Duration = Duration::from_mins(1);

/// What the cloud said.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Seen(Arc<Instance>),
    NotVisible,
    Foreign,
    Failed { error: String, again: Again },
}

/// Collects questions and keeps answers. Cloning gives another handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookup {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    asked: Notify,
}

#[derive(Debug, Default)]
struct State {
    wanted: BTreeMap<ObjectName, Arc<Node>>,
    under_way: BTreeMap<ObjectName, Arc<Node>>,
    answers: BTreeMap<ObjectName, (Instant, Answer)>,
}

/// Starts the task that asks.
pub(crate) fn start(process: &mut Process, mirrors: &Mirrors, queue: &Queue<ObjectName>) -> Lookup {
    let lookup = Lookup::default();
    let (this, mirrors, queue) = (lookup.clone(), mirrors.clone(), queue.clone());
    let adapter = process.adapter.clone();
    process.background("instance look-up", async move {
        loop {
            this.collect().await;
            this.ask_all(&adapter, &mirrors, &queue).await;
        }
    });
    lookup
}

impl Lookup {
    /// Puts a node on the list of the next question.
    pub(crate) fn ask(&self, node: &Arc<Node>) {
        let name = ObjectName::cluster(node.name.clone());
        let mut state = self.state();
        if !state.under_way.contains_key(&name) {
            state.wanted.insert(name, Arc::clone(node));
        }
        drop(state);
        self.inner.asked.notify_one();
    }

    /// The answer for a node, if there is one. An instance stays known for a moment, anything else is said once.
    pub(crate) fn answer(&self, name: &ObjectName) -> Option<Answer> {
        let mut state = self.state();
        let (_, answer) = state.answers.get(name)?.clone();
        if !matches!(answer, Answer::Seen(_)) {
            state.answers.remove(name);
        }
        Some(answer)
    }

    /// Waits for a question, and then for more of them.
    async fn collect(&self) {
        while self.n_wanted() == 0 {
            self.inner.asked.notified().await;
        }
        let latest = Instant::now() + LONGEST;
        loop {
            let before = self.n_wanted();
            sleep(QUIET).await;
            let now = self.n_wanted();
            if now == before || now >= BATCH || Instant::now() >= latest {
                return;
            }
        }
    }

    /// Asks for at most one batch, and wakes those who asked.
    async fn ask_all(&self, adapter: &Adapter, mirrors: &Mirrors, queue: &Queue<ObjectName>) {
        let batch = self.begin(mirrors, queue);
        if batch.is_empty() {
            return;
        }
        let refs = batch.iter().map(|(_, node)| reference(node)).collect();
        let call = Call::with_priority(Priority::Interactive).no_older_than(STALENESS);
        let answers: Vec<Answer> = match adapter.batch_get_instances(call, refs).await {
            Ok(response) if response.results.len() == batch.len() => {
                response.results.into_iter().map(answer).collect()
            }
            Ok(_) => vec![failed(&AdapterError::new(Reason::Internal, "too few results")); batch.len()],
            Err(error) => vec![failed(&error); batch.len()],
        };
        let now = Instant::now();
        let mut state = self.state();
        state.under_way.clear();
        state.answers.retain(|_, (since, _)| now.duration_since(*since) < KEEP);
        for ((name, _), answer) in batch.iter().zip(answers) {
            state.answers.insert(name.clone(), (now, answer));
        }
        drop(state);
        for (name, _) in batch {
            queue.add(name);
        }
    }

    /// Takes the next batch off the list. Nodes that the mirror shows by now need no question.
    fn begin(&self, mirrors: &Mirrors, queue: &Queue<ObjectName>) -> Vec<(ObjectName, Arc<Node>)> {
        let mut state = self.state();
        for (name, node) in mem::take(&mut state.wanted) {
            match mirrors.sight(&node) {
                Found::Nothing if state.under_way.len() < BATCH => drop(state.under_way.insert(name, node)),
                Found::Nothing => drop(state.wanted.insert(name, node)),
                Found::One(_) | Found::Many(_) => queue.add(name),
            }
        }
        state.under_way.iter().map(|(name, node)| (name.clone(), Arc::clone(node))).collect()
    }

    fn n_wanted(&self) -> usize {
        self.state().wanted.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reference(node: &Node) -> InstanceRef {
    let by = match &node.provider_id {
        Some(id) => Ref::ProviderId(id.clone()),
        None => Ref::NodeName(node.name.clone()),
    };
    let addresses = node.addresses.iter().map(|address| address.address.clone()).collect();
    InstanceRef { r#ref: Some(by), system_uuid: String::new(), addresses }
}

fn answer(result: InstanceResult) -> Answer {
    let existence = result.existence();
    match (existence, result.instance, result.error) {
        (Existence::Exists, Some(instance), _) => Answer::Seen(Arc::new(trim_instance(instance))),
        (Existence::Foreign, ..) => Answer::Foreign,
        // A new node on a machine that is gone waits like any other: its end is another subject.
        (Existence::Gone | Existence::NotVisible, ..) => Answer::NotVisible,
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

fn failed(error: &AdapterError) -> Answer {
    Answer::Failed { error: error.to_string(), again: Again::after_error(error).sooner(Again::Backoff) }
}
