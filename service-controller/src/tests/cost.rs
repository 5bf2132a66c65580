//! Tests the cost of each kind of change: calls to the adapter, writes to the API server, and Events. The table in the README contains the
//! same numbers.
//!
//! Each row has its own Service, because a repeated Event only increases the count of the first Event.

use std::time::Duration;

use cloud_api_proto::DOMAIN;
use controller_core::{
    mirror::ObjectName,
    testing::{Verb, node, service},
};
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, Service},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::world::{World, name};
use crate::plan::left_over::Orphans;

const SERVICES: [&str; 15] = [
    "annotated",
    "same",
    "shown",
    "port",
    "cleared",
    "gone",
    "wrong",
    "stripped",
    "type",
    "deleted",
    "class",
    "back",
    "mode",
    "slow",
    "spoken",
];
const S: u32 = 15;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    puts: u32,
    ensures: u32,
    deletes: u32,
    infos: u32,
    reads: u32,
    /// Number of list requests for Services and for Nodes.
    lists: u32,
    writes: u32,
    events: u32,
}

impl Cost {
    fn so_far(world: &World) -> Self {
        let counted = |n: usize| u32::try_from(n).unwrap();
        Self {
            puts: world.cloud.calls("PutBackendSet"),
            ensures: world.cloud.calls("EnsureLoadBalancer"),
            deletes: world.cloud.calls("DeleteLoadBalancer"),
            infos: world.cloud.calls("GetInfo"),
            reads: world.kube.requests(Verb::Get, "services"),
            lists: ["services", "nodes"].iter().map(|it| world.kube.requests(Verb::List, it)).sum(),
            writes: counted(world.kube.writes().len()),
            events: counted(world.events().len()),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            puts: self.puts - before.puts,
            ensures: self.ensures - before.ensures,
            deletes: self.deletes - before.deletes,
            infos: self.infos - before.infos,
            reads: self.reads - before.reads,
            lists: self.lists - before.lists,
            writes: self.writes - before.writes,
            events: self.events - before.events,
        }
    }
}

const NOTHING: Cost =
    Cost { puts: 0, ensures: 0, deletes: 0, infos: 0, reads: 0, lists: 0, writes: 0, events: 0 };

type Row = (&'static str, fn(&World), Duration, Cost);

fn annotate(world: &World, service: &str, key: &str, value: &str) {
    world.change(service, |service| {
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert(format!("lb.{DOMAIN}/{key}"), value.to_owned());
    });
}

fn heartbeats(world: &World) {
    for n in 0..50 {
        let mut beating: Node = node("a").provider_id("sim://r1/a").at("10.0.0.1").build();
        let at = controller_core::testing::BEGIN + jiff::SignedDuration::from_secs(10 * n);
        let ready = NodeCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            last_heartbeat_time: Some(Time(at)),
            ..NodeCondition::default()
        };
        beating.status.get_or_insert_default().conditions = Some(vec![ready]);
        world.kube.put::<Node>(beating);
    }
}

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

