//! The story: the sequence of desired states (chapters) that the controllers reach, and the requests that lead to each state.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use cloud_api_proto::v1alpha1::{
    ApplyRoutesRequest, Backend, BackendList, DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, Fence,
    LoadBalancerSpec, LoadBalancerState, PutBackendSetRequest, Recreate,
    load_balancer_service_client::LoadBalancerServiceClient, load_balancer_spec::Scheme,
    put_backend_set_request::Content, route_result::Outcome, route_service_client::RouteServiceClient,
};
use futures::future::{join, join_all};
use tonic::{Status, transport::Channel};

use crate::support::{
    context,
    routes::{delete, routes, upsert},
    wanted::{backend, deletion, key, owner, spec, tcp, udp},
};

const AGAIN: Duration = Duration::from_millis(20);

/// The desired state at the end of a chapter.
pub(crate) struct Chapter {
    pub(crate) balancers: Vec<(&'static str, LoadBalancerSpec, Vec<Backend>)>,
    pub(crate) gone: Vec<&'static str>,
    /// The number of each node, and the number of its instance.
    pub(crate) routes: Vec<(u32, u32)>,
    pub(crate) removed: Vec<u32>,
}

/// Returns the desired states in order: objects are created, changed, replaced and deleted.
pub(crate) fn chapters() -> [Chapter; 3] {
    let internal = LoadBalancerSpec { scheme: Scheme::Internal.into(), ..spec([udp(53)]) };
    [
        Chapter {
            balancers: vec![
                ("web", spec([tcp(80), tcp(443)]), vec![backend(1), backend(2)]),
                ("dns", spec([udp(53)]), vec![backend(1)]),
            ],
            gone: vec![],
            routes: vec![(1, 1), (2, 2)],
            removed: vec![],
        },
        Chapter {
            balancers: vec![
                ("web", spec([tcp(443), tcp(8443)]), vec![backend(2), backend(3)]),
                ("dns", internal, vec![backend(1)]),
            ],
            gone: vec![],
            routes: vec![(1, 3), (3, 3)],
            removed: vec![2],
        },
        Chapter { balancers: vec![], gone: vec!["web", "dns"], routes: vec![], removed: vec![1, 3] },
    ]
}

/// The controllers. They keep their state when an adapter is replaced.
#[derive(Default)]
pub(crate) struct Controllers {
    sequence: AtomicU64,
}

impl Controllers {
    /// Repeats requests until all objects are in the desired state of the chapter. Errors during a restart are ignored.
    pub(crate) async fn converge(&self, chapter: &Chapter, channel: &Channel) {
        let balancers = chapter.balancers.iter().map(async |wanted| {
            persist(async || self.ensure(wanted, channel).await).await;
        });
        let gone = chapter.gone.iter().map(async |uid| {
            persist(async || self.delete(uid, channel).await).await;
        });
        let routes = persist(async || self.apply(chapter, channel).await);
        join(join(join_all(balancers), join_all(gone)), routes).await;
    }

    async fn ensure(
        &self,
        (uid, spec, backends): &(&'static str, LoadBalancerSpec, Vec<Backend>),
        channel: &Channel,
    ) -> Result<bool, Status> {
        let mut client = LoadBalancerServiceClient::new(channel.clone());
        let id = backends.iter().map(|backend| backend.node_name.clone()).collect::<Vec<_>>().join(",");
        let full = Some(Content::Full(BackendList { backends: backends.clone() }));
        let put = PutBackendSetRequest { context: Some(context()), id: id.clone(), content: full };
        client.put_backend_set(put).await?;
        let request = EnsureLoadBalancerRequest {
            context: Some(context()),
            key: Some(key(uid)),
            owner: Some(owner(uid)),
            fence: Some(self.fence("service-controller/0")),
            spec: Some(LoadBalancerSpec { backend_set_id: id, ..spec.clone() }),
            recreate: Recreate::IfImmutableChanged.into(),
            ..EnsureLoadBalancerRequest::default()
        };
        let answer = client.ensure_load_balancer(request).await?.into_inner();
        Ok(answer.state() == LoadBalancerState::Active)
    }

    async fn delete(&self, uid: &str, channel: &Channel) -> Result<bool, Status> {
        let fence = Some(self.fence("service-controller/0"));
        let request = DeleteLoadBalancerRequest { fence, ..deletion(uid) };
        let mut client = LoadBalancerServiceClient::new(channel.clone());
        let answer = client.delete_load_balancer(request).await?.into_inner();
        Ok(answer.state() == LoadBalancerState::Absent)
    }

    async fn apply(&self, chapter: &Chapter, channel: &Channel) -> Result<bool, Status> {
        let request = ApplyRoutesRequest {
            fence: Some(self.fence("route-controller/0")),
            upserts: chapter.routes.iter().map(|(node, machine)| upsert(*node, *machine)).collect(),
            deletes: chapter.removed.iter().map(|node| delete(*node)).collect(),
            ..routes()
        };
        let mut client = RouteServiceClient::new(channel.clone());
        let answer = client.apply_routes(request).await?.into_inner();
        let settled = |outcome| matches!(outcome, Outcome::Applied | Outcome::Unchanged);
        Ok(answer.results.iter().all(|result| settled(result.outcome())))
    }

    fn fence(&self, scope: &str) -> Fence {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        Fence { scope: scope.to_owned(), epoch: 1, sequence }
    }
}

async fn persist(attempt: impl AsyncFn() -> Result<bool, Status>) {
    while !attempt().await.unwrap_or(false) {
        tokio::time::sleep(AGAIN).await;
    }
}
