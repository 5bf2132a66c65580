//! Maps the cloud's answers to the runtime's faults, by status and error code.
//!
//! To be completed with the cloud's own error codes, each with a recorded answer as its test. A wrong row could make rejected credentials
//! look like the absence of an instance, and the controller deletes the nodes of absent instances.

use std::time::Duration;

use cloud_adapter::{
    driver::{Fault, VendorError},
    vendor::{Operation, VendorResponse},
};
use http::{HeaderMap, StatusCode, header};

/// Maximum number of characters of an answer that are copied into the message.
const EXCERPT: usize = 120;

/// Returns the fault of an answer, or `None` for success.
pub(crate) fn classify(operation: Operation, response: &VendorResponse) -> Option<VendorError> {
    let status = response.status();
    if status.is_success() {
        return None;
    }
    let text = String::from_utf8_lossy(response.body());
    let text: String = text.trim().chars().take(EXCERPT).collect();
    let fault = fault(operation, status);
    let error = VendorError::new(fault, format!("{operation}: {status}: {text}"));
    Some(VendorError { retry_after: retry_after(response.headers()), ..error })
}

fn fault(operation: Operation, status: StatusCode) -> Fault {
    match status.as_u16() {
        401 => Fault::Auth,
        403 => Fault::Forbidden,
        // A wrong endpoint, where the API is not served, answers 404 to every path. Only the cloud's own code in the body proves that an
        // object is absent.
        404 => Fault::Nonsense,
        409 => Fault::Busy,
        429 => Fault::Throttled,
        501 => Fault::Unsupported,
        // The answer may come from a proxy that does not know whether the cloud has executed the request.
        408 | 500..=599 if operation.write => Fault::OutcomeUnknown,
        408 | 500..=599 => Fault::Unavailable,
        400..=499 => Fault::Invalid,
        _ => Fault::Nonsense,
    }
}

/// Reads `Retry-After` in seconds. Source: RFC 9110, 10.2.3.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use cloud_adapter::vendor::Family;

    use super::*;

    const READ: Operation = Operation::read(Family::Compute, "Read");
    const WRITE: Operation = Operation::write(Family::LoadBalancer, "Write");

    fn answer(status: u16) -> VendorResponse {
        let answer = http::Response::builder().status(status).header(header::RETRY_AFTER, "7");
        answer.body("no".into()).expect("a valid answer")
    }

    #[test]
    fn each_status_has_its_meaning() {
        assert_eq!(classify(READ, &answer(200)), None);
        for (operation, status, wanted) in [
            (READ, 401, Fault::Auth),
            (READ, 403, Fault::Forbidden),
            (READ, 404, Fault::Nonsense),
            (WRITE, 409, Fault::Busy),
            (WRITE, 429, Fault::Throttled),
            (READ, 503, Fault::Unavailable),
            (WRITE, 503, Fault::OutcomeUnknown),
            (WRITE, 400, Fault::Invalid),
            (READ, 302, Fault::Nonsense),
        ] {
            let error = classify(operation, &answer(status)).expect("the answer is an error");
            assert_eq!((error.fault, error.retry_after), (wanted, Some(Duration::from_secs(7))), "{status}");
        }
    }
}
