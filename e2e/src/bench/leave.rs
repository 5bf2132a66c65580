//! Many nodes leave at once, as the cluster autoscaler removes them: a taint, a pause, then the instances.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::eventually;

use super::fleet;
use super::numbers::{float, of_count};
use super::one_more::member_writes;
use super::result::{Row, Size, Target, Waits};
use super::seen::Mark;
use super::stage::{Reading, Stage};

/// One node leaves for this many existing nodes, but at most all nodes behind load balancers.
const SHARE: usize = 50;
/// Seconds from the taint to the deletion of the instance. Source: the autoscaler's --node-delete-delay-after-taint.
const PAUSE: Duration = Duration::from_secs(5);
const WRITES_A_BALANCER: f64 = 3.0;

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<Row> {
    let n = (stage.size.nodes / SHARE).clamp(1, stage.size.members);
    let leaving = stage.first_nodes(n);
    let before = stage.reading().await?;
    let began = Instant::now();
    let taint = json!([{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1" }]);
    fleet::patch_nodes(&stage.client(), &leaving, &json!({ "spec": { "taints": taint } }), false).await?;
    let client = stage.client();
    let machines = stage.take_machines(&leaving)?;
    let stage_ref = &*stage;
    let removal = async {
        sleep(PAUSE).await;
        for id in &machines {
            stage_ref.cluster.cloud.delete_instance(id).await?;
        }
        let silent = json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" });
        fleet::patch_nodes(&client, &leaving, &json!({ "status": { "conditions": [silent] } }), true).await?;
        let within = stage_ref.time_limit(leaving.len());
        stage_ref.seen.all("their Node objects are deleted", &leaving, Mark::NodeGone, within).await
    };
    let balancers = stage.services.len();
    let (gone, members) = tokio::join!(removal, follow(stage_ref, &before, balancers, &machines));
    let (gone, members) = (gone?, members?);
    let spent = stage.spent(&before).await?;
    stage.quiet().await?;
    stage.check_members().await?;
    let since = |at: &Instant| at.saturating_duration_since(began);
    let first = gone.values().map(since).min().unwrap_or_default();
    let writes = of_count(member_writes(&spent.vendor));
    Ok(Row {
        title: format!("{n} nodes leave at once, {balancers} Services"),
        targets: judge(stage.size, writes, since(&members), first),
        waits: [("node object gone".to_owned(), Waits::of(gone.values().map(since).collect()))].into(),
        notes: vec![format!(
            "The instances are deleted {} s after the taint, as with the autoscaler's default, and \
             the nodes become not ready at once.",
            PAUSE.as_secs()
        )],
        spent,
        ..Row::default()
    })
}

/// Waits until none of these instances is a member of any load balancer, and returns the time of this observation.
async fn follow(
    stage: &Stage,
    before: &Reading,
    balancers: usize,
    machines: &[String],
) -> anyhow::Result<Instant> {
    eventually("all load balancers are updated", stage.time_limit(balancers), || async {
        sleep(Duration::from_millis(100)).await;
        let writes = member_writes(&stage.calls_since(before).await?);
        ensure!(
            of_count(writes) >= float(balancers),
            "{writes} member writes for {balancers} load balancers"
        );
        // Reading the whole state is expensive, so it is read only after enough member writes were counted.
        let state = stage.cluster.cloud.state().await?;
        let members = state.load_balancers.iter().flat_map(|it| &it.pools).flat_map(|pool| &pool.members);
        let left =
            members.filter_map(|it| it.instance_id.as_ref()).filter(|id| machines.contains(id)).count();
        ensure!(left == 0, "{left} members are left");
        Ok(Instant::now())
    })
    .await
}

fn judge(size: Size, writes: f64, members: Duration, first_gone: Duration) -> Vec<Target> {
    vec![
        Target::at_most(
            "members removed before the first Node object",
            members.as_secs_f64(),
            first_gone.as_secs_f64(),
            "s",
        ),
        Target::at_most(
            "member writes per load balancer",
            writes / float(size.services),
            WRITES_A_BALANCER,
            "",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Duration, Size, judge};

    #[test]
    fn members_that_stay_longer_than_their_nodes_miss_the_target() {
        let size = Size { nodes: 5000, services: 1000, members: 200, seconds: 600 };
        let met = |writes, members, gone| {
            let (members, gone) = (Duration::from_secs(members), Duration::from_secs(gone));
            judge(size, writes, members, gone).iter().map(|it| it.met).collect::<Vec<_>>()
        };
        assert_eq!(met(3000.0, 20, 35), [true, true]);
        assert_eq!(met(3001.0, 36, 35), [false, false]);
    }
}
