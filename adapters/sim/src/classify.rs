//! Classifies the cloud's responses: one table from status and code to the faults of the runtime.

#[cfg(test)]
mod tests;

use std::time::Duration;

use cloud_adapter::{
    driver::{Fault, VendorError},
    vendor::{Operation, VendorResponse},
};
use http::{HeaderMap, StatusCode, header};
use jiff::{Timestamp, fmt::rfc2822};
use serde::Deserialize;

use crate::simcloud::requests::ItemError;

/// Maximum characters that a message quotes of a response that is not JSON.
const EXCERPT: usize = 120;

/// The known part of an error response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    code: Option<String>,
    message: Option<String>,
    request_id: Option<String>,
}

/// The error of a response: `None` for success.
pub(crate) fn classify(operation: Operation, response: &VendorResponse) -> Option<VendorError> {
    let status = response.status();
    if status.is_success() {
        return None;
    }
    let refusal: Refusal = serde_json::from_slice(response.body()).unwrap_or_default();
    let header_id = response.headers().get("x-request-id").and_then(|value| value.to_str().ok());
    let message = refusal.message.unwrap_or_else(|| excerpt(response));
    let fault = fault(operation, status, refusal.code.as_deref());
    Some(VendorError {
        request_id: header_id.map(str::to_owned).or(refusal.request_id),
        code: refusal.code,
        retry_after: retry_after(response.headers()),
        ..VendorError::new(fault, format!("{operation}: {message}"))
    })
}

/// The error of one item in a batch that succeeded as a whole.
pub(crate) fn classify_item(operation: Operation, item: ItemError) -> VendorError {
    let ItemError { code, message, .. } = item;
    let fault = by_code(&code).unwrap_or(Fault::Invalid);
    let mut error = VendorError::new(fault, format!("{operation}: {message}"));
    error.code = Some(code);
    error
}

/// Decides by the HTTP status where it is unambiguous, otherwise by the error code.
fn fault(operation: Operation, status: StatusCode, code: Option<&str>) -> Fault {
    match (status.as_u16(), code.and_then(by_code)) {
        (401, _) => Fault::Auth,
        (403, Some(Fault::Quota)) => Fault::Quota,
        (403, _) => Fault::Forbidden,
        // A wrong endpoint answers 404 to everything: only the cloud's own code proves absence.
        (404, Some(Fault::NotFound)) => Fault::NotFound,
        (404, _) => Fault::Nonsense,
        (409, Some(meaning)) => meaning,
        // The cause of the conflict may disappear.
        (409, None) => Fault::Busy,
        (429, _) => Fault::Throttled,
        (501, _) => Fault::Unsupported,
        // A proxy may have sent this response, and it may not know whether the call was executed.
        (408 | 500..=599, _) if operation.write => Fault::OutcomeUnknown,
        (408 | 500..=599, _) => Fault::Unavailable,
        (400..=499, _) => Fault::Invalid,
        _ => Fault::Nonsense,
    }
}

/// Maps the cloud's error codes. Source: the table in the README.
fn by_code(code: &str) -> Option<Fault> {
    Some(match code {
        "unauthorized" => Fault::Auth,
        "quota_exceeded" => Fault::Quota,
        "throttled" => Fault::Throttled,
        "not_found" => Fault::NotFound,
        // `immutable` means that the load balancer cannot be changed until the last change is complete.
        "immutable" => Fault::Busy,
        // The driver made this call only because reads lag: the next read shows the cause.
        "error_state" | "has_children" | "in_use" | "port_in_use" | "route_exists" => Fault::Busy,
        // A load balancer with this client token exists, but reads do not show it yet.
        "token_reused" => Fault::Busy,
        "invalid_request" | "invalid_next_hop" | "too_many_items" | "address_in_use" => Fault::Invalid,
        _ => return None,
    })
}

/// Reads `Retry-After`: seconds, or a date, relative to the `Date` of the response. Source: RFC 9110, 10.2.3.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let answered = date(headers.get(header::DATE)?.to_str().ok()?)?;
    let wait = date(text)?.duration_since(answered);
    Some(Duration::try_from(wait).unwrap_or_default())
}

fn date(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

fn excerpt(response: &VendorResponse) -> String {
    let text = String::from_utf8_lossy(response.body());
    let text: String = text.trim().chars().take(EXCERPT).collect();
    let status = response.status();
    if text.is_empty() { format!("{status}") } else { format!("{status}: {text}") }
}
