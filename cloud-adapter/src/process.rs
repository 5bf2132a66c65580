//! The common parts of every adapter's `main`: crypto provider, log and traces, signals, exit code.

use std::{future::Future, process::ExitCode};

use telemetry::logging::Logging;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::{
    config::{ConfigError, Options},
    driver::Driver,
    server::Adapter,
    wrong_usage::WrongUsage,
};

/// The exit codes. The code for invalid usage is the same as the code of clap.
const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;

/// Runs an adapter until SIGTERM or SIGINT. `driver` is called inside the tokio runtime with a token that is cancelled at shutdown.
///
/// Returns exit code 0 after a signal, 2 for an invalid configuration file and for [`WrongUsage`], and 1 for other start-up errors. The
/// error is written to standard error.
pub fn run<D: Driver, F>(options: &Options, driver: impl FnOnce(CancellationToken) -> F) -> ExitCode
where
    F: Future<Output = anyhow::Result<D>>,
{
    run_through(options, driver, std::convert::identity)
}

/// Does the same as [`run`] with additional services or layers of the adapter, as in [`Adapter::serve_through`].
pub fn run_through<D: Driver, F>(
    options: &Options,
    driver: impl FnOnce(CancellationToken) -> F,
    front: impl FnOnce(Routes) -> Routes + Send,
) -> ExitCode
where
    F: Future<Output = anyhow::Result<D>>,
{
    let logging = Logging { format: options.log_format, filter: options.log_level.clone(), flat: false };
    let traces = logging.start(&program());
    let code = match start(options, driver, front) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(code(&error))
        }
    };
    traces.end();
    code
}

/// Returns the name of the program in traces.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map_or_else(|| "cloud-adapter".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Faults in files that flags name are usage errors, as are faults of the flags.
fn code(error: &anyhow::Error) -> u8 {
    if error.is::<ConfigError>() || error.is::<WrongUsage>() { WRONG_USAGE } else { FAILED }
}

fn start<D: Driver, F>(
    options: &Options,
    driver: impl FnOnce(CancellationToken) -> F,
    front: impl FnOnce(Routes) -> Routes + Send,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<D>>,
{
    // This call fails only if a provider is already installed; the process then uses that provider.
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default().is_ok();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        // Signals are handled from the beginning, because the first process of a container has no default action for signals.
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let on_signal = stop.clone();
        let mut signals = JoinSet::new();
        signals.spawn(async move {
            tokio::select! {
                _ = term.recv() => (),
                _ = int.recv() => (),
            }
            on_signal.cancel();
        });
        let bind = async { Adapter::bind(driver(stop.clone()).await?, options).await };
        match stop.run_until_cancelled(bind).await {
            Some(adapter) => adapter?.serve_through(stop.clone(), front).await,
            None => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn invalid_configuration_is_wrong_usage() {
        let wrong = ConfigError::Invalid { path: "a".to_owned(), faults: "limits: none".to_owned() };
        let wrong = Err::<(), _>(wrong).context("cannot start the adapter").expect_err("an error");
        assert_eq!(code(&wrong), WRONG_USAGE);
        let missing = Err::<(), _>(std::io::Error::from(std::io::ErrorKind::NotFound));
        let missing = missing.context(WrongUsage("--token-file a".to_owned())).expect_err("an error");
        assert_eq!(code(&missing.context("cannot start the adapter")), WRONG_USAGE);
        assert_eq!(code(&anyhow::anyhow!("the port is in use")), FAILED);
    }
}
