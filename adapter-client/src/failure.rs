//! Explains to users why a call got no answer. Below gRPC there are few possible causes. This module names them for users; the library's
//! own error is only logged.

use std::{
    error::Error,
    io::{self, ErrorKind},
    iter,
};

use tonic::{ConnectError, Status, TimeoutExpired};
use tracing::debug;

use crate::connector::{CONNECT_LIMIT, HEARD_WITHIN};

/// The called replica does not respond, and another replica is serving in the meantime. The request may have been carried out.
#[derive(Debug, thiserror::Error)]
#[error("another replica is serving now, and the called replica did not answer")]
pub(crate) struct Replaced;

/// Returns why there was no answer. Returns `None` if there was an answer, or if the deadline of the call had passed.
///
/// A status that was received has no source error, but a status that the client created for a failure has one.
#[must_use]
pub fn unanswered(status: &Status) -> Option<String> {
    let error = status.source()?;
    if causes(error).any(|cause| cause.is::<TimeoutExpired>()) {
        return None;
    }
    let why = plain(error);
    let chain: Vec<String> = causes(error).map(ToString::to_string).collect();
    debug!(why, error = chain.join(": "), "RPC to the cloud adapter failed");
    Some(why)
}

fn plain(error: &(dyn Error + 'static)) -> String {
    // Only the library knows what is wrong with a certificate.
    if let Some(tls) = causes(error).find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
        return format!("TLS: {tls}");
    }
    if let Some(replaced) = causes(error).find_map(|cause| cause.downcast_ref::<Replaced>()) {
        return replaced.to_string();
    }
    let connects = causes(error).any(|cause| cause.is::<ConnectError>());
    let last = causes(error).last().map(ToString::to_string).unwrap_or_default();
    match causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).last().map(io::Error::kind) {
        Some(ErrorKind::ConnectionRefused) => "the connection was refused".to_owned(),
        Some(
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
            | ErrorKind::UnexpectedEof,
        ) => "the connection was closed".to_owned(),
        Some(ErrorKind::TimedOut) if connects => {
            format!("no connection within {} s", CONNECT_LIMIT.as_secs())
        }
        // Examples are an unknown name and a missing socket.
        _ if connects => format!("no connection: {last}"),
        // The library's own error for a timeout can only be recognised by its text.
        _ if last.contains("timed out") => {
            format!("no response to keepalive for {} s", HEARD_WITHIN.as_secs())
        }
        _ => "the connection was closed".to_owned(),
    }
}

/// Collects an error and its causes. The cause of an I/O error is its inner error, which `source` does not return.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&cause: &&'a (dyn Error + 'static)| {
        let made_of = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        made_of.map(|it| -> &'a (dyn Error + 'static) { it }).or_else(|| cause.source())
    })
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError;

    use super::*;

    /// An error as the HTTP library returns it.
    #[derive(Debug, thiserror::Error)]
    #[error("h2 protocol error: error reading a body from connection")]
    struct Wrapped(#[source] Box<dyn Error + Send + Sync>);

    fn explained(error: impl Into<Box<dyn Error + Send + Sync>>) -> Option<String> {
        unanswered(&Status::from_error(error.into()))
    }

    #[test]
    fn failures_of_a_connection_are_explained() {
        let bad = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let eof = "peer closed connection without sending TLS close_notify: https://docs.rs/rustls";
        let closed = "the connection was closed";
        for (error, wanted) in [
            (Wrapped(Box::new(io::Error::from(ErrorKind::BrokenPipe))), closed),
            (Wrapped(Box::new(io::Error::new(ErrorKind::UnexpectedEof, eof))), closed),
            (Wrapped("connection error received: not a result of an error".into()), closed),
            (Wrapped("keep-alive timed out".into()), "no response to keepalive for 8 s"),
            (
                Wrapped(Box::new(Replaced)),
                "another replica is serving now, and the called replica did not answer",
            ),
            (
                Wrapped(Box::new(io::Error::new(ErrorKind::InvalidData, bad()))),
                "TLS: invalid peer certificate: UnknownIssuer",
            ),
        ] {
            assert_eq!(explained(error).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn failures_to_connect_are_explained() {
        let connects = |error| explained(ConnectError(Box::new(error)));
        let found = io::Error::other("failed to lookup address information");
        for (error, wanted) in [
            (io::Error::from(ErrorKind::ConnectionRefused), "the connection was refused"),
            (io::Error::new(ErrorKind::TimedOut, "deadline has elapsed"), "no connection within 5 s"),
            (found, "no connection: failed to lookup address information"),
        ] {
            assert_eq!(connects(error).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn answers_and_timeouts_are_not_connection_failures() {
        assert_eq!(unanswered(&Status::unknown("any message")), None);
        assert_eq!(explained(TimeoutExpired(())), None);
    }
}
