//! Step 3: executes a plan. The addresses are written first, then one patch initialises the node, then the Event is emitted.
//!
//! The controller writes only fields that it owns. Its patches test the node's UID, because a node that was recreated under the same name
//! is another node.

use std::{sync::Arc, time::Duration};

use controller_core::{
    Clock,
    events::Recorder,
    kube_api::{self, within},
    start::Process,
};
use k8s_openapi::api::core::v1 as core;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::timeout};
use tracing::{info, warn};

use crate::{
    NAMES,
    echo::Echo,
    error::Error,
    events,
    lookup::Lookup,
    metrics::Metrics,
    plan::{Action, Address, Initialisation, Node, Plan, Withheld},
};

/// Maximum wait for a permit to write addresses. The limit frees the worker for other nodes while every write hangs.
const ADDRESS_PERMIT_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Clone)]
pub(crate) struct Executor {
    api: Api<core::Node>,
    clock: Clock,
    recorder: Recorder,
    lookup: Lookup,
    metrics: Metrics,
    echo: Arc<Echo>,
    /// Limits how many nodes' addresses are written at once.
    address_permits: Arc<Semaphore>,
}

impl Executor {
    pub(crate) fn new(process: &Process, lookup: Lookup, metrics: Metrics, address_writers: usize) -> Self {
        let (api, clock, recorder) =
            (Api::all(process.kube.clone()), process.clock, process.recorder.clone());
        let address_turns = Arc::new(Semaphore::new(address_writers));
        Self { api, clock, recorder, lookup, metrics, echo: Arc::default(), address_permits: address_turns }
    }

    /// Whether the last write to the node is still missing in the cache.
    pub(crate) fn is_ahead_of(&self, node: &Node) -> bool {
        self.echo.is_awaited(node)
    }

    /// Executes the actions in order and stops at the first failure.
    pub(crate) async fn carry_out(&self, node: &Arc<Node>, plan: &Plan) -> Result<(), Error> {
        for action in &plan.actions {
            match action {
                Action::LookUp => self.lookup.ask(node),
                Action::SetAddresses(addresses) => self.set_addresses(node, addresses).await?,
                Action::SetLabels(labels) => {
                    let patch = json!({ "metadata": { "uid": node.uid, "labels": labels } });
                    self.patch(node, Patch::Merge(&patch))
                        .await
                        .map_err(|source| Error::Labels { source })?;
                    info!(node = node.name, %action, "Wrote node labels");
                }
                Action::Initialise(initialisation) => self.initialise(node, initialisation).await?,
            }
        }
        Ok(())
    }

    /// Replaces the whole list with a JSON merge patch. The schema merges addresses by type, so in a strategic merge patch a second address
    /// of a type replaces the first. Even with `$patch: replace`, the API server groups addresses by type. A list in another order would be
    /// rewritten in each reconcile.
    async fn set_addresses(&self, node: &Node, addresses: &[Address]) -> Result<(), Error> {
        let patch = json!({ "metadata": { "uid": node.uid }, "status": { "addresses": addresses } });
        let Ok(_permit) = timeout(ADDRESS_PERMIT_TIMEOUT, self.address_permits.acquire()).await else {
            return Err(Error::Addresses { source: kube_api::Error::Timeout });
        };
        let written = within(self.api.patch_status(&node.name, &patch_params(), &Patch::Merge(&patch))).await;
        written.map_err(|source| Error::Addresses { source })?;
        info!(node = node.name, n_addresses = addresses.len(), "Wrote node addresses");
        Ok(())
    }

    async fn initialise(&self, node: &Node, initialisation: &Initialisation) -> Result<(), Error> {
        let patch = serde_json::from_value(initialising_patch(node, initialisation));
        let patch = patch.map_err(|source| Error::Patch { source })?;
        let written = self.patch(node, Patch::Json::<()>(patch)).await;
        written.map_err(|source| Error::Initialise { source })?;
        self.echo.wrote(node);
        self.lookup.forget(node);
        self.metrics.initialised(node.created, self.clock.now());
        self.recorder.emit(&events::about(node), events::synced());
        // Logged after the write, so that retries do not repeat the log line.
        for Withheld { key, value, why } in &initialisation.withheld {
            warn!(node = node.name, key, value, %why, "Label from the cloud is not set on the node");
        }
        Ok(())
    }

    async fn patch<P>(&self, node: &Node, patch: Patch<P>) -> Result<(), kube_api::Error>
    where
        P: serde::Serialize + std::fmt::Debug + Sync,
    {
        within(self.api.patch(&node.name, &patch_params(), &patch)).await.map(drop)
    }
}

/// Returns the parameters with the field manager of all writes, as shown by `kubectl get node --show-managed-fields`.
pub(crate) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(NAMES.controller.to_owned()), ..PatchParams::default() }
}

/// Builds a JSON patch that tests the UID and the observed taints. The patch replaces the whole list of taints, so the test prevents the
/// loss of a taint that another client has added since.
fn initialising_patch(node: &Node, initialisation: &Initialisation) -> Value {
    let Initialisation { provider_id, labels, withheld: _, taints } = initialisation;
    let mut operations = vec![
        json!({ "op": "test", "path": "/metadata/uid", "value": node.uid }),
        json!({ "op": "test", "path": "/spec/taints", "value": node.taints }),
        json!({ "op": "replace", "path": "/spec/taints", "value": taints }),
    ];
    if let Some(id) = provider_id {
        operations.push(json!({ "op": "add", "path": "/spec/providerID", "value": id }));
    }
    if node.labels.is_empty() && !labels.is_empty() {
        operations.push(json!({ "op": "test", "path": "/metadata/labels", "value": null }));
        operations.push(json!({ "op": "add", "path": "/metadata/labels", "value": labels }));
    } else {
        let path = |key: &str| format!("/metadata/labels/{}", key.replace('~', "~0").replace('/', "~1"));
        let adds =
            labels.iter().map(|(key, value)| json!({ "op": "add", "path": path(key), "value": value }));
        operations.extend(adds);
    }
    Value::Array(operations)
}
