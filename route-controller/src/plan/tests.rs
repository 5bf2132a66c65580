//! Tests plans in their printed form. Every plan is executed on a copy of the routes, and must leave no action to do.

mod conditions;
mod settles;
mod unmarked;

use std::collections::BTreeMap;
use std::sync::Arc;

use insta::assert_snapshot;
use jiff::Timestamp;

use super::claims::RouteState;
use super::node::{Condition, Node};
use super::record::Record;
use super::route::{NextHop, Owner, Route, State};
use super::{Plan, plan};
use crate::config::ClusterCidrs;

// Behaviour: R1
#[test]
fn a_node_gets_a_route_to_its_pods() {
    let nodes = [node("a").pods("10.244.1.0/24").at("192.0.2.11")];

    assert_snapshot!(settled(&nodes, &[]), @"create 10.244.1.0/24 to a via sim://r/a at 192.0.2.11");
}

// Behaviour: R2
#[test]
fn node_of_another_cloud_keeps_its_cidrs_only() {
    let other =
        || node("a").pods("10.244.1.0/24").pods("10.99.0.0/24").unreadable("x").at("192.0.2.11").elsewhere();

    for (name, nodes, routes) in [
        ("alone", vec![other()], vec![]),
        ("beside a younger one of this cloud", vec![other(), node("b").born(1)], vec![]),
        (
            "beside an older one of this cloud with its CIDR",
            vec![other().born(1), node("b").pods("10.244.1.0/24")],
            vec![route("1", "10.244.1.0/24").of("b").via("sim://r/b")],
        ),
        (
            "with a route from earlier",
            vec![other()],
            vec![route("1", "10.244.1.0/24").of("a").via("sim://r/a")],
        ),
    ] {
        assert_eq!(settled(&nodes, &routes).to_string(), "", "{name}");
    }
}

#[test]
fn provider_id_decides_about_another_cloud() {
    for (id, elsewhere) in [
        (Some("sim://r/a"), false),
        (Some("sim:///a"), false),
        (Some("aws:///z/i-1"), true),
        (Some("simulated://r/a"), true),
        (Some("i-1"), false),
        (None, false),
    ] {
        let node = Node { provider_id: id.map(str::to_owned), ..node("a") };
        assert_eq!(Arc::new(node).seen_from("sim").elsewhere, elsewhere, "{id:?}");
    }
}

