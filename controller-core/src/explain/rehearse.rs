//! Makes dry runs for the objects that are not in sync, and shows what the controller would do now: `/plan`.
//!
//! Only one page is built at a time, and a result is reused for some seconds, so that no client can cause a flood of calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cloud_api_proto::v1alpha1::PlannedStep;
pub use futures::stream::{self, BoxStream, StreamExt};
use telemetry::report::{Plans, Priced, VendorStep};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

use super::{Explain, Identity, Object, Unexplained, Waits, many};

/// Maximum number of objects on one page.
const OBJECTS: usize = 100;
/// How long a result for an object is reused.
const GOOD: Duration = Duration::from_secs(5);
/// Time limit for building a page, so that the client's wait is bounded.
const LIMIT: Duration = Duration::from_secs(4);

/// The kind of objects that exist in the cloud only.
const ROUTE: &str = "Route";

/// Computes what a controller would do, without changing anything.
pub trait Rehearse: Send + Sync + 'static {
    /// Returns objects that are not in sync and have no Node or Service any more, such as routes of deleted nodes. The UID of each object
    /// selects its shard.
    fn others(&self) -> Vec<Object> {
        Vec::new()
    }

    /// Returns what the controller would do now about each of these objects. Each result is sent as soon as it is known.
    fn rehearse(self: Arc<Self>, objects: Vec<Object>) -> BoxStream<'static, (Object, Rehearsal)>;
}

/// What the controller would do about an object. Empty: the object is in sync, or is being processed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rehearsal {
    /// What the controller would write to the API server, one human-readable line each.
    pub cluster: Vec<String>,
    /// What the adapter would change in the cloud, one entry per vendor call.
    pub vendor: Vec<VendorStep>,
    /// Why the plan is not known, or what prevents its execution. `None`: the ledger contains the cause.
    pub trouble: Option<Waits>,
}

impl Rehearsal {
    /// Returns the result for an object whose plan is not known for this reason.
    #[must_use]
    pub fn trouble(trouble: Waits) -> Self {
        Self { trouble: Some(trouble), ..Self::default() }
    }
}

/// Converts the steps planned by an adapter.
#[must_use]
pub fn steps(plan: Vec<PlannedStep>) -> Vec<VendorStep> {
    let step = |PlannedStep { description, operation, family }| VendorStep { description, operation, family };
    plan.into_iter().map(step).collect()
}

/// Recent results by object, each with the time of its arrival, or of the request if the result is pending.
#[derive(Debug, Default)]
pub(super) struct RecentRehearsals(Mutex<BTreeMap<Object, (Instant, Rehearsal)>>);

/// An object on the page: its key, the object, and its kind.
type Listed = (String, Object, &'static str);

impl Explain {
    /// Returns the page of plans that begins after this key.
    ///
    /// Errors: The controller is not running yet.
    pub async fn plan(&self, after: &str) -> Result<Plans, Unexplained> {
        let (Identity { controller, dry_run, runtime, .. }, sources) = (self.identity()?, self.sources()?);
        let (looked_at, of) = self.count_seen()?;
        let listed = self.listed()?;
        let mut rest = listed.into_iter().filter(|(key, ..)| key.as_str() > after);
        let page: Vec<Listed> = rest.by_ref().take(OBJECTS).collect();
        let next = rest.next().and_then(|_more| page.last().map(|(key, ..)| key.clone()));
        let objects: Vec<Object> = page.iter().map(|(_, object, _)| object.clone()).collect();
        // The connections to the adapter belong to the controller's runtime; the pages are served on another runtime.
        let this = self.clone();
        let rehearsed = async move { this.rehearsed(&objects).await };
        let found = AbortOnDropHandle::new(runtime.spawn(rehearsed)).await;
        let mut found = found.map_err(|_panicked| Unexplained::Unknown)??;
        let priced = |(key, object, kind): Listed| {
            let Rehearsal { cluster, vendor, trouble } = found.remove(&object).unwrap_or_default();
            let trouble = trouble.or_else(|| sources.ledgers.iter().find_map(|it| it.problem(&object)));
            let reason = trouble.as_ref().and_then(|it| it.reason).map(str::to_owned);
            let trouble = trouble.map(|it| it.text);
            // The page also shows a route that shares its vendor call with another route.
            let tells = kind == ROUTE || !cluster.is_empty() || !vendor.is_empty() || trouble.is_some();
            tells.then(|| Priced { kind: kind.to_owned(), key, cluster, vendor, trouble, reason })
        };
        Ok(Plans {
            controller: (*controller).to_owned(),
            dry_run: *dry_run,
            looked_at,
            of,
            objects: page.into_iter().filter_map(priced).collect(),
            next,
        })
    }

    /// Returns all objects that are not in sync, in the order of their keys.
    fn listed(&self) -> Result<BTreeSet<Listed>, Unexplained> {
        let (Identity { shards, .. }, sources) = (self.identity()?, self.sources()?);
        let kind = sources.kind.word();
        let own = self.unsettled()?.into_iter().map(|(_, object)| (object.name.to_string(), object, kind));
        let others = sources.rehearse.iter().flat_map(|it| it.others());
        let others = others.filter(|it| shards.has(&it.uid)).map(|it| (it.name.to_string(), it, ROUTE));
        Ok(own.chain(others).collect())
    }

    /// Returns how many objects in the shards of this replica were reconciled, and how many exist. While a listing is incomplete, the
    /// second number is one higher, so that the two numbers differ.
    fn count_seen(&self) -> Result<(u64, u64), Unexplained> {
        let (Identity { shards, .. }, sources) = (self.identity()?, self.sources()?);
        let mut all = sources.objects.all();
        all.retain(|object| shards.has(&object.uid));
        let of = all.len() + usize::from(!sources.objects.listed());
        all.retain(|object| sources.ledgers.iter().any(|ledger| ledger.has_seen(object)));
        Ok((many(all.len()), many(of)))
    }

    async fn rehearsed(&self, objects: &[Object]) -> Result<BTreeMap<Object, Rehearsal>, Unexplained> {
        let Some(rehearse) = &self.sources()?.rehearse else { return Ok(BTreeMap::new()) };
        let mut lately = self.0.lately.0.lock().await;
        let began = Instant::now();
        lately.retain(|_, (at, _)| began.duration_since(*at) < GOOD);
        let asked: Vec<Object> = objects.iter().filter(|it| !lately.contains_key(it)).cloned().collect();
        // The placeholder results are recorded before the first call, so that a client that disconnects and retries does not cause the same
        // calls again.
        lately.extend(asked.iter().map(|object| (object.clone(), (began, late()))));
        if !asked.is_empty() {
            let mut answers = Arc::clone(rehearse).rehearse(asked);
            while let Ok(Some((object, found))) = timeout_at(began + LIMIT, answers.next()).await {
                lately.insert(object, (Instant::now(), found));
            }
        }
        let found = objects.iter().filter_map(|it| Some((it.clone(), lately.get(it)?.1.clone())));
        Ok(found.collect())
    }
}

fn late() -> Rehearsal {
    let text = format!("No answer from the cloud adapter within {} s. Try again", LIMIT.as_secs());
    Rehearsal::trouble(Waits { topic: text.clone(), text, reason: None, reported: false })
}

#[cfg(test)]
mod tests;
