use std::{
    sync::{Arc, Mutex},
    time::UNIX_EPOCH,
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinSet};

use super::*;
use crate::auth::{ServerIdentity, Tls, TlsFiles};

type Shared = Arc<Mutex<Value>>;

/// An API server with one Secret.
struct Cluster {
    secret: Shared,
    dir: TempDir,
    _serving: JoinSet<()>,
}

impl Cluster {
    async fn with(data: Value) -> Self {
        // The kube client requires a crypto provider; the process installs one at its start.
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default().is_ok();
        let metadata = json!({ "name": "ca", "namespace": "a", "resourceVersion": "1" });
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data });
        let secret = Arc::new(Mutex::new(secret));
        let router = Router::new().route("/api/v1/namespaces/a/secrets/ca", get(read).patch(write));
        let router = router.with_state(Arc::clone(&secret));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.expect("serves") });
        let dir = tempfile::tempdir().expect("a folder");
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "a",
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
            "clusters": [{ "name": "a", "cluster": { "server": format!("http://{address}") } }],
            "users": [{ "name": "a", "user": { "token": "own" } }],
        });
        fs::write(dir.path().join("kubeconfig"), kubeconfig.to_string()).expect("a written file");
        Self { secret, dir, _serving: serving }
    }

    /// A replica with files of its own.
    fn replica(&self, name: &str) -> CaSecret {
        let dir = self.dir.path().join(name);
        fs::create_dir_all(&dir).expect("a created folder");
        let api = ApiServer::new(Some(self.dir.path().join("kubeconfig")));
        let secret = "a/ca".parse().expect("a name");
        CaSecret::new(api, secret, dir.join("ca.crt"), dir.join("ca.key"))
    }

    fn data(&self) -> Value {
        self.secret.lock().expect("whole")["data"].clone()
    }
}

async fn read(State(secret): State<Shared>) -> Json<Value> {
    Json(secret.lock().expect("whole").clone())
}

/// Merges the data if the resource version is the current one.
async fn write(State(secret): State<Shared>, Json(patch): Json<Value>) -> Response {
    let mut secret = secret.lock().expect("whole");
    if patch["metadata"]["resourceVersion"] != secret["metadata"]["resourceVersion"] {
        let status = json!({ "kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": "changed" });
        return (StatusCode::CONFLICT, Json(status)).into_response();
    }
    secret["data"] = patch["data"].clone();
    secret["metadata"]["resourceVersion"] = json!("2");
    Json(secret.clone()).into_response()
}

fn files(replica: &CaSecret) -> (String, String) {
    let read = |path: &Path| fs::read_to_string(path).expect("written");
    (read(&replica.certificate), read(&replica.key))
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_219_200)
}

#[tokio::test]
async fn empty_secret_gets_a_ca_that_all_replicas_use() {
    let cluster = Cluster::with(Value::Null).await;
    let (one, two) = (cluster.replica("one"), cluster.replica("two"));
    let (first, second) = tokio::join!(one.prepare(now()), two.prepare(now()));
    assert!(first.is_ok() || second.is_ok(), "{first:?}, {second:?}");
    // The process repeats a failed attempt. Here the attempt of the slower replica has failed.
    for replica in [&one, &two] {
        replica.prepare(now()).await.expect("the Secret has a CA");
    }
    let ca = files(&one);
    assert_eq!(files(&two), ca);
    let names = vec!["cloud-adapter".to_owned()];
    let identity =
        ServerIdentity::Authority { certificate: one.certificate.clone(), key: one.key.clone(), names };
    Tls::start(TlsFiles { identity, client_ca: None }, now).expect("the CA issues certificates");
    let restarted = cluster.replica("restarted");
    restarted.prepare(now()).await.expect("the Secret has a CA");
    assert_eq!(files(&restarted), ca);
}

#[tokio::test]
async fn a_replaced_ca_is_written_to_the_files() {
    let cluster = Cluster::with(Value::Null).await;
    let replica = cluster.replica("one");
    replica.prepare(now()).await.expect("empty");
    let old = files(&replica);
    cluster.secret.lock().expect("whole")["data"] = Value::Null;
    replica.prepare(now()).await.expect("empty again");
    assert_ne!(files(&replica), old);
}

#[tokio::test]
async fn half_a_ca_is_an_error_that_changes_nothing() {
    let half = json!({ "ca.crt": "YQ==" });
    let cluster = Cluster::with(half.clone()).await;
    let error = cluster.replica("one").prepare(now()).await.expect_err("the key is missing");
    assert!(error.to_string().contains("Secret a/ca has no ca.key"), "{error}");
    assert_eq!(cluster.data(), half);
}
