//! A Kubernetes control plane: etcd and kube-apiserver on loopback, with RBAC and an audit log. It has no controllers and no kubelets, so
//! the tests do the work of both.

mod own;
pub mod pool;
mod servers;
mod work_dir;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use e2e_tools::Tools;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::time::timeout;

use crate::audit::{AuditLog, AuditWrite};
use crate::kubeconfig::Server;
use crate::process::guarded;

use own::Own;
use pool::Lent;
use work_dir::WorkDir;

/// The name of the API server in logs and reports.
pub(crate) const APISERVER: &str = "kube-apiserver";
/// The deadline of each helm or kubectl command.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);

/// A running control plane. Dropping this value stops the control plane and removes its files. If the test panics, the logs are kept.
pub struct ControlPlane {
    // Fields in the order in which they are dropped. The folder with the files is last, because the servers use it.
    servers: Servers,
    site: Site,
    audit_log: AuditLog,
    admin: Client,
    tools: Tools,
    dir: WorkDir,
}

#[derive(Debug)]
enum Servers {
    Own(Box<Own>),
    /// A control plane that belongs to the pool and that other scenarios used before.
    Lent(Lent),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Site {
    server: Server,
    /// The administrator's kubeconfig.
    kubeconfig: PathBuf,
    audit_log: PathBuf,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready. Tests use this function if they stop the API server, or if they make changes
    /// that the pool cannot undo.
    ///
    /// Cost: about 3 s and 300 MB.
    pub async fn start(tools: &Tools) -> anyhow::Result<Self> {
        let mut dir = WorkDir::new()?;
        // The directory is kept, because the error names files in it.
        let own = Own::start(tools, dir.path()).await.inspect_err(|_| dir.keep())?;
        Self::at(own.site(), Servers::Own(Box::new(own)), tools, dir).await
    }

    /// Returns a control plane in its initial state. Borrows it from the [pool] if there is one, which saves the start.
    pub async fn shared(tools: &Tools) -> anyhow::Result<Self> {
        match pool::socket() {
            Some(socket) => Self::lent_by(&socket, tools).await,
            None => Self::start(tools).await,
        }
    }

    /// Borrows a control plane from the [pool] at this socket.
    pub async fn lent_by(socket: &Path, tools: &Tools) -> anyhow::Result<Self> {
        let dir = WorkDir::new()?;
        let (lent, site) = Lent::borrow_from(socket, &dir.logs()).await?;
        Self::at(site, Servers::Lent(lent), tools, dir).await
    }

    async fn at(site: Site, servers: Servers, tools: &Tools, dir: WorkDir) -> anyhow::Result<Self> {
        let admin = client(&site.kubeconfig).await?;
        let audit_log = AuditLog::from_now(&site.audit_log)?;
        Ok(Self { servers, site, audit_log, admin, tools: tools.clone(), dir })
    }

    /// A client with administrator rights.
    pub fn client(&self) -> Client {
        self.admin.clone()
    }

    /// The administrator's kubeconfig file.
    pub fn kubeconfig(&self) -> &Path {
        &self.site.kubeconfig
    }

    /// The certificate authority of the API server.
    pub fn ca(&self) -> &Path {
        &self.site.server.ca
    }

    /// The directory of this control plane; files that a test puts there are removed with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The directory of all logs.
    pub fn log_dir(&self) -> PathBuf {
        self.dir.logs()
    }

    /// Keeps the directory when this value is dropped, so that the logs can be read.
    pub fn keep_logs(&mut self) {
        self.dir.keep();
    }

    pub(crate) fn server(&self) -> Server {
        self.site.server.clone()
    }

    /// The audit log from the time at which this test received the control plane.
    pub fn audit_log(&self) -> AuditLog {
        self.audit_log.clone()
    }

    /// All writes so far by users whose name begins with `user`.
    pub fn audit_writes(&self, user: &str) -> anyhow::Result<Vec<AuditWrite>> {
        self.audit_log().writes(user)
    }

    /// Runs kubectl as the administrator and returns its standard output.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        run(self.command(&self.tools.kubectl.path).args(args)).await
    }

    /// Runs helm as the administrator and returns its standard output.
    pub async fn helm(&self, args: &[&str]) -> anyhow::Result<String> {
        run(self.command(&self.tools.helm.path).args(args)).await
    }

    /// Kills the API server. Connections break without a shutdown, as when its host fails.
    pub async fn stop_apiserver(&mut self) -> anyhow::Result<()> {
        self.own()?.apiserver.kill().await.map(drop)
    }

    /// Starts the API server again, on the same port and the same data, and waits until it is ready.
    pub async fn start_apiserver(&mut self) -> anyhow::Result<()> {
        self.launch_apiserver()?;
        self.own()?.wait_ready().await
    }

    /// Starts the API server again, on the same port and the same data, and returns its process ID without waiting.
    pub(crate) fn launch_apiserver(&mut self) -> anyhow::Result<u32> {
        self.own()?.launch_apiserver()
    }

    /// The exit status of the API server, if it has ended.
    pub(crate) fn apiserver_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.own()?.apiserver.exit_status()
    }

    /// Kills the API server and starts it again.
    pub async fn restart_apiserver(&mut self) -> anyhow::Result<()> {
        self.stop_apiserver().await?;
        self.start_apiserver().await
    }

    /// Stops the control plane. Dropping the value also stops the control plane, but does not report errors.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let own = self.own()?;
        own.apiserver.kill().await?;
        own.etcd.kill().await.map(drop)
    }

    fn own(&mut self) -> anyhow::Result<&mut Own> {
        match &mut self.servers {
            Servers::Own(own) => Ok(own),
            Servers::Lent(lent) => {
                bail!(
                    "the API server with the log {} belongs to the pool: use `ControlPlane::start`",
                    lent.log()
                )
            }
        }
    }

    /// A command with the kubeconfig of this control plane and without the user's own settings.
    fn command(&self, program: &Path) -> Command {
        let home = self.dir.path().join("home");
        let mut command = Command::from(guarded(program));
        command.env_clear().env("KUBECONFIG", &self.site.kubeconfig).env("HOME", home).kill_on_drop(true);
        command
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane").field("kubeconfig", &self.site.kubeconfig).finish_non_exhaustive()
    }
}

pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let shown = kubeconfig.display();
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot read {shown}"))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let config = config.with_context(|| format!("cannot use {shown}"))?;
    Client::try_from(config).with_context(|| format!("cannot create a client from {shown}"))
}

async fn run(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{:?}", command.as_std());
    let output = timeout(COMMAND_WITHIN, command.output());
    let output = output.await.with_context(|| format!("{shown} did not end within {COMMAND_WITHIN:?}"))?;
    let output = output.with_context(|| format!("cannot start {shown}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}\n({}, {shown})", errors.trim(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
