//! The servers of a control plane that this process starts and stops.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e_tools::Tools;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::eventually::eventually;
use crate::kubeconfig::{self, Credential};
use crate::process::{Process, tail};

use super::servers::Launches;
use super::{Site, client};

/// Time limit for the start. A start takes 3 s. The limit is higher because the host may be busy.
const UP_WITHIN: Duration = Duration::from_secs(60);

/// The servers, which are killed when this value is dropped.
#[derive(Debug)]
pub(super) struct Own {
    // Fields in the order in which they are dropped: the client before its server.
    pub(super) apiserver: Process,
    pub(super) etcd: Process,
    launches: Launches,
    kubeconfig: PathBuf,
}

impl Own {
    /// Starts the servers in this directory and waits until they are ready.
    pub(super) async fn start(tools: &Tools, dir: &Path) -> anyhow::Result<Self> {
        let launches = Launches::prepare(tools, dir)?;
        let kubeconfig = dir.join("admin.kubeconfig");
        let credential = Credential::Certificate(&launches.pki.admin);
        kubeconfig::write(&kubeconfig, &launches.server(), "default", &credential)?;
        let (etcd, apiserver) = (launches.etcd.start()?, launches.apiserver.start()?);
        let mut this = Self { apiserver, etcd, launches, kubeconfig };
        this.wait_ready().await?;
        Ok(this)
    }

    pub(super) fn site(&self) -> Site {
        Site {
            server: self.launches.server(),
            kubeconfig: self.kubeconfig.clone(),
            audit_log: self.launches.audit_log.clone(),
        }
    }

    pub(super) fn etcd_url(&self) -> &str {
        &self.launches.etcd_url
    }

    pub(super) fn launch_apiserver(&mut self) -> anyhow::Result<u32> {
        ensure!(!self.apiserver.is_running(), "the API server already runs; stop it first");
        self.apiserver = self.launches.apiserver.start()?;
        Ok(self.apiserver.id())
    }

    /// Returns an error with the end of the log if a server has ended.
    pub(super) fn ensure_running(&mut self) -> anyhow::Result<()> {
        self.etcd.ensure_running()?;
        self.apiserver.ensure_running()
    }

    pub(super) async fn wait_ready(&mut self) -> anyhow::Result<()> {
        let admin = client(&self.kubeconfig).await?;
        // A server that has ended cannot become ready, so its log is reported at once and not at the deadline.
        let mut ended = None;
        let ready = eventually("the API server is ready", UP_WITHIN, || {
            ended = self.ensure_running().err();
            let gone = ended.is_some();
            let admin = admin.clone();
            async move { if gone { Ok(()) } else { look_ready(admin).await } }
        });
        ready.await.with_context(|| tail(&self.launches.apiserver.log()))?;
        ended.map_or(Ok(()), Err)
    }
}

/// Fails unless the API server reports that it is ready and the namespace `kube-system` exists. The API server creates this namespace only
/// after it is ready.
async fn look_ready(admin: Client) -> anyhow::Result<()> {
    let request = http::Request::get("/readyz").body(Vec::new())?;
    admin.request_text(request).await.context("/readyz")?;
    Api::<Namespace>::all(admin).get("kube-system").await.context("namespace kube-system does not exist")?;
    Ok(())
}
