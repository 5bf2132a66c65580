//! Tests the nodes behind load balancers, and the number of calls that changes of nodes cause.

use std::time::Duration;

use cloud_api_proto::{AdapterError, DOMAIN, Reason, v1alpha1::put_backend_set_request::Content};
use controller_core::testing::{node, service};
use k8s_openapi::{
    api::core::v1::{Node, Service, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::world::{World, name};
use crate::plan::left_out::{AUTOSCALER_TAINT, EXCLUDE_LABEL};

#[tokio::test(start_paused = true)]
async fn services_with_same_selector_share_one_set() {
    let world = World::start().await;
    let zoned = |name: &str, zone: &str| {
        node(name).provider_id(&format!("sim://r1/{name}")).at("10.0.0.1").label("zone", zone)
    };
    world.kube.put::<Node>(zoned("a", "one"));
    world.kube.put::<Node>(zoned("b", "two"));
    let selects = format!("lb.{DOMAIN}/node-selector");
    world.service(service("all").port(80));
    world.eventually_ingress_of("all").await;
    world.eventually("all nodes are backends", |world| world.backends() == ["a", "b"]).await;
    world.quiet().await;
    let before = world.cloud.calls("PutBackendSet");
    for name in ["web", "api"] {
        world.service(service(name).port(80).annotation(&selects, "zone=one"));
        world.eventually_ingress_of(name).await;
        assert_eq!(world.backends(), ["a"]);
    }
    world.quiet().await;
    assert_eq!(world.cloud.calls("PutBackendSet") - before, 1, "one set for both Services");

    let before = world.cloud.calls("EnsureLoadBalancer");
    world.kube.put::<Node>(zoned("c", "two"));
    world
        .eventually("the third node is a backend of one Service", |world| world.backends() == ["a", "b", "c"])
        .await;
    world.quiet().await;
    assert_eq!(
        world.cloud.calls("EnsureLoadBalancer") - before,
        1,
        "Services that do not select the node are not changed"
    );

    world.change("web", |service| {
        service.metadata.annotations.get_or_insert_default().insert(selects.clone(), "zone=none".to_owned());
    });
    world
        .eventually_events(&[
            "Warning UnAvailableLoadBalancer web: There are no available nodes for LoadBalancer: no node matches annotation lb.cloudadapter.dev/node-selector: zone=none",
        ])
        .await;
}

// Behaviour: SN6, SN8, W13
#[tokio::test(start_paused = true)]
async fn simultaneous_nodes_are_one_change() {
    let world = World::start().await;
    world.node("a");
    world.service(service("web").port(80)).service(service("api").port(443));
    world
        .eventually("both Services have an address", |w| {
            !w.ingress("web").is_empty() && !w.ingress("api").is_empty()
        })
        .await;
    world.quiet().await;
    let before = (world.cloud.calls("EnsureLoadBalancer"), world.cloud.calls("PutBackendSet"));
    for n in 0..50 {
        world.node(&format!("n{n:02}"));
    }
    world.eventually("the nodes are backends", |world| world.backends().len() == 51).await;
    world.quiet().await;
    let after = (world.cloud.calls("EnsureLoadBalancer"), world.cloud.calls("PutBackendSet"));
    assert_eq!((after.0 - before.0, after.1 - before.1), (2, 1));
    let delta = world.cloud.read(|state| state.put_backend_sets.last().cloned()).unwrap();
    assert!(
        matches!(delta.content, Some(Content::Delta(delta)) if delta.add.len() == 50 && delta.remove.is_empty())
    );
    let updated = "Normal UpdatedLoadBalancer web: Updated load balancer with new hosts";
    assert!(world.events().iter().any(|event| event.starts_with(updated)), "{:?}", world.events());
}

// Behaviour: SN8
#[tokio::test(start_paused = true)]
async fn only_address_changes_are_reported_as_new_hosts() {
    let a = || node("a").provider_id("sim://r1/a");
    let rows = [
        ("its zone", a().at("10.0.0.1").label("topology.kubernetes.io/zone", "z2"), false),
        ("its address", a().at("10.0.0.9"), true),
    ];
    for (what, changed, reported) in rows {
        let world = World::new();
        world.node("a").service(service("web").port(80));
        let world = world.started().await;
        world.eventually_ingress_of("web").await;
        world.quiet().await;
        let before = world.cloud.calls("EnsureLoadBalancer");
        world.kube.put::<Node>(changed);
        world.eventually(what, |world| world.cloud.calls("EnsureLoadBalancer") > before).await;
        world.quiet().await;
        let events = world.events();
        let updated = events.iter().any(|it| it.contains("UpdatedLoadBalancer web"));
        assert_eq!(updated, reported, "{what}: {events:?}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_backend_set_is_uploaded_again() {
    let world = World::start().await;
    world.node("a");
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world.cloud.edit(|state| state.backend_sets.clear());
    world.node("b");
    world.eventually("the node is a backend", |world| world.backends() == ["a", "b"]).await;
    world.cloud.edit(|state| state.backend_sets.clear());
    world.change("web", |service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080);
    world
        .eventually("the port is added", |world| world.last_ensure().spec.unwrap().listeners[0].port == 8080)
        .await;
    assert_eq!(world.backends(), ["a", "b"]);
}

// Behaviour: S13
#[tokio::test(start_paused = true)]
async fn missing_nodes_are_reported() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    world
        .eventually_events(&[
            "Warning UnAvailableLoadBalancer web: There are no available nodes for LoadBalancer: the cluster has no nodes",
        ])
        .await;
}

/// The API server was restored from an old backup, or returns wrong answers.
// Behaviour: SN7
#[tokio::test(start_paused = true)]
async fn empty_node_list_keeps_backends_and_is_reported() {
    let world = World::start().await;
    world.node("a").node("b").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.eventually("both nodes are backends", |world| world.backends() == ["a", "b"]).await;
    world.quiet().await;
    let before = world.cloud.calls("EnsureLoadBalancer");
    let delete = |world: &World| {
        for name in ["a", "b"] {
            world.kube.delete::<Node>(&controller_core::mirror::ObjectName::cluster(name));
        }
    };
    world.kube.away(true);
    tokio::time::sleep(Duration::from_secs(1)).await;
    delete(&world);
    world.kube.away(false);
    let reported =
        |world: &World| world.events().iter().filter(|it| it.contains("NoNodesListed web")).count();
    world.eventually("an Event is emitted", |world| reported(world) == 1).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!((reported(&world), world.cloud.calls("EnsureLoadBalancer")), (1, before));

    // After a restart the backends are kept, too. A new Service still gets a load balancer, as in a cluster without nodes.
    let world = world.restart().await;
    world.service(service("new").port(80));
    world.eventually_ingress_of("new").await;
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), before + 1);

    world.node("a").node("b");
    world
        .eventually("both load balancers get the nodes", |world| {
            world.cloud.calls("EnsureLoadBalancer") == before + 3
        })
        .await;
    assert_eq!(world.backends(), ["a", "b"]);
    // After individual deletions of nodes, the backends are removed.
    world.quiet().await;
    delete(&world);
    world.eventually("no backends", |world| world.backends().is_empty()).await;
    let none = "Warning UnAvailableLoadBalancer web: There are no available nodes for LoadBalancer: the cluster has no nodes";
    world.eventually_events(&[none]).await;
}

/// Each change that affects whether a node is a target is tested alone, and reverted where that is possible.
// Behaviour: SN3, W22
#[tokio::test(start_paused = true)]
async fn every_change_of_target_status_is_followed() {
    let plain = || node("b").provider_id("sim://r1/b").at("10.0.0.2");
    let taint = |node: Node| {
        let taint =
            Taint { key: AUTOSCALER_TAINT.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
        let mut node = node;
        node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
        node
    };
    let deleted = |mut node: Node| {
        node.metadata.deletion_timestamp = Some(Time(controller_core::testing::BEGIN));
        node
    };
    let rows: [(&str, Node, bool); 12] = [
        ("excluded", plain().label(EXCLUDE_LABEL, "").build(), false),
        ("included again", plain().build(), true),
        ("excluded by a value that Go parses as true", plain().label(EXCLUDE_LABEL, "T").build(), false),
        ("the label says false", plain().label(EXCLUDE_LABEL, "false").build(), true),
        ("the autoscaler is about to remove it", taint(plain().build()), false),
        ("the autoscaler no longer removes it", plain().build(), true),
        ("the provider ID is removed", node("b").at("10.0.0.2").build(), false),
        ("another provider ID", node("b").provider_id("sim://r1/new").at("10.0.0.2").build(), true),
        ("the address is removed", node("b").provider_id("sim://r1/new").build(), false),
        ("another address", node("b").provider_id("sim://r1/new").at("10.0.0.9").build(), true),
        ("the node is being deleted", deleted(plain().build()), false),
        ("the node is recreated", plain().build(), true),
    ];
    let world = World::start().await;
    world.node("a");
    world.kube.put::<Node>(plain());
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.eventually("both nodes are backends", |world| world.backends() == ["a", "b"]).await;
    for (what, changed, is_target) in rows {
        world.quiet().await;
        let before = world.cloud.calls("EnsureLoadBalancer");
        world.kube.put::<Node>(changed);
        let want: &[&str] = if is_target { &["a", "b"] } else { &["a"] };
        world.eventually(what, |world| world.backends() == want).await;
        world.quiet().await;
        assert_eq!(world.cloud.calls("EnsureLoadBalancer"), before + 1, "{what}");
    }
    world.quiet().await;
    let before = world.cloud.calls("EnsureLoadBalancer");
    for cordoned in [
        plain().label("node.kubernetes.io/exclude-balancers", "true").build(),
        plain().tainted("node.kubernetes.io/unschedulable", None, "NoSchedule").build(),
        plain().tainted("node.cloudprovider.kubernetes.io/shutdown", None, "NoSchedule").build(),
    ] {
        world.kube.put::<Node>(cordoned);
        world.quiet().await;
    }
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), before, "no other field causes a call");
    world.kube.delete::<Node>(&controller_core::mirror::ObjectName::cluster("b"));
    world.eventually("the node is no longer a backend", |world| world.backends() == ["a"]).await;
}