// Behaviour: R4
#[test]
fn dual_stack_node_gets_a_route_of_each_family() {
    let nodes =
        [node("a").pods("10.244.1.0/24").pods("fd00:244:0:1::/64").at("192.0.2.11").at("2001:db8::11")];

    assert_snapshot!(settled(&nodes, &[]), @r"
    create 10.244.1.0/24 to a via sim://r/a at 192.0.2.11
    create fd00:244:0:1::/64 to a via sim://r/a at 2001:db8::11
    ");
}

#[test]
fn driver_chooses_the_address_if_the_node_has_none() {
    let nodes = [node("a").pods("10.244.1.0/24").at("2001:db8::11")];

    assert_snapshot!(settled(&nodes, &[]), @"create 10.244.1.0/24 to a via sim://r/a");
}

// Behaviour: R4
#[test]
fn existing_routes_are_unchanged() {
    let nodes = [node("a").pods("10.244.1.0/24").at("192.0.2.11")];

    for (name, route) in [
        ("exactly", route("1", "10.244.1.0/24").of("a").via("sim://r/a").at("192.0.2.11")),
        ("the cloud knows only the instance", route("1", "10.244.1.0/24").of("a").via("sim://r/a")),
        ("the cloud knows only the address", route("1", "10.244.1.0/24").of("a").at("192.0.2.11")),
        ("the cloud stores no node", route("1", "10.244.1.0/24").via("sim://r/a").at("192.0.2.11")),
        ("in progress", route("1", "10.244.1.0/24").of("a").via("sim://r/a").is(State::Pending)),
        ("created by hand", route("1", "10.244.1.0/24").via("sim://r/a").owned(Owner::Unmanaged)),
    ] {
        assert_eq!(settled(&nodes, &[route]).to_string(), "", "{name}");
    }
}

// Behaviour: R4
#[test]
fn a_node_with_a_new_address_keeps_its_route() {
    let nodes = [node("a").pods("10.244.1.0/24").at("192.0.2.12")];
    let routes = [route("1", "10.244.1.0/24").of("a").via("sim://r/a").at("192.0.2.11")];

    assert_snapshot!(settled(&nodes, &routes), @"create 10.244.1.0/24 to a via sim://r/a at 192.0.2.12");
}

// Behaviour: R4
#[test]
fn additional_address_changes_no_route() {
    let node = || node("a").pods("10.244.1.0/24").at("192.0.2.11");
    let routes = [route("1", "10.244.1.0/24").of("a").via("sim://r/a").at("192.0.2.11")];

    for (name, node) in [
        ("a second one of the family", node().at("192.0.2.12")),
        ("one of the other family", node().at("2001:db8::11")),
        ("no other", node()),
    ] {
        assert_eq!(settled(&[node], &routes).to_string(), "", "{name}");
    }
}

#[test]
fn route_to_another_node_is_removed_first() {
    let nodes = [node("a").pods("10.244.1.0/24"), node("b").pods("10.244.2.0/24")];
    let routes =
        [route("1", "10.244.1.0/24").of("b").via("sim://r/b"), route("2", "10.244.2.0/24").via("sim://r/a")];

    assert_snapshot!(settled(&nodes, &routes), @r"
    create 10.244.1.0/24 to a via sim://r/a instead of 1
    create 10.244.2.0/24 to b via sim://r/b instead of 2
    ");
}

// Behaviour: R9
#[test]
fn node_registered_again_on_its_instance_keeps_its_route() {
    let nodes = [node("a").uid("a2").pods("10.244.1.0/24").at("192.0.2.11")];
    for (name, route) in [
        ("exactly", route("1", "10.244.1.0/24").of("a").via("sim://r/a").at("192.0.2.11")),
        ("the cloud knows only the instance", route("1", "10.244.1.0/24").of("a").via("sim://r/a")),
        ("the cloud knows only the address", route("1", "10.244.1.0/24").of("a").at("192.0.2.11")),
    ] {
        let plan = settled(&nodes, &[route]);
        assert_eq!(plan.to_string(), "", "{name}");
        assert_eq!(plan.route_states.into_values().collect::<Vec<_>>(), [RouteState::Ready], "{name}");
        assert_eq!(plan.successors, BTreeMap::from([("1".to_owned(), "a2".to_owned())]), "{name}");
    }
}

#[test]
fn node_registered_again_elsewhere_gets_its_own_route() {
    let nodes = [node("a").uid("a2").pods("10.244.1.0/24").at("192.0.2.12")];
    let routes = [route("1", "10.244.1.0/24").of("a").via("sim://r/a").at("192.0.2.11")];

    assert_snapshot!(settled(&nodes, &routes), @"create 10.244.1.0/24 to a via sim://r/a at 192.0.2.12 instead of 1");
}

#[test]
fn of_two_serving_routes_the_nodes_own_stays() {
    let nodes = [node("a").uid("a2").pods("10.244.1.0/24")];
    let routes = [
        route("1", "10.244.1.0/24").of("a").via("sim://r/a"),
        route("2", "10.244.1.0/24").of("a2").via("sim://r/a"),
    ];

    assert_snapshot!(settled(&nodes, &routes), @"remove 10.244.1.0/24 (1) to node a");
}

// Behaviour: R8
#[test]
fn owned_black_hole_is_replaced() {
    let nodes = [node("a").pods("10.244.1.0/24")];
    let routes = [route("1", "10.244.1.0/24").of("a").via("sim://r/a").is(State::Blackhole)];

    assert_snapshot!(settled(&nodes, &routes), @"create 10.244.1.0/24 to a via sim://r/a");
}

#[test]
fn unneeded_route_is_removed_after_others_are_created() {
    let nodes = [node("a").pods("10.244.1.0/24")];
    let routes = [
        route("7", "10.244.7.0/24").of("gone").via("sim://r/gone"),
        route("8", "10.244.8.0/24").via("sim://r/unknown"),
        route("9", "10.244.9.0/24").of("a").via("sim://r/a"),
    ];

    assert_snapshot!(settled(&nodes, &routes), @r"
    create 10.244.1.0/24 to a via sim://r/a
    remove 10.244.7.0/24 (7) to node gone
    remove 10.244.8.0/24 (8) to node unknown
    remove 10.244.9.0/24 (9) to node a
    ");
}

#[test]
fn second_route_to_another_node_is_removed() {
    let nodes = [node("a").pods("10.244.1.0/24")];
    let routes = [
        route("1", "10.244.1.0/24").of("a").via("sim://r/a"),
        route("2", "10.244.1.0/24").of("gone").via("sim://r/gone"),
    ];

    assert_snapshot!(settled(&nodes, &routes), @"remove 10.244.1.0/24 (2) to node gone");
}

// Behaviour: R10, R12
#[test]
fn foreign_and_outside_routes_are_never_touched() {
    let routes = [
        route("1", "10.244.1.0/24").of("gone").owned(Owner::OtherCluster),
        route("2", "10.244.2.0/24").owned(Owner::Unmanaged),
        route("3", "10.99.0.0/24").of("gone"),
        route("4", "0.0.0.0/0").of("gone"),
        route("5", "10.244.0.0/15").of("gone"),
    ];

    assert_eq!(settled(&[], &routes).to_string(), "");
}

#[test]
fn conflicting_foreign_route_is_reported_and_kept() {
    let nodes = [node("a").pods("10.244.1.0/24"), node("b").pods("10.244.2.0/24")];
    let routes = [
        route("1", "10.244.1.0/24").via("sim://r/x").owned(Owner::Unmanaged),
        route("2", "10.244.2.0/24").via("sim://r/b").owned(Owner::OtherCluster),
    ];

    assert_snapshot!(settled(&nodes, &routes), @r"
    refuse 10.244.1.0/24 to a: route 1 via sim://r/x is of unknown origin and conflicts with the new route. Remove the existing route; the controller never removes it
    refuse 10.244.2.0/24 to b: route 2 via sim://r/b is of another cluster and conflicts with the new route. Remove the existing route; the controller never removes it
    ");
}

// Behaviour: R6
#[test]
fn the_older_of_two_nodes_keeps_the_cidr() {
    let nodes = [node("new").born(20).pods("10.244.1.0/24"), node("old").born(10).pods("10.244.1.0/24")];

    assert_snapshot!(settled(&nodes, &[]), @r"
    create 10.244.1.0/24 to old via sim://r/old
    refuse 10.244.1.0/24 to new: the older node old has the same CIDR in spec.podCIDRs and gets the route. Recreate one of the two nodes
    ");
}

// Behaviour: R5
#[test]
fn outside_cidr_gets_a_route_and_an_invalid_one_is_refused() {
    let nodes = [node("a").pods("10.99.1.0/24").unreadable("10.244.1")];

    assert_snapshot!(settled(&nodes, &[]), @r"
    create 10.99.1.0/24 to a via sim://r/a
    refuse 10.244.1 to a: the CIDR is invalid. Recreate the node with a valid pod CIDR
    report 10.99.1.0/24 to a: outside the cluster CIDR 10.244.0.0/16,fd00:244::/48, so its route is not removed when this node is deleted. Correct routeController.clusterCidr, or recreate the node with a valid pod CIDR
    ");
}

// Behaviour: R3
#[test]
fn outside_route_is_replaced_but_not_removed_with_its_node() {
    let routes = [route("1", "10.99.1.0/24").of("a").via("sim://r/a")];

    assert_snapshot!(settled(&[node("b").pods("10.99.1.0/24")], &routes), @r"
    create 10.99.1.0/24 to b via sim://r/b instead of 1
    report 10.99.1.0/24 to b: outside the cluster CIDR 10.244.0.0/16,fd00:244::/48, so its route is not removed when this node is deleted. Correct routeController.clusterCidr, or recreate the node with a valid pod CIDR
    ");
    assert_eq!(settled(&[], &routes).to_string(), "");
}

#[test]
fn foreign_routes_count_if_they_overlap_pod_cidrs() {
    let nodes = [node("a").pods("10.99.1.0/24")];
    let theirs = |id: &str, to: &str| route(id, to).via("sim://r/x").owned(Owner::OtherCluster);
    let routes = [
        theirs("inside", "10.244.1.0/24"),
        theirs("around", "10.0.0.0/8"),
        theirs("asked for", "10.99.1.0/24"),
        theirs("elsewhere", "10.99.2.0/24"),
    ];

    let plan = settled(&nodes, &routes);
    let foreign: Vec<_> = plan.foreign.iter().map(|foreign| foreign.vendor_id.as_str()).collect();
    assert_eq!(foreign, ["inside", "around", "asked for"]);
    let refused: Vec<_> = plan.refusals.iter().map(|refusal| refusal.cidr.as_str()).collect();
    assert_eq!(refused, ["10.99.1.0/24"], "the routes conflict");
}

#[test]
fn uninitialised_node_waits_and_keeps_its_cidrs() {
    let nodes = [
        node("old").born(10).uninitialised().pods("10.244.1.0/24"),
        node("new").born(20).pods("10.244.1.0/24"),
    ];
    let routes = [route("1", "10.244.1.0/24").of("gone").via("sim://r/gone")];

    assert_snapshot!(settled(&nodes, &routes), @"refuse 10.244.1.0/24 to new: the older node old has the same CIDR in spec.podCIDRs and gets the route. Recreate one of the two nodes");
}

/// Plans, executes the plan on a copy of the routes, and checks that a second plan is empty.
#[track_caller]
pub(crate) fn settled(nodes: &[Node], routes: &[Route]) -> Plan {
    settled_with(nodes, routes, &Record::default())
}

/// Like [`settled`], with the record of earlier passes.
#[track_caller]
pub(crate) fn settled_with(nodes: &[Node], routes: &[Route], record: &Record) -> Plan {
    let first = plan(nodes, routes, &cluster(), Some(record));
    let after = carried_out(&first, routes);
    let second = plan(nodes, &after, &cluster(), Some(&first.record));
    assert!(second.is_settled(), "the plan does not settle, the second plan is:\n{second}");
    first
}

fn carried_out(plan: &Plan, routes: &[Route]) -> Vec<Route> {
    let mut after = routes.to_vec();
    for removal in plan.creations.iter().flat_map(|creation| &creation.instead_of).chain(&plan.removals) {
        after.retain(|route| route.vendor_id != removal.vendor_id);
    }
    for creation in &plan.creations {
        let is_same_key = |route: &Route| {
            route.owner == Owner::Ours
                && route.destination == creation.claim.to
                && route.node_uid.as_ref() == Some(&creation.claim.node_uid)
        };
        after.retain(|route| !is_same_key(route));
        let created = route(&format!("new-{}", creation.claim.to), &creation.claim.to.to_string())
            .of(&creation.claim.node_uid);
        after.push(Route { next_hop: creation.via.clone(), ..created });
    }
    after
}

pub(crate) fn cluster() -> ClusterCidrs {
    "10.244.0.0/16,fd00:244::/48".parse().expect("valid")
}

/// Returns an initialised node without pod CIDRs, on the instance `sim://r/<name>`.
pub(crate) fn node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        uid: name.to_owned(),
        created: Timestamp::UNIX_EPOCH,
        provider_id: Some(format!("sim://r/{name}")),
        elsewhere: false,
        pod_cidrs: Vec::new(),
        unreadable_cidrs: Vec::new(),
        internal_ips: Vec::new(),
        network_unavailable: None,
    }
}

/// Returns an active route of this cluster without a next hop.
pub(crate) fn route(vendor_id: &str, to: &str) -> Route {
    Route {
        vendor_id: vendor_id.to_owned(),
        destination: to.parse().expect("a CIDR"),
        node_uid: None,
        next_hop: NextHop::default(),
        state: State::Active,
        owner: Owner::Ours,
    }
}

impl Node {
    pub(crate) fn uid(mut self, uid: &str) -> Self {
        uid.clone_into(&mut self.uid);
        self
    }

    pub(crate) fn born(mut self, second: i64) -> Self {
        self.created = Timestamp::from_second(second).expect("in range");
        self
    }

    pub(crate) fn uninitialised(mut self) -> Self {
        self.provider_id = None;
        self
    }

    pub(crate) fn elsewhere(mut self) -> Self {
        self.elsewhere = true;
        self
    }

    pub(crate) fn pods(mut self, cidr: &str) -> Self {
        self.pod_cidrs.push(cidr.parse().expect("a CIDR"));
        self
    }

    pub(crate) fn unreadable(mut self, text: &str) -> Self {
        self.unreadable_cidrs.push(text.to_owned());
        self
    }

    pub(crate) fn at(mut self, address: &str) -> Self {
        self.internal_ips.push(address.parse().expect("an address"));
        self
    }

    pub(crate) fn says(mut self, status: &str, reason: &str) -> Self {
        self.network_unavailable = Some(Condition { status: status.to_owned(), reason: reason.to_owned() });
        self
    }
}

impl Route {
    pub(crate) fn of(mut self, node_uid: &str) -> Self {
        self.node_uid = Some(node_uid.to_owned());
        self
    }

    pub(crate) fn via(mut self, provider_id: &str) -> Self {
        self.next_hop.provider_id = Some(provider_id.to_owned());
        self
    }

    pub(crate) fn at(mut self, address: &str) -> Self {
        self.next_hop.address = Some(address.parse().expect("an address"));
        self
    }

    pub(crate) fn is(mut self, state: State) -> Self {
        self.state = state;
        self
    }

    pub(crate) fn owned(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }
}
