//! One, two and four replicas of each controller share the work, first with a rate limit that is never reached, then within the default
//! budget. At the end, one replica is killed.

mod judge;
mod limits;
mod shares;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e_tools::Tools;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::{CONTROLLERS, seconds};

use super::fleet;
use super::machine::Cores;
use super::numbers::{float, of_count};
use super::progress::Progress;
use super::result::{Row, Size, Waits, Who};
use super::seen::Mark;
use super::stage::Stage;

use judge::{Interval, Killed, LEASE_SECONDS, Rate, SHARDS};
use shares::replica;

/// The measured numbers of replicas of each controller.
const REPLICAS: [usize; 3] = [1, 2, MOST];
const MOST: usize = 4;
/// The cluster is smaller than in the other scenarios by this factor. The result does not depend on the size.
const PART: usize = 5;
/// Without the rate limit, this many new Services are created for each existing Service. Fewer Services would be ready too fast for a
/// precise measurement.
const CROWD: usize = 2;
/// One node joins for this many existing nodes.
const JOINING: usize = 5;

/// Starts a cluster in which each controller can have up to [`MOST`] replicas. At first, one replica of each controller runs.
pub(super) async fn start(tools: &Tools, all: Size, progress: Progress) -> anyhow::Result<Stage> {
    let nodes = (all.nodes / PART).max(1);
    let services = (all.services / PART).max(1);
    let size = Size { nodes, services, members: all.members.min(nodes), seconds: all.seconds };
    let many = json!({ "replicas": MOST, "shards": SHARDS });
    let values = CONTROLLERS.map(|name| (name.replace("-controller", "Controller"), many.clone()));
    let mut values: Map<String, Value> = values.into_iter().collect();
    values.insert("adapter".to_owned(), limits::values());
    Stage::start_with(tools, size, Who::Ours, &values.into(), progress).await
}

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<Row> {
    let before = stage.reading().await?;
    let (mut steps, mut waits) = (Vec::new(), Vec::new());
    for replicas in REPLICAS {
        shares::share(stage, replicas).await?;
        for rate in [Rate::Unbound, Rate::Default] {
            limits::set(stage, rate).await?;
            let (step, services) = crowd(stage, replicas, rate).await?;
            let nodes = join(stage, replicas, rate).await?;
            let of = format!("{}, {}", judge::number(replicas), rate.words());
            waits.push((format!("new Service has an address ({of})"), services));
            waits.push((format!("node initialised ({of})"), nodes));
            steps.push(step);
        }
    }
    limits::set(stage, Rate::Unbound).await?;
    let (killed, served, share) = kill(stage).await?;
    waits.push(("Service has an address after the kill".to_owned(), served));
    let mut notes: Vec<String> = steps.iter().map(Interval::words).collect();
    notes.push(format!(
        "{SHARDS} shards. The rate that does not bind is {} calls/s to each family, {} of them in \
         parallel, set by the chart's `adapter.limits`.",
        judge::UNBOUND,
        limits::AT_ONCE
    ));
    notes.push(format!(
        "The killed service-controller had {} of the {SHARDS} shards, while {} Services were being \
         created; others were created after that. Leases last {LEASE_SECONDS} s, the default. Half of the \
         Services, those of the other replicas, had their addresses {:.2} s after the kill.",
        share.shards, share.under_way, served.p50
    ));
    Ok(Row {
        title: format!("1, 2 and 4 replicas of each controller, {SHARDS} shards, and kill -9 of one"),
        targets: judge::judge(&steps, &killed),
        waits: waits.into_iter().collect(),
        notes,
        spent: stage.spent(&before).await?,
        ..Row::default()
    })
}

