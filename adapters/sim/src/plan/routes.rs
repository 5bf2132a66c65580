//! Groups route changes into vendor calls. Pure functions.

use cloud_adapter::{
    driver::{Fault, Location, RouteChanges, VendorError, WantedRoute},
    kit::{self, Region},
};
use ipnet::IpNet;

use crate::{
    SCHEME,
    client::BATCH_ROUTES,
    ownership,
    simcloud::requests::AddRoute,
    step::{RouteBatch, Step},
};

/// Returns the smallest number of calls. Removals come first, because a new route may replace a removed one.
pub(crate) fn plan_routes(changes: &RouteChanges, region: &str) -> Vec<Step> {
    let mut batches = vec![RouteBatch::default()];
    for id in &changes.remove {
        with_room(&mut batches, |batch| batch.remove.push(id.clone()));
    }
    for route in &changes.add {
        with_room(&mut batches, |batch| batch.add.push(request(route, region)));
    }
    batches.retain(|batch| size(batch) > 0);
    batches.into_iter().map(Step::BatchRoutes).collect()
}

fn with_room(batches: &mut Vec<RouteBatch>, put: impl FnOnce(&mut RouteBatch)) {
    match batches.last_mut() {
        Some(last) if size(last) < BATCH_ROUTES => put(last),
        Some(_) | None => {
            let mut next = RouteBatch::default();
            put(&mut next);
            batches.push(next);
        }
    }
}

fn size(batch: &RouteBatch) -> usize {
    batch.remove.len().saturating_add(batch.add.len())
}

fn request(route: &WantedRoute, region: &str) -> Result<AddRoute, VendorError> {
    let invalid = |text: String| VendorError::new(Fault::Invalid, text);
    let key = route.upsert.key.clone().unwrap_or_default();
    let hop = route.upsert.next_hop.clone().unwrap_or_default();
    let destination: IpNet = key
        .destination
        .parse()
        .map_err(|error| invalid(format!("key.destination: {:?}: {error}", key.destination)))?;
    let next_hop_instance = match kit::locate(SCHEME, Region::Required(region), &hop.provider_id) {
        Location::Here(id) => Some(id),
        Location::Elsewhere | Location::Malformed => {
            return Err(invalid(format!(
                "next_hop.provider_id: {:?} is not an instance of region {region}",
                hop.provider_id
            )));
        }
    };
    let next_hop_address = match hop.address.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|error| invalid(format!("next_hop.address: {text:?}: {error}")))?),
    };
    if !hop.interface.is_empty() {
        return Err(invalid(
            "next_hop.interface: this cloud routes to instances and addresses only".to_owned(),
        ));
    }
    let tags = ownership::route_tags(route);
    Ok(AddRoute { destination: destination.trunc(), next_hop_instance, next_hop_address, tags })
}

#[cfg(test)]
mod tests {
    use cloud_adapter::driver::Step as _;
    use cloud_api_proto::v1alpha1::{Fence, NextHop, Owner, RouteKey, RouteUpsert};

    use super::*;

    fn wanted(destination: &str, provider_id: &str, address: &str) -> WantedRoute {
        let key = RouteKey { cluster_id: "c".into(), node_uid: "n".into(), destination: destination.into() };
        let next_hop =
            NextHop { provider_id: provider_id.into(), address: address.into(), interface: String::new() };
        let owner = Owner { kind: "Node".into(), name: "node-1".into(), uid: "n".into(), ..Owner::default() };
        let upsert = RouteUpsert { key: Some(key), next_hop: Some(next_hop), owner: Some(owner) };
        WantedRoute {
            upsert,
            fence: Fence { scope: "rc/0".into(), epoch: 3, sequence: 7 },
            cluster_name: "prod".into(),
        }
    }

    fn changes(removals: usize, additions: usize) -> RouteChanges {
        RouteChanges {
            remove: (0..removals).map(|n| format!("rt-{n}")).collect(),
            add: (0..additions)
                .map(|n| wanted(&format!("10.{}.{}.0/24", n / 256, n % 256), "sim://sim-1/i-1", ""))
                .collect(),
        }
    }

    #[test]
    fn route_changes_use_the_fewest_calls() {
        for (removals, additions, wanted) in [
            (0, 0, vec![]),
            (1, 1, vec!["remove 1 and add 1 routes"]),
            (0, 200, vec!["remove 0 and add 200 routes"]),
            (50, 200, vec!["remove 50 and add 150 routes", "remove 0 and add 50 routes"]),
            (201, 1, vec!["remove 200 and add 0 routes", "remove 1 and add 1 routes"]),
        ] {
            let steps = plan_routes(&changes(removals, additions), "sim-1");
            assert_eq!(steps.iter().map(ToString::to_string).collect::<Vec<_>>(), wanted);
            assert!(steps.iter().all(|step| step.operation().name == "BatchRoutes"));
        }
    }

    #[test]
    fn route_tags_have_node_uid_and_name() {
        let route = request(&wanted("10.0.1.0/24", "sim://sim-1/i-7", "10.9.0.7"), "sim-1").expect("good");
        assert_eq!(route.next_hop_instance.as_deref(), Some("i-7"));
        assert_eq!(route.next_hop_address, Some([10, 9, 0, 7].into()));
        let tags: Vec<_> = route.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            tags,
            [
                "cloudadapter.dev/cluster-id=c",
                "cloudadapter.dev/cluster-name=prod",
                "cloudadapter.dev/fence=rc/0/3/7",
                "cloudadapter.dev/node-name=node-1",
                "cloudadapter.dev/node-uid=n"
            ]
        );
    }

    #[test]
    fn invalid_route_keeps_its_place_with_its_error() {
        for (route, field) in [
            (wanted("10.0.1.0/99", "sim://sim-1/i-7", ""), "key.destination"),
            (wanted("10.0.1.0/24", "sim://sim-2/i-7", ""), "next_hop.provider_id"),
            (wanted("10.0.1.0/24", "sim://sim-1/i-7", "here"), "next_hop.address"),
        ] {
            let error = request(&route, "sim-1").expect_err("cannot");
            assert_eq!(error.fault, Fault::Invalid);
            assert!(error.message.starts_with(field), "{error}");
        }
    }
}
