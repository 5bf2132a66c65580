//! Uploads each backend set to the adapter before a call refers to the set. All Services that select the same nodes share one upload. If
//! the adapter has an earlier set, the upload is a delta.

use std::{collections::BTreeMap, sync::Arc};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{PutBackendSetRequest, put_backend_set_request::Content},
};
use controller_core::{
    adapter::{Adapter, Call, concerns_all},
    selector::Selector,
};
use tokio::{sync::Mutex, time::Instant};

use crate::plan::targets::Targets;

/// Maximum number of sets that an adapter keeps. Source: contract, `PutBackendSet`.
const SETS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Backends {
    /// Locked during an upload. Several Services that need the same set thus cause only one upload.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The latest set for each selector.
    sets: BTreeMap<Option<Selector>, Arc<Targets>>,
    failed: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    id: String,
    at: Instant,
    error: AdapterError,
}

impl Failure {
    /// Whether the failed upload also answers a caller that has waited for the set `id` since `since`. That is so if the upload was for the
    /// same set, or if the cause of the failure affects all sets.
    fn is_about(&self, id: &str, since: Instant) -> bool {
        let no_answer = matches!(self.error.reason, Reason::OutcomeUnknown | Reason::VendorUnavailable);
        self.at >= since && (self.id == id || no_answer || concerns_all(self.error.reason))
    }
}

impl Backends {
    /// Uploads the set unless the adapter already has it. Cost: no vendor call.
    ///
    /// If an upload fails, callers that waited for the lock get the same error. Otherwise each caller in turn would run into a timeout
    /// while the adapter does not respond.
    pub(crate) async fn put(
        &self,
        adapter: &Adapter,
        call: Call,
        targets: &Arc<Targets>,
    ) -> Result<(), AdapterError> {
        let came = Instant::now();
        let mut known = self.known.lock().await;
        if known.sets.values().any(|put| put.id == targets.id) {
            return Ok(());
        }
        if let Some(failed) = known.failed.as_ref().filter(|it| it.is_about(&targets.id, came)) {
            return Err(failed.error.clone());
        }
        let put = upload(&known.sets, adapter, call, targets).await;
        match &put {
            Ok(()) => {
                // The adapter keeps only some of the sets. The controller cannot know which sets the adapter has dropped, so it uploads
                // each set again when a call needs that set.
                if known.sets.len() >= SETS_MAX {
                    known.sets.clear();
                }
                known.sets.insert(targets.selector.clone(), Arc::clone(targets));
            }
            Err(error) => {
                let (id, at, error) = (targets.id.clone(), Instant::now(), error.clone());
                known.failed = Some(Failure { id, at, error });
            }
        }
        put
    }

    /// Forgets a set that the adapter no longer has, because the adapter restarted or the set expired.
    pub(crate) async fn forget(&self, targets: &Targets) {
        self.known.lock().await.sets.retain(|_selector, put| put.id != targets.id);
    }
}

/// Uploads a set as a delta to the latest set of the same selector, if the adapter has that set. Otherwise uploads the whole set.
async fn upload(
    known: &BTreeMap<Option<Selector>, Arc<Targets>>,
    adapter: &Adapter,
    call: Call,
    targets: &Targets,
) -> Result<(), AdapterError> {
    let base = known.get(&targets.selector).or_else(|| known.get(&None));
    let delta = base.map(|base| Content::Delta(targets.since(base)));
    let put = |content| {
        let request = PutBackendSetRequest { id: targets.id.clone(), content: Some(content), context: None };
        adapter.put_backend_set(call, request)
    };
    let answer = match delta {
        None => put(Content::Full(targets.full())).await,
        Some(delta) => match put(delta).await {
            Err(error) if error.reason == Reason::BackendSetUnknown => {
                put(Content::Full(targets.full())).await
            }
            answer => answer,
        },
    };
    answer.map(|_size| ())
}
