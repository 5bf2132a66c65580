//! Restarts each controller, and then the adapter, at full size.

use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;

use crate::{ADAPTER, CONTROLLERS, seconds};

use super::listings::{self, BALANCERS_PAGE, PAGE, ROUTES_A_NODE, pages};
use super::memory;
use super::numbers::of_count;
use super::result::{Row, Size, Spent, Target, Waits};
use super::stage::Stage;

const AGAIN_SECONDS: f64 = 5.0;
/// Maximum number of calls with which the adapter checks its credentials: one call, and a second call if the first one fails.
const CHECKS: f64 = 2.0;

/// The initial listings count as complete after this duration without a call.
const LISTED_AFTER: Duration = Duration::from_secs(2);

pub(super) async fn controllers(stage: &mut Stage) -> anyhow::Result<Row> {
    stage.quiet().await?;
    let before = stage.reading().await?;
    let mut again = Vec::new();
    for name in CONTROLLERS {
        again.push((name, once(stage, name).await?));
    }
    let spent = stage.spent(&before).await?;
    let row = |&(name, seconds): &(&str, f64)| {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        (format!("{name} reconciled everything again"), Waits::of(vec![time]))
    };
    Ok(Row {
        title: "each controller restarted at full size".to_owned(),
        targets: judge(&spent, &again),
        waits: again.iter().map(row).collect(),
        notes: vec![
            "A controller works again when it is ready and its queue is empty. The adapter's own \
            listings continue and are not counted."
                .into(),
        ],
        spent,
        ..Row::default()
    })
}

pub(super) async fn adapter(stage: &mut Stage) -> anyhow::Result<Row> {
    stage.quiet().await?;
    let before = stage.reading().await?;
    let began = Instant::now();
    let pod = stage.cluster.pods.get(ADAPTER)?;
    pod.terminate().await?;
    pod.start()?;
    pod.wait_ready(seconds(60)).await?;
    for name in CONTROLLERS {
        stage.cluster.pods.get(name)?.wait_ready(seconds(60)).await?;
    }
    stage.idle().await?;
    let again = began.elapsed();
    stage.quiet().await?;
    // The adapter already serves while its listings continue.
    stage.silent(LISTED_AFTER, |counts| counts.reads).await?;
    let spent = stage.spent(&before).await?;
    Ok(Row {
        title: "the adapter restarted at full size".to_owned(),
        targets: judge_adapter(&spent, stage.size),
        waits: [("all controllers are ready and idle again".to_owned(), Waits::of(vec![again]))].into(),
        spent,
        ..Row::default()
    })
}

/// Returns the seconds from the process's start until the process is ready and the queues of all controllers are empty.
async fn once(stage: &mut Stage, name: &str) -> anyhow::Result<f64> {
    let pod = stage.cluster.pods.get(name)?;
    pod.terminate().await?;
    let began = Instant::now();
    pod.start()?;
    pod.wait_ready(seconds(60)).await?;
    stage.idle().await.with_context(|| format!("restarting {name}"))?;
    let took = began.elapsed().as_secs_f64();
    stage.quiet().await?;
    Ok(took)
}

fn judge(spent: &Spent, again: &[(&str, f64)]) -> Vec<Target> {
    let works = |&(name, seconds): &(&str, f64)| {
        Target::at_most(format!("{name} works again"), seconds, AGAIN_SECONDS, "s")
    };
    let mut targets: Vec<_> = again.iter().map(works).collect();
    targets.push(Target::count("vendor calls", listings::others(&spent.vendor), 0));
    targets.push(Target::count("API-server writes", spent.api_total(), 0));
    // The first listing of all objects needs the most memory.
    targets.extend(memory::targets(spent));
    targets
}

fn judge_adapter(spent: &Spent, size: Size) -> Vec<Target> {
    let routes = pages(size.nodes * ROUTES_A_NODE, PAGE);
    let once = pages(size.nodes, PAGE) + pages(size.services, BALANCERS_PAGE) + routes + CHECKS;
    // A client that reconnects during the first listing causes a second listing. Instances are also listed again every 30 s.
    let listings = 2.0 + (spent.seconds / 30.0).floor();
    let listed = of_count(spent.vendor.total().saturating_sub(listings::others(&spent.vendor)));
    vec![
        Target::count("vendor calls other than listings", listings::others(&spent.vendor), 0),
        Target::at_most("calls of listings", listed, once * listings, ""),
        Target::count("vendor writes", spent.vendor.writes, 0),
        Target::count("API-server writes", spent.api_total(), 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::result::Calls;
    use super::{Size, Spent, judge, judge_adapter};

    fn spent(operation: &str, n: u64) -> Spent {
        let by_operation = [(operation.to_owned(), n)].into();
        Spent { vendor: Calls { reads: n, by_operation, ..Calls::default() }, ..Spent::default() }
    }

    #[test]
    fn controller_with_calls_or_writes_misses_the_target() {
        let again = [("node-controller", 5.0)];
        assert!(judge(&spent("ListInstances", 10), &again).iter().all(|it| it.met));
        assert!(!judge(&spent("GetInstance", 1), &again).iter().all(|it| it.met));
        let mut wrote = spent("ListInstances", 1);
        wrote.api_writes.entry("a".into()).or_default().insert("patch nodes".into(), 1);
        assert!(!judge(&wrote, &again).iter().all(|it| it.met));
        assert!(!judge(&Spent::default(), &[("node-controller", 5.1)]).iter().all(|it| it.met));
    }

    #[test]
    fn adapter_lists_each_collection_at_most_twice() {
        let size = Size { nodes: 5000, services: 1000, members: 200, seconds: 600 };
        // Two listings, each with 11 + 11 + 21 pages and two checks of the credentials, need 90 calls.
        assert!(judge_adapter(&spent("ListRoutes", 90), size).iter().all(|it| it.met));
        assert!(!judge_adapter(&spent("ListRoutes", 91), size).iter().all(|it| it.met));
        assert!(!judge_adapter(&spent("GetLoadBalancer", 1), size).iter().all(|it| it.met));
    }
}
