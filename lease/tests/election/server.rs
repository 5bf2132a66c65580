//! The fake API server that the controllers' tests also use, with Leases as the chart creates them. Each replica can have its own simulated
//! network to this server.

use std::time::Duration;

use controller_core::{
    mirror::ObjectName,
    testing::{FakeKube, Fault, Verb},
};
use futures::{StreamExt as _, stream};
use http::Request;
use http_body_util::{BodyStream, StreamBody};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::BoxError;

const NAME: &str = "cloud-adapter";

/// Clones are handles to the same server.
#[derive(Clone)]
pub(crate) struct FakeServer {
    kube: FakeKube,
    born: Instant,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Behaviour {
    Well,
    /// Connections are refused.
    Away,
    /// No request gets an answer.
    Silent,
    /// Writes are executed but get no answer.
    Forgetful,
    /// All requests are executed, and answered after two seconds.
    Slow,
}

/// The time that a request takes to arrive, and the time that its answer takes. `None` means that the request or the answer never arrives.
pub(crate) struct Way {
    pub(crate) there: Option<Duration>,
    pub(crate) back: Option<Duration>,
    /// Whether the network is cut. While it is cut, watches send nothing.
    pub(crate) cut: watch::Receiver<bool>,
}

impl FakeServer {
    /// Creates a server with a Lease that is not held, as the chart creates it.
    pub(crate) fn with_lease() -> Self {
        Self::with_shards(1)
    }

    pub(crate) fn with_shards(shards: u16) -> Self {
        let server = Self::empty();
        (0..shards).for_each(|shard| server.put_of(shard, Some(json!({}))));
        server
    }

    /// Creates a server without a Lease, where clients may not create a Lease.
    pub(crate) fn empty() -> Self {
        let server = Self { kube: FakeKube::new(), born: Instant::now() };
        server.kube.order(Fault::status(403).on(Verb::Create, "leases"));
        server
    }

    /// Must be called in a tokio runtime.
    pub(crate) fn client(&self) -> Client {
        self.kube.client()
    }

    pub(crate) fn client_over(&self, way: impl Fn() -> Way + Send + 'static) -> Client {
        let api = self.kube.client();
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let names_one = query.contains("fieldSelector=metadata.name%3Dcloud-adapter");
            assert!(names_one || !query.contains("watch=true"), "RBAC permits a watch of one Lease: {query}");
            let (api, way) = (api.clone(), way());
            // A request that was sent arrives even if its caller no longer waits for the answer.
            let mut task = JoinSet::new();
            let (answer, answered) = oneshot::channel();
            task.spawn(async move {
                let Some(there) = way.there else { return std::future::pending().await };
                sleep(there).await;
                let served = api.send(request).await;
                let served = served.map(|response| response.map(|body| interrupted(body, way.cut)));
                let Some(back) = way.back else { return std::future::pending().await };
                sleep(back).await;
                drop(answer.send(served));
            });
            task.detach_all();
            async move { Ok::<_, BoxError>(answered.await??) }
        });
        Client::new(service, "default")
    }

    pub(crate) fn wall(&self) -> Timestamp {
        let second = crate::BEGIN + self.born.elapsed().as_secs();
        Timestamp::from_second(second.try_into().expect("in range")).expect("in range")
    }

    pub(crate) fn mood(&self, mood: Behaviour) {
        self.kube.away(mood == Behaviour::Away);
        self.kube.heal();
        match mood {
            Behaviour::Well | Behaviour::Away => (),
            Behaviour::Silent => {
                self.kube.silence_watches();
                self.kube.order(Fault::hang());
            }
            Behaviour::Forgetful => self.kube.order(Fault::slow(Duration::from_hours(1)).on_writes()),
            Behaviour::Slow => self.kube.order(Fault::slow(Duration::from_secs(2))),
        }
    }

    pub(crate) fn allow_create(&self) {
        self.kube.heal();
    }

    pub(crate) fn forbid_watch(&self) {
        self.kube.order(Fault::status(403).on(Verb::Watch, "leases"));
    }

    pub(crate) fn requests(&self) -> u32 {
        let verbs = [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Patch, Verb::Delete];
        verbs.into_iter().map(|verb| self.kube.requests(verb, "leases")).sum()
    }

    /// Returns the number of writes so far, including refused writes. Panics if a write does not name the version that it changes.
    pub(crate) fn writes(&self) -> usize {
        let writes = self.kube.writes();
        let mut patches = writes.iter().filter(|write| write.method == "PATCH");
        assert!(patches.all(|patch| patch.body["metadata"]["resourceVersion"].is_string()), "{writes:?}");
        writes.len()
    }

    pub(crate) fn lease(&self) -> Value {
        self.lease_of(0)
    }

    pub(crate) fn lease_of(&self, shard: u16) -> Value {
        self.kube.get::<Lease>(&name_of(shard)).map(|lease| json!(lease)).unwrap_or_default()
    }

    pub(crate) fn put(&self, lease: Option<Value>) {
        self.put_of(0, lease);
    }

    /// Replaces the Lease of a shard, or deletes it if `lease` is `None`.
    pub(crate) fn put_of(&self, shard: u16, lease: Option<Value>) {
        let name = name_of(shard);
        let Some(lease) = lease else { return self.kube.delete::<Lease>(&name) };
        let mut lease: Lease = serde_json::from_value(lease).expect("a Lease");
        (lease.metadata.namespace, lease.metadata.name) = (name.namespace, Some(name.name));
        self.kube.put::<Lease>(lease);
    }
}

/// A body that does not continue while the network is cut.
fn interrupted(
    body: Body,
    cut: watch::Receiver<bool>,
) -> StreamBody<impl futures::Stream<Item = <BodyStream<Body> as futures::Stream>::Item>> {
    let frames = stream::unfold((BodyStream::new(body), cut), |(mut body, mut cut)| async move {
        let frame = body.next().await?;
        drop(cut.wait_for(|cut| !*cut).await.ok()?);
        Some((frame, (body, cut)))
    });
    StreamBody::new(frames)
}

fn name_of(shard: u16) -> ObjectName {
    let name = if shard == 0 { NAME.to_owned() } else { format!("{NAME}-{shard}") };
    ObjectName::namespaced("kube-system", &name)
}
