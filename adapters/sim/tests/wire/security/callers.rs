//! Tests of access decisions that depend on the content of a request, and of flags that control which callers may connect.

use cloud_adapter::testing::{ISSUER, TokenKey, jwks};
use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        ApplyRoutesRequest, DeleteLoadBalancerRequest, Fence, GetInfoRequest, LoadBalancerKey, Owner,
        RequestContext, adapter_service_client::AdapterServiceClient,
        load_balancer_service_client::LoadBalancerServiceClient, route_service_client::RouteServiceClient,
    },
};
use tonic::{Request, metadata::MetadataValue};

use crate::{
    security::program::{CLUSTER, context, info, start},
    support::{PROGRAM, Program, until},
};

const LOOPBACK: [&str; 2] = ["--grpc-address", "127.0.0.1:0"];

struct Guarded {
    adapter: Program,
    key: TokenKey,
    _dir: tempfile::TempDir,
}

impl Guarded {
    async fn start() -> Self {
        let key = TokenKey::elliptic("a");
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("jwks.json");
        std::fs::write(&path, jwks(&[&key])).expect("a written file");
        let own = ["--authentication", "service-account", "--cluster-id", CLUSTER, "--token-issuer", ISSUER];
        let keys = ["--token-jwks", path.to_str().expect("plain")];
        let identities = [
            "--identity=service-controller=kube-system/service-controller",
            "--identity=route-controller=kube-system/route-controller",
            "--identity=operator=kube-system/operator",
        ];
        let adapter = start(&[&LOOPBACK[..], &own, &keys, &identities].concat()).await;
        let guarded = Self { adapter, key, _dir: dir };
        until("the self-check", async || {
            let request = guarded.as_role("operator", GetInfoRequest { context: Some(context()) });
            let answer = AdapterServiceClient::new(guarded.adapter.channel.clone()).get_info(request).await;
            answer.expect("admitted").into_inner().scope.is_some()
        })
        .await;
        guarded
    }

    fn as_role<T>(&self, role: &str, message: T) -> Request<T> {
        let token = self.key.token(&format!("kube-system:{role}"));
        let mut request = Request::new(message);
        let value = MetadataValue::try_from(format!("Bearer {token}")).expect("ASCII");
        request.metadata_mut().insert("authorization", value);
        request
    }

    async fn deletes(&self, role: &str, dry_run: bool, scope: &str) -> Result<(), AdapterError> {
        let owner =
            Owner { kind: "Service".into(), namespace: "shop".into(), name: "web".into(), uid: "u".into() };
        let request = self.as_role(
            role,
            DeleteLoadBalancerRequest {
                context: Some(context()),
                key: Some(LoadBalancerKey { cluster_id: CLUSTER.into(), owner_uid: "u".into() }),
                owner: Some(owner),
                fence: Some(Fence { scope: scope.into(), epoch: 1, sequence: 1 }),
                dry_run,
                ..DeleteLoadBalancerRequest::default()
            },
        );
        let mut client = LoadBalancerServiceClient::new(self.adapter.channel.clone());
        client.delete_load_balancer(request).await.map(drop).map_err(AdapterError::from)
    }

    async fn routes(&self, role: &str, dry_run: bool, scope: &str) -> Result<(), AdapterError> {
        let request = self.as_role(
            role,
            ApplyRoutesRequest {
                context: Some(context()),
                fence: Some(Fence { scope: scope.into(), epoch: 1, sequence: 1 }),
                dry_run,
                ..ApplyRoutesRequest::default()
            },
        );
        let mut client = RouteServiceClient::new(self.adapter.channel.clone());
        client.apply_routes(request).await.map(drop).map_err(AdapterError::from)
    }
}

#[tokio::test]
async fn operators_only_read_and_fences_belong_to_controllers() {
    let guarded = Guarded::start().await;
    for (role, dry_run, scope, allowed) in [
        ("service-controller", false, "service-controller/0", true),
        ("service-controller", false, "route-controller/0", false),
        ("operator", true, "operator/0", true),
        ("operator", false, "operator/0", false),
        ("operator", false, "service-controller/0", false),
        ("route-controller", false, "route-controller/0", false),
    ] {
        let said = guarded.deletes(role, dry_run, scope).await;
        check(&format!("{role} deletes as {scope}, dry run {dry_run}"), said, allowed);
    }
    for (role, dry_run, scope, allowed) in [
        ("route-controller", false, "route-controller/0", true),
        ("route-controller", false, "service-controller/0", false),
        ("operator", true, "", true),
        ("operator", false, "route-controller/0", false),
    ] {
        let said = guarded.routes(role, dry_run, scope).await;
        check(&format!("{role} applies routes as {scope}, dry run {dry_run}"), said, allowed);
    }
}

