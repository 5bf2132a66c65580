//! ID: the properties that an adapter reports about itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cloud_api_proto::{
    DESCRIPTOR_SET, Reason,
    v1alpha1::{
        GetInfoRequest, GetInfoResponse, IpFamily, LoadBalancerSpec, Parameter, SessionAffinity,
        capability::Level,
        health_check, listener,
        load_balancer_spec::{AddressRetention, Scheme},
        parameter, session_affinity,
    },
};
use futures::StreamExt as _;
use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use tokio::time::Instant;
use tonic::Code;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use super::BALANCERS;
use crate::checks::prelude::*;

pub(super) const CHECKS: &[Check] = &[
    Check::t1("ID-01", "info-is-complete-and-stable-across-replicas", run!(info))
        .visits_replicas()
        .section("adapter_service.proto, GetInfoResponse"),
    Check::t2("ID-02", "status-answers-within-50ms-and-makes-no-vendor-call", run!(status))
        .section("adapter_service.proto, WatchStatus"),
    Check::t1("ID-03", "health-per-service-and-standby-not-serving", run!(health))
        .visits_replicas()
        .section("adapter_service.proto, AdapterService; grpc.health.v1"),
    Check::t1("ID-04", "reflection-or-descriptor-matches-published-contract", run!(reflection))
        .section("all .proto files; grpc.reflection.v1"),
    Check::t1("ID-05", "unknown-request-fields-and-enum-values-are-tolerated", run!(newer))
        .section("common.proto, RequestContext"),
    Check::t1("ID-06", "capability-absent-means-unsupported-feature-not-silence", run!(absent))
        .section("adapter_service.proto, Capability")
        .needs(&[BALANCERS]),
    Check::t3("ID-07", "swapped-process-changes-instance-id", run!(swapped))
        .section("adapter_service.proto, GetInfoResponse.instance_id"),
];

const PACKAGE: &str = "cloudadapter.v1alpha1";
/// The contract's services, each with the capability that requires it. If the capability is `None`, every adapter serves the service.
const SERVICES: [(&str, Option<&str>); 4] = [
    ("AdapterService", None),
    ("InstanceService", Some("instances")),
    ("LoadBalancerService", Some("loadbalancers")),
    ("RouteService", Some("routes")),
];
/// `grpc.health.v1.HealthCheckResponse.ServingStatus.SERVING`.
const SERVING: i32 = 1;
/// The maximum duration of a status request. The adapter answers it from memory.
const STATUS_WITHIN: Duration = Duration::from_millis(50);
/// Several attempts, because a busy host may delay some of them.
const STATUS_TRIES: usize = 10;
/// Time limit for all other calls.
const TIMEOUT: Duration = Duration::from_secs(5);

/// adapter_service.proto, `GetInfoResponse`: every field is set, and the call causes no vendor call. Apart from the instance ID, the answer
/// is the same for each caller and replica.
async fn info(cx: &Context) -> Verdict {
    let context = cx.cluster().context();
    let first = cx.service()?.info(&context).await?;
    complete(&first)?;
    expect::equal("GetInfo causes no vendor call", &first.cost.clone().unwrap_or_default().vendor_calls, &0)?;
    for role in [Role::NodeController, Role::RouteController] {
        let again = cx.api(role)?.info(&context).await?;
        expect::equal("GetInfo returns the same to each caller", &stable(again), &stable(first.clone()))?;
    }
    let mut seen: Vec<GetInfoResponse> = Vec::new();
    if cx.params().replicas.is_none() {
        cx.without(Need::Replicas);
    }
    for replica in cx.replicas(Role::ServiceController)? {
        // A replica that has just started learns the scope from the leader.
        let wants = "each replica reports its scope soon after its start";
        let scoped = || async { Ok(Some(replica.info(&context).await?).filter(|info| info.scope.is_some())) };
        let info = cx.until(cx.params().timings.ready, wants, scoped).await?;
        let fresh = seen.iter().all(|other| other.instance_id != info.instance_id);
        expect::that(fresh, "each replica has its own instance ID", || info.instance_id.clone())?;
        seen.push(info);
    }
    let same = |info: GetInfoResponse| GetInfoResponse { instance_id: String::new(), ..stable(info) };
    for info in seen.clone() {
        let first = seen.first().cloned().unwrap_or_default();
        expect::equal("GetInfo returns the same on each replica", &same(info), &same(first))?;
    }
    Ok(())
}

