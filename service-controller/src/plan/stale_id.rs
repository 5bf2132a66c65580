//! The ID of a load balancer that another controller noted at a Service.
//!
//! A person who writes the ID of a load balancer means that one. That controller writes one to every Service, and nobody takes it away: it
//! says what to take over. Once there is none of that ID, or the Service has another one, it says nothing any more.

use super::{
    annotations::keys::{ADOPT, ID},
    cloud::{Balancer, State},
    service::Service,
};

/// What a takeover without an ID asks for.
const OWNED: &str = "owned";

/// The ID that was noted, if it still counts.
pub(crate) fn noted(service: &Service) -> Option<&str> {
    let is_noted = |key: &String| service.foreign.from.contains_key(key);
    let (id, adopt) = (ID.to_string(), ADOPT.to_string());
    // Who says in our words what is to become of it means it.
    let id = Some(id).filter(|id| is_noted(id) && is_noted(&adopt))?;
    service.annotations.get(&id).map(String::as_str)
}

/// The Service without a noted ID that says nothing any more, and what people hear of that. `gone`: the adapter refused this ID.
/// `cloud`: what the mirror shows under the Service's key.
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
    let told = format!(
        "{old} says nothing any more: there is no load balancer {id}, or the Service has another one; remove it"
    );
    let understood = &mut service.foreign.understood;
    understood.retain(|line| !line.starts_with(&format!("{old} is ")));
    understood.push(told);
    service
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::compat::{Compat, Translation, translate};

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
        }
    }

    #[test]
    fn an_id_that_was_noted_counts_as_long_as_it_may_be_the_services() {
        let old = ("loadbalancer.openstack.org/load-balancer-id", "lb-7");
        let (theirs, other) = (balancer("lb-7", State::Active), balancer("lb-8", State::Active));
        let going = balancer("lb-8", State::Deleting);
        for (what, gone, cloud, counts) in [
            ("before the takeover", None, Some(vec![]), true),
            ("the mirror is not complete", None, None, true),
            ("taken over", None, Some(vec![theirs.clone()]), true),
            ("there are two", None, Some(vec![other.clone(), theirs]), true),
            ("another one goes", None, Some(vec![going]), true),
            ("another was gone", Some("lb-6"), Some(vec![]), true),
            ("it is gone", Some("lb-7"), Some(vec![]), false),
            ("another one was made", None, Some(vec![other]), false),
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
    fn an_id_that_a_person_wrote_counts() {
        let ours = [("lb.cloudadapter.dev/id", "lb-7"), ("lb.cloudadapter.dev/adopt", "shared")];
        let half = [("loadbalancer.openstack.org/load-balancer-id", "lb-7"), ours[1]];
        for annotations in [&ours[..], &half] {
            let service = service(annotations);
            assert_eq!(without(service.clone(), Some("lb-7"), Some(&[])), service);
        }
    }
}
