//! Checks that the Services of the release have an address, are ready, and have endpoints.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{Api, ResourceExt as _, api::ListParams};
use telemetry::report::grouped;

use super::super::{
    About, Check, CheckResult,
    causes::{Need, to_reconcile},
    flags::Classes,
};
use crate::{cluster::Cluster, missing::Missing, objects::endpoints, options::Component, words::named};

/// The condition of Services, and its reason while the load balancer is created or changed. Source:
/// service-controller/src/plan/conditions.rs and readiness.rs.
const READY: &str = "cloudadapter.dev/Ready";
const PENDING: &str = "LoadBalancerPending";
/// Maximum number of Services without an address that are named.
const MAX_NAMED: usize = 3;
/// Reasons that are about the adapter or the cloud, and not about one Service. Source: service-controller/src/error.rs and the contract.
const FOLLOWING: [&str; 6] =
    ["AdapterUnreachable", "NotLeader", "Starting", "Draining", "VendorUnavailable", "VendorAuth"];

const SERVICES: About = About {
    name: "the Services of type LoadBalancer have an address and are ready",
    hint: "see `cloudctl explain service NAME`",
    link: "docs/troubleshoot.md#services",
};
const ENDPOINTS: About = About {
    name: "the Services with a load balancer have a ready endpoint",
    hint: "see kubectl get endpointslices and the pods of the Service",
    link: "docs/cloudctl.md#explain",
};

/// `classes`: the Services that the release manages. `reasons`: what each Service waits for, according to the status pages.
pub(in super::super) async fn check(
    cluster: &Cluster,
    classes: &Classes,
    reasons: &BTreeMap<String, String>,
) -> [Check; 2] {
    let api: Api<Service> = cluster.all();
    match cluster.ask("services", async { api.list(&ListParams::default()).await }).await {
        Ok(services) => {
            let own = balanced(services.items, classes);
            let ready = endpoints::all_ready(cluster).await;
            let ready = ready.as_ref().map(|ready| of_endpoints(&own, ready));
            [of_services(&own, reasons), ready.unwrap_or_else(|why| ENDPOINTS.unknown(why))]
        }
        Err(why) => unknown(&why),
    }
}

pub(in super::super) fn unknown(why: &Missing) -> [Check; 2] {
    [SERVICES.unknown(why), ENDPOINTS.unknown(why)]
}

/// Returns the Services of type LoadBalancer with these classes. The others belong to other controllers.
fn balanced(mut all: Vec<Service>, classes: &Classes) -> Vec<Service> {
    all.retain(|it| {
        let spec = it.spec.as_ref();
        spec.is_some_and(|spec| {
            spec.type_.as_deref() == Some("LoadBalancer") && classes.contains(&spec.load_balancer_class)
        })
    });
    all
}

fn has_address(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|it| it.ingress.as_ref()).is_some_and(|it| !it.is_empty())
}

/// Returns the condition about the load balancer, if it is false.
fn not_ready(service: &Service) -> Option<&Condition> {
    let mut conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|it| it.type_ == READY && it.status == "False")
}

fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

/// A load balancer without endpoints may be intended, for example while a Deployment has no replicas.
fn of_endpoints(own: &[Service], ready: &BTreeSet<String>) -> Check {
    let served: Vec<String> = own.iter().filter(|it| has_address(it)).map(key).collect();
    let lacking: Vec<String> = served.iter().filter(|key| !ready.contains(*key)).cloned().collect();
    if lacking.is_empty() {
        return ENDPOINTS.ok(format!("{} Services", served.len()));
    }
    let found = format!("of {} Services with an address, these have none: {}", served.len(), named(&lacking));
    ENDPOINTS.result(CheckResult::Warning, found)
}

