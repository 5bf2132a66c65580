//! The adapter for OpenStack under the real controllers, on the real services of `cargo xtask openstack`: what goes wrong there, and what
//! it all costs, as the proxy before the services counts it.
//!
//! Each scenario has a project of its own, and leaves nothing in it. `cargo xtask test openstack-e2e` runs them; they are built with the
//! feature `openstack` only, and where there are no services they fail.

#![expect(clippy::unwrap_used, reason = "clippy knows tests, and not their helpers")]
#![expect(clippy::print_stdout, reason = "what a passed test has seen is asked for with --nocapture")]

mod node_access;
mod settings;
mod shared;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use adapter_conformance::params::Pattern;
use adapter_conformance::proxy::{Action, Calls, Rule};
use anyhow::{Context, bail, ensure};
use e2e::openstack::{Balancer, OpenStack, Project, Service as Api, State, operation};
use e2e::{ADAPTER, CONTROLLERS, Pod, Ready, eventually, node, seconds, service};
use futures::FutureExt;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, from_str, from_value, json};
use tokio::sync::Mutex;

type Bed = e2e::Bed<OpenStack>;

const OWNER: &str = "cloudadapter.dev/owner-name=";

/// Services, nodes and restarts cost what the adapter's README says, and a refresh is two pages.
#[tokio::test]
async fn what_happens_costs_what_is_promised() {
    scenario(costs).await;
}

async fn costs(bed: &mut Bed) -> anyhow::Result<()> {
    join_many(bed, 3).await?;
    let proxy = bed.cluster.cloud.proxy.clone();

    let mark = proxy.mark();
    let swept = eventually("the machines were listed twice", bed.within, || async {
        let calls = count(&proxy.since(mark));
        ensure!(calls.get("GET servers/detail") >= Some(&2), "{calls:?}");
        Ok(proxy.since(mark))
    });
    let swept = count(&swept.await?);
    told("two refreshes of 3 machines", &swept);
    let (servers, ports) = (of(&swept, "GET servers/detail"), of(&swept, "GET ports"));
    ensure!(servers.abs_diff(ports) <= 1 && of(&swept, "GET servers/*") == 0, "{swept:?}");
    one_that_is_not_ready_costs_nothing(bed).await?;

    let mark = proxy.mark();
    let began = tokio::time::Instant::now();
    for name in ["web", "shop"] {
        service(name).port(80).port(443).port(8080).create(&bed.client()).await?;
    }
    for name in ["web", "shop"] {
        bed.address(name).await?;
    }
    let polls = began.elapsed().as_secs() / 2 + 4;
    bed.quiet("service-controller").await?;
    let calls = proxy.since(mark);
    let made = count(&calls);
    told("two Services of three ports each", &made);
    let writes = count(&calls.writes());
    ensure!(writes == counted(&[("POST loadbalancers", 2), ("POST floatingips", 2)]), "{writes:?}");
    ensure!(
        of(&made, "GET loadbalancers") <= polls && of(&made, "GET loadbalancers/*") == 0,
        "{polls}: {made:?}"
    );

    bed.cluster.cloud.project.create_servers("node-4", 1).await?;
    let mark = proxy.mark();
    node("node-4").register(&bed.client()).await?;
    bed.until_cloud("all pools have 4 members", |state| {
        let behind = |it: &Balancer| it.is_active() && it.listeners.iter().all(|one| one.members.len() == 4);
        ensure!(state.balancers.iter().all(behind), "{:?}", state.balancers);
        Ok(())
    })
    .await?;
    bed.quiet("service-controller").await?;
    let calls = proxy.since(mark);
    let joined = count(&calls);
    told("a node joins, with six pools", &joined);
    let writes = count(&calls.writes());
    ensure!(writes == counted(&[("PUT pools/*/members", 6)]), "{writes:?}");
    // A listing may meet a pool that is about to change or still changing, which is then read again.
    ensure!(
        of(&joined, "GET pools/*/members") <= 12,
        "a pool that changed is read twice at most: {joined:?}"
    );
    let one_by_one = ["GET loadbalancers/*", "GET ports/*"].map(|it| of(&joined, it));
    ensure!(one_by_one == [0, 0], "it reads one by one: {joined:?}");

    let mark = proxy.mark();
    for name in CONTROLLERS {
        let pod = bed.cluster.pods.get(name)?;
        pod.terminate().await?;
        pod.start()?;
        bed.quiet(name).await?;
    }
    let calls = proxy.since(mark);
    told("all controllers are restarted", &count(&calls));
    ensure!(calls.writes().is_empty(), "{}", calls.writes());

    let mark = proxy.mark();
    bed.cluster.pods.get(ADAPTER)?.restart().await?;
    bed.ready().await?;
    eventually("everything was listed again", bed.within, || async {
        let calls = count(&proxy.since(mark));
        let listed = ["GET servers/detail", "GET loadbalancers", "GET routers/*"].map(|it| of(&calls, it));
        ensure!(listed.iter().all(|&n| n >= 2) && of(&calls, "GET pools/*/members") >= 6, "{calls:?}");
        Ok(())
    })
    .await?;
    for name in CONTROLLERS {
        bed.quiet(name).await?;
    }
    let calls = proxy.since(mark);
    let after = count(&calls);
    told("the adapter is killed and started", &after);
    ensure!(calls.writes().is_empty(), "{}", calls.writes());
    let single = |name: &&String| name.ends_with("/*") && !name.contains("routers");
    ensure!(!after.keys().any(|name| single(&name)), "it reads one by one: {after:?}");
    Ok(())
}

