//! Implements the RPCs for instances.

use std::collections::BTreeMap;

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        BatchGetInstancesRequest, BatchGetInstancesResponse, Cost, Evidence, Existence, Instance,
        InstanceGone, InstanceItems, InstanceRef, InstanceResult, InstanceState, WatchInstancesRequest,
        WatchInstancesResponse, evidence, instance_ref::Ref, instance_service_server::InstanceService,
        watch_instances_response::Event,
    },
};
use tonic::{Request, Response};

use super::{
    Messages, RpcResult, Service, State,
    watch::{StreamEvent, watch},
};

#[tonic::async_trait]
impl InstanceService for Service {
    type WatchInstancesStream = Messages<WatchInstancesResponse>;

    async fn watch_instances(
        &self,
        _request: Request<WatchInstancesRequest>,
    ) -> RpcResult<Self::WatchInstancesStream> {
        drop(self.0.called("WatchInstances")?);
        Ok(Response::new(watch(&self.0, listed, message)))
    }

    async fn batch_get_instances(
        &self,
        request: Request<BatchGetInstancesRequest>,
    ) -> RpcResult<BatchGetInstancesResponse> {
        let slow = self.0.called("BatchGetInstances")?.slow.get("BatchGetInstances").copied();
        tokio::time::sleep(slow.unwrap_or_default()).await;
        let mut state = self.0.state();
        let request = request.into_inner();
        let now = self.0.now();
        let sees = !state.wants_witnesses || request.refs.iter().any(|reference| is_there(&state, reference));
        let results = request.refs.iter().map(|reference| match result(&state, reference, now) {
            result if result.existence() == Existence::Gone && !sees => plain(Existence::NotVisible),
            result => result,
        });
        let results = results.collect();
        state.batch_gets.push(request);
        let cost = Some(Cost { vendor_calls: 1, ..Cost::default() });
        Ok(Response::new(BatchGetInstancesResponse { results, scope: None, cost }))
    }
}

fn listed(state: &State) -> BTreeMap<String, Instance> {
    let instances = state.listing.as_ref().map_or(&state.instances, |(_, instances)| instances);
    let listed = instances.iter().filter(|(id, _)| !state.unlisted.contains(id));
    listed.map(|(id, instance)| (id.clone(), instance.clone())).collect()
}

fn is_there(state: &State, reference: &InstanceRef) -> bool {
    matches!(&reference.r#ref, Some(Ref::ProviderId(id)) if state.instances.contains_key(id))
}

/// Provider IDs with a scheme other than `sim` belong to other clouds.
fn result(state: &State, reference: &InstanceRef, now: prost_types::Timestamp) -> InstanceResult {
    match &reference.r#ref {
        Some(Ref::ProviderId(id)) => match state.instances.get(id) {
            _ if state.failing.contains(id) => {
                let error = AdapterError::new(Reason::VendorUnavailable, "ordered by the test");
                InstanceResult { error: Some(error.to_item()), ..plain(Existence::Unknown) }
            }
            Some(instance) => found(instance),
            None if state.gone.contains(id) => gone(now),
            None if id.starts_with("sim://") => plain(Existence::NotVisible),
            None => plain(Existence::Foreign),
        },
        Some(Ref::NodeName(name)) => by_name(state, name),
        None => plain(Existence::NotVisible),
    }
}

/// Finds an instance by name. Terminated instances do not occupy a name.
fn by_name(state: &State, name: &str) -> InstanceResult {
    let ends = |state| matches!(state, InstanceState::Terminating | InstanceState::Terminated);
    let mut named = state.instances.values().filter(|it| it.name == name && !ends(it.state()));
    match (named.next(), named.next()) {
        (None, _) => plain(Existence::NotVisible),
        (Some(only), None) => found(only),
        (Some(_), Some(_)) => {
            let error = AdapterError::field("refs.node_name", format!("{name:?} names several instances"));
            InstanceResult { error: Some(error.to_item()), ..plain(Existence::Unknown) }
        }
    }
}

fn found(instance: &Instance) -> InstanceResult {
    InstanceResult { instance: Some(instance.clone()), ..plain(Existence::Exists) }
}

/// Returns the evidence that a direct look-up at this moment did not find the instance.
fn gone(now: prost_types::Timestamp) -> InstanceResult {
    let method = evidence::Method::DirectGetNotFound.into();
    let evidence = Evidence { method, observed_at: Some(now), witnesses: 1, scope: None };
    InstanceResult { evidence: Some(evidence), ..plain(Existence::Gone) }
}

fn plain(existence: Existence) -> InstanceResult {
    InstanceResult { existence: existence.into(), ..InstanceResult::default() }
}

fn message(change: StreamEvent<Instance>) -> WatchInstancesResponse {
    let event = match change {
        StreamEvent::Reset(reset) => Event::Reset(reset),
        StreamEvent::Items(items) => Event::Items(InstanceItems { items }),
        StreamEvent::Synced(synced) => Event::Synced(synced),
        StreamEvent::Upsert(instance) => Event::Upsert(instance),
        StreamEvent::Gone(provider_id) => Event::Gone(InstanceGone { provider_id, evidence: None }),
        StreamEvent::Bookmark(bookmark) => Event::Bookmark(bookmark),
    };
    WatchInstancesResponse { event: Some(event) }
}
