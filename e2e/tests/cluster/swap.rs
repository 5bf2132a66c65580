//! `helm upgrade` switches to another cloud. Before an operator confirms the move, no object is changed in the new cloud, and none is lost
//! in the old one.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use adapter_sim::simcloud::Operation;
use anyhow::{Context, ensure};
use e2e::{Launch, Process, Simcloud, delete_node, eventually, merge, node, seconds, service};
use e2e_tools::cluster::layout::FABRIC_ADDRESS;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::bed::{Bed, NAMESPACE, RELEASE, WITHIN, chart, scenario};
use crate::picture::Picture;

const CONTROLLERS: [&str; 3] = ["node-controller", "route-controller", "service-controller"];
/// Port of another simulated cloud.
const OTHER_CLOUD: u16 = 9798;
/// Ports of the adapter in Python, for gRPC and for probes.
const OTHER_ADAPTER: [u16; 2] = [9443, 9444];
/// Address of the console that lists the objects of its cloud.
const CONSOLE: &str = "127.0.0.1:9445";

/// With these values, a node is deleted soon after its instance. The pods run on the node with a kubelet.
fn values(change: &Value) -> Value {
    let there = json!({ "kubernetes.io/hostname": "node-1" });
    let mut values = json!({
        "adapter": { "cache": { "instances": { "maxAge": "2s" } }, "nodeSelector": there },
        "nodeController": {
            "deletion": { "monitorPeriod": "1s", "confirmAfter": "2s" }, "nodeSelector": there,
        },
        "routeController": { "nodeSelector": there },
        "serviceController": { "nodeSelector": there },
    });
    merge(&mut values, change);
    values
}

#[test]
fn another_cloud_endpoint_changes_nothing_until_confirmed() {
    scenario(1, async |bed| {
        let before = at_home(bed).await?;
        let (_process, other) = another_cloud(bed).await?;
        // The other cloud has an instance, because no controller would trust an empty listing.
        other.create_instance("of-somebody-else").await?;
        bed.cloud.reset_counts().await?;
        other.reset_counts().await?;

        upgrade(bed, &json!({ "adapter": { "sim": { "endpoint": other.url() } } })).await?;
        refused(bed, "demo", "other").await?;
        service("more").port(80).create(&bed.client).await?;
        wait_for_event(bed, "Service", "more", "SyncLoadBalancerFailed", |it| it.contains("project other"))
            .await?;
        let services: Api<Service> = Api::default_namespaced(bed.client.clone());
        services.delete("leaves", &DeleteParams::default()).await?;
        wait_for_event(bed, "Service", "leaves", "DeletingLoadBalancer", |_| true).await?;
        wait_for_event(bed, "Service", "leaves", "SyncLoadBalancerFailed", |it| it.contains("project other"))
            .await?;
        wait_for_listings(&other).await?;
        before.is_still_so(bed).await?;
        ensure!(services.get_opt("leaves").await?.is_some(), "its load balancer would be left behind");
        ensure!(no_writes(&other).await? && no_writes(&bed.cloud).await?);

        bed.upgrade(&values(&json!({}))).await?;
        bed.address("more").await?;
        bed.until_cloud("the load balancer of leaves is deleted", |state| {
            ensure!(state.balancer("leaves").is_err(), "it still exists");
            Ok(())
        })
        .await?;
        before.without("leaves").is_still_so(bed).await?;
        made_only(bed, 1).await?;
        ensure!(no_writes(&other).await?);
        Ok(())
    });
}

#[test]
fn another_adapter_serves_once_the_move_is_confirmed() {
    scenario(1, async |bed| {
        let before = at_home(bed).await?;
        bed.cloud.reset_counts().await?;
        let (mut python, external) = in_python(bed)?;
        upgrade(bed, &external).await?;
        refused(bed, "demo", "memory").await?;
        service("more").port(80).create(&bed.client).await?;
        wait_for_event(bed, "Service", "more", "SyncLoadBalancerFailed", |it| it.contains("project memory"))
            .await?;
        before.is_still_so(bed).await?;

        meant(bed, "project memory").await?;
        bed.address("more").await?;
        all_three_are_there(bed).await?;
        node("late").provider_id("sim://sim-1/i-0009").register(&bed.client).await?;
        wait_for_event(bed, "Node", "late", "InstanceForeign", |_| true).await?;
        delete_node(&bed.client, "late").await?;
        wait_for_event(bed, "Node", "node-1", "InstanceOfAnotherCloud", |_| true).await?;
        python.ensure_running()?;
        before.nodes_are_still_so(bed).await?;
        ensure!(no_writes(&bed.cloud).await?, "the objects in the first cloud are unchanged");

        upgrade(bed, &json!({})).await?;
        refused(bed, "memory", "demo").await?;
        meant(bed, "project demo").await?;
        for name in ["more", "web", "leaves"] {
            let here = bed
                .until_cloud(&format!("{name} has a load balancer"), |state| {
                    Ok(state.balancer(name)?.vips.first().context("no address yet")?.to_string())
                })
                .await?;
            let args = ["get", "service", name, "--output", "jsonpath={.status.loadBalancer.ingress[0].ip}"];
            bed.until(&format!("{name} has the address of its load balancer"), &args, |ip| ip == here)
                .await?;
        }
        have_a_network(bed).await?;
        before.is_still_so(bed).await?;
        made_only(bed, 1).await
    });
}

