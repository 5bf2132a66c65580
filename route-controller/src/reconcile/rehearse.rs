//! Dry run: asks the adapter what it would do for the plan of the last pass. Nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cloud_api_proto::v1alpha1::{ApplyRoutesRequest, Priority};
use controller_core::adapter::Call;
use controller_core::explain::rehearse::{BoxStream, StreamExt as _, steps, stream};
use controller_core::explain::report::VendorStep;
use controller_core::explain::{Object, Rehearsal, Rehearse, Waits};

use super::Reconciler;
use crate::error::attempts::Outcome;
use crate::error::guard::Held;
use crate::error::judge_item;
use crate::execute::Executor;
use crate::execute::batch::{Batch, batches};
use crate::explain::{not_tried, would_fail, would_say};
use crate::mirror::Mirrors;
use crate::plan::claims::RouteState;
use crate::plan::condition::{changes, judged};
use crate::plan::{Creation, Plan, Removal};

/// What the last pass planned, for the shards of this replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) plan: Plan,
    pub(crate) held: Vec<Held>,
}

impl Wanted {
    /// Returns all removals that do not precede a new route, including the held removals.
    fn removals(&self) -> impl Iterator<Item = &Removal> {
        self.plan.removals.iter().chain(self.held.iter().flat_map(|held| &held.removals))
    }

    /// Returns why a route is not removed.
    fn holds(&self, object: &Object) -> Option<String> {
        let held = |held: &&Held| held.removals.iter().any(|removal| named(removal) == *object);
        self.held.iter().find(held).map(ToString::to_string)
    }

    fn about(&self, objects: &[Object]) -> (Vec<&Creation>, Vec<&Removal>) {
        let uids: BTreeSet<&str> = objects.iter().map(|object| object.uid.as_str()).collect();
        let creations = self.plan.creations.iter().filter(|creation| uids.contains(creation.shard_key()));
        let removals = self.plan.removals.iter().filter(|removal| uids.contains(&*removal.shard_key()));
        (creations.collect(), removals.collect())
    }
}

/// Returns the object that represents a route whose node is gone.
fn named(removal: &Removal) -> Object {
    Object::node(&removal.to.to_string(), &removal.shard_key())
}

impl Rehearse for Reconciler {
    fn others(&self) -> Vec<Object> {
        let nodes = uids(&self.mirrors);
        let wanted = self.wanted();
        let gone = wanted.removals().filter(|removal| !nodes.contains(&*removal.shard_key()));
        gone.map(named).collect()
    }

    fn rehearse(self: Arc<Self>, objects: Vec<Object>) -> BoxStream<'static, (Object, Rehearsal)> {
        let found = async move {
            let wanted = self.wanted();
            stream::iter(self.executor.rehearsed(&self.mirrors, &wanted, objects).await)
        };
        stream::once(found).flatten().boxed()
    }
}

fn uids(mirrors: &Mirrors) -> BTreeSet<String> {
    mirrors.nodes.read(|nodes| nodes.values().map(|node| node.uid.clone()).collect())
}

#[derive(Debug, Default)]
struct Answers {
    vendor: BTreeMap<Object, Vec<VendorStep>>,
    trouble: BTreeMap<Object, Waits>,
}

impl Executor {
    async fn rehearsed(
        &self,
        mirrors: &Mirrors,
        wanted: &Wanted,
        objects: Vec<Object>,
    ) -> Vec<(Object, Rehearsal)> {
        let mut answers = self.ask_all(wanted, &objects).await;
        let nodes = mirrors.nodes();
        let failed = |creation: &Creation| answers.trouble.contains_key(&of_creation(creation));
        let state =
            |creation: &Creation| if failed(creation) { RouteState::Failed } else { RouteState::Ready };
        let judged = judged(&nodes, &wanted.plan, state);
        let mut said: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for change in changes(nodes.iter().map(Arc::as_ref), &judged) {
            said.entry(change.node_uid.clone()).or_default().push(would_say(&change));
        }
        let rehearsal = |object: Object| {
            let vendor = answers.vendor.remove(&object).unwrap_or_default();
            let held = wanted.holds(&object).map(not_tried);
            let trouble = answers.trouble.remove(&object).or(held);
            let cluster = said.remove(&object.uid).unwrap_or_default();
            (object, Rehearsal { cluster, vendor, trouble })
        };
        objects.into_iter().map(rehearsal).collect()
    }

