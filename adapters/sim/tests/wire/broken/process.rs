//! Faults that need a separate process: authentication, secrets, signals, files.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use adapter_sim::{broken::Fault, simcloud::Operation};
use cloud_adapter::testing::{AUDIENCE, Ca, ISSUER, TokenKey, jwks};
use cloud_api_proto::{
    AdapterError,
    v1alpha1::{
        GetInfoRequest, WatchRoutesRequest, adapter_service_client::AdapterServiceClient,
        load_balancer_service_client::LoadBalancerServiceClient, route_service_client::RouteServiceClient,
    },
};
use serde_json::json;
use tempfile::NamedTempFile;
use tonic::{Code, Request, metadata::MetadataValue, transport::Channel};

use crate::{
    adapter::bench::context, broken::balancers::deletion, broken::world::config,
    conditions::program::Program, support::cloud::TestCloud, support::until, support::wanted::CLUSTER,
};

/// Asserts that an adapter with these flags shows the symptom with the fault, and does not show it without the fault.
async fn both(fault: Fault, shows: impl AsyncFn(&[String]) -> bool) {
    let broken = ["--break".to_owned(), fault.to_string()];
    assert!(shows(&broken).await, "{fault}: the symptom is missing");
    assert!(!shows(&[]).await, "{fault}: the symptom appears without the fault");
}

/// An adapter that requires tokens, and the key that signs them.
struct Guarded {
    adapter: Program,
    key: TokenKey,
    _cloud: TestCloud,
    _jwks: NamedTempFile,
}

fn plenty() -> String {
    config("{rate: 100000, burst: 10000}")
}

/// Writes a file with this content.
fn file(content: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    fs::write(file.path(), content).expect("room");
    file
}

fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().expect("a plain path")
}

async fn start(cloud: &TestCloud, flags: &[&str], more: &[String]) -> Program {
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    Program::start(&cloud.url, &plenty(), &[flags, &more[..]].concat()).await
}

impl Guarded {
    async fn start(more: &[String]) -> Self {
        let key = TokenKey::elliptic("a");
        let (cloud, jwks) = (TestCloud::start(json!({})).await, file(&jwks(&[&key])));
        let flags = [
            "--authentication=service-account",
            "--cluster-id",
            CLUSTER,
            "--token-audience",
            AUDIENCE,
            "--token-issuer",
            ISSUER,
            "--token-jwks",
            path(&jwks),
            "--identity=node-controller=kube-system/node-controller",
        ];
        let adapter = start(&cloud, &flags, more).await;
        Self { adapter, key, _cloud: cloud, _jwks: jwks }
    }

    /// Sends a request with this token.
    fn by<T>(token: Option<&str>, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = token {
            let value = MetadataValue::try_from(format!("Bearer {token}")).expect("ASCII");
            request.metadata_mut().insert("authorization", value);
        }
        request
    }
}

#[tokio::test]
async fn unauthenticated_callers_are_accepted() {
    let admitted = async |flags: &[String]| {
        let guarded = Guarded::start(flags).await;
        let request = Guarded::by(None, GetInfoRequest { context: Some(context()) });
        AdapterServiceClient::new(guarded.adapter.channel.clone()).get_info(request).await.is_ok()
    };
    both(Fault::AdmitsEverybody, admitted).await;
    let ignores = ["--break".to_owned(), Fault::IgnoresRoles.to_string()];
    assert!(!admitted(&ignores).await, "a token is still required");
}

#[tokio::test]
async fn a_node_controller_reads_routes() {
    both(Fault::IgnoresRoles, async |flags| {
        let guarded = Guarded::start(flags).await;
        let token = guarded.key.token("kube-system:node-controller");
        let watch = WatchRoutesRequest { context: Some(context()), ..WatchRoutesRequest::default() };
        let request = Guarded::by(Some(&token), watch);
        let answer = RouteServiceClient::new(guarded.adapter.channel.clone()).watch_routes(request).await;
        answer.map_or_else(|status| status.code(), |_| Code::Ok) != Code::PermissionDenied
    })
    .await;
}

/// Waits until the adapter has passed its self-check.
async fn ready(channel: &Channel) {
    until("the self-check", async || {
        let request = GetInfoRequest { context: Some(context()) };
        let info = AdapterServiceClient::new(channel.clone()).get_info(request).await;
        info.is_ok_and(|info| info.into_inner().scope.is_some())
    })
    .await;
}

