//! The flag `--log-level`. This check is stricter than [`EnvFilter`], which reads an unknown level as a target: with `inf`, the process would
//! log nothing except that target.

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use crate::nearest;

/// Levels in ascending verbosity; the numbers 0 to 5 are accepted, too.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Checks a filter: comma-separated levels and `target=level`. `example`: a valid filter, for the error message.
pub fn check(text: &str, example: &str) -> Result<(), String> {
    let fix = || format!("use {}, or target=level such as {example}", LEVELS.join(", "));
    text.split(',').try_for_each(directive).map_err(|why| format!("{why}{}", fix()))?;
    EnvFilter::try_new(text).map(drop).map_err(|error| format!("{error}: {}", fix()))
}

/// Checks the level: the text after the last `=`, since fields of a span may contain `=`, too.
fn directive(text: &str) -> Result<(), String> {
    let level = text.rsplit_once('=').map_or(text, |(_target, level)| level);
    if text.contains(char::is_whitespace) {
        Err(format!("invalid filter '{}': write it without spaces; ", text.trim()))
    } else if level.is_empty() || level.parse::<LevelFilter>().is_err() {
        let meant = nearest(level, LEVELS).map(|level| format!(", did you mean '{level}'?"));
        Err(format!("unknown log level '{level}'{}: ", meant.unwrap_or_default()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "info,kube=debug";

    #[test]
    fn levels_and_targets_with_a_level_are_accepted() {
        for text in ["off", "info", "WARN", "3", EXAMPLE, "kube=off", "info,[sync{node=a}]=trace"] {
            assert_eq!(check(text, EXAMPLE), Ok(()), "{text}");
        }
    }

    #[test]
    fn invalid_log_filters_are_refused_with_the_fix() {
        for (text, part) in [
            ("inf", "unknown log level 'inf', did you mean 'info'?"),
            ("DEBG", "did you mean 'debug'?"),
            ("warning", "did you mean 'warn'?"),
            ("node_controller", "log level 'node_controller': use off, error, warn, info, debug, trace"),
            ("info,kube", "unknown log level 'kube': "),
            ("kube=debg", "unknown log level 'debg', did you mean 'debug'?"),
            ("kube=", "unknown log level '': "),
            ("6", "unknown log level '6': "),
            ("", "or target=level such as info,kube=debug"),
            ("info,", "unknown log level '': "),
            ("info, kube=debug", "invalid filter 'kube=debug': write it without spaces"),
            ("a=b=debug", "target=level such as"),
        ] {
            let error = check(text, EXAMPLE).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
