//! Maps the answers of the services to the runtime's faults, by their status and by error codes and texts in the body.
//!
//! A wrong mapping could make rejected credentials look like the absence of an instance, and the controller deletes the nodes of absent
//! instances.

mod body;
#[cfg(test)]
mod tests;

use std::time::Duration;

use cloud_adapter::{
    driver::{Fault, VendorError},
    kit::{fault_of_status, retry_after},
    vendor::{Family, Operation, VendorResponse},
};
use http::StatusCode;

use self::body::Refusal;

/// The headers in which services return the request ID. Operators of clouds ask users for this ID. Nova's own header dates from before
/// 2014.
const REQUEST_IDS: [&str; 3] = ["x-openstack-request-id", "x-compute-request-id", "x-request-id"];
/// Text with which all four services answer a request for a wrong path.
const NO_SUCH_PATH: &str = "The resource could not be found";

/// Octavia's texts for a port or an address that is already in use.
const TAKEN: [&str; 3] = ["is already using", "already exists", "IP address is already in use"];
/// Neutron's error code if no router connects the load balancer's subnet with the network of a floating IP.
const UNREACHABLE: &str = "ExternalGatewayForFloatingIPNotFound";
/// Neutron's text for a port that would be in both a stateful and a stateless security group.
const OTHER_KIND: &str = "Cannot apply both stateful and stateless";

/// Returns the fault of an answer, or `None` for success.
pub(crate) fn classify(operation: Operation, response: &VendorResponse) -> Option<VendorError> {
    let status = response.status();
    if status.is_success() {
        return None;
    }
    let mut refusal = Refusal::read(response);
    let retry_after = retry_after(response.headers()).or(refusal.retry_after);
    let fault = if status == StatusCode::PAYLOAD_TOO_LARGE {
        fault_of_413(operation, retry_after, &mut refusal)
    } else {
        fault(operation, status, &refusal)
    };
    Some(VendorError {
        request_id: request_id(response),
        retry_after,
        code: refusal.code,
        ..VendorError::new(fault, format!("{operation}: {}", refusal.message))
    })
}

/// Nova limits rates with status 413 and a delay, and the Nova of some providers still does so (source: Compute API v2, «Rate limits»).
/// Without a delay, status 413 of any service means that the request is too large (source: oslo.middleware, `sizelimit`). A retry would
/// then fail in the same way.
fn fault_of_413(operation: Operation, retry_after: Option<Duration>, refusal: &mut Refusal) -> Fault {
    if operation.family == Family::Compute && retry_after.is_some() {
        return Fault::Throttled;
    }
    refusal.message = format!("the request is too large: {}", refusal.message);
    Fault::Invalid
}

pub(crate) fn request_id(response: &VendorResponse) -> Option<String> {
    let named = REQUEST_IDS.iter().find_map(|name| response.headers().get(*name));
    named?.to_str().ok().map(str::to_owned)
}

/// Returns the fault of an unsuccessful answer. The status determines the fault if it is unambiguous. Otherwise the body does.
fn fault(operation: Operation, status: StatusCode, refusal: &Refusal) -> Fault {
    match status.as_u16() {
        400 if out_of_room(refusal) => Fault::Quota,
        403 if is_quota(refusal) => Fault::Quota,
        // Keystone also answers 404 for a revoked application credential, trust or token. The driver asks Keystone for no other objects, so
        // 404 always means rejected credentials.
        404 if is_absence(refusal) && operation.family == Family::Identity => Fault::Auth,
        // In Neutron, no router connects the subnet with the network of the floating IP. Retrying does not help.
        404 if refusal.code.as_deref() == Some(UNREACHABLE) => Fault::Invalid,
        404 if is_absence(refusal) || is_absence_by_type(operation, refusal) => Fault::NotFound,
        // Nova does not support the requested microversion.
        406 => Fault::Unsupported,
        409 if is_quota(refusal) || out_of_room(refusal) => Fault::Quota,
        // Another client created the same rule first. The next read shows this rule.
        409 if refusal.code.as_deref() == Some("SecurityGroupRuleExists") => Fault::Busy,
        // The user has to choose other security groups.
        409 if refusal.says(OTHER_KIND) => Fault::Invalid,
        // In Octavia, another listener already uses the port, or another port uses the address. Retrying does not help.
        409 if TAKEN.iter().any(|words| refusal.says(words)) => Fault::Invalid,
        // In Neutron, 412 means that the object changed since it was read.
        412 | 423 => Fault::Busy,
        // Octavia reports Neutron's refusal as a failure of Octavia, but nothing was created.
        500 if refusal.is_ours() && refusal.says("reports error: BadRequestException: 400") => Fault::Invalid,
        // The address is in use, or a quota is exceeded. The answer does not say which of the two.
        500 if refusal.is_ours() && refusal.says("reports error: ConflictException: 409") => Fault::Quota,
        _ => fault_of_status(operation, status),
    }
}

/// Whether the answer proves that an object is absent. Only the service's text about an object is proof; the text about an unknown path is
/// not.
fn is_absence(refusal: &Refusal) -> bool {
    let named =
        refusal.says("could not be found") || refusal.says("not found") || refusal.says("Could not find");
    refusal.is_ours() && named && !refusal.says(NO_SUCH_PATH)
}

/// Decides like [`is_absence`], but by Neutron's error type. The texts differ by object, such as "Security group rule 1 does not exist",
/// but each error type for an absent object ends in `NotFound`.
fn is_absence_by_type(operation: Operation, refusal: &Refusal) -> bool {
    let typed = refusal.code.as_deref().is_some_and(|code| code.ends_with("NotFound"));
    operation.family == Family::Network && refusal.is_ours() && typed && !refusal.says(NO_SUCH_PATH)
}

/// Returns whether a quota is exceeded. Neutron reports this by an error type, Octavia and Nova only by text.
fn is_quota(refusal: &Refusal) -> bool {
    refusal.code.as_deref() == Some("OverQuota")
        || refusal.says("Quota has been met")
        || refusal.says("Quota exceeded")
}

/// Whether a list of address pairs, a pool of addresses or a route table is full.
fn out_of_room(refusal: &Refusal) -> bool {
    const FULL: [&str; 5] = [
        "AllowedAddressPairExhausted",
        "ExternalIpAddressExhausted",
        "IpAddressGenerationFailure",
        "RoutesExhausted",
        "SubnetAllocationQuotaExceeded",
    ];
    refusal.code.as_deref().is_some_and(|code| FULL.contains(&code))
}
