//! Verifies deletions of load balancers.

use std::time::Duration;

use cloud_api_proto::{
    Reason,
    v1alpha1::{Known, LoadBalancerKey, LoadBalancerState, VendorIds},
};

use super::{keys, vendor_id};
use crate::checks::prelude::*;

/// The time within which an adapter begins to work on a request.
const BEGINS: Duration = Duration::from_secs(30);
/// A deadline that is too short to wait for completion. The adapter answers half a second before the deadline.
const SHORT_DEADLINE: Duration = Duration::from_secs(1);

/// load_balancer_service.proto, `DeleteLoadBalancer`: a deletion works without vendor IDs and with wrong IDs, and deletes only this load
/// balancer. After the answer ABSENT, no part of the load balancer is left in the cloud.
pub(super) async fn by_key(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let machines = cx.machines(1).await?;
    let web = cluster.balancer("web").backends(&machines);
    let mut mail = cluster.balancer("mail").backends(&machines);
    let (one, other) = tokio::join!(cx.converge(&web), cx.converge(&mail));
    let _active = (one?, other?);
    cx.remove(&web).await?;
    expect::equal("a deletion deletes only its own load balancer", &keys(cx).await?, &vec![mail.key()])?;
    let ids = [("loadbalancer".to_owned(), "no-such-load-balancer".to_owned())].into();
    let vendor_ids = Some(VendorIds { ids });
    mail.request.known = Some(Known { vendor_ids, applied_hash: "no-such-hash".to_owned() });
    cx.remove(&mail).await?;
    nothing_is_left(cx).await
}

/// Asserts that nothing is left after the answer ABSENT: neither in the listing, nor in the cloud if a command lists its objects.
async fn nothing_is_left(cx: &Context) -> Verdict {
    // If the adapter serves only one cluster, all checks share this cluster, so other objects may exist.
    if cx.lane().params.cluster_id.is_none() && cx.lane().hooks.has(Hook::ListOwned) {
        let owned = cx.hook(Hook::ListOwned, &[("CLUSTER_ID", cx.cluster().id())]).await?;
        expect::equal("an ABSENT load balancer has no objects in the cloud", &owned.trim(), &"")?;
    }
    expect::equal("an ABSENT load balancer is not listed", &keys(cx).await?, &Vec::<LoadBalancerKey>::new())
}

/// load_balancer_service.proto, `DeleteLoadBalancer`: a load balancer that never existed is ABSENT, no matter how often it is deleted.
pub(super) async fn of_nothing(cx: &Context) -> Verdict {
    let never = cx.cluster().balancer("web");
    for _repeat in 0..2 {
        let answer = cx.remove(&never).await?;
        let wants = "retry_after is set if and only if the load balancer is DELETING";
        expect::equal(wants, &answer.retry_after, &None)?;
    }
    Ok(())
}

/// load_balancer_service.proto, `DeleteLoadBalancer`: a deletion replaces a creation in progress. The answer is not ABSENT until all
/// created objects are found. This includes an object whose create the vendor has not answered or not received yet.
pub(super) async fn while_creating(cx: &Context) -> Verdict {
    deleted_at(cx, "unseen", Action::HoldBefore).await?;
    deleted_at(cx, "unanswered", Action::HoldAfter).await
}

async fn deleted_at(cx: &Context, name: &str, held: Action) -> Verdict {
    let cluster = cx.cluster();
    let machines = cx.machines(1).await?;
    let web = cluster.balancer(name).backends(&machines);
    let gone = web.clone().fence(cluster.fence());
    cx.put(&web).await?;
    let api = cx.service()?;
    let create = cx.proxy()?.inject(Rule::writes().nth(1), held);
    let delete = async {
        create.reached(BEGINS).await?;
        let answer = api.within(SHORT_DEADLINE).delete_load_balancer(gone.removal()).await;
        create.release();
        Ok::<_, Stop>(answer?)
    };
    let (ensured, deleted) = tokio::join!(api.ensure_load_balancer(web.request.clone()), delete);
    let wants = "a load balancer whose creation is in progress is DELETING, not ABSENT";
    expect::equal(wants, &deleted?.state(), &LoadBalancerState::Deleting)?;
    let wants = "an Ensure that a deletion superseded is answered with PENDING or OPERATION_CONFLICT";
    let reported = match &ensured {
        Ok(answer) => answer.state() == LoadBalancerState::Pending,
        Err(error) => error.reason == Reason::OperationConflict,
    };
    expect::shown(reported, wants, &ensured)?;
    cx.remove(&gone).await?;
    nothing_is_left(cx).await
}

/// load_balancer_service.proto, `LoadBalancerKey`: a Service with the same name and another UID is another owner. It gets its own load
/// balancer while the old one is deleted. A load balancer that is requested again during or after its deletion exists in the end.
pub(super) async fn and_recreation(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let machines = cx.machines(1).await?;
    let api = cx.service()?;
    let old = cluster.balancer("web").backends(&machines);
    let before = cx.converge(&old).await?;
    let old = old.fence(cluster.fence());
    let mut new = old.clone().fence(cluster.fence());
    let uid = cluster.uid("web, recreated");
    new.request.key.get_or_insert_default().owner_uid.clone_from(&uid);
    new.request.owner.get_or_insert_default().uid = uid;
    let (deleted, after) = tokio::join!(api.delete_load_balancer(old.removal()), cx.converge(&new));
    let (_going, after) = (deleted?, after?);
    let own = vendor_id(&before)? != vendor_id(&after)?;
    expect::shown(own, "a recreated Service gets a load balancer of its own", &after)?;
    cx.remove(&old).await?;
    let wants = "the new load balancer stays when the old one is deleted";
    expect::equal(wants, &keys(cx).await?, &vec![new.key()])?;

    let new = new.fence(cluster.fence());
    api.within(SHORT_DEADLINE).delete_load_balancer(new.removal()).await?;
    let new = new.fence(cluster.fence());
    cx.converge(&new).await?;
    let wants = "a load balancer that is requested again during its deletion exists";
    expect::equal(wants, &keys(cx).await?, &vec![new.key()])?;

    let old = old.fence(cluster.fence());
    cx.converge(&old).await?;
    let mut both = vec![new.key(), old.key()];
    both.sort_by(|one, other| one.owner_uid.cmp(&other.owner_uid));
    let wants = "a load balancer that is requested again after its deletion exists";
    expect::equal(wants, &keys(cx).await?, &both)
}