/// Nodes and the Service change repeatedly while the adapter is slow.
// Behaviour: W12
#[tokio::test(start_paused = true)]
async fn node_and_service_changes_are_both_applied() {
    let world = World::start().await;
    world.node("n0").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.cloud.slow("EnsureLoadBalancer", Duration::from_secs(3));
    for n in 1..10 {
        world.node(&format!("n{n}"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.change("web", |service| {
            service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 80 + n;
        });
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    let port = |world: &World| world.last_ensure().spec.unwrap().listeners[0].port;
    world
        .eventually("nodes and ports are up to date in the end", |world| {
            world.backends().len() == 10 && port(world) == 89
        })
        .await;
    assert_eq!(world.cloud.read(|state| state.under_way["uid-web"]), (0, 1));
}

/// The test deletes one load balancer while the finalizer is set, and one without the finalizer.
// Behaviour: W12
#[tokio::test(start_paused = true)]
async fn pending_update_does_not_recreate_deleted_load_balancer() {
    for stripped in [false, true] {
        let world = World::start().await;
        world.node("a").service(service("web").port(80));
        world.eventually_ingress_of("web").await;
        world.quiet().await;
        let before = world.cloud.calls("EnsureLoadBalancer");
        world.cloud.slow("EnsureLoadBalancer", Duration::from_secs(10));
        world.node("b");
        let begun = |world: &World| world.cloud.read(|state| state.under_way["uid-web"].0 == 1);
        world.eventually("the node update is in progress", begun).await;
        if stripped {
            world.kube.put::<Service>(service("web").port(80).deleted());
        } else {
            world.kube.delete::<Service>(&name("web"));
        }
        // The nodes change again, but too late to be applied.
        world.node("c");
        world
            .eventually("the load balancer is deleted", |world| {
                world.cloud.read(|state| state.load_balancers.is_empty())
            })
            .await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        let most = world.cloud.read(|state| state.under_way["uid-web"].1);
        assert_eq!((world.cloud.calls("EnsureLoadBalancer") - before, most), (1, 1), "{stripped}");
        assert!(world.cloud.read(|state| state.load_balancers.is_empty()), "{stripped}");
        world.stop().await;
    }
}

/// The cluster grows continuously, so each node is added before the usual delay after the last change is over.
// Behaviour: SN6
#[tokio::test(start_paused = true)]
async fn continuous_node_changes_are_not_delayed() {
    let world = World::start().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let (begin, before) = (tokio::time::Instant::now(), world.cloud.calls("EnsureLoadBalancer"));
    let mut longest = Duration::ZERO;
    for n in 0..200 {
        world.node(&format!("n{n:03}"));
        tokio::time::sleep(Duration::from_millis(150)).await;
        let behind = world.backends().len();
        let waits = Duration::from_millis(150) * u32::try_from(n + 1 - behind.min(n + 1)).unwrap();
        longest = longest.max(waits);
    }
    let seconds = u32::try_from(begin.elapsed().as_secs()).unwrap();
    let asked = world.cloud.calls("EnsureLoadBalancer") - before;
    assert!(longest <= Duration::from_millis(1500), "a node waited {longest:?}");
    assert!(asked >= seconds / 2 && asked <= seconds + 2, "{asked} calls in {seconds} s");
    world.eventually("all nodes are backends", |world| world.backends().len() == 200).await;
}

// Behaviour: S26
#[tokio::test(start_paused = true)]
async fn failed_node_update_event_text() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    for _ in 0..2 {
        let error = AdapterError::new(Reason::VendorUnavailable, "503").retry_after(Duration::from_secs(3));
        world.cloud.fail_next("EnsureLoadBalancer", error);
    }
    world.node("b");
    world.eventually("the backends are updated in the end", |world| world.backends() == ["a", "b"]).await;
    world.quiet().await;
    let failed: Vec<_> = world.events().into_iter().filter(|event| event.contains("Failed")).collect();
    assert_eq!(
        failed,
        [
            "Warning UpdateLoadBalancerFailed web: Error updating load balancer with new hosts [a b] [node names limited, total \
             number of nodes: 2], error: 503; waiting for the cloud adapter and the cloud; retried automatically"
        ]
    );
    let updated = "Normal UpdatedLoadBalancer web: Updated load balancer with new hosts";
    world
        .eventually("the update is reported", |world| world.events().iter().any(|it| it.starts_with(updated)))
        .await;
}

// Behaviour: S28
#[tokio::test(start_paused = true)]
async fn invalid_settings_do_not_block_node_updates() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    let misspelt = format!("lb.{DOMAIN}/intrenal");
    world.change("web", |service| {
        service.metadata.annotations.get_or_insert_default().insert(misspelt.clone(), "true".to_owned());
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080;
    });
    let refused = |world: &World| world.events().iter().filter(|it| it.contains("did you mean")).count();
    world.eventually("an Event is emitted", |world| refused(world) == 1).await;
    for name in ["b", "c"] {
        world.node(name);
        world
            .eventually("the backends are updated", |world| {
                world.backends().last().is_some_and(|it| it == name)
            })
            .await;
        world.quiet().await;
    }
    assert_eq!(world.last_ensure().spec.unwrap().listeners[0].port, 80, "the last valid settings");
    world.cloud.edit(|state| state.load_balancers.clear());
    world
        .eventually("the load balancer is recreated", |world| {
            world.cloud.read(|state| state.load_balancers.len() == 1)
        })
        .await;
    assert_eq!(refused(&world), 1, "{:?}", world.events());

    world.change("web", |service| service.metadata.annotations = None);
    world
        .eventually("the port is updated", |world| {
            world.last_ensure().spec.unwrap().listeners[0].port == 8080
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn refused_settings_do_not_block_node_updates() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let immutable =
        AdapterError::new(Reason::ImmutableField, "cannot be changed").with("fields", "spec.listeners");
    world.cloud.fail_next("EnsureLoadBalancer", immutable);
    world.change("web", |service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 8080);
    let reported =
        |world: &World| world.events().iter().filter(|it| it.contains("cannot be changed")).count();
    world.eventually("an Event is emitted", |world| reported(world) == 1).await;
    world.node("b");
    world.eventually("the backends are updated", |world| world.backends() == ["a", "b"]).await;
    assert_eq!(world.last_ensure().spec.unwrap().listeners[0].port, 80);
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!(
        world.last_ensure().spec.unwrap().listeners[0].port,
        8080,
        "the settings are retried at intervals"
    );
}

/// The settings are retried at intervals. A further refusal is not reported.
// Behaviour: S28
#[tokio::test(start_paused = true)]
async fn lasting_refusal_is_reported_once_per_text() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let refuse = |text: &str, times: usize| {
        for _ in 0..times {
            world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(Reason::ImmutableField, text));
        }
    };
    let port = |port| {
        world.change("web", |service| service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = port);
    };
    let reported = || {
        let events = world.events();
        let count = |event: &String| match event.rsplit_once(" (x") {
            Some((_, count)) => count.trim_end_matches(')').parse().expect("a number"),
            None => 1_usize,
        };
        let reported = |text: &str| events.iter().filter(|it| it.contains(text)).map(count).sum::<usize>();
        (reported("first"), reported("second"))
    };
    refuse("first", 10);
    port(8080);
    tokio::time::sleep(Duration::from_mins(45)).await;
    assert_eq!(reported(), (2, 0), "re-emitted once after half an hour: {:?}", world.events());

    world.cloud.edit(|state| state.errors.clear());
    refuse("second", 10);
    tokio::time::sleep(Duration::from_mins(45)).await;
    assert_eq!(reported(), (2, 2), "{:?}", world.events());

    // The user corrects the mistake, and then makes the same mistake again. The second mistake is also reported.
    port(80);
    world.quiet().await;
    port(8080);
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!(reported(), (2, 3), "the settings are retried after some time");
}

/// Two failures of one Service must not lead to alternating Events.
#[tokio::test(start_paused = true)]
async fn mistake_is_reported_once_despite_other_failures() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    world.change("web", |service| {
        let annotations = service.metadata.annotations.get_or_insert_default();
        annotations.insert(format!("lb.{DOMAIN}/intrenal"), "true".to_owned());
    });
    // The failures are so rare that each report would be a separate Event.
    for _ in 0..10 {
        let error = AdapterError::new(Reason::VendorQuota, "no quota").retry_after(Duration::from_mins(7));
        world.cloud.fail_next("EnsureLoadBalancer", error);
    }
    world.cloud.edit(|state| state.load_balancers.clear());
    tokio::time::sleep(Duration::from_mins(50)).await;
    let reported = |text: &str| world.events().iter().filter(|it| it.contains(text)).count();
    assert_eq!((reported("did you mean"), reported("no quota")), (1, 1), "{:?}", world.events());
}

