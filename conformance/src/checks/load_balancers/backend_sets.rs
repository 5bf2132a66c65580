//! Verifies backend sets. A backend set is uploaded once, either completely or as a delta, and load balancers refer to it by its ID.

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        BackendDelta, BackendList, LoadBalancerState, PutBackendSetRequest, put_backend_set_request::Content,
    },
};

use crate::checks::prelude::*;

/// load_balancer_service.proto, `PutBackendSet`: a delta creates the same set as a full upload. The same ID with other content is refused.
pub(super) async fn delta_equals_full(cx: &Context) -> Verdict {
    let machines = cx.machines(4).await?;
    let all: Vec<_> = machines.iter().map(backend).collect();
    let [out, changed, kept, new] = all.as_slice() else {
        return Err(Stop::skipped("the lane has fewer than 4 instances"));
    };
    let mut changed = changed.clone();
    changed.node_name.push_str("-renamed");
    let cluster = cx.cluster();
    let base = cluster.balancer("web").backends(machines.get(..3).unwrap_or_default());
    let delta = BackendDelta {
        base_id: base.set.id.clone(),
        add: vec![new.clone(), changed.clone()],
        remove: vec![out.provider_id.clone()],
    };
    let full = |backends: &[_]| Content::Full(BackendList { backends: backends.to_vec() });
    let whole = full(&[kept.clone(), changed, new.clone()]);
    let put = |id: &str, content: &Content| naming(&base, id, content).set;
    cx.put(&base).await?;
    let api = cx.service()?;
    let answer = api.put_backend_set(put("by-delta", &Content::Delta(delta))).await?;
    expect::equal("size is the number of backends: 3, minus 1, plus 1", &answer.size, &3)?;
    // This upload succeeds only if the content is the same. Otherwise the adapter would refuse the ID, because other content uses it.
    api.put_backend_set(put("by-delta", &whole)).await?;
    let other = api.put_backend_set(put("by-delta", &full(std::slice::from_ref(kept)))).await;
    expect::refused(other, Reason::FieldInvalid)?;
    api.put_backend_set(put("in-full", &whole)).await?;

    cx.converge(&naming(&base, "by-delta", &whole)).await?;
    expect::equal("the load balancer has the backends of the set", &backends(cx).await?, &vec![3])?;
    let same = cx.ensure(&naming(&base, "in-full", &whole)).await??;
    let nothing = same.state() == LoadBalancerState::Active && same.steps == 0;
    let wants = "the same backends under another ID cause no change";
    expect::shown(nothing, wants, &same)
}

/// common.proto, `REASON_BACKEND_SET_UNKNOWN`: the adapter asks for a set that it does not have, when an Ensure refers to the set or a
/// delta is based on it. Nothing changes until the caller puts the set; then the Ensure continues.
pub(super) async fn unknown_is_reported(cx: &Context) -> Verdict {
    let web = cx.web(2).await?;
    let api = cx.service()?;
    let refused = api.ensure_load_balancer(web.request.clone()).await;
    expect::refused(refused, Reason::BackendSetUnknown)?;
    cx.put(&web).await?;
    cx.converge(&web).await?;
    expect::equal("the load balancer has the backends of the set", &backends(cx).await?, &vec![2])?;

    let content = web.set.content.clone().unwrap_or(Content::Full(BackendList::default()));
    let more = naming(&web, "never-put", &content);
    let refused = api.ensure_load_balancer(more.request.clone()).await;
    expect::refused(refused, Reason::BackendSetUnknown)?;
    let delta = BackendDelta { base_id: "never-put".to_owned(), ..BackendDelta::default() };
    let put = PutBackendSetRequest { content: Some(Content::Delta(delta)), ..more.set.clone() };
    expect::refused(api.put_backend_set(put).await, Reason::BackendSetUnknown)?;
    expect::equal("an unknown set does not count as an empty one", &backends(cx).await?, &vec![2])?;
    cx.put(&more).await?;
    cx.converge(&more).await?;
    Ok(())
}

/// Returns a request for the same load balancer with another backend set.
fn naming(balancer: &Balancer, id: &str, content: &Content) -> Balancer {
    let mut named = balancer.clone().spec(|spec| spec.backend_set_id = id.to_owned());
    named.set.id = id.to_owned();
    named.set.content = Some(content.clone());
    named
}

async fn backends(cx: &Context) -> Result<Vec<u32>, Stop> {
    let items = cx.load_balancers(&cx.cluster()).await?.items;
    Ok(items.iter().map(|one| one.backends).collect())
}
