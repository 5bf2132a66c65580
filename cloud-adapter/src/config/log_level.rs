//! The flag `--log-level`. It is stricter than [`EnvFilter`], which interprets an unknown level as a target: `inf` would log only the
//! target `inf`.

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// Levels in ascending verbosity; the numbers 0 to 5 are accepted, too.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Minimum similarity of a word that is suggested; clap uses the same value.
const SIMILAR: f64 = 0.7;

/// Checks a filter: levels and `target=level`, separated by commas.
pub(super) fn check(text: &str) -> Result<(), String> {
    text.split(',').try_for_each(directive)?;
    EnvFilter::try_new(text).map(drop).map_err(|error| format!("{error}: {}", fix()))
}

/// Finds the level after the last `=`, since fields of a span may contain `=`, too.
fn directive(text: &str) -> Result<(), String> {
    let level = text.rsplit_once('=').map_or(text, |(_target, level)| level);
    if text.contains(char::is_whitespace) {
        Err(format!("invalid filter '{}': write it without spaces; {}", text.trim(), fix()))
    } else if level.is_empty() || level.parse::<LevelFilter>().is_err() {
        let meant = nearest(level).map(|level| format!(", did you mean '{level}'?")).unwrap_or_default();
        Err(format!("unknown log level '{level}'{meant}: {}", fix()))
    } else {
        Ok(())
    }
}

fn fix() -> String {
    format!("use {}, or target=level such as info,cloud_adapter=debug", LEVELS.join(", "))
}

fn nearest(word: &str) -> Option<&'static str> {
    let similarity = |level: &str| strsim::jaro(level, &word.to_ascii_lowercase());
    LEVELS
        .into_iter()
        .filter(|level| similarity(level) > SIMILAR)
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_targets_with_a_level_are_accepted() {
        for text in [
            "off",
            "info",
            "WARN",
            "3",
            "info,cloud_adapter=debug",
            "cloud_adapter=off",
            "info,[call{rpc=a}]=trace",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn invalid_log_filters_are_refused_with_the_fix() {
        for (text, part) in [
            ("inf", "unknown log level 'inf', did you mean 'info'?"),
            ("DEBG", "did you mean 'debug'?"),
            ("warning", "did you mean 'warn'?"),
            ("cloud_adapter", "unknown log level 'cloud_adapter': use off, error, warn, info, debug, trace"),
            ("info,cloud_adapter", "unknown log level 'cloud_adapter': "),
            ("cloud_adapter=debg", "unknown log level 'debg', did you mean 'debug'?"),
            ("cloud_adapter=", "unknown log level '': "),
            ("6", "unknown log level '6': "),
            ("", "or target=level such as info,cloud_adapter=debug"),
            ("info,", "unknown log level '': "),
            ("info, cloud_adapter=debug", "cloud_adapter=debug': write it without spaces"),
            ("a=b=debug", "target=level such as"),
        ] {
            let error = check(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
