//! The number of shards of each replica.

use anyhow::ensure;

use crate::{CONTROLLERS, eventually, seconds};

use super::super::stage::Stage;
use super::judge::SHARDS;

/// The name of a replica, counted from one. The name of the first replica has no number.
pub(super) fn replica(controller: &str, number: usize) -> String {
    if number <= 1 { controller.to_owned() } else { format!("{controller}-{}", number - 1) }
}

/// Starts this number of replicas of each controller, and waits until they share the work evenly.
pub(super) async fn share(stage: &mut Stage, replicas: usize) -> anyhow::Result<()> {
    for controller in CONTROLLERS {
        for number in 1..=replicas {
            let pod = stage.cluster.pods.get(&replica(controller, number))?;
            if !pod.is_running() {
                pod.start()?;
            }
            pod.wait_ready(seconds(60)).await?;
        }
    }
    for controller in CONTROLLERS {
        let (stage, names) = (&*stage, (1..=replicas).map(|number| replica(controller, number)));
        let names: Vec<_> = names.collect();
        let names = &names;
        eventually(&format!("{replicas} of {controller} share the work"), seconds(120), || async move {
            let mut all = Vec::new();
            for name in names {
                all.push(of(stage, name).await?);
            }
            ensure!(is_even(&all), "shards per replica, of {SHARDS}: {all:?}");
            Ok(())
        })
        .await?;
    }
    stage.quiet().await
}

/// The number of shards that a replica reports.
pub(super) async fn of(stage: &Stage, replica: &str) -> anyhow::Result<usize> {
    let pod = stage.cluster.pods.look_at(replica)?;
    let leases = pod.counted("leader_election_master_status", "name").await?;
    Ok(leases.values().filter(|has| **has > 0.0).count())
}

fn is_even(shares: &[usize]) -> bool {
    let (least, most) = (shares.iter().min().copied(), shares.iter().max().copied());
    let spread = most.unwrap_or_default().saturating_sub(least.unwrap_or_default());
    shares.iter().sum::<usize>() == SHARDS && spread <= 1
}

#[cfg(test)]
mod tests {
    use super::{is_even, replica};

    #[test]
    fn all_shards_are_shared_evenly() {
        for (shares, even) in [
            (&[8][..], true),
            (&[4, 4], true),
            (&[3, 3, 2], true),
            (&[4, 3, 1], false),
            (&[2, 2, 2, 1], false),
            (&[8, 0], false),
        ] {
            assert_eq!(is_even(shares), even, "{shares:?}");
        }
    }

    #[test]
    fn first_replica_has_the_name_of_the_deployment() {
        let names = [1, 2, 4].map(|number| replica("node-controller", number));
        assert_eq!(names, ["node-controller", "node-controller-1", "node-controller-3"]);
    }
}
