//! One Kubernetes control plane: etcd and kube-apiserver on loopback, with RBAC and an audit log. No controllers and no
//! kubelets: what those would do, a test does itself.

mod servers;
mod work_dir;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e_tools::Tools;
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::process::Command;
use tokio::time::timeout;

use crate::audit::{AuditLog, AuditWrite};
use crate::eventually::eventually;
use crate::kubeconfig::{self, Credential, Server};
use crate::process::Process;

use servers::Servers;
use work_dir::WorkDir;

/// Measured: 3 s. The rest is for a machine under load.
const UP_WITHIN: Duration = Duration::from_secs(60);
/// Names the API server in logs and reports.
pub(crate) const APISERVER: &str = "kube-apiserver";
/// For helm and kubectl, each call.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);

/// A running control plane. Everything of it is gone when this is dropped, unless the test panics: then its logs stay.
pub struct ControlPlane {
    // In the order in which they are dropped: clients before servers, the files last.
    apiserver: Process,
    etcd: Process,
    servers: Servers,
    admin: Client,
    kubeconfig: PathBuf,
    tools: Tools,
    dir: WorkDir,
}

impl ControlPlane {
    /// Starts one and waits until it is ready.
    ///
    /// Cost: about 3 s and 300 MB.
    ///
    /// # Errors
    /// When a server does not start; the message has the end of its log.
    pub async fn start(tools: &Tools) -> anyhow::Result<Self> {
        let dir = WorkDir::new()?;
        let servers = Servers::prepare(tools, dir.path())?;
        let kubeconfig = dir.path().join("admin.kubeconfig");
        let credential = Credential::Certificate(&servers.pki.admin);
        kubeconfig::write(&kubeconfig, &servers.server(), "default", &credential)?;
        let admin = client(&kubeconfig).await?;

        let etcd = servers.etcd.start()?;
        let apiserver = servers.apiserver.start()?;
        let tools = tools.clone();
        let mut this = Self { apiserver, etcd, servers, admin, kubeconfig, tools, dir };
        if let Err(error) = this.wait_ready().await {
            // The message names files in it.
            this.dir.keep();
            return Err(error);
        }
        Ok(this)
    }

    /// A client that may do everything.
    pub fn client(&self) -> Client {
        self.admin.clone()
    }

    /// The administrator's kubeconfig file.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The directory of this control plane; what a test puts there goes with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The directory of all logs.
    pub fn log_dir(&self) -> PathBuf {
        self.dir.logs()
    }

    /// The directory stays when this is dropped, because somebody will want to read it.
    pub fn keep_logs(&mut self) {
        self.dir.keep();
    }

    /// Where the API server is, for kubeconfigs of others.
    pub(crate) fn server(&self) -> Server {
        self.servers.server()
    }

    /// Who wrote what.
    pub fn audit_log(&self) -> AuditLog {
        AuditLog::at(&self.servers.audit_log)
    }

    /// All writes so far by users whose name begins with `user`.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub fn audit_writes(&self, user: &str) -> anyhow::Result<Vec<AuditWrite>> {
        self.audit_log().writes(user)
    }

    /// Runs kubectl as the administrator and returns its standard output.
    ///
    /// # Errors
    /// When it fails; the message is what it wrote to standard error.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        run(self.command(&self.tools.kubectl.path).args(args)).await
    }

    /// Runs helm as the administrator and returns its standard output.
    ///
    /// # Errors
    /// When it fails; the message is what it wrote to standard error.
    pub async fn helm(&self, args: &[&str]) -> anyhow::Result<String> {
        run(self.command(&self.tools.helm.path).args(args)).await
    }

    /// Kills the API server. Connections break without a word, as when its machine dies.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn stop_apiserver(&mut self) -> anyhow::Result<()> {
        self.apiserver.kill().await.map(drop)
    }

    /// Starts the API server again, on the same port and the same data, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start; the message has the end of its log.
    pub async fn start_apiserver(&mut self) -> anyhow::Result<()> {
        self.launch_apiserver()?;
        self.wait_ready().await
    }

    /// Starts the API server again, on the same port and the same data, and returns its process id.
    ///
    /// # Errors
    /// When it runs, or cannot be started.
    pub(crate) fn launch_apiserver(&mut self) -> anyhow::Result<u32> {
        ensure!(!self.apiserver.is_running(), "the API server runs; stop it first");
        self.apiserver = self.servers.apiserver.start()?;
        Ok(self.apiserver.id())
    }

    /// How the API server ended, if it has.
    ///
    /// # Errors
    /// When the system does not tell.
    pub(crate) fn apiserver_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.apiserver.exit_status()
    }

    /// Kills the API server and starts it again.
    ///
    /// # Errors
    /// When it does not start; the message has the end of its log.
    pub async fn restart_apiserver(&mut self) -> anyhow::Result<()> {
        self.stop_apiserver().await?;
        self.start_apiserver().await
    }

    /// Stops all of it. Dropping does the same; this says whether it went well.
    ///
    /// # Errors
    /// When a server cannot be killed.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.apiserver.kill().await?;
        self.etcd.kill().await.map(drop)
    }

    async fn wait_ready(&mut self) -> anyhow::Result<()> {
        let Self { apiserver, etcd, admin, .. } = self;
        // A server that ended will not become ready: its log is told at once, not after the deadline.
        let mut ended = None;
        let ready = eventually("the API server is ready", UP_WITHIN, || {
            ended = etcd.ensure_running().and_then(|()| apiserver.ensure_running()).err();
            let gone = ended.is_some();
            let admin = admin.clone();
            async move { if gone { Ok(()) } else { look_ready(admin).await } }
        });
        ready.await.with_context(|| crate::process::tail(&self.servers.apiserver.log()))?;
        ended.map_or(Ok(()), Err)
    }

    /// A command that sees our kubeconfig and nothing of the user's own settings.
    fn command(&self, program: &Path) -> Command {
        let home = self.dir.path().join("home");
        let mut command = Command::new(program);
        command.env_clear().env("KUBECONFIG", &self.kubeconfig).env("HOME", home).kill_on_drop(true);
        command
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane").field("kubeconfig", &self.kubeconfig).finish_non_exhaustive()
    }
}

/// A client for a kubeconfig file.
pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let shown = kubeconfig.display();
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot read {shown}"))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let config = config.with_context(|| format!("cannot use {shown}"))?;
    Client::try_from(config).with_context(|| format!("cannot make a client from {shown}"))
}

/// Ready is: it says so, and the namespace for system components is there, which a controller of its own makes later.
async fn look_ready(admin: Client) -> anyhow::Result<()> {
    let request = http::Request::get("/readyz").body(Vec::new())?;
    admin.request_text(request).await.context("/readyz")?;
    Api::<Namespace>::all(admin).get("kube-system").await.context("namespace kube-system")?;
    Ok(())
}

async fn run(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{:?}", command.as_std());
    let output = timeout(COMMAND_WITHIN, command.output());
    let output = output.await.with_context(|| format!("no end after {COMMAND_WITHIN:?}: {shown}"))?;
    let output = output.with_context(|| format!("cannot start {shown}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}\n({}, {shown})", errors.trim(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
