//! Keeps a mirror up to date by a watch on the API server.
//!
//! The code lists 100 objects per page, and then watches. The use of streaming lists is optional, because their feature gate was switched
//! on and off between Kubernetes versions. No code here depends on a periodic resync.

use std::{collections::BTreeMap, fmt::Debug, pin::pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _};
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tracing::info;

use super::{Change, Content, Mirror, ObjectName, put, replace};
use crate::{config::Listing, kube_api, outage::Outage};

/// Time without an object after which a listing is given up.
const LISTING_TIMEOUT: Duration = Duration::from_secs(60);
/// Seconds after which the API server ends a watch; the next watch resumes with one request. kube replaces a watch that stays silent for
/// another 5 s, so that a connection dropped without a reset is noticed after 35 s. kube's default is 290.
const WATCH_SECONDS: u32 = 30;
/// Seconds after which the API server ends a stream that begins with the listing. This limit is longer than that of a watch, because the
/// listing takes time.
const LONG_STREAM_SECONDS: u32 = 290;
/// Number of objects per page. A page is held in memory both as bytes and decoded. With kubectl's page size of 500, nodes of 13 kB each
/// would briefly take 20 MB.
const PAGE: u32 = 100;

fn watcher_config(listing: Listing, watch_seconds: u32) -> watcher::Config {
    let config = watcher::Config::default().timeout(watch_seconds);
    match listing {
        Listing::Pages => config.page_size(PAGE),
        Listing::Stream => config.streaming_lists(),
    }
}

impl<T: PartialEq + Send + Sync> Mirror<ObjectName, T> {
    /// Keeps this mirror up to date with the API server, and reconnects after failures. Never returns; drop the future to stop.
    ///
    /// `trim` reduces an object to the fields that the controller uses, or returns `None` to leave the object out. `wake` is called for
    /// each item whose trimmed form changed, after the mirror shows the change; it must not block. The cost is one listing (100 objects per
    /// page) at the start and after each broken connection. Otherwise, one watch is restarted every 30 s.
    pub async fn follow_kubernetes<K>(
        &self,
        api: Api<K>,
        listing: Listing,
        trim: impl Fn(K) -> Option<T>,
        mut wake: impl FnMut(Change<ObjectName, T>),
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut outage = Outage::new("API server", self.inner.clock, self.inner.link.clone());
        let mut watch_seconds = WATCH_SECONDS;
        loop {
            let config = watcher_config(listing, watch_seconds);
            let broken = self.follow_watch(watcher(api.clone(), config), &trim, &mut wake, &mut outage).await;
            watch_seconds = match broken {
                Broken::ListingCut => LONG_STREAM_SECONDS,
                Broken::Watch(_) => watch_seconds,
            };
            let pause = outage.failed(&broken.to_string());
            tokio::time::sleep(pause).await;
        }
    }

    /// Lists and watches until the watch breaks, and returns the cause.
    ///
    /// kube could resume the watch by itself, but would not report when the connection is restored.
    async fn follow_watch<K>(
        &self,
        events: impl Stream<Item = watcher::Result<Event<K>>>,
        trim: &impl Fn(K) -> Option<T>,
        wake: &mut impl FnMut(Change<ObjectName, T>),
        outage: &mut Outage,
    ) -> Broken
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut events = pin!(events);
        let mut listing = Collected::default();
        loop {
            let limit = if listing.done { Duration::MAX } else { LISTING_TIMEOUT };
            let event = match tokio::time::timeout(limit, events.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(error))) => return Broken::Watch(text(error)),
                Ok(None) => return Broken::Watch("the watch ended".to_owned()),
                Err(_elapsed) => return Broken::Watch("the listing makes no progress".to_owned()),
            };
            if matches!(event, Event::Init) && listing.begun && !listing.done {
                return Broken::ListingCut;
            }
            let changes = self.write(|content| listing.step(content, event, trim));
            if listing.done {
                outage.answered();
                self.mark_fresh();
                if !self.is_synced() {
                    info!(
                        mirror = self.what(),
                        objects = self.read(BTreeMap::len),
                        "The copy of the cluster's objects is complete"
                    );
                }
                self.mark_synced();
            }
            changes.into_iter().for_each(&mut *wake);
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Broken {
    /// The API server ended the stream before all objects had arrived.
    #[error("the listing takes longer than the time for which the API server keeps the stream open")]
    ListingCut,
    #[error("{0}")]
    Watch(String),
}