/// Installs the chart with the cloud of the nodes, two Services, and a node that is not ready but whose instance runs.
async fn at_home(bed: &Bed) -> anyhow::Result<Picture> {
    bed.install(&values(&json!({}))).await?;
    for name in ["web", "leaves"] {
        service(name).port(80).create(&bed.client).await?;
    }
    bed.cloud.create_instance("spare").await?;
    node("spare").not_ready().register(&bed.client).await?;
    bed.until_initialised().await?;
    for name in ["web", "leaves"] {
        bed.address(name).await?;
    }
    bed.until_cloud("routes and load balancers are ready", |state| {
        ensure!(state.routes.len() == 2, "{:?}", state.routes);
        for name in ["web", "leaves"] {
            let members = state.balancer(name)?.pools.iter().map(|pool| pool.members.len());
            ensure!(members.eq([2]), "{name}: {:?}", state.load_balancers);
        }
        Ok(())
    })
    .await?;
    have_a_network(bed).await?;
    let taints = ["get", "node", "node-1", "--output", "jsonpath={.spec.taints}"];
    bed.until("node-1 is not tainted", &taints, str::is_empty).await?;
    Picture::take(bed).await
}

async fn have_a_network(bed: &Bed) -> anyhow::Result<()> {
    let path = "jsonpath={.items[*].status.conditions[?(@.type==\"NetworkUnavailable\")].status}";
    let args = ["get", "nodes", "--output", path];
    bed.until("both nodes have a network", &args, |all| all == "False False").await.map(drop)
}

/// Starts another simulated cloud, beside the first.
async fn another_cloud(bed: &Bed) -> anyhow::Result<(Process, Simcloud)> {
    let address = format!("{FABRIC_ADDRESS}:{OTHER_CLOUD}");
    let launch = Launch {
        name: "other-cloud".to_owned(),
        program: variable("CLUSTER_XTASK")?.with_file_name("simcloud"),
        args: vec![format!("--listen={address}"), "--project=other".to_owned()],
        env: BTreeMap::new(),
        log_dir: bed.layout().logs(),
    };
    let (process, other) = (launch.start()?, Simcloud::at(&format!("http://{address}"))?);
    eventually("the other cloud answers", seconds(10), || other.counts()).await?;
    Ok((process, other))
}