#[track_caller]
fn check(what: &str, said: Result<(), AdapterError>, allowed: bool) {
    match said {
        Ok(()) => assert!(allowed, "{what} must be refused"),
        Err(error) => {
            assert!(!allowed, "{what}: {error}");
            assert_eq!(error.reason, Reason::CallerForbidden, "{what}: {error}");
        }
    }
}

#[tokio::test]
async fn adapter_of_one_cluster_refuses_others() {
    let guarded = Guarded::start().await;
    let other = RequestContext { cluster_id: "c2".into(), ..context() };
    let request = guarded.as_role("operator", GetInfoRequest { context: Some(other) });
    let answer = AdapterServiceClient::new(guarded.adapter.channel.clone()).get_info(request).await;
    let refused = AdapterError::from(answer.expect_err("another cluster"));
    assert_eq!(refused.reason, Reason::CallerForbidden);
    assert!(refused.message.contains("context.cluster_id"), "{refused}");
    let page = guarded.adapter.page("/metrics").await;
    let line = r#"cloud_adapter_calls_refused_total{role="operator",reason="CALLER_FORBIDDEN"} 1"#;
    assert!(page.contains(line), "{page}");
}

#[tokio::test]
async fn the_port_of_probes_serves_no_api() {
    let adapter = start(&LOOPBACK).await;
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    for (path, refusal) in [
        ("/cloudadapter.v1alpha1.AdapterService/GetInfo", 404),
        ("/grpc.health.v1.Health/Check", 404),
        // These pages can be read with GET; other methods are refused.
        ("/", 405),
        ("/status.json", 405),
    ] {
        let request = client.post(format!("http://{}{path}", adapter.http));
        let answer = request.header("content-type", "application/grpc").send().await.expect("an answer");
        assert_eq!(answer.status(), refusal, "{path}");
    }
}

#[tokio::test]
async fn plaintext_on_other_addresses_needs_a_flag() {
    let http = ["--http-address", "127.0.0.1:0"];
    let (code, text) = Program::ends(PROGRAM, [&["--grpc-address", "0.0.0.0:0"][..], &http].concat()).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--tls-ca-cert") && text.contains("--insecure"), "{text}");
    let adapter = start(&["--grpc-address", "0.0.0.0:0", "--insecure"]).await;
    assert!(adapter.grpc.starts_with("0.0.0.0:"), "{}", adapter.grpc);
}

#[tokio::test]
async fn unusable_files_exit_with_2() {
    let missing =
        ["--tls-cert", "/nowhere/tls.crt", "--tls-key", "/nowhere/tls.key", "--authentication", "none"];
    let keys = ["--authentication", "service-account", "--token-jwks", "/nowhere/jwks.json"];
    let rest = ["--token-issuer", "i", "--cluster-id", "c", "--identity", "operator=a/b"];
    for (arguments, wanted) in
        [(missing.to_vec(), "/nowhere/tls.crt"), ([&keys[..], &rest].concat(), "/nowhere/jwks.json")]
    {
        let http = ["--http-address", "127.0.0.1:0"];
        let (code, text) = Program::ends(PROGRAM, [&LOOPBACK[..], &http, &arguments].concat()).await;
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(wanted), "{text}");
    }
}

#[tokio::test]
async fn unix_socket_serves_like_a_port() {
    let dir = tempfile::tempdir().expect("a folder");
    let address = format!("unix:{}", dir.path().join("adapter.sock").display());
    for round in ["first", "after the kill of the former process"] {
        let adapter = start(&["--grpc-address", &address]).await;
        assert_eq!(adapter.grpc, address, "{round}");
        let channel = tonic::transport::Endpoint::try_from(address.clone()).expect("a socket").connect_lazy();
        until("an answer", async || info(&channel).await).await;
    }
}
