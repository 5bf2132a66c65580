//! A stateful fake of the API server under [`kube::Client`]: objects in a map, get, list, watch, create, patch, delete.
//!
//! It knows of Kubernetes only what the controllers use: the status subresource, resource versions, finalizers, and the three patch
//! formats (strategic merge for the few lists in [`patch`]). It validates nothing else: that is what the tests against a real API
//! server are for.

mod patch;
mod request;
mod store;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ::kube::{Client, Resource, client::Body};
use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::events::v1::Event;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::BoxError;

use self::{
    request::Target,
    store::{Key, Store},
};
use crate::mirror::ObjectName;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A write that reached the fake API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// `PATCH`, `POST` or `DELETE`.
    pub method: String,
    /// Such as `/api/v1/nodes/a/status`.
    pub path: String,
    /// What was sent.
    pub body: Value,
}

/// A stateful fake of the API server. Cloning gives another handle to the same.
#[derive(Clone, Debug)]
pub struct FakeKube(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes watches. The value does not matter.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    store: Store,
    writes: Vec<Write>,
    /// Nobody answers.
    away: bool,
    /// The next writes are answered with these.
    refusals: Vec<u16>,
}

impl Default for FakeKube {
    fn default() -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), changed: watch::Sender::new(()) }))
    }
}

impl FakeKube {
    /// An API server without objects.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A client of it. Must be called inside a tokio runtime.
    #[must_use]
    pub fn client(&self) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| -> BoxFuture<'static, _> {
            let this = this.clone();
            Box::pin(async move { this.serve(request).await })
        });
        Client::new(service, "default")
    }

    /// Puts an object as somebody else would: created, or replaced whole. Not one of [`FakeKube::writes`].
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

    /// Changes an object as somebody else would. Not one of [`FakeKube::writes`].
    pub fn change<K>(&self, name: &ObjectName, change: impl FnOnce(&mut K))
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        if let Some(mut object) = self.get::<K>(name) {
            change(&mut object);
            self.put::<K>(object);
        }
    }

    /// Deletes an object as somebody else would: marked only, if it has finalizers.
    pub fn delete<K: Resource<DynamicType = ()>>(&self, name: &ObjectName) {
        self.state().store.delete(&key::<K>(name));
        self.wake();
    }

    /// An object as it is now.
    #[must_use]
    pub fn get<K>(&self, name: &ObjectName) -> Option<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let state = self.state();
        serde_json::from_value(state.store.get(&key::<K>(name))?.clone()).ok()
    }

    /// The writes so far, Events left out.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        let state = self.state();
        state.writes.iter().filter(|write| !write.path.contains("/events")).cloned().collect()
    }

    /// The Events so far as `Type Reason object: note (xN)`, in the order of their names.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let state = self.state();
        let events = state.store.values("/apis/events.k8s.io/v1/events");
        events
            .filter_map(|value| serde_json::from_value(value.clone()).ok())
            .map(|event| told(&event))
            .collect()
    }

    /// The Events so far, whole.
    #[must_use]
    pub fn event_objects(&self) -> Vec<Event> {
        let state = self.state();
        let events = state.store.values("/apis/events.k8s.io/v1/events");
        events.filter_map(|value| serde_json::from_value(value.clone()).ok()).collect()
    }

    /// The next write that is no Event is answered with this HTTP status and does nothing.
    pub fn refuse_next(&self, status: u16) {
        self.state().refusals.push(status);
    }

    /// Nobody answers any more, watches break; or it is back.
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

    async fn serve(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        if self.state().away {
            return Err("connection refused".into());
        }
        let target = Target::read(&parts);
        if target.watch {
            return Ok(self.watch(target));
        }
        let (status, value) = self.answer(&target, &body);
        if target.is_write() {
            self.wake();
        }
        let bytes = serde_json::to_vec(&value)?;
        let body = http_body_util::Full::new(Bytes::from(bytes)).boxed_unsync();
        Ok(Response::builder().status(status).header("content-type", "application/json").body(body)?)
    }

    fn answer(&self, target: &Target, body: &[u8]) -> (StatusCode, Value) {
        let mut state = self.state();
        if target.is_write() {
            let body = serde_json::from_slice(body).unwrap_or_default();
            let is_event = target.path.contains("/events");
            state.writes.push(Write { method: target.method.clone(), path: target.path.clone(), body });
            let refusal =
                if is_event || state.refusals.is_empty() { None } else { Some(state.refusals.remove(0)) };
            if let Some(status) = refusal {
                return refused(StatusCode::from_u16(status).unwrap_or_default(), "ordered by the test");
            }
        }
        state.store.answer(target, body)
    }

    /// Everything after the resource version that was asked for, and then whatever happens.
    fn watch(&self, target: Target) -> Answer {
        let begin = (self.clone(), self.0.changed.subscribe(), target.resource_version);
        let lines = stream::unfold(begin, move |(fake, mut changed, after)| {
            let (collection, namespace) = (target.collection.clone(), target.namespace.clone());
            async move {
                loop {
                    changed.mark_unchanged();
                    let next = {
                        let state = fake.state();
                        if state.away {
                            return None;
                        }
                        state.store.event_after(after, &collection, namespace.as_deref())
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

/// What the API server answers when it does not do as it was asked.
fn refused(status: StatusCode, message: &str) -> (StatusCode, Value) {
    let code = status.as_u16();
    let reason = status.canonical_reason().unwrap_or_default();
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "code": code, "reason": reason, "message": message,
    });
    (status, body)
}

fn key<K: Resource<DynamicType = ()>>(name: &ObjectName) -> Key {
    Key { collection: K::url_path(&(), None), namespace: name.namespace.clone(), name: name.name.clone() }
}

/// Types of k8s-openapi write `kind` and `apiVersion` themselves; this is for those that do not.
fn merge_type<K: Resource<DynamicType = ()>>(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        object.entry("kind").or_insert_with(|| K::kind(&()).into());
        object.entry("apiVersion").or_insert_with(|| K::api_version(&()).into());
    }
}

fn told(event: &Event) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let object = event.regarding.as_ref().and_then(|object| object.name.clone()).unwrap_or_default();
    let count = event.series.as_ref().map_or_else(String::new, |series| format!(" (x{})", series.count));
    format!("{} {} {object}: {}{count}", text(&event.type_), text(&event.reason), text(&event.note))
}

#[cfg(test)]
mod tests;
