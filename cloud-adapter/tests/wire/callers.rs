//! Tests every role with every service, with tokens and with certificates.

use std::sync::Arc;

use cloud_adapter::{
    auth::{Authentication, Bearers, KeySource, Keys, Role, ServerIdentity, TlsFiles, rules},
    testing::{AUDIENCE, Ca, ISSUER, TokenKey, claims, jwks},
};
use cloud_api_proto::Reason;
use tonic::Code;

use crate::bench::{Bench, NAME, Setting};

const GET_INFO: &str = "/cloudadapter.v1alpha1.AdapterService/GetInfo";

const METHODS: [&str; 12] = [
    GET_INFO,
    "/cloudadapter.v1alpha1.AdapterService/WatchStatus",
    "/cloudadapter.v1alpha1.InstanceService/WatchInstances",
    "/cloudadapter.v1alpha1.InstanceService/BatchGetInstances",
    "/cloudadapter.v1alpha1.LoadBalancerService/WatchLoadBalancers",
    "/cloudadapter.v1alpha1.LoadBalancerService/PutBackendSet",
    "/cloudadapter.v1alpha1.LoadBalancerService/EnsureLoadBalancer",
    "/cloudadapter.v1alpha1.LoadBalancerService/DeleteLoadBalancer",
    "/cloudadapter.v1alpha1.RouteService/WatchRoutes",
    "/cloudadapter.v1alpha1.RouteService/ApplyRoutes",
    "/grpc.health.v1.Health/Check",
    "/made.up.Service/Method",
];

const IDENTITIES: [&str; 5] = [
    "node-controller=kube-system/node-controller",
    "service-controller=kube-system/service-controller",
    "route-controller=kube-system/route-controller",
    "adapter=kube-system/adapter",
    "operator=kube-system/operator",
];

/// Starts a port that requires tokens signed with this key.
async fn by_token(key: &TokenKey) -> Bench {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("jwks.json");
    std::fs::write(&path, jwks(&[key])).expect("a written file");
    let keys = Arc::new(Keys::new(KeySource::File { path, issuer: ISSUER.to_owned() }));
    keys.fetch().await.expect("valid keys");
    let authentication = Authentication::Bearer(Box::new(Bearers::offline(AUDIENCE.to_owned(), keys)));
    Bench::start(Setting { authentication, identities: &IDENTITIES, ..Setting::default() }).await
}

#[tokio::test]
async fn every_role_reaches_its_methods_and_no_others() {
    let key = TokenKey::elliptic("a");
    let bench = by_token(&key).await;
    for role in Role::NAMED {
        let client = bench.plain().with(&key.token(&format!("kube-system:{}", role.word())));
        for method in METHODS {
            let said = client.call(method).await;
            if rules::allows(role, method) {
                let who = format!("{} system:serviceaccount:kube-system:{}", role.word(), role.word());
                assert_eq!(said, Ok(who), "{method}");
            } else {
                let refused = said.expect_err(method);
                assert_eq!((refused.reason, refused.code), (Reason::CallerForbidden, Code::PermissionDenied));
                assert!(refused.message.contains(role.word()), "{refused}");
                assert_eq!(refused.retry_after, None, "a retry would not help");
            }
        }
    }
    let page = bench.page();
    let line = r#"calls_refused_total{role="node-controller",reason="CALLER_FORBIDDEN"} 7"#;
    assert!(page.contains(line), "{page}");
}

#[tokio::test]
async fn unauthenticated_callers_reach_nothing() {
    let key = TokenKey::elliptic("a");
    let bench = by_token(&key).await;
    let plain = bench.plain();
    for method in METHODS {
        let refused = plain.call(method).await.expect_err(method);
        assert_eq!((refused.reason, refused.code), (Reason::CallerUnauthenticated, Code::Unauthenticated));
    }
    let forged = TokenKey::elliptic("a").token("kube-system:node-controller");
    let refused = plain.with(&forged).call(GET_INFO).await.expect_err("forged");
    assert_eq!(refused.reason, Reason::CallerUnauthenticated);
    assert!(refused.message.contains("signature") && !refused.message.contains(&forged), "{refused}");
    let page = bench.page();
    assert!(
        page.contains(r#"calls_refused_total{role="none",reason="CALLER_UNAUTHENTICATED"} 13"#),
        "{page}"
    );
}

#[tokio::test]
async fn a_service_account_without_a_role_reaches_nothing() {
    let key = TokenKey::elliptic("a");
    let bench = by_token(&key).await;
    for account in ["kube-system:default", "default:node-controller"] {
        let refused = bench.plain().with(&key.token(account)).call(GET_INFO).await.expect_err(account);
        assert_eq!(refused.reason, Reason::CallerForbidden);
        assert!(refused.message.contains(account) && refused.message.contains("--identity"), "{refused}");
    }
    let mut user = claims("kube-system:node-controller");
    user["sub"] = "system:kube-system:node-controller".into();
    let refused = bench.plain().with(&key.sign(&user)).call(GET_INFO).await.expect_err("a user");
    assert_eq!(refused.reason, Reason::CallerUnauthenticated);
}

#[tokio::test]
async fn a_certificate_with_a_spiffe_id_is_accepted() {
    let (ours, mesh) = (Ca::new("ours"), Ca::new("mesh"));
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    for (name, text) in [
        ("ca.crt", ours.pair().certificate),
        ("ca.key", ours.pair().key),
        ("clients.crt", mesh.pair().certificate),
    ] {
        std::fs::write(path(name), text).expect("a written file");
    }
    let identity = ServerIdentity::Authority {
        certificate: path("ca.crt"),
        key: path("ca.key"),
        names: vec![NAME.to_owned()],
    };
    let bench = Bench::start(Setting {
        authentication: Authentication::Certificate,
        identities: &IDENTITIES,
        tls: Some(TlsFiles { identity, client_ca: Some(path("clients.crt")) }),
        trust_domain: Some("example.org"),
        ..Setting::default()
    })
    .await;
    let id = |name: &str| format!("spiffe://example.org/ns/kube-system/sa/{name}");
    let good = mesh.client(&[&id("route-controller")]);
    let who = bench.secure(&ours, Some(&good)).call(GET_INFO).await;
    assert_eq!(who.as_deref(), Ok("route-controller system:serviceaccount:kube-system:route-controller"));
    let refused =
        bench.secure(&ours, Some(&good)).call(METHODS[3]).await.expect_err("not a service of the role");
    assert_eq!(refused.reason, Reason::CallerForbidden);
    let stranger = mesh.client(&[&id("default")]);
    let refused = bench.secure(&ours, Some(&stranger)).call(GET_INFO).await.expect_err("no role");
    assert_eq!(refused.reason, Reason::CallerForbidden);
    let elsewhere = mesh.client(&["spiffe://evil.net/ns/kube-system/sa/route-controller"]);
    let refused =
        bench.secure(&ours, Some(&elsewhere)).call(GET_INFO).await.expect_err("another trust domain");
    assert_eq!(refused.reason, Reason::CallerUnauthenticated);
    let forged = Ca::new("mesh").client(&[&id("route-controller")]);
    let refused = bench.secure(&ours, Some(&forged)).ask(GET_INFO).await.expect_err("forged");
    assert!(!matches!(refused.code(), Code::PermissionDenied | Code::Ok), "the handshake fails");
    let refused = bench.secure(&ours, None).call(GET_INFO).await.expect_err("none");
    assert_eq!(refused.reason, Reason::CallerUnauthenticated);
    let page = bench.page();
    assert!(page.contains(r#"connections_ended_total{why="handshake"} "#), "{page}");
}