/// Counts Services without an address, grouped by what they wait for, and names the first Service with an address that is not ready.
fn of_services(own: &[Service], reasons: &BTreeMap<String, String>) -> Check {
    let (served, lacking): (Vec<&Service>, Vec<&Service>) = own.iter().partition(|it| has_address(it));
    let mut troubles = Vec::new();
    if !lacking.is_empty() {
        let counts = format!("{} of {}", lacking.len(), own.len());
        troubles.push(format!("{counts} Services have no address: {}", causes(&lacking, reasons)));
    }
    let not_ready = served.iter().filter_map(|it| Some((key(it), not_ready(it)?)));
    let (changing, failing): (Vec<_>, Vec<_>) = not_ready.partition(|(_, it)| it.reason == PENDING);
    if let Some((key, Condition { reason, message, .. })) = failing.first() {
        let more = failing.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
        troubles.push(format!(
            "{} of {} Services with an address are not ready: {key}: {reason}: {message}{more}",
            failing.len(),
            served.len()
        ));
    }
    if troubles.is_empty() && !changing.is_empty() {
        let counts = format!("{} of {}", changing.len(), served.len());
        let found = format!("Services with an address whose load balancer is being changed: {counts}");
        return SERVICES.result(CheckResult::Waiting, found);
    }
    let faulty = lacking.into_iter().chain(served.into_iter().filter(|it| is_failing(it)));
    let faults = faulty.map(needs).collect();
    SERVICES.judged(&troubles, format!("{} Services", own.len())).following(faults)
}

/// Names the first Services with their causes, and counts the causes of all if there are more.
fn causes(lacking: &[&Service], reasons: &BTreeMap<String, String>) -> String {
    let shown = lacking.iter().take(MAX_NAMED).map(|it| format!("{}: {}", key(it), cause(it, reasons)));
    let shown = shown.collect::<Vec<_>>().join("; ");
    if lacking.len() <= MAX_NAMED {
        return shown;
    }
    let all: Vec<&str> = lacking.iter().map(|it| cause(it, reasons)).collect();
    format!("{}; such as {shown}", grouped(&all))
}

fn is_failing(service: &Service) -> bool {
    not_ready(service).is_some_and(|it| it.reason != PENDING)
}

/// What a Service needs to become ready, unless its condition has a cause of its own.
fn needs(service: &Service) -> Vec<Need> {
    match not_ready(service) {
        Some(it) if it.reason != PENDING && !FOLLOWING.contains(&it.reason.as_str()) => Vec::new(),
        _ => to_reconcile(Component::ServiceController),
    }
}