#[rustfmt::skip]
const ROWS: [Row; 24] = [
    ("an hour", |_| (), HOUR, NOTHING),
    ("50 heartbeats", heartbeats, MINUTE, NOTHING),
    ("an unrelated annotation", |world| world.change("annotated", |service| {
        service.metadata.annotations.get_or_insert_default().insert("example.com/a".to_owned(), "b".to_owned());
        service.metadata.labels.get_or_insert_default().insert("team".to_owned(), "b".to_owned());
    }), MINUTE, NOTHING),
    ("a Service that needs no load balancer", |world| { world.service(service("none").of_type("ClusterIP").port(80)); }, MINUTE, NOTHING),
    ("a Service of another class", |world| { world.service(service("other").class("a/b").port(80)); }, MINUTE, NOTHING),
    ("an annotation with the default value", |world| annotate(world, "same", "internal", "false"), MINUTE, NOTHING),
    ("another hostname in the status", |world| annotate(world, "shown", "hostname", "a.example.com"), MINUTE,
        Cost { writes: 1, ..NOTHING }),
    ("another IP mode", |world| annotate(world, "mode", "ip-mode", "Proxy"), MINUTE, Cost { writes: 1, ..NOTHING }),
    ("a cleared status", |world| world.change("cleared", |service| service.status = None), MINUTE,
        Cost { writes: 1, ..NOTHING }),
    ("a removed finalizer", |world| world.change("stripped", |service| service.metadata.finalizers = None), MINUTE,
        Cost { writes: 1, ..NOTHING }),
    ("a mistake", |world| annotate(world, "wrong", "internal", "perhaps"), MINUTE,
        Cost { writes: 1, events: 1, ..NOTHING }),
    ("another port", |world| world.change("port", |service| {
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080;
    }), MINUTE, Cost { ensures: 1, events: 2, ..NOTHING }),
    ("the application protocol of a port, which the adapter may use", |world| world.change("spoken", |service| {
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].app_protocol = Some("kubernetes.io/h2c".to_owned());
    }), MINUTE, Cost { ensures: 1, events: 2, ..NOTHING }),
    ("a load balancer deleted by another client, which gets another address", |world| world.cloud.edit(|state| {
        state.load_balancers.remove("lb-uid-gone");
    }), MINUTE, Cost { ensures: 1, writes: 1, events: 2, ..NOTHING }),
    ("backends removed by another client", |world| world.cloud.edit(|state| {
        state.load_balancers.get_mut("lb-uid-back").unwrap().backends = 1;
    }), MINUTE, Cost { ensures: 1, ..NOTHING }),
    ("ten nodes join", |world| (0..10).for_each(|n| { world.node(&format!("n{n}")); }), MINUTE,
        Cost { puts: 1, ensures: S, events: S, ..NOTHING }),
    ("a new Service", |world| { world.service(service("new").port(80)); }, MINUTE,
        Cost { ensures: 1, writes: 2, events: 2, ..NOTHING }),
    ("a new Service that takes three polls", |world| {
        world.cloud.edit(|state| state.pending = 3);
        world.service(service("late").port(80));
    }, MINUTE, Cost { ensures: 1 + 3, writes: 2, events: 2, ..NOTHING }),
    ("another port, which takes two polls", |world| {
        world.cloud.edit(|state| state.pending = 2);
        world.change("late", |service| {
            service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080;
        });
    }, MINUTE, Cost { writes: 2, ensures: 1 + 2, ..NOTHING }),
    ("another type", |world| world.change("type", |service| {
        service.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
    }), MINUTE, Cost { deletes: 1, writes: 1, events: 2, ..NOTHING }),
    ("a deleted Service", |world| world.kube.delete::<Service>(&name("deleted")), MINUTE,
        Cost { deletes: 1, writes: 1, events: 2, ..NOTHING }),
    ("a deleted Service, which takes two polls", |world| {
        world.cloud.edit(|state| state.pending = 2);
        world.kube.delete::<Service>(&name("slow"));
    }, MINUTE, Cost { deletes: 1 + 2, writes: 1, events: 2, ..NOTHING }),
    ("a deleted Service whose finalizer was removed before", |world| {
        world.kube.put::<Service>(service("class").port(80).deleted());
    }, MINUTE, Cost { deletes: 1, reads: 1, events: 2, ..NOTHING }),
    ("an hour in which nodes do not change", |world| world.kube.put::<Node>(
        node("a").provider_id("sim://r1/a").at("10.0.0.1").label("pet", "cat")), HOUR, NOTHING),
];

