//! ERR: errors have reasons that a program can act on.

use std::time::{Duration, SystemTime};

use cloud_api_proto::{
    AdapterError, DOMAIN, Reason,
    error::PUSHBACK_HEADER,
    v1alpha1::{
        EnsureLoadBalancerRequest, Existence, HealthCheck, Instance, InstanceRef, InstanceResult,
        PutBackendSetRequest, RouteUpsert, cost::Source, instance_ref::Ref, put_backend_set_request::Content,
    },
};
use tonic_types::StatusExt as _;

use super::{BALANCERS, CREATE, INSTANCES};
use crate::checks::prelude::*;

pub(super) const CHECKS: &[Check] = &[
    Check::t1("ERR-01", "every-error-has-errorinfo-with-known-reason", run!(error_info))
        .section("common.proto, Reason")
        .needs(&[BALANCERS, INSTANCES]),
    Check::t1("ERR-02", "missing-required-field-names-the-field", run!(missing_field))
        .section("common.proto, REASON_FIELD_INVALID")
        .needs(&[BALANCERS]),
    Check::t1("ERR-03", "unknown-parameter-is-refused-with-suggestion", run!(unknown_parameter))
        .section("common.proto, REASON_UNKNOWN_PARAMETER")
        .needs(&[BALANCERS]),
    Check::t2("ERR-04", "oversized-and-malformed-values-are-refused-before-vendor", run!(malformed))
    .section("common.proto, REASON_FIELD_INVALID; the comments at each field")
    .needs(&[Need::Proxy, BALANCERS, INSTANCES]),
    Check::t2("ERR-05", "resource-exhausted-always-has-retryinfo", run!(exhausted))
        .section("common.proto, REASON_VENDOR_THROTTLED, REASON_BUDGET_EXHAUSTED")
        .needs(&[Need::Proxy, INSTANCES, CREATE]),
    Check::t2("ERR-06", "vendor-auth-failure-is-never-not-found", run!(auth_is_not_absence))
        .section(
            "common.proto, REASON_VENDOR_AUTH, REASON_VENDOR_FORBIDDEN; instance_service.proto, Existence",
        )
        .needs(&[Need::Proxy, INSTANCES, CREATE]),
    Check::t1("ERR-07", "unset-optional-differs-from-zero", run!(unset_is_not_zero))
        .section("common.proto, RequestContext.max_staleness; load_balancer_service.proto, HealthCheck.port, Listener.connection_limit, Backend.weight")
        .needs(&[
            INSTANCES,
            BALANCERS,
            CREATE,
        ]),
    Check::t2("ERR-08", "vendor-request-id-is-passed-through", run!(request_id))
        .section("common.proto, ItemError.metadata")
        .needs(&[
            Need::Proxy,
            Need::Param("vendor.requestIdHeader"),
            INSTANCES,
            CREATE,
        ]),
];

const RETRY_MIN: Duration = Duration::from_millis(500);
/// Maximum bytes of a string, unless its field documents another limit.
const STRING_MAX: usize = 256;

/// common.proto, `Reason`: every error carries `ErrorInfo` with the contract's domain, a reason of the contract and the matching code.
async fn error_info(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let good = cluster.balancer("web");
    let (service, node, route) = (cx.service()?, cx.node()?, cx.route()?);
    let nowhere = EnsureLoadBalancerRequest { spec: None, ..good.request.clone() };
    explained(&service.ensure_load_balancer(nowhere).await)?;
    explained(&service.ensure_load_balancer(good.request.clone()).await)?;
    let mut anonymous = good.set.clone();
    anonymous.context = None;
    explained(&service.put_backend_set(anonymous).await)?;
    let mut removal = good.removal();
    removal.key = None;
    explained(&service.delete_load_balancer(removal).await)?;
    let crowd = vec!["x"; 501];
    explained(&node.batch_get_instances(cluster.instances(cluster.context(), crowd)).await)?;
    let mut fenceless = cluster.routes(vec![]);
    fenceless.fence = None;
    explained(&route.apply_routes(fenceless).await)?;
    let typo = good.spec(|spec| {
        spec.parameters.insert("no-such-parameter".to_owned(), "1".to_owned());
    });
    cx.put(&typo).await?;
    explained(&service.ensure_load_balancer(typo.request).await)
}

