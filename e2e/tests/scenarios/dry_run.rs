//! Controllers in dry run change nothing, and the plans on their pages are what they execute after the dry run ends.

use adapter_sim::simcloud::Access;
use anyhow::{Context, ensure};
use e2e::{ADAPTER, Bed, CONTROLLERS, WITHIN, eventually, node, service};
use kube::ResourceExt;
use serde_json::json;
use telemetry::report::{ControllerStatus, Plans, Priced};

const PODS: &str = "10.244.1.0/24";

#[tokio::test]
async fn dry_run_changes_nothing_and_its_plan_is_executed_later() {
    let mut bed = Bed::install_with(&json!({ "dryRun": true })).await.unwrap();
    bed.cluster.pods.get(ADAPTER).unwrap().start().unwrap();
    // The node-controller initialises one node without dry run, as another controller would do before the installation.
    only_looks(&mut bed, "node-controller", false).await;
    bed.join("a", Some(PODS)).await.unwrap();
    bed.cluster.pods.get("node-controller").unwrap().terminate().await.unwrap();
    bed.cluster.cloud.create_instance("b").await.unwrap();
    node("b").register(&bed.client()).await.unwrap();
    service("web").port(80).create(&bed.client()).await.unwrap();
    let (before, mark) = (versions(&bed).await, bed.cluster.control_plane.audit_log().mark().unwrap());
    bed.cluster.cloud.reset_counts().await.unwrap();

    for name in CONTROLLERS {
        only_looks(&mut bed, name, true).await;
    }
    bed.ready().await.unwrap();
    let planned = what_is_planned(&mut bed).await;
    assert_eq!(versions(&bed).await, before);
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().writes, 0);
    for name in CONTROLLERS {
        assert_eq!(
            bed.writes_of(name, mark, "unknown").unwrap(),
            [],
            "{name} wrote nothing, no Events either"
        );
        bed.cluster.pods.get(name).unwrap().terminate().await.unwrap();
    }

    // The node-controller is last, because the node that it initialises would become a backend of the Services.
    only_looks(&mut bed, "service-controller", false).await;
    only_looks(&mut bed, "route-controller", false).await;
    bed.address("web").await.unwrap();
    let laid = |cloud: &e2e::State| {
        cloud.routes.iter().find(|it| it.destination.to_string() == PODS).map(drop).context("no route")
    };
    bed.until_cloud("the node has its route", laid).await.unwrap();
    nothing_is_left(&mut bed, "service-controller").await;
    nothing_is_left(&mut bed, "route-controller").await;
    let requests = bed.cluster.cloud.requests().await.unwrap();
    let writes = requests.iter().filter(|it| it.access == Access::Write);
    let mut done: Vec<String> = writes.map(|it| format!("{:?}", it.operation)).collect();
    done.sort();
    assert_eq!(done, planned);
    only_looks(&mut bed, "node-controller", false).await;
    bed.initialised("b").await.unwrap();
    nothing_is_left(&mut bed, "node-controller").await;
}

/// Starts a controller with or without dry run, as after a change of the chart's value.
async fn only_looks(bed: &mut Bed, controller: &str, dry_run: bool) {
    let pod = bed.cluster.pods.get(controller).unwrap();
    pod.set_flag("--dry-run", if dry_run { "true" } else { "false" }).unwrap();
    pod.start().unwrap();
    pod.wait_ready(WITHIN).await.unwrap();
}

/// Resource versions of the objects that users would see change.
async fn versions(bed: &Bed) -> Vec<Option<String>> {
    let nodes = [bed.nodes().get("a").await.unwrap(), bed.nodes().get("b").await.unwrap()];
    let web = bed.services().get("web").await.unwrap();
    nodes.iter().map(ResourceExt::resource_version).chain([web.resource_version()]).collect()
}

/// The planned vendor operations, sorted by name.
async fn what_is_planned(bed: &mut Bed) -> Vec<String> {
    let web = planned(bed, "service-controller", "default/web").await;
    let finalizer = "add the finalizer service.kubernetes.io/load-balancer-cleanup";
    assert_eq!(web.cluster, [finalizer, "write the status, once the load balancer has an address"]);
    assert!(web.vendor.iter().any(|it| it.operation == "CreateLoadBalancer"), "{web:#?}");
    let b = planned(bed, "node-controller", "b").await;
    assert!(b.cluster.iter().any(|line| line.starts_with("initialise provider ID sim://")), "{b:#?}");
    assert!(b.vendor.is_empty(), "{b:#?}");
    let a = planned(bed, "route-controller", "a").await;
    assert_eq!(a.cluster, ["set the condition NetworkUnavailable to False (RouteCreated)"]);
    let operations: Vec<&str> = a.vendor.iter().map(|it| it.operation.as_str()).collect();
    assert_eq!(operations, ["BatchRoutes"]);
    let steps = web.vendor.iter().chain(&a.vendor);
    let mut operations: Vec<String> = steps.map(|it| it.operation.clone()).collect();
    operations.sort();
    operations
}

/// Waits until all objects have a plan, and returns the plan of the only object that needs a change.
async fn planned(bed: &mut Bed, controller: &str, key: &str) -> Priced {
    let pod = &*bed.cluster.pods.get(controller).unwrap();
    eventually(&format!("{controller} has a plan for {key}"), WITHIN, || async {
        let status: ControllerStatus = serde_json::from_str(&pod.page("/status").await?)?;
        ensure!(status.dry_run, "{status:#?}");
        let page: Plans = serde_json::from_str(&pod.page("/plan").await?)?;
        ensure!(page.dry_run && page.of > 0 && page.looked_at == page.of, "{page:#?}");
        let own = page.objects.iter().find(|it| it.key == key && it.trouble.is_none());
        own.cloned().with_context(|| format!("{page:#?}"))
    })
    .await
    .unwrap()
}

async fn nothing_is_left(bed: &mut Bed, controller: &str) {
    let pod = &*bed.cluster.pods.get(controller).unwrap();
    eventually(&format!("{controller} has nothing to do"), WITHIN, || async {
        let page: Plans = serde_json::from_str(&pod.page("/plan").await?)?;
        let all_is_well = !page.dry_run && page.looked_at == page.of && page.objects.is_empty();
        ensure!(all_is_well, "{page:#?}");
        Ok(())
    })
    .await
    .unwrap();
}