// Behaviour: SF4, P34
#[tokio::test(start_paused = true)]
async fn service_controller_costs_match_readme() {
    let world = World::start().await;
    world.node("a").node("b");
    for name in SERVICES {
        world.service(service(name).port(80));
    }
    let all = |world: &World| SERVICES.iter().all(|name| !world.ingress(name).is_empty());
    world.eventually("all Services have an address", all).await;
    world.quiet().await;
    for (what, happens, passes, want) in ROWS {
        let before = Cost::so_far(&world);
        happens(&world);
        tokio::time::sleep(passes).await;
        assert_eq!(Cost::so_far(&world).since(before), want, "{what}");
    }

    let before = Cost::so_far(&world);
    let world = world.restart().await;
    world.quiet().await;
    // Four Services are gone and two are new. One of the new Services is invalid and causes an Event but no call.
    let want = Cost { puts: 1, ensures: S - 4 + 2 - 1, infos: 1, lists: 2, events: 1, ..NOTHING };
    assert_eq!(Cost::so_far(&world).since(before), want, "a restart");

    let before = Cost::so_far(&world);
    world.cloud.away(true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.cloud.away(false);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(Cost::so_far(&world).since(before), Cost { infos: 1, ..NOTHING }, "a restart of the adapter");

    let world = world.stop().await;
    world.kube.put::<Service>(service("annotated").port(80).deleted());
    let world = world.restart().await;
    world.quiet().await;
    let before = Cost::so_far(&world);
    tokio::time::sleep(HOUR).await;
    assert_eq!(Cost::so_far(&world).since(before), Cost { reads: 1, events: 1, ..NOTHING }, "an orphan");
}

/// One set per selector is uploaded. Selectors that match no added or removed node cause no upload.
// Behaviour: P34
#[tokio::test(start_paused = true)]
async fn node_change_costs_one_set_per_selector_and_one_call_per_service() {
    let world = World::start().await;
    let edge = |name: &str| {
        let named = node(name).provider_id(&format!("sim://r1/{name}")).at("10.0.0.1");
        world.kube.put::<Node>(named.label("tier", "edge"));
    };
    edge("a");
    world.quiet().await;
    for n in 0..3 {
        world.service(service(&format!("all-{n}")).port(80));
        let selector = format!("lb.{DOMAIN}/node-selector");
        world.service(service(&format!("edge-{n}")).port(80).annotation(&selector, "tier=edge"));
    }
    let all = |world: &World| {
        (0..3).all(|n| ["all", "edge"].iter().all(|it| !world.ingress(&format!("{it}-{n}")).is_empty()))
    };
    world.eventually("all Services have an address", all).await;
    world.quiet().await;

    let before = Cost::so_far(&world);
    for n in 0..50 {
        world.node(&format!("n{n}"));
    }
    world.quiet().await;
    let want = Cost { puts: 1, ensures: 3, events: 3, ..NOTHING };
    assert_eq!(Cost::so_far(&world).since(before), want, "50 nodes that half of the Services select");

    let before = Cost::so_far(&world);
    (0..50).for_each(|n| edge(&format!("e{n}")));
    world.quiet().await;
    // Repeated Events only increase the count of the earlier Events.
    let want = Cost { puts: 2, ensures: 6, events: 3, ..NOTHING };
    assert_eq!(Cost::so_far(&world).since(before), want, "50 nodes that all select");

    let before = Cost::so_far(&world);
    for n in 0..50 {
        world.kube.delete::<Node>(&ObjectName::cluster(format!("n{n}")));
        world.kube.delete::<Node>(&ObjectName::cluster(format!("e{n}")));
    }
    world.quiet().await;
    // Both selectors match the same remaining node, so they share one set.
    let want = Cost { puts: 1, ensures: 6, ..NOTHING };
    assert_eq!(Cost::so_far(&world).since(before), want, "100 nodes leave");
    world.stop().await;
}

// Behaviour: P34
#[tokio::test(start_paused = true)]
async fn orphan_deletion_costs_reads_and_one_list() {
    let world = World::new().orphans(Orphans::DeleteAfter(HOUR)).started().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let world = world.stop().await;
    world.kube.put::<Service>(service("web").port(80).deleted());
    let world = world.started().await;
    world.quiet().await;
    world.cloud.edit(|state| state.pending = 2);
    let before = Cost::so_far(&world);
    tokio::time::sleep(2 * HOUR).await;
    // The controller reads the Service once before the report, and once before each call.
    let want = Cost { deletes: 1 + 2, reads: 1 + 3, lists: 1, events: 3, ..NOTHING };
    assert_eq!(Cost::so_far(&world).since(before), want);
    world.stop().await;
}
