//! Logs vendor calls. Each write is one line of the target `audit`, which shows, for example, the caller that deleted a load balancer.
//! Reads are logged at a lower level. The log contains only those parts of requests that hold no secrets, and no bodies of answers.

use http::{HeaderMap, header};

use super::error::{Fault, VendorError, shown};
use super::{Operation, VendorRequest, job::Job};

/// Headers that contain no secrets at any vendor.
const LOGGED_HEADERS: [header::HeaderName; 4] =
    [header::ACCEPT, header::CONTENT_LENGTH, header::CONTENT_TYPE, header::USER_AGENT];

/// Logs a request before it is sent. The query is left out, because some vendors put signatures there.
pub(super) fn request(operation: Operation, request: &VendorRequest) {
    let (method, path) = (request.method(), request.uri().path());
    let headers = logged_headers(request.headers());
    tracing::trace!(call = operation.name, %method, path, ?headers, "Vendor request");
}

/// Logs an answered request. `vendor_request_id` is the vendor's ID of the request.
pub(super) fn answer(job: &Job, code: u16, error: Option<&VendorError>, vendor_request_id: Option<&str>) {
    let Operation { family, name, write } = job.operation;
    let (request_id, vendor_request_id) = (shown(&job.purpose.request_id), vendor_request_id.map(shown));
    if !write {
        match error {
            None => tracing::debug!(%family, call = name, code, request_id, "Read through the vendor's API"),
            Some(error) => {
                tracing::debug!(%family, call = name, code, request_id, %error, "Cannot read through the vendor's API");
            }
        }
        return;
    }
    let caller = &job.purpose.caller;
    tracing::info!(
        target: "audit",
        who = &*caller.subject,
        role = caller.role.word(),
        object = &*job.purpose.object,
        %family,
        call = name,
        request_id,
        vendor_request_id,
        code,
        outcome = outcome(error),
        cost = 1,
        "Wrote through the vendor's API"
    );
    if let Some(error) = error {
        tracing::warn!(%family, call = name, code, request_id, %error, "Cannot write through the vendor's API");
    }
}

/// Returns a short name of the call's object. For `Service shop/web (UID)`, the name is `shop/web`; for other objects, it is the whole
/// text.
pub(crate) fn object(about: &str) -> Option<&str> {
    let name = about.strip_prefix("Service ").and_then(|rest| rest.split_once(" (")).map(|(name, _uid)| name);
    Some(name.unwrap_or(about)).filter(|name| !name.is_empty())
}

fn outcome(error: Option<&VendorError>) -> &'static str {
    match error.map(|error| error.fault) {
        None => "accepted",
        Some(Fault::OutcomeUnknown) => "unknown",
        Some(_refused) => "refused",
    }
}

fn logged_headers(headers: &HeaderMap) -> Vec<(&header::HeaderName, &header::HeaderValue)> {
    headers.iter().filter(|(name, _)| LOGGED_HEADERS.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_object_is_the_service_name() {
        assert_eq!(object("Service shop/web (6f1c)"), Some("shop/web"));
        assert_eq!(object("routes"), Some("routes"));
        assert_eq!(object("Service without UID"), Some("Service without UID"));
        assert_eq!(object(""), None);
    }
}
