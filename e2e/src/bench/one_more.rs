//! One node joins, and all load balancers get a member more, while users make new Services.

use std::time::Duration;

use adapter_sim::simcloud::model::Pool;
use anyhow::ensure;
use tokio::time::{Instant, sleep};

use crate::ADAPTER;

use super::listings::{float, of_count};
use super::result::{Calls, Row, Size, Target, Waits, Who};
use super::stage::{RATE, Reading, Stage};

/// New Services, one after the other, for as long as the load balancers need to follow: each takes a few calls, and more of them at
/// once than the rate allows would measure the rate.
const NEW: u32 = 20;
/// Each takes seven calls or so.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// New nodes become members after a moment in which more may join, and are asked about.
const REACTION_SECONDS: f64 = 4.0;
const NEW_SERVICE_SECONDS: f64 = 3.0;
/// Of what the budget allows, so much at least is used.
const USED: f64 = 0.9;
/// The peer looks at all nodes each 100 s: if it has not asked about load balancers for longer, it does not follow any more.
const PEER_IS_DONE: Duration = Duration::from_secs(110);
const LEFT_OUT: &str = "The peer's service controller follows a node that comes, goes, or gets its provider ID, and not one that gets an \
                        address; its node controller writes the address after the provider ID. Who was quick enough to look in between \
                        has the node in its list, without an address to send traffic to, and no reason to look again before another node \
                        comes or goes. The kubelets here are without --node-ip, so that nodes have no address of their own.";

/// How far the load balancers have got.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Followed {
    /// Each was written to, after so many seconds.
    All(f64),
    /// So many have the node, and no more follow.
    Only(usize),
}

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<Row> {
    let numbers = stage.boot(1).await?;
    let machine = stage.machine(*numbers.start())?;
    let recordings = stage.record("one-more", &["service-controller", ADAPTER]).await?;
    let before = stage.reading().await?;
    // Among the members, whatever its number.
    let waited = Waits::of(stage.join(numbers, usize::MAX).await?);
    let began = Instant::now();
    let balancers = stage.services.len();
    let shared = &*stage;
    let pause = pause(balancers);
    let (new, followed) = tokio::join!(users(shared, pause), follow(shared, &before, (balancers, began)));
    let (followed, (names, new)) = (followed?, new?);
    let spent = stage.spent(&before).await?;
    let profiles = recordings.finish().await?;
    stage.delete(&names).await?;
    stage.quiet().await?;
    let followed = match followed {
        Some(seconds) => Followed::All(seconds),
        None => Followed::Only(balancers_with(stage, &machine).await?),
    };
    let mut notes = Vec::new();
    match followed {
        Followed::Only(n) if n < balancers => notes.push(format!(
            "{n} of {balancers} load balancers have the node, and no more come in {} s. {LEFT_OUT}",
            PEER_IS_DONE.as_secs()
        )),
        Followed::All(_) | Followed::Only(_) => stage.check_members().await?,
    }
    let new = Waits::of(new);
    let waits =
        [("node initialised".to_owned(), waited), ("new Service meanwhile has an address".to_owned(), new)];
    Ok(Row {
        title: format!(
            "1 node joins, {balancers} Services, {} new ones meanwhile, {} s apart",
            names.len(),
            pause.as_secs_f64()
        ),
        targets: judge(stage.size, &spent.vendor, (followed, &new)),
        waits: waits.into(),
        notes,
        profiles,
        spent,
        ..Row::default()
    })
}

/// So that the last new one comes when as many load balancers have followed as the rate allows.
fn pause(balancers: usize) -> Duration {
    LEAST_PAUSE.max(Duration::from_secs(balancers.try_into().unwrap_or(u64::MAX)) / RATE / NEW)
}