/// A refresh is a page of machines and one of their ports, up to a thousand of them, whatever becomes of nodes.
async fn one_that_is_not_ready_costs_nothing(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    e2e::set_ready(&bed.client(), "node-1", Ready::Unknown).await?;
    let adapter = &*bed.cluster.pods.get(ADAPTER)?;
    let (mark, earlier) = (proxy.mark(), refreshes(adapter).await?);
    let done = eventually("the machines were refreshed three times", bed.within, || async {
        let done = refreshes(adapter).await? - earlier;
        ensure!(done >= 3.0, "{done} times");
        Ok(done)
    });
    let done = done.await?;
    let calls = count(&proxy.since(mark));
    told(&format!("{done} refreshes of 3 machines, of which one is not ready"), &calls);
    // One may be under way at either end.
    let most = (1..).take_while(|n| f64::from(*n) <= done).count() + 2;
    let pages = ["GET servers/detail", "GET ports"].map(|it| of(&calls, it));
    ensure!(pages.iter().all(|n| usize::try_from(*n).is_ok_and(|n| n <= most)), "{most}: {calls:?}");
    ensure!(of(&calls, "GET servers/*") == 0, "it reads one by one: {calls:?}");
    e2e::set_ready(&bed.client(), "node-1", Ready::True).await
}

/// How often the machines were listed.
async fn refreshes(adapter: &Pod) -> anyhow::Result<f64> {
    let counts = adapter.counted("cloud_adapter_snapshot_refresh_total", "collection").await?;
    Ok(counts.get("instances").copied().unwrap_or_default())
}

/// What is full is told at the Service, tried again slowly, and done once there is room.
#[tokio::test]
async fn a_quota_is_told_and_heals_when_it_is_raised() {
    scenario(quotas).await;
}

async fn quotas(bed: &mut Bed) -> anyhow::Result<()> {
    bed.join("a", None).await?;
    let (project, proxy) = (Arc::clone(&bed.cluster.cloud.project), bed.cluster.cloud.proxy.clone());
    service("web").port(80).create(&bed.client()).await?;
    bed.address("web").await?;
    project.limit_balancers(2).await?;
    project.limit_floating_ips(1).await?;

    let mark = proxy.mark();
    // There is room for its load balancer, and not for its address.
    service("shop").port(80).create(&bed.client()).await?;
    let of_neutron = bed.told("Service", "shop", "SyncLoadBalancerFailed").await?;
    service("late").port(80).create(&bed.client()).await?;
    let of_octavia = bed.told("Service", "late", "SyncLoadBalancerFailed").await?;
    println!("{of_neutron}\n{of_octavia}");
    for said in [of_neutron, of_octavia] {
        ensure!(said.to_lowercase().contains("quota"), "{said}");
    }
    bed.quiet("service-controller").await?;

    project.limit_balancers(-1).await?;
    project.limit_floating_ips(-1).await?;
    // The next try comes five minutes after the last one.
    bed.within += seconds(300);
    bed.address("shop").await?;
    bed.address("late").await?;
    let tries = count(&proxy.since(mark).writes());
    // Of each one that failed and one that did not, and once more when a new Service comes back with its finalizer.
    for order in ["POST loadbalancers", "POST floatingips"] {
        ensure!((3..=4).contains(&of(&tries, order)), "{tries:?}");
    }
    Ok(())
}

