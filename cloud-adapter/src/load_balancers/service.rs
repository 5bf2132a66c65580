//! `LoadBalancerService`: from gRPC to checked goals and tasks, and back.

use std::{sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        Adoption, Bookmark, DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
        EnsureLoadBalancerResponse, LoadBalancer, LoadBalancerCondition, LoadBalancerGone, LoadBalancerItems,
        LoadBalancerKey, LoadBalancerState, PlannedStep, Priority, PutBackendSetRequest,
        PutBackendSetResponse, Synced, WatchLoadBalancersRequest, WatchLoadBalancersResponse, cost::Source,
        load_balancer_service_server::LoadBalancerService, watch_load_balancers_response::Event,
    },
};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::{
    backend_sets::BackendSets,
    converge::{Converger, Handle, Progress, TRUSTED_AGES},
    decide::{End, Goal, Next, decide},
    validate,
};
use crate::{
    context::Context,
    driver::{DesiredLoadBalancer, Driver, LoadBalancerRecord, planned},
    rpc::{Rpc, Stream, stream},
    snapshot::{Frame, Snapshot, Watcher},
};

/// The longest that an RPC waits for its task, and what it leaves of its deadline. Source: contract, section 6.
const WAIT: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_millis(500);
/// When a caller looks again at work under way.
const AGAIN: Duration = Duration::from_secs(1);

/// The gRPC service.
#[derive(Debug)]
pub(crate) struct Service<D: Driver> {
    pub(crate) converger: Arc<Converger<D>>,
    pub(crate) sets: Arc<BackendSets>,
    pub(crate) rpc: Rpc,
}

#[tonic::async_trait]
impl<D: Driver> LoadBalancerService for Service<D> {
    type WatchLoadBalancersStream = Stream<WatchLoadBalancersResponse>;

    async fn watch_load_balancers(
        &self,
        request: Request<WatchLoadBalancersRequest>,
    ) -> Result<Response<Self::WatchLoadBalancersStream>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context =
            self.rpc.cloud_context(request.context, (&metadata, &extensions), Priority::Background)?;
        let view = format!("load-balancers/{}", context.cluster_id);
        let options = self.rpc.watch_options(request.stop_when_synced, request.resume_token, &view);
        let mine = move |record: &LoadBalancerRecord<D::Detail>| {
            let key = record.summary.key.as_ref()?;
            (key.cluster_id == context.cluster_id).then(|| record.summary.clone())
        };
        let snapshot = Arc::clone(&self.converger.snapshot);
        let watcher = Watcher::new(snapshot, options, mine, |item: &LoadBalancer| &item.vendor_id);
        let rpc = self.rpc.clone();
        Ok(Response::new(stream("WatchLoadBalancers", &self.rpc, watcher, move |frame| {
            message(frame, &rpc)
        })?))
    }

    async fn put_backend_set(
        &self,
        request: Request<PutBackendSetRequest>,
    ) -> Result<Response<PutBackendSetResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context =
            self.rpc.cloud_context(request.context, (&metadata, &extensions), Priority::Interactive)?;
        let put = self.sets.put(&context.cluster_id, &request.id, request.content);
        let size = put?;
        let cost = Some(context.session.meter().cost(Source::Memory, None));
        Ok(Response::new(PutBackendSetResponse { size: u32::try_from(size).unwrap_or(u32::MAX), cost }))
    }

    async fn ensure_load_balancer(
        &self,
        request: Request<EnsureLoadBalancerRequest>,
    ) -> Result<Response<EnsureLoadBalancerResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context = self.rpc.cloud_context(
            request.context.clone(),
            (&metadata, &extensions),
            Priority::Interactive,
        )?;
        let ensured = self.ensure(request, &context).await;
        Ok(Response::new(ensured?))
    }

    async fn delete_load_balancer(
        &self,
        request: Request<DeleteLoadBalancerRequest>,
    ) -> Result<Response<DeleteLoadBalancerResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let context = self.rpc.cloud_context(
            request.context.clone(),
            (&metadata, &extensions),
            Priority::Interactive,
        )?;
        let deleted = self.delete(request, &context).await;
        Ok(Response::new(deleted?))
    }
}

