//! Verifies proofs of absence.

use cloud_api_proto::v1alpha1::{Evidence, Existence, evidence::Method};

use super::ask::{ask, by_id, by_name, existing, not_before, one, wall};
use crate::checks::prelude::*;

/// instance_service.proto, `Evidence`: a deleted instance becomes GONE, proven by a direct answer or a terminal state. At the same time,
/// another instance EXISTS.
pub(super) async fn deleted(cx: &Context) -> Verdict {
    let [victim, neighbour] = &cx.these_new_machines().await?;
    let cluster = cx.cluster();
    let deleted = wall();
    cx.delete_machine(victim).await?;
    let refs = vec![by_id(&victim.provider_id), by_id(&neighbour.provider_id)];
    let wants = "a deleted instance becomes GONE";
    let (evidence, scope) = cx
        .until(cx.params().timings.converge, wants, || async {
            let answer = ask(cx, cluster.live(), refs.clone()).await?;
            let mut results = answer.results.into_iter();
            let (first, second) = (results.next(), results.next());
            existing(expect::some(second, "the answer has two results")?)?;
            let first = expect::some(first, "the answer has two results")?;
            let reported =
                matches!(first.existence(), Existence::Exists | Existence::NotVisible | Existence::Gone);
            expect::shown(reported, "until it is GONE, it still EXISTS or is NOT_VISIBLE", &first)?;
            Ok(first.evidence.map(|evidence| (evidence, answer.scope)))
        })
        .await?;
    proves(&evidence)?;
    not_before("`evidence.observed_at` is after the deletion", evidence.observed_at, deleted)?;
    let looked = evidence.scope.map(|scope| scope.fingerprint);
    let wants = "`evidence.scope` is the Scope of the answer";
    expect::equal(wants, &looked, &scope.map(|scope| scope.fingerprint))?;
    let later = one(cx, cluster.context(), by_id(&victim.provider_id)).await?;
    expect::equal("a GONE instance stays GONE", &later.existence(), &Existence::Gone)
}

fn proves(evidence: &Evidence) -> Verdict {
    let method = matches!(evidence.method(), Method::DirectGetNotFound | Method::TerminalState);
    let wants = "`evidence.method` is a direct answer or a terminal state: a list proves nothing";
    expect::shown(method, wants, &evidence)?;
    let placed = evidence.scope.as_ref().is_some_and(|scope| !scope.fingerprint.is_empty());
    expect::shown(placed, "`evidence.scope` is set", &evidence)
}

/// instance_service.proto, `InstanceRef.node_name`: a look-up by name can find an instance, but never proves its absence. This holds even
/// if a look-up by ID has proven the absence.
pub(super) async fn name(cx: &Context) -> Verdict {
    let cluster = cx.cluster();
    let unknown = format!("conformance-unknown-{:x}", cx.random());
    for context in [cluster.live(), cluster.context()] {
        let result = one(cx, context, by_name(&unknown)).await?;
        let wants = "a name that no instance has is NOT_VISIBLE";
        expect::equal(wants, &result.existence(), &Existence::NotVisible)?;
    }
    let [machine] = &cx.these_new_machines().await?;
    let found = existing(one(cx, cluster.live(), by_name(&machine.name)).await?)?;
    expect::equal("an instance is found by its name", &found.provider_id, &machine.provider_id)?;
    cx.delete_machine(machine).await?;
    let refs = vec![by_id(&machine.provider_id), by_name(&machine.name)];
    let wants = "a deleted instance is GONE by its ID and NOT_VISIBLE by its name";
    cx.until(cx.params().timings.converge, wants, || async {
        let results = ask(cx, cluster.live(), refs.clone()).await?.results;
        let mut existences = results.iter().map(|result| result.existence());
        let (id, name) = (existences.next(), existences.next());
        let proves = name == Some(Existence::Gone);
        expect::shown(!proves, "a look-up by name never proves absence", &results)?;
        Ok((id == Some(Existence::Gone) && name == Some(Existence::NotVisible)).then_some(()))
    })
    .await
}