/// Whatever happens to calls on their way, in the end everything is there, once.
#[tokio::test]
async fn a_cloud_in_trouble_gets_what_was_asked_for_once() {
    scenario(trouble).await;
}

async fn trouble(bed: &mut Bed) -> anyhow::Result<()> {
    bed.join("a", Some("10.244.1.0/24")).await?;
    let proxy = bed.cluster.cloud.proxy.clone();
    let creation = || Rule::writes().calls(pattern("^POST /load-balancer/v2/lbaas/loadbalancers"));
    let lists = || Rule::lists_of("load-balancers");
    let answer = |status| Action::AnswerWith {
        status,
        headers: vec![("retry-after".to_owned(), "1".to_owned())],
        body: "{}".to_owned(),
    };
    let rules = [
        ("creation answered 401", proxy.inject(creation().nth(1), Action::Answer(401))),
        // The same call, once more with another token.
        ("creation answered 413", proxy.inject(creation().nth(2), answer(413))),
        ("creation answered 429", proxy.inject(creation().nth(3), answer(429))),
        ("creation answered 503 unsent", proxy.inject(creation().nth(4), Action::Answer(503))),
        ("creation cut before", proxy.inject(creation().nth(5), Action::ResetBefore)),
        ("creation cut after", proxy.inject(creation().nth(6), Action::ResetAfter)),
        ("listing truncated", proxy.inject(lists().nth(2), Action::Truncate)),
        ("listing answered 503", proxy.inject(lists().nth(3), Action::Answer(503))),
        ("listing cut", proxy.inject(lists().nth(4), Action::ResetBefore)),
    ];
    let mark = proxy.mark();
    service("web").port(80).create(&bed.client()).await?;
    bed.address("web").await?;
    only_balancer(bed, "web").await?;
    for (what, rule) in &rules {
        ensure!(rule.fired() == 1, "{what}: {} times; {}", rule.fired(), proxy.since(mark));
    }
    drop(rules);
    println!("the Service has its load balancer after {}", proxy.since(mark).writes());

    empty_pages(bed).await?;
    no_balancers(bed).await?;
    revoked_token(bed).await?;
    forbidden(bed).await
}

/// A listing that shows nothing is no proof that there is nothing: what seems to be gone is looked for, and not made again.
async fn empty_pages(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    let before = bed.cluster.cloud.project.state().await?;
    let empty = proxy.inject(Rule::lists_of("instances"), Action::EmptyPage);
    e2e::set_ready(&bed.client(), "a", Ready::Unknown).await?;
    eventually("machines were listed three times, and none was shown", bed.within, || async {
        ensure!(empty.fired() >= 3, "{} times", empty.fired());
        Ok(())
    })
    .await?;
    drop(empty);
    let after = bed.cluster.cloud.project.state().await?;
    ensure!(bed.nodes().get_opt("a").await?.is_some(), "the node was deleted");
    ensure!(after.routes == before.routes && ids(&after) == ids(&before), "{before:?}\n{after:?}");
    e2e::set_ready(&bed.client(), "a", Ready::True).await
}

