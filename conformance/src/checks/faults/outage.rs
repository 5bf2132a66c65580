//! Verifies the behaviour during and after a vendor outage.

use std::{convert::Infallible, time::Duration};

use cloud_api_proto::v1alpha1::LoadBalancerState;
use futures::future;

use crate::checks::{budget, budgets, prelude::*};

const NEW: usize = 6;
/// The interval at which refused callers retry, regardless of the retry delay. It is short enough to open circuit breakers.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// common.proto, `REASON_VENDOR_UNAVAILABLE`; adapter_service.proto, `Breaker`: during an outage, the adapter reports no work as done, and
/// every refusal has a retry delay. After the outage, the adapter carries out each request exactly once, within the budgets.
pub(super) async fn loses_nothing(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let machine = machines.first().ok_or_else(|| Stop::skipped("the lane has no instance"))?;
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
    budgets::under(budgets::everything(cx, machine), async {
        // The time limit ends these callers, which repeat their requests forever.
        match tokio::time::timeout(outage, asks).await {
            Ok(Err(stop)) => Err(stop),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    })
    .await?;
    let tried = proxy.since(mark).len();
    drop(away);
    cx.note(format!("{tried} vendor calls were attempted during the outage of {} s", outage.as_secs_f64()));

    future::try_join_all(wanted.iter().map(|one| cx.converge(one))).await?;
    let listed = cx.load_balancers(&cluster).await?.items;
    let once = |one: &Balancer| listed.iter().filter(|item| item.key == Some(one.key())).count() == 1;
    let right = listed.len() == wanted.len() && wanted.iter().all(once);
    expect::shown(right, "every requested load balancer exists, once", &listed)?;
    budget::kept(cx, &proxy.since(mark))
}

/// Repeats a request, and asserts that each answer is one that an adapter may give during an outage.
async fn ask_in_vain(cx: &Context, web: &Balancer) -> Result<Infallible, Stop> {
    loop {
        match cx.ensure(web).await? {
            Ok(answer) => {
                let wants =
                    "while the vendor is unavailable, no load balancer becomes ready: the answer is PENDING";
                expect::equal(wants, &answer.state(), &LoadBalancerState::Pending)?;
            }
            Err(error) => {
                let wants = "while the vendor is unavailable, a refusal has a retry delay";
                expect::that(error.retry_after.is_some(), wants, || error.to_string())?;
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}
