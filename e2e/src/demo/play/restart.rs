//! A step in which restarted controllers find everything in sync.

use anyhow::ensure;

use crate::audit::AuditWrite;
use crate::demo::cost::Cost;
use crate::demo::report::{Fact, Report};
use crate::demo::stage::Stage;
use crate::demo::teller::Teller;
use crate::{CONTROLLERS, seconds};

/// Restarts all three controllers, one after the other. They must not write to the cloud, nor to the API server except for their Leases.
pub(super) async fn controllers(stage: &mut Stage, teller: &Teller) -> anyhow::Result<Cost> {
    for name in CONTROLLERS {
        stage.quiet(name).await?;
    }
    let (before, audit) = (stage.counts().await?, stage.cluster.control_plane.audit_log());
    let mark = audit.mark()?;
    let mut users = Vec::new();
    for name in CONTROLLERS {
        let pod = stage.cluster.pods.get(name)?;
        pod.terminate().await?;
        pod.start()?;
        pod.wait_ready(seconds(60)).await?;
        users.push(pod.user().to_owned());
        stage.quiet(name).await?;
        teller.tell(&Report::Fact(Fact::note(format!("{name} was restarted, and is ready and idle"))));
    }
    let mut writes = Vec::new();
    for user in &users {
        writes.extend(audit.writes_since(mark, user)?);
    }
    let cost = stage.cost_since(&before).await?;
    writes.retain(|write| !write.keeps_a_lease());
    ensure!(writes.is_empty(), "the restart wrote to the API server: {}", list(&writes));
    ensure!(cost.writes == 0, "the restart wrote to the cloud: {cost}");
    let text = "0 API-server writes except Leases, according to the audit log; 0 vendor writes, as counted by the cloud";
    teller.tell(&Report::Fact(Fact::note(text)));
    Ok(cost)
}

fn list(writes: &[AuditWrite]) -> String {
    let line =
        |it: &AuditWrite| format!("{} {} {}/{} by {}", it.verb, it.resource, it.namespace, it.name, it.user);
    writes.iter().map(line).collect::<Vec<_>>().join("; ")
}