/// Two listings that show no load balancer prove that there is none, and another one is made. As soon as both are shown, the older one
/// stays with the address, and the other one goes.
async fn no_balancers(bed: &mut Bed) -> anyhow::Result<()> {
    let (project, proxy) = (Arc::clone(&bed.cluster.cloud.project), bed.cluster.cloud.proxy.clone());
    let (before, address) = (project.state().await?, bed.address("web").await?);
    let mark = proxy.mark();
    let empty = proxy.inject(Rule::lists_of("load-balancers").next(2), Action::EmptyPage);
    eventually("load balancers were listed twice, and none was shown", bed.within, || async {
        ensure!(empty.fired() == 2, "{} times", empty.fired());
        Ok(())
    })
    .await?;
    drop(empty);
    bed.until_cloud("web has its only load balancer, the one that it had, and no other", |state| {
        ensure!(ids(state) == ids(&before), "{before:?}\n{state:?}");
        ensure!(balancer(state, "web")?.is_active(), "{state:?}");
        let writes = count(&proxy.since(mark).writes());
        let (made, gone) = (of(&writes, "POST loadbalancers"), of(&writes, "DELETE loadbalancers/*"));
        // One that is still being made is not deleted at the first try.
        ensure!(made <= 1 && gone >= made, "{writes:?}");
        Ok(())
    })
    .await?;
    bed.quiet("service-controller").await?;
    told("two listings show no load balancer", &count(&proxy.since(mark).writes()));
    let after = project.state().await?;
    ensure!(ids(&after) == ids(&before), "{before:?}\n{after:?}");
    ensure!(bed.address("web").await? == address, "the address has changed");
    Ok(())
}

/// Nobody hears of a token that ends before its time.
async fn revoked_token(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    let mark = proxy.mark();
    bed.cluster.cloud.project.revoke_tokens().await?;
    let rejected = || proxy.since(mark).only(|call| call.status == Some(401)).len();
    eventually("a service knows that the token was taken back", bed.within, || async {
        ensure!(rejected() > 0, "{}", proxy.since(mark));
        Ok(())
    })
    .await?;
    bed.join("b", Some("10.244.2.0/24")).await?;
    let warnings = bed.events("Node", "b").await?;
    let warnings = warnings.iter().filter(|it| it.type_.as_deref() == Some("Warning"));
    ensure!(warnings.count() == 0, "{:?}", bed.warnings().await?);
    Ok(())
}

/// Who may not do it is told so, and does it when he may.
async fn forbidden(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    let creation = Rule::writes().calls(pattern("^POST /load-balancer/v2/lbaas/loadbalancers"));
    let denied = proxy.inject(creation, Action::Answer(403));
    service("shop").port(80).create(&bed.client()).await?;
    let said = bed.told("Service", "shop", "SyncLoadBalancerFailed").await?;
    ensure!(denied.fired() > 0, "{said}");
    println!("403: {said}");
    drop(denied);
    bed.address("shop").await?;
    only_balancer(bed, "shop").await.map(drop)
}

/// Others change what is ours: it is mended. What is theirs stays.
#[tokio::test]
async fn what_others_do_to_load_balancers_is_mended_and_what_is_theirs_stays() {
    scenario(others).await;
}

async fn others(bed: &mut Bed) -> anyhow::Result<()> {
    bed.join("a", None).await?;
    let project = Arc::clone(&bed.cluster.cloud.project);
    service("web").port(80).create(&bed.client()).await?;
    let address = bed.address("web").await?;
    bed.quiet("service-controller").await?;
    let web = only_balancer(bed, "web").await?;

    let order = json!({ "listener": {
        "name": "mine", "loadbalancer_id": web.id, "protocol": "TCP", "protocol_port": 9000,
    }});
    project.member.post(Api::LoadBalancer, "/v2/lbaas/listeners", &order).await?;
    let ports = json!([{ "name": "tls", "port": 443, "protocol": "TCP" }]);
    bed.patch_service("web", &json!({ "spec": { "ports": ports } })).await?;
    bed.until_cloud("web listens on its ports, and where somebody else wants it to", |state| {
        let web = balancer(state, "web")?;
        let listeners: Vec<_> =
            web.listeners.iter().map(|it| (it.protocol_port, it.name == "mine")).collect();
        ensure!(web.is_active(), "{}", web.provisioning_status);
        ensure!(listeners == [(80, false), (443, false), (9000, true)], "{listeners:?}");
        Ok(())
    })
    .await?;
    ensure!(bed.address("web").await? == address, "the address has changed");

    let lost = only_balancer(bed, "web").await?;
    project.delete_balancer(&lost.id).await?;
    let made = bed.until_cloud("web has another load balancer at its address", |state| {
        let web = balancer(state, "web")?;
        ensure!(web.id != lost.id && web.is_active() && web.listeners.len() == 2, "{web:?}");
        // The floating IP was not deleted, and people know it.
        ensure!(web.address().is_some_and(|it| it.to_string() == address), "{web:?}");
        Ok(web.clone())
    });
    let made = made.await?;
    ensure!(bed.address("web").await? == address, "the address has changed");

    // Its address is known to people: they decide, and it is told.
    project.break_balancer(&made.id).await?;
    let said = bed.told("Service", "web", "SyncLoadBalancerFailed").await?;
    println!("ERROR: {said}");
    ensure!(said.contains("in error"), "{said}");
    ensure!(balancer(&project.state().await?, "web")?.id == made.id, "it was made anew, unasked");
    Ok(())
}