    /// Makes the same batches of calls as an execution. A vendor step that several routes share is shown for the first of them.
    async fn ask_all(&self, wanted: &Wanted, objects: &[Object]) -> Answers {
        let (mut answers, (creations, removals)) = (Answers::default(), wanted.about(objects));
        for shard in 0..self.shards.count() {
            let here = |place: &str| self.shards.of(place) == shard;
            let creations: Vec<&Creation> =
                creations.iter().copied().filter(|creation| here(creation.shard_key())).collect();
            let removals: Vec<&Removal> =
                removals.iter().copied().filter(|removal| here(&removal.shard_key())).collect();
            let (free, blocked): (Vec<&Creation>, Vec<&Creation>) =
                creations.into_iter().partition(|creation| creation.instead_of.is_empty());
            for creation in blocked {
                let obstacles: Vec<&Removal> = creation.instead_of.iter().collect();
                self.ask(&batches(&[], &obstacles), |_removal| of_creation(creation), &mut answers).await;
                let text =
                    format!("Route to {} is created once conflicting routes are removed", creation.claim.to);
                answers.trouble.entry(of_creation(creation)).or_insert_with(|| not_tried(text));
            }
            let of = |removal: &Removal| of_removal(removal, objects);
            self.ask(&batches(&free, &removals), of, &mut answers).await;
        }
        answers
    }

    async fn ask(&self, batches: &[Batch<'_>], of: impl Fn(&Removal) -> Object, answers: &mut Answers) {
        for batch in batches {
            let request = ApplyRoutesRequest { dry_run: true, ..self.request(batch) };
            let call = Call::with_priority(Priority::Background);
            let creations = batch
                .creations
                .iter()
                .map(|creation| (of_creation(creation), Some(*creation), creation.claim.to));
            let items = creations.chain(batch.removals.iter().map(|it| (of(it), None, it.to)));
            let items: Vec<_> = items.collect();
            match self.adapter.apply_routes(call, request).await {
                Ok(answer) => {
                    for (at, (object, creation, _)) in items.iter().enumerate() {
                        let (Outcome::Failed { reason, why, .. } | Outcome::Refused { reason, why }) =
                            judge_item(answer.results.get(at))
                        else {
                            continue;
                        };
                        answers.trouble.insert(object.clone(), would_fail(*creation, &why, reason));
                    }
                    for step in steps(answer.plan) {
                        let named = |to: &str| step.description.split(' ').any(|word| word == to);
                        let own = items.iter().find(|(.., to)| named(&to.to_string()));
                        let fine = || items.iter().find(|(object, ..)| !answers.trouble.contains_key(object));
                        let Some((object, ..)) = own.or_else(fine).or(items.first()) else { continue };
                        answers.vendor.entry(object.clone()).or_default().push(step);
                    }
                }
                Err(error) => {
                    for (object, creation, _) in &items {
                        let waits = would_fail(*creation, &error.to_string(), error.reason);
                        answers.trouble.insert(object.clone(), waits);
                    }
                }
            }
        }
    }
}

fn of_creation(creation: &Creation) -> Object {
    Object::node(&creation.node_name, creation.shard_key())
}

/// Returns the requested node that the removal belongs to, or the object that represents the route.
fn of_removal(removal: &Removal, objects: &[Object]) -> Object {
    let itself = named(removal);
    let node = || objects.iter().find(|object| object.uid == itself.uid).cloned();
    if objects.contains(&itself) { itself } else { node().unwrap_or(itself) }
}
