//! The table of the condition `NetworkUnavailable`.

use super::{cluster, node, route};
use crate::plan::claims::Standing;
use crate::plan::condition::{Change, Network, changes, judged};
use crate::plan::node::Node;
use crate::plan::plan;
use crate::plan::route::{Owner, Route, State};

struct Case {
    name: &'static str,
    node: Node,
    routes: Vec<Route>,
    /// What becomes of each route that is laid.
    laid: Standing,
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

#[test]
fn the_condition_says_what_became_of_all_routes_of_a_node() {
    let (ready, open, failed) = (Standing::Ready, Standing::Open, Standing::Failed);
    let (available, unavailable) = (Some(Network::Available), Some(Network::Unavailable));
    let dual = || asking().pods("fd00:244:0:1::/64");
    let foreign = || route("1", "10.244.1.0/24").owned(Owner::OtherCluster);
    let case = |name, node, routes: &[Route], laid, written| Case {
        name,
        node,
        routes: routes.to_vec(),
        laid,
        written,
    };
    for Case { name, node, routes, laid, written } in [
        case("kept", asking(), &[there()], open, available),
        case("laid", asking(), &[], ready, available),
        case("laid, under way", asking(), &[], open, None),
        case("not laid", asking(), &[], failed, unavailable),
        case("there, under way", asking(), &[there().is(State::Pending)], open, None),
        case("one kept, one not laid", dual(), &[there()], failed, unavailable),
        case("one kept, one under way", dual(), &[there()], open, None),
        case("somebody else's in the way", asking(), &[foreign()], ready, unavailable),
        case("outside of the cluster, laid", outside(), &[], ready, available),
        case("outside of the cluster, not laid", outside(), &[], failed, unavailable),
        case("outside of the cluster, there", outside(), &[there_outside()], open, available),
        case("not laid, and its machine is another cloud's", asking().elsewhere(), &[], failed, None),
        case(
            "unreadable, and its machine is another cloud's",
            node("a").unreadable("x").elsewhere(),
            &[],
            ready,
            None,
        ),
        case("unreadable only", node("a").unreadable("x"), &[], ready, unavailable),
        case("asks for nothing", node("a"), &[], ready, None),
        case("asks for nothing, a route leads to it", node("a"), &[there()], ready, unavailable),
        case("not initialised", asking().uninitialised(), &[], ready, None),
        case("not initialised, its route is there", asking().uninitialised(), &[there()], ready, None),
        case("says so already", asking().says("False", "RouteCreated"), &[there()], open, None),
        case("another's reason", asking().says("False", "CalicoIsUp"), &[there()], open, available),
        case("said otherwise", asking().says("True", "NoRouteCreated"), &[there()], open, available),
        case("failed again", asking().says("True", "NoRouteCreated"), &[], failed, None),
        case("open after a failure", asking().says("True", "NoRouteCreated"), &[], open, None),
    ] {
        let nodes = [node];
        let plan = plan(&nodes, &routes, &cluster(), None);
        let change = |network| Change { node_name: "a".to_owned(), node_uid: "a".to_owned(), network };
        let expected: Vec<_> = written.map(change).into_iter().collect();
        assert_eq!(changes(&nodes, &judged(&nodes, &plan, |_| laid)), expected, "{name}");
    }
}

#[test]
fn the_words_are_those_that_people_look_for() {
    let words = |network: Network| [network.status(), network.reason(), network.message()];
    assert_eq!(words(Network::Available), ["False", "RouteCreated", "RouteController created a route"]);
    assert_eq!(
        words(Network::Unavailable),
        ["True", "NoRouteCreated", "RouteController failed to create a route"]
    );
}