/// The node set of the last valid selector still follows the nodes, although the annotation contains another selector.
// Behaviour: S28
#[tokio::test(start_paused = true)]
async fn invalid_selector_keeps_previous_selection() {
    let world = World::start().await;
    let zoned = |name: &str, zone: &str| {
        node(name).provider_id(&format!("sim://r1/{name}")).at("10.0.0.1").label("zone", zone)
    };
    world.kube.put::<Node>(zoned("a", "one"));
    world.kube.put::<Node>(zoned("b", "two"));
    let key = format!("lb.{DOMAIN}/node-selector");
    world.service(service("web").port(80).annotation(&key, "zone=one"));
    world
        .eventually("one node is a backend", |world| {
            !world.ingress("web").is_empty() && world.backends() == ["a"]
        })
        .await;
    world.change("web", |service| {
        service.metadata.annotations.get_or_insert_default().insert(key.clone(), "zone=".to_owned() + "=!");
    });
    world.quiet().await;
    assert!(world.events().iter().any(|it| it.contains("node-selector")), "{:?}", world.events());
    // The node moves from one set to the other, while the set of all nodes does not change.
    world.kube.put::<Node>(zoned("b", "one"));
    world.eventually("both nodes are backends", |world| world.backends() == ["a", "b"]).await;
}
