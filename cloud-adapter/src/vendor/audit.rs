//! What the log hears of vendor calls. A write is one line of the target `audit`: enough to answer who deleted this load
//! balancer. A read is told by who needs it. Of requests only what is harmless is shown, and of answers no body.

use http::{HeaderMap, header};

use super::{Operation, VendorRequest, flight::Job};
use crate::driver::{Fault, VendorError, shown};

/// Headers that hold no secrets at any vendor.
const HARMLESS: [header::HeaderName; 4] =
    [header::ACCEPT, header::CONTENT_LENGTH, header::CONTENT_TYPE, header::USER_AGENT];

/// A request is about to be sent. The query is left out: some vendors sign there.
pub(super) fn request(operation: Operation, request: &VendorRequest) {
    let (method, path) = (request.method(), request.uri().path());
    let headers = harmless(request.headers());
    tracing::trace!(call = operation.name, %method, path, ?headers, "Vendor request");
}

/// A request was answered. `vendor_request_id`: the vendor's own name for it.
pub(super) fn answer(job: &Job, code: u16, error: Option<&VendorError>, vendor_request_id: Option<&str>) {
    let Operation { family, name, write } = job.operation;
    let (request_id, vendor_request_id) = (shown(&job.purpose.request_id), vendor_request_id.map(shown));
    if !write {
        match error {
            None => tracing::debug!(%family, call = name, code, request_id, "Vendor read"),
            Some(error) => {
                tracing::debug!(%family, call = name, code, request_id, %error, "Vendor read failed");
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
        "Vendor write"
    );
    if let Some(error) = error {
        tracing::warn!(%family, call = name, code, request_id, %error, "Vendor write failed");
    }
}

/// What a call was about, as people call it: of `Service shop/web (UID)` the name, of anything else all of it.
pub(crate) fn object(about: &str) -> Option<&str> {
    let name = about.strip_prefix("Service ").and_then(|rest| rest.split_once(" (")).map(|(name, _uid)| name);
    Some(name.unwrap_or(about)).filter(|name| !name.is_empty())
}

/// What became of a write.
fn outcome(error: Option<&VendorError>) -> &'static str {
    match error.map(|error| error.fault) {
        None => "accepted",
        Some(Fault::OutcomeUnknown) => "unknown",
        Some(_refused) => "refused",
    }
}

fn harmless(headers: &HeaderMap) -> Vec<(&header::HeaderName, &header::HeaderValue)> {
    headers.iter().filter(|(name, _)| HARMLESS.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_called_by_its_name_and_all_else_as_it_is() {
        assert_eq!(object("Service shop/web (6f1c)"), Some("shop/web"));
        assert_eq!(object("routes"), Some("routes"));
        assert_eq!(object("Service of nobody"), Some("Service of nobody"));
        assert_eq!(object(""), None);
    }
}
