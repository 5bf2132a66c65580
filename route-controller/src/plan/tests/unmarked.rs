//! Tests clouds that cannot store the owner of a route: a route belongs to this cluster only if it was observed to serve a node.

use insta::assert_snapshot;

use super::{cluster, node, route, settled_with};
use crate::plan::node::Node;
use crate::plan::plan;
use crate::plan::record::Record;
use crate::plan::route::{Owner, Route, State};

/// Returns a route of a cloud that cannot store the owner of a route. The route has only an ID.
fn unmarked(to: &str, at: &str) -> Route {
    route(&format!("{to}={at}"), to).at(at).owned(Owner::Unmanaged)
}

/// Returns a route whose instance is gone and whose next hop is an unused address.
fn hole(to: &str, at: &str) -> Route {
    unmarked(to, at).is(State::Blackhole)
}

fn asking(name: &str) -> Node {
    node(name).pods("10.244.1.0/24").at("192.0.2.11")
}

/// Returns the record after node `a` was served at 192.0.2.11.
fn record() -> Record {
    let serving = unmarked("10.244.1.0/24", "192.0.2.11").via("sim://r/a");
    plan(&[asking("a")], &[serving], &cluster(), Some(&Record::default())).record
}

#[test]
fn untagged_route_that_served_a_node_is_removed_with_it() {
    for (name, found, expected) in [
        ("with its instance", hole("10.244.1.0/24", "192.0.2.11"), "192.0.2.11"),
        (
            "the instance stays",
            unmarked("10.244.1.0/24", "192.0.2.11").via("sim://r/a"),
            "sim://r/a at 192.0.2.11",
        ),
        (
            "another instance has its address",
            unmarked("10.244.1.0/24", "192.0.2.11").via("sim://r/x"),
            "sim://r/x at 192.0.2.11",
        ),
    ] {
        let plan = settled_with(&[], &[found], &record());
        let line = format!("remove 10.244.1.0/24 (10.244.1.0/24=192.0.2.11) to node a if via {expected}\n");
        assert_eq!(plan.to_string(), line, "{name}");
    }
}

// Behaviour: R13
#[test]
fn untagged_route_that_never_served_a_node_stays() {
    for (name, found) in [
        ("of a node that this controller never saw", hole("10.244.2.0/24", "192.0.2.12")),
        ("to the same pods, via another next hop", hole("10.244.1.0/24", "192.0.2.99")),
        ("tagged by another cluster since", hole("10.244.1.0/24", "192.0.2.11").owned(Owner::OtherCluster)),
        ("an operator's, outside of the pod CIDRs", hole("10.99.0.0/24", "192.0.2.11")),
        (
            "to a node of this cluster, for pods of another",
            unmarked("10.244.7.0/24", "192.0.2.11").via("sim://r/a"),
        ),
    ] {
        let nodes = [node("a").pods("10.244.3.0/24")];
        let served = unmarked("10.244.3.0/24", "192.0.2.11").via("sim://r/a");
        let plan = settled_with(&nodes, &[found, served], &record());
        assert_eq!(plan.to_string(), "", "{name}");
    }
}

#[test]
fn node_with_the_cidr_of_a_deleted_one_gets_its_route() {
    let routes = [hole("10.244.1.0/24", "192.0.2.11")];

    assert_snapshot!(settled_with(&[asking("b").at("192.0.2.12")], &routes, &record()), @"create 10.244.1.0/24 to b via sim://r/b at 192.0.2.11 instead of 10.244.1.0/24=192.0.2.11");
    assert_snapshot!(settled_with(&[asking("b")], &routes, &Record::default()), @"refuse 10.244.1.0/24 to b: route 10.244.1.0/24=192.0.2.11 via 192.0.2.11 is of unknown origin and conflicts with the new route. Remove the existing route; the controller never removes it");
}

#[test]
fn node_registered_again_keeps_the_untagged_route() {
    let routes = [unmarked("10.244.1.0/24", "192.0.2.11").via("sim://r/a")];
    let plan = settled_with(&[asking("a").uid("a2")], &routes, &record());

    assert_eq!(plan.to_string(), "");
    assert_eq!(plan.record.node_of(&routes[0]), Some("a2"));
}

#[test]
fn route_via_another_address_of_the_instance_is_replaced() {
    let routes = [unmarked("10.244.1.0/24", "192.0.2.99").via("sim://r/a")];

    assert_snapshot!(settled_with(&[asking("a")], &routes, &Record::default()), @"create 10.244.1.0/24 to a via sim://r/a at 192.0.2.11 instead of 10.244.1.0/24=192.0.2.99");
}

#[test]
fn untagged_route_is_foreign_where_the_cloud_has_tags() {
    let served = unmarked("10.244.1.0/24", "192.0.2.11").via("sim://r/a");
    let while_it_serves = plan(&[asking("a")], std::slice::from_ref(&served), &cluster(), None);
    assert_eq!((while_it_serves.to_string(), while_it_serves.record), (String::new(), Record::default()));
    assert_eq!(plan(&Vec::<Node>::new(), &[served], &cluster(), None).to_string(), "");
}

#[test]
fn record_forgets_routes_that_are_gone() {
    let none = plan(&Vec::<Node>::new(), &Vec::<Route>::new(), &cluster(), Some(&record())).record;
    assert_eq!(none, Record::default());
    assert_eq!(settled_with(&[], &[hole("10.244.1.0/24", "192.0.2.11")], &none).to_string(), "");
}

#[test]
fn only_differing_entries_are_written() {
    let entries = |entries: &[(&str, &str)]| -> Record {
        entries.iter().map(|(id, uid)| ((*id).to_owned(), (*uid).to_owned())).collect()
    };
    let (old, new) =
        (entries(&[("1", "a"), ("2", "b"), ("3", "c")]), entries(&[("1", "a"), ("2", "x"), ("4", "d")]));
    let changes: Vec<_> = new.changes_since(&old).into_iter().collect();
    assert_eq!(changes, [("2", Some("x")), ("3", None), ("4", Some("d"))]);
    assert!(new.changes_since(&new).is_empty());
}
