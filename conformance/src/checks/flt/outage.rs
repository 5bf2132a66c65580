//! A vendor that is away for a while.

use std::{convert::Infallible, time::Duration};

use cloud_api_proto::v1alpha1::LoadBalancerState;
use futures::future;

use crate::{
    check::{Stop, Verdict},
    checks::{bud, budget},
    cluster::{Balancer, tcp},
    context::Context,
    expect,
    proxy::{Action, Rule},
};

/// Load balancers that are asked for during the outage.
const NEW: usize = 6;
/// After how long who was refused comes back, whatever it was told: often enough to open breakers.
const IMPATIENCE: Duration = Duration::from_millis(100);

/// common.proto, `REASON_VENDOR_UNAVAILABLE`; adapter_service.proto, `Breaker`: while the vendor is away nothing is told to be done, and every
/// refusal says when to come back. When it is there again, all that was asked for is done, once, within the budgets.
pub(super) async fn loses_nothing(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let machine = machines.first().ok_or_else(|| Stop::skipped("there is no machine"))?;
    let cluster = cx.cluster();
    let old = cluster.balancer("old").backends(&machines);
    cx.converge(&old).await?;
    let changed = cluster.balancer("old").backends(&machines).listeners([tcp(80), tcp(81)]);
    let new = (0..NEW).map(|n| cluster.balancer(&format!("new-{n}")).backends(&machines));
    let wanted: Vec<Balancer> = std::iter::once(changed).chain(new).collect();

    let proxy = cx.proxy()?;
    let (mark, outage) = (proxy.mark(), cx.params().timings.outage);
    let away = proxy.inject(Rule::all(), Action::ResetBefore);
    let asks = future::try_join_all(wanted.iter().map(|one| ask_in_vain(cx, one)));
    bud::under(bud::everything(cx, machine), async {
        // Callers who ask in vain never end by themselves.
        match tokio::time::timeout(outage, asks).await {
            Ok(Err(stop)) => Err(stop),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    })
    .await?;
    let tried = proxy.since(mark).len();
    drop(away);
    cx.note(format!("{tried} vendor calls were tried within the outage of {} s", outage.as_secs_f64()));

    future::try_join_all(wanted.iter().map(|one| cx.converge(one))).await?;
    let listed = cx.load_balancers(&cluster).await?.items;
    let once = |one: &Balancer| listed.iter().filter(|item| item.key == Some(one.key())).count() == 1;
    let right = listed.len() == wanted.len() && wanted.iter().all(once);
    expect::that(right, "all that was asked for is there, once", || format!("{listed:?}"))?;
    budget::kept(cx, &proxy.since(mark))
}

/// Asks again and again, and claims that each answer is true of a vendor that is away.
async fn ask_in_vain(cx: &Context, web: &Balancer) -> Result<Infallible, Stop> {
    loop {
        match cx.ensure(web).await? {
            Ok(answer) => {
                let wants = "nothing becomes what is asked for while the vendor is away: PENDING";
                expect::equal(wants, &answer.state(), &LoadBalancerState::Pending)?;
            }
            Err(error) => {
                let wants = "a vendor that is away is a refusal with a retry delay";
                expect::that(error.retry_after.is_some(), wants, || error.to_string())?;
            }
        }
        tokio::time::sleep(IMPATIENCE).await;
    }
}