impl<D: Driver> Service<D> {
    async fn ensure(
        &self,
        request: EnsureLoadBalancerRequest,
        context: &Context,
    ) -> Result<EnsureLoadBalancerResponse, AdapterError> {
        self.rpc.may_change(context, request.dry_run, request.fence.as_ref())?;
        if !matches!(request.adoption(), Adoption::Unspecified | Adoption::Never) {
            let text = "adoption: this adapter takes over no load balancer that it did not make";
            return Err(AdapterError::new(Reason::UnsupportedFeature, text).with("field", "adoption"));
        }
        let cloud = self.converger.driver.describe();
        let spec = validate::spec(&request, &cloud)?;
        let recreate = request.recreate();
        let (key, owner) = validate::identity(&context.cluster_id, request.key, request.owner)?;
        let backends = self.sets.get(&context.cluster_id, &spec.backend_set_id)?;
        let hash = validate::hash(&spec);
        let desired = DesiredLoadBalancer {
            key: key.clone(),
            owner,
            cluster_name: context.cluster_name.clone(),
            spec,
            backends,
            hash,
        };
        let goal = Goal::Present(Box::new(desired), recreate);
        if request.dry_run {
            let plan = self.dry_run(&key, &goal, context).await?;
            let state = if plan.is_empty() { LoadBalancerState::Active } else { LoadBalancerState::Pending };
            let cost = Some(context.session.meter().cost(Source::Snapshot, None));
            return Ok(EnsureLoadBalancerResponse { state: state.into(), plan, cost, ..Default::default() });
        }
        let fence = self.converger.fences.admit(request.fence.as_ref(), &key.owner_uid)?;
        if let Some(record) = self.nothing_to_do(&key, &goal) {
            self.rpc.metrics.noop("EnsureLoadBalancer");
            context.session.meter().absorb(&self.converger.unpaid(&key));
            return Ok(present(&record, 0, context, Source::Memory));
        }
        let id = context.session.purpose().request_id.clone();
        let (number, handle) = self.converger.submit(&key, goal, fence, &id)?;
        let progress = wait(handle, number, context).await?;
        match progress {
            Progress::Working { done, total, waits_for } => Ok(EnsureLoadBalancerResponse {
                state: LoadBalancerState::Pending.into(),
                step: done,
                steps: total,
                conditions: vec![waiting(waits_for)],
                retry_after: prost_types::Duration::try_from(AGAIN).ok(),
                cost: Some(context.session.meter().cost(Source::Snapshot, None)),
                ..Default::default()
            }),
            Progress::Ended { done, result: Ok(End::Present(record)), .. } => {
                Ok(present(&record, done, context, Source::Snapshot))
            }
            Progress::Ended { result: Err(error), .. } => Err(error),
            Progress::Ended { result: Ok(End::Absent), .. } => Err(overtaken()),
        }
    }

    async fn delete(
        &self,
        request: DeleteLoadBalancerRequest,
        context: &Context,
    ) -> Result<DeleteLoadBalancerResponse, AdapterError> {
        self.rpc.may_change(context, request.dry_run, request.fence.as_ref())?;
        let (key, _) = validate::identity(&context.cluster_id, request.key, request.owner)?;
        if request.dry_run {
            let plan = self.dry_run(&key, &Goal::Absent, context).await?;
            let state = if plan.is_empty() { LoadBalancerState::Absent } else { LoadBalancerState::Deleting };
            let cost = Some(context.session.meter().cost(Source::Snapshot, None));
            return Ok(DeleteLoadBalancerResponse { state: state.into(), plan, cost, ..Default::default() });
        }
        let fence = self.converger.fences.admit(request.fence.as_ref(), &key.owner_uid)?;
        let id = context.session.purpose().request_id.clone();
        let (number, handle) = self.converger.submit(&key, Goal::Absent, fence, &id)?;
        let progress = wait(handle, number, context).await?;
        let cost = Some(context.session.meter().cost(Source::Snapshot, None));
        match progress {
            Progress::Working { waits_for, .. } => Ok(DeleteLoadBalancerResponse {
                state: LoadBalancerState::Deleting.into(),
                retry_after: prost_types::Duration::try_from(AGAIN).ok(),
                conditions: vec![waiting(waits_for)],
                cost,
                plan: Vec::new(),
            }),
            Progress::Ended { result: Ok(End::Absent), .. } => Ok(DeleteLoadBalancerResponse {
                state: LoadBalancerState::Absent.into(),
                cost,
                ..Default::default()
            }),
            Progress::Ended { result: Err(error), .. } => Err(error),
            Progress::Ended { result: Ok(End::Present(_)), .. } => Err(overtaken()),
        }
    }

