//! Verifies the freshness of answers, and which changes are reported.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{Instance, InstanceRef, cost::Source};

use super::ask::{ask, by_id, existing, not_before, one, wall};
use crate::checks::prelude::*;

/// Maximum time until an adapter sends its vendor call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// common.proto, `RequestContext.max_staleness`: zero requires a vendor read that starts after the request arrived. Therefore the request
/// does not join a read in progress, and a watch lists again.
pub(super) async fn live(cx: &Context) -> Verdict {
    let [machine] = &cx.these_machines().await?;
    let refs = || vec![by_id(&machine.provider_id)];
    let asked = wall();
    let mark = cx.proxy()?.mark();
    let answer = ask(cx, cx.cluster().live(), refs()).await?;
    let cost = expect::some(answer.cost, "an answer has a Cost")?;
    expect::equal("the source of a live answer is LIVE", &cost.source(), &Source::Live)?;
    not_before("`cost.observed_at` is after the request", cost.observed_at, asked)?;
    let reads = cx.proxy()?.since(mark).reads();
    expect::that(!reads.is_empty(), "max_staleness 0 causes a vendor read", || reads.to_string())?;
    joins_nothing(cx, refs()).await?;
    let mark = cx.proxy()?.mark();
    let asked = wall();
    let listing = cx.instances().await?;
    not_before("`observed_at` of a live listing is after the request", listing.synced.observed_at, asked)?;
    let reads = cx.proxy()?.since(mark).reads();
    expect::that(!reads.is_empty(), "a watch with max_staleness 0 lists again", || reads.to_string())
}

/// Sends a second request while the vendor's answer to the first request is in flight. That answer is too old for the second request.
async fn joins_nothing(cx: &Context, refs: Vec<InstanceRef>) -> Verdict {
    let held = cx.proxy()?.inject(Rule::reads().next(1), Action::HoldAfter);
    let first = ask(cx, cx.cluster().live(), refs.clone());
    let second = async {
        held.reached(CALL_TIMEOUT).await?;
        let mark = cx.proxy()?.mark();
        let came = async {
            // Requests of one connection arrive in order: once `GetInfo` is answered, the adapter has received the second request.
            cx.node()?.info(&cx.cluster().context()).await?;
            held.release();
            Ok::<_, Stop>(())
        };
        let (answer, came) = tokio::join!(ask(cx, cx.cluster().live(), refs.clone()), came);
        came?;
        answer?;
        let reads = cx.proxy()?.since(mark).reads();
        let wants = "with max_staleness 0, a read that began before the request arrived does not answer it";
        expect::that(!reads.is_empty(), wants, || "the adapter made no second vendor call".to_owned())
    };
    let (first, second) = tokio::join!(first, second);
    second?;
    first.map(drop)
}

/// instance_service.proto, `Instance.fingerprint`: the fingerprint changes if and only if a property from which a Node is made changes.
pub(super) async fn fingerprint(cx: &Context) -> Verdict {
    let [machine] = &cx.these_new_machines().await?;
    let id = machine.provider_id.as_str();
    let cluster = cx.cluster();
    let now = || async { existing(one(cx, cluster.live(), by_id(id)).await?) };
    let before = now().await?;
    let again = now().await?;
    expect::equal("an unchanged instance keeps its fingerprint", &again.fingerprint, &before.fingerprint)?;
    let listed = cx.instances().await?.items.into_iter().find(|one| one.provider_id == id);
    let listed = expect::some(listed, "an existing instance is listed")?;
    let wants = "an instance has the same fingerprint in a listing and in a batch";
    expect::equal(wants, &listed.fingerprint, &before.fingerprint)?;
    cx.hook(Hook::TouchInstance, &[("PROVIDER_ID", id)]).await?;
    // Reads may lag this long under the contract.
    tokio::time::sleep(cx.consistency()).await;
    let touched = now().await?;
    let wants = "a property that is not part of a Node does not change the fingerprint";
    expect::equal(wants, &touched.fingerprint, &before.fingerprint)?;
    cx.hook(Hook::ChangeInstance, &[("PROVIDER_ID", id)]).await?;
    let wants = "a change of a property that is part of a Node is reported";
    let changed = cx
        .until(cx.params().timings.converge, wants, || async {
            let found = now().await?;
            Ok((made_of(&found) != made_of(&before)).then_some(found))
        })
        .await?;
    let wants = "a property that is part of a Node changes the fingerprint";
    expect::that(changed.fingerprint != before.fingerprint, wants, || {
        format!("first {before:?}, then {changed:?}")
    })
}

/// Returns only the properties from which a Node is made.
fn made_of(instance: &Instance) -> Instance {
    Instance { fingerprint: String::new(), vendor_state: String::new(), created_at: None, ..instance.clone() }
}