fn explained<T: std::fmt::Debug>(answer: &CallResult<T>) -> Verdict {
    let error = match answer {
        Ok(answer) => return Err(Stop::failed("the call is refused", format!("OK: {answer:?}"))),
        Err(error) => error,
    };
    let details = error.status.get_error_details();
    let info = expect::some(details.error_info(), "an error carries google.rpc.ErrorInfo")?;
    expect::equal("ErrorInfo.domain is the contract's", &info.domain.as_str(), &DOMAIN)?;
    let known = error.reason != Reason::Unspecified;
    expect::that(known, "ErrorInfo.reason is one of the contract, without REASON_", || info.reason.clone())?;
    expect::equal("the gRPC code matches the reason", &error.status.code(), &error.reason.code())?;
    let names_a_field = error.reason != Reason::FieldInvalid || !error.violations.is_empty();
    expect::that(names_a_field, "FIELD_INVALID carries google.rpc.BadRequest", || error.to_string())
}

/// common.proto, `REASON_UNKNOWN_PARAMETER`: an undeclared key is refused, and metadata `nearest` suggests a similar declared one.
async fn unknown_parameter(cx: &Context) -> Verdict {
    let good = cx.cluster().balancer("web");
    cx.put(&good).await?;
    let with = |key: &str| {
        let key = key.to_owned();
        good.clone().spec(|spec| {
            spec.parameters.insert(key, "1".to_owned());
        })
    };
    let api = cx.service()?;
    let strange = with("conformance-no-such-parameter");
    expect::refused(api.ensure_load_balancer(strange.request).await, Reason::UnknownParameter)?;
    // A typing error: one letter of the longest key is doubled.
    let Some(key) = cx.info().parameters.iter().map(|one| one.key.as_str()).max_by_key(|key| key.len())
    else {
        return Ok(());
    };
    let slip = with(&format!("{key}{}", key.chars().last().unwrap_or('x')));
    let error = expect::refused(api.ensure_load_balancer(slip.request).await, Reason::UnknownParameter)?;
    let nearest = error.metadata.get("nearest").map(String::as_str);
    expect::equal("metadata `nearest` has the key that the caller probably meant", &nearest, &Some(key))
}

/// common.proto, `REASON_FIELD_INVALID`: values that are too long, too many or malformed are refused before any vendor call. The error
/// names the field.
async fn malformed(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let good = cluster.balancer("web");
    cx.put(&good).await?;
    let mark = cx.proxy()?.mark();
    let api = cx.service()?;
    let long = "x".repeat(STRING_MAX.saturating_add(1));
    let wrong = |change: &dyn Fn(&mut EnsureLoadBalancerRequest)| {
        let mut request = good.request.clone();
        change(&mut request);
        request
    };
    let spec = |change: &dyn Fn(&mut cloud_api_proto::v1alpha1::LoadBalancerSpec)| {
        wrong(&|request| change(request.spec.get_or_insert_default()))
    };
    let probed = |check: HealthCheck| spec(&|spec| spec.health_check = Some(check.clone()));
    for (field, request) in [
        ("spec.listeners[0].port", spec(&|spec| spec.listeners = vec![tcp(0)])),
        ("spec.listeners[0].port", spec(&|spec| spec.listeners = vec![tcp(65_536)])),
        ("spec.listeners[1].port", spec(&|spec| spec.listeners = vec![tcp(80), tcp(80)])),
        (
            "spec.listeners[0].node_port",
            spec(&|spec| {
                spec.listeners.iter_mut().for_each(|one| one.node_port = Some(70_000));
            }),
        ),
        (
            "spec.listeners[0].protocol",
            spec(&|spec| {
                spec.listeners.iter_mut().for_each(|one| one.protocol = 0);
            }),
        ),
        ("spec.ip_families", spec(&|spec| spec.ip_families = vec![0])),
        ("spec.requested_addresses[0]", spec(&|spec| spec.requested_addresses = vec!["10.0.0".to_owned()])),
        ("spec.source_ranges[0]", spec(&|spec| spec.source_ranges = vec!["192.0.2.0/33".to_owned()])),
        ("spec.health_check.port", probed(HealthCheck { port: Some(70_000), ..HealthCheck::default() })),
        ("spec.scheme", spec(&|spec| spec.scheme = 99)),
        ("owner.name", wrong(&|request| request.owner.get_or_insert_default().name.clone_from(&long))),
        (
            "key.owner_uid",
            wrong(&|request| {
                request.key.get_or_insert_default().owner_uid.clone_from(&long);
                request.owner.get_or_insert_default().uid.clone_from(&long);
            }),
        ),
        (
            "context.cluster_name",
            wrong(&|request| {
                request.context.get_or_insert_default().cluster_name.clone_from(&long);
            }),
        ),
    ] {
        invalid(api.ensure_load_balancer(request).await, field)?;
    }
    crowds(cx).await?;
    let calls = cx.proxy()?.since(mark);
    let caused = calls.only(|call| call.list.is_none());
    expect::that(caused.is_empty(), "a refused request causes no vendor call", || calls.to_string())
}

