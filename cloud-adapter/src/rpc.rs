//! Common parts of the services: contexts, counting, messages of the watch protocol, streams.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Fence, Priority, RequestContext, Reset, Scope},
};
use futures::StreamExt as _;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Extensions, Status, metadata::MetadataMap};

use crate::{
    access_control::Access,
    auth::rules,
    clock::Clock,
    context::{self, Context},
    driver::{Item, VendorError},
    grants::Grants,
    leadership::{Replica, STANDBY},
    metrics::Metrics,
    self_check,
    snapshot::{Frame, WatchOptions, Watcher},
    vendor::Vendor,
};

pub(crate) type Stream<M> = Pin<Box<dyn futures::Stream<Item = Result<M, Status>> + Send>>;

/// Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Rpc {
    pub(crate) vendor: Arc<Vendor>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    pub(crate) access: Access,
    /// The name of this process, which is part of resume tokens.
    pub(crate) instance_id: Arc<str>,
    pub(crate) scope: Arc<watch::Sender<Option<Scope>>>,
    pub(crate) replica: Replica,
    /// The token that is cancelled when the process closes its connections.
    pub(crate) draining: CancellationToken,
    /// The reason why the cloud is unreachable. `None`: the cloud is reachable.
    pub(crate) health: watch::Receiver<Option<VendorError>>,
    /// The cluster of the last request. Empty: there was no request yet.
    pub(crate) cluster: Arc<Mutex<String>>,
    pub(crate) grants: Arc<Grants>,
}

