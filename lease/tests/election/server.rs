//! A fake API server under [`kube::Client`] that has Leases: get, watch, create, and merge patch with a version.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
    time::Instant,
};

type HttpResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

const NAME: &str = "cloud-adapter";
const COLLECTION: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// Clones are handles of the same server.
#[derive(Clone)]
pub(crate) struct FakeServer(Arc<(Mutex<State>, watch::Sender<()>)>);

struct State {
    /// Creation time of the server.
    born: Instant,
    leases: BTreeMap<String, Value>,
    /// The version at which a Lease was deleted.
    gone: BTreeMap<String, u64>,
    version: u64,
    mood: Mood,
    may_create: bool,
    may_watch: bool,
    requests: u64,
    writes: u64,
}

/// How the server answers.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Mood {
    #[default]
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

/// How long a request takes, and how long its answer takes. `None`: never arrives.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) there: Option<Duration>,
    pub(crate) back: Option<Duration>,
    /// While this holds, watches send nothing.
    pub(crate) cut: watch::Receiver<bool>,
}

impl FakeServer {
    /// A server with a Lease that is not held, as the chart creates it.
    pub(crate) fn with_lease() -> Self {
        let server = Self::empty();
        server.put(Some(json!({ "metadata": { "name": "cloud-adapter" } })));
        server
    }

    /// A server with Leases of these shards, as the chart creates them.
    pub(crate) fn with_shards(shards: u16) -> Self {
        let server = Self::with_lease();
        for at in 1..shards {
            let name = format!("{NAME}-{at}");
            server.state().store(&name, Some(json!({ "metadata": { "name": name } })));
        }
        server
    }

    /// A server without a Lease, where creating one is forbidden.
    pub(crate) fn empty() -> Self {
        let state = State {
            born: Instant::now(),
            leases: BTreeMap::new(),
            gone: BTreeMap::new(),
            version: 0,
            mood: Mood::Well,
            may_create: false,
            may_watch: true,
            requests: 0,
            writes: 0,
        };
        Self(Arc::new((Mutex::new(state), watch::Sender::new(()))))
    }

    /// A client of this server. Must be called in a tokio runtime.
    pub(crate) fn client(&self) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| -> BoxFuture<'static, _> {
            let this = this.clone();
            Box::pin(async move { this.serve(request, None).await })
        });
        Client::new(service, "default")
    }

    /// A client whose requests run independently.
    pub(crate) fn client_over(&self, way: impl Fn() -> Way + Clone + Send + Sync + 'static) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| -> BoxFuture<'static, _> {
            let (this, way) = (this.clone(), way());
            // A request in flight arrives, whether or not its caller still waits.
            let mut task = JoinSet::new();
            let (answer, answered) = oneshot::channel();
            task.spawn(async move {
                let Some(there) = way.there else { return std::future::pending().await };
                tokio::time::sleep(there).await;
                let served = this.serve(request, Some(way.cut)).await;
                let Some(back) = way.back else { return std::future::pending().await };
                tokio::time::sleep(back).await;
                drop(answer.send(served));
            });
            task.detach_all();
            Box::pin(async move { answered.await? })
        });
        Client::new(service, "default")
    }

    /// The current time.
    pub(crate) fn wall(&self) -> Timestamp {
        let second = crate::BEGIN + self.state().born.elapsed().as_secs();
        Timestamp::from_second(second.try_into().expect("in range")).expect("in range")
    }

    pub(crate) fn mood(&self, mood: Mood) {
        self.state().mood = mood;
        self.0.1.send_replace(());
    }

    pub(crate) fn allow_create(&self) {
        self.state().may_create = true;
    }

    pub(crate) fn forbid_watch(&self) {
        self.state().may_watch = false;
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.state().requests
    }

    /// Writes so far, including refused ones.
    pub(crate) fn writes(&self) -> u64 {
        self.state().writes
    }

    /// The current Lease.
    pub(crate) fn lease(&self) -> Value {
        self.lease_of(0)
    }

    /// The Lease of a shard.
    pub(crate) fn lease_of(&self, shard: u16) -> Value {
        self.state().leases.get(&name_of(shard)).cloned().unwrap_or_default()
    }

    /// Changes the Lease as another client would.
    pub(crate) fn put(&self, lease: Option<Value>) {
        self.put_of(0, lease);
    }

    /// Changes the Lease of a shard.
    pub(crate) fn put_of(&self, shard: u16, lease: Option<Value>) {
        self.state().store(&name_of(shard), lease);
        self.0.1.send_replace(());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().expect("no test panics with it")
    }

    async fn serve(
        &self,
        request: Request<Body>,
        cut: Option<watch::Receiver<bool>>,
    ) -> Result<HttpResponse, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let mood = {
            let mut state = self.state();
            state.requests += 1;
            state.writes += u64::from(parts.method != Method::GET);
            state.mood
        };
        match mood {
            Mood::Away => return Err("connection refused".into()),
            Mood::Silent => return std::future::pending().await,
            Mood::Slow => tokio::time::sleep(Duration::from_secs(2)).await,
            Mood::Well | Mood::Forgetful => (),
        }
        if parts.uri.query().is_some_and(|query| query.contains("watch=true")) {
            return self.watch(parts.uri.query().unwrap_or_default(), cut);
        }
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let (status, value) = self.state().answer(&parts.method, parts.uri.path(), &body);
        if parts.method != Method::GET {
            self.0.1.send_replace(());
            if mood == Mood::Forgetful {
                return std::future::pending().await;
            }
        }
        answer(status, &value)
    }

    fn watch(&self, query: &str, cut: Option<watch::Receiver<bool>>) -> Result<HttpResponse, BoxError> {
        let name = query
            .split("fieldSelector=metadata.name%3D")
            .nth(1)
            .expect("the field selector must name one Lease");
        let name = name.split('&').next().unwrap_or_default().to_owned();
        if !self.state().may_watch {
            return answer(StatusCode::FORBIDDEN, &refusal(StatusCode::FORBIDDEN));
        }
        let after = query.split("resourceVersion=").nth(1).and_then(|rest| rest.split('&').next());
        let after: u64 = after.and_then(|version| version.parse().ok()).expect("a version");
        let begin = (self.clone(), (self.0.1.subscribe(), cut), name, after);
        let lines = stream::unfold(begin, |(server, (mut changed, mut cut), name, after)| async move {
            loop {
                if let Some(cut) = &mut cut {
                    drop(cut.wait_for(|cut| !*cut).await.ok()?);
                }
                changed.mark_unchanged();
                if server.state().mood == Mood::Away {
                    return None;
                }
                let event = server.state().event_after(&name, after);
                if let Some((event, version)) = event {
                    let frame = http_body::Frame::data(Bytes::from(format!("{event}\n")));
                    return Some((Ok::<_, Infallible>(frame), (server, (changed, cut), name, version)));
                }
                changed.changed().await.ok()?;
            }
        });
        Ok(Response::new(StreamBody::new(lines.boxed()).boxed_unsync()))
    }
}