/// Verifies that requests with more items than permitted are refused.
async fn crowds(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let crowd = vec!["x"; 501];
    invalid(cx.node()?.batch_get_instances(cluster.instances(cluster.live(), crowd)).await, "refs")?;
    if !cx.can("routes") {
        return Ok(());
    }
    let nowhere = RouteUpsert::default();
    invalid(cx.route()?.apply_routes(cluster.routes(vec![nowhere; 201])).await, "upserts")
}

fn invalid<T: std::fmt::Debug>(answer: CallResult<T>, field: &str) -> Verdict {
    let error: CallError = match expect::refused(answer, Reason::FieldInvalid) {
        Err(Stop::Failed(finding)) => {
            return Err(Stop::failed(format!("{field}: {}", finding.wants), finding.came));
        }
        other => other?,
    };
    expect::names(&error, field)
}

/// common.proto, `REASON_VENDOR_THROTTLED` and `REASON_BUDGET_EXHAUSTED`: a refusal for lack of budget has a retry delay in `RetryInfo`.
/// The header that gRPC clients evaluate has the same value. This also holds during a pause.
async fn exhausted(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let api = cx.node()?.within(Duration::from_secs(4));
    // The pause must be longer than the deadline, or else the call is not refused. Without a Retry-After, the adapter chooses the pause.
    for (hint, calls) in [(Some(Duration::from_secs(30)), 2), (None, 1)] {
        let throttled = cx.proxy()?.inject(Rule::all(), Action::Throttle(hint));
        for _call in 0..calls {
            let ids = machines.iter().map(|machine| machine.provider_id.as_str());
            match api.batch_get_instances(cluster.instances(cluster.live(), ids)).await {
                Err(error) => come_back(&error)?,
                Ok(answer) => answer.results.into_iter().try_for_each(unknown_for_now)?,
            }
        }
        throttled.must_have_fired("a read with max_staleness 0 causes a vendor read")?;
        drop(throttled);
        cx.heal().await?;
    }
    Ok(())
}

fn unknown_for_now(result: InstanceResult) -> Verdict {
    let unknown = result.existence() == Existence::Unknown;
    expect::shown(unknown, "an item that could not be read is UNKNOWN", &result)?;
    let error = expect::some(result.error, "UNKNOWN is explained in `error`")?;
    let wants = "an item that failed for lack of budget has a retry delay";
    expect::some(error.retry_after, wants).map(drop)
}

fn come_back(error: &CallError) -> Verdict {
    let exhausted =
        matches!(error.reason, Reason::VendorThrottled | Reason::BudgetExhausted | Reason::QueueFull);
    let wants = "a throttled call is refused with RESOURCE_EXHAUSTED and its reason";
    expect::that(exhausted, wants, || error.to_string())?;
    explained::<()>(&Err(error.clone()))?;
    let details = error.status.get_error_details();
    let reported = details.retry_info().and_then(|info| info.retry_delay);
    let reported = expect::some(reported, "RESOURCE_EXHAUSTED carries google.rpc.RetryInfo")?;
    expect::shown(reported >= RETRY_MIN, "the retry delay is at least 500 ms", &reported)?;
    let header = error.status.metadata().get(PUSHBACK_HEADER).and_then(|value| value.to_str().ok());
    let millis = reported.as_millis().to_string();
    expect::equal("grpc-retry-pushback-ms has the same retry delay", &header, &Some(millis.as_str()))
}

