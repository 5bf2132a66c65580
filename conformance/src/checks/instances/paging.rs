//! Verifies listings of several pages, with broken pages, items that move between pages, and ten thousand items.

use std::{collections::BTreeSet, time::Duration};

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        Instance, Synced, WatchInstancesRequest, WatchInstancesResponse, watch_instances_response::Event,
    },
};
use http::Method;
use tokio::time::Instant;

use super::{
    ask::{ask, by_id, existing},
    listing::{holds_all, strictly, strictly_within},
};
use crate::checks::prelude::*;

/// The number of instances for a listing of several pages. Vendors usually return pages of 500 items.
const INSTANCES: usize = 600;
/// Default of `samples.machines`.
const FEW: usize = 10;
const TEN_THOUSAND: usize = 10_000;
/// Maximum references in one batch, unless `GetInfo` reports less.
const BATCH: usize = 500;
/// Maximum time for which an adapter may retry before it reports the error.
const TRIES: Duration = Duration::from_secs(30);
const PAGE: Duration = Duration::from_secs(10);

/// Creates running instances, enough for several pages if `samples.machines` permits. Returns the instances and the number of pages of a
/// listing.
async fn crowd(cx: &Context) -> Result<(Vec<Instance>, u64), Stop> {
    let most = cx.params().samples.machines.unwrap_or(FEW);
    let machines = cx.new_machines(INSTANCES.min(most)).await?;
    let mut pages = usize::MAX;
    // The adapter's periodic listings are counted too, so there are two attempts. They are unlikely to disturb both.
    for _listing in 0..2 {
        let mark = cx.proxy()?.mark();
        holds_all(&cx.instances().await?.items, &machines)?;
        let calls = cx.proxy()?.since(mark).lists_of("instances");
        // If each page has its own URL, distinct URLs are counted, so that a concurrent listing does not change the result.
        let urls: BTreeSet<&str> = calls.0.iter().map(|call| call.path.as_str()).collect();
        let by_url = calls.0.iter().all(|call| call.method == Method::GET);
        pages = pages.min(if by_url { urls.len() } else { calls.len() });
    }
    let pages = pages.max(1);
    cx.note(format!("a listing has {pages} pages"));
    Ok((machines, u64::try_from(pages).unwrap_or(1)))
}

/// common.proto, `Synced`: if a page fails or cannot be read, the listing is incomplete. It then ends with an error instead of Synced.
pub(super) async fn broken(cx: &Context) -> Verdict {
    let (machines, pages) = crowd(cx).await?;
    let last = pages.min(2);
    let nonsense = Action::AnswerWith { status: 200, headers: Vec::new(), body: "<html>".to_owned() };
    for (page, action) in [
        (last, Action::Truncate),
        (last, nonsense),
        (last, Action::Answer(500)),
        (1, Action::Answer(500)),
        (1, Action::ResetAfter),
    ] {
        cx.note(format!("page {page} of {pages}: {action:?}"));
        let broken = cx.proxy()?.inject(Rule::lists_of("instances").from(page), action);
        not_synced(cx).await?;
        let wants = "a watch with max_staleness 0 lists again";
        broken.must_have_fired(wants)?;
        drop(broken);
        cx.heal().await?;
    }
    holds_all(&cx.instances().await?.items, &machines)
}

/// Asserts that a live listing ends with an error that does not claim that the instances are gone.
async fn not_synced(cx: &Context) -> Verdict {
    let wants = "a listing with a page that could not be read does not end with Synced";
    closed_or_refused(cx).await?.map_or(Ok(()), |synced| Err(Stop::failed(wants, format!("{synced:?}"))))
}

/// Returns how a live listing ends: with Synced, or with an error that does not claim that the instances are gone.
pub(super) async fn closed_or_refused(cx: &Context) -> Result<Option<Synced>, Stop> {
    let request = WatchInstancesRequest {
        context: Some(cx.cluster().live()),
        stop_when_synced: true,
        ..WatchInstancesRequest::default()
    };
    let error = match cx.node()?.within(TRIES).watch_instances(request).await {
        Err(error) => error,
        Ok(watch) => match end(watch).await? {
            Ok(synced) => return Ok(Some(synced)),
            Err(error) => error,
        },
    };
    let wants = "a refused listing has an error with a reason, and the reason is not absence";
    let reported = !matches!(error.reason, Reason::Unspecified | Reason::ResourceGone);
    expect::that(reported, wants, || error.to_string()).map(|()| None)
}

async fn end(mut watch: Watch<WatchInstancesResponse>) -> Result<CallResult<Synced>, Stop> {
    loop {
        match watch.next(TRIES).await {
            Err(error) => return Ok(Err(error)),
            Ok(Some(WatchInstancesResponse { event: Some(Event::Synced(synced)) })) => return Ok(Ok(synced)),
            Ok(Some(_)) => (),
            Ok(None) => {
                let wants = "a listing ends with Synced or with an error";
                return Err(Stop::failed(wants, "the stream ended without an error"));
            }
        }
    }
}

/// instance_service.proto, `WatchInstances`: an instance that exists during the whole listing is listed once, even if other instances are
/// created and deleted. Items that move to a page that was already read must not be lost.
pub(super) async fn churn(cx: &Context) -> Verdict {
    // Most vendors list the oldest instances on the first page.
    let leaving = cx.new_machines(FEW.div_ceil(2)).await?;
    let (stable, pages) = crowd(cx).await?;
    let held = if pages > 1 {
        cx.proxy()?.inject(Rule::lists_of("instances").nth(2), Action::HoldBefore)
    } else {
        cx.proxy()?.inject(Rule::lists_of("instances").nth(1), Action::HoldAfter)
    };
    let churn = async {
        held.reached(PAGE).await?;
        let ids: Vec<&str> = leaving.iter().map(|machine| machine.provider_id.as_str()).collect();
        cx.hook(Hook::DeleteInstances, &[("PROVIDER_IDS", &ids.join(" "))]).await?;
        let name = format!("conformance-{}", cx.cluster().uid("arriving"));
        let arriving = cx.hook(Hook::CreateInstances, &[("NAME", &name), ("COUNT", "5")]).await?;
        let arriving = arriving.lines().collect::<Vec<_>>().join(" ");
        cx.undo_by(Hook::DeleteInstances, vec![("PROVIDER_IDS", arriving)]);
        held.release();
        Ok::<_, Stop>(())
    };
    let (listed, churned) = tokio::join!(strictly(cx), churn);
    churned?;
    holds_all(&listed?.items, &stable)
}

/// common.proto, the rules for every message: 10,000 instances arrive in messages of at most 512 items and 1 MiB. The adapter answers a
/// batch of maximum size in one message.
pub(super) async fn ten_thousand(cx: &Context) -> Verdict {
    let most = cx.params().samples.machines.unwrap_or(FEW);
    if most < TEN_THOUSAND {
        return Err(Stop::skipped(format!("samples.machines is {most}, below {TEN_THOUSAND}")));
    }
    let machines = cx.new_machines(TEN_THOUSAND).await?;
    let begin = Instant::now();
    holds_all(&strictly_within(cx, cx.listing_timeout(TEN_THOUSAND)).await?.items, &machines)?;
    let most = cx
        .info()
        .limits
        .as_ref()
        .map_or(BATCH, |limits| usize::try_from(limits.batch_instances).unwrap_or(BATCH));
    let refs = machines.iter().take(most).map(|machine| by_id(&machine.provider_id)).collect();
    for result in ask(cx, cx.cluster().as_of(begin), refs).await?.results {
        existing(result)?;
    }
    Ok(())
}