impl Rpc {
    pub(crate) fn context(
        &self,
        context: Option<RequestContext>,
        metadata: &MetadataMap,
        extensions: &Extensions,
        default: Priority,
    ) -> Result<Context, AdapterError> {
        let context = context::read(context, metadata, extensions, &self.vendor, default)?;
        let served = self.access.cluster_id.as_deref();
        self.refusing(&context, rules::may_name(&context.caller, served, &context.cluster_id))?;
        // A standby may name any cluster in its requests, so the requests of standbys do not count as the last request.
        if context.session.purpose().request_id != STANDBY {
            self.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&context.cluster_id);
        }
        Ok(context)
    }

    /// Returns the served cluster, or else the cluster of the last request. Empty: there was no request yet.
    pub(crate) fn cluster(&self) -> String {
        match &self.access.cluster_id {
            Some(served) => served.to_string(),
            None => self.cluster.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Checks that the caller is permitted to make this change.
    ///
    /// Returns `CALLER_FORBIDDEN` if the caller may not make the change.
    pub(crate) fn may_change(
        &self,
        context: &Context,
        dry_run: bool,
        fence: Option<&Fence>,
    ) -> Result<(), AdapterError> {
        let scope = fence.map_or("", |fence| &fence.scope);
        self.refusing(context, rules::may_change(&context.caller, dry_run, scope))
    }

    fn refusing(&self, context: &Context, said: Result<(), AdapterError>) -> Result<(), AdapterError> {
        said.inspect_err(|error| self.access.refusals.note(Some(&context.caller), &context.path, error))
    }

    /// Checks the context of a request that needs the cloud.
    ///
    /// Returns an error if another replica leads or this replica is shutting down. Before the first successful self-check, returns the
    /// error of the last self-check.
    pub(crate) fn cloud_context(
        &self,
        context: Option<RequestContext>,
        metadata: &MetadataMap,
        extensions: &Extensions,
        default: Priority,
    ) -> Result<Context, AdapterError> {
        let context = self.context(context, metadata, extensions, default)?;
        self.replica.term()?;
        match &*self.health.borrow() {
            None => Ok(context),
            Some(error) if self_check::answers(Some(error)) => Err(AdapterError::from(error.clone())),
            Some(error) => {
                let text = format!("the adapter cannot reach the cloud: {error}");
                Err(AdapterError::new(Reason::Starting, text))
            }
        }
    }

    /// Returns the options of a watch. `context`, `stop_when_synced` and `resume_token` come from the request. `view` selects the items
    /// that the watch includes.
    pub(crate) fn watch_options(
        &self,
        context: &Context,
        stop_when_synced: bool,
        resume_token: String,
        view: &str,
    ) -> WatchOptions {
        let epoch = format!("{}/{view}", self.instance_id);
        let caller = context.caller.clone();
        WatchOptions { caller, stop_when_synced, resume_token, epoch, bound: context.bound }
    }

    pub(crate) fn scope(&self) -> Option<Scope> {
        self.scope.borrow().clone()
    }

    /// Returns the scope from which requests may be served. `None`: the scope is not known, or this replica leads but is still starting.
    pub(crate) fn served_scope(&self) -> Option<Scope> {
        let scope = self.scope();
        let starting = self.replica.leads() && !self_check::answers(self.health.borrow().as_ref());
        scope.filter(|_| !starting)
    }

    pub(crate) fn reset(&self) -> Reset {
        Reset { scope: self.scope() }
    }

    pub(crate) fn wall(&self, instant: Instant) -> prost_types::Timestamp {
        self.clock.at(instant).into()
    }
}

/// Converts a watcher to the stream of a service. The stream ends when this replica no longer leads.
///
/// Returns an error if this replica does not lead.
pub(crate) fn stream<T: Item, M: prost::Message + 'static, R: Send + 'static>(
    name: &'static str,
    rpc: &Rpc,
    watcher: Watcher<T, M>,
    message: impl Fn(Frame<M>) -> R + Send + 'static,
) -> Result<Stream<R>, AdapterError> {
    let term = rpc.replica.term()?;
    let over = term.clone();
    let frames = futures::stream::unfold((watcher, message), move |(mut watcher, message)| {
        next(name, async move {
            let frame = watcher.next().await;
            let result = frame.map(|frame| frame.map(&message).map_err(AdapterError::from));
            result.map(|result| (result.map_err(Status::from), (watcher, message)))
        })
    });
    // If a watch ends because this replica no longer leads, the stream ends with this reason, so that the client tries another replica.
    let farewell = futures::stream::iter([()])
        .filter_map(move |()| std::future::ready(over.check().err().map(|error| Err(Status::from(error)))));
    Ok(Box::pin(frames.take_until(Box::pin(term.ended())).chain(farewell)))
}

/// Changes the code of answers to requests above the size limit to RESOURCE_EXHAUSTED, as gRPC specifies. tonic uses OUT_OF_RANGE, which
/// this server does not return for any other reason. Source: gRPC, "Status codes and their use in gRPC".
pub(crate) fn too_large<B>(mut answer: http::Response<B>) -> http::Response<B> {
    let code = |code: Code| http::HeaderValue::from(code as i32);
    if let Some(said) =
        answer.headers_mut().get_mut("grpc-status").filter(|said| **said == code(Code::OutOfRange))
    {
        *said = code(Code::ResourceExhausted);
    }
    answer
}

/// Names the stream in traces.
fn next<F: Future>(name: &'static str, future: F) -> tracing::instrument::Instrumented<F> {
    tracing::Instrument::instrument(future, tracing::debug_span!("watch", name))
}

#[cfg(test)]
impl Rpc {
    pub(crate) fn testing(vendor: Arc<Vendor>, health: Option<VendorError>) -> Self {
        let metrics = Metrics::new();
        Self {
            vendor,
            clock: Clock::starting_at(std::time::SystemTime::UNIX_EPOCH),
            access: Access { cluster_id: None, refusals: crate::auth::Refusals::new(metrics.security()) },
            metrics,
            instance_id: "test".into(),
            scope: Arc::new(watch::Sender::new(None)),
            replica: Replica::standing_by(),
            draining: CancellationToken::new(),
            health: watch::Sender::new(health).subscribe(),
            cluster: Arc::default(),
            grants: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        driver::Fault,
        vendor::tests::{limits, vendor},
    };

    #[tokio::test]
    async fn leader_reports_scope_once_ready() {
        let error = |fault| Some(VendorError::new(fault, "as requested"));
        let (_fake, vendor) = vendor(&limits(1.0, 1));
        for (name, health, leads, reported) in [
            ("starting", error(Fault::Unavailable), true, false),
            ("serving", None, true, true),
            ("refusals are served", error(Fault::Auth), true, true),
            ("the leader that it follows reports this", error(Fault::Unavailable), false, true),
        ] {
            let rpc = Rpc::testing(Arc::clone(&vendor), health);
            rpc.scope.send_replace(Some(Scope::default()));
            if leads {
                rpc.replica.lead(1);
            }
            assert_eq!(rpc.served_scope().is_some(), reported, "{name}");
        }
    }
}
