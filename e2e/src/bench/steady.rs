//! Measures the steady state, in which kubelets only report their status. Then measures while a fifth of the kubelets does not report.

use std::time::Duration;

use serde_json::json;

use super::fleet;
use super::listings::{self, PAGE};
use super::memory;
use super::numbers::float;
use super::result::{Row, Size, Spent, Target};
use super::stage::Stage;

/// Of this many nodes, one becomes not ready.
const SHARE: usize = 5;

/// Measures the steady state for the measuring time (`size.seconds`).
pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<Row> {
    let before = stage.reading().await?;
    stage.progress.wait("steady state: no changes", Duration::from_secs(stage.size.seconds)).await;
    let spent = stage.spent(&before).await?;
    let mut targets = judge(&spent, stage.size, 0.0);
    targets.push(Target::count("API-server writes", spent.api_total(), 0));
    targets.extend(memory::targets(&spent));
    Ok(Row {
        title: format!("{} nodes, {} Services, steady", stage.size.nodes, stage.size.services),
        targets,
        notes: vec![
            "Kubelets report every 5 minutes. They do not renew their Leases, which no measured process reads."
                .into(),
        ],
        spent,
        ..Row::default()
    })
}

/// Measures for half of the measuring time (`size.seconds`) while some nodes are not ready.
pub(super) async fn not_ready(stage: &mut Stage) -> anyhow::Result<Row> {
    let n = (stage.size.nodes / SHARE).max(1);
    let silent = stage.first_nodes(n);
    let before = stage.reading().await?;
    fleet::patch_nodes(&stage.client(), &silent, &ready("Unknown"), true).await?;
    stage.progress.wait("nodes are not ready", Duration::from_secs(stage.size.seconds / 2)).await;
    let spent = stage.spent(&before).await?;
    fleet::patch_nodes(&stage.client(), &silent, &ready("True"), true).await?;
    stage.quiet().await?;
    Ok(Row {
        title: format!("{n} of {} nodes not ready", stage.size.nodes),
        targets: judge(&spent, stage.size, float(n.div_ceil(PAGE))),
        spent,
        ..Row::default()
    })
}

fn ready(status: &str) -> serde_json::Value {
    json!({ "status": { "conditions": [{ "type": "Ready", "status": status, "reason": "Bench" }] } })
}

fn judge(spent: &Spent, size: Size, more: f64) -> Vec<Target> {
    vec![
        listings::machines_and_balancers(&spent.vendor, size, spent.seconds, more),
        listings::routes(&spent.vendor, size, spent.seconds),
        Target::count("vendor writes", spent.vendor.writes, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::result::Calls;
    use super::{Size, Spent, judge};

    #[test]
    fn one_write_misses_the_target() {
        let size = Size { nodes: 5000, services: 1000, members: 200, seconds: 600 };
        let spent = |writes| Spent {
            seconds: 600.0,
            vendor: Calls { writes, ..Calls::default() },
            ..Spent::default()
        };
        assert!(judge(&spent(0), size, 0.0).iter().all(|target| target.met));
        assert!(!judge(&spent(1), size, 0.0).iter().all(|target| target.met));
    }
}
