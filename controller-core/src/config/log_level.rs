//! The flag `--log-level`. Stricter than [`EnvFilter`], which takes a word that is no level for a target: with `inf` it would
//! log nothing but that target, and the process would be silent.

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// From quiet to loud, as 0 to 5.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What clap takes for a slip of the finger.
const SIMILAR: f64 = 0.7;

/// Judges a filter: levels, and `target=level`, with commas between.
pub(super) fn check(text: &str) -> Result<(), String> {
    text.split(',').try_for_each(directive)?;
    EnvFilter::try_new(text).map(drop).map_err(|error| format!("{error}: {}", fix()))
}

/// What stands after the last `=` is the level: a span's fields may have one of their own.
fn directive(text: &str) -> Result<(), String> {
    let level = text.rsplit_once('=').map_or(text, |(_target, level)| level);
    if text.contains(char::is_whitespace) {
        Err(format!("write '{}' without blanks: {}", text.trim(), fix()))
    } else if level.is_empty() || level.parse::<LevelFilter>().is_err() {
        let meant = nearest(level).map(|level| format!(", did you mean {level}?")).unwrap_or_default();
        Err(format!("'{level}' is no level{meant}: {}", fix()))
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
    fn anything_else_is_refused_with_the_fix() {
        for (text, part) in [
            ("inf", "'inf' is no level, did you mean info?"),
            ("DEBG", "did you mean debug?"),
            ("warning", "did you mean warn?"),
            ("node_controller", "'node_controller' is no level: use off, error, warn, info, debug, trace"),
            ("info,kube", "'kube' is no level: "),
            ("kube=debg", "'debg' is no level, did you mean debug?"),
            ("kube=", "'' is no level: "),
            ("6", "'6' is no level: "),
            ("", "or target=level such as info,kube=debug"),
            ("info,", "'' is no level: "),
            ("info, kube=debug", "write 'kube=debug' without blanks"),
            ("a=b=debug", "target=level such as"),
        ] {
            let error = check(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
