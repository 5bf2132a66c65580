//! Trims the cloud's routes to what a plan needs.

use cloud_api_proto::v1alpha1 as contract;

use crate::plan::route::{NextHop, Owner, Route, State};

/// Keeps what a plan needs. Returns `None` if the destination is not a valid CIDR: such a route is never touched.
pub(crate) fn trim(route: &contract::Route, cluster_id: &str) -> Option<Route> {
    let destination: ipnet::IpNet = route.destination.parse().ok()?;
    let key = route.key.as_ref();
    let node_uid = key.map(|key| key.node_uid.clone()).filter(|uid| !uid.is_empty());
    // An adapter that marks a route with another cluster's key as owned by this cluster has a defect. That defect must not cause the
    // removal of the route.
    let key_is_ours = key.is_none_or(|key| key.cluster_id.is_empty() || key.cluster_id == cluster_id);
    let owner = match route.owner() {
        contract::RouteOwner::Mine if key_is_ours => Owner::Ours,
        contract::RouteOwner::Mine | contract::RouteOwner::OtherCluster => Owner::OtherCluster,
        contract::RouteOwner::Unmanaged | contract::RouteOwner::Unspecified => Owner::Unmanaged,
    };
    let state = match route.state() {
        contract::RouteState::Active => State::Active,
        contract::RouteState::Pending | contract::RouteState::Unspecified => State::Pending,
        contract::RouteState::Blackhole => State::Blackhole,
    };
    Some(Route {
        vendor_id: route.vendor_id.clone(),
        destination: destination.trunc(),
        node_uid,
        next_hop: route.next_hop.as_ref().map(next_hop).unwrap_or_default(),
        state,
        owner,
    })
}

fn next_hop(next_hop: &contract::NextHop) -> NextHop {
    let provider_id = Some(next_hop.provider_id.clone()).filter(|id| !id.is_empty());
    NextHop { provider_id, address: next_hop.address.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::route;

    fn given() -> contract::Route {
        contract::Route {
            vendor_id: "rt-1".to_owned(),
            key: Some(contract::RouteKey {
                cluster_id: "c".to_owned(),
                node_uid: "u".to_owned(),
                destination: "10.244.1.0/24".to_owned(),
            }),
            destination: "10.244.1.0/24".to_owned(),
            next_hop: Some(contract::NextHop {
                provider_id: "sim://r/a".to_owned(),
                address: "192.0.2.1".to_owned(),
                interface: "eth0".to_owned(),
            }),
            table: "main".to_owned(),
            state: contract::RouteState::Active.into(),
            owner: contract::RouteOwner::Mine.into(),
            fence: None,
        }
    }

    fn expected() -> Route {
        route("rt-1", "10.244.1.0/24").of("u").via("sim://r/a").at("192.0.2.1")
    }

    #[test]
    fn fields_for_plans_are_kept() {
        assert_eq!(trim(&given(), "c"), Some(expected()));
    }

    // Behaviour: W8
    #[test]
    fn unknown_values_are_neither_success_nor_owned() {
        let route = contract::Route { state: 99, owner: 99, ..given() };
        assert_eq!(trim(&route, "c"), Some(expected().is(State::Pending).owned(Owner::Unmanaged)));
    }

    #[test]
    fn route_with_another_clusters_key_is_not_owned() {
        assert_eq!(trim(&given(), "d"), Some(expected().owned(Owner::OtherCluster)));
    }

    #[test]
    fn unknown_fields_are_left_out() {
        let bare = contract::Route { key: None, next_hop: None, ..given() };
        assert_eq!(trim(&bare, "c"), Some(route("rt-1", "10.244.1.0/24")));
    }

    #[test]
    fn route_with_an_invalid_destination_is_ignored() {
        let route = contract::Route { destination: "vpn-gateway".to_owned(), ..given() };
        assert_eq!(trim(&route, "c"), None);
    }
}
