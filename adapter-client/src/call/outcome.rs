//! Decides from the answer whether a call is repeated.

use std::{error::Error, iter};

use cloud_api_proto::{AdapterError, Reason};
use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use tonic::{Code, ConnectError, Status, TimeoutExpired, body::Body};

/// The answer, or the reason why there is no answer.
pub(crate) type Outcome = Result<Response<Body>, Box<dyn Error + Send + Sync>>;

/// Limit for an answer: the gRPC limit of a message (4 MiB), which the client enforces, plus room for framing.
const LONGEST_ANSWER: usize = 5 * 1024 * 1024;

/// Whether a call is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The answer is final and returned to the caller.
    Final,
    /// This replica did not carry out the call, so the call is repeated.
    Elsewhere,
    /// The call may have been carried out, but its answer is lost.
    Broken,
}

/// Reads the answer to a unary call completely. Turns an error in the trailers into an error in the headers.
pub(super) async fn whole(answer: Response<Body>) -> Outcome {
    let (mut parts, body) = answer.into_parts();
    let collected = match Limited::new(body, LONGEST_ANSWER).collect().await {
        Ok(collected) => collected,
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(Box::new(Status::out_of_range("the response is longer than 5 MiB")));
        }
        Err(error) => return Err(error),
    };
    let trailers = collected.trailers().cloned();
    let message = collected.to_bytes();
    if message.is_empty() {
        parts.headers.extend(trailers.unwrap_or_default());
        return Ok(Response::from_parts(parts, Body::empty()));
    }
    let body = Full::new(message).with_trailers(async move { trailers.map(Ok) });
    Ok(Response::from_parts(parts, Body::new(body)))
}

pub(super) fn judge(answer: &Outcome) -> Verdict {
    match answer {
        Ok(answer) => judge_headers(answer.headers()),
        Err(error) => judge_error(error.as_ref()),
    }
}

/// Whether the adapter leads and is starting. Its message names what it waits for.
pub(super) fn is_starting(answer: &Outcome) -> bool {
    let status = answer.as_ref().ok().and_then(|answer| Status::from_header_map(answer.headers()));
    status.is_some_and(|status| AdapterError::from(&status).reason == Reason::Starting)
}

/// Classifies an answer by its headers. An error without a message consists of headers only. Source: gRPC over HTTP/2, `Trailers-Only`.
fn judge_headers(headers: &HeaderMap) -> Verdict {
    let Some(status) = Status::from_header_map(headers) else { return Verdict::Final };
    let reason = AdapterError::from(&status).reason;
    // An adapter always gives a reason, so an error without a reason comes from a proxy in between.
    let unexplained = status.code() == Code::Unavailable && status.details().is_empty();
    if unexplained || matches!(reason, Reason::NotLeader | Reason::Starting | Reason::Draining) {
        Verdict::Elsewhere
    } else {
        Verdict::Final
    }
}

fn judge_error(error: &(dyn Error + 'static)) -> Verdict {
    let causes = || iter::successors(Some(error), |cause: &&(dyn Error + 'static)| (*cause).source());
    if causes().any(|cause| cause.is::<TimeoutExpired>()) {
        return Verdict::Final;
    }
    if causes().any(|cause| cause.is::<ConnectError>()) {
        return Verdict::Elsewhere;
    }
    // A status without a cause was created by this client.
    let ours = error.is::<Status>() && error.source().is_none();
    if ours { Verdict::Final } else { Verdict::Broken }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn answered(status: Status) -> Outcome {
        let answer = status.into_http::<Body>();
        Ok(answer)
    }

    #[test]
    fn only_calls_not_carried_out_here_move_to_another_replica() {
        let reason = |reason| answered(AdapterError::new(reason, "why").into());
        for (name, answer, verdict) in [
            ("standby", reason(Reason::NotLeader), Verdict::Elsewhere),
            ("starts", reason(Reason::Starting), Verdict::Elsewhere),
            ("stops", reason(Reason::Draining), Verdict::Elsewhere),
            ("error of a proxy", answered(Status::unavailable("no upstream")), Verdict::Elsewhere),
            ("the vendor is not reachable", reason(Reason::VendorUnavailable), Verdict::Final),
            ("outcome unknown", reason(Reason::OutcomeUnknown), Verdict::Final),
            ("refused by authorisation", reason(Reason::CallerUnauthenticated), Verdict::Final),
            ("queue full", reason(Reason::QueueFull), Verdict::Final),
            ("success", Ok(Response::new(Body::empty())), Verdict::Final),
        ] {
            assert_eq!(judge(&answer), verdict, "{name}");
        }
    }

    #[test]
    fn failed_and_broken_connections_differ() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let broke = Status::from_error(Box::new(io::Error::from(io::ErrorKind::BrokenPipe)));
        for (name, error, verdict) in [
            (
                "refused",
                Box::new(ConnectError(Box::new(refused()))) as Box<dyn Error + Send + Sync>,
                Verdict::Elsewhere,
            ),
            ("broke", Box::new(io::Error::from(io::ErrorKind::BrokenPipe)), Verdict::Broken),
            ("connection broke during the message", Box::new(broke), Verdict::Broken),
            ("replaced", Box::new(crate::failure::Replaced), Verdict::Broken),
            ("timeout", Box::new(TimeoutExpired(())), Verdict::Final),
            ("message too long", Box::new(Status::out_of_range("5 MiB")), Verdict::Final),
        ] {
            assert_eq!(judge(&Err(error)), verdict, "{name}");
        }
    }
}
