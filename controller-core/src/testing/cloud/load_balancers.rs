//! Implements the RPCs for load balancers. An ensure completes at once, or after the number of PENDING answers that the test has set.

use std::sync::Arc;

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        Backend, Cost, DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
        EnsureLoadBalancerResponse, LoadBalancer, LoadBalancerAddress, LoadBalancerGone, LoadBalancerItems,
        LoadBalancerKey, LoadBalancerSpec, LoadBalancerState, PlannedStep, Protocol, PutBackendSetRequest,
        PutBackendSetResponse, VendorIds, WatchLoadBalancersRequest, WatchLoadBalancersResponse,
        load_balancer_address::{IpMode, Value},
        load_balancer_service_server::LoadBalancerService,
        put_backend_set_request::Content,
        watch_load_balancers_response::Event,
    },
};
use tonic::{Request, Response, Status};

use super::{
    Messages, RpcResult, Service, Shared, State,
    watch::{StreamEvent, watch},
};

/// The retry delay while an ensure is pending.
const RETRY: prost_types::Duration = prost_types::Duration { seconds: 2, nanos: 0 };

#[tonic::async_trait]
impl LoadBalancerService for Service {
    type WatchLoadBalancersStream = Messages<WatchLoadBalancersResponse>;

    async fn watch_load_balancers(
        &self,
        _request: Request<WatchLoadBalancersRequest>,
    ) -> RpcResult<Self::WatchLoadBalancersStream> {
        drop(self.0.called("WatchLoadBalancers")?);
        Ok(Response::new(watch(&self.0, |state| state.load_balancers.clone(), message)))
    }

    async fn put_backend_set(
        &self,
        request: Request<PutBackendSetRequest>,
    ) -> RpcResult<PutBackendSetResponse> {
        self.0.takes_its_time("PutBackendSet").await;
        let mut state = self.0.called("PutBackendSet")?;
        let request = request.into_inner();
        let backends = backends(&state, &request)?;
        state.put_backend_sets.push(request.clone());
        let size = u32::try_from(backends.len()).unwrap_or(u32::MAX);
        state.backend_sets.insert(request.id, backends);
        Ok(Response::new(PutBackendSetResponse { size, cost: Some(Cost::default()) }))
    }

    async fn ensure_load_balancer(
        &self,
        request: Request<EnsureLoadBalancerRequest>,
    ) -> RpcResult<EnsureLoadBalancerResponse> {
        let request = request.into_inner();
        let _under_way = UnderWay::new(&self.0, "EnsureLoadBalancer", request.key.as_ref()).await;
        if request.dry_run {
            return Ok(Response::new(would_ensure(&mut *self.0.called("EnsureLoadBalancer")?, request)?));
        }
        let answer = ensure(&mut *self.0.called("EnsureLoadBalancer")?, request)?;
        self.0.changed.send_replace(());
        Ok(Response::new(answer))
    }

    async fn delete_load_balancer(
        &self,
        request: Request<DeleteLoadBalancerRequest>,
    ) -> RpcResult<DeleteLoadBalancerResponse> {
        let request = request.into_inner();
        let _under_way = UnderWay::new(&self.0, "DeleteLoadBalancer", request.key.as_ref()).await;
        if request.dry_run {
            return Ok(Response::new(would_delete(&mut *self.0.called("DeleteLoadBalancer")?, &request)));
        }
        let answer = delete(&mut *self.0.called("DeleteLoadBalancer")?, &request);
        self.0.changed.send_replace(());
        Ok(Response::new(answer))
    }
}

/// A call in progress that changes a load balancer. The call ends when it is answered or cancelled.
struct UnderWay {
    shared: Arc<Shared>,
    owner: String,
}

impl UnderWay {
    /// Counts the call as in progress, and waits for the time that the test has set.
    async fn new(shared: &Arc<Shared>, rpc: &'static str, key: Option<&LoadBalancerKey>) -> Self {
        let owner = key.map(|key| key.owner_uid.clone()).unwrap_or_default();
        let slow = {
            let mut state = shared.state();
            let (now, most) = state.under_way.entry(owner.clone()).or_default();
            *now += 1;
            *most = (*most).max(*now);
            state.slow.get(rpc).copied().unwrap_or_default()
        };
        let this = Self { shared: Arc::clone(shared), owner };
        tokio::time::sleep(slow).await;
        this
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some((now, _most)) = self.shared.state().under_way.get_mut(&self.owner) {
            *now -= 1;
        }
    }
}

