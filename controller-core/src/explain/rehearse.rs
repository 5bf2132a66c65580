//! What would be done now about the objects that are not as wanted, tried out without changing anything: `/plan`.
//!
//! One page is made at a time, and an object that was asked about is not asked about again for some seconds: nobody who reaches the
//! port can make a storm of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ::pages::report::{Plans, Priced, VendorStep};
use cloud_api_proto::v1alpha1::PlannedStep;
pub use futures::stream::{self, BoxStream, StreamExt};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;

use super::{Explain, Identity, Object, Unexplained, Waits, many};

/// Objects on one page.
const OBJECTS: usize = 100;
/// So long what was found about an object is good.
const GOOD: Duration = Duration::from_secs(5);
/// For so long a page is made: whoever reads it does not wait much longer.
const LIMIT: Duration = Duration::from_secs(4);

/// Of which kind is what has no object any more.
const ROUTE: &str = "Route";

/// Tries out what a controller would do, and changes nothing.
pub trait Rehearse: Send + Sync + 'static {
    /// What is not as wanted and is neither a Node nor a Service any more, by shard as its UID says: routes of nodes that are gone.
    fn others(&self) -> Vec<Object> {
        Vec::new()
    }

    /// What would be done now about each of these, as soon as it is known.
    fn rehearse(self: Arc<Self>, objects: Vec<Object>) -> BoxStream<'static, (Object, Rehearsal)>;
}

/// What would be done about one object. Nothing at all: it is as wanted, or under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rehearsal {
    /// What would be written to the API server. A line each, for people.
    pub cluster: Vec<String>,
    /// What would be changed at the vendor, a call each.
    pub vendor: Vec<VendorStep>,
    /// Why it cannot be said, or what is in the way. `None`: what the ledger says.
    pub trouble: Option<Waits>,
}

impl Rehearsal {
    /// Nothing can be said, for this reason.
    #[must_use]
    pub fn trouble(trouble: Waits) -> Self {
        Self { trouble: Some(trouble), ..Self::default() }
    }
}

/// What an adapter says that it would do.
#[must_use]
pub fn steps(plan: Vec<PlannedStep>) -> Vec<VendorStep> {
    let step = |PlannedStep { description, operation, family }| VendorStep { description, operation, family };
    plan.into_iter().map(step).collect()
}

/// What was found about objects lately, and since when it is known or being asked.
#[derive(Debug, Default)]
pub(super) struct Lately(Mutex<BTreeMap<Object, (Instant, Rehearsal)>>);

/// An object on the page: its key, and of which kind it is.
type Listed = (String, Object, &'static str);

impl Explain {
    /// The page of plans after this key.
    ///
    /// # Errors
    /// The controller does not run yet.
    pub async fn plan(&self, after: &str) -> Result<Plans, Unexplained> {
        let (Identity { controller, dry_run, runtime, .. }, sources) = (self.identity()?, self.sources()?);
        let (looked_at, of) = self.looked_at()?;
        let listed = self.listed()?;
        let mut rest = listed.into_iter().filter(|(key, ..)| key.as_str() > after);
        let page: Vec<Listed> = rest.by_ref().take(OBJECTS).collect();
        let next = rest.next().and_then(|_more| page.last().map(|(key, ..)| key.clone()));
        let objects: Vec<Object> = page.iter().map(|(_, object, _)| object.clone()).collect();
        // The connections to the adapter live with the controller, and the pages apart from it.
        let this = self.clone();
        let rehearsed = async move { this.rehearsed(&objects).await };
        let found = AbortOnDropHandle::new(runtime.spawn(rehearsed)).await;
        let mut found = found.map_err(|_panicked| Unexplained::Unknown)??;
        let priced = |(key, object, kind): Listed| {
            let Rehearsal { cluster, vendor, trouble } = found.remove(&object).unwrap_or_default();
            let trouble = trouble.or_else(|| sources.ledgers.iter().find_map(|it| it.trouble(&object)));
            let reason = trouble.as_ref().and_then(|it| it.reason).map(str::to_owned);
            let trouble = trouble.map(|it| it.text);
            // What shares its call with another is told all the same.
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

    /// All that are not as wanted, in the order of their keys.
    fn listed(&self) -> Result<BTreeSet<Listed>, Unexplained> {
        let (Identity { shards, .. }, sources) = (self.identity()?, self.sources()?);
        let kind = sources.kind.word();
        let own = self.unsettled()?.into_iter().map(|(_, object)| (object.name.to_string(), object, kind));
        let others = sources.rehearse.iter().flat_map(|it| it.others());
        let others = others.filter(|it| shards.has(&it.uid)).map(|it| (it.name.to_string(), it, ROUTE));
        Ok(own.chain(others).collect())
    }

    /// How many objects of our shards were looked at, of how many. What is not listed yet counts as one that was not.
    fn looked_at(&self) -> Result<(u64, u64), Unexplained> {
        let (Identity { shards, .. }, sources) = (self.identity()?, self.sources()?);
        let mut all = sources.look.all();
        all.retain(|object| shards.has(&object.uid));
        let of = all.len() + usize::from(!sources.look.listed());
        all.retain(|object| sources.ledgers.iter().any(|ledger| ledger.has_seen(object)));
        Ok((many(all.len()), many(of)))
    }

    async fn rehearsed(&self, objects: &[Object]) -> Result<BTreeMap<Object, Rehearsal>, Unexplained> {
        let Some(rehearse) = &self.sources()?.rehearse else { return Ok(BTreeMap::new()) };
        let mut lately = self.0.lately.0.lock().await;
        let began = Instant::now();
        lately.retain(|_, (at, _)| began.duration_since(*at) < GOOD);
        let asked: Vec<Object> = objects.iter().filter(|it| !lately.contains_key(it)).cloned().collect();
        // Before the first call: who hangs up and asks anew changes nothing about it.
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

/// It was asked about, and there is no answer.
fn late() -> Rehearsal {
    let text = format!("No answer of the cloud adapter within {} s: ask again", LIMIT.as_secs());
    Rehearsal::trouble(Waits { topic: text.clone(), text, reason: None, told: false })
}

#[cfg(test)]
mod tests;
