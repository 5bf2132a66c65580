//! Whether the urgent waits for the rest.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{LoadBalancer, LoadBalancerState, Priority};
use futures::future;
use tokio::time::Instant;

use super::load;
use crate::{
    check::Verdict,
    cluster::Balancer,
    context::Context,
    expect,
    proxy::{Action, Rule},
};

/// Load balancers that are asked for in the background: each of their steps is a queue that a step of the urgent one must not wait for.
const STORM: usize = 100;

/// common.proto, `Priority`: while a hundred load balancers are built in the background, and everybody lists, one that a user waits for is
/// done long before them.
pub(super) async fn delays_no_ensure(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let storm: Vec<Balancer> = (0..STORM)
        .map(|n| {
            let mut one = cluster.balancer(&format!("resync-{n}")).backends(&machines);
            one.request.context.get_or_insert_default().priority = Priority::Background.into();
            one
        })
        .collect();
    let urgent = cluster.balancer("urgent").backends(&machines);
    cx.put(&urgent).await?;
    let begun = cx.proxy()?.inject(Rule::writes().nth(1), Action::Delay(Duration::ZERO));
    let api = cx.service()?;
    let asks = future::join_all(storm.into_iter().map(|one| {
        let api = api.clone();
        async move { api.ensure_load_balancer(one.request).await }
    }));
    let ensured = async {
        begun.reached(cx.params().timings.converge).await?;
        let asked = Instant::now();
        cx.converge(&urgent).await?;
        cx.note(format!("the urgent one took {} ms", asked.elapsed().as_millis()));
        Ok(cx.load_balancers(&cluster).await?.items)
    };
    let (_answers, listed) = future::join(asks, load::under(load::listings(cx), ensured)).await;
    let finished =
        |one: &&LoadBalancer| one.state() == LoadBalancerState::Active && !one.applied_hash.is_empty();
    let finished = listed?.iter().filter(finished).count().saturating_sub(1);
    cx.note(format!("{finished} of {STORM} were finished before it"));
    expect::that(finished < STORM / 2, "what a user waits for does not queue behind the background", || {
        format!("{finished} of {STORM} that were asked for with PRIORITY_BACKGROUND were finished first")
    })
}
