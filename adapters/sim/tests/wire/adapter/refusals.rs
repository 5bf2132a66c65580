//! Tests of refusals, and of the refusal reasons on which controllers base decisions.

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        Adoption, EnsureLoadBalancerRequest, Listener, LoadBalancerSpec, RequestContext,
        listener::{Algorithm, ProxyProtocol},
        load_balancer_spec::AddressRetention,
    },
};

use crate::{
    adapter::bench::{Bench, bench, refused},
    support::wanted::{backend, key, spec, tcp},
    support::{context, fence},
};

async fn refusal(
    bench: &Bench,
    change: impl FnOnce(&mut EnsureLoadBalancerRequest),
) -> (Reason, cloud_api_proto::AdapterError) {
    let mut request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    change(&mut request);
    refused(bench.adapter.ensure(&request).await)
}

fn spec_of(request: &mut EnsureLoadBalancerRequest) -> &mut LoadBalancerSpec {
    request.spec.as_mut().expect("set")
}

#[tokio::test]
async fn invalid_fields_are_named_and_nothing_is_created() {
    type Change = fn(&mut EnsureLoadBalancerRequest);
    let bench = bench().await;
    for (field, change) in [
        ("spec.listeners", (|request| spec_of(request).listeners.clear()) as Change),
        ("spec.listeners[0].port", |request| spec_of(request).listeners[0].port = 70_000),
        ("spec.listeners[0].node_port", |request| spec_of(request).listeners[0].node_port = None),
        ("spec.source_ranges[0]", |request| spec_of(request).source_ranges = vec!["everybody".into()]),
        ("spec.parameters[algorithm]", |request| {
            spec_of(request).parameters.insert("algorithm".into(), "random".into());
        }),
        ("spec.ip_families", |request| spec_of(request).ip_families.clear()),
        ("key.owner_uid", |request| request.key = Some(key(""))),
        ("owner", |request| request.owner = None),
        ("known.vendor_ids", |request| request.adoption = Adoption::ById.into()),
        ("adoption", |request| request.adoption = 99),
        ("recreate", |request| request.recreate = 99),
        ("fence", |request| request.fence = None),
        ("context", |request| request.context = None),
        ("context.cluster_id", |request| request.context = Some(RequestContext::default())),
        ("context.cluster_name", |request| {
            request.context.as_mut().expect("set").cluster_name = "x".repeat(257);
        }),
        ("key.owner_uid", |request| request.key = Some(key(&"x".repeat(257)))),
        ("owner.namespace", |request| request.owner.as_mut().expect("set").namespace = "x".repeat(257)),
        ("fence.scope", |request| request.fence.as_mut().expect("set").scope = "x".repeat(257)),
    ] {
        let (reason, error) = refusal(&bench, change).await;
        assert_eq!(reason, Reason::FieldInvalid, "{field}: {error}");
        assert!(
            error.violations.iter().any(|violation| violation.field.starts_with(field)),
            "{field}: {error:?}"
        );
        assert_eq!(error.retry_after, None, "{field}: only a changed request can succeed");
    }
    assert_eq!(bench.cloud.counts().writes, 0);
}

#[tokio::test]
async fn unknown_parameter_gets_the_nearest_name() {
    let bench = bench().await;
    let (reason, error) = refusal(&bench, |request| {
        spec_of(request).parameters.insert("algoritm".into(), "round-robin".into());
    })
    .await;
    assert_eq!(reason, Reason::UnknownParameter);
    assert_eq!(error.metadata.get("nearest").map(String::as_str), Some("algorithm"));
}

#[tokio::test]
async fn unsupported_features_are_refused() {
    type Change = fn(&mut EnsureLoadBalancerRequest);
    let bench = bench().await;
    for (name, change) in [
        (
            "also by port",
            (|request| {
                spec_of(request).listeners[0].set_algorithm(Algorithm::SourceIpPort);
            }) as Change,
        ),
        ("kept addresses", |request| {
            spec_of(request).set_address_retention(AddressRetention::Keep);
        }),
        ("PROXY version 1", |request| {
            spec_of(request).listeners[0] = Listener { proxy_protocol: ProxyProtocol::V1.into(), ..tcp(80) };
        }),
    ] {
        let (reason, error) = refusal(&bench, change).await;
        assert_eq!(reason, Reason::UnsupportedFeature, "{name}: {error}");
    }
    assert_eq!(bench.cloud.counts().writes, 0);
}

#[tokio::test]
async fn an_unknown_backend_set_is_asked_for_at_once() {
    let bench = bench().await;
    let (reason, error) =
        refusal(&bench, |request| spec_of(request).backend_set_id = "unheard-of".into()).await;
    assert_eq!((reason, error.retry_after), (Reason::BackendSetUnknown, Some(std::time::Duration::ZERO)));
}

#[tokio::test]
async fn replaced_writer_gets_stale_fence() {
    let bench = bench().await;
    let mut request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    request.fence = Some(fence(2, 1));
    bench.adapter.ensured(&request).await;
    bench.cloud.count_from_here();
    request.fence = Some(fence(1, 9));
    spec_of(&mut request).listeners.push(tcp(443));
    let (reason, error) = refused(bench.adapter.ensure(&request).await);
    assert_eq!((reason, error.retry_after), (Reason::StaleFence, None));
    let (reason, _) = refused(bench.adapter.delete("web").await);
    assert_eq!(reason, Reason::StaleFence);
    assert_eq!(bench.cloud.counts().writes, 0);
}

#[tokio::test]
async fn other_cluster_cannot_change_our_load_balancers() {
    let bench = bench().await;
    let mut request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    bench.adapter.ensured(&request).await;
    request.context = Some(RequestContext { cluster_id: "c-2".into(), ..context() });
    let (reason, _) = refused(bench.adapter.ensure(&request).await);
    assert_eq!(reason, Reason::FieldInvalid, "the key names another cluster than the caller");
}
