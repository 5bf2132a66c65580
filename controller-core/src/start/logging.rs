//! The log: one line for people or one JSON object, on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{CommonConfig, LogFormat};

/// kube's client logs each failed attempt as an error of its own; outages are told by the mirrors. A user's directive comes later
/// and wins.
const QUIETER: &str = "kube_client::client::builder=off";

/// Installs the log as configured. A second call changes nothing: tests may have installed theirs.
pub(super) fn start(config: &CommonConfig) {
    let filter = EnvFilter::new(format!("{QUIETER},{}", config.log_level));
    let log = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match config.log_format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    if installed.is_err() {
        tracing::debug!("A log is installed already");
    }
}
