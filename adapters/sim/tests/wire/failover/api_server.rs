//! An API server over HTTP with a single Lease: get, watch, and a merge patch based on a resource version. Each replica has its own
//! connection to it, which the test can block.

use std::{convert::Infallible, io::Write as _, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{Method, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

const COLLECTION: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// The API server. Dropping this value ends it.
pub(crate) struct ApiServer {
    lease: Arc<watch::Sender<Value>>,
}

/// One replica's connection to the API server.
pub(crate) struct Way {
    /// The kubeconfig file for this connection.
    pub(crate) kubeconfig: NamedTempFile,
    cut: Arc<watch::Sender<bool>>,
    _serving: JoinSet<()>,
}

#[derive(Clone)]
struct Served {
    lease: Arc<watch::Sender<Value>>,
    cut: Arc<watch::Sender<bool>>,
}

impl ApiServer {
    /// Creates a Lease without holder, as the chart does.
    pub(crate) fn start() -> Self {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": "cloud-adapter", "namespace": "kube-system", "resourceVersion": "1" },
        });
        Self { lease: Arc::new(watch::Sender::new(lease)) }
    }

    /// The holder of the Lease.
    pub(crate) fn holder(&self) -> Option<String> {
        self.lease.borrow()["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    pub(crate) async fn way(&self) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let cut = Arc::new(watch::Sender::new(false));
        let served = Served { lease: Arc::clone(&self.lease), cut: Arc::clone(&cut) };
        let router = Router::new().fallback(answer).with_state(served);
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.expect("serves") });
        let mut kubeconfig = NamedTempFile::new().expect("a file");
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{address}") } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u", "namespace": "kube-system" } }],
            "current-context": "x",
        });
        write!(kubeconfig, "{config}").expect("a written file");
        Way { kubeconfig, cut, _serving: serving }
    }
}

impl Way {
    /// Blocks or unblocks the responses on a connection.
    pub(crate) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }
}

async fn answer(State(served): State<Served>, method: Method, uri: Uri, body: Bytes) -> Response {
    let mut cut = served.cut.subscribe();
    cut.wait_for(|cut| !cut).await.expect("the connection lasts as long as its server");
    let named = uri.path() == format!("{COLLECTION}/cloud-adapter");
    let watches = uri.path() == COLLECTION && uri.query().is_some_and(|query| query.contains("watch=true"));
    match method.as_str() {
        "GET" if watches => watch_lease(&served),
        "GET" if named => json_of(StatusCode::OK, &served.lease.borrow()),
        "PATCH" if named => patch(&served, &serde_json::from_slice(&body).expect("JSON")),
        _ => json_of(StatusCode::FORBIDDEN, &refusal(StatusCode::FORBIDDEN)),
    }
}

fn patch(served: &Served, patch: &Value) -> Response {
    let wanted = patch["metadata"]["resourceVersion"].clone();
    let done = served.lease.send_if_modified(|lease| {
        let found = lease["metadata"]["resourceVersion"] == wanted;
        if found {
            merge(lease, patch);
            let version: u64 = wanted.as_str().and_then(|version| version.parse().ok()).expect("ours");
            lease["metadata"]["resourceVersion"] = (version + 1).to_string().into();
        }
        found
    });
    if done {
        json_of(StatusCode::OK, &served.lease.borrow())
    } else {
        json_of(StatusCode::CONFLICT, &refusal(StatusCode::CONFLICT))
    }
}

/// Sends the current Lease, and then each change of it.
fn watch_lease(served: &Served) -> Response {
    let mut lease = served.lease.subscribe();
    lease.mark_changed();
    let lines = stream::unfold((lease, served.cut.subscribe()), |(mut lease, mut cut)| async move {
        lease.changed().await.ok()?;
        cut.wait_for(|cut| !cut).await.ok()?;
        let event = json!({ "type": "MODIFIED", "object": *lease.borrow_and_update() });
        Some((Ok::<_, Infallible>(format!("{event}\n")), (lease, cut)))
    });
    ([(CONTENT_TYPE, "application/json")], Body::from_stream(lines)).into_response()
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
    let target = target.as_object_mut().expect("the value is an object");
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn refusal(status: StatusCode) -> Value {
    let reason = status.canonical_reason().unwrap_or_default().replace(' ', "");
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": status.as_u16(), "reason": reason, "message": "",
    })
}

fn json_of(status: StatusCode, value: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
