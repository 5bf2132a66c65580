//! Verifies the reaction to an invalid configuration file.

use std::time::Duration;

use cloud_api_proto::v1alpha1::WatchStatusResponse;
use tokio::time::Instant;

use crate::checks::prelude::*;

/// Time tolerance for a busy adapter.
const TOLERANCE: Duration = Duration::from_secs(30);

/// adapter_service.proto, `config_revision`: the revision identifies the active configuration. An invalid file neither changes the
/// configuration nor ends the process, and a later valid file is loaded.
pub(super) async fn invalid(cx: &Context) -> Verdict {
    let instance = cx.service()?.info(&cx.cluster().context()).await?.instance_id;
    let before = status(cx).await?;
    let load = load(cx)?;
    cx.hook(Hook::BreakConfig, &[]).await?;
    let kept = kept(cx, &before).await;
    cx.hook(Hook::MendConfig, &[]).await?;
    kept?;
    load.more(cx, 3).await?;
    load.whole("no call fails while the configuration file is invalid")?;
    let after = cx.service()?.info(&cx.cluster().context()).await?.instance_id;
    expect::equal("the process keeps running: instance_id stays the same", &after, &instance)?;
    let limit = cx.params().timings.reload + TOLERANCE;
    cx.until(limit, "a valid file is loaded after an invalid one: config_revision changes", || async {
        Ok((status(cx).await?.config_revision != before.config_revision).then_some(()))
    })
    .await
}

/// Asserts that nothing changes for as long as the adapter may take to read its file.
async fn kept(cx: &Context, before: &WatchStatusResponse) -> Verdict {
    let end = Instant::now() + cx.params().timings.reload;
    while Instant::now() < end {
        let now = status(cx).await?;
        let wants = "the old configuration stays active: config_revision stays the same";
        expect::equal(wants, &now.config_revision, &before.config_revision)?;
        let ceilings = |status: &WatchStatusResponse| {
            status.budgets.iter().map(|one| (one.bucket.clone(), one.ceiling)).collect::<Vec<_>>()
        };
        let wants = "the old configuration stays active: the ceilings of budgets stay the same";
        expect::equal(wants, &ceilings(&now), &ceilings(before))?;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    Ok(())
}

async fn status(cx: &Context) -> Result<WatchStatusResponse, Stop> {
    let mut watch = cx.service()?.watch_status(&cx.cluster().context()).await?;
    expect::some(watch.next(TOLERANCE).await?, "WatchStatus answers at once")
}

/// Starts a caller whose requests cause vendor calls.
fn load(cx: &Context) -> Result<Load, Stop> {
    let (api, cluster) = (cx.node()?.off_record(), cx.cluster());
    let missing =
        cx.params().samples.missing_provider_id.clone().unwrap_or_else(|| "conformance://none".to_owned());
    let mut load = Load::default();
    load.add(move |_| {
        let request = cluster.instances(cluster.live(), [missing.as_str()]);
        let api = api.clone();
        async move { Ok(api.batch_get_instances(request).await.map(drop)?) }
    });
    Ok(load)
}