/// Returns the answer without the fields that differ from call to call.
fn stable(info: GetInfoResponse) -> GetInfoResponse {
    GetInfoResponse { cost: None, ..info }
}

fn complete(info: &GetInfoResponse) -> Verdict {
    for (field, value) in [
        ("adapter_name", &info.adapter_name),
        ("adapter_version", &info.adapter_version),
        ("instance_id", &info.instance_id),
        ("provider", &info.provider),
    ] {
        expect::shown(!value.is_empty(), &format!("{field} is set"), &info)?;
    }
    let served = info.contract_versions.iter().any(|version| version == PACKAGE);
    expect::that(served, &format!("contract_versions has {PACKAGE}"), || {
        format!("{:?}", info.contract_versions)
    })?;
    let scope = expect::some(info.scope.as_ref(), "scope is set after the self-check has passed")?;
    expect::shown(!scope.fingerprint.is_empty(), "scope.fingerprint is set", &scope)?;
    let limits = expect::some(info.limits.as_ref(), "limits are set")?;
    let fits = (1..=500).contains(&limits.batch_instances) && (1..=200).contains(&limits.batch_routes);
    expect::shown(fits, "limits.batch_instances is 1 to 500, limits.batch_routes 1 to 200", &limits)?;
    let names: BTreeSet<&str> = info.capabilities.iter().map(|one| one.name.as_str()).collect();
    expect::that(!names.is_empty(), "the adapter lists its capabilities", || "the list is empty".to_owned())?;
    expect::equal("each capability is listed once", &names.len(), &info.capabilities.len())?;
    let leveled = info.capabilities.iter().all(|one| one.level() != Level::Unspecified);
    expect::that(leveled, "each capability has a level", || format!("{:?}", info.capabilities))?;
    parameters(&info.parameters)
}

fn parameters(parameters: &[Parameter]) -> Verdict {
    let keys: BTreeSet<&str> = parameters.iter().map(|one| one.key.as_str()).collect();
    expect::equal("each parameter is declared once", &keys.len(), &parameters.len())?;
    for one in parameters {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let named = !one.key.is_empty() && one.key.bytes().all(plain);
        expect::that(named, "a parameter's key is lower case with dashes", || one.key.clone())?;
        let typed = one.r#type() != parameter::Type::Unspecified && !one.description.is_empty();
        expect::shown(typed, "a parameter has a type and a description", &one)?;
        let choices = one.r#type() != parameter::Type::Enum || !one.allowed_values.is_empty();
        expect::shown(choices, "an enumeration lists its values", &one)?;
    }
    Ok(())
}

/// adapter_service.proto, `WatchStatus`: the adapter sends the status at once, from memory. The check uses the fastest of several attempts.
async fn status(cx: &Context) -> Verdict {
    let context = cx.cluster().context();
    let api = cx.service()?;
    let mark = cx.proxy()?.mark();
    let mut quickest = Duration::MAX;
    for _try in 0..STATUS_TRIES {
        let begun = Instant::now();
        let mut watch = api.watch_status(&context).await?;
        let status = expect::some(watch.next(TIMEOUT).await?, "WatchStatus answers at once")?;
        quickest = quickest.min(begun.elapsed());
        let wants = "the status has the instance_id of its process";
        expect::shown(!status.instance_id.is_empty(), wants, &status)?;
        expect::shown(status.leader, "the replica that serves calls is the leader", &status)?;
    }
    expect::shown(quickest <= STATUS_WITHIN, "a status arrives within 50 ms", &quickest)?;
    let calls = cx.proxy()?.since(mark);
    // The adapter's periodic refreshes are listings, and they are fewer than the status requests of this check.
    let few = calls.only(|call| call.list.is_none()).is_empty() && calls.len() < STATUS_TRIES;
    expect::that(few, "a status causes no vendor call", || calls.to_string())
}

