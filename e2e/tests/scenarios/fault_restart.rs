//! Tests that restart, kill or shut down controllers while there is nothing to do.

use e2e::{Bed, CONTROLLERS, node, service};
use serde_json::json;

/// Keeps a node out of the load balancers, since their backends need vendor writes.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

// Behaviour: NI20, S21, R18, P7, W14, W20
#[tokio::test]
async fn a_restarted_controller_writes_nothing() {
    // After a kill, the next process must wait until the Lease expires.
    let short = json!({ "extraArgs": [
        "--leader-elect-lease-duration=4s",
        "--leader-elect-renew-deadline=3s",
        "--leader-elect-retry-period=1s",
    ] });
    let values = json!({ "nodeController": short, "serviceController": short, "routeController": short });
    let mut bed = Bed::start_with(&values).await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    // The instance has two addresses of one type, which strategic merge patches of the API server would merge.
    let addresses = json!([
        { "kind": "internal", "address": "10.0.0.200" },
        { "kind": "external", "address": "203.0.113.2" },
        { "kind": "internal", "address": "fd00::2" },
    ]);
    bed.cluster.cloud.create_instances(&json!({ "name": "b", "addresses": addresses })).await.unwrap();
    node("b").pods("10.244.2.0/24").register(&bed.client()).await.unwrap();
    bed.initialised("b").await.unwrap();
    bed.targets(2).await.unwrap();
    service("web").port(80).port(443).create(&bed.client()).await.unwrap();
    service("dns").port_of("UDP", 53).create(&bed.client()).await.unwrap();
    for name in ["web", "dns"] {
        bed.address(name).await.unwrap();
        bed.wait_for_event("Service", name, "EnsuredLoadBalancer").await.unwrap();
    }
    bed.all_quiet().await.unwrap();
    let cloud = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((cloud.load_balancers.len(), cloud.routes.len()), (2, 2));

    for (round, end) in [End::Terminated, End::Killed].into_iter().enumerate() {
        for name in CONTROLLERS {
            let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
            bed.cluster.cloud.reset_counts().await.unwrap();
            let pod = bed.cluster.pods.get(name).unwrap();
            match end {
                End::Terminated => pod.terminate().await.unwrap(),
                End::Killed => pod.kill().await.unwrap(),
            }
            pod.start().unwrap();
            bed.quiet(name).await.unwrap();
            // The canary shows that the controller works. The controller handles keys in order, so when the canary is done, all other keys
            // are done, too.
            let canary = format!("canary-{name}-{round}");
            handle(&bed, name, &canary).await;
            bed.quiet(name).await.unwrap();

            let what = format!("{name}, {end:?}");
            assert_eq!(bed.writes_of(name, mark, &canary).unwrap(), [], "{what}");
            let counts = bed.cluster.cloud.counts().await.unwrap();
            assert_eq!(counts.writes, 0, "{what}: {counts:?}");
        }
    }
    let after = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((after.load_balancers, after.routes), (cloud.load_balancers, cloud.routes));
}

#[derive(Clone, Copy, Debug)]
enum End {
    Terminated,
    Killed,
}

/// Gives a controller work that needs no vendor write, waits until it is done, and removes the object.
async fn handle(bed: &Bed, controller: &str, canary: &str) {
    let client = bed.client();
    if controller == "service-controller" {
        let unknown = "lb.cloudadapter.dev/no-such-annotation";
        service(canary).port(80).annotation(unknown, "").create(&client).await.unwrap();
        bed.wait_for_event("Service", canary, "SyncLoadBalancerFailed").await.unwrap();
        return bed.delete_service(canary).await.unwrap();
    }
    bed.cluster.cloud.create_instance(canary).await.unwrap();
    // An older node has the same pod CIDR, so this pod CIDR is refused and causes no route write.
    node(canary).label(EXCLUDED, "").pods("10.244.1.0/24").register(&client).await.unwrap();
    bed.wait_for_event("Node", canary, "Synced").await.unwrap();
    bed.wait_for_event("Node", canary, "PodCIDRRefused").await.unwrap();
    e2e::delete_node(&client, canary).await.unwrap();
}
