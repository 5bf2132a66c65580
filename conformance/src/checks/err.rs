//! ERR: refusals say why, in words that a program can act on.

use cloud_api_proto::{
    Reason,
    v1alpha1::{EnsureLoadBalancerRequest, Existence, InstanceRef, PutBackendSetRequest, instance_ref::Ref},
};

use crate::{
    check::{Check, Need, Verdict},
    context::Context,
    expect,
    hooks::Hook,
    proxy::{Action, Rule},
};

pub(super) const CHECKS: &[Check] = &[
    Check::t1("ERR-02", "missing-required-field-names-the-field", |cx| Box::pin(missing_field(cx)))
        .section("common.proto, REASON_FIELD_INVALID")
        .needs(&[Need::Capability("loadbalancers")]),
    Check::t2("ERR-06", "vendor-auth-failure-is-never-not-found", |cx| Box::pin(auth_is_not_absence(cx)))
        .section(
            "common.proto, REASON_VENDOR_AUTH, REASON_VENDOR_FORBIDDEN; instance_service.proto, Existence",
        )
        .needs(&[Need::Proxy, Need::Capability("instances"), Need::Hook(Hook::CreateInstances)]),
];

/// common.proto, `REASON_FIELD_INVALID`: a missing field is named, in `BadRequest`, by its path in the request.
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

/// common.proto, `REASON_VENDOR_AUTH` and `REASON_VENDOR_FORBIDDEN`: never absence. So for each answer by which vendors reject
/// credentials, neither a call nor an item says that something is gone; and a name is not looked up in vain.
async fn auth_is_not_absence(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let mut request = cluster.instances(cluster.live(), machines.iter().map(|one| one.provider_id.as_str()));
    let name = Ref::NodeName("conformance-nobody".to_owned());
    request.refs.push(InstanceRef { r#ref: Some(name), ..InstanceRef::default() });
    for status in [401, 403] {
        let rejected = cx.proxy()?.inject(Rule::all(), Action::Answer(status));
        let wants = format!(
            "a vendor that answers {status} proves nothing: VENDOR_AUTH or VENDOR_FORBIDDEN, or items UNKNOWN"
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
        let asked = rejected.fired() > 0;
        expect::that(asked, "max_staleness 0 asks the vendor", || "the vendor was not asked".to_owned())?;
        drop(rejected);
        cx.heal().await?;
    }
    Ok(())
}
