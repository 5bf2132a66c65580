//! The log on standard error: one human-readable line or one JSON object per record. The flags `--log-format` and `--log-level` select the
//! format and the level.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::{
    EnvFilter, Layer as _, filter::LevelFilter, fmt, layer::SubscriberExt as _, registry,
    util::SubscriberInitExt as _,
};

use crate::{
    hint,
    traces::{NOT_IN_THE_LOG, Traces},
};

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// One human-readable line, coloured on a terminal.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    fn is_text(self, terminal: bool) -> bool {
        match self {
            Self::Auto => terminal,
            Self::Text => true,
            Self::Json => false,
        }
    }
}

/// The settings of a process's log.
#[derive(Clone, Debug)]
pub struct Logging {
    /// Format of log lines.
    pub format: LogFormat,
    /// A filter that [`check_filter`] accepts.
    pub filter: String,
    /// Whether a JSON object has the fields of an event at its top level, instead of in `fields`.
    pub flat: bool,
}

impl Logging {
    /// Installs the log, and also traces if the environment variables request them. `service` is the name of the process in traces. A
    /// second call has no effect, because tests may have installed their own log.
    #[must_use]
    pub fn start(&self, service: &str) -> Traces {
        let traces = Traces::from_environment(service);
        let filter = EnvFilter::new(format!("{NOT_IN_THE_LOG},{}", self.filter));
        let log = fmt::layer().with_writer(io::stderr);
        let terminal = io::stderr().is_terminal();
        let log = if self.format.is_text(terminal) {
            log.with_ansi(terminal).with_filter(filter).boxed()
        } else {
            log.json().flatten_event(self.flat).with_filter(filter).boxed()
        };
        if registry().with(traces.layer()).with(log).try_init().is_err() {
            tracing::debug!("A log subscriber is already installed");
        }
        traces.log_setting();
        traces
    }
}

/// Levels in ascending verbosity; the numbers 0 to 5 are accepted, too.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Checks a filter: comma-separated levels and `target=level`. `example` is a valid filter, for the error message. This check is stricter
/// than [`EnvFilter`], which reads an unknown level as a target. With the level `inf`, the process would log nothing except that target.
pub fn check_filter(text: &str, example: &str) -> Result<(), String> {
    let form = format!("target=level such as {example}");
    text.split(',').try_for_each(directive).map_err(|why| format!("{why}, or {form}"))?;
    let levels = LEVELS.join(", ");
    EnvFilter::try_new(text).map(drop).map_err(|error| format!("{error}: use one of: {levels}, or {form}"))
}

/// Checks the level. The level is the text after the last `=`, because fields of a span may also contain `=`.
fn directive(text: &str) -> Result<(), String> {
    let level = text.rsplit_once('=').map_or(text, |(_target, level)| level);
    if text.contains(char::is_whitespace) {
        let levels = LEVELS.join(", ");
        Err(format!("invalid filter '{}': write it without spaces; use one of: {levels}", text.trim()))
    } else if level.is_empty() || level.parse::<LevelFilter>().is_err() {
        Err(format!("unknown log level '{level}'{}", hint(level, LEVELS)))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Behaviour: P25
    #[test]
    fn logs_are_text_on_terminals_and_json_elsewhere() {
        assert!(LogFormat::Auto.is_text(true) && !LogFormat::Auto.is_text(false));
        for terminal in [true, false] {
            assert!(LogFormat::Text.is_text(terminal) && !LogFormat::Json.is_text(terminal));
        }
    }

    const EXAMPLE: &str = "info,kube=debug";

    #[test]
    fn levels_and_targets_with_a_level_are_accepted() {
        for text in ["off", "info", "WARN", "3", EXAMPLE, "kube=off", "info,[sync{node=a}]=trace"] {
            assert_eq!(check_filter(text, EXAMPLE), Ok(()), "{text}");
        }
    }

    #[test]
    fn invalid_log_filters_are_refused_with_the_fix() {
        for (text, part) in [
            (
                "inf",
                "unknown log level 'inf', did you mean 'info'? Use one of: off, error, warn, info, debug, trace, or",
            ),
            ("DEBG", "did you mean 'debug'?"),
            ("warning", "did you mean 'warn'?"),
            (
                "node_controller",
                "log level 'node_controller': use one of: off, error, warn, info, debug, trace",
            ),
            ("info,kube", "unknown log level 'kube': use one of: off, "),
            ("kube=debg", "unknown log level 'debg', did you mean 'debug'?"),
            ("kube=", "unknown log level '': "),
            ("6", "unknown log level '6': "),
            ("", "or target=level such as info,kube=debug"),
            ("info,", "unknown log level '': "),
            ("info, kube=debug", "invalid filter 'kube=debug': write it without spaces"),
            ("a=b=debug", "target=level such as"),
        ] {
            let error = check_filter(text, EXAMPLE).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
