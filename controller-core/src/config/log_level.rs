//! The flag `--log-level`. This parser is stricter than [`EnvFilter`], which reads an unknown level as a target: with `inf`, the process
//! would log nothing except that target.

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// From quiet to verbose, as 0 to 5.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The similarity above which clap assumes a typing mistake.
const SIMILAR: f64 = 0.7;

/// Validates a filter: comma-separated levels and `target=level`.
pub(super) fn check(text: &str) -> Result<(), String> {
    text.split(',').try_for_each(directive)?;
    EnvFilter::try_new(text).map(drop).map_err(|error| format!("{error}: {}", fix()))
}

/// Returns the level of a directive: the text after the last `=`, since fields of a span may contain `=`, too.
fn directive(text: &str) -> Result<(), String> {
    let level = text.rsplit_once('=').map_or(text, |(_target, level)| level);
    if text.contains(char::is_whitespace) {
        Err(format!("write '{}' without blanks: {}", text.trim(), fix()))
    } else if level.is_empty() || level.parse::<LevelFilter>().is_err() {
        let meant = nearest(level).map(|level| format!(", did you mean '{level}'?")).unwrap_or_default();
        Err(format!("unknown log level '{level}'{meant}: {}", fix()))
    } else {
        Ok(())
    }
}

fn fix() -> String {
    format!("use {}, or target=level such as info,kube=debug", LEVELS.join(", "))
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
        for text in ["off", "info", "WARN", "3", "info,kube=debug", "kube=off", "info,[sync{node=a}]=trace"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn invalid_log_filters_are_refused_with_the_fix() {
        for (text, part) in [
            ("inf", "unknown log level 'inf', did you mean 'info'?"),
            ("DEBG", "did you mean 'debug'?"),
            ("warning", "did you mean 'warn'?"),
            (
                "node_controller",
                "unknown log level 'node_controller': use off, error, warn, info, debug, trace",
            ),
            ("info,kube", "unknown log level 'kube': "),
            ("kube=debg", "unknown log level 'debg', did you mean 'debug'?"),
            ("kube=", "unknown log level '': "),
            ("6", "unknown log level '6': "),
            ("", "or target=level such as info,kube=debug"),
            ("info,", "unknown log level '': "),
            ("info, kube=debug", "write 'kube=debug' without blanks"),
            ("a=b=debug", "target=level such as"),
        ] {
            let error = check(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
