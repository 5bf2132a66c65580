//! An API server with a single Lease. It supports get, watch, and a merge patch based on a resource version: enough for two replicas to
//! elect a leader.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{Method, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use futures::stream;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

const COLLECTION: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const NAME: &str = "cloud-adapter";

type Lease = Arc<watch::Sender<Value>>;

/// Serves until the process is killed.
pub async fn serve(address: SocketAddr) -> anyhow::Result<()> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": NAME, "namespace": "kube-system", "resourceVersion": "1" },
    });
    let lease: Lease = Arc::new(watch::Sender::new(lease));
    let listener = TcpListener::bind(address).await.with_context(|| address.to_string())?;
    Ok(axum::serve(listener, Router::new().fallback(answer).with_state(lease)).await?)
}

async fn answer(State(lease): State<Lease>, method: Method, uri: Uri, body: Bytes) -> Response {
    let named = uri.path() == format!("{COLLECTION}/{NAME}");
    let watches = uri.path() == COLLECTION && uri.query().is_some_and(|query| query.contains("watch=true"));
    match method.as_str() {
        "GET" if watches => watch_lease(&lease),
        "GET" if named => json_of(StatusCode::OK, &lease.borrow()),
        "PATCH" if named => patch(&lease, &serde_json::from_slice(&body).unwrap_or_default()),
        _ => refusal(StatusCode::FORBIDDEN),
    }
}

/// A patch names the resource version that it is based on. Source: Kubernetes API conventions, "Concurrency Control".
fn patch(lease: &Lease, patch: &Value) -> Response {
    const VERSION: &str = "/metadata/resourceVersion";
    let done = lease.send_if_modified(|lease| {
        let seen = lease.pointer(VERSION).cloned();
        let version: u64 = seen.as_ref().and_then(|one| one.as_str()?.parse().ok()).unwrap_or_default();
        if seen.as_ref() != patch.pointer(VERSION) {
            return false;
        }
        merge(lease, patch);
        if let Some(seen) = lease.pointer_mut(VERSION) {
            *seen = version.saturating_add(1).to_string().into();
        }
        true
    });
    if done { json_of(StatusCode::OK, &lease.borrow()) } else { refusal(StatusCode::CONFLICT) }
}

/// Sends the current Lease, and then each change of it.
fn watch_lease(lease: &Lease) -> Response {
    let mut lease = lease.subscribe();
    lease.mark_changed();
    let lines = stream::unfold(lease, |mut lease| async move {
        lease.changed().await.ok()?;
        let event = json!({ "type": "MODIFIED", "object": *lease.borrow_and_update() });
        Some((Ok::<_, Infallible>(format!("{event}\n")), lease))
    });
    ([(CONTENT_TYPE, "application/json")], Body::from_stream(lines)).into_response()
}

/// Applies a JSON merge patch. Source: RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(target) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn refusal(status: StatusCode) -> Response {
    let reason = status.canonical_reason().unwrap_or_default().replace(' ', "");
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": status.as_u16(), "reason": reason, "message": "",
    });
    json_of(status, &body)
}

fn json_of(status: StatusCode, value: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
