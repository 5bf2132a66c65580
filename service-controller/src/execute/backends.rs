//! Makes sure that the adapter knows a set of backends before it is named: uploaded once for all Services that select the same nodes,
//! as a difference where the adapter knows an earlier one.

use std::{collections::BTreeMap, sync::Arc};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{PutBackendSetRequest, put_backend_set_request::Content},
};
use controller_core::adapter::{Adapter, Call, concerns_all};
use tokio::{sync::Mutex, time::Instant};

use crate::plan::{annotations::selector::Selector, targets::Targets};

/// Sets that an adapter keeps. Source: contract, `PutBackendSet`.
const SETS_MAX: usize = 64;

/// The sets that the adapter was given.
#[derive(Debug, Default)]
pub(crate) struct Backends {
    /// Held while a set is on its way, so that many Services that need it cause one upload.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The latest of each selection.
    sets: BTreeMap<Option<Selector>, Arc<Targets>>,
    failed: Option<Failure>,
}

/// The last upload that failed.
#[derive(Debug)]
struct Failure {
    id: String,
    at: Instant,
    error: AdapterError,
}

impl Failure {
    /// Whether it says as much of the set of this ID, for which somebody has waited since then: nobody was there to take any, or it is
    /// the same set.
    fn is_about(&self, id: &str, since: Instant) -> bool {
        let nobody = matches!(self.error.reason, Reason::OutcomeUnknown | Reason::VendorUnavailable);
        self.at >= since && (self.id == id || nobody || concerns_all(self.error.reason))
    }
}

impl Backends {
    /// Puts the set unless it was put. Cost: no vendor call.
    ///
    /// Who waits while another one puts in vain has its answer: one after the other they would wait for a silent adapter for as long as
    /// there are of them.
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
                // Which of too many it has kept is not known: whoever needs one puts it again.
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

    /// The adapter does not know this set any more: it restarted, or nobody named the set for a while.
    pub(crate) async fn forget(&self, targets: &Targets) {
        self.known.lock().await.sets.retain(|_selector, put| put.id != targets.id);
    }
}

/// As a difference to the latest of the same selection, or of all nodes, if the adapter knows that.
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