/// adapter_service.proto, `AdapterService`, and grpc.health.v1: health is reported for the process and for each service by name. Unknown
/// names are NOT_FOUND. Only one of several replicas reports that it serves, but the other replicas still answer `GetInfo`.
async fn health(cx: &Context) -> Verdict {
    let api = cx.service()?;
    expect::equal("the health of \"\" is SERVING (1)", &api.health("").await?, &SERVING)?;
    for service in served(cx) {
        let name = format!("{PACKAGE}.{service}");
        expect::equal(&format!("the health of {name} is SERVING (1)"), &api.health(&name).await?, &SERVING)?;
    }
    let wants = "the health of an unknown service is NOT_FOUND";
    match api.health("conformance.v1.NoSuchService").await {
        Ok(status) => return Err(Stop::failed(wants, format!("status {status}"))),
        Err(error) => expect::equal(wants, &error.status.code(), &Code::NotFound)?,
    }
    match cx.replicas(Role::ServiceController)?.as_slice() {
        [] => cx.without(Need::Replicas),
        // The standby replica is called with a method for load balancers.
        _ if !cx.can("loadbalancers") => cx.without(Need::Capability("loadbalancers")),
        replicas => standby(cx, replicas).await?,
    }
    Ok(())
}

fn served(cx: &Context) -> impl Iterator<Item = &'static str> {
    let capable = SERVICES.into_iter().filter(|(_, capability)| capability.is_none_or(|name| cx.can(name)));
    capable.map(|(service, _)| service)
}

async fn standby(cx: &Context, replicas: &[Api]) -> Verdict {
    let name = format!("{PACKAGE}.LoadBalancerService");
    let mut serving = 0_usize;
    for api in replicas {
        expect::equal("a standby reports its process as healthy", &api.health("").await?, &SERVING)?;
        if api.health(&name).await? == SERVING {
            serving = serving.saturating_add(1);
            continue;
        }
        api.info(&cx.cluster().context()).await?;
        let refused = api.put_backend_set(cx.cluster().balancer("web").set).await;
        expect::refused(refused, Reason::NotLeader)?;
    }
    expect::equal("one of the replicas serves", &serving, &1)
}

/// grpc.reflection.v1: the services are listed, and their descriptors contain every method and field of the published contract.
async fn reflection(cx: &Context) -> Verdict {
    let api = cx.service()?;
    let answer = reflect(&api, MessageRequest::ListServices(String::new())).await?;
    let MessageResponse::ListServicesResponse(list) = answer else {
        return Err(Stop::failed("reflection lists services", format!("{answer:?}")));
    };
    let listed: BTreeSet<String> = list.service.into_iter().map(|one| one.name).collect();
    let mut reported = BTreeMap::new();
    for service in served(cx) {
        let name = format!("{PACKAGE}.{service}");
        let wants = format!("reflection lists {name}");
        expect::shown(listed.contains(&name), &wants, &listed)?;
        for file in files(&api, MessageRequest::FileContainingSymbol(name)).await? {
            reported.insert(file.name().to_owned(), file);
        }
    }
    // A server may send only the requested file, without its imports.
    while let Some(name) = missing(&reported) {
        for file in files(&api, MessageRequest::FileByFilename(name.clone())).await? {
            reported.insert(file.name().to_owned(), file);
        }
        expect::that(reported.contains_key(&name), "reflection returns imported files", || name)?;
    }
    let published = FileDescriptorSet::decode(DESCRIPTOR_SET)
        .map_err(|error| Stop::failed("the suite has a descriptor of the contract", error.to_string()))?;
    let reported: BTreeSet<String> = reported.values().flat_map(facts).collect();
    let is_served = |file: &&FileDescriptorProto| {
        file.service.is_empty() || file.service.iter().any(|one| served(cx).any(|name| name == one.name()))
    };
    let ours = published.file.iter().filter(|file| file.package() == PACKAGE).filter(is_served);
    let lacking: Vec<String> = ours.flat_map(facts).filter(|fact| !reported.contains(fact)).collect();
    let wants = "the served contract is the published one";
    expect::that(lacking.is_empty(), wants, || format!("missing or different: {}", lacking.join(", ")))
}

