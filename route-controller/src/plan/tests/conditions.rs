//! Tests the condition `NetworkUnavailable` as a table.

use super::{cluster, node, route};
use crate::plan::claims::RouteState;
use crate::plan::condition::{Change, Network, changes, judged};
use crate::plan::node::Node;
use crate::plan::plan;
use crate::plan::route::{Owner, Route, State};

struct Case {
    name: &'static str,
    node: Node,
    routes: Vec<Route>,
    /// The outcome of each route to create.
    created: RouteState,
    written: Option<Network>,
}

fn asking() -> Node {
    node("a").pods("10.244.1.0/24")
}

fn there() -> Route {
    route("1", "10.244.1.0/24").of("a").via("sim://r/a")
}

fn outside() -> Node {
    node("a").pods("10.99.0.0/24")
}

fn there_outside() -> Route {
    route("1", "10.99.0.0/24").of("a").via("sim://r/a")
}

// Behaviour: R3, R16
#[test]
fn condition_covers_all_routes_of_a_node() {
    let (ready, open, failed) = (RouteState::Ready, RouteState::Open, RouteState::Failed);
    let (available, unavailable) = (Some(Network::Available), Some(Network::Unavailable));
    let dual = || asking().pods("fd00:244:0:1::/64");
    let foreign = || route("1", "10.244.1.0/24").owned(Owner::OtherCluster);
    let case = |name, node, routes: &[Route], created, written| Case {
        name,
        node,
        routes: routes.to_vec(),
        created,
        written,
    };
    for Case { name, node, routes, created, written } in [
        case("kept", asking(), &[there()], open, available),
        case("created", asking(), &[], ready, available),
        case("new, in progress", asking(), &[], open, None),
        case("new, failed", asking(), &[], failed, unavailable),
        case("exists, in progress", asking(), &[there().is(State::Pending)], open, None),
        case("one kept, one new and failed", dual(), &[there()], failed, unavailable),
        case("one kept, one in progress", dual(), &[there()], open, None),
        case("a conflicting foreign route", asking(), &[foreign()], ready, unavailable),
        case("outside of the cluster, created", outside(), &[], ready, available),
        case("outside of the cluster, failed", outside(), &[], failed, unavailable),
        case("outside of the cluster, exists", outside(), &[there_outside()], open, available),
        case("failed, and its instance belongs to another cloud", asking().elsewhere(), &[], failed, None),
        case(
            "invalid, and its instance belongs to another cloud",
            node("a").unreadable("x").elsewhere(),
            &[],
            ready,
            None,
        ),
        case("only an invalid CIDR", node("a").unreadable("x"), &[], ready, unavailable),
        case("no pod CIDR", node("a"), &[], ready, None),
        case("no pod CIDR, but a route leads to it", node("a"), &[there()], ready, unavailable),
        case("not initialised", asking().uninitialised(), &[], ready, None),
        case("not initialised, its route exists", asking().uninitialised(), &[there()], ready, None),
        case(
            "the node already has the condition",
            asking().says("False", "RouteCreated"),
            &[there()],
            open,
            None,
        ),
        case(
            "the reason of another controller",
            asking().says("False", "CalicoIsUp"),
            &[there()],
            open,
            available,
        ),
        case("the other status", asking().says("True", "NoRouteCreated"), &[there()], open, available),
        case("failed again", asking().says("True", "NoRouteCreated"), &[], failed, None),
        case("in progress after a failure", asking().says("True", "NoRouteCreated"), &[], open, None),
    ] {
        let nodes = [node];
        let plan = plan(&nodes, &routes, &cluster(), None);
        let change = |network| Change { node_name: "a".to_owned(), node_uid: "a".to_owned(), network };
        let expected: Vec<_> = written.map(change).into_iter().collect();
        assert_eq!(changes(&nodes, &judged(&nodes, &plan, |_| created)), expected, "{name}");
    }
}

// Behaviour: R16
#[test]
fn condition_texts_are_those_of_cloud_provider() {
    let words = |network: Network| [network.status(), network.reason(), network.message()];
    assert_eq!(words(Network::Available), ["False", "RouteCreated", "RouteController created a route"]);
    assert_eq!(
        words(Network::Unavailable),
        ["True", "NoRouteCreated", "RouteController failed to create a route"]
    );
}
