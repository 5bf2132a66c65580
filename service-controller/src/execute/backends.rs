//! Makes sure that the adapter knows a set of backends before it is named: uploaded once for all Services, as a difference
//! where the adapter knows the last one.

use std::sync::Arc;

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{PutBackendSetRequest, put_backend_set_request::Content},
};
use controller_core::adapter::{Adapter, Call};
use tokio::sync::Mutex;

use crate::plan::targets::Targets;

/// The set that the adapter was given last.
#[derive(Debug, Default)]
pub(crate) struct Backends {
    /// Held while a set is on its way, so that many Services that need it cause one upload.
    known: Mutex<Option<Arc<Targets>>>,
}

impl Backends {
    /// Puts the set unless it was put last. Cost: no vendor call.
    pub(crate) async fn put(
        &self,
        adapter: &Adapter,
        call: Call,
        targets: &Arc<Targets>,
    ) -> Result<(), AdapterError> {
        let mut known = self.known.lock().await;
        let base = match known.as_ref() {
            Some(last) if last.id == targets.id => return Ok(()),
            Some(last) => Some(Arc::clone(last)),
            None => None,
        };
        let delta = base.map(|base| Content::Delta(targets.since(&base)));
        let put = |content| {
            let request =
                PutBackendSetRequest { id: targets.id.clone(), content: Some(content), context: None };
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
        answer.map(|_size| *known = Some(Arc::clone(targets)))
    }

    /// The adapter does not know this set any more: it restarted, or nobody named the set for a while.
    pub(crate) async fn forget(&self, targets: &Targets) {
        let mut known = self.known.lock().await;
        known.take_if(|last| last.id == targets.id);
    }
}
