//! One Kubernetes control plane: etcd and kube-apiserver on loopback, with RBAC and an audit log. No controllers and no
//! kubelets: what those would do, a test does itself.

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

/// Names the API server in logs and reports.
pub(crate) const APISERVER: &str = "kube-apiserver";
/// For helm and kubectl, each call.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);

/// A running control plane. Everything of it is gone when this is dropped, unless the test panics: then its logs stay.
pub struct ControlPlane {
    // In the order in which they are dropped: the files last.
    servers: Servers,
    site: Site,
    audit_log: AuditLog,
    admin: Client,
    tools: Tools,
    dir: WorkDir,
}

/// Whose its servers are.
#[derive(Debug)]
enum Servers {
    Own(Box<Own>),
    /// The pool's, where others had them before.
    Lent(Lent),
}

/// Where to find it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Site {
    server: Server,
    /// The administrator's.
    kubeconfig: PathBuf,
    audit_log: PathBuf,
}

impl ControlPlane {
    /// Starts one and waits until it is ready. For who stops the API server, or leaves there what the pool cannot undo.
    ///
    /// Cost: about 3 s and 300 MB.
    ///
    /// # Errors
    /// When a server does not start; the message has the end of its log.
    pub async fn start(tools: &Tools) -> anyhow::Result<Self> {
        let mut dir = WorkDir::new()?;
        // The message names files in it.
        let own = Own::start(tools, dir.path()).await.inspect_err(|_| dir.keep())?;
        Self::at(own.site(), Servers::Own(Box::new(own)), tools, dir).await
    }

    /// One that is as if it had just started: of the [pool] where there is one, which saves the start.
    ///
    /// # Errors
    /// When the pool has none to lend, or as [`Self::start`].
    pub async fn shared(tools: &Tools) -> anyhow::Result<Self> {
        match pool::socket() {
            Some(socket) => Self::lent_by(&socket, tools).await,
            None => Self::start(tools).await,
        }
    }

    /// One of the [pool] at this socket.
    ///
    /// # Errors
    /// When it has none to lend.
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

    /// A client that may do everything.
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
        self.site.server.clone()
    }

    /// Who wrote what, since we have it.
    pub fn audit_log(&self) -> AuditLog {
        self.audit_log.clone()
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
    /// When it cannot be killed, or is not ours alone.
    pub async fn stop_apiserver(&mut self) -> anyhow::Result<()> {
        self.own()?.apiserver.kill().await.map(drop)
    }

    /// Starts the API server again, on the same port and the same data, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start; the message has the end of its log.
    pub async fn start_apiserver(&mut self) -> anyhow::Result<()> {
        self.launch_apiserver()?;
        self.own()?.wait_ready().await
    }

    /// Starts the API server again, on the same port and the same data, and returns its process id.
    ///
    /// # Errors
    /// When it runs, or cannot be started.
    pub(crate) fn launch_apiserver(&mut self) -> anyhow::Result<u32> {
        self.own()?.launch_apiserver()
    }

    /// How the API server ended, if it has.
    ///
    /// # Errors
    /// When the system does not tell.
    pub(crate) fn apiserver_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.own()?.apiserver.exit_status()
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
        let own = self.own()?;
        own.apiserver.kill().await?;
        own.etcd.kill().await.map(drop)
    }

    fn own(&mut self) -> anyhow::Result<&mut Own> {
        match &mut self.servers {
            Servers::Own(own) => Ok(own),
            Servers::Lent(lent) => {
                bail!(
                    "{} is the log of others too: take a control plane of `ControlPlane::start`",
                    lent.log()
                )
            }
        }
    }

    /// A command that sees our kubeconfig and nothing of the user's own settings.
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

/// A client for a kubeconfig file.
pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let shown = kubeconfig.display();
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot read {shown}"))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let config = config.with_context(|| format!("cannot use {shown}"))?;
    Client::try_from(config).with_context(|| format!("cannot make a client from {shown}"))
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