/// Returns the name of an imported contract file that was not received yet.
fn missing(reported: &BTreeMap<String, FileDescriptorProto>) -> Option<String> {
    let imports = reported.values().flat_map(|file| &file.dependency);
    imports
        .filter(|name| name.starts_with("cloudadapter/"))
        .find(|name| !reported.contains_key(*name))
        .cloned()
}

async fn files(api: &Api, request: MessageRequest) -> Result<Vec<FileDescriptorProto>, Stop> {
    let wants = "reflection returns file descriptors";
    let MessageResponse::FileDescriptorResponse(answer) = reflect(api, request).await? else {
        return Err(Stop::failed(wants, "the answer has another type"));
    };
    let decoded = answer.file_descriptor_proto.iter().map(|bytes| FileDescriptorProto::decode(&bytes[..]));
    decoded.collect::<Result<_, _>>().map_err(|error| Stop::failed(wants, error.to_string()))
}

async fn reflect(api: &Api, request: MessageRequest) -> Result<MessageResponse, Stop> {
    let wants = "grpc.reflection.v1 is served";
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let asked = async {
        let mut client = ServerReflectionClient::new(api.channel());
        let answers = client.server_reflection_info(futures::stream::iter([request])).await?;
        answers.into_inner().next().await.transpose()
    };
    let answer = tokio::time::timeout(TIMEOUT, asked)
        .await
        .map_err(|_elapsed| Stop::failed(wants, format!("no answer within {} s", TIMEOUT.as_secs())))?
        .map_err(|status| Stop::failed(wants, status.to_string()))?;
    expect::some(answer.and_then(|answer| answer.message_response), wants)
}

