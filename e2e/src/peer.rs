//! The peer: a cloud controller manager as a vendor would ship it, built from `k8s.io/cloud-provider` (`e2e/peer`). It runs on the same
//! control plane and the same cloud as the controllers. Benchmarks compare the controllers with the peer, and in tests the controllers take
//! over the peer's objects.

mod build;
mod rights;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use serde_json::json;

use crate::control_plane::ControlPlane;
use crate::eventually::eventually;
use crate::kubeconfig::{self, Credential, Server};
use crate::process::{Launch, Process, tail};
use crate::seconds;
use crate::simcloud::Simcloud;

/// The name of the log, the Lease and the ServiceAccount, the same as vendors use.
const NAME: &str = "cloud-controller-manager";
const NAMESPACE: &str = "kube-system";
/// Time limit for the start. The limit exceeds the 15 s until the Lease of a killed peer expires.
const LEADS_WITHIN: Duration = seconds(60);
/// Time limit for the end. The peer has no graceful shutdown.
const ENDS_WITHIN: Duration = seconds(10);

/// A controller of `k8s.io/cloud-provider`, by its name in `--controllers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerController {
    /// Initialises nodes and keeps their addresses up to date.
    Node,
    /// Deletes nodes whose instances are gone, and taints nodes whose instances are shut down.
    NodeLifecycle,
    /// Creates, updates and deletes load balancers.
    Service,
    /// Creates and deletes routes.
    Route,
}

impl PeerController {
    /// All controllers.
    pub const ALL: [Self; 4] = [Self::Node, Self::NodeLifecycle, Self::Service, Self::Route];

    const fn name(self) -> &'static str {
        match self {
            Self::Node => "cloud-node-controller",
            Self::NodeLifecycle => "cloud-node-lifecycle-controller",
            Self::Service => "service-lb-controller",
            Self::Route => "node-route-controller",
        }
    }
}

/// The flags of the peer. Unset flags have the defaults of `k8s.io/cloud-provider`.
#[derive(Clone, Debug)]
pub struct PeerFlags {
    /// The controllers to run.
    pub controllers: Vec<PeerController>,
    /// The number of nodes, and of Services, that are reconciled at once. `None` stands for one, the default of `k8s.io/cloud-provider`.
    pub concurrency: Option<u32>,
    /// The pod CIDR of the cluster.
    pub cluster_cidr: String,
    /// Other flags, such as `--route-reconciliation-period=1m`.
    pub more: Vec<String>,
}

impl Default for PeerFlags {
    fn default() -> Self {
        Self {
            controllers: PeerController::ALL.to_vec(),
            concurrency: None,
            cluster_cidr: "10.244.0.0/16".to_owned(),
            more: Vec::new(),
        }
    }
}

impl PeerFlags {
    /// Runs all controllers, with this concurrency.
    #[must_use]
    pub fn concurrent(workers: u32) -> Self {
        Self { concurrency: Some(workers), ..Self::default() }
    }

    fn args(&self) -> Vec<String> {
        let controllers: Vec<&str> = self.controllers.iter().map(|one| one.name()).collect();
        let mut args = vec![
            format!("--controllers={}", controllers.join(",")),
            format!("--cluster-cidr={}", self.cluster_cidr),
        ];
        if let Some(workers) = self.concurrency {
            args.push(format!("--concurrent-node-syncs={workers}"));
            args.push(format!("--concurrent-service-syncs={workers}"));
        }
        args.extend(self.more.iter().cloned());
        args
    }
}

/// The cluster on which the peer runs.
#[derive(Clone, Debug)]
pub struct PeerSite {
    /// The URL of the API server.
    pub api_server: String,
    /// The file with the certificate authority of the API server.
    pub authority: PathBuf,
    /// The folder for the peer's kubeconfig and other files.
    pub dir: PathBuf,
    /// The folder for the peer's log.
    pub log_dir: PathBuf,
    /// A loopback port for the peer's status pages.
    pub port: u16,
}

/// The peer, running or not. Dropping this value kills the peer.
#[derive(Debug)]
pub struct Peer {
    launch: Launch,
    leases: Api<Lease>,
    process: Option<Process>,
}

impl Peer {
    /// The user of the peer in the audit log.
    pub const USER: &str = "system:serviceaccount:kube-system:cloud-controller-manager";