/// Collects a listing, which replaces the content when it is complete.
#[derive(Debug)]
struct Collected<T> {
    items: Content<ObjectName, T>,
    begun: bool,
    done: bool,
}

impl<T> Default for Collected<T> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), begun: false, done: false }
    }
}

impl<T: PartialEq> Collected<T> {
    fn step<K: Resource>(
        &mut self,
        content: &mut Content<ObjectName, T>,
        event: Event<K>,
        trim: &impl Fn(K) -> Option<T>,
    ) -> Vec<Change<ObjectName, T>> {
        match event {
            Event::Init => {
                *self = Self { begun: true, ..Self::default() };
                Vec::new()
            }
            Event::InitApply(object) => {
                let name = name(&object);
                if let Some(item) = trim(object) {
                    self.items.insert(name, Arc::new(item));
                }
                Vec::new()
            }
            Event::InitDone => {
                self.done = true;
                replace(content, std::mem::take(&mut self.items))
            }
            Event::Apply(object) => put(content, name(&object), trim(object)).into_iter().collect(),
            Event::Delete(object) => put(content, name(&object), None).into_iter().collect(),
        }
    }
}

fn name(object: &impl Resource) -> ObjectName {
    ObjectName { namespace: object.meta().namespace.clone(), name: object.name_any() }
}