/// Returns every method and field of a file as text. The text includes the properties that affect the wire format.
fn facts(file: &FileDescriptorProto) -> Vec<String> {
    let mut facts = Vec::new();
    for service in &file.service {
        for method in &service.method {
            let streams = if method.server_streaming() { " stream" } else { "" };
            let (input, output) = (method.input_type(), method.output_type());
            facts.push(format!("{}.{}({input}){streams} {output}", service.name(), method.name()));
        }
    }
    let mut messages: Vec<_> = file.message_type.iter().map(|one| (one.name().to_owned(), one)).collect();
    while let Some((name, message)) = messages.pop() {
        for field in &message.field {
            let (label, kind) = (field.label(), field.r#type());
            let optional = if field.proto3_optional() { " optional" } else { "" };
            let of = field.type_name();
            facts.push(format!(
                "{name} {} = {} {label:?} {kind:?}{of}{optional}",
                field.name(),
                field.number()
            ));
        }
        messages.extend(message.nested_type.iter().map(|one| (format!("{name}.{}", one.name()), one)));
    }
    facts
}

/// common.proto, `RequestContext`: an adapter serves callers of a newer contract. It ignores unknown fields, and treats an unknown priority
/// as unset.
async fn newer(cx: &Context) -> Verdict {
    const FIELD: [u8; 4] = [0xC2, 0x3E, 0x01, 0x78];
    let api = cx.service()?;
    let mut context = cx.cluster().context();
    context.priority = 99;
    let plain = api.info(&context).await?;
    let mut message = GetInfoRequest { context: Some(context) }.encode_to_vec();
    // Field 1000, length-delimited, one byte. Source: protobuf encoding, "message structure".
    message.extend(FIELD);
    let answer = api.raw("/cloudadapter.v1alpha1.AdapterService/GetInfo", message).await?;
    let answer = GetInfoResponse::decode(&answer[..])
        .map_err(|error| Stop::failed("GetInfo answers with a GetInfoResponse", error.to_string()))?;
    // The answer may come from another replica, so the instance ID is not compared.
    let leveled = |info| GetInfoResponse { instance_id: String::new(), ..stable(info) };
    expect::equal("an unknown field does not change the answer", &leveled(answer), &leveled(plain))
}

/// adapter_service.proto, `Capability`: a feature that the adapter does not list is refused with UNSUPPORTED_FEATURE, and never ignored.
async fn absent(cx: &Context) -> Verdict {
    let good = cx.cluster().balancer("web");
    cx.put(&good).await?;
    for (capability, change) in FEATURES {
        if cx.can(capability) {
            continue;
        }
        let mut request = good.clone().spec(change).request;
        request.dry_run = true;
        cx.note(format!("without {capability}"));
        expect::refused(cx.service()?.ensure_load_balancer(request).await, Reason::UnsupportedFeature)?;
    }
    Ok(())
}

type Feature = (&'static str, fn(&mut LoadBalancerSpec));

/// Changes of a load balancer, each with the capability that it needs.
const FEATURES: [Feature; 23] = [
    ("lb.internal", |spec| spec.scheme = Scheme::Internal.into()),
    ("lb.source-ranges", |spec| spec.source_ranges = vec!["192.0.2.0/24".to_owned()]),
    ("lb.proxy-protocol", |spec| {
        let proxied = listener::ProxyProtocol::V2.into();
        spec.listeners.iter_mut().for_each(|one| one.proxy_protocol = proxied);
    }),
    ("lb.health-check.http", |spec| {
        let check = spec.health_check.get_or_insert_default();
        check.kind = health_check::Kind::Http.into();
        check.path = "/healthz".to_owned();
    }),
    ("lb.session-affinity", |spec| {
        let kind = session_affinity::Kind::ClientIp.into();
        spec.session_affinity = Some(SessionAffinity { kind, timeout: None });
    }),
    ("lb.udp", |spec| spec.listeners = vec![udp(53)]),
    ("lb.mixed-protocols", |spec| spec.listeners = vec![tcp(53), udp(53)]),
    ("lb.dual-stack", |spec| spec.ip_families = vec![IpFamily::Ipv4.into(), IpFamily::Ipv6.into()]),
    ("lb.reserved-ip", |spec| spec.requested_addresses = vec!["192.0.2.7".to_owned()]),
    ("lb.sctp", |spec| {
        let sctp = cloud_api_proto::v1alpha1::Protocol::Sctp.into();
        spec.listeners.iter_mut().for_each(|one| one.protocol = sctp);
    }),
    ("lb.node-direct", |spec| {
        for one in &mut spec.listeners {
            one.target_kind = listener::TargetKind::NodeDirect.into();
            one.node_port = None;
        }
    }),
    ("lb.tls", |spec| {
        spec.listeners.iter_mut().for_each(|one| one.tls_refs = vec!["certificate-1".to_owned()]);
    }),
    ("lb.address-pool", |spec| spec.address_pool = "pool-1".to_owned()),
    ("lb.subnets", |spec| spec.subnets = vec!["subnet-1".to_owned()]),
    ("lb.size", |spec| spec.size = "large".to_owned()),
    ("lb.zone", |spec| spec.zone = "zone-1".to_owned()),
    ("lb.name", |spec| spec.name = "name-1".to_owned()),
    ("lb.shared", |spec| spec.load_balancer_id = "load-balancer-1".to_owned()),
    ("lb.keep-address", |spec| spec.set_address_retention(AddressRetention::Keep)),
    ("lb.algorithm", |spec| {
        spec.listeners.iter_mut().for_each(|one| one.set_algorithm(listener::Algorithm::SourceIp));
    }),
    ("lb.listener-protocol", |spec| {
        spec.listeners.iter_mut().for_each(|one| one.set_application(listener::Application::Http));
    }),
    ("lb.connect-timeout", |spec| {
        let seconds = prost_types::Duration { seconds: 7, nanos: 0 };
        spec.listeners.iter_mut().for_each(|one| one.connect_timeout = Some(seconds));
    }),
    ("lb.connection-limit", |spec| {
        spec.listeners.iter_mut().for_each(|one| one.connection_limit = Some(1000));
    }),
];

/// adapter_service.proto, `GetInfoResponse.instance_id`: each process has its own ID, so a restart changes it.
async fn swapped(cx: &Context) -> Verdict {
    let context = cx.cluster().context();
    let before = cx.service()?.info(&context).await?.instance_id;
    cx.process().restart().await?;
    let after = cx.service()?.info(&context).await?.instance_id;
    expect::that(before != after, "a new process has a new instance ID", || after)
}
