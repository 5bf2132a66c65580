//! The load balancer ID that another controller recorded on a Service.
//!
//! An ID that a user wrote is binding. The other controller, however, writes the ID of its load balancer to every Service, and never
//! removes the ID. The load balancer with such a recorded ID must be adopted. If it does not exist, or if the Service has another load
//! balancer, the recorded ID is obsolete.

use super::{
    annotations::keys::{ADOPT, ID},
    cloud::{Balancer, State},
    service::Service,
};

/// Value of `adopt` for an adoption without an ID.
const OWNED: &str = "owned";

/// The recorded ID, if it was translated from the other controller's annotation.
pub(crate) fn noted(service: &Service) -> Option<&str> {
    let is_noted = |key: &String| service.foreign.from.contains_key(key);
    let (id, adopt) = (ID.to_string(), ADOPT.to_string());
    // If the user also set `adopt`, the ID is the user's choice.
    let id = Some(id).filter(|id| is_noted(id) && is_noted(&adopt))?;
    service.annotations.get(&id).map(String::as_str)
}

/// Removes an obsolete ID from the Service, and adds a message about it. `gone` is the ID that the adapter refused. `cloud` contains the
/// load balancers in the cache whose owner tag names the Service.
pub(crate) fn without(mut service: Service, gone: Option<&str>, cloud: Option<&[Balancer]>) -> Service {
    let Some(id) = noted(&service).map(str::to_owned) else { return service };
    let is_there = |it: &&Balancer| !matches!(it.state, State::Deleting | State::Absent);
    let mut there = cloud.unwrap_or_default().iter().filter(is_there).map(|it| &it.vendor_id).peekable();
    let has_another = there.peek().is_some() && !there.any(|it| *it == id);
    if gone != Some(id.as_str()) && !has_another {
        return service;
    }
    let (id_key, adopt_key) = (ID.to_string(), ADOPT.to_string());
    let old = service.foreign.from.remove(&id_key).unwrap_or_default();
    service.foreign.from.remove(&adopt_key);
    service.annotations.remove(&id_key);
    service.annotations.insert(adopt_key, OWNED.to_owned());
    let reported = format!(
        "{old} is obsolete: load balancer {id} does not exist, or the Service has a different load balancer; remove the annotation"
    );
    let understood = &mut service.foreign.understood;
    understood.retain(|line| !line.starts_with(&format!("{old} (new: ")));
    understood.push(reported);
    service
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::{
        cloud::Details,
        compat::{Compat, Translation, translate},
    };

    fn service(annotations: &[(&str, &str)]) -> Service {
        let given = annotations.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        let Translation { annotations, foreign } = translate(Some(Compat::Openstack), given.collect());
        Service { annotations, foreign, ..Service::default() }
    }

    fn balancer(vendor_id: &str, state: State) -> Balancer {
        Balancer {
            vendor_id: vendor_id.to_owned(),
            state,
            applied_hash: String::new(),
            ingress: Vec::new(),
            listeners: Vec::new(),
            backends: 0,
            details: Details::default(),
        }
    }

    #[test]
    fn recorded_id_counts_until_obsolete() {
        let old = ("loadbalancer.openstack.org/load-balancer-id", "lb-7");
        let (theirs, other) = (balancer("lb-7", State::Active), balancer("lb-8", State::Active));
        let going = balancer("lb-8", State::Deleting);
        for (what, gone, cloud, counts) in [
            ("before the adoption", None, Some(vec![]), true),
            ("the cache is not synced", None, None, true),
            ("adopted", None, Some(vec![theirs.clone()]), true),
            ("there are two", None, Some(vec![other.clone(), theirs]), true),
            ("another one is being deleted", None, Some(vec![going]), true),
            ("another was gone", Some("lb-6"), Some(vec![]), true),
            ("it is gone", Some("lb-7"), Some(vec![]), false),
            ("another one was created", None, Some(vec![other]), false),
        ] {
            let after = without(service(&[old]), gone, cloud.as_deref());
            assert_eq!(noted(&after), counts.then_some("lb-7"), "{what}");
            if !counts {
                let adopt = BTreeMap::from([(ADOPT.to_string(), OWNED.to_owned())]);
                assert_eq!(after.annotations, adopt, "{what}");
                assert_eq!(after.foreign.understood.len(), 1, "{:?}", after.foreign.understood);
            }
        }
    }

    #[test]
    fn id_written_by_user_always_counts() {
        let ours = [("lb.cloudadapter.dev/id", "lb-7"), ("lb.cloudadapter.dev/adopt", "shared")];
        let half = [("loadbalancer.openstack.org/load-balancer-id", "lb-7"), ours[1]];
        for annotations in [&ours[..], &half] {
            let service = service(annotations);
            assert_eq!(without(service.clone(), Some("lb-7"), Some(&[])), service);
        }
    }
}
