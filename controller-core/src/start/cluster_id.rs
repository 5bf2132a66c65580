//! Reads the identity of the cluster from the API server. This is done if the flag `--cluster-id` is not set.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use backon::{ExponentialBuilder, Retryable as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::time::timeout;
use tracing::warn;

use crate::health::Health;

/// The namespace whose UID identifies the cluster. This namespace exists in each cluster and is never deleted.
const NAMESPACE: &str = "kube-system";
/// Time limit of an attempt.
const LIMIT: Duration = Duration::from_secs(5);
/// The delays between attempts. Retries help because the API server may restart, or the permission may be created after the pod. All
/// attempts end within a minute. The process then ends with the error.
const DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(250))
    .with_max_delay(Duration::from_secs(5))
    .with_max_times(7);

/// The last error of the attempts. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<Mutex<Option<String>>>);

impl Progress {
    pub(super) fn failed(&self, error: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_owned());
    }

    /// Returns the checks of a process that reads the cluster ID: it is alive and not ready.
    pub(super) fn health(&self) -> Health {
        let (health, this) = (Health::default(), self.clone());
        health.ready_if("clusterID", move || {
            let error = this.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let error = error.unwrap_or_else(|| "the API server has not answered yet".to_owned());
            Err(format!("waits for the cluster ID: {error}"))
        });
        health
    }
}

pub(super) async fn read(client: Client, progress: &Progress) -> anyhow::Result<String> {
    let namespaces: Api<Namespace> = Api::all(client);
    let attempt = async || {
        let namespace = timeout(LIMIT, namespaces.get_metadata(NAMESPACE)).await;
        let namespace = namespace.context("the API server did not answer in time")??;
        namespace.metadata.uid.context("the API server returned the namespace without a UID")
    };
    let report = |error: &anyhow::Error, delay: Duration| {
        progress.failed(&format!("{error:#}"));
        warn!(error = format!("{error:#}"), retry_in = ?delay, "Cannot read the UID of the namespace kube-system");
    };
    attempt.retry(DELAYS).notify(report).await.context(
        "cannot read the UID of the namespace kube-system: allow the ServiceAccount to get this namespace, or set clusterId of the chart (--cluster-id)",
    )
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;

    use super::*;
    use crate::testing::{FakeKube, Fault};

    fn namespace(uid: &str) -> Namespace {
        let metadata = ObjectMeta {
            name: Some(NAMESPACE.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        Namespace { metadata, ..Namespace::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_id_is_the_uid_of_kube_system_once_it_can_be_read() {
        let kube = FakeKube::new();
        let later = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            kube.put::<Namespace>(namespace("u-1"));
        };
        let progress = Progress::default();
        let (read, ()) = tokio::join!(read(kube.client(), &progress), later);
        assert_eq!(read.expect("an ID"), "u-1");
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_api_server_ends_the_start_within_a_minute() {
        let kube = FakeKube::new();
        (0..20).for_each(|_| kube.order(Fault::hang()));
        let start = tokio::time::Instant::now();
        let error = read(kube.client(), &Progress::default()).await.expect_err("no answer");
        assert!(format!("{error:#}").contains("did not answer in time"), "{error:#}");
        assert!(start.elapsed() < Duration::from_mins(1), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn missing_permission_is_an_error_with_the_fix() {
        let progress = Progress::default();
        let error = read(FakeKube::new().client(), &progress).await.expect_err("there is no namespace");
        let text = format!("{error:#}");
        assert!(text.contains("--cluster-id") && text.contains("get this namespace"), "{text}");
        let unready = progress.health().readiness().expect_err("no ID");
        assert!(
            unready.starts_with("clusterID: waits for the cluster ID: ") && unready.contains("404"),
            "{unready}"
        );
    }
}
