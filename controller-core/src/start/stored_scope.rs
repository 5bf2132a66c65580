//! Stores the scope (the part of the cloud in which this controller works) as an annotation of the Lease of the first shard. Emits an Event
//! when the adapter works in another scope in which the controller must not continue by itself.

use std::{convert::Infallible, fmt, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};
use serde_json::json;
use tokio::time::sleep;
use tracing::{info, warn};

use super::evidence::Evidence;

use crate::{
    adapter::{
        ScopeGuard,
        scope::{Mark, RUN},
    },
    events::{Kind, Notice, Recorder},
    kube_api::{self, within},
    leadership::Shards,
};

/// The annotation of the Lease that stores the fingerprint and the description of the scope. The operator accepts the current scope by
/// removing the annotation.
const ANNOTATION: &str = "cloudadapter.dev/scope";
/// The interval between checks whether the annotation was removed. Failed requests to the API server are also retried at this interval.
const CHECK_AGAIN_AFTER: Duration = Duration::from_secs(10);

pub(super) struct StoredScope {
    pub(super) guard: ScopeGuard,
    pub(super) shards: Shards,
    pub(super) kube: Client,
    pub(super) recorder: Recorder,
    pub(super) evidence: Evidence,
}

impl StoredScope {
    /// Blocks changes in the cloud until the adapter's scope was compared with the scope in the Lease's annotation. Without a Lease, the
    /// scope is kept in memory only.
    pub(super) fn new(
        shards: &Shards,
        kube: &Client,
        recorder: &Recorder,
        guard: &ScopeGuard,
        evidence: Evidence,
    ) -> Self {
        if let Some(lease) = shards.lease() {
            guard.is_kept();
            let (namespace, name) = (lease.namespace.unwrap_or_default(), lease.name.unwrap_or_default());
            guard.remedy(format!("{RUN}kubectl -n {namespace} annotate lease {name} {ANNOTATION}-"));
        } else {
            guard.remedy("restart this controller".to_owned());
        }
        let (guard, shards, kube, recorder) = (guard.clone(), shards.clone(), kube.clone(), recorder.clone());
        Self { guard, shards, kube, recorder, evidence }
    }

    /// Compares the scopes when this process acquires a Lease, and whenever the adapter reports another scope. Does nothing while this
    /// process holds no Lease.
    pub(super) async fn run(self) -> Infallible {
        let (mut reported, mut acquisitions) = (None, self.shards.acquisitions());
        loop {
            let changes = self.guard.changes();
            let failed = self.compare().await.inspect_err(|error| {
                warn!(%error, "Cannot compare the scope of the adapter's credentials with the scope stored on \
                               the Lease; retrying");
            });
            // When in doubt, another scope is a move.
            if let Some(other) = self.guard.other() {
                self.guard.is_move(other);
            }
            let moved = self.guard.event();
            if let Some(note) = moved.as_ref().filter(|note| reported.as_ref() != Some(*note)) {
                self.recorder.emit(&self.shards.regarding(), notice(note.clone()));
            } else if reported.is_some() && moved.is_none() {
                info!("The scope of the adapter's credentials is again the one stored on the Lease");
            }
            let waits = failed.is_err() || moved.is_some();
            reported = moved;
            tokio::select! {
                () = changes => (),
                _gains = acquisitions.next() => (),
                () = sleep(CHECK_AGAIN_AFTER), if waits => (),
            }
        }
    }

    async fn compare(&self) -> Result<(), kube_api::Error> {
        let Some(lease) = self.shards.lease() else { return Ok(()) };
        let (namespace, name) = (lease.namespace.unwrap_or_default(), lease.name.unwrap_or_default());
        let leases: Api<Lease> = Api::namespaced(self.kube.clone(), &namespace);
        let annotations = within(leases.get(&name)).await?.metadata.annotations;
        let kept = annotations.and_then(|mut all| all.remove(ANNOTATION));
        let former = kept.clone();
        let store = async |mark: Mark| {
            let patch = json!({ "metadata": { "annotations": { ANNOTATION: mark.0 } } });
            within(leases.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))).await?;
            info!(scope = mark.0, former, "Stored the scope of the adapter's credentials on the Lease");
            self.guard.read(Some(mark.0));
            Ok(())
        };
        if let Some(mark) = self.guard.read(kept) {
            return store(mark).await;
        }
        match self.guard.other() {
            Some(mark) if !self.evidence.exists(&self.kube).await? => {
                info!(
                    scope = mark.0,
                    "The adapter works in another scope now. Nothing was made in the former scope, so this \
                     controller continues in the new one"
                );
                store(mark).await
            }
            Some(_) | None => Ok(()),
        }
    }
}

pub(super) fn notice(note: String) -> Notice {
    Notice { kind: Kind::Warning, reason: "CloudMoved", action: "Compare", note }
}

/// The metric `scope_moved`, which is computed at each scrape.
#[derive(Debug)]
pub(super) struct Moved(pub(super) ScopeGuard);

impl Collector for Moved {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauge = ConstGauge::new(i64::from(self.0.readiness().is_err()));
        let help = "Whether the adapter works in another part of the cloud than this controller did: 1 or 0";
        let kind = gauge.metric_type();
        gauge.encode(encoder.encode_descriptor("scope_moved", help, None, kind)?)
    }
}
