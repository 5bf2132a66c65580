//! Makes sure that the adapter knows a set of backends before it is named: uploaded once for all Services that select the same nodes,
//! as a difference where the adapter knows an earlier one.

use std::{collections::BTreeMap, sync::Arc};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{PutBackendSetRequest, put_backend_set_request::Content},
};
use controller_core::adapter::{Adapter, Call};
use tokio::sync::Mutex;

use crate::plan::{annotations::selector::Selector, targets::Targets};

/// Sets that an adapter keeps. Source: contract, `PutBackendSet`.
const SETS_MAX: usize = 64;

/// The sets that the adapter was given, the latest of each selection.
#[derive(Debug, Default)]
pub(crate) struct Backends {
    /// Held while a set is on its way, so that many Services that need it cause one upload.
    known: Mutex<BTreeMap<Option<Selector>, Arc<Targets>>>,
}

impl Backends {
    /// Puts the set unless it was put. Cost: no vendor call.
    pub(crate) async fn put(
        &self,
        adapter: &Adapter,
        call: Call,
        targets: &Arc<Targets>,
    ) -> Result<(), AdapterError> {
        let mut known = self.known.lock().await;
        if known.values().any(|put| put.id == targets.id) {
            return Ok(());
        }
        let base = known.get(&targets.selector).or_else(|| known.get(&None));
        let delta = base.map(|base| Content::Delta(targets.since(base)));
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
        answer.map(|_size| {
            // Which of too many it has kept is not known: whoever needs one puts it again.
            if known.len() >= SETS_MAX {
                known.clear();
            }
            known.insert(targets.selector.clone(), Arc::clone(targets));
        })
    }

    /// The adapter does not know this set any more: it restarted, or nobody named the set for a while.
    pub(crate) async fn forget(&self, targets: &Targets) {
        self.known.lock().await.retain(|_selector, put| put.id != targets.id);
    }
}