fn backends(state: &State, request: &PutBackendSetRequest) -> Result<Vec<Backend>, Status> {
    let unknown = |id: &str| AdapterError::new(Reason::BackendSetUnknown, format!("no backend set {id:?}"));
    let backends = match &request.content {
        Some(Content::Full(full)) => full.backends.clone(),
        Some(Content::Delta(delta)) => {
            let base = state.backend_sets.get(&delta.base_id).ok_or_else(|| unknown(&delta.base_id))?;
            let replaced = |id: &String| delta.add.iter().any(|backend| backend.provider_id == *id);
            let stays = |backend: &&Backend| {
                !delta.remove.contains(&backend.provider_id) && !replaced(&backend.provider_id)
            };
            base.iter().filter(stays).chain(&delta.add).cloned().collect()
        }
        None => return Err(AdapterError::field("content", "is missing: set full or delta").into()),
    };
    match state.backend_sets.get(&request.id) {
        Some(other) if *other != backends => {
            Err(AdapterError::field("id", "was put before with other content: use a digest").into())
        }
        Some(_) | None => Ok(backends),
    }
}

fn ensure(
    state: &mut State,
    request: EnsureLoadBalancerRequest,
) -> Result<EnsureLoadBalancerResponse, Status> {
    state.ensures.push(request.clone());
    let spec = request.spec.unwrap_or_default();
    let key = request.key.unwrap_or_default();
    let Some(backends) = state.backend_sets.get(&spec.backend_set_id).map(Vec::len) else {
        return Err(AdapterError::new(Reason::BackendSetUnknown, "put it first").into());
    };
    let pending = state.pending > 0;
    state.pending = state.pending.saturating_sub(1);
    // The fake assumes that a load balancer to be shared exists.
    let shared = Some(&spec.load_balancer_id).filter(|id| !id.is_empty());
    let vendor_id = shared.cloned().unwrap_or_else(|| format!("lb-{}", key.owner_uid));
    let before =
        state.load_balancers.get(&vendor_id).map(|before| (before.state(), before.applied_hash.clone()));
    let steps = u32::from(pending || before != Some((LoadBalancerState::Active, hash(&spec))));
    let applied_hash = if pending { String::new() } else { hash(&spec) };
    let load_balancer = LoadBalancer {
        vendor_id: vendor_id.clone(),
        key: Some(key),
        owner: request.owner,
        state: if pending { LoadBalancerState::Pending } else { LoadBalancerState::Active }.into(),
        addresses: address(state, &vendor_id),
        applied_hash: applied_hash.clone(),
        vendor_ids: Some(VendorIds { ids: [("loadbalancer".to_owned(), vendor_id.clone())].into() }),
        listeners: listeners(&spec),
        backends: u32::try_from(backends).unwrap_or(u32::MAX),
        name: vendor_id.clone(),
        created_at: None,
        fence: request.fence,
    };
    let answer = EnsureLoadBalancerResponse {
        state: load_balancer.state,
        step: steps,
        steps,
        addresses: if pending { Vec::new() } else { load_balancer.addresses.clone() },
        applied_hash,
        conditions: if pending { state.conditions.clone() } else { Vec::new() },
        vendor_ids: load_balancer.vendor_ids.clone(),
        retry_after: pending.then(|| state.retry_after.unwrap_or(RETRY)),
        cost: Some(Cost::default()),
        plan: Vec::new(),
    };
    state.load_balancers.insert(vendor_id, load_balancer);
    Ok(answer)
}