fn cause<'a>(service: &'a Service, reasons: &'a BTreeMap<String, String>) -> &'a str {
    let of_condition = || not_ready(service).map(|it| it.reason.as_str());
    reasons.get(&key(service)).map(String::as_str).or_else(of_condition).unwrap_or("no cause is known")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check::causes::marked;

    fn service(name: &str, address: Option<&str>, class: Option<&str>, conditions: &[Value]) -> Service {
        let ingress: Vec<Value> = address.iter().map(|ip| json!({ "ip": ip })).collect();
        let service = json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "type": "LoadBalancer", "loadBalancerClass": class },
            "status": { "loadBalancer": { "ingress": ingress }, "conditions": conditions },
        });
        serde_json::from_value(service).expect("a Service")
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "quota is used up",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        })
    }

    const ADDRESS: Option<&str> = Some("192.0.2.1");

    fn judged(own: &[Service]) -> (CheckResult, String) {
        let check = of_services(own, &BTreeMap::new());
        (check.result, check.found)
    }

    #[test]
    fn services_without_an_address_are_counted_by_cause() {
        let failing = condition(READY, "False", "FieldInvalid");
        let all = [
            service("a", ADDRESS, None, &[]),
            service("b", None, None, std::slice::from_ref(&failing)),
            service("c", None, None, &[]),
            service("d", None, None, &[failing]),
        ];
        let reasons = BTreeMap::from([("default/b".to_owned(), "VENDOR_QUOTA".to_owned())]);
        let check = of_services(&all, &reasons);
        assert_eq!(check.result, CheckResult::Failed);
        assert_eq!(
            check.found,
            "3 of 4 Services have no address: default/b: VENDOR_QUOTA; default/c: no cause is known; default/d: FieldInvalid"
        );
        assert_eq!(of_services(&all[..1], &reasons).result, CheckResult::Ok);
        let more = [&all[1..], &[service("e", None, None, &[])]].concat();
        assert_eq!(
            of_services(&more, &reasons).found,
            "4 of 4 Services have no address: 2 × no cause is known, 1 × FieldInvalid, 1 × VENDOR_QUOTA; such as \
             default/b: VENDOR_QUOTA; default/c: no cause is known; default/d: FieldInvalid"
        );

        let check = of_endpoints(&all, &BTreeSet::from(["default/b".to_owned()]));
        assert_eq!(check.result, CheckResult::Warning, "a Deployment may have no replicas");
        assert_eq!(check.found, "of 1 Services with an address, these have none: 1: default/a");
        let ready = BTreeSet::from(["default/a".to_owned()]);
        assert_eq!(of_endpoints(&all, &ready).result, CheckResult::Ok);
    }

    #[test]
    fn services_follow_the_adapter_unless_one_has_its_own_cause() {
        let cloud = Check { result: CheckResult::Failed, ..Check::default() }.without(vec![Need::Cloud]);
        let result = |reasons: &[&str]| {
            let all: Vec<_> =
                reasons.iter().map(|it| service(it, None, None, &[condition(READY, "False", it)])).collect();
            let checks = marked(vec![cloud.clone(), of_services(&all, &BTreeMap::new())]);
            checks[1].result
        };
        assert_eq!(result(&["VendorUnavailable", PENDING]), CheckResult::Waiting);
        assert_eq!(result(&["VendorUnavailable", "VendorQuota"]), CheckResult::Failed);
        let with_address = service("a", ADDRESS, None, &[condition(READY, "False", "FieldInvalid")]);
        let all = [with_address, service("b", None, None, &[])];
        let checks = marked(vec![cloud.clone(), of_services(&all, &BTreeMap::new())]);
        assert_eq!(checks[1].result, CheckResult::Failed);
        let checks = marked(vec![cloud, of_services(&all[1..], &BTreeMap::new())]);
        assert_eq!(checks[1].result, CheckResult::Waiting, "its controller has not written a condition yet");
    }

    #[test]
    fn only_services_that_the_release_manages_are_judged() {
        let all = [
            service("a", None, None, &[]),
            service("b", None, Some("a/b"), &[]),
            service("c", None, Some("x/y"), &[]),
        ];
        let of = |classes: &[Option<&str>]| {
            let classes = classes.iter().map(|it| it.map(str::to_owned)).collect();
            let own = balanced(all.to_vec(), &classes);
            own.iter().map(|it| it.name_any()).collect::<Vec<_>>()
        };
        assert_eq!(of(&[None]), ["a"]);
        assert_eq!(of(&[None, Some("a/b")]), ["a", "b"]);
        assert_eq!(of(&[Some("a/b")]), ["b"], "with --default-load-balancer=false");
        assert_eq!(of(&[]), [""; 0], "without a service-controller");
        let other: Service =
            serde_json::from_value(json!({ "metadata": {}, "spec": { "type": "ClusterIP" } }))
                .expect("a Service");
        assert!(balanced(vec![other], &[None].into()).is_empty());
    }

    #[test]
    fn a_service_with_an_address_that_is_not_ready_fails() {
        let with =
            |name, kind, status, reason| service(name, ADDRESS, None, &[condition(kind, status, reason)]);
        let failing = with("a", READY, "False", "WriteFailed");
        let text = "1 of 2 Services with an address are not ready: default/a: WriteFailed: quota is used up";
        let well = with("b", READY, "True", "LoadBalancerReady");
        assert_eq!(judged(&[failing.clone(), well.clone()]), (CheckResult::Failed, text.to_owned()));
        let (result, found) = judged(&[failing.clone(), with("c", READY, "False", "VendorQuota")]);
        assert!(result == CheckResult::Failed && found.ends_with("used up (and 1 more)"), "{found}");
        for fine in [
            well,
            with("b", READY, "Unknown", "Unknown"),
            with("b", "example.com/Ready", "False", "Other"),
            service("b", ADDRESS, None, &[]),
        ] {
            assert_eq!(judged(&[fine]), (CheckResult::Ok, "1 Services".to_owned()));
        }
        let changing = with("d", READY, "False", PENDING);
        let text = "Services with an address whose load balancer is being changed: 1 of 1";
        assert_eq!(judged(std::slice::from_ref(&changing)), (CheckResult::Waiting, text.to_owned()));
        assert_eq!(judged(&[changing, failing]).0, CheckResult::Failed);
    }
}
