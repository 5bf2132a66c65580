//! A stateful fake of the API server that serves [`kube::Client`]. The fake keeps objects in a map, supports get, list, watch, create,
//! patch and delete, and produces the faults that a test sets.
//!
//! The fake implements only the features of Kubernetes that the controllers use. These are the status subresource, resource versions,
//! finalizers, field managers, and the three patch formats (strategic merge for the few lists in [`patch`]). The fake validates nothing
//! else, because tests with a real API server cover validation.

mod faults;
mod managed;
mod patch;
mod port;
mod request;
mod store;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::kube::{Client, Resource, client::Body};
use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::core::v1::Event;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::{BoxError, Layer as _, Service};

pub use self::{
    faults::{Fault, Verb},
    port::KubePort,
};
use self::{
    faults::{Faults, Hooks, What},
    request::Target,
    store::{Key, Store},
};
use crate::{
    kube_api::{self, Requests},
    mirror::ObjectName,
};

/// The position that marks a watch which has sent its last line.
const OVER: u64 = u64::MAX;

type HttpResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A write that reached the fake API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// `PATCH`, `POST` or `DELETE`.
    pub method: String,
    /// The path, such as `/api/v1/nodes/a/status`.
    pub path: String,
    /// The body.
    pub body: Value,
}

/// A stateful fake of the API server. Cloning gives another handle.
#[derive(Clone, Debug)]
pub struct FakeKube(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A channel that wakes the watches. The value does not matter.
    changed: watch::Sender<()>,
    /// A channel that breaks hanging requests. The value does not matter.
    healed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    store: Store,
    writes: Vec<Write>,
    away: bool,
    /// The number of times that the watches were silenced.
    silenced: u32,
    faults: Faults,
    hooks: Hooks,
    /// The number of requests so far, by verb and collection.
    requests: BTreeMap<(Verb, String), u32>,
    /// Number of watches without bookmarks. Without bookmarks, a resource without changes has to be listed again when its watch ends.
    unmarked_watches: u32,
}

impl Default for FakeKube {
    fn default() -> Self {
        let (changed, healed) = (watch::Sender::new(()), watch::Sender::new(()));
        Self(Arc::new(Shared { state: Mutex::default(), changed, healed }))
    }
}

