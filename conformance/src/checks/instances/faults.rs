//! Verifies that certain faults prove nothing: a vendor that answers 404 to every call, an empty list, and reads that lag.

use std::time::Duration;

use cloud_api_proto::{
    Reason,
    v1alpha1::{BatchGetInstancesRequest, Existence, Instance, InstanceRef, RequestContext},
};
use tokio::time::Instant;

use super::{
    ask::{ask, by_id, by_name, existing, well_formed},
    paging::closed_or_refused,
};
use crate::checks::prelude::*;

/// Additional time after the consistency horizon. When it is over, every instance is old enough to be reported as GONE.
const LONGER: Duration = Duration::from_millis(500);

/// instance_service.proto, `Evidence`: 404 for every call means a wrong endpoint or scope, and never proves that an instance is gone. The
/// error reported for these calls must not claim it either.
pub(super) async fn all_404(cx: &Context) -> Verdict {
    let machines = cx.machines(3).await?;
    let nowhere = cx.proxy()?.inject(Rule::all(), Action::Answer(404));
    never_gone(cx, &machines).await?;
    nowhere.must_have_fired("max_staleness 0 causes a vendor read")?;
    if let Ok(listing) = cx.instances().await {
        let wants = "a listing that the vendor answers with 404 does not end with Synced";
        return Err(Stop::failed(wants, format!("{:?} after {} items", listing.synced, listing.items.len())));
    }
    drop(nowhere);
    cx.heal().await?;
    all_exist(cx, &machines).await
}

/// instance_service.proto, `Evidence`: a list alone never proves absence. Instances that are missing in the list are at most NOT_VISIBLE,
/// by ID and by name. An adapter that distrusts an empty listing may refuse to answer.
pub(super) async fn empty_list(cx: &Context) -> Verdict {
    let machines = cx.machines(3).await?;
    let empty = cx.proxy()?.inject(Rule::lists_of("instances"), Action::EmptyPage);
    // The watch may return an empty listing now, because the vendor does so too.
    closed_or_refused(cx).await?;
    never_gone(cx, &machines).await?;
    empty.must_have_fired("a watch with max_staleness 0 lists again")?;
    drop(empty);
    cx.heal().await?;
    all_exist(cx, &machines).await
}

/// Looks instances up by ID and name, with live and cached reads, for longer than the consistency horizon.
async fn never_gone(cx: &Context, machines: &[Instance]) -> Verdict {
    let ids = machines.iter().map(|machine| by_id(&machine.provider_id));
    let refs: Vec<InstanceRef> = ids.chain(machines.iter().map(|machine| by_name(&machine.name))).collect();
    let time = cx.consistency().saturating_add(LONGER);
    let end = Instant::now() + time;
    let cluster = cx.cluster();
    let (refs, cluster) = (&refs, &cluster);
    cx.until(time.saturating_mul(10), "the adapter answers in time", || async move {
        for context in [cluster.live(), cluster.context()] {
            finds_none_gone(cx, context, refs.clone()).await?;
        }
        Ok((Instant::now() >= end).then_some(()))
    })
    .await
}

async fn finds_none_gone(cx: &Context, context: RequestContext, refs: Vec<InstanceRef>) -> Verdict {
    let count = refs.len();
    let request = BatchGetInstancesRequest { context: Some(context), refs };
    match cx.node()?.batch_get_instances(request).await {
        Err(error) => {
            let wants = "RESOURCE_GONE is never used for errors of the scope";
            expect::that(error.reason != Reason::ResourceGone, wants, || error.to_string())
        }
        Ok(answer) => {
            well_formed(&answer, count)?;
            let gone = answer.results.iter().find(|result| result.existence() == Existence::Gone);
            expect::shown(gone.is_none(), "no instance is GONE without the proof of a direct look-up", &gone)
        }
    }
}

async fn all_exist(cx: &Context, machines: &[Instance]) -> Verdict {
    let refs = machines.iter().map(|machine| by_id(&machine.provider_id)).collect();
    for result in ask(cx, cx.cluster().live(), refs).await?.results {
        existing(result)?;
    }
    Ok(())
}

/// instance_service.proto, `EXISTENCE_NOT_VISIBLE`: a new instance that reads do not show yet is not reported as GONE. The command
/// `lagReads`, if it is set, delays the vendor's reads by the consistency horizon that `GetInfo` reports.
pub(super) async fn newborn(cx: &Context) -> Verdict {
    // This older instance can serve as the witness, which proves that the adapter sees the right project.
    let witnesses = cx.machines(1).await?;
    all_exist(cx, &witnesses).await?;
    if cx.lane().hooks.has(Hook::LagReads) {
        let lag = cx.consistency().as_millis().to_string();
        cx.undo_by(Hook::LagReads, vec![("MILLISECONDS", "0".to_owned())]);
        cx.hook(Hook::LagReads, &[("MILLISECONDS", &lag)]).await?;
    } else {
        cx.without(Need::Hook(Hook::LagReads));
    }
    let name = format!("conformance-{}", cx.cluster().uid("newborn"));
    let id = cx.hook(Hook::CreateInstances, &[("NAME", &name), ("COUNT", "1")]).await?;
    let id = id.trim().to_owned();
    cx.undo_by(Hook::DeleteInstances, vec![("PROVIDER_IDS", id.clone())]);
    let witness = witnesses.first().map(|machine| by_id(&machine.provider_id));
    let refs: Vec<InstanceRef> = witness.into_iter().chain([by_id(&id)]).collect();
    cx.until(cx.params().timings.converge, "a new instance becomes visible", || async {
        let answer = ask(cx, cx.cluster().live(), refs.clone()).await?;
        let newborn = expect::some(answer.results.into_iter().last(), "the answer has two results")?;
        let young = matches!(newborn.existence(), Existence::NotVisible | Existence::Exists);
        let wants = "an instance younger than the consistency horizon that is not visible is NOT_VISIBLE";
        expect::shown(young, wants, &newborn)?;
        Ok((newborn.existence() == Existence::Exists).then_some(()))
    })
    .await
}
