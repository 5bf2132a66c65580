//! What an answer means for the repetition of its call.

use std::{error::Error, iter};

use cloud_api_proto::{AdapterError, Reason};
use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use tonic::{Code, ConnectError, Status, TimeoutExpired, body::Body};

/// What came back, or why nothing did.
pub(crate) type Answer = Result<Response<Body>, Box<dyn Error + Send + Sync>>;

/// More than gRPC's own limit of a message, which the client keeps: 4 MiB and what is around it.
const LONGEST_ANSWER: usize = 5 * 1024 * 1024;

/// Whether a call is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This is what the caller is told.
    Final,
    /// It was not carried out here.
    Elsewhere,
    /// It may have been carried out, and the answer is lost.
    Broken,
}

/// Takes the answer of a unary call in to its end. An error that came after the headers becomes one that came with them.
pub(super) async fn whole(answer: Response<Body>) -> Answer {
    let (mut parts, body) = answer.into_parts();
    let collected = match Limited::new(body, LONGEST_ANSWER).collect().await {
        Ok(collected) => collected,
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(Box::new(Status::out_of_range("the answer is longer than 5 MiB")));
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

/// What this answer means.
pub(super) fn judge(answer: &Answer) -> Verdict {
    match answer {
        Ok(answer) => judge_headers(answer.headers()),
        Err(error) => judge_error(error.as_ref()),
    }
}

/// An error without a message comes in the headers alone. Source: gRPC over HTTP/2, `Trailers-Only`.
fn judge_headers(headers: &HeaderMap) -> Verdict {
    let Some(status) = Status::from_header_map(headers) else { return Verdict::Final };
    let reason = AdapterError::from(&status).reason;
    // An adapter gives a reason; who gives none stands between us and it.
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
    // A status without a cause is our own judgement.
    let ours = error.is::<Status>() && error.source().is_none();
    if ours { Verdict::Final } else { Verdict::Broken }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn answered(status: Status) -> Answer {
        let answer = status.into_http::<Body>();
        Ok(answer)
    }

    #[test]
    fn only_who_does_not_serve_is_left_for_another() {
        let reason = |reason| answered(AdapterError::new(reason, "why").into());
        for (name, answer, verdict) in [
            ("stands by", reason(Reason::NotLeader), Verdict::Elsewhere),
            ("starts", reason(Reason::Starting), Verdict::Elsewhere),
            ("stops", reason(Reason::Draining), Verdict::Elsewhere),
            ("a proxy's word", answered(Status::unavailable("no upstream")), Verdict::Elsewhere),
            ("the vendor is away", reason(Reason::VendorUnavailable), Verdict::Final),
            ("outcome unknown", reason(Reason::OutcomeUnknown), Verdict::Final),
            ("not let in", reason(Reason::CallerUnauthenticated), Verdict::Final),
            ("queue full", reason(Reason::QueueFull), Verdict::Final),
            ("success", Ok(Response::new(Body::empty())), Verdict::Final),
        ] {
            assert_eq!(judge(&answer), verdict, "{name}");
        }
    }

    #[test]
    fn a_connection_that_never_was_and_one_that_broke_differ() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let broke = Status::from_error(Box::new(io::Error::from(io::ErrorKind::BrokenPipe)));
        for (name, error, verdict) in [
            (
                "refused",
                Box::new(ConnectError(Box::new(refused()))) as Box<dyn Error + Send + Sync>,
                Verdict::Elsewhere,
            ),
            ("broke", Box::new(io::Error::from(io::ErrorKind::BrokenPipe)), Verdict::Broken),
            ("broke in the message", Box::new(broke), Verdict::Broken),
            ("replaced", Box::new(super::super::Replaced), Verdict::Broken),
            ("took too long", Box::new(TimeoutExpired(())), Verdict::Final),
            ("too long a message", Box::new(Status::out_of_range("5 MiB")), Verdict::Final),
        ] {
            assert_eq!(judge(&Err(error)), verdict, "{name}");
        }
    }
}
