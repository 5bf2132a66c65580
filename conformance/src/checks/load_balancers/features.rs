//! Verifies the features that an adapter reports.

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        EnsureLoadBalancerResponse, IpFamily, LoadBalancerAddress, LoadBalancerSpec,
        listener::{Algorithm, ProxyProtocol},
        load_balancer_address::Value,
        session_affinity::Kind,
    },
};

use futures::future::{self, BoxFuture};

use super::vendor_id;
use crate::checks::prelude::*;

type Change = fn(&mut LoadBalancerSpec);

/// The features that can be added to an existing load balancer. Each has a capability and, if the capability has a list of values, a value.
const FEATURES: [(&str, &str, Change); 7] = [
    ("lb.proxy-protocol", "v2", |spec| {
        spec.listeners.iter_mut().for_each(|one| one.set_proxy_protocol(ProxyProtocol::V2));
    }),
    ("lb.source-ranges", "", |spec| {
        spec.source_ranges = vec!["192.0.2.0/24".to_owned(), "198.51.100.7/32".to_owned()];
    }),
    ("lb.session-affinity", "", |spec| {
        spec.session_affinity.get_or_insert_default().set_kind(Kind::ClientIp);
    }),
    ("lb.algorithm", "least-connections", |spec| {
        spec.listeners.iter_mut().for_each(|one| one.set_algorithm(Algorithm::LeastConnections));
    }),
    ("lb.connect-timeout", "", |spec| {
        let seconds = prost_types::Duration { seconds: 7, nanos: 0 };
        spec.listeners.iter_mut().for_each(|one| one.connect_timeout = Some(seconds));
    }),
    ("lb.connection-limit", "", |spec| {
        spec.listeners.iter_mut().for_each(|one| one.connection_limit = Some(1000));
    }),
    ("lb.app-protocol", "", says_what_is_spoken),
];

fn says_what_is_spoken(spec: &mut LoadBalancerSpec) {
    spec.listeners.iter_mut().for_each(|one| "kubernetes.io/h2c".clone_into(&mut one.app_protocol));
}

/// load_balancer_service.proto, `LoadBalancerSpec`: a reported feature works. The vendor shows it, the listing then equals the desired
/// state, and the feature can be removed again. `applied_hash` covers the whole specification except the backends.
pub(super) async fn round_trip(cx: &Context) -> Verdict {
    let mut trips: Vec<BoxFuture<'_, Verdict>> = Vec::new();
    for (capability, _, change) in FEATURES.into_iter().filter(|(name, value, _)| cx.takes(name, value)) {
        trips.push(Box::pin(put_on_and_taken_back(cx, capability, change)));
    }
    if cx.can("lb.udp") {
        trips.push(Box::pin(datagrams(cx)));
    }
    if cx.can("lb.dual-stack") {
        trips.push(Box::pin(both_families(cx)));
    }
    if cx.can("lb.name") {
        trips.push(Box::pin(named(cx)));
    }
    if trips.is_empty() {
        return Err(Stop::skipped("the adapter has none of these capabilities"));
    }
    if !cx.can("lb.app-protocol") {
        trips.push(Box::pin(what_is_spoken_is_ignored(cx)));
    }
    future::try_join_all(trips).await.map(drop)
}

/// load_balancer_service.proto, `Listener.app_protocol`: an adapter without the capability neither refuses the field nor writes anything
/// because of it.
async fn what_is_spoken_is_ignored(cx: &Context) -> Verdict {
    let silent = cx.cluster().balancer("spoken").listeners([tcp(80)]).backends(&cx.machines(2).await?);
    let there = cx.converge(&silent).await?;
    let again = cx.converge(&silent.clone().fence(cx.cluster().fence()).spec(says_what_is_spoken)).await?;
    expect::equal("without lb.app-protocol, app_protocol is ignored", &again.steps, &0)?;
    expect::equal("the hash does not depend on an ignored field", &again.applied_hash, &there.applied_hash)
}

async fn datagrams(cx: &Context) -> Verdict {
    let dns = cx.cluster().balancer("dns").backends(&cx.machines(2).await?);
    let (ports, listed) = if cx.can("lb.mixed-protocols") {
        (vec![tcp(53), udp(53)], vec!["tcp/53", "udp/53"])
    } else {
        (vec![udp(53)], vec!["udp/53"])
    };
    serves(cx, &dns.listeners(ports), &listed).await.map(drop)
}

async fn both_families(cx: &Context) -> Verdict {
    let both = vec![IpFamily::Ipv4.into(), IpFamily::Ipv6.into()];
    let dual = cx.cluster().balancer("dual").backends(&cx.machines(2).await?);
    let addresses = serves(cx, &dual.spec(|spec| spec.ip_families = both), &["tcp/80"]).await?.addresses;
    let of_family = |six: bool| addresses.iter().any(|address| is_of_family(address, six));
    let wants = "a dual-stack load balancer has an address of each family, or a hostname";
    expect::shown(of_family(false) && of_family(true), wants, &addresses)
}

