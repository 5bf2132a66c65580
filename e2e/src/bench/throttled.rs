//! Measures while the vendor permits a lower rate than the adapter is configured for, and there are always changes to write.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;

use super::numbers::{float, of_count};
use super::result::{Calls, Row, Target};
use super::stage::{RATE, Stage};

/// The share of the configured rate that the vendor permits.
const SHARE: f64 = 0.6;
/// The burst that the vendor allows after a pause.
const BURST: u32 = 10;
/// Number of Services that are changed at once; their writes exceed the budget.
const AT_ONCE: usize = 20;
const THROTTLES_A_MINUTE: f64 = 1.0;
const USED: f64 = 0.95;

/// The adapter learns the permitted rate in the first half of the measuring time. Only the second half is measured.
pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<Row> {
    let allowed = f64::from(RATE) * SHARE;
    let limit = json!({ "rate_limits": { "loadbalancer": { "rate": allowed, "burst": BURST } } });
    stage.cluster.cloud.configure(&limit).await?;
    let half = Duration::from_secs(stage.size.seconds / 2);
    let (client, services, progress) = (stage.client(), stage.services.clone(), stage.progress);
    let users = change(&client, &services);
    let look = async {
        progress.wait("the vendor throttles, and the adapter learns the permitted rate", half).await;
        let before = stage.reading().await?;
        progress.wait("the vendor throttles", half).await;
        stage.spent(&before).await
    };
    let spent = tokio::select! {
        spent = look => spent?,
        failed = users => return Err(failed),
    };
    stage.cluster.cloud.configure(&json!({ "rate_limits": null })).await?;
    stage.progress.step("finishing the remaining work", stage.quiet()).await?;
    Ok(Row {
        title: format!("the vendor allows {allowed} of {RATE} configured calls/s"),
        targets: judge(&spent.vendor, spent.seconds, allowed),
        notes: vec![format!("Measured in the second half of {} s.", stage.size.seconds)],
        spent,
        ..Row::default()
    })
}

/// Repeatedly adds a port to all Services and removes it, so that there is always a change to write. Ends only with an error.
async fn change(client: &Client, services: &[String]) -> anyhow::Error {
    let api: Api<Service> = Api::default_namespaced(client.clone());
    for round in 0_u64.. {
        let comes = json!({ "name": "more", "protocol": "TCP", "port": 443 });
        let goes = json!({ "$patch": "delete", "port": 443 });
        let patch = json!({ "spec": { "ports": [if round % 2 == 0 { comes } else { goes }] } });
        let one = |name: &String| {
            let (api, name, patch) = (api.clone(), name.clone(), Patch::Strategic(patch.clone()));
            async move { api.patch(&name, &PatchParams::default(), &patch).await.map(drop) }
        };
        let done = stream::iter(services).map(one).buffer_unordered(AT_ONCE).try_collect::<()>().await;
        if let Err(error) = done {
            return error.into();
        }
        // During the pause, most changes reach the cloud before the next change reverts them.
        sleep(Duration::from_secs_f64(float(services.len()) / f64::from(RATE))).await;
    }
    anyhow::anyhow!("the task that changes Services ended")
}

fn judge(calls: &Calls, seconds: f64, allowed: f64) -> Vec<Target> {
    let minutes = (seconds / 60.0).max(f64::EPSILON);
    let taken = of_count(calls.families(&["loadbalancer"]).saturating_sub(calls.throttled));
    vec![
        Target::at_most(
            "throttled calls per minute",
            of_count(calls.throttled) / minutes,
            THROTTLES_A_MINUTE,
            "",
        ),
        Target::at_least("used share of the allowed rate", taken / (allowed * seconds).max(1.0), USED, ""),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Calls, judge};

    #[test]
    fn throttles_and_idle_vendor_miss_the_target() {
        let met = |all, throttled| {
            let calls =
                Calls { throttled, by_family: [("loadbalancer".to_owned(), all)].into(), ..Calls::default() };
            judge(&calls, 300.0, 12.0).iter().map(|it| it.met).collect::<Vec<_>>()
        };
        // At 12 calls per second, the vendor permits 3,600 calls in 300 s.
        assert_eq!(met(3425, 5), [true, true]);
        assert_eq!(met(3430, 6), [false, true]);
        assert_eq!(met(3400, 0), [true, false]);
    }
}