    /// Builds the peer and creates an identity and a configuration for this cluster. Does not start the peer.
    pub async fn install(
        control_plane: &ControlPlane,
        cloud: &Simcloud,
        flags: &PeerFlags,
    ) -> anyhow::Result<Self> {
        let server = control_plane.server();
        let site = PeerSite {
            api_server: server.url,
            authority: server.ca,
            dir: control_plane.dir().to_path_buf(),
            log_dir: control_plane.log_dir(),
            port: test_support::ports::take()?,
        };
        Self::install_at(control_plane.client(), site, cloud, flags).await
    }

    /// Same as [`Self::install`], on any cluster. `client` must have administrator rights.
    pub async fn install_at(
        client: Client,
        site: PeerSite,
        cloud: &Simcloud,
        flags: &PeerFlags,
    ) -> anyhow::Result<Self> {
        let program = Self::build().await?;
        let token = rights::grant(&client, NAMESPACE, NAME).await?;
        let dir = site.dir.join(NAME);
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let kubeconfig = dir.join("kubeconfig");
        let server = Server { url: site.api_server, ca: site.authority };
        kubeconfig::write(&kubeconfig, &server, NAMESPACE, &Credential::Token(&token))?;
        let cloud_config = dir.join("cloud-config.json");
        fs::write(&cloud_config, json!({ "url": cloud.url() }).to_string())
            .with_context(|| format!("cannot write {}", cloud_config.display()))?;
        let mut args = vec![
            "--cloud-provider=sim".to_owned(),
            format!("--cloud-config={}", cloud_config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", site.port),
        ];
        args.extend(flags.args());
        let log_dir = site.log_dir;
        let launch = Launch { name: NAME.to_owned(), program, args, env: BTreeMap::new(), log_dir };
        Ok(Self { launch, leases: Api::namespaced(client, NAMESPACE), process: None })
    }

    /// Builds the program. Tests that later cannot access Go's module proxy call this first.
    pub async fn build() -> anyhow::Result<PathBuf> {
        build::built().await
    }

    /// Installs and starts the peer, and waits until it is the leader.
    pub async fn run(
        control_plane: &ControlPlane,
        cloud: &Simcloud,
        flags: &PeerFlags,
    ) -> anyhow::Result<Self> {
        let mut this = Self::install(control_plane, cloud, flags).await?;
        this.start().await?;
        Ok(this)
    }

    /// Starts the peer and waits until it has the Lease, after which its controllers start. After a previous peer has ended, this takes up
    /// to 15 s, because the old Lease must expire first.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        ensure!(self.process.as_mut().is_none_or(|it| !it.is_running()), "the peer already runs");
        let before = self.leader().await?;
        let process = self.process.insert(self.launch.start()?);
        let (leases, mut ended) = (&self.leases, None);
        let leads = eventually("the peer is the leader", LEADS_WITHIN, || {
            ended = process.ensure_running().err();
            let (gone, before) = (ended.is_some(), &before);
            async move {
                let now = if gone { None } else { leader(leases).await? };
                ensure!(gone || (now.is_some() && now != *before), "the Lease is held by {now:?}");
                Ok(())
            }
        });
        leads.await.with_context(|| tail(&self.launch.log()))?;
        ended.map_or(Ok(()), Err)
    }

    /// Sends SIGTERM, on which the peer ends at once.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the peer was not started")?;
        process.terminate(ENDS_WITHIN).await.map(drop)
    }

    /// Sends SIGKILL.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the peer was not started")?;
        process.kill().await.map(drop)
    }

    /// Returns an error with the end of the log if the peer does not run. Loops that wait for an effect of the peer call this.
    pub fn ensure_running(&mut self) -> anyhow::Result<()> {
        self.process.as_mut().context("the peer was not started")?.ensure_running()
    }

    /// The process ID, if the peer was started.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// The log file of all starts.
    pub fn log(&self) -> PathBuf {
        self.launch.log()
    }

    async fn leader(&self) -> anyhow::Result<Option<String>> {
        leader(&self.leases).await
    }
}

async fn leader(leases: &Api<Lease>) -> anyhow::Result<Option<String>> {
    let lease = leases.get_opt(NAME).await.context("cannot read the peer's Lease")?;
    Ok(lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty()))
}