/// common.proto, `REASON_FIELD_INVALID`: `BadRequest` names a missing field by its path in the request.
async fn missing_field(cx: &Context) -> Verdict {
    let good = cx.cluster().balancer("web");
    cx.put(&good).await?;
    let api = cx.service()?;
    let without = |take: fn(&mut EnsureLoadBalancerRequest)| {
        let mut request = good.request.clone();
        take(&mut request);
        request
    };
    for (field, request) in [
        ("context", without(|request| request.context = None)),
        ("context.cluster_id", without(|request| request.context.get_or_insert_default().cluster_id.clear())),
        ("key", without(|request| request.key = None)),
        ("owner", without(|request| request.owner = None)),
        ("fence", without(|request| request.fence = None)),
        ("spec", without(|request| request.spec = None)),
        ("spec.listeners", without(|request| request.spec.get_or_insert_default().listeners.clear())),
        ("spec.ip_families", without(|request| request.spec.get_or_insert_default().ip_families.clear())),
    ] {
        let error = expect::refused(api.ensure_load_balancer(request).await, Reason::FieldInvalid)?;
        expect::names(&error, field)?;
    }
    let nameless = PutBackendSetRequest { id: String::new(), ..good.set.clone() };
    let error = expect::refused(api.put_backend_set(nameless).await, Reason::FieldInvalid)?;
    expect::names(&error, "id")
}

