//! One node joins and becomes a member of all load balancers, while users create new Services.

use std::time::Duration;

use adapter_sim::simcloud::model::Pool;
use anyhow::ensure;
use tokio::time::{Instant, sleep};

use super::numbers::{float, of_count};
use super::result::{Calls, Row, Size, Target, Waits, Who};
use super::stage::{RATE, Reading, Stage};

/// The number of new Services. They are created one by one during the member updates. If all were created at once, their calls would exceed
/// the rate, and the scenario would only measure the rate.
const NEW: u32 = 20;
/// The minimum pause between new Services.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// Seconds until a new node becomes a member: a pause for more nodes to join, and a look-up.
const REACTION_SECONDS: f64 = 4.0;
const NEW_SERVICE_SECONDS: f64 = 3.0;
/// The minimum share of the budget that the adapter must use.
const USED: f64 = 0.9;
/// The peer reconciles all nodes every 100 s. If it makes no load balancer call for this duration, it will update no more load balancers.
const PEER_IS_DONE: Duration = Duration::from_secs(110);
const LEFT_OUT: &str = "The peer's service controller reacts to a node that is added, removed, or \
                        gets its provider ID, but not to one that gets an address; its node controller writes the address after \
                        the provider ID. A load balancer that was updated between these two writes has the node without an \
                        address, and is not updated until another node is added or removed. The kubelets here run without \
                        --node-ip, so nodes have no addresses of their own.";

/// The result of waiting until all load balancers have the new node as a member.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Followed {
    /// Seconds until all load balancers were updated.
    All(f64),
    /// The peer has stopped updating load balancers after only this number of them had the node.
    Only(usize),
}

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<Row> {
    let numbers = stage.boot(1).await?;
    let machine = stage.machine(*numbers.start())?;
    let before = stage.reading().await?;
    // Because of `usize::MAX`, the new node becomes a member, whatever its number is.
    let waited = Waits::of(stage.join(numbers, usize::MAX).await?);
    let began = Instant::now();
    let balancers = stage.services.len();
    let shared = &*stage;
    let pause = pause(balancers);
    let (new, followed) = tokio::join!(users(shared, pause), follow(shared, &before, balancers, began));
    let (followed, (names, new)) = (followed?, new?);
    let spent = stage.spent(&before).await?;
    stage.delete(&names).await?;
    stage.quiet().await?;
    let followed = match followed {
        Some(seconds) => Followed::All(seconds),
        None => Followed::Only(balancers_with(stage, &machine).await?),
    };
    let mut notes = Vec::new();
    match followed {
        Followed::Only(n) if n < balancers => notes.push(format!(
            "{n} of {balancers} load balancers have the node; no other one was updated within {} s. {LEFT_OUT}",
            PEER_IS_DONE.as_secs()
        )),
        Followed::All(_) | Followed::Only(_) => stage.check_members().await?,
    }
    let new = Waits::of(new);
    let waits = [
        ("node initialised".to_owned(), waited),
        ("new Service during the change has an address".to_owned(), new),
    ];
    Ok(Row {
        title: format!(
            "1 node joins, {balancers} Services, {} new ones during the change, {} s apart",
            names.len(),
            pause.as_secs_f64()
        ),
        targets: judge(stage.size, &spent.vendor, followed, &new),
        waits: waits.into(),
        notes,
        spent,
        ..Row::default()
    })
}

/// Returns the pause between new Services. The last Service is created about when the last load balancer is updated, at the given rate.
fn pause(balancers: usize) -> Duration {
    LEAST_PAUSE.max(Duration::from_secs(balancers.try_into().unwrap_or(u64::MAX)) / RATE / NEW)
}

/// Creates Services one after the other, and returns the waiting time of each.
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

/// Returns the seconds until all load balancers were updated, or `None` if the peer has left out some load balancers.
async fn follow(
    stage: &Stage,
    before: &Reading,
    balancers: usize,
    began: Instant,
) -> anyhow::Result<Option<f64>> {
    let within = stage.time_limit(balancers);
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

/// Counts the load balancers that have this instance as a member. The new Services are already deleted, so only earlier Services are
/// counted.
async fn balancers_with(stage: &Stage, machine: &str) -> anyhow::Result<usize> {
    let state = stage.cluster.cloud.state().await?;
    let has = |pool: &Pool| pool.members.iter().any(|it| it.instance_id.as_deref() == Some(machine));
    Ok(state.load_balancers.iter().filter(|it| it.pools.iter().any(has)).count())
}

pub(super) fn member_writes(calls: &Calls) -> u64 {
    calls.of("SetMembers").saturating_add(calls.of("UpdateMembers"))
}

fn judge(size: Size, calls: &Calls, followed: Followed, new: &Waits) -> Vec<Target> {
    // Calls for new Services use the same budget, so they are included. The burst of the budget is ignored, because it only shortens the
    // time.
    let ahead = calls.families(&["loadbalancer"]);
    let bound = REACTION_SECONDS + of_count(ahead) / (f64::from(RATE) * USED);
    // A new Service may have been created just before the controller knew the node. Then its load balancer is updated, too.
    let balancers = float(size.services.saturating_add(new.n));
    let followed = match followed {
        Followed::All(seconds) => Target::at_most("all load balancers were updated", seconds, bound, "s"),
        Followed::Only(n) => {
            Target::at_least("load balancers that have the node", float(n), float(size.services), "")
        }
    };
    vec![
        Target::at_most(
            "member writes per load balancer",
            of_count(member_writes(calls)) / balancers,
            1.0,
            "",
        ),
        followed,
        Target::at_most("new Service during the change, p99", new.p99, NEW_SERVICE_SECONDS, "s"),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Calls, Followed, Size, Waits, judge};

    #[test]
    fn second_write_or_slow_service_misses_the_target() {
        let size = Size { nodes: 5000, services: 1000, members: 200, seconds: 600 };
        let calls = |members| Calls {
            by_operation: [("UpdateMembers".to_owned(), members)].into(),
            by_family: [("loadbalancer".to_owned(), members)].into(),
            ..Calls::default()
        };
        let met = |members, followed, p99| {
            let waits = Waits { n: 20, p99, ..Waits::default() };
            judge(size, &calls(members), followed, &waits).iter().map(|it| it.met).collect::<Vec<_>>()
        };
        assert_eq!(met(1020, Followed::All(60.0), 3.0), [true, true, true]);
        assert_eq!(met(1021, Followed::All(60.0), 3.1), [false, true, false]);
        assert_eq!(met(1000, Followed::All(60.0), 1.0), [true, false, true]);
        assert_eq!(met(0, Followed::Only(999), 1.0), [true, false, true]);
    }
}