#[tokio::test]
async fn token_appears_in_errors() {
    both(Fault::SecretInErrors, async |flags| {
        let (cloud, token) = (TestCloud::start(json!({})).await, file("s3cret-canary"));
        let adapter = start(&cloud, &["--token-file", path(&token)], flags).await;
        ready(&adapter.channel).await;
        let body = json!({ "code": "forbidden", "message": "no" });
        let action = json!({ "respond": { "status": 403, "body": body } });
        cloud.fault(json!({ "match": { "operation": "*" }, "when": "always", "action": action })).await;
        let mut client = LoadBalancerServiceClient::new(adapter.channel.clone());
        let answer = client.delete_load_balancer(deletion()).await;
        AdapterError::from(answer.expect_err("forbidden")).message.contains("s3cret-canary")
    })
    .await;
}

#[tokio::test]
async fn sigterm_ends_the_process_at_once() {
    both(Fault::DiesOnSigterm, async |flags| {
        let cloud = TestCloud::start(json!({})).await;
        let mut adapter = start(&cloud, &[], flags).await;
        ready(&adapter.channel).await;
        adapter.stop().await;
        adapter.exited().await != Some(0)
    })
    .await;
}

/// Time longer than the adapter takes to notice a new file.
const LOOKS: Duration = Duration::from_secs(12);

#[tokio::test]
async fn invalid_config_file_ends_the_process() {
    both(Fault::BadConfigStops, async |flags| {
        let cloud = TestCloud::start(json!({})).await;
        let mut adapter = start(&cloud, &[], flags).await;
        ready(&adapter.channel).await;
        fs::write(adapter.config.path(), "limits: 7").expect("room");
        tokio::time::timeout(LOOKS, adapter.exited()).await.is_ok()
    })
    .await;
}

/// Whether the metrics have this line in time.
async fn counts(adapter: &Program, what: &str) -> bool {
    let counted = until("the count differs", async || adapter.page("/metrics").await.contains(what));
    tokio::time::timeout(LOOKS, counted).await.is_ok()
}

#[tokio::test]
async fn rotated_certificate_is_not_read() {
    both(Fault::CertificateReadOnce, async |flags| {
        let (cloud, ca, folder) =
            (TestCloud::start(json!({})).await, Ca::new("ours"), tempfile::tempdir().expect("a folder"));
        let [certificate, key] = ["server.pem", "server.key"].map(|name| folder.path().join(name));
        let replace = || {
            let pair = ca.server("cloud-adapter", tomorrow());
            for (path, content) in [(&certificate, pair.certificate), (&key, pair.key)] {
                let whole = path.with_extension("new");
                fs::write(&whole, content).and_then(|()| fs::rename(&whole, path)).expect("room");
            }
        };
        replace();
        let pair = [format!("--tls-cert={}", certificate.display()), format!("--tls-key={}", key.display())];
        let none = "--authentication=none".to_owned();
        let adapter = start(&cloud, &[&pair[0], &pair[1], &none], flags).await;
        replace();
        !counts(&adapter, "config_reload_total{kind=\"certificate\"").await
    })
    .await;
}

#[expect(clippy::disallowed_methods, reason = "validity of certificates is checked against the wall clock")]
fn tomorrow() -> SystemTime {
    SystemTime::now() + Duration::from_hours(24)
}

#[tokio::test]
async fn connections_have_no_maximum_age() {
    both(Fault::EternalConnections, async |flags| {
        let cloud = TestCloud::start(json!({})).await;
        let adapter = start(&cloud, &["--max-connection-age=1s"], flags).await;
        ready(&adapter.channel).await;
        !counts(&adapter, "why=\"aged\"").await
    })
    .await;
}

#[tokio::test]
async fn rotated_token_is_not_read() {
    both(Fault::TokenReadOnce, async |flags| {
        let (cloud, token) = (TestCloud::start(json!({})).await, file("first"));
        let adapter = start(&cloud, &["--token-file", path(&token)], flags).await;
        ready(&adapter.channel).await;
        cloud.count_from_here();
        fs::write(token.path(), "second").expect("room");
        let checked = async {
            while cloud.count(Operation::GetProject) == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LOOKS, checked).await.is_err()
    })
    .await;
}
