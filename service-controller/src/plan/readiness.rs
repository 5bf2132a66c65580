//! Decides which conditions a Service gets: whether its load balancer is ready, and whether some of its ports fail. This module is pure.
//!
//! Neither a change of the nodes nor an error that is only logged ends readiness while the load balancer serves traffic. Otherwise each
//! added node would cost two writes per Service.

use controller_core::events::{NOTE_MAX, bounded};

use super::{
    conditions::{Condition, Conditions, Readiness},
    features::Features,
    memory::Memory,
    service::{Ingress, IngressPort, Role, Service},
    validated::Validated,
    without_nodes::WithoutNodes,
};

/// Reason while the adapter is working on the load balancer.
pub(crate) const PENDING: &str = "LoadBalancerPending";
/// The reason while a vendor write fails repeatedly.
pub(crate) const WRITE_FAILED: &str = "WriteFailed";
/// The reason while no node can serve the Service.
const NO_NODES: &str = "NoAvailableNodes";
/// The reasons that are cleared when the adapter accepts the settings, or reports that it continues.
const PASSING: [&str; 8] = [
    WRITE_FAILED,
    "InvalidService",
    "FieldInvalid",
    "UnsupportedFeature",
    "UnknownParameter",
    "ImmutableField",
    "ResourceGone",
    "OwnedByOther",
];

/// What it means that the load balancer has the settings that the Service requests. `None`: the load balancer does not have them.
pub(crate) fn as_requested(
    service: &Service,
    memory: &Memory,
    validated: &Validated,
    without: Option<&WithoutNodes>,
) -> Option<Readiness> {
    let serves = memory.confirmed().is_some_and(|it| !it.is_degraded());
    let is_valid = !validated.stands_in && validated.refusals.is_empty();
    (service.role() == Role::Wanted && serves && is_valid).then(|| match without {
        None => Readiness::Ready,
        Some(why) => Readiness::failing(NO_NODES, &why.message()),
    })
}

/// Returns the conditions to write at the end of a reconcile. `None`: the Service keeps its conditions. `found`: what the reconcile found
/// out. `features`: `None` if the adapter was never reached, so that a Service without conditions gets none.
pub(crate) fn due(
    service: &Service,
    memory: &Memory,
    found: Option<&Readiness>,
    features: Option<&Features>,
) -> Option<Conditions> {
    let is_known = features.is_some() || service.conditions.ready.is_some();
    let due = match service.role() {
        Role::Wanted if is_known => conditions(service, Some(found?)),
        Role::Ignored if service.conditions.are_ours && !memory.owned.other_class.serving => {
            Conditions::default()
        }
        Role::Wanted | Role::Cleanup | Role::Ignored => return None,
    };
    (!due.same_as(&service.conditions)).then_some(due)
}

/// Returns the conditions to write. `readiness`: `None` if the reconcile found nothing that changes the present condition.
pub(crate) fn conditions(service: &Service, readiness: Option<&Readiness>) -> Conditions {
    let before = &service.conditions;
    let ready = match readiness {
        None => before.ready.clone(),
        Some(readiness) => ready(service, readiness).map(|it| it.after(before.ready.as_ref())),
    };
    let ports = failing_ports(service).map(|(reason, message)| {
        Condition { status: true, reason, message, generation: service.generation, since: None }
            .after(before.ports.as_ref())
    });
    Conditions { ready, ports, are_ours: true }
}

fn ready(service: &Service, readiness: &Readiness) -> Option<Condition> {
    let before = service.conditions.ready.as_ref();
    let condition = |status, reason: &str, message: &str| Condition {
        status,
        reason: reason.to_owned(),
        message: bounded(message, NOTE_MAX),
        generation: service.generation,
        since: None,
    };
    let failed = failing_ports(service);
    Some(match (readiness, failed) {
        (Readiness::Ready, Some((_, message))) => condition(false, "PortsFailed", &message),
        (Readiness::Ready, None) => {
            condition(true, "LoadBalancerReady", "The load balancer serves as requested")
        }
        // The cause of a failure is shown until the retry succeeds. Otherwise each retry would cost two writes.
        (Readiness::Pending, _)
            if before.is_some_and(|it| !it.status && !PASSING.contains(&it.reason.as_str())) =>
        {
            let before = before?;
            Condition { generation: service.generation, ..before.clone() }
        }
        (Readiness::Pending, _) => condition(false, PENDING, "The load balancer is being created or changed"),
        (Readiness::Failing(reason, message), _) => condition(false, reason, message),
    })
}

/// Returns the reason and the message about the ports that the adapter reports as failing. The message contains the first port, and the
/// number of further ports.
fn failing_ports(service: &Service) -> Option<(String, String)> {
    let mut failing: Vec<(&IngressPort, &str)> = Vec::new();
    for port in service.ingress.iter().flat_map(|Ingress { ports, .. }| ports) {
        let known = failing.iter().any(|(it, _)| (it.port, it.transport) == (port.port, port.transport));
        if let Some(error) = port.error.as_deref().filter(|_| !known) {
            failing.push((port, error));
        }
    }
    let (port, error) = failing.first()?;
    let more = match failing.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!("The load balancer cannot serve port {}/{}: {error}{more}", port.transport, port.port);
    Some(("PortsFailed".to_owned(), bounded(&text, NOTE_MAX)))
}

