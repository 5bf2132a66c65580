//! Verifies dry runs, and states that an adapter must not rewrite.

use cloud_api_proto::v1alpha1::{DeleteLoadBalancerRequest, LoadBalancerState, PlannedStep};

use super::{changes::only, keys};
use crate::checks::prelude::*;

/// The tolerated difference between the number of planned steps and the number of later writes, as a fraction of the writes.
const TOLERANCE: f64 = 0.2;

/// load_balancer_service.proto, `LoadBalancer.applied_hash`: a new adapter version may compute the hash of a desired state differently. It
/// then compares field by field, and does not write because of the hash. It still writes real changes.
pub(super) async fn hash_version(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let all = ["web", "mail"].map(|name| cluster.balancer(name).backends(&machines));
    for balancer in &all {
        cx.converge(balancer).await?;
    }
    cx.process().kill().await?;
    cx.process().start_by(Hook::StartAdapterWithNextHash).await?;
    let mark = cx.proxy()?.mark();
    for _repeat in 0..2 {
        for balancer in &all {
            cx.converge(balancer).await?;
        }
    }
    let wants = "another version of the hash causes no write if the cloud is in the desired state";
    cx.proxy()?.since(mark).writes().must_be_none(wants)?;
    let [web, mail] = all;
    let changed = web.fence(cluster.fence()).listeners([tcp(80), tcp(443)]);
    cx.converge(&changed).await?;
    let writes = cx.proxy()?.since(mark).writes();
    expect::that(!writes.is_empty(), "a real change is written", || writes.to_string())?;
    let mut wanted = vec![changed.key(), mail.key()];
    wanted.sort_by(|one, other| one.owner_uid.cmp(&other.owner_uid));
    expect::equal("there is one load balancer per key", &keys(cx).await?, &wanted)
}

/// load_balancer_service.proto, `EnsureLoadBalancerRequest.dry_run`, `DeleteLoadBalancerRequest.dry_run`: a dry run writes nothing. Its
/// plan has as many steps as there are writes afterwards, within 20 %. This holds for a creation, a change, no change, and a deletion.
pub(super) async fn dry_run(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let cluster = cx.cluster();
    let ports = [tcp(80), tcp(443), tcp(8080), tcp(8443)];
    let web = cluster.balancer("web").listeners(ports).backends(&machines);
    cx.put(&web).await?;
    ensured(cx, &web, "a creation").await?;
    let fewer = machines.get(..1).unwrap_or_default();
    let changed = web.fence(cluster.fence()).listeners([tcp(80), tcp(443), tcp(9000)]).backends(fewer);
    cx.put(&changed).await?;
    ensured(cx, &changed, "a change").await?;
    let (plan, state) = planned(cx, &changed).await?;
    expect::shown(plan.is_empty(), "the plan without changes is empty", &plan)?;
    let wants = "a dry run also reports a load balancer in the desired state as ACTIVE";
    expect::equal(wants, &state, &LoadBalancerState::Active)?;

    let mark = cx.proxy()?.mark();
    let rehearsal = DeleteLoadBalancerRequest { dry_run: true, ..changed.removal() };
    let plan = cx.service()?.delete_load_balancer(rehearsal).await?.plan;
    nothing_written(&cx.proxy()?.since(mark))?;
    expect::equal("a dry run deletes nothing", &only(cx).await?.key, &Some(changed.key()))?;
    let mark = cx.proxy()?.mark();
    cx.remove(&changed).await?;
    agree("a removal", &plan, &cx.proxy()?.since(mark))
}

/// Makes a dry run, then the change, and compares the plan with the writes.
async fn ensured(cx: &Context, balancer: &Balancer, what: &str) -> Verdict {
    let (plan, _state) = planned(cx, balancer).await?;
    let mark = cx.proxy()?.mark();
    cx.converge(balancer).await?;
    agree(what, &plan, &cx.proxy()?.since(mark))
}

async fn planned(cx: &Context, balancer: &Balancer) -> Result<(Vec<PlannedStep>, LoadBalancerState), Stop> {
    let mut rehearsal = balancer.request.clone();
    rehearsal.dry_run = true;
    let mark = cx.proxy()?.mark();
    let answer = cx.service()?.ensure_load_balancer(rehearsal).await?;
    nothing_written(&cx.proxy()?.since(mark))?;
    Ok((answer.plan.clone(), answer.state()))
}

fn nothing_written(calls: &Calls) -> Verdict {
    calls.writes().must_be_none("a dry run writes nothing")
}

fn agree(what: &str, plan: &[PlannedStep], calls: &Calls) -> Verdict {
    let writes = calls.writes();
    let named = plan.iter().all(|step| !step.operation.is_empty() && !step.family.is_empty());
    expect::shown(named, "a planned step names its operation and its family", &plan)?;
    let wants = format!("the plan of {what} has as many steps as writes follow, within 20 %");
    let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    let off = (count(plan.len()) - count(writes.len())).abs();
    let close = !plan.is_empty() && off <= TOLERANCE * count(writes.len());
    expect::that(close, &wants, || {
        let steps: Vec<&str> = plan.iter().map(|step| step.description.as_str()).collect();
        format!("the plan: {steps:?}\nthe writes: {writes}")
    })
}