/// common.proto, `REASON_VENDOR_AUTH` and `REASON_VENDOR_FORBIDDEN`: rejected credentials never prove absence. The check tries every status
/// with which vendors reject credentials. No call and no item may report an object as gone, and a look-up by name must fail.
async fn auth_is_not_absence(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let mut request = cluster.instances(cluster.live(), machines.iter().map(|one| one.provider_id.as_str()));
    let name = Ref::NodeName("conformance-unknown".to_owned());
    request.refs.push(InstanceRef { r#ref: Some(name), ..InstanceRef::default() });
    for status in [401, 403] {
        let rejected = cx.proxy()?.inject(Rule::all(), Action::Answer(status));
        let wants = format!(
            "a vendor that answers {status} proves nothing: VENDOR_AUTH or VENDOR_FORBIDDEN, or items are UNKNOWN"
        );
        match cx.node()?.batch_get_instances(request.clone()).await {
            Ok(answer) => {
                let unknown = answer.results.iter().all(|result| result.existence() == Existence::Unknown);
                expect::that(unknown, &wants, || format!("{:?}", answer.results))?;
            }
            Err(error) => {
                let rejects = matches!(error.reason, Reason::VendorAuth | Reason::VendorForbidden);
                expect::that(rejects, &wants, || error.to_string())?;
            }
        }
        rejected.must_have_fired("max_staleness 0 causes a vendor read")?;
        drop(rejected);
        cx.heal().await?;
    }
    Ok(())
}

/// common.proto, `RequestContext.max_staleness`: if it is unset, a cached answer is sufficient; zero requires a vendor read.
/// load_balancer_service.proto: an unset optional number means the default, and zero means zero.
#[expect(clippy::disallowed_methods, reason = "the adapter reports times of the wall clock")]
async fn unset_is_not_zero(cx: &Context) -> Verdict {
    let machines = cx.machines(1).await?;
    let cluster = cx.cluster();
    let ids: Vec<&str> = machines.iter().map(|machine| machine.provider_id.as_str()).collect();
    let asked = SystemTime::now();
    let live = cx.node()?.batch_get_instances(cluster.instances(cluster.live(), ids.iter().copied())).await?;
    let cost = expect::some(live.cost, "an answer has a Cost")?;
    let observed = expect::some(cost.observed_at, "an answer of the vendor has the time of the read")?;
    let observed = SystemTime::try_from(observed)
        .map_err(|error| Stop::failed("observed_at is a valid time", error.to_string()))?;
    // Both times are wall-clock times. They may come from two hosts.
    let fresh = observed.checked_add(CLOCKS).is_some_and(|observed| observed >= asked);
    let wants = "max_staleness 0 causes a vendor read that begins after the request arrived";
    expect::that(fresh, wants, || format!("requested at {asked:?}, observed at {observed:?}"))?;
    let known = cx.node()?.batch_get_instances(cluster.instances(cluster.context(), ids)).await?;
    let cost = expect::some(known.cost, "an answer has a Cost")?;
    let cheap = cost.vendor_calls == 0 && cost.source() != Source::Live;
    expect::shown(cheap, "without max_staleness, a recent read is sufficient", &cost)?;
    let good = cluster.balancer("web");
    cx.put(&good).await?;
    let probed = |port| {
        let mut request = good.clone().spec(|spec| spec.health_check = Some(port)).request;
        request.dry_run = true;
        request
    };
    let api = cx.service()?;
    api.ensure_load_balancer(probed(HealthCheck::default())).await?;
    let zero = HealthCheck { port: Some(0), ..HealthCheck::default() };
    invalid(api.ensure_load_balancer(probed(zero)).await, "spec.health_check.port")?;
    let mut closed =
        good.spec(|spec| spec.listeners.iter_mut().for_each(|one| one.connection_limit = Some(0))).request;
    closed.dry_run = true;
    invalid(api.ensure_load_balancer(closed).await, "spec.listeners[0].connection_limit")?;
    weightless(cx, &machines).await
}

/// load_balancer_service.proto, `Backend.weight`: unset means an equal share, zero means no traffic. Two sets that differ only in such a
/// weight have different content. Therefore one of them cannot replace the other under the same ID.
async fn weightless(cx: &Context, machines: &[Instance]) -> Verdict {
    let equal = cx.cluster().balancer("weights").backends(machines);
    cx.put(&equal).await?;
    let mut none = equal.set;
    if let Some(Content::Full(list)) = &mut none.content {
        list.backends.iter_mut().for_each(|one| one.weight = Some(0));
    }
    match cx.service()?.put_backend_set(none).await {
        Ok(answer) => {
            let wants =
                "a weight of 0 differs from an unset weight: the same ID with other content is refused";
            Err(Stop::failed(wants, format!("{answer:?}")))
        }
        refused => invalid(refused, "id"),
    }
}

/// Maximum difference between the wall clocks of adapter and suite.
const CLOCKS: Duration = Duration::from_secs(2);

/// common.proto, `ItemError.metadata`: an error carries the vendor's request ID, with which the vendor's support can find the request.
async fn request_id(cx: &Context) -> Verdict {
    const ID: &str = "req-conformance-7f3a";
    let machines = cx.machines(1).await?;
    let cluster = cx.cluster();
    let header = cx.params().vendor.request_id_header.clone();
    let header = expect::some(header, "vendor.requestIdHeader is set")?;
    let headers = vec![(header, ID.to_owned())];
    let answer = Action::AnswerWith { status: 500, headers, body: "{}".to_owned() };
    let _broken = cx.proxy()?.inject(Rule::all(), answer);
    let ids = machines.iter().map(|machine| machine.provider_id.as_str());
    let request = cluster.instances(cluster.live(), ids);
    let metadata: Vec<_> = match cx.node()?.batch_get_instances(request).await {
        Err(error) => {
            let AdapterError { metadata, .. } = &*error.error;
            metadata.clone().into_iter().collect()
        }
        Ok(answer) => answer
            .results
            .into_iter()
            .filter_map(|result| result.error)
            .flat_map(|error| error.metadata)
            .collect(),
    };
    let reported = metadata.iter().any(|(key, value)| key == "vendor_request_id" && value == ID);
    expect::shown(reported, "metadata `vendor_request_id` is the vendor's ID of the request", &metadata)
}
