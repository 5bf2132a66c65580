//! Responses of the vendor's API.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use jiff::{Timestamp, fmt::rfc2822};
use serde::de::DeserializeOwned;

use crate::{
    driver::{Fault, VendorError},
    vendor::{Operation, VendorResponse},
};

/// Maximum number of characters of a body that are copied into a message.
const EXCERPT: usize = 120;

/// Parses the body of a successful answer.
pub fn parse<T: DeserializeOwned>(operation: Operation, answer: &VendorResponse) -> Result<T, VendorError> {
    serde_json::from_slice(answer.body())
        .map_err(|error| VendorError::nonsense(format!("{operation}: cannot parse the answer: {error}")))
}

/// Returns the status and the beginning of the body, for a message about an answer of unknown form.
pub fn excerpt(answer: &VendorResponse) -> String {
    let text = String::from_utf8_lossy(answer.body());
    let text: String = text.trim().chars().take(EXCERPT).collect();
    let status = answer.status();
    if text.is_empty() { format!("{status}") } else { format!("{status}: {text}") }
}

/// Returns the fault of an unsuccessful answer by its status alone. A driver should first use the vendor's own error codes.
pub fn fault_of_status(operation: Operation, status: StatusCode) -> Fault {
    match status.as_u16() {
        401 => Fault::Auth,
        403 => Fault::Forbidden,
        // A wrong endpoint, where the API is not served, answers 404 to every path. Only the vendor's own code in the body proves that an
        // object is absent.
        404 => Fault::Nonsense,
        409 => Fault::Busy,
        429 => Fault::Throttled,
        501 => Fault::Unsupported,
        // The answer may come from a proxy that does not know whether the vendor has executed the request.
        408 | 500..=599 if operation.write => Fault::OutcomeUnknown,
        408 | 500..=599 => Fault::Unavailable,
        400..=499 => Fault::Invalid,
        _ => Fault::Nonsense,
    }
}

/// Reads `Retry-After`: a number of seconds, or a date, which is compared with the `Date` of the answer. Some services add a prefix to the
/// header's name. Source: RFC 9110, 10.2.3.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let named = headers.iter().find(|(name, _)| name.as_str().ends_with("retry-after"));
    let text = named?.1.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let answered = date(headers.get(header::DATE)?.to_str().ok()?)?;
    Some(Duration::try_from(date(text)?.duration_since(answered)).unwrap_or_default())
}

fn date(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::Family;

    const READ: Operation = Operation::read(Family::Compute, "Read");
    const WRITE: Operation = Operation::write(Family::LoadBalancer, "Write");

    #[test]
    fn each_status_has_its_meaning() {
        for (operation, status, wanted) in [
            (READ, 401, Fault::Auth),
            (READ, 403, Fault::Forbidden),
            (READ, 404, Fault::Nonsense),
            (WRITE, 409, Fault::Busy),
            (WRITE, 429, Fault::Throttled),
            (READ, 501, Fault::Unsupported),
            (READ, 408, Fault::Unavailable),
            (WRITE, 408, Fault::OutcomeUnknown),
            (READ, 503, Fault::Unavailable),
            (WRITE, 503, Fault::OutcomeUnknown),
            (WRITE, 400, Fault::Invalid),
            (READ, 302, Fault::Nonsense),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(fault_of_status(operation, status), wanted, "{operation} {status}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let read = |name: &'static str, value: &'static str| {
            let answer = http::Response::builder()
                .header(header::DATE, "Fri, 31 Dec 1999 23:59:00 GMT")
                .header(name, value);
            retry_after(answer.body(()).expect("an answer").headers()).map(|wait| wait.as_secs())
        };
        assert_eq!(read("retry-after", " 7 "), Some(7));
        assert_eq!(read("x-compute-retry-after", "7"), Some(7));
        assert_eq!(read("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT"), Some(59));
        assert_eq!(read("retry-after", "Fri, 31 Dec 1999 23:58:59 GMT"), Some(0));
        assert_eq!(read("retry-after", "soon"), None);
        assert_eq!(read("retries", "7"), None);
        let undated = HeaderMap::from_iter([(
            header::RETRY_AFTER,
            header::HeaderValue::from_static("Fri, 31 Dec 1999 23:59:59 GMT"),
        )]);
        assert_eq!(retry_after(&undated), None, "compared with nothing");
    }

    #[test]
    fn excerpt_begins_with_the_status_and_is_short() {
        let answer = |body: &str| {
            let answer = http::Response::builder().status(502).body(body.to_owned().into());
            excerpt(&answer.expect("an answer"))
        };
        assert_eq!(answer(""), "502 Bad Gateway");
        assert_eq!(answer(" no\n"), "502 Bad Gateway: no");
        assert_eq!(answer(&"x".repeat(500)).len(), "502 Bad Gateway: ".len() + EXCERPT);
    }
}