/// Creates many Services at once, and deletes them.
async fn crowd(stage: &mut Stage, replicas: usize, rate: Rate) -> anyhow::Result<(Interval, Waits)> {
    let n = if rate == Rate::Unbound { stage.size.services * CROWD } else { stage.size.services };
    let names = names(&format!("crowd-{replicas}-{}", rate.word()), n);
    // The controllers write Events long after the change, and these writes use the same budget.
    stage.settled().await?;
    let (before, cores) = (stage.reading().await?, Cores::now());
    let what = format!("{n} Services, {}, {}", judge::number(replicas), rate.words());
    let waits = Waits::of(stage.progress.step(&what, stage.create(&names)).await?);
    let busy = Cores::now().busy_since(cores);
    let spent = stage.spent(&before).await?;
    stage.quiet().await?;
    let writes = stage.calls_since(&before).await?.writes;
    stage.progress.step("deleting these Services", stage.delete(&names)).await?;
    stage.quiet().await?;
    let step = Interval {
        replicas,
        rate,
        services: n,
        seconds: spent.seconds,
        calls: of_count(spent.vendor.families(&["loadbalancer"])),
        busy,
        writes,
    };
    Ok((step, waits))
}

/// Adds nodes, none of which are behind load balancers.
async fn join(stage: &mut Stage, replicas: usize, rate: Rate) -> anyhow::Result<Waits> {
    let n = (stage.size.nodes / JOINING).max(1);
    let numbers = stage.boot(n).await?;
    let names: Vec<_> = numbers.clone().map(fleet::node_name).collect();
    let what = format!("{n} nodes join, {}, {}", judge::number(replicas), rate.words());
    let progress = stage.progress;
    let waits = Waits::of(progress.step(&what, stage.join(numbers, 0)).await?);
    let within = stage.time_limit(n);
    let routed = stage.seen.all("all nodes have routes", &names, Mark::Routed, within);
    progress.step("creating their routes", routed).await?;
    stage.quiet().await?;
    Ok(waits)
}

/// The number of shards of the killed replica, and of Services that were still in progress at the kill.
struct Lost {
    shards: usize,
    under_way: usize,
}

/// Creates many Services, kills a replica of the service-controller while it creates their load balancers, and creates more Services.
async fn kill(stage: &mut Stage) -> anyhow::Result<(Killed, Waits, Lost)> {
    let victim = replica("service-controller", MOST);
    let shards = shares::of(stage, &victim).await?;
    ensure!(shards > 0, "{victim} has no shard to lose");
    stage.settled().await?;
    let before = stage.reading().await?;
    let (first, second) = (names("killed", stage.size.services * CROWD), names("after", stage.size.services));
    let client = stage.client();
    stage.progress.say(&format!("killing {victim} under load"));
    fleet::create_services(&client, first.iter().cloned()).await?;
    stage.cluster.pods.get(&victim)?.kill().await?;
    let at = Instant::now();
    fleet::create_services(&client, second.iter().cloned()).await?;
    let all = [first, second].concat();
    let within = stage.time_limit(all.len()) + seconds(60);
    let done = stage.seen.all("all Services have load balancers", &all, Mark::Address, within);
    let done = stage.progress.step("the other replicas serve all Services", done).await?;
    let late: Vec<Duration> =
        done.values().filter(|it| **it > at).map(|it| it.saturating_duration_since(at)).collect();
    let (under_way, served) = (late.len().saturating_sub(stage.size.services), Waits::of(late));
    stage.quiet().await?;
    let calls = stage.calls_since(&before).await?;
    let state = stage.cluster.cloud.state().await?;
    let owners = state.load_balancers.iter().filter_map(|it| it.tags.get("cloudadapter.dev/owner-name"));
    let own: BTreeSet<_> = owners.collect();
    let wanted = stage.services.len() + all.len();
    ensure!(own.len() == wanted, "{} of {wanted} Services have load balancers", own.len());
    let killed = Killed {
        served: served.max,
        services: all.len(),
        made: calls.of("CreateLoadBalancer"),
        writes: calls.writes,
        left_over: state.load_balancers.len().saturating_sub(wanted),
    };
    stage.progress.step("deleting these Services", stage.delete(&all)).await?;
    stage.quiet().await?;
    stage.check_members().await.context("writes after the kill")?;
    Ok((killed, served, Lost { shards, under_way }))
}

fn names(of: &str, n: usize) -> Vec<String> {
    (0..n).map(|number| format!("{of}-{number:04}")).collect()
}

fn per_second(n: usize, seconds: f64) -> f64 {
    float(n) / seconds.max(f64::EPSILON)
}
