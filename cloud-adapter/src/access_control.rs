//! Sets up TLS and authentication from the flags, and keeps certificates and token keys current.

mod ca;
mod options;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Context as _;
use backon::{ExponentialBuilder, Retryable as _};

pub use self::options::{AuthenticationKind, SecurityOptions};
use self::{
    ca::CaSecret,
    options::{Callers, Served, Settings, TokenKeys},
};
use crate::{
    auth::{
        Address, ApiServer, ApiServerError, Authentication, Bearers, Gate, KeySource, Keys, Occasion,
        Refusals, Terms, Times, Tls,
    },
    clock::wall,
    metrics::Metrics,
    reload,
    wrong_usage::WrongUsage,
};

/// Delays between attempts to read from the API server at start. The API server may restart, or the permission may be created after the
/// pod. All attempts end within a minute, before the liveness probe restarts the container, so that the log has the error.
const DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(250))
    .with_max_delay(Duration::from_secs(5))
    .with_max_times(7);

/// The layers between the port and the services.
#[derive(Debug)]
pub(crate) struct AccessControl {
    pub(crate) gate: Gate,
    pub(crate) terms: Terms,
    pub(crate) access: Access,
    pub(crate) fresh: Fresh,
}

/// The authorisation checks that need the body of a request.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// The ID of the cluster whose calls are accepted. `None`: calls for any cluster are accepted.
    pub(crate) cluster_id: Option<Arc<str>>,
    pub(crate) refusals: Refusals,
}

/// The tasks that periodically read files and keys.
#[derive(Debug)]
pub(crate) struct Fresh {
    tls: Option<Tls>,
    ca: Option<CaSecret>,
    keys: Option<Arc<Keys>>,
}

impl AccessControl {
    /// Reads the files that the flags name, and the Secret and the cluster ID from the API server where the flags ask for them.
    ///
    /// Returns [`WrongUsage`] for invalid flags or files.
    pub(crate) async fn start(
        options: &SecurityOptions,
        address: &Address,
        metrics: &Metrics,
    ) -> anyhow::Result<Self> {
        let settings = options.check(address).map_err(|faults| WrongUsage(faults.join("; ")))?;
        let Settings { tls, callers, identities, served, kubeconfig } = settings;
        if matches!(callers, Callers::Anyone) && !address.is_local() {
            tracing::warn!(%address, "Callers are not authenticated: any client that reaches the \
                                      port may do everything");
        }
        let cluster_id = match served {
            Served::Any => None,
            Served::Given(id) => Some(id.into()),
            Served::OfApiServer => Some(cluster_id(&ApiServer::new(kubeconfig.clone())).await?.into()),
        };
        let ca = ca_secret(options, kubeconfig.clone());
        if let Some(ca) = &ca {
            prepare(ca).await?;
        }
        let tls = tls
            .map(|files| Tls::start(files, wall))
            .transpose()
            .map_err(|error| WrongUsage(format!("--tls-*, --client-ca: {error}")))?;
        let trust_domain = match &callers {
            Callers::Certificate { trust_domain } => Some(Arc::clone(trust_domain)),
            Callers::Anyone | Callers::Offline { .. } | Callers::Review { .. } => None,
        };
        let (authentication, keys) = authentication(callers, ApiServer::new(kubeconfig)).await?;
        let counted = metrics.security();
        let refusals = Refusals::new(counted.clone());
        let terms = Terms {
            tls: tls.as_ref().map(Tls::current),
            trust_domain,
            times: Times::default(),
            metrics: counted,
        };
        Ok(Self {
            gate: Gate::new(authentication, identities, refusals.clone()),
            terms,
            access: Access { cluster_id, refusals },
            fresh: Fresh { tls, ca, keys },
        })
    }
}

async fn cluster_id(api: &ApiServer) -> anyhow::Result<String> {
    let report = |error: &ApiServerError, retry_in: Duration| {
        tracing::warn!(%error, ?retry_in, "Cannot read the UID of the namespace kube-system");
    };
    (async || api.cluster_id().await).retry(DELAYS).notify(report).await.context(
        "cannot read the UID of the namespace kube-system: allow the ServiceAccount to get this namespace, or set clusterId of the chart (--cluster-id)",
    )
}

