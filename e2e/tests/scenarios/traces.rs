//! Traces of the processes: they connect a new Service, a node or its route with the calls of the cloud.

use anyhow::{Context, ensure};
use e2e::{Bed, WITHIN, eventually};
use serde_json::{Value, json};
use telemetry::traces::testing::{Collector, Received};

// Behaviour: P23
#[tokio::test]
async fn a_service_and_a_node_are_traced_to_the_vendor_calls() {
    let collector = Collector::start().await.unwrap();
    let variables = variables(&collector);
    let values = json!({ "adapter": variables, "serviceController": variables, "nodeController": variables });
    let bed = Bed::start_with(&values).await.unwrap();
    bed.join("a", None).await.unwrap();
    bed.expose("web", 80).await.unwrap();

    let of_service = eventually("the traces of the Service have arrived", WITHIN, || async {
        of_service(&collector.received())
    });
    of_service.await.unwrap();
    let of_node = eventually("the traces of the node have arrived", WITHIN, || async {
        of_node(&collector.received())
    });
    of_node.await.unwrap();
    let traced = ["service-controller", "node-controller", "adapter-sim"];
    let others = collector.received().into_iter().map(|span| span.service);
    let others: Vec<_> = others.filter(|it| !traced.contains(&it.as_str())).collect();
    assert!(others.is_empty(), "processes without an endpoint send nothing: {others:?}");
}

// Behaviour: P23
#[tokio::test]
async fn a_route_is_traced_to_the_vendor_call() {
    let collector = Collector::start().await.unwrap();
    let variables = variables(&collector);
    let values = json!({
        "adapter": variables,
        "routeController": variables,
        "serviceController": { "enabled": false },
    });
    let bed = Bed::start_with(&values).await.unwrap();
    bed.join("a", Some("10.244.1.0/24")).await.unwrap();
    let of_route = eventually("the traces of the route have arrived", WITHIN, || async {
        of_route(&collector.received())
    });
    of_route.await.unwrap();
}

fn variables(collector: &Collector) -> Value {
    json!({ "extraEnv": [
        { "name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": collector.endpoint() },
        { "name": "OTEL_BSP_SCHEDULE_DELAY", "value": "100" },
    ] })
}

/// The reconcile that created the route, down to the vendor call, and the reconcile that wrote the node's condition.
fn of_route(received: &[Received]) -> anyhow::Result<()> {
    let lay = span(received, "adapter-sim", |it| it.name == "BatchRoutes")?;
    let task = parent(received, lay)?;
    let serve = parent(received, task)?;
    let call = parent(received, serve)?;
    let turn = parent(received, call)?;
    let way = [turn, call, serve, task].map(|it| format!("{}: {}", it.service, it.name));
    ensure!(
        way == [
            "route-controller: reconcile Routes",
            "route-controller: ApplyRoutes",
            "adapter-sim: cloudadapter.v1alpha1.RouteService/ApplyRoutes",
            "adapter-sim: converge routes",
        ],
        "{way:?}"
    );
    ensure!(turn.parent.is_empty(), "{turn:?}");
    for (span, names) in [
        (turn, &["reconcile.trigger", "reconcile.queued_seconds", "reconcile.attempt"][..]),
        (lay, &["budget.class", "budget.waited_seconds", "http.response.status_code"]),
    ] {
        ensure!(names.iter().all(|name| !attribute(span, name).is_empty()), "{span:?}");
    }
    let write = span(received, "route-controller", |it| {
        it.name == "PATCH" && attribute(it, "url.path").ends_with("/nodes/a/status")
    })?;
    let turn = parent(received, write)?;
    ensure!(turn.name == "reconcile Routes", "{turn:?}");
    Ok(())
}