/// Starts the adapter of examples/python-adapter, and returns the values to use it, without TLS.
fn in_python(bed: &Bed) -> anyhow::Result<(Process, Value)> {
    let python = variable("CLUSTER_PYTHON")?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = here.parent().unwrap_or(here).join("examples/python-adapter");
    let path = format!("{}:{}", example.display(), python.join("gen").display());
    let [grpc, http] = OTHER_ADAPTER.map(|port| format!("{FABRIC_ADDRESS}:{port}"));
    // With the console of its cloud, which is reachable on this host only.
    let args = ["-m", "tests.console", "--console-address", CONSOLE, "--insecure", "--grpc-address", &grpc];
    let args = args.into_iter().chain(["--http-address", &http]);
    let launch = Launch {
        name: "mem-adapter".to_owned(),
        program: python.join("venv/bin/python3"),
        args: args.map(str::to_owned).collect(),
        env: [("PYTHONPATH", path.as_str()), ("PYTHONDONTWRITEBYTECODE", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        log_dir: bed.layout().logs(),
    };
    let endpoint = format!("http://{grpc}");
    let external = json!({
        "kind": "external", "endpoint": endpoint, "tls": { "mode": "off" }, "authentication": "none",
        "sim": { "endpoint": "" },
    });
    Ok((launch.start()?, json!({ "adapter": external })))
}

/// Waits until each Service has a load balancer of this cluster in the cloud of the adapter in Python.
async fn all_three_are_there(bed: &Bed) -> anyhow::Result<()> {
    let uid = ["get", "namespace", "kube-system", "--output", "jsonpath={.metadata.uid}"];
    let form = format!("CLUSTER_ID={}", bed.kubectl(&uid).await?);
    let page = format!("http://{CONSOLE}/listOwned");
    eventually("the other cloud has three load balancers", WITHIN, || async {
        let listed = Command::new("curl").args(["-fsS", "--data", &form, &page]).output().await?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        ensure!(listed.lines().filter(|id| id.starts_with("lb-")).count() == 3, "{listed}");
        Ok(())
    })
    .await?;
    bed.step("the other cloud has three load balancers");
    Ok(())
}

fn variable(name: &str) -> anyhow::Result<PathBuf> {
    env::var_os(name)
        .map(PathBuf::from)
        .with_context(|| format!("{name} is not set; these scenarios are run by `cargo xtask test cluster`"))
}

/// Runs `helm upgrade` without waiting, because a controller that refuses the new cloud does not become ready.
async fn upgrade(bed: &Bed, change: &Value) -> anyhow::Result<()> {
    let file = bed.layout().home.join("swap.json");
    fs::write(&file, bed.values(&values(change)).to_string()).context("cannot write the values")?;
    let (chart, file) = (chart().display().to_string(), file.display().to_string());
    bed.helm(&["upgrade", RELEASE, &chart, "--values", &file]).await?;
    bed.step("helm upgrade returned");
    Ok(())
}

/// Checks that each controller reports the former project, the current project and the remedy, and is not ready.
async fn refused(bed: &Bed, before: &str, now: &str) -> anyhow::Result<()> {
    for controller in CONTROLLERS {
        let lease = lease(controller);
        let remedy = format!("annotate lease {lease} cloudadapter.dev/scope-");
        let moved = format!("now uses project {now}, not {before}.");
        wait_for_event(bed, "Lease", &lease, "CloudMoved", |note| {
            note.contains(&moved) && note.ends_with(&remedy)
        })
        .await?;
        let path = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
        let label = format!("app.kubernetes.io/component={controller}");
        let args = ["get", "pods", "--namespace", NAMESPACE, "--selector", &label, "--output", path];
        bed.until(&format!("{controller} is not ready"), &args, |all| all == "False").await?;
    }
    Ok(())
}

/// Confirms the move, with the command in the Events, and waits until the controllers use the new cloud.
async fn meant(bed: &Bed, project: &str) -> anyhow::Result<()> {
    for controller in CONTROLLERS {
        let lease = lease(controller);
        bed.kubectl(&["annotate", "lease", "--namespace", NAMESPACE, &lease, "cloudadapter.dev/scope-"])
            .await?;
        let path = "jsonpath={.metadata.annotations.cloudadapter\\.dev/scope}";
        let args = ["get", "lease", "--namespace", NAMESPACE, &lease, "--output", path];
        bed.until(&format!("{controller} works in {project}"), &args, |scope| scope.contains(project))
            .await?;
    }
    let controllers = CONTROLLERS.map(|name| format!("deployment/{name}"));
    let args = ["wait", "--namespace", NAMESPACE, "--for=condition=Available", "--timeout=2m"];
    let args: Vec<&str> = args.into_iter().chain(controllers.iter().map(String::as_str)).collect();
    bed.kubectl(&args).await?;
    bed.step("all controllers are ready");
    Ok(())
}

fn lease(controller: &str) -> String {
    format!("cloud-{controller}")
}

async fn wait_for_event(
    bed: &Bed,
    kind: &str,
    name: &str,
    reason: &str,
    says: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let says = &says;
    let seen = eventually(&format!("{kind} {name} has an Event {reason}"), WITHIN, || async {
        let events = e2e::events_on(&bed.client, kind, name).await?;
        let wanted = |line: &&String| line.starts_with(&format!("{reason}: ")) && says(line);
        events.iter().rfind(wanted).cloned().with_context(|| format!("{events:#?}"))
    })
    .await?;
    bed.step(&format!("{kind} {name}: {seen}"));
    Ok(())
}

/// Waits for three more listings of instances, after which a controller that trusted the listings would have acted.
async fn wait_for_listings(cloud: &Simcloud) -> anyhow::Result<()> {
    let lists = async || anyhow::Ok(cloud.counts().await?.of(Operation::ListInstances));
    let before = lists().await?;
    eventually("the instances are listed three more times", WITHIN, || async {
        let now = lists().await?;
        ensure!(now >= before + 3, "{now} times, {before} before");
        Ok(())
    })
    .await
}

async fn no_writes(cloud: &Simcloud) -> anyhow::Result<bool> {
    let counts = cloud.counts().await?;
    ensure!(counts.writes == 0, "{}: {counts:?}", cloud.url());
    Ok(true)
}

/// Checks that the first cloud got this number of new load balancers since the last reset, and no change of routes.
async fn made_only(bed: &Bed, balancers: u64) -> anyhow::Result<()> {
    let counts = bed.cloud.counts().await?;
    let made = [Operation::CreateLoadBalancer, Operation::BatchRoutes].map(|one| counts.of(one));
    ensure!(made == [balancers, 0], "{counts:?}");
    Ok(())
}