impl State {
    fn store(&mut self, name: &str, lease: Option<Value>) {
        self.version += 1;
        if let Some(mut lease) = lease {
            lease["metadata"]["resourceVersion"] = self.version.to_string().into();
            self.leases.insert(name.to_owned(), lease);
        } else {
            self.leases.remove(name);
            self.gone.insert(name.to_owned(), self.version);
        }
    }

    fn answer(&mut self, method: &Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let named = path.strip_prefix(COLLECTION).and_then(|rest| rest.strip_prefix('/'));
        let new = body["metadata"]["name"].as_str().unwrap_or_default();
        let name = named.unwrap_or(new).to_owned();
        let status = match (method.as_str(), named, self.leases.get(&name).cloned()) {
            ("GET", Some(_), Some(_)) => StatusCode::OK,
            ("PATCH", Some(_), Some(mut lease)) => {
                if body["metadata"]["resourceVersion"] == lease["metadata"]["resourceVersion"] {
                    merge(&mut lease, body);
                    self.store(&name, Some(lease));
                    StatusCode::OK
                } else {
                    StatusCode::CONFLICT
                }
            }
            ("GET" | "PATCH", Some(_), None) => StatusCode::NOT_FOUND,
            ("POST", None, None) if path == COLLECTION && self.may_create => {
                self.store(&name, Some(body.clone()));
                StatusCode::CREATED
            }
            _ => StatusCode::FORBIDDEN,
        };
        match self.leases.get(&name) {
            Some(lease) if status.is_success() => (status, lease.clone()),
            Some(_) | None => (status, refusal(status)),
        }
    }

    /// Returns the change after a version, if there is one to report.
    fn event_after(&self, name: &str, after: u64) -> Option<(Value, u64)> {
        if self.mood == Mood::Silent {
            return None;
        }
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
        match self.leases.get(name) {
            Some(lease) => {
                let version = version(lease).filter(|version| *version > after)?;
                Some((json!({ "type": "MODIFIED", "object": typed(lease) }), version))
            }
            None => {
                let version = self.gone.get(name).copied().filter(|version| *version > after)?;
                Some((json!({ "type": "DELETED", "object": typed(&json!({ "metadata": {} })) }), version))
            }
        }
    }
}

fn name_of(shard: u16) -> String {
    if shard == 0 { NAME.to_owned() } else { format!("{NAME}-{shard}") }
}

fn typed(lease: &Value) -> Value {
    let mut lease = lease.clone();
    lease["kind"] = "Lease".into();
    lease["apiVersion"] = "coordination.k8s.io/v1".into();
    lease
}

/// Applies a JSON merge patch. Source: RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().expect("just created");
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn refusal(status: StatusCode) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status.as_u16(),
        "reason": status.canonical_reason().unwrap_or_default().replace(' ', ""), "message": "as the test requests it",
    })
}

fn answer(status: StatusCode, value: &Value) -> Result<HttpResponse, BoxError> {
    let body = if status.is_success() { typed(value) } else { value.clone() };
    let body = Full::new(Bytes::from(serde_json::to_vec(&body)?)).boxed_unsync();
    Ok(Response::builder().status(status).header("content-type", "application/json").body(body)?)
}