/// The reconcile that created the load balancer, down to the vendor call, and the reconcile that wrote the Service.
fn of_service(received: &[Received]) -> anyhow::Result<()> {
    let create = span(received, "adapter-sim", |it| it.name == "CreateLoadBalancer")?;
    let task = parent(received, create)?;
    let serve = parent(received, task)?;
    let call = parent(received, serve)?;
    let turn = parent(received, call)?;
    let way = [turn, call, serve, task].map(|it| format!("{}: {}", it.service, it.name));
    ensure!(
        way == [
            "service-controller: reconcile service",
            "service-controller: EnsureLoadBalancer",
            "adapter-sim: cloudadapter.v1alpha1.LoadBalancerService/EnsureLoadBalancer",
            "adapter-sim: converge load balancer",
        ],
        "{way:?}"
    );
    ensure!(turn.parent.is_empty() && attribute(turn, "reconcile.key") == "default/web", "{turn:?}");
    for (span, names) in [
        (turn, &["reconcile.trigger", "reconcile.queued_seconds", "reconcile.attempt"][..]),
        (create, &["budget.class", "budget.waited_seconds", "http.response.status_code"]),
    ] {
        ensure!(names.iter().all(|name| !attribute(span, name).is_empty()), "{span:?}");
    }
    let page = include_str!("../../../docs/monitor.md");
    let missing: Vec<_> = way.iter().filter(|span| !page.contains(span.as_str())).collect();
    ensure!(missing.is_empty(), "the example of docs/monitor.md lacks {missing:?}");
    let write = span(received, "service-controller", |it| {
        it.name == "PATCH" && attribute(it, "url.path").ends_with("/services/web/status")
    })?;
    let turn = parent(received, write)?;
    ensure!(turn.name == "reconcile service", "{turn:?}");
    Ok(())
}

/// Checks that the reconcile that requested the instance links to the look-up that several nodes share, and that the look-up leads to the
/// vendor call. Also checks the reconcile that wrote the node.
fn of_node(received: &[Received]) -> anyhow::Result<()> {
    let question = span(received, "node-controller", |it| it.name == "look up instances")?;
    let turn = span(received, "node-controller", |it| {
        question.links.contains(&it.trace) && it.name == "reconcile Nodes"
    })?;
    ensure!(turn.parent.is_empty() && attribute(turn, "reconcile.key") == "a", "{turn:?}");
    let names = ["reconcile.trigger", "reconcile.queued_seconds", "reconcile.attempt"];
    ensure!(names.iter().all(|name| !attribute(turn, name).is_empty()), "{turn:?}");
    let list = span(received, "adapter-sim", |it| it.name == "ListInstances" && it.trace == question.trace)?;
    let serve = parent(received, list)?;
    let call = parent(received, serve)?;
    let way = [parent(received, call)?, call, serve].map(|it| format!("{}: {}", it.service, it.name));
    ensure!(
        way == [
            "node-controller: look up instances",
            "node-controller: BatchGetInstances",
            "adapter-sim: cloudadapter.v1alpha1.InstanceService/BatchGetInstances",
        ],
        "{way:?}"
    );
    ensure!(!attribute(list, "http.response.status_code").is_empty(), "{list:?}");
    let write = span(received, "node-controller", |it| {
        it.name == "PATCH" && attribute(it, "url.path").ends_with("/nodes/a")
    })?;
    let turn = parent(received, write)?;
    ensure!(turn.name == "reconcile Nodes", "{turn:?}");
    Ok(())
}

fn span<'a>(
    received: &'a [Received],
    service: &str,
    is: impl Fn(&Received) -> bool,
) -> anyhow::Result<&'a Received> {
    let found = received.iter().find(|it| it.service == service && is(it));
    let names = || received.iter().map(|it| format!("{}: {}", it.service, it.name)).collect::<Vec<_>>();
    found.with_context(|| format!("{service} has no such span: {:?}", names()))
}

fn parent<'a>(received: &'a [Received], child: &Received) -> anyhow::Result<&'a Received> {
    let found = received.iter().find(|it| it.trace == child.trace && it.id == child.parent);
    found.with_context(|| format!("the parent has not arrived: {child:?}"))
}

fn attribute<'a>(span: &'a Received, name: &str) -> &'a str {
    span.attributes.get(name).map_or("", String::as_str)
}