/// Returns one step for the load balancer and one step for each listener. Returns no step if the load balancer already has the desired
/// state.
fn would_ensure(
    state: &mut State,
    request: EnsureLoadBalancerRequest,
) -> Result<EnsureLoadBalancerResponse, Status> {
    state.dry_runs.push("EnsureLoadBalancer");
    let (spec, key) = (request.spec.unwrap_or_default(), request.key.unwrap_or_default());
    if !state.backend_sets.contains_key(&spec.backend_set_id) {
        return Err(AdapterError::new(Reason::BackendSetUnknown, "put it first").into());
    }
    let there = state.load_balancers.get(&format!("lb-{}", key.owner_uid));
    if let Some(there) = there.filter(|it| it.applied_hash == hash(&spec)) {
        return Ok(EnsureLoadBalancerResponse {
            state: there.state,
            addresses: there.addresses.clone(),
            applied_hash: there.applied_hash.clone(),
            vendor_ids: there.vendor_ids.clone(),
            ..EnsureLoadBalancerResponse::default()
        });
    }
    let verb = if there.is_some() { "update" } else { "create" };
    let listeners = listeners(&spec);
    let listeners = listeners.iter().map(|it| step(&format!("create listener {it}"), "CreateListener"));
    let first = step(&format!("{verb} load balancer"), "WriteLoadBalancer");
    Ok(EnsureLoadBalancerResponse {
        state: LoadBalancerState::Pending.into(),
        plan: [first].into_iter().chain(listeners).collect(),
        ..EnsureLoadBalancerResponse::default()
    })
}

fn would_delete(state: &mut State, request: &DeleteLoadBalancerRequest) -> DeleteLoadBalancerResponse {
    state.dry_runs.push("DeleteLoadBalancer");
    let there = state.load_balancers.values().any(|it| it.key == request.key);
    let answer = if there { LoadBalancerState::Deleting } else { LoadBalancerState::Absent };
    let plan = there.then(|| step("delete load balancer", "DeleteLoadBalancer"));
    DeleteLoadBalancerResponse {
        state: answer.into(),
        plan: plan.into_iter().collect(),
        ..DeleteLoadBalancerResponse::default()
    }
}

fn step(description: &str, operation: &str) -> PlannedStep {
    let (description, operation) = (description.to_owned(), operation.to_owned());
    PlannedStep { description, operation, family: "loadbalancer".to_owned() }
}

fn delete(state: &mut State, request: &DeleteLoadBalancerRequest) -> DeleteLoadBalancerResponse {
    state.deletes.push(request.clone());
    let pending = state.pending > 0;
    state.pending = state.pending.saturating_sub(1);
    let ours = |key: &LoadBalancer, wanted: &Option<LoadBalancerKey>| key.key == *wanted;
    if !pending {
        state.load_balancers.retain(|_, load_balancer| !ours(load_balancer, &request.key));
    }
    DeleteLoadBalancerResponse {
        state: if pending { LoadBalancerState::Deleting } else { LoadBalancerState::Absent }.into(),
        retry_after: pending.then(|| state.retry_after.unwrap_or(RETRY)),
        conditions: if pending { state.conditions.clone() } else { Vec::new() },
        cost: Some(Cost::default()),
        ..DeleteLoadBalancerResponse::default()
    }
}

/// Returns a hash that distinguishes desired states. The format does not matter.
fn hash(spec: &LoadBalancerSpec) -> String {
    format!("v1:{:x}", crate::mirror::cloud::checksum(&[format!("{spec:?}")]))
}

/// Returns the address that the load balancer has, or the next free address.
fn address(state: &State, vendor_id: &str) -> Vec<LoadBalancerAddress> {
    if let Some(known) = state.load_balancers.get(vendor_id) {
        return known.addresses.clone();
    }
    let value = Some(Value::Ip(format!("203.0.113.{}", state.load_balancers.len() + 1)));
    vec![LoadBalancerAddress { value, ip_mode: IpMode::Vip.into(), ports: Vec::new() }]
}

fn listeners(spec: &LoadBalancerSpec) -> Vec<String> {
    let word = |protocol: Protocol| protocol.as_str_name().trim_start_matches("PROTOCOL_").to_lowercase();
    spec.listeners.iter().map(|listener| format!("{}/{}", word(listener.protocol()), listener.port)).collect()
}

fn message(change: StreamEvent<LoadBalancer>) -> WatchLoadBalancersResponse {
    let event = match change {
        StreamEvent::Reset(reset) => Event::Reset(reset),
        StreamEvent::Items(items) => Event::Items(LoadBalancerItems { items }),
        StreamEvent::Synced(synced) => Event::Synced(synced),
        StreamEvent::Upsert(load_balancer) => Event::Upsert(load_balancer),
        StreamEvent::Gone(vendor_id) => Event::Gone(LoadBalancerGone { vendor_id, key: None }),
        StreamEvent::Bookmark(bookmark) => Event::Bookmark(bookmark),
    };
    WatchLoadBalancersResponse { event: Some(event) }
}