/// Of two clusters in one project with the same names, each has its own, and takes no more away.
#[tokio::test]
async fn two_clusters_with_the_same_names_do_not_meet() {
    scenario(twins).await;
}

async fn twins(bed: &mut Bed) -> anyhow::Result<()> {
    let project = Arc::clone(&bed.cluster.cloud.project);
    let twin = Bed::on_openstack(Arc::clone(&project)).await?;
    bed.join("a", None).await?;
    // The same machine, for both.
    node("a").register(&twin.client()).await?;
    twin.initialised("a").await?;
    for bed in [&*bed, &twin] {
        service("web").port(80).create(&bed.client()).await?;
    }
    let (one, two) = (bed.address("web").await?, twin.address("web").await?);
    ensure!(one != two, "both have {one}");
    let state = project.state().await?;
    ensure!(state.balancers.len() == 2 && state.floating_ips.len() == 2, "{state:?}");

    twin.delete_service("web").await?;
    let left = project.state().await?;
    let left: Vec<_> = left.balancers.iter().filter_map(Balancer::address).map(|it| it.to_string()).collect();
    ensure!(left == [one.as_str()], "{left:?}");
    ensure!(bed.address("web").await? == one, "the other one's address has changed");
    Ok(())
}

/// Credentials of another project, while it runs or from its start, take nothing away, whatever nodes say of themselves.
#[tokio::test]
async fn the_wrong_project_loses_nothing_and_is_told() {
    // A node would go after the second word that its machine is gone.
    let soon = json!({ "nodeController": { "deletion": { "monitorPeriod": "1s", "confirmAfter": "1s" } } });
    scenario_with(&soon, wrong_project).await;
}

async fn wrong_project(bed: &mut Bed) -> anyhow::Result<()> {
    bed.join("a", Some("10.244.1.0/24")).await?;
    service("web").port(80).create(&bed.client()).await?;
    bed.address("web").await?;
    for name in CONTROLLERS {
        bed.quiet(name).await?;
    }
    let other = Project::make().await?;
    let seen = AssertUnwindSafe(in_another(bed, &other)).catch_unwind().await;
    let used = other.state().await;
    other.remove().await?;
    seen.map_err(|_panic| anyhow::anyhow!("panicked"))??;
    let used = used?;
    ensure!(used.balancers.is_empty() && used.floating_ips.is_empty(), "made in the other project: {used:?}");
    Ok(())
}

async fn in_another(bed: &mut Bed, other: &Project) -> anyhow::Result<()> {
    let cloud = bed.cluster.cloud.clone();
    let before = cloud.project.state().await?;
    let mut keys = other.application_credential().await?;
    bed.give(&keys).await?;
    e2e::set_ready(&bed.client(), "a", Ready::Unknown).await?;
    let adapter = &*bed.cluster.pods.get(ADAPTER)?;
    eventually("the adapter says that it does not take them", bed.within, || async {
        let text = std::fs::read_to_string(adapter.log())?;
        ensure!(text.contains("the old ones stay in force"), "{}", adapter.tail());
        Ok(())
    })
    .await?;
    unharmed(bed, &before).await?;

    // After a restart only the configuration tells which project is the right one.
    e2e::merge(&mut keys, &json!({ "project_id": cloud.project.member.project }));
    bed.give(&keys).await?;
    bed.cluster.pods.get(ADAPTER)?.restart().await?;
    let ports = json!([{ "name": "tls", "port": 443, "protocol": "TCP" }]);
    bed.patch_service("web", &json!({ "spec": { "ports": ports } })).await?;
    let said = bed.told("Service", "web", "SyncLoadBalancerFailed").await?;
    ensure!(said.contains(&other.member.project) && said.contains("project_id"), "{said}");
    println!("{said}");
    let earlier = refusals(bed.cluster.pods.get(ADAPTER)?).await?;
    bed.cluster.pods.get("node-controller")?.restart().await?;
    // Each may come for the mirror or for the node, and two are more than a deletion would need.
    for number in 1..=4 {
        let adapter = &*bed.cluster.pods.get(ADAPTER)?;
        eventually(&format!("node-controller was refused {number} times"), bed.within, || async {
            let now = refusals(adapter).await?;
            ensure!(now >= earlier + f64::from(number), "{earlier} before, {now} now");
            Ok(())
        })
        .await?;
        unharmed(bed, &before).await?;
    }

    bed.give(&cloud.project.keys()).await?;
    e2e::set_ready(&bed.client(), "a", Ready::True).await?;
    bed.until_cloud("web listens on its second port", |state| {
        let web = balancer(state, "web")?;
        ensure!(web.is_active() && web.listeners.len() == 2, "{web:?}");
        Ok(())
    })
    .await?;
    let told = bed.events("Service", "web").await?;
    let failures = told.iter().filter(|it| it.reason.as_deref() == Some("SyncLoadBalancerFailed"));
    ensure!(failures.count() == 1, "told once, and not once a retry: {:?}", bed.warnings().await?);
    Ok(())
}

