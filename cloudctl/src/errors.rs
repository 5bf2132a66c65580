//! Formats errors of the API server's client.

use std::{error::Error, iter::successors, time::Duration};

use cloud_lease::{causes, without_secrets};

use crate::http;

/// Time limit for a connection to the API server.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Formats an error with all its causes in one line, without repetitions or secrets.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    in_time(&causes(error)).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the root cause, because the outer errors only wrap it.
pub(crate) fn root(error: &(dyn Error + 'static)) -> String {
    let all = || successors(Some(error), |error| (*error).source());
    if let Some(words) = all().find_map(without_secrets) {
        return words;
    }
    http::plain(in_time(&all().last().unwrap_or(error).to_string()))
}

/// Replaces the text of an expired deadline by a text that names the time limit.
fn in_time(text: &str) -> String {
    text.replace("deadline has elapsed", &format!("no answer within {}s", CONNECT_TIMEOUT.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_reported_with_its_duration() {
        let late = std::io::Error::new(std::io::ErrorKind::TimedOut, "deadline has elapsed");
        assert_eq!(root(&late), "no answer within 5s");
        assert_eq!(chain(&late), "no answer within 5s");
    }
}