impl FakeKube {
    /// Creates an API server without objects.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a client of the fake. Must be called inside a tokio runtime.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.connection(), "default")
    }

    /// Returns a client of the fake whose requests pass through `requests`, like those of a controller. Must be called inside a tokio
    /// runtime.
    #[must_use]
    pub fn client_through(&self, requests: &Requests) -> Client {
        Client::new(requests.layer(self.connection()), "default")
    }

    fn connection(
        &self,
    ) -> impl Service<Request<Body>, Response = HttpResponse, Error = BoxError, Future: Send> + Clone + use<>
    {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| -> BoxFuture<'static, _> {
            let this = this.clone();
            Box::pin(async move { this.serve(request).await })
        });
        // The real client gives up hanging requests, too.
        tower::timeout::Timeout::new(service, kube_api::ANSWER_LIMIT)
    }

    /// Creates or replaces an object as another client would. [`FakeKube::writes`] does not list this write.
    pub fn put<K>(&self, object: impl Into<K>)
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let object = object.into();
        let name = object.meta().name.clone().unwrap_or_default();
        let key = key::<K>(&ObjectName { namespace: object.meta().namespace.clone(), name });
        let mut value = serde_json::to_value(&object).unwrap_or_default();
        merge_type::<K>(&mut value);
        self.state().store.put(key, value);
        self.wake();
    }

    /// Changes an object as another client would. [`FakeKube::writes`] does not list this write.
    pub fn change<K>(&self, name: &ObjectName, change: impl FnOnce(&mut K))
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        if let Some(mut object) = self.get::<K>(name) {
            change(&mut object);
            self.put::<K>(object);
        }
    }

    /// Deletes an object as another client would. An object with finalizers is only marked for deletion.
    pub fn delete<K: Resource<DynamicType = ()>>(&self, name: &ObjectName) {
        self.state().store.delete(&key::<K>(name));
        self.wake();
    }

    /// Returns the text of the last Event with this reason about an object with this name.
    #[must_use]
    pub fn event_note(&self, reason: &str, name: &str) -> Option<String> {
        let of = |event: &Event| event.reason.as_deref() == Some(reason);
        let about = |event: &Event| event.involved_object.name.as_deref() == Some(name);
        self.event_objects().into_iter().filter(of).rfind(about).and_then(|event| event.message)
    }

    /// Returns the current state of an object.
    #[must_use]
    pub fn get<K>(&self, name: &ObjectName) -> Option<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let state = self.state();
        serde_json::from_value(state.store.get(&key::<K>(name))?.clone()).ok()
    }

    /// Returns the writes so far, without Events.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        let state = self.state();
        state.writes.iter().filter(|write| !write.path.contains("/events")).cloned().collect()
    }

    /// Returns the Events so far as `Type Reason object: note (xN)`, sorted by the names of the Events.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let state = self.state();
        let events = state.store.values("/api/v1/events");
        events
            .filter_map(|value| serde_json::from_value(value.clone()).ok())
            .map(|event| event_line(&event))
            .collect()
    }

    /// Returns the complete Events so far.
    #[must_use]
    pub fn event_objects(&self) -> Vec<Event> {
        let state = self.state();
        let events = state.store.values("/api/v1/events");
        events.filter_map(|value| serde_json::from_value(value.clone()).ok()).collect()
    }

    /// Returns how many requests of this verb to this resource, such as `nodes`, have arrived so far.
    #[must_use]
    pub fn requests(&self, verb: Verb, resource: &str) -> u32 {
        let state = self.state();
        let of = |collection: &str| collection.rsplit('/').next() == Some(resource);
        let counts =
            state.requests.iter().filter(|((of_verb, collection), _)| *of_verb == verb && of(collection));
        counts.map(|(_, count)| count).sum()
    }

    /// Returns how many watches without bookmarks have arrived so far.
    #[must_use]
    pub fn unmarked_watches(&self) -> u32 {
        self.state().unmarked_watches
    }

    /// Answers the next write with this HTTP status and without an effect. Writes of Events do not count.
    pub fn refuse_next(&self, status: u16) {
        self.order(Fault::status(status).on_writes().times(1));
    }

    /// Adds a fault. If several faults apply to a request, the oldest fault is used.
    pub fn order(&self, fault: Fault) {
        self.state().faults.order(fault);
    }

    /// Removes all faults, and breaks hanging requests.
    pub fn heal(&self) {
        self.state().faults.clear();
        self.0.healed.send_replace(());
    }

    /// Simulates a concurrent writer. `change` is called when the next write has arrived but is not yet checked. Writes of Events do not
    /// count. If several changes are set, each of them applies to one write, in the sequence in which they were set.
    pub fn before_next_write(&self, change: impl FnOnce(&Self) + Send + 'static) {
        self.state().hooks.push(Box::new(change));
    }

    /// Drops the history. After that, older watches end with “too old resource version”, and so do new watches from an older version.
    pub fn compact(&self) {
        self.state().store.compact();
        self.wake();
    }

    /// Keeps running watches open but silent, as behind a firewall that has dropped their connections. New watches are served.
    pub fn silence_watches(&self) {
        self.state().silenced += 1;
    }

    /// Refuses all connections and breaks watches, or makes the API server available again.
    pub fn away(&self, away: bool) {
        self.state().away = away;
        self.wake();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.0.changed.send_replace(());
    }

    async fn serve<B>(&self, request: Request<B>) -> Result<HttpResponse, BoxError>
    where
        B: http_body::Body<Error: Into<BoxError>>,
    {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(Into::into)?.to_bytes();
        if self.state().away {
            return Err("connection refused".into());
        }
        let target = Target::read(&parts);
        self.arrived(&target, &body);
        let fault = self.state().faults.meet(&target);
        let slow = match fault {
            Some(What::Hangs) => {
                let _dropped = self.0.healed.subscribe().changed().await.is_err();
                return Err("connection reset".into());
            }
            Some(What::Refused(status, retry_after)) => return refusal(status, retry_after),
            Some(What::Slow(by)) => by,
            None => Duration::ZERO,
        };
        let answer = if target.watch { self.watch(target) } else { self.answer(&target, &body)? };
        tokio::time::sleep(slow).await;
        Ok(answer)
    }

    /// Records a request. Before the request is checked, this also applies the change that the test has set.
    fn arrived(&self, target: &Target, body: &[u8]) {
        let mut state = self.state();
        *state.requests.entry((target.verb(), target.collection.clone())).or_default() += 1;
        state.unmarked_watches += u32::from(target.watch && !target.bookmarks);
        if !target.is_write() {
            return;
        }
        let body = serde_json::from_slice(body).unwrap_or_default();
        state.writes.push(Write { method: target.method.clone(), path: target.path.clone(), body });
        let hook = if target.is_about("events") { None } else { state.hooks.next() };
        drop(state);
        if let Some(hook) = hook {
            hook(self);
        }
    }

    fn answer(&self, target: &Target, body: &[u8]) -> Result<HttpResponse, BoxError> {
        let (status, value) = self.state().store.answer(target, body);
        if target.is_write() {
            self.wake();
        }
        json_answer(status, &value)
    }

    /// Streams all events after the requested resource version, and then new events.
    fn watch(&self, target: Target) -> HttpResponse {
        let begin = (self.clone(), self.0.changed.subscribe(), target.resource_version);
        let silenced = self.state().silenced;
        let lines = stream::unfold(begin, move |(fake, mut changed, after)| {
            let target = target.clone();
            async move {
                loop {
                    changed.mark_unchanged();
                    let silent = fake.state().silenced != silenced;
                    if silent {
                        return std::future::pending().await;
                    }
                    let next = {
                        let state = fake.state();
                        if state.away || after == OVER {
                            return None;
                        }
                        match state.store.too_old(after) {
                            Some(status) => Some((OVER, json!({ "type": "ERROR", "object": status }))),
                            None => state.store.event_after(after, &target),
                        }
                    };
                    if let Some((version, event)) = next {
                        let line = format!("{event}\n");
                        let frame = http_body::Frame::data(Bytes::from(line));
                        return Some((Ok::<_, Infallible>(frame), (fake, changed, version)));
                    }
                    changed.changed().await.ok()?;
                }
            }
        });
        Response::new(StreamBody::new(lines.boxed()).boxed_unsync())
    }
}

