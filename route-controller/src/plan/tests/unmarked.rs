//! Clouds that cannot remember whose a route is: what was seen to serve a node is ours, and nothing else.

use insta::assert_snapshot;

use super::{cluster, node, route, settled_with};
use crate::plan::node::Node;
use crate::plan::plan;
use crate::plan::record::Record;
use crate::plan::route::{Owner, Route, State};

/// A route of such a cloud: the ID is what there is of it.
fn unmarked(to: &str, at: &str) -> Route {
    route(&format!("{to}={at}"), to).at(at).owned(Owner::Unmanaged)
}

/// The machine is gone, and its address with it.
fn hole(to: &str, at: &str) -> Route {
    unmarked(to, at).is(State::Blackhole)
}

fn asking(name: &str) -> Node {
    node(name).pods("10.244.1.0/24").at("192.0.2.11")
}

/// What is known after node `a` was served at 192.0.2.11.
fn record() -> Record {
    let serving = unmarked("10.244.1.0/24", "192.0.2.11").via("sim://r/a");
    plan(&[asking("a")], &[serving], &cluster(), Some(&Record::default())).record
}

#[test]
fn a_route_that_served_a_node_goes_when_the_node_is_gone() {
    for (name, found, expected) in [
        ("with its machine", hole("10.244.1.0/24", "192.0.2.11"), "192.0.2.11"),
        (
            "the machine stays",
            unmarked("10.244.1.0/24", "192.0.2.11").via("sim://r/a"),
            "sim://r/a at 192.0.2.11",
        ),
        (
            "another has its address",
            unmarked("10.244.1.0/24", "192.0.2.11").via("sim://r/x"),
            "sim://r/x at 192.0.2.11",
        ),
    ] {
        let plan = settled_with(&[], &[found], &record());
        let line = format!("remove 10.244.1.0/24 (10.244.1.0/24=192.0.2.11) to node a if via {expected}\n");
        assert_eq!(plan.to_string(), line, "{name}");
    }
}

#[test]
fn what_was_never_seen_to_serve_a_node_stays_whatever_it_looks_like() {
    for (name, found) in [
        ("of a node that this controller never saw", hole("10.244.2.0/24", "192.0.2.12")),
        ("to the same pods, by another way", hole("10.244.1.0/24", "192.0.2.99")),
        ("marked by another cluster since", hole("10.244.1.0/24", "192.0.2.11").owned(Owner::OtherCluster)),
        ("an operator's, beside the pods", hole("10.99.0.0/24", "192.0.2.11")),
        (
            "to a node of ours, for pods that are not its own",
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
fn a_node_that_gets_the_pods_of_one_that_is_gone_gets_its_route() {
    let routes = [hole("10.244.1.0/24", "192.0.2.11")];

    assert_snapshot!(settled_with(&[asking("b").at("192.0.2.12")], &routes, &record()), @"lay    10.244.1.0/24 to b via sim://r/b at 192.0.2.11 instead of 10.244.1.0/24=192.0.2.11");
    assert_snapshot!(settled_with(&[asking("b")], &routes, &Record::default()), @"refuse 10.244.1.0/24 to b: route 10.244.1.0/24=192.0.2.11 via 192.0.2.11 is of unknown origin and in the way: remove it, it is never removed from here");
}

#[test]
fn a_node_that_is_registered_anew_keeps_the_route_to_its_machine() {
    let routes = [unmarked("10.244.1.0/24", "192.0.2.11").via("sim://r/a")];
    let plan = settled_with(&[asking("a").uid("a2")], &routes, &record());

    assert_eq!(plan.to_string(), "");
    assert_eq!(plan.record.node_of(&routes[0]), Some("a2"));
}

#[test]
fn a_route_that_leads_to_the_nodes_machine_by_another_address_is_laid_anew() {
    let routes = [unmarked("10.244.1.0/24", "192.0.2.99").via("sim://r/a")];

    assert_snapshot!(settled_with(&[asking("a")], &routes, &Record::default()), @"lay    10.244.1.0/24 to a via sim://r/a at 192.0.2.11 instead of 10.244.1.0/24=192.0.2.99");
}

#[test]
fn where_the_cloud_marks_routes_what_bears_no_mark_is_nobodys_even_if_it_serves() {
    let served = unmarked("10.244.1.0/24", "192.0.2.11").via("sim://r/a");
    let while_it_serves = plan(&[asking("a")], std::slice::from_ref(&served), &cluster(), None);
    assert_eq!((while_it_serves.to_string(), while_it_serves.record), (String::new(), Record::default()));
    assert_eq!(plan(&Vec::<Node>::new(), &[served], &cluster(), None).to_string(), "");
}

#[test]
fn what_is_gone_is_forgotten_so_that_its_like_is_somebody_elses() {
    let none = plan(&Vec::<Node>::new(), &Vec::<Route>::new(), &cluster(), Some(&record())).record;
    assert_eq!(none, Record::default());
    assert_eq!(settled_with(&[], &[hole("10.244.1.0/24", "192.0.2.11")], &none).to_string(), "");
}

#[test]
fn only_what_differs_is_written() {
    let entries = |entries: &[(&str, &str)]| -> Record {
        entries.iter().map(|(id, uid)| ((*id).to_owned(), (*uid).to_owned())).collect()
    };
    let (old, new) =
        (entries(&[("1", "a"), ("2", "b"), ("3", "c")]), entries(&[("1", "a"), ("2", "x"), ("4", "d")]));
    let changes: Vec<_> = new.changes_since(&old).into_iter().collect();
    assert_eq!(changes, [("2", Some("x")), ("3", None), ("4", Some("d"))]);
    assert!(new.changes_since(&new).is_empty());
}