/// load_balancer_service.proto, `LoadBalancerSpec.name`: a name is only for display. Two load balancers may have the same name. A new name
/// neither recreates the load balancer nor changes the hash, and a request without a name keeps the former name.
async fn named(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let balancer = |owner| cx.cluster().balancer(owner).listeners([tcp(80)]).backends(&machines);
    let called = |balancer: Balancer, name: &str| {
        balancer.fence(cx.cluster().fence()).spec(|spec| name.clone_into(&mut spec.name))
    };
    let (one, other) = (balancer("one-name"), balancer("another-name"));
    expect::refused(cx.ensure(&called(one.clone(), "in/valid")).await?, Reason::FieldInvalid)?;
    let first = settled(cx, &called(one.clone(), "conformance-a")).await?;
    let name = name_of(cx, &one).await?;
    let wants = "the load balancer has the requested name";
    expect::that(name.starts_with("conformance-a"), wants, || name.clone())?;
    let second = settled(cx, &called(other, "conformance-a")).await?;
    let wants = "two load balancers may have the same name";
    expect::shown(vendor_id(&first)? != vendor_id(&second)?, wants, &second)?;
    let again = settled(cx, &called(one.clone(), "conformance-b")).await?;
    let wants = "a new name does not recreate the load balancer";
    expect::equal(wants, &vendor_id(&again)?, &vendor_id(&first)?)?;
    expect::equal("the hash does not depend on names", &again.applied_hash, &first.applied_hash)?;
    let kept = name_of(cx, &one).await?;
    let back = settled(cx, &one.clone().fence(cx.cluster().fence())).await?;
    let wants = "without a name in the request, the load balancer stays the same";
    expect::equal(wants, &vendor_id(&back)?, &vendor_id(&first)?)?;
    let wants = "without a name in the request, the load balancer keeps its name";
    expect::equal(wants, &name_of(cx, &one).await?, &kept)
}

async fn name_of(cx: &Context, balancer: &Balancer) -> Result<String, Stop> {
    let listed = cx.load_balancers(&cx.cluster()).await?.items;
    let there = listed.into_iter().find(|one| one.key == Some(balancer.key()));
    expect::some(there, "the load balancer is listed").map(|there| there.name)
}

fn is_of_family(address: &LoadBalancerAddress, six: bool) -> bool {
    match &address.value {
        Some(Value::Ip(ip)) => ip.contains(':') == six,
        Some(Value::Hostname(_)) => true,
        None => false,
    }
}

async fn put_on_and_taken_back(cx: &Context, capability: &str, change: Change) -> Verdict {
    let plain = cx.cluster().balancer(capability).listeners([tcp(80)]).backends(&cx.machines(2).await?);
    let there = cx.converge(&plain).await?;
    let without = description(cx, &there).await?;
    let with = settled(cx, &plain.clone().fence(cx.cluster().fence()).spec(change)).await?;
    let differs = with.applied_hash != there.applied_hash;
    let wants = format!("{capability}: another specification has another hash");
    expect::that(differs, &wants, || format!("{:?}", with.applied_hash))?;
    if let Some(without) = &without {
        let shown = description(cx, &with).await?;
        let shows = shown.as_ref() != Some(without);
        let wants = format!("{capability}: the vendor shows the feature");
        expect::that(shows, &wants, || format!("unchanged: {without}"))?;
    }
    let back = settled(cx, &plain.clone().fence(cx.cluster().fence())).await?;
    let wants = format!("{capability}: the feature can be removed");
    expect::equal(&wants, &back.applied_hash, &there.applied_hash)
}

/// Returns the vendor's description of the load balancer. `None` if there is no command for it.
async fn description(cx: &Context, answer: &EnsureLoadBalancerResponse) -> Result<Option<String>, Stop> {
    cx.optional_hook(Hook::DescribeLoadBalancer, &[("VENDOR_ID", vendor_id(answer)?)]).await
}

/// Converges, and asserts that the vendor's listing then equals the desired state. No change is then left to make.
async fn settled(cx: &Context, balancer: &Balancer) -> Result<EnsureLoadBalancerResponse, Stop> {
    let done = cx.converge(balancer).await?;
    let mut live = balancer.clone();
    live.request.context = Some(cx.cluster().live());
    let again = cx.converge(&live).await?;
    let wants = "the vendor's listing equals the desired state: a repeated live request changes nothing";
    let same = again.steps == 0 && again.applied_hash == done.applied_hash;
    expect::shown(same, wants, &again)?;
    Ok(again)
}

/// Converges to a load balancer with these ports.
async fn serves(
    cx: &Context,
    balancer: &Balancer,
    ports: &[&str],
) -> Result<EnsureLoadBalancerResponse, Stop> {
    let done = settled(cx, balancer).await?;
    let listed = cx.load_balancers(&cx.cluster()).await?.items;
    let mut there = listed.into_iter().find(|one| one.key == Some(balancer.key())).unwrap_or_default();
    there.listeners.sort_unstable();
    let listed: Vec<&str> = there.listeners.iter().map(String::as_str).collect();
    expect::equal("the listing has the desired ports", &listed.as_slice(), &ports)?;
    Ok(done)
}
