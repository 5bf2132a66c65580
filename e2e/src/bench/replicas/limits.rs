//! The adapter's rate limits, set by chart values and, while the adapter runs, by its ConfigMap.

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use crate::{ADAPTER, eventually, seconds};

use super::super::stage::{RATE, Stage};
use super::judge::{Rate, UNBOUND};

/// Maximum parallel calls: more than the rate needs if each call takes 50 ms.
pub(super) const AT_ONCE: u32 = 100;
const FAMILIES: [&str; 3] = ["compute", "loadbalancer", "network"];

pub(super) fn values() -> Value {
    limits(Rate::Unbound)
}

fn limits(rate: Rate) -> Value {
    match rate {
        Rate::Default => json!({ "limits": {} }),
        Rate::Unbound => {
            let all = |value: Value| FAMILIES.map(|it| (it.to_owned(), value.clone()));
            let buckets: Map<_, _> = all(json!({ "rate": UNBOUND, "burst": UNBOUND })).into_iter().collect();
            let at_once: Map<_, _> = all(json!(AT_ONCE)).into_iter().collect();
            json!({ "limits": { "buckets": buckets, "concurrency": at_once } })
        }
    }
}

/// Changes the adapter's limits in its ConfigMap, and waits until the adapter uses them.
pub(super) async fn set(stage: &Stage, rate: Rate) -> anyhow::Result<()> {
    let release = &stage.cluster.release;
    let maps: Api<ConfigMap> = Api::namespaced(stage.client(), &release.namespace);
    let change = json!({ "data": { "config.yaml": limits(rate).to_string() } });
    maps.patch(ADAPTER, &PatchParams::default(), &Patch::Merge(&change))
        .await
        .context("cannot change the adapter's limits")?;
    stage.cluster.pods.refresh_volumes(&stage.cluster.control_plane).await?;
    let adapter = stage.cluster.pods.look_at(ADAPTER)?;
    let wanted = f64::from(match rate {
        Rate::Unbound => UNBOUND,
        Rate::Default => RATE,
    });
    eventually("the adapter has its new limits", seconds(60), || async {
        let ceilings = adapter.counted("cloud_adapter_bucket_ceiling", "bucket").await?;
        let ceiling = ceilings.get("loadbalancer").copied().unwrap_or_default();
        ensure!((ceiling - wanted).abs() < 0.1, "the ceiling is {ceiling} calls/s, expected {wanted}");
        Ok(())
    })
    .await
}