    /// The record, if nothing runs for the key and a trusted listing shows it as desired. Cost: no vendor call.
    fn nothing_to_do(
        &self,
        key: &LoadBalancerKey,
        goal: &Goal,
    ) -> Option<Arc<LoadBalancerRecord<D::Detail>>> {
        let converger = &self.converger;
        if converger.running(key).is_some() {
            return None;
        }
        let age = converger.snapshot.target_age() * TRUSTED_AGES;
        let trusted = Snapshot::<LoadBalancerRecord<D::Detail>>::no_older_than(age);
        let view = converger.snapshot.view(Some(trusted))?;
        match decide(&*converger.driver, goal, &Converger::<D>::records(&view, key), false) {
            Ok(Next::End(End::Present(record))) if record.summary.state() == LoadBalancerState::Active => {
                Some(record)
            }
            Ok(_) | Err(_) => None,
        }
    }

    /// The writes that a goal would take. Cost: a listing, if the snapshot is older than its target age.
    async fn dry_run(
        &self,
        key: &LoadBalancerKey,
        goal: &Goal,
        context: &Context,
    ) -> Result<Vec<PlannedStep>, AdapterError> {
        let converger = &self.converger;
        let now = Instant::now();
        let bound = context.bound.or_else(|| now.checked_sub(converger.snapshot.target_age()));
        let view = converger.snapshot.at_least(bound, &*converger.driver, &context.session).await?;
        match decide(&*converger.driver, goal, &Converger::<D>::records(&view, key), true)? {
            Next::Write(steps) | Next::Remove(steps) => Ok(steps.iter().map(planned).collect()),
            Next::Wait(_) | Next::Look | Next::End(_) => Ok(Vec::new()),
        }
    }
}

/// Waits for the task as long as the contract allows, then tells how far it is.
async fn wait<T: Clone>(
    mut handle: Handle<T>,
    number: u64,
    context: &Context,
) -> Result<Progress<T>, AdapterError> {
    let until = (Instant::now() + WAIT).min(context.deadline.checked_sub(MARGIN).unwrap_or(context.deadline));
    let ended = |progress: &Progress<T>| matches!(progress, Progress::Ended { .. });
    // The time limit is the ordinary end of this wait: then the task goes on without us.
    let _in_time = tokio::time::timeout_at(until, handle.progress.wait_for(ended)).await.is_ok();
    let progress = handle.progress.borrow().clone();
    context.session.meter().absorb(handle.session.meter());
    match progress {
        Progress::Ended { order, .. } if order != number => Err(overtaken()),
        progress @ (Progress::Working { .. } | Progress::Ended { .. }) => Ok(progress),
    }
}

fn overtaken() -> AdapterError {
    AdapterError::new(Reason::OperationConflict, "a newer desired state of the same load balancer took over")
}

fn waiting(message: String) -> LoadBalancerCondition {
    LoadBalancerCondition { r#type: "WaitingFor".to_owned(), message }
}

fn present<D>(
    record: &LoadBalancerRecord<D>,
    done: u32,
    context: &Context,
    source: Source,
) -> EnsureLoadBalancerResponse {
    let summary = &record.summary;
    let conditions = match summary.state() {
        LoadBalancerState::Error => vec![LoadBalancerCondition {
            r#type: "Error".to_owned(),
            message: "the cloud gave up on this load balancer: delete the Service, or allow to recreate"
                .to_owned(),
        }],
        LoadBalancerState::Unspecified
        | LoadBalancerState::Pending
        | LoadBalancerState::Active
        | LoadBalancerState::Degraded
        | LoadBalancerState::Deleting
        | LoadBalancerState::Absent => Vec::new(),
    };
    EnsureLoadBalancerResponse {
        state: summary.state,
        step: done,
        steps: done,
        addresses: summary.addresses.clone(),
        applied_hash: summary.applied_hash.clone(),
        conditions,
        vendor_ids: summary.vendor_ids.clone(),
        retry_after: None,
        cost: Some(context.session.meter().cost(source, None)),
        plan: Vec::new(),
    }
}

fn message(frame: Frame<LoadBalancer>, rpc: &Rpc) -> WatchLoadBalancersResponse {
    let event = match frame {
        Frame::Reset => Event::Reset(rpc.reset()),
        Frame::Items(items) => Event::Items(LoadBalancerItems { items }),
        Frame::Synced { count, checksum, observed, token } => {
            Event::Synced(Synced { count, checksum, observed_at: Some(rpc.wall(observed)), token })
        }
        Frame::Upsert(item) => Event::Upsert(item),
        Frame::Gone(item) => Event::Gone(LoadBalancerGone { vendor_id: item.vendor_id, key: item.key }),
        Frame::Bookmark { observed, token } => {
            Event::Bookmark(Bookmark { observed_at: Some(rpc.wall(observed)), token })
        }
    };
    WatchLoadBalancersResponse { event: Some(event) }
}
