//! Makes this process a candidate for the Leases of its controller, with an identity and a client of its own.
//!
//! The candidate's requests bypass the rate limit and the guard against writes outside of a term. A renewal must not wait for requests that
//! need the term.

use anyhow::Context as _;
use cloud_lease::{ShardElector, ShardHandle};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::Term;
use crate::{Clock, config::Election};

/// A candidate that sends no request until it runs.
#[derive(Debug)]
pub(crate) struct Candidate {
    elector: ShardElector,
    /// The terms that the candidate may get, one per shard.
    pub(crate) terms: Vec<Term>,
}

impl Candidate {
    pub(crate) fn new(
        controller: &str,
        election: &Election,
        client: Client,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let now = clock.now();
        // The identity differs between processes, even on the same host.
        let identity = format!("{}_{:x}-{:x}", host(), now.as_nanosecond(), std::process::id());
        let settings = election.settings(controller, identity);
        let (namespace, duration) = (settings.namespace.clone(), settings.timing.duration);
        let identity = settings.identity.clone();
        let elector = ShardElector::new(client, settings, election.shards, now);
        let (elector, handles) = elector.context("leader election")?;
        let term = |handle: ShardHandle| {
            let about = ObjectReference {
                api_version: Some("coordination.k8s.io/v1".to_owned()),
                kind: Some("Lease".to_owned()),
                namespace: Some(namespace.clone()),
                name: Some(handle.lease().to_owned()),
                ..ObjectReference::default()
            };
            Term::of_candidate(handle, about, identity.clone(), duration)
        };
        Ok(Self { elector, terms: handles.into_iter().map(term).collect() })
    }

    /// Takes part in the election until the process must stop. Then releases the Leases of shards without work in progress. Releases all
    /// other Leases at `release`.
    pub(crate) async fn run(self, leaving: CancellationToken, release: CancellationToken) {
        self.elector.run(leaving, release).await;
    }
}

/// Returns the host name of this process; in a pod, the pod's name.
pub(crate) fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    if host.is_empty() { "localhost".to_owned() } else { host.to_owned() }
}