/// How often the adapter has refused what node-controller asks of machines. A watch counts when it ends.
async fn refusals(adapter: &Pod) -> anyhow::Result<f64> {
    let page = adapter.metrics().await?;
    let counts = |line: &&str| {
        let asks = ["WatchInstances", "BatchGetInstances"];
        line.starts_with("cloud_adapter_rpc_duration_seconds_count{")
            && asks.iter().any(|it| line.contains(&format!("method=\"{it}\"")))
            && line.contains("controller=\"node-controller\"")
            && !line.contains("reason=\"\"")
    };
    let value = |line: &str| line.rsplit(' ').next().unwrap_or_default().parse::<f64>();
    page.lines().filter(counts).map(value).sum::<Result<f64, _>>().context("no count")
}

/// Nothing of what was there is gone.
async fn unharmed(bed: &Bed, before: &State) -> anyhow::Result<()> {
    let after = bed.cluster.cloud.project.state().await?;
    ensure!(bed.nodes().get_opt("a").await?.is_some(), "the node was deleted");
    ensure!(after.routes == before.routes && ids(&after) == ids(before), "{before:?}\n{after:?}");
    Ok(())
}

/// Each step passes, and tells what it costs.
#[tokio::test]
async fn the_demo_passes_on_the_real_services() {
    let _alone = STAGE.lock().await;
    let demo = tokio::process::Command::new(env!("CARGO_BIN_EXE_demo"))
        .args(["--cloud=openstack", "--once", "--json", "--nodes=2"])
        .output();
    let demo = demo.await.unwrap();
    let (told, errors) = (String::from_utf8_lossy(&demo.stdout), String::from_utf8_lossy(&demo.stderr));
    assert!(demo.status.success(), "{}: {told}\n{errors}", demo.status);
    let lines: Vec<Value> = told.lines().map(|line| from_str(line).unwrap()).collect();
    let summary = lines.iter().find(|line| line["event"] == "summary").unwrap();
    assert_eq!(summary["passed"], true);
    let cost = |step: &str| {
        let steps = summary["steps"].as_array().unwrap();
        let row = steps.iter().find(|row| row["step"] == step).unwrap();
        (row["vendor_calls"]["by_operation"].clone(), row["vendor_calls"]["writes"].as_u64().unwrap())
    };
    assert_eq!((cost("nodes").1, cost("restart").1), (0, 0));
    let (calls, writes) = cost("service");
    assert_eq!((&calls["POST loadbalancers"], writes), (&json!(1), 2), "{calls}");
}

/// One after the other: the cloud runs on the same processors, and two at once take longer than they wait.
static STAGE: Mutex<()> = Mutex::const_new(());

/// Plays in a project of its own. In the end what was asked for is taken back, and then nothing may be left.
async fn scenario(play: impl AsyncFnOnce(&mut Bed) -> anyhow::Result<()>) {
    scenario_with(&json!({}), play).await;
}