fn json_answer(status: StatusCode, value: &Value) -> Result<HttpResponse, BoxError> {
    let body = http_body_util::Full::new(Bytes::from(serde_json::to_vec(value)?)).boxed_unsync();
    Ok(Response::builder().status(status).header("content-type", "application/json").body(body)?)
}

/// Returns the answer to a request with a fault. An answer with Retry-After is plain text, as from the API server.
fn refusal(status: StatusCode, retry_after: Option<Duration>) -> Result<HttpResponse, BoxError> {
    let Some(delay) = retry_after else {
        let (status, value) = refused(status, "ordered by the test");
        return json_answer(status, &value);
    };
    let body = http_body_util::Full::from("Too many requests, please try again later.\n").boxed_unsync();
    let answer = Response::builder().status(status).header("content-type", "text/plain; charset=utf-8");
    Ok(answer.header("retry-after", delay.as_secs()).body(body)?)
}

fn refused(status: StatusCode, message: &str) -> (StatusCode, Value) {
    let code = status.as_u16();
    // The reason in CamelCase, as the API server writes it, such as `NotFound`.
    let reason = match status {
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid".to_owned(),
        _ => status.canonical_reason().unwrap_or_default().replace(' ', ""),
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "code": code, "reason": reason, "message": message,
    });
    (status, body)
}

fn key<K: Resource<DynamicType = ()>>(name: &ObjectName) -> Key {
    Key { collection: K::url_path(&(), None), namespace: name.namespace.clone(), name: name.name.clone() }
}

/// Adds `kind` and `apiVersion` for types that do not write these fields. Types of k8s-openapi write them.
fn merge_type<K: Resource<DynamicType = ()>>(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        object.entry("kind").or_insert_with(|| K::kind(&()).into());
        object.entry("apiVersion").or_insert_with(|| K::api_version(&()).into());
    }
}

fn event_line(event: &Event) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let object = text(&event.involved_object.name);
    let count =
        event.count.filter(|count| *count > 1).map_or_else(String::new, |count| format!(" (x{count})"));
    format!("{} {} {object}: {}{count}", text(&event.type_), text(&event.reason), text(&event.message))
}

#[cfg(test)]
mod tests;
