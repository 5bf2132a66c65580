//! Sets up the log, with one human-readable line or one JSON object per record on standard error. Also starts traces.

use std::io::IsTerminal as _;

use telemetry::traces::{NOT_IN_THE_LOG, Traces};
use tracing_subscriber::{
    EnvFilter, Layer as _, fmt, layer::SubscriberExt as _, registry, util::SubscriberInitExt as _,
};

use crate::config::{CommonConfig, LogFormat};

/// Silences kube's client, which logs each failed attempt as an error, since the mirrors already log outages. A user's directive comes
/// later and takes precedence.
const QUIETER: &str = "kube_client::client::builder=off";

/// Installs the log as configured, and traces as the environment variables say. A second call has no effect, since tests may have installed
/// their own log.
pub(super) fn start(controller: &str, config: &CommonConfig) -> Traces {
    let traces = Traces::from_environment(controller, env!("CARGO_PKG_VERSION"));
    let filter = EnvFilter::new(format!("{QUIETER},{NOT_IN_THE_LOG},{}", config.log_level));
    let log = fmt::layer().with_writer(std::io::stderr);
    let terminal = std::io::stderr().is_terminal();
    let log = if is_text(config.log_format, terminal) {
        log.with_ansi(terminal).with_filter(filter).boxed()
    } else {
        log.json().flatten_event(true).with_filter(filter).boxed()
    };
    if registry().with(traces.layer()).with(log).try_init().is_err() {
        tracing::debug!("A log subscriber is already installed");
    }
    traces.tell();
    traces
}

fn is_text(format: LogFormat, terminal: bool) -> bool {
    match format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Behaviour: P25
    #[test]
    fn logs_are_text_on_terminals_and_json_elsewhere() {
        assert!(is_text(LogFormat::Auto, true) && !is_text(LogFormat::Auto, false));
        for terminal in [true, false] {
            assert!(is_text(LogFormat::Text, terminal) && !is_text(LogFormat::Json, terminal));
        }
    }
}
