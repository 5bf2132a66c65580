//! Tests random nodes and routes: executing the plan leaves no further action, and changes only routes of this cluster. Outside of the
//! cluster's CIDRs, the plan changes only routes that conflict with a node's route.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, prop_oneof, proptest};

use super::{cluster, node, route, settled, settled_with};
use crate::plan::Cause;
use crate::plan::node::Node;
use crate::plan::plan;
use crate::plan::record::Record;
use crate::plan::route::{Owner, Route, State};

/// Few names and networks, so that equal values are frequent.
fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("c"), Just("d")]
}

fn net() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("10.244.1.0/24"),
        Just("10.244.2.0/24"),
        Just("10.244.3.0/24"),
        Just("fd00:244:0:1::/64"),
        Just("10.99.0.0/24"),
        Just("10.244.0.0/15"),
    ]
}

fn address() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("192.0.2.1"), Just("192.0.2.2"), Just("2001:db8::1")]
}

fn any_node() -> impl Strategy<Value = Node> {
    (name(), 0_i64..3, vec(net(), 0..3), vec(address(), 0..3), option::weighted(0.8, name())).prop_map(
        |(name, born, nets, addresses, machine)| {
            let mut node = node(name).born(born);
            node.provider_id = machine.map(|machine| format!("sim://r/{machine}"));
            let node = addresses.into_iter().fold(node, Node::at);
            nets.into_iter().fold(node, |node, net| if node.has(net) { node } else { node.pods(net) })
        },
    )
}

fn any_route() -> impl Strategy<Value = Route> {
    let state = prop_oneof![Just(State::Active), Just(State::Pending), Just(State::Blackhole)];
    let owner = prop_oneof![Just(Owner::Ours), Just(Owner::OtherCluster), Just(Owner::Unmanaged)];
    (net(), option::of(name()), option::of(name()), option::of(address()), (state, owner)).prop_map(
        |(net, node_uid, machine, address, (state, owner))| {
            let route = route("", net).is(state).owned(owner);
            let route = node_uid.into_iter().fold(route, Route::of);
            let route = machine.into_iter().fold(route, |route, name| route.via(&format!("sim://r/{name}")));
            address.into_iter().fold(route, Route::at)
        },
    )
}

impl Node {
    fn has(&self, net: &str) -> bool {
        self.pod_cidrs.iter().any(|cidr| cidr.to_string() == net)
    }
}

proptest! {
    #[test]
    fn any_plan_settles_and_removes_only_owned_routes(
        mut nodes in vec(any_node(), 0..5),
        mut routes in vec(any_route(), 0..8),
    ) {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes.dedup_by(|a, b| a.name == b.name);
        for (number, route) in routes.iter_mut().enumerate() {
            route.vendor_id = number.to_string();
        }

        let plan = settled(&nodes, &routes);

        for removal in plan.creations.iter().flat_map(|creation| &creation.instead_of).chain(&plan.removals) {
            let route = routes.iter().find(|route| route.vendor_id == removal.vendor_id).expect("an existing route");
            let unmarked = route.owner == Owner::Unmanaged && serves_any(route, &nodes);
            assert!(route.owner == Owner::Ours || unmarked, "{plan}");
            assert!(cluster().contain(&route.destination) || removal.cause == Cause::Replaced, "{plan}");
        }
        for creation in &plan.creations {
            assert!(nodes.iter().any(|node| node.pod_cidrs.contains(&creation.claim.to)), "{plan}");
        }
    }

    // Behaviour: R6
    #[test]
    fn order_of_listings_decides_nothing(
        mut nodes in vec(any_node(), 0..5),
        mut routes in vec(any_route(), 0..8),
        picked in (0_usize..5, 0_usize..8),
        noted in vec(name(), 0..4),
    ) {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes.dedup_by(|a, b| a.name == b.name);
        for (number, route) in routes.iter_mut().enumerate() {
            route.vendor_id = number.to_string();
        }
        let record: Record = (0..).zip(noted).map(|(n, uid): (i32, _)| (n.to_string(), uid.to_owned())).collect();
        let listed = plan(&nodes, &routes, &cluster(), Some(&record));
        nodes.reverse();
        routes.reverse();
        let (node, route) = (picked.0.min(nodes.len()), picked.1.min(routes.len()));
        nodes.rotate_left(node);
        routes.rotate_left(route);
        let otherwise = plan(&nodes, &routes, &cluster(), Some(&record));
        assert_eq!(otherwise.to_string(), listed.to_string());
        assert_eq!(
            (otherwise.route_states, otherwise.record, otherwise.reached, otherwise.n_ours),
            (listed.route_states, listed.record, listed.reached, listed.n_ours)
        );
    }

    #[test]
    fn untagged_route_is_removed_only_if_it_served_a_node(
        mut before in vec(any_node(), 0..5),
        mut after in vec(any_node(), 0..5),
        mut seen in vec(any_route(), 0..8),
        states in vec(prop_oneof![Just(State::Active), Just(State::Blackhole)], 8),
    ) {
        for nodes in [&mut before, &mut after] {
            nodes.sort_by(|a, b| a.name.cmp(&b.name));
            nodes.dedup_by(|a, b| a.name == b.name);
        }
        for (number, route) in seen.iter_mut().enumerate() {
            route.vendor_id = number.to_string();
            route.node_uid = None;
        }
        let mut now = seen.clone();
        for (route, state) in now.iter_mut().zip(states) {
            route.state = state;
            if state == State::Blackhole {
                route.next_hop.provider_id = None;
            }
        }
        let record = plan(&before, &seen, &cluster(), Some(&Record::default())).record;

        let plan = settled_with(&after, &now, &record);

        for removal in plan.creations.iter().flat_map(|creation| &creation.instead_of).chain(&plan.removals) {
            let is_it = |route: &&Route| route.vendor_id == removal.vendor_id;
            let (then, now) = (seen.iter().find(is_it).expect("seen"), now.iter().find(is_it).expect("there"));
            let served = serves_any(then, &before) || serves_any(now, &after);
            assert!(now.owner == Owner::Ours || (now.owner == Owner::Unmanaged && served), "{plan}");
            assert!(cluster().contain(&now.destination) || removal.cause == Cause::Replaced, "{plan}");
        }
    }
}

/// Whether a node has the route's destination as a pod CIDR and is on the instance to which the route leads.
fn serves_any(route: &Route, nodes: &[Node]) -> bool {
    nodes.iter().any(|node| {
        node.pod_cidrs.contains(&route.destination)
            && node.provider_id.is_some()
            && node.provider_id == route.next_hop.provider_id
    })
}
