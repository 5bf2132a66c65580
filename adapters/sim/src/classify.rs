//! Classifies the cloud's responses. One table maps status and code to the faults of the runtime.

#[cfg(test)]
mod tests;

use cloud_adapter::{
    driver::{Fault, VendorError},
    kit::{excerpt, fault_of_status, retry_after},
    vendor::{Operation, VendorResponse},
};
use http::StatusCode;
use serde::Deserialize;

use crate::simcloud::requests::ItemError;

/// The error code for a requested address that another load balancer has.
const ADDRESS_IN_USE: &str = "address_in_use";
/// The field that requests the address.
const ADDRESSES: &str = "spec.requested_addresses";

/// The known part of an error response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    code: Option<String>,
    message: Option<String>,
    request_id: Option<String>,
}

/// Returns the error of a response. `None`: the response is a success.
pub(crate) fn classify(operation: Operation, response: &VendorResponse) -> Option<VendorError> {
    let status = response.status();
    if status.is_success() {
        return None;
    }
    let refusal: Refusal = serde_json::from_slice(response.body()).unwrap_or_default();
    let header_id = response.headers().get("x-request-id").and_then(|value| value.to_str().ok());
    let message = refusal.message.unwrap_or_else(|| excerpt(response));
    let fault = fault(operation, status, refusal.code.as_deref());
    let is_taken = refusal.code.as_deref() == Some(ADDRESS_IN_USE);
    let (fields, fix) = if is_taken {
        (vec![ADDRESSES.to_owned()], ": choose another address, or remove it")
    } else {
        (Vec::new(), "")
    };
    Some(VendorError {
        fields,
        request_id: header_id.map(str::to_owned).or(refusal.request_id),
        code: refusal.code,
        retry_after: retry_after(response.headers()),
        ..VendorError::new(fault, format!("{operation}: {message}{fix}"))
    })
}

/// Returns the error of one item in a batch that succeeded as a whole.
pub(crate) fn classify_item(operation: Operation, item: ItemError) -> VendorError {
    let ItemError { code, message, .. } = item;
    let fault = by_code(&code).unwrap_or(Fault::Invalid);
    let mut error = VendorError::new(fault, format!("{operation}: {message}"));
    error.code = Some(code);
    error
}

/// Returns the fault. The HTTP status decides if it is unambiguous; otherwise the error code decides.
fn fault(operation: Operation, status: StatusCode, code: Option<&str>) -> Fault {
    match (status.as_u16(), code.and_then(by_code)) {
        (403, Some(Fault::Quota)) => Fault::Quota,
        (404, Some(Fault::NotFound)) => Fault::NotFound,
        (409, Some(meaning)) => meaning,
        _ => fault_of_status(operation, status),
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
        // The driver made this call only because its reads lag. The next read shows why the cloud refused the call.
        "error_state" | "has_children" | "in_use" | "port_in_use" | "route_exists" => Fault::Busy,
        // A load balancer with this client token exists, but reads do not show it yet.
        "token_reused" => Fault::Busy,
        "invalid_request" | "invalid_next_hop" | "too_many_items" | ADDRESS_IN_USE => Fault::Invalid,
        _ => return None,
    })
}
