//! Control planes that scenarios use one after the other. A start takes 2 s of CPU time, but restoring the initial content of etcd takes
//! almost none. Restoring also removes nodes and roles of the previous scenario, which a separate namespace for each scenario would not
//! isolate.
//!
//! A scenario connects to a Unix socket and reads one line with the addresses of its control plane. The scenario keeps the control plane as
//! long as the connection is open. So the pool gets the control plane back even if the scenario is killed.

mod content;

use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, anyhow};
use e2e_tools::Tools;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::own::Own;
use super::work_dir::WorkDir;
use super::{APISERVER, Site};

use content::Content;

/// Environment variable with the path of the pool's socket. Without it, each scenario starts its own control plane.
const SOCKET: &str = "CLOUD_CONTROLLERS_E2E_CONTROL_PLANES";

/// The pool's socket, if this process should use one.
pub(super) fn socket() -> Option<PathBuf> {
    env::var_os(SOCKET).map(PathBuf::from)
}

/// A control plane borrowed from the pool.
#[derive(Debug)]
pub(super) struct Lent {
    /// The connection to the pool. Closing it returns the control plane.
    _connection: BufReader<UnixStream>,
    log: PathBuf,
    log_start: u64,
    log_dir: PathBuf,
}

impl Lent {
    /// Waits for a control plane from the pool. When the control plane is returned, the new lines of the API server's log are copied into
    /// `log_dir`.
    pub(super) async fn borrow_from(socket: &Path, log_dir: &Path) -> anyhow::Result<(Self, Site)> {
        let shown = socket.display();
        let connection = UnixStream::connect(socket).await;
        let connection = connection.with_context(|| {
            format!("no pool of control planes at {shown}: unset {SOCKET}, or run `cargo xtask test`")
        })?;
        let mut connection = BufReader::new(connection);
        let mut line = String::new();
        connection.read_line(&mut line).await.with_context(|| format!("{shown} did not answer"))?;
        let answer: Result<Site, String> = serde_json::from_str(&line)
            .with_context(|| format!("invalid answer of the pool at {shown}: {line:?}"))?;
        let site =
            answer.map_err(|error| anyhow!("the pool at {shown} cannot lend a control plane: {error}"))?;
        let log = log_of(&site);
        let log_start =
            fs::metadata(&log).with_context(|| format!("cannot read the log {}", log.display()))?.len();
        Ok((Self { _connection: connection, log, log_start, log_dir: log_dir.to_path_buf() }, site))
    }

    /// The log of the API server, to which later scenarios also append.
    pub(super) fn log(&self) -> std::path::Display<'_> {
        self.log.display()
    }

    fn copy_log(&self) -> io::Result<()> {
        let mut log = File::open(&self.log)?;
        log.seek(SeekFrom::Start(self.log_start))?;
        let mut text = Vec::new();
        log.read_to_end(&mut text)?;
        fs::write(self.log_dir.join(format!("{APISERVER}.log")), text)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // The copy explains failed tests; an error during copying is ignored.
        self.copy_log().ok();
    }
}

fn log_of(site: &Site) -> PathBuf {
    let dir = site.audit_log.parent().unwrap_or(&site.audit_log);
    dir.join("logs").join(format!("{APISERVER}.log"))
}

#[derive(Debug)]
struct Pooled {
    own: Own,
    content: Content,
    dir: WorkDir,
}

impl Pooled {
    async fn start(tools: &Tools) -> anyhow::Result<Self> {
        let dir = WorkDir::new()?;
        let own = Own::start(tools, dir.path()).await?;
        let content = Content::settled(own.etcd_url()).await?;
        Ok(Self { own, content, dir })
    }

    async fn restore(mut self) -> anyhow::Result<Self> {
        match self.try_restore().await {
            Ok(()) => Ok(self),
            Err(error) => {
                // The log may explain the error.
                self.dir.keep();
                Err(error)
            }
        }
    }

    async fn try_restore(&mut self) -> anyhow::Result<()> {
        self.own.ensure_running()?;
        self.content.restore().await?;
        self.own.wait_ready().await
    }
}

/// The pool. It grows to the largest number of control planes that are in use at the same time.
#[derive(Debug)]
struct Pool {
    tools: Tools,
    state: Mutex<State>,
    /// Notified when a control plane is returned or has failed.
    returned: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Control planes that no scenario uses.
    idle: Vec<Pooled>,
    /// The number of control planes that become idle soon. Waiting for one of them is faster than starting another one.
    restored: usize,
}

/// Lends control planes at this socket until the future is dropped. Prints the socket's path to standard output.
pub async fn serve(socket: &Path, tools: &Tools) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket);
    let listener = listener.with_context(|| format!("cannot listen on {}", socket.display()))?;
    writeln!(io::stdout(), "{SOCKET}={}", socket.display())
        .context("cannot write the socket's path to standard output")?;
    let pool = Arc::new(Pool { tools: tools.clone(), state: Mutex::default(), returned: Notify::new() });
    let mut scenarios = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (connection, _) = accepted.context("cannot accept a connection")?;
                let pool = Arc::clone(&pool);
                scenarios.spawn(async move { pool.lend(connection).await });
            }
            Some(done) = scenarios.join_next() => {
                if let Err(error) = done.context("a task panicked").flatten() {
                    // The discarded control plane is not lent again, so the next scenario gets another one.
                    writeln!(io::stderr(), "Discarding a control plane: {error:#}").ok();
                }
            }
        }
    }
}

impl Pool {
    async fn lend(&self, mut connection: UnixStream) -> anyhow::Result<()> {
        let taken = self.take().await;
        let answer = taken.as_ref().map(|it| it.own.site()).map_err(|error| format!("{error:#}"));
        let line = format!("{}\n", serde_json::to_string(&answer)?);
        let taken = taken?;
        if connection.write_all(line.as_bytes()).await.is_ok() {
            // The scenario sends no data, so the read returns when the connection ends.
            connection.read_u8().await.ok();
        }
        self.state().restored += 1;
        let restored = taken.restore().await;
        let mut state = self.state();
        state.restored -= 1;
        let result = restored.map(|one| state.idle.push(one));
        drop(state);
        self.returned.notify_one();
        result
    }

    async fn take(&self) -> anyhow::Result<Pooled> {
        loop {
            let (idle, soon) = {
                let mut state = self.state();
                (state.idle.pop(), state.restored > 0)
            };
            match idle {
                Some(one) => return Ok(one),
                None if soon => self.returned.notified().await,
                None => return Pooled::start(&self.tools).await,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