/// Converts a typed reason of the adapter into the reason of a condition, such as `VENDOR_QUOTA` into `VendorQuota`.
pub(crate) fn camel(word: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|it| it.to_ascii_uppercase());
        first.into_iter().chain(letters.map(|it| it.to_ascii_lowercase())).collect::<String>()
    };
    word.split('_').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{
        super::service::{Class, Kind, Transport},
        *,
    };

    fn with(ready: Condition) -> Service {
        let conditions = Conditions { ready: Some(ready), ..Conditions::default() };
        Service { conditions, generation: Some(2), ..Service::default() }
    }

    // Behaviour: S30
    #[test]
    fn time_of_a_condition_changes_only_with_its_status() {
        let since = Some(Timestamp::UNIX_EPOCH);
        let quota = Condition {
            reason: "VendorQuota".to_owned(),
            message: "wait 3 s".to_owned(),
            generation: Some(2),
            since,
            ..Condition::default()
        };
        let ready = |now: &Readiness| conditions(&with(quota.clone()), Some(now)).ready.unwrap();
        assert_eq!(ready(&Readiness::failing("VendorQuota", "wait 5 s")), quota, "only a number changed");
        assert_eq!(ready(&Readiness::Pending), quota, "the retry has not succeeded yet");
        let other = ready(&Readiness::failing("VendorAuth", "wait"));
        assert_eq!((other.reason.as_str(), other.since), ("VendorAuth", since));
        let now = ready(&Readiness::Ready);
        assert_eq!((now.status, now.since), (true, None));
        let old = Condition { generation: Some(1), ..quota.clone() };
        let observed = conditions(&with(old), Some(&Readiness::failing("VendorQuota", "wait 5 s")));
        assert_eq!(observed.ready.and_then(|it| it.generation), Some(2), "the changed Service was observed");
        let refused = Condition { reason: "FieldInvalid".to_owned(), ..quota };
        let accepted = conditions(&with(refused), Some(&Readiness::Pending)).ready.unwrap();
        assert_eq!(accepted.reason, PENDING, "the adapter accepted the settings");
    }

    #[test]
    fn conditions_are_written_only_if_they_change() {
        let (able, found) = (Features::default(), Readiness::Pending);
        let away = Readiness::failing("AdapterUnreachable", "away");
        let due = |service: &Service, found, features| due(service, &Memory::default(), found, features);
        let new = Service { kind: Kind::LoadBalancer, ..Service::default() };
        let pending = due(&new, Some(&found), Some(&able)).expect("the Service has no condition yet");
        assert_eq!(due(&new, None, Some(&able)), None, "the reconcile found nothing out");
        assert_eq!(due(&new, Some(&found), None), None, "the adapter was never reached");
        let shown = Service { conditions: pending.clone(), ..new };
        assert_eq!(due(&shown, Some(&found), Some(&able)), None, "the Service has this condition");
        assert!(due(&shown, Some(&away), None).is_some(), "a condition that is there is kept up to date");
        let deleted = Service { deleting: true, finalizer: true, ..shown.clone() };
        assert_eq!(due(&deleted, Some(&found), Some(&able)), None, "the release removes the conditions");
        let other = Service { class: Class::Others, ..shown };
        assert_eq!(due(&other, None, None), Some(Conditions::default()), "another controller's class");
        let foreign = Conditions { are_ours: false, ..pending };
        let foreign = Service { conditions: foreign, ..other };
        assert_eq!(due(&foreign, None, None), None, "another controller's conditions");
    }

    // Behaviour: S31
    #[test]
    fn failing_ports_are_counted_once_for_all_addresses() {
        let port = |port, error: Option<&str>| IngressPort {
            port,
            transport: Transport::Udp,
            error: error.map(str::to_owned),
        };
        let ports = vec![port(80, None), port(53, Some("example.com/NoUdp")), port(54, Some("x"))];
        let ingress = vec![Ingress { ports, ..Ingress::default() }; 2];
        let service = Service { ingress, ..Service::default() };
        let Conditions { ready, ports, .. } = conditions(&service, Some(&Readiness::Ready));
        let text = "The load balancer cannot serve port UDP/53: example.com/NoUdp and 1 more";
        let (ready, ports) = (ready.unwrap(), ports.unwrap());
        assert_eq!((ready.status, ready.message.as_str()), (false, text));
        assert_eq!((ports.status, ports.message.as_str()), (true, text));
        assert_eq!(
            conditions(&Service::default(), None),
            Conditions { are_ours: true, ..Conditions::default() }
        );
    }

    #[test]
    fn reasons_are_camel_case() {
        assert_eq!(
            (camel("VENDOR_QUOTA"), camel("INTERNAL")),
            ("VendorQuota".to_owned(), "Internal".to_owned())
        );
    }
}