fn ca_secret(options: &SecurityOptions, kubeconfig: Option<PathBuf>) -> Option<CaSecret> {
    let secret = options.tls_ca_secret.clone()?;
    let (certificate, key) = (options.tls_ca_cert.clone()?, options.tls_ca_key.clone()?);
    Some(CaSecret::new(ApiServer::new(kubeconfig), secret, certificate, key))
}

async fn prepare(ca: &CaSecret) -> anyhow::Result<()> {
    let report = |error: &anyhow::Error, retry_in: Duration| {
        tracing::warn!(
            error = format!("{error:#}"),
            ?retry_in,
            "Cannot prepare the CA of the adapter's certificates"
        );
    };
    (async || ca.prepare(wall()).await.map(drop))
        .retry(DELAYS)
        .notify(report)
        .await
        .context("--tls-ca-secret")
}

async fn authentication(
    callers: Callers,
    api: ApiServer,
) -> anyhow::Result<(Authentication, Option<Arc<Keys>>)> {
    Ok(match callers {
        Callers::Anyone => (Authentication::None, None),
        Callers::Certificate { .. } => (Authentication::Certificate, None),
        Callers::Review { audience } => {
            (Authentication::Bearer(Box::new(Bearers::review(audience, api))), None)
        }
        Callers::Offline { audience, keys } => {
            let keys = Arc::new(match keys {
                // The API server may be unreachable now; callers get a retryable error until it is reachable.
                TokenKeys::Discovered { issuer } => Keys::new(KeySource::ApiServer { api, issuer }),
                TokenKeys::Mounted { path, issuer } => {
                    let keys = Keys::new(KeySource::File { path, issuer });
                    keys.fetch().await.map_err(|why| WrongUsage(format!("--token-jwks {why}")))?;
                    keys
                }
            });
            (Authentication::Bearer(Box::new(Bearers::offline(audience, Arc::clone(&keys)))), Some(keys))
        }
    })
}

impl Fresh {
    /// Reads files and keys periodically; never ends.
    pub(crate) async fn keep(self, metrics: Metrics) {
        let Self { tls, ca, keys } = self;
        let refused = AtomicBool::new(false);
        let report = |occasion, result: Result<(), String>| {
            count(&metrics, &refused, occasion, result.is_ok());
            match result {
                Ok(()) => tracing::info!("Using the new certificate for new connections"),
                Err(why) => {
                    tracing::error!(why, "Cannot reload a certificate; continuing with the old one");
                }
            }
        };
        let certificates = async {
            match tls {
                Some(tls) => tls.run(reload::EVERY, report).await,
                None => std::future::pending().await,
            }
        };
        let keys = async {
            match keys {
                Some(keys) => keys.keep_fresh().await,
                None => std::future::pending().await,
            }
        };
        let authority = async {
            match ca {
                Some(ca) => ca.keep().await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(certificates, authority, keys);
    }
}

/// After new files were refused, a renewal of the old certificate does not clear the gauge, because the files on disk are still invalid.
fn count(metrics: &Metrics, refused: &AtomicBool, occasion: Occasion, taken: bool) {
    if occasion == Occasion::Changed {
        refused.store(!taken, Relaxed);
    }
    metrics.config_reload("certificate", taken);
    metrics.config_refused("certificate", !taken || refused.load(Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_files_stay_refused_after_renewal_of_old_ones() {
        let (metrics, refused) = (Metrics::new(), AtomicBool::new(false));
        for (occasion, taken, shown) in [
            (Occasion::Due, true, 0),
            (Occasion::Due, false, 1),
            (Occasion::Due, true, 0),
            (Occasion::Changed, false, 1),
            (Occasion::Due, true, 1),
            (Occasion::Changed, true, 0),
        ] {
            count(&metrics, &refused, occasion, taken);
            let line = format!("cloud_adapter_config_refused{{kind=\"certificate\"}} {shown}\n");
            let page = metrics.render().expect("a page");
            assert!(page.contains(&line), "{occasion:?}, taken {taken}: {page}");
        }
    }
}
