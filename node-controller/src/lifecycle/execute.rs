//! Writes the shutdown taint and deletes nodes. Before each write, this module reads the node from the API server.
//!
//! The cache lags, so these writes do not rely on it. A node that is ready again is neither tainted nor deleted. A node that was recreated
//! under the same name is a different node.

use std::{sync::Arc, time::Duration};

use controller_core::{
    adapter::Adapter,
    events::Recorder,
    kube_api::{self, Held, within},
    node::{SHUTDOWN, has_taint_with, is_ready, taints},
    start::Process,
};
use k8s_openapi::api::core::v1 as core;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, Preconditions},
};
use serde_json::json;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::{notices, plan::Change};
use crate::{
    events::about,
    execute::patch_params,
    mirror::NO_SCHEDULE,
    ownership::LabelRules,
    plan::{Claim, Node},
};

/// Maximum number of attempts. Another client may write the same node at the same moment.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The node is deleted, or is being deleted and has a finalizer of another controller.
    Deleted,
    /// The node was recreated or is ready again. The next check of all nodes decides what to do.
    Stale,
    /// The API server refused the deletion.
    Failed,
    /// The API server did not answer, or answered with a server error.
    Unknown,
}

impl Ended {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Stale => "stale",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// Classifies an error. A request that was held back was never sent. A request without an answer, or with a server error from the API
    /// server or a proxy, may have been executed.
    fn without_success(error: &kube_api::Error) -> Self {
        match (error, error.status()) {
            (kube_api::Error::Held(Held::NotLeading | Held::DryRun), _) => Self::Failed,
            (_, Some(status)) if status < 500 => Self::Failed,
            (_, Some(_) | None) => Self::Unknown,
        }
    }

    pub(super) fn may_have_gone(self) -> bool {
        matches!(self, Self::Deleted | Self::Unknown)
    }
}

#[derive(Clone)]
pub(super) struct Executor {
    api: Api<core::Node>,
    adapter: Adapter,
    rules: Arc<LabelRules>,
}

impl Executor {
    pub(super) fn new(process: &Process, rules: Arc<LabelRules>) -> Self {
        Self { api: Api::all(process.kube.clone()), adapter: process.adapter.clone(), rules }
    }

    /// Adds or removes the taint. Does nothing if the node was recreated, its readiness has changed, or the taint is already as planned.
    ///
    /// Cost: one read and one write. After a conflict, the read and the write are repeated, with at most five attempts in total.
    pub(super) async fn taint(&self, node: &Node, change: Change) -> Result<(), kube_api::Error> {
        let mut tries = 1;
        loop {
            match self.try_taint(node, change).await {
                Err(error) if error.is_stale() && tries < TRIES => {
                    debug!(%error, "Another client changed the node at the same time; retrying");
                }
                Err(error) if error.is_not_found() => return Ok(()),
                ended => return ended,
            }
            tries += 1;
            sleep(PAUSE).await;
        }
    }

    async fn try_taint(&self, node: &Node, change: Change) -> Result<(), kube_api::Error> {
        let live = within(self.api.get(&node.name)).await?;
        let wanted = change == Change::Add;
        let has = has_taint_with(&live, SHUTDOWN, NO_SCHEDULE);
        // Only ready nodes lose the taint, and only nodes that are not ready get it. If the readiness has changed, the next check of all
        // nodes decides.
        let is_let_be = self.belongs_to_another(&live) || wanted && self.is_excluded(&live);
        if !is_same(&live, node) || is_ready(&live) == wanted || has == wanted || is_let_be {
            return Ok(());
        }
        let ours = |taint: &core::Taint| taint.key == SHUTDOWN && taint.effect == NO_SCHEDULE;
        let mut wanted_taints: Vec<core::Taint> =
            taints(&live).iter().filter(|taint| !ours(taint)).cloned().collect();
        if wanted {
            let (key, effect) = (SHUTDOWN.to_owned(), NO_SCHEDULE.to_owned());
            wanted_taints.push(core::Taint { key, effect, ..core::Taint::default() });
        }
        // The patch replaces the whole list of taints. It tests the resource version, so that no taint of another client is lost.
        let patch = json!({
            "metadata": { "uid": node.uid, "resourceVersion": live.metadata.resource_version },
            "spec": { "taints": wanted_taints },
        });
        within(self.api.patch(&node.name, &patch_params(), &Patch::Merge(&patch))).await?;
        info!(node = node.name, ?change, "Changed the shutdown taint");
        Ok(())
    }

    /// Deletes the node if it is still the same node and still not ready, and emits the Event.
    ///
    /// Cost: one read and one write.
    pub(super) async fn delete(&self, node: &Node, recorder: &Recorder) -> Ended {
        // If the adapter works in another scope, the instance never existed there, so its absence proves nothing.
        if let Err(refusal) = self.adapter.may_change() {
            debug!(node = node.name, %refusal, "Refused to delete the node");
            return Ended::Failed;
        }
        let live = match within(self.api.get(&node.name)).await {
            Ok(live) => live,
            Err(error) if error.is_not_found() => return Ended::Stale,
            Err(error) => {
                warn!(node = node.name, %error, "Cannot read a node before its deletion; retrying");
                return Ended::Failed;
            }
        };
        let same_machine = live.spec.as_ref().and_then(|spec| spec.provider_id.clone()) == node.provider_id;
        if !is_same(&live, node)
            || is_ready(&live)
            || !same_machine
            || self.is_excluded(&live)
            || self.belongs_to_another(&live)
            || live.metadata.deletion_timestamp.is_some()
        {
            return Ended::Stale;
        }
        recorder.emit(&about(node), notices::deleting(node));
        let preconditions =
            Preconditions { uid: live.metadata.uid, resource_version: live.metadata.resource_version };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match within(self.api.delete(&node.name, &params)).await {
            Ok(_) => {
                info!(
                    node = node.name,
                    provider_id = node.provider_id,
                    "Deleted the node: its instance is gone"
                );
                Ended::Deleted
            }
            Err(error) if error.is_not_found() => Ended::Deleted,
            Err(error) if error.is_stale() => {
                debug!(node = node.name, %error, "The node has changed since its deletion was \
                                                  planned; checking again");
                Ended::Stale
            }
            Err(error) => {
                recorder.emit(&about(node), notices::deleting_failed(node, &error));
                Ended::without_success(&error)
            }
        }
    }
}

impl Executor {
    fn is_excluded(&self, live: &core::Node) -> bool {
        self.rules.excludes(live.labels())
    }

    fn belongs_to_another(&self, live: &core::Node) -> bool {
        matches!(self.rules.claim(live.labels()), Claim::Other { .. })
    }
}

fn is_same(live: &core::Node, node: &Node) -> bool {
    live.metadata.uid.as_deref() == Some(node.uid.as_str())
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn request_that_was_sent_and_not_refused_may_have_been_executed() {
        let refused = |code| kube_api::Error::Refused(Box::new(Status::failure("no", "No").with_code(code)));
        let cases = [
            (kube_api::Error::Held(Held::NotLeading), Ended::Failed),
            (refused(403), Ended::Failed),
            (refused(429), Ended::Failed),
            (refused(500), Ended::Unknown),
            (refused(504), Ended::Unknown),
            (kube_api::Error::Timeout, Ended::Unknown),
        ];
        for (error, ended) in cases {
            assert_eq!(Ended::without_success(&error), ended, "{error:?}");
        }
        assert!(!Ended::Failed.may_have_gone());
        assert!(Ended::Unknown.may_have_gone());
    }
}