pub(super) fn text(error: watcher::Error) -> String {
    let step = |step: &str, source: kube::Error| refused_or_failed(step, &kube_api::Error::from(source));
    match error {
        watcher::Error::InitialListFailed(source) => step("cannot list", source),
        watcher::Error::WatchStartFailed(source) => step("cannot watch", source),
        watcher::Error::WatchFailed(source) => step("the watch broke", source),
        watcher::Error::WatchError(status) => {
            refused_or_failed("the watch ended", &kube_api::Error::Refused(status))
        }
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// The API server's message about a refusal names the ServiceAccount, the verb and the resource.
fn refused_or_failed(step: &str, error: &kube_api::Error) -> String {
    match error.status() {
        Some(403) => format!("the API server refuses it: {error}; see `cloudctl check`"),
        Some(_) | None => format!("{step}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;
    use crate::{
        Clock,
        kube_api::Requests,
        leadership::{Shards, Term},
        testing::{BEGIN, FakeKube, Fault, Verb, eventually},
    };

    fn node(name: &str, rest: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.metadata.annotations = Some([("v".to_owned(), rest.to_owned())].into());
        node
    }

    /// Returns the annotation `v` of the node, or `None` for nodes with the name `other`.
    fn trim(node: Node) -> Option<String> {
        let value = node.metadata.annotations?.remove("v");
        value.filter(|_| node.metadata.name.as_deref() != Some("other"))
    }

    /// Applies the events and writes `key old>new` for each change.
    fn run(content: &mut Content<ObjectName, String>, events: Vec<Event<Node>>) -> Vec<String> {
        let mut listing = Collected::default();
        let text = |item: Option<Arc<String>>| item.map_or_else(String::new, |item| item.to_string());
        let changes = events.into_iter().flat_map(|event| listing.step(content, event, &trim));
        changes.map(|change| format!("{} {}>{}", change.key, text(change.old), text(change.new))).collect()
    }

    #[test]
    fn a_listing_takes_effect_only_when_it_is_complete() {
        let mut content = Content::new();
        assert!(run(&mut content, vec![Event::Init, Event::InitApply(node("a", "1"))]).is_empty());
        assert!(content.is_empty());
        let listing = vec![Event::Init, Event::InitApply(node("b", "1")), Event::InitDone];
        assert_eq!(run(&mut content, listing), ["b >1"]);
    }

    #[test]
    fn a_second_listing_reports_only_differences() {
        let list = |nodes: Vec<Node>| {
            let items = nodes.into_iter().map(Event::InitApply);
            [Event::Init].into_iter().chain(items).chain([Event::InitDone]).collect()
        };
        let mut content = Content::new();
        run(&mut content, list(vec![node("a", "1"), node("b", "1"), node("c", "1")]));
        let changes = run(&mut content, list(vec![node("a", "1"), node("b", "2"), node("d", "1")]));
        assert_eq!(changes, ["b 1>2", "d >1", "c 1>"]);
    }

    #[test]
    fn a_watched_deletion_is_not_a_gap_in_a_listing() {
        let reported = |content: &mut Content<ObjectName, String>, events: Vec<Event<Node>>| -> Vec<bool> {
            let mut listing = Collected::default();
            let changes = events.into_iter().flat_map(|event| listing.step(content, event, &trim));
            changes.filter(|change| change.new.is_none()).map(|change| change.reported).collect()
        };
        let mut content = Content::new();
        let all = vec![Event::Init, Event::InitApply(node("a", "1")), Event::InitApply(node("b", "1"))];
        assert_eq!(reported(&mut content, [all, vec![Event::InitDone]].concat()), [false; 0]);
        assert_eq!(reported(&mut content, vec![Event::Delete(node("a", "1"))]), [true]);
        assert_eq!(reported(&mut content, vec![Event::Init, Event::InitDone]), [false]);
    }

    // Behaviour: P28
    #[tokio::test(start_paused = true)]
    async fn a_listing_waits_for_the_end_of_a_pause() {
        let (kube, clock) = (FakeKube::new(), Clock::starting_at(BEGIN));
        kube.put::<Node>(node("a", "1"));
        kube.order(Fault::throttled(Duration::from_mins(1)).on(Verb::List, "nodes"));
        let requests = Requests::new(Shards::new("c", vec![Term::of_one_process(&clock, "u")]), None);
        let mirror = Mirror::new("nodes", clock);
        let follow = mirror.follow_kubernetes(
            Api::all(kube.client_through(&requests)),
            Listing::Pages,
            trim,
            |_change| (),
        );
        let scenario = async {
            tokio::time::sleep(Duration::from_mins(20)).await;
            let lists = kube.requests(Verb::List, "nodes");
            assert!((15..=21).contains(&lists), "{lists} listings in 20 min, more than needed");
            kube.heal();
            eventually("the node is listed", || mirror.is_synced()).await;
        };
        tokio::select! {
            () = follow => (),
            () = scenario => (),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_watch_is_replaced() {
        let (kube, clock) = (FakeKube::new(), Clock::starting_at(BEGIN));
        kube.put::<Node>(node("a", "1"));
        let mirror = Mirror::new("nodes", clock);
        let nodes = Api::all(kube.client());
        let follow = mirror.follow_kubernetes(nodes, Listing::Pages, trim, |_change| ());
        let scenario = async {
            eventually("the change is watched", || kube.requests(Verb::Watch, "nodes") == 1).await;
            kube.silence_watches();
            kube.put::<Node>(node("b", "1"));
            let seen = eventually("the change is seen", || mirror.get(&ObjectName::cluster("b")).is_some());
            tokio::time::timeout(Duration::from_secs(45), seen).await.expect("within 45 s");
            assert_eq!(kube.requests(Verb::List, "nodes"), 1, "the watch resumes where it ended");
        };
        tokio::select! {
            () = follow => (),
            () = scenario => (),
        }
    }

    #[test]
    fn changes_hidden_by_trimming_are_not_reported() {
        let mut content = Content::new();
        assert_eq!(run(&mut content, vec![Event::Apply(node("a", "1"))]), ["a >1"]);
        let mut heartbeat = node("a", "1");
        heartbeat.metadata.resource_version = Some("77".to_owned());
        let events = vec![Event::Apply(heartbeat), Event::Apply(node("other", "1"))];
        assert!(run(&mut content, events).is_empty());
        assert_eq!(run(&mut content, vec![Event::Delete(node("a", "1"))]), ["a 1>"]);
    }
}
