//! Verifies that there is one load balancer per key, even if the adapter misses answers to its own writes.

use cloud_api_proto::v1alpha1::Instance;
use futures::future;

use crate::checks::prelude::*;

/// The lag of reads, as a fraction of the consistency horizon. The rest of the horizon is left for calls in flight.
const LAG: f64 = 0.8;

/// The numbers of writes and objects that one load balancer causes without faults.
pub(super) struct Undisturbed {
    /// Number of vendor writes that create the load balancer.
    pub(super) builds: usize,
    /// Number of vendor writes that delete the load balancer.
    pub(super) removes: usize,
    /// Number of the vendor's objects before the creation.
    before: Objects,
    /// The number of the vendor's objects while the load balancer exists.
    with: Objects,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Objects {
    /// The number of objects with the owner tags of the check's cluster, as listed by `hooks.listOwned`.
    owned: Option<usize>,
    /// The number of load balancers with or without an owner, as listed by `hooks.listLoadBalancers`. It includes load balancers that lost
    /// their tags.
    balancers: Option<usize>,
}

/// common.proto, `REASON_OUTCOME_UNKNOWN`: if the answer to any write is lost, the repeated request first determines the outcome. Therefore
/// the adapter creates no object twice, not even temporarily. It repeats at most the write without an answer, with the same client token.
pub(super) async fn answers_are_lost(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let usual = undisturbed(cx, &machines).await?;
    for n in 1..=usual.builds {
        let web = balancer(cx, n, &machines);
        built_in_spite_of(cx, &web, &usual, n, "").await?;
        one(cx, &web, &usual, &format!("the answer to vendor write {n} of {} is lost", usual.builds)).await?;
        cx.remove(&web).await?;
    }
    Ok(())
}

/// load_balancer_service.proto, `EnsureLoadBalancer`; adapter_service.proto, `GetInfoResponse.consistency_horizon`: until the horizon has
/// passed, reads may not show a write whose answer was lost. The adapter must not take this for absence and create the object twice.
pub(super) async fn reads_lag(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let usual = undisturbed(cx, &machines).await?;
    let web = balancer(cx, 1, &machines);
    unseen(cx, &web).await?;
    one(cx, &web, &usual, "the answer to the first write is lost, and reads do not show the write").await?;
    cx.remove(&web).await?;
    if !cx.lane().hooks.has(Hook::LagReads) {
        cx.without(Need::Hook(Hook::LagReads));
        return Ok(());
    }
    let lag = cx.consistency().mul_f64(LAG).as_millis().to_string();
    cx.undo_by(Hook::LagReads, vec![("MILLISECONDS", "0".to_owned())]);
    for n in 1..=usual.builds {
        let web = balancer(cx, n, &machines);
        cx.hook(Hook::LagReads, &[("MILLISECONDS", &lag)]).await?;
        built_in_spite_of(cx, &web, &usual, n, ", and reads lag").await?;
        cx.hook(Hook::LagReads, &[("MILLISECONDS", "0")]).await?;
        one(cx, &web, &usual, &format!("the answer to vendor write {n} is lost, and reads lag")).await?;
        cx.remove(&web).await?;
    }
    Ok(())
}

/// Creates a load balancer while the answer to its first write is lost and reads are as stale as the horizon permits.
async fn unseen(cx: &Context, web: &Balancer) -> Verdict {
    let proxy = cx.proxy()?;
    cx.put(web).await?;
    let stale = proxy.inject(Rule::reads(), Action::Stale(cx.params().timings.converge));
    // The proxy records the vendor's current answers to the reads of this listing. From now on, it repeats these answers.
    cx.load_balancers(&cx.cluster()).await?;
    let lost = proxy.inject(Rule::writes().nth(1), Action::ResetAfter);
    let fresh = async {
        lost.reached(cx.params().timings.converge).await?;
        tokio::time::sleep(cx.consistency().mul_f64(LAG)).await;
        drop(stale);
        Ok::<(), Stop>(())
    };
    let (fresh, built) = future::join(fresh, cx.converge(web)).await;
    fresh?;
    built.map(drop)
}

/// Creates a load balancer while the answer to its n-th write is lost, with at most one additional write.
async fn built_in_spite_of(
    cx: &Context,
    web: &Balancer,
    usual: &Undisturbed,
    n: usize,
    also: &str,
) -> Verdict {
    let proxy = cx.proxy()?;
    let lost = proxy.inject(Rule::writes().nth(number(n)), Action::ResetAfter);
    let mark = proxy.mark();
    cx.converge(web).await?;
    lost.reached(cx.params().timings.converge).await?;
    drop(lost);
    let writes = accepted(&proxy.since(mark));
    let few = writes.len() <= usual.builds.saturating_add(1);
    let wants = format!(
        "the answer to vendor write {n} is lost{also}: at most that write is repeated, in addition to the usual {}",
        usual.builds
    );
    expect::that(few, &wants, || writes.to_string())
}

/// Creates and deletes a load balancer without faults, and counts the writes.
pub(super) async fn undisturbed(cx: &Context, machines: &[Instance]) -> Result<Undisturbed, Stop> {
    let web = balancer(cx, 0, machines);
    let proxy = cx.proxy()?;
    let before = objects(cx).await?;
    let mark = proxy.mark();
    cx.converge(&web).await?;
    let builds = accepted(&proxy.since(mark)).len();
    let with = objects(cx).await?;
    let mark = proxy.mark();
    cx.remove(&web).await?;
    let removes = accepted(&proxy.since(mark)).len();
    cx.note(format!(
        "without faults, {builds} vendor writes create the load balancer and {removes} delete it"
    ));
    let wants = "vendor writes create and delete a load balancer";
    expect::that(builds > 0 && removes > 0, wants, || format!("{builds} and {removes} writes"))?;
    Ok(Undisturbed { builds, removes, before, with })
}

/// The load balancer has two ports, so that its creation needs several writes.
pub(super) fn balancer(cx: &Context, n: usize, machines: &[Instance]) -> Balancer {
    cx.cluster().balancer(&format!("web-{n}")).listeners([tcp(80), tcp(443)]).backends(machines)
}

/// Asserts that the cluster owns this load balancer and no other.
pub(super) async fn one(cx: &Context, web: &Balancer, usual: &Undisturbed, when: &str) -> Verdict {
    let listed = cx.load_balancers(&cx.cluster()).await?.items;
    let keys: Vec<_> = listed.iter().filter_map(|item| item.key.clone()).collect();
    expect::shown(
        keys == [web.key()],
        &format!("{when}: there is exactly one load balancer with the key"),
        &listed,
    )?;
    let wants =
        format!("{when}: the cloud has as many objects as for a load balancer created without faults");
    expect::equal(&wants, &objects(cx).await?, &usual.with)
}

pub(super) async fn none(cx: &Context, usual: &Undisturbed, when: &str) -> Verdict {
    let listed = cx.load_balancers(&cx.cluster()).await?.items;
    expect::shown(listed.is_empty(), &format!("{when}: no object is left"), &listed)?;
    expect::equal(
        &format!("{when}: the cloud has as many objects as before"),
        &objects(cx).await?,
        &usual.before,
    )
}

async fn objects(cx: &Context) -> Result<Objects, Stop> {
    let owned = count(cx, Hook::ListOwned, &[("CLUSTER_ID", cx.cluster().id())]).await?;
    Ok(Objects { owned, balancers: count(cx, Hook::ListLoadBalancers, &[]).await? })
}

/// Returns the number of lines that a command prints. `None` if the command is not set.
async fn count(cx: &Context, hook: Hook, variables: &[(&str, &str)]) -> Result<Option<usize>, Stop> {
    let printed = cx.optional_hook(hook, variables).await?;
    Ok(printed.map(|printed| printed.lines().filter(|line| !line.trim().is_empty()).count()))
}

/// Returns the writes that the vendor executed, including those whose answer was lost.
fn accepted(calls: &Calls) -> Calls {
    calls.writes().only(|Call { reached, status, .. }| *reached && status.is_none_or(|status| status < 400))
}

pub(super) fn number(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
