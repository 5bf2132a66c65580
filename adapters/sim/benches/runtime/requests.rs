//! Sends requests as controllers do.

use std::ops::RangeInclusive;

use anyhow::{Context as _, ensure};
use cloud_api_proto::v1alpha1::{
    Backend, BackendList, BatchGetInstancesRequest, EnsureLoadBalancerRequest, Existence, Fence, InstanceRef,
    IpFamily, Listener, LoadBalancerKey, LoadBalancerSpec, LoadBalancerState, Owner, Priority, Protocol,
    PutBackendSetRequest, RequestContext, WatchInstancesRequest, WatchLoadBalancersRequest,
    WatchRoutesRequest, instance_ref::Ref, instance_service_client::InstanceServiceClient,
    load_balancer_service_client::LoadBalancerServiceClient, load_balancer_spec::Scheme,
    put_backend_set_request::Content, route_service_client::RouteServiceClient, watch_instances_response,
    watch_load_balancers_response, watch_routes_response,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::task::JoinSet;
use tonic::{Code, Streaming, transport::Channel};

use crate::{adapter::Adapter, cloud::CLUSTER};

const BACKEND_SET: &str = "nodes";
const CONNECTIONS: usize = 16;
const PER_CONNECTION: usize = 64;

pub(crate) fn context() -> RequestContext {
    RequestContext {
        cluster_id: CLUSTER.into(),
        cluster_name: "bench".into(),
        request_id: "bench".into(),
        ..RequestContext::default()
    }
}

/// Each request names different instances.
pub(crate) fn references(question: u32, count: u32, instances: u32) -> BatchGetInstancesRequest {
    let machine =
        |number: u32| (question.wrapping_mul(613).wrapping_add(number.wrapping_mul(19))) % instances + 1;
    let reference = |number| Ref::ProviderId(format!("sim://sim-1/i-{:04}", machine(number)));
    let refs =
        (0..count).map(|number| InstanceRef { r#ref: Some(reference(number)), ..InstanceRef::default() });
    BatchGetInstancesRequest { context: Some(context()), refs: refs.collect() }
}

/// Sends the request, and asserts that all instances exist and that the request caused no vendor call.
pub(crate) async fn ask(adapter: &Adapter, request: BatchGetInstancesRequest) -> anyhow::Result<()> {
    let asked = request.refs.len();
    let mut client = InstanceServiceClient::new(adapter.channel());
    let answer = client.batch_get_instances(request).await?.into_inner();
    let there = answer.results.iter().filter(|result| result.existence() == Existence::Exists).count();
    ensure!(there == asked, "{there} of {asked} instances exist");
    Ok(())
}

/// Requests new load balancers with all priorities, and waits only for the first answers.
pub(crate) async fn order_all(
    adapter: &Adapter,
    count: u32,
    machines: RangeInclusive<u32>,
) -> anyhow::Result<()> {
    put_backends(adapter, machines).await?;
    let channels: Vec<_> = (0..CONNECTIONS).map(|_| adapter.connect()).collect::<Result<_, _>>()?;
    let priorities = [Priority::Background, Priority::Lifecycle, Priority::Interactive, Priority::Traffic];
    let orders = (0..count).zip(channels.iter().cycle()).zip(priorities.iter().cycle());
    let ordered = orders.map(async |((number, channel), priority)| {
        let request = wanted(&format!("new-{number}"), *priority, 80..=81);
        match balancers(channel).ensure_load_balancer(request).await {
            Ok(_) => anyhow::Ok(()),
            // The queue is full.
            Err(status) if status.code() == Code::ResourceExhausted => Ok(()),
            Err(status) => Err(status.into()),
        }
    });
    stream::iter(ordered).buffer_unordered(CONNECTIONS * PER_CONNECTION).try_collect().await
}

/// Requests one load balancer with these ports and instances, and waits until it is ACTIVE.
pub(crate) async fn order_largest(
    adapter: &Adapter,
    ports: RangeInclusive<u32>,
    machines: RangeInclusive<u32>,
) -> anyhow::Result<()> {
    put_backends(adapter, machines).await?;
    let channel = adapter.connect()?;
    loop {
        let request = wanted("largest", Priority::Interactive, ports.clone());
        let answer = balancers(&channel).ensure_load_balancer(request).await?.into_inner();
        if answer.state() == LoadBalancerState::Active {
            return Ok(());
        }
    }
}

/// Watches all collections until the returned value is dropped. Returns when each listing is complete.
pub(crate) async fn watch_everything(adapter: &Adapter) -> anyhow::Result<JoinSet<()>> {
    let mut watching = JoinSet::new();
    let context = || Some(context());
    let request = WatchInstancesRequest { context: context(), ..Default::default() };
    let mut instances =
        InstanceServiceClient::new(adapter.channel()).watch_instances(request).await?.into_inner();
    until(&mut instances, |one| matches!(one.event, Some(watch_instances_response::Event::Synced(_))))
        .await?;
    watching.spawn(drain(instances));
    let request = WatchLoadBalancersRequest { context: context(), ..Default::default() };
    let mut all = balancers(&adapter.channel()).watch_load_balancers(request).await?.into_inner();
    until(&mut all, |one| matches!(one.event, Some(watch_load_balancers_response::Event::Synced(_)))).await?;
    watching.spawn(drain(all));
    let request = WatchRoutesRequest { context: context(), ..Default::default() };
    let mut routes = RouteServiceClient::new(adapter.channel()).watch_routes(request).await?.into_inner();
    until(&mut routes, |one| matches!(one.event, Some(watch_routes_response::Event::Synced(_)))).await?;
    watching.spawn(drain(routes));
    Ok(watching)
}

async fn until<T>(stream: &mut Streaming<T>, is_it: impl Fn(&T) -> bool) -> anyhow::Result<()> {
    loop {
        let message = stream.message().await?.context("the stream ended")?;
        if is_it(&message) {
            return Ok(());
        }
    }
}

async fn drain<T>(mut stream: Streaming<T>) {
    while let Ok(Some(_)) = stream.message().await {}
}

fn balancers(channel: &Channel) -> LoadBalancerServiceClient<Channel> {
    LoadBalancerServiceClient::new(channel.clone())
}

async fn put_backends(adapter: &Adapter, machines: RangeInclusive<u32>) -> anyhow::Result<()> {
    let backend = |number: u32| Backend {
        provider_id: format!("sim://sim-1/i-{number:04}"),
        node_name: format!("node-{number}"),
        addresses: vec![format!("10.0.{}.{}", number / 256, number % 256)],
        ..Backend::default()
    };
    let full = Content::Full(BackendList { backends: machines.map(backend).collect() });
    let id = BACKEND_SET.to_owned();
    let request = PutBackendSetRequest { context: Some(context()), id, content: Some(full) };
    balancers(&adapter.channel()).put_backend_set(request).await?;
    Ok(())
}

fn wanted(name: &str, priority: Priority, ports: RangeInclusive<u32>) -> EnsureLoadBalancerRequest {
    let listener = |port: u32| Listener {
        protocol: Protocol::Tcp.into(),
        port,
        node_port: Some(30_000 + port),
        ..Listener::default()
    };
    let spec = LoadBalancerSpec {
        scheme: Scheme::Internet.into(),
        ip_families: vec![IpFamily::Ipv4.into()],
        listeners: ports.map(listener).collect(),
        backend_set_id: BACKEND_SET.into(),
        ..LoadBalancerSpec::default()
    };
    EnsureLoadBalancerRequest {
        context: Some(RequestContext { priority: priority.into(), ..context() }),
        key: Some(LoadBalancerKey { cluster_id: CLUSTER.into(), owner_uid: name.into() }),
        owner: Some(Owner {
            kind: "Service".into(),
            namespace: "shop".into(),
            name: name.into(),
            uid: name.into(),
        }),
        fence: Some(Fence { scope: "service-controller/0".into(), epoch: 1, sequence: 1 }),
        spec: Some(spec),
        ..EnsureLoadBalancerRequest::default()
    }
}