/// Users make Services, one after the other; how long each waits is told.
async fn users(stage: &Stage, pause: Duration) -> anyhow::Result<(Vec<String>, Vec<Duration>)> {
    let (mut names, mut making) = (Vec::new(), Vec::new());
    for nth in 0..NEW {
        let name = format!("new-{nth:02}");
        names.push(name.clone());
        making.push(async move {
            sleep(pause.saturating_mul(nth)).await;
            stage.create(&[name]).await
        });
    }
    let waits = futures::future::try_join_all(making).await?;
    Ok((names, waits.concat()))
}

/// Seconds until each load balancer was written to. `None`: the peer has left some out.
async fn follow(
    stage: &Stage,
    before: &Reading,
    (balancers, began): (usize, Instant),
) -> anyhow::Result<Option<f64>> {
    let within = stage.patience(balancers);
    let (mut asked, mut at) = (0, began);
    loop {
        sleep(Duration::from_millis(100)).await;
        let calls = stage.calls_since(before).await?;
        let writes = member_writes(&calls);
        if of_count(writes) >= float(balancers) {
            return Ok(Some(began.elapsed().as_secs_f64()));
        }
        let now = calls.families(&["loadbalancer"]);
        if now != asked {
            (asked, at) = (now, Instant::now());
        }
        if stage.who != Who::Ours && at.elapsed() >= PEER_IS_DONE {
            return Ok(None);
        }
        let waited = began.elapsed();
        ensure!(
            waited < within,
            "{writes} member writes for {balancers} load balancers after {} s",
            waited.as_secs()
        );
    }
}

/// Of the Services that were there before.
async fn balancers_with(stage: &Stage, machine: &str) -> anyhow::Result<usize> {
    let state = stage.cluster.cloud.state().await?;
    let has = |pool: &Pool| pool.members.iter().any(|it| it.instance_id.as_deref() == Some(machine));
    Ok(state.load_balancers.iter().filter(|it| it.pools.iter().any(has)).count())
}

pub(super) fn member_writes(calls: &Calls) -> u64 {
    calls.of("SetMembers").saturating_add(calls.of("UpdateMembers"))
}

fn judge(size: Size, calls: &Calls, (followed, new): (Followed, &Waits)) -> Vec<Target> {
    // What came meanwhile goes out of the same budget; the burst is there at once.
    let ahead = calls.families(&["loadbalancer"]);
    let bound = REACTION_SECONDS + of_count(ahead) / (f64::from(RATE) * USED);
    // A new one may have been made just before the node was known.
    let balancers = float(size.services.saturating_add(new.n));
    let followed = match followed {
        Followed::All(seconds) => Target::at_most("all load balancers have followed", seconds, bound, "s"),
        Followed::Only(n) => {
            Target::at_least("load balancers that have the node", float(n), float(size.services), "")
        }
    };
    vec![
        Target::at_most("member writes a load balancer", of_count(member_writes(calls)) / balancers, 1.0, ""),
        followed,
        Target::at_most("a new Service meanwhile, p99", new.p99, NEW_SERVICE_SECONDS, "s"),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Calls, Followed, Size, Waits, judge};

    #[test]
    fn a_second_write_or_a_slow_user_misses_the_target() {
        let size = Size { nodes: 5000, services: 1000, members: 200, seconds: 600 };
        let calls = |members| Calls {
            by_operation: [("UpdateMembers".to_owned(), members)].into(),
            by_family: [("loadbalancer".to_owned(), members)].into(),
            ..Calls::default()
        };
        let met = |members, followed, p99| {
            let waits = Waits { n: 20, p99, ..Waits::default() };
            judge(size, &calls(members), (followed, &waits)).iter().map(|it| it.met).collect::<Vec<_>>()
        };
        assert_eq!(met(1020, Followed::All(60.0), 3.0), [true, true, true]);
        assert_eq!(met(1021, Followed::All(60.0), 3.1), [false, true, false]);
        assert_eq!(met(1000, Followed::All(60.0), 1.0), [true, false, true]);
        assert_eq!(met(0, Followed::Only(999), 1.0), [true, false, true]);
    }
}