/// The same with these values of the chart.
async fn scenario_with(values: &Value, play: impl AsyncFnOnce(&mut Bed) -> anyhow::Result<()>) {
    let _alone = STAGE.lock().await;
    let project = Arc::new(Project::make().await.unwrap());
    let played = AssertUnwindSafe(played(Arc::clone(&project), values, play)).catch_unwind().await;
    project.remove().await.unwrap();
    match played {
        Ok(done) => done.unwrap(),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

async fn played(
    project: Arc<Project>,
    values: &Value,
    play: impl AsyncFnOnce(&mut Bed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let before = project.count().await?;
    let mut bed = Bed::on_openstack_with(Arc::clone(&project), values).await?;
    let done = match play(&mut bed).await {
        Ok(()) => clear(&bed).await,
        failed => failed,
    };
    if let Err(error) = done {
        let adapter = bed.cluster.pods.get(ADAPTER)?.tail();
        bed.cluster.control_plane.keep_logs();
        return Err(error.context(adapter));
    }
    eventually("there is as much as before", bed.within, || async {
        let after = project.count().await?;
        ensure!(after == before, "before: {before:?}, after: {after:?}");
        Ok(())
    })
    .await
}

/// Takes everything back as people do: Services, nodes, machines.
async fn clear(bed: &Bed) -> anyhow::Result<()> {
    for service in bed.services().list(&ListParams::default()).await?.items {
        let is_balanced =
            service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
        if is_balanced {
            bed.delete_service(&service.name_any()).await?;
        }
    }
    for node in bed.nodes().list(&ListParams::default()).await?.items {
        bed.nodes().delete(&node.name_any(), &DeleteParams::default()).await?;
    }
    bed.until_cloud("no route is left", |state| {
        ensure!(state.routes.is_empty(), "{:?}", state.routes);
        Ok(())
    })
    .await?;
    let project = &bed.cluster.cloud.project;
    for server in project.state().await?.servers {
        project.delete_server(&server.name).await?;
    }
    Ok(())
}

/// Several machines at once, which takes no longer than one.
async fn join_many(bed: &mut Bed, nodes: u32) -> anyhow::Result<()> {
    let count = usize::try_from(nodes)?;
    bed.cluster.cloud.project.create_servers("node", count).await?;
    for number in 1..=nodes {
        node(&format!("node-{number}")).register(&bed.client()).await?;
    }
    for number in 1..=nodes {
        bed.initialised(&format!("node-{number}")).await?;
    }
    bed.targets(nodes).await
}

/// Waits until a Service has exactly one load balancer, and that is active.
async fn only_balancer(bed: &Bed, service: &str) -> anyhow::Result<Balancer> {
    bed.until_cloud(&format!("{service} has its only load balancer"), |state| {
        let found = balancer(state, service)?;
        ensure!(found.is_active(), "it is {}", found.provisioning_status);
        Ok(found.clone())
    })
    .await
}

fn balancer<'a>(state: &'a State, service: &str) -> anyhow::Result<&'a Balancer> {
    let tag = format!("{OWNER}{service}");
    let found: Vec<_> = state.balancers.iter().filter(|it| it.tags.contains(&tag)).collect();
    let &[balancer] = found.as_slice() else { bail!("it has {found:?}") };
    Ok(balancer)
}

/// Of what must not go.
fn ids(state: &State) -> Vec<&str> {
    let balancers = state.balancers.iter().map(|it| &it.id);
    let ips = state.floating_ips.iter().map(|it| &it.id);
    balancers.chain(ips).chain(state.servers.iter().map(|it| &it.id)).map(String::as_str).collect()
}

/// How often each operation was called.
fn count(calls: &Calls) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for call in &calls.0 {
        *counts.entry(operation(call)).or_default() += 1;
    }
    counts
}

fn counted(calls: &[(&str, u64)]) -> BTreeMap<String, u64> {
    calls.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

fn of(counts: &BTreeMap<String, u64>, operation: &str) -> u64 {
    counts.get(operation).copied().unwrap_or_default()
}

/// For who reads the output of a passed test.
fn told(what: &str, counts: &BTreeMap<String, u64>) {
    let calls: Vec<_> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
    println!("{what}: {}", calls.join(", "));
}

fn pattern(text: &str) -> Pattern {
    from_value(json!(text)).unwrap()
}
