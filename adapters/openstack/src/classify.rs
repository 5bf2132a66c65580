//! What answers mean: one table from status, and what the services write into the body, to the runtime's faults. Decides nothing else.
//!
//! A wrong row turns rejected credentials into absence, and absence deletes nodes.

mod body;
#[cfg(test)]
mod tests;

use std::time::Duration;

use cloud_adapter::{
    driver::{Fault, VendorError},
    vendor::{Family, Operation, VendorResponse},
};
use http::{HeaderMap, StatusCode, header};
use jiff::{Timestamp, fmt::rfc2822};

use self::body::Refusal;

/// Where services name the request; operators are asked for it. Nova's own one is of before 2014.
const REQUEST_IDS: [&str; 3] = ["x-openstack-request-id", "x-compute-request-id", "x-request-id"];
/// What a wrong path is answered with, by all four services alike.
const NO_SUCH_PATH: &str = "The resource could not be found";

/// What Octavia says of a port or address that somebody has.
const TAKEN: [&str; 3] = ["is already using", "already exists", "IP address is already in use"];
/// What Neutron calls it that no router of the load balancer's subnet leads to the network of a floating IP.
const UNREACHABLE: &str = "ExternalGatewayForFloatingIPNotFound";
/// What Neutron says of a port that is in a group of the other kind.
const OTHER_KIND: &str = "Cannot apply both stateful and stateless";

/// What an answer means: `None` for success.
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

/// Nova limits rates with 413 and names a delay, as some providers' Nova does to this day (source: Compute API v2, «Rate limits»). All
/// services mean the size of the request by it where no delay is named (source: oslo.middleware, `sizelimit`), and the same request
/// is too large again.
fn fault_of_413(operation: Operation, retry_after: Option<Duration>, refusal: &mut Refusal) -> Fault {
    if operation.family == Family::Compute && retry_after.is_some() {
        return Fault::Throttled;
    }
    refusal.message = format!("the request is too large: {}", refusal.message);
    Fault::Invalid
}

/// The service's own name for the request.
pub(crate) fn request_id(response: &VendorResponse) -> Option<String> {
    let named = REQUEST_IDS.iter().find_map(|name| response.headers().get(*name));
    named?.to_str().ok().map(str::to_owned)
}

/// The status decides where it is clear, the body where it is not.
fn fault(operation: Operation, status: StatusCode, refusal: &Refusal) -> Fault {
    match status.as_u16() {
        400 if out_of_room(refusal) => Fault::Quota,
        401 => Fault::Auth,
        403 if is_quota(refusal) => Fault::Quota,
        403 => Fault::Forbidden,
        // Keystone does not find an application credential, a trust or a token that was taken back: nothing else is asked of it.
        404 if is_absence(refusal) && operation.family == Family::Identity => Fault::Auth,
        // Neutron: a floating IP is from a network that the router does not reach. Waiting does not help.
        404 if refusal.code.as_deref() == Some(UNREACHABLE) => Fault::Invalid,
        404 if is_absence(refusal) || is_absence_by_type(operation, refusal) => Fault::NotFound,
        // An address that is not the service's answers 404 to everything.
        404 => Fault::Nonsense,
        // 406: Nova does not know the microversion.
        406 | 501 => Fault::Unsupported,
        409 if is_quota(refusal) || out_of_room(refusal) => Fault::Quota,
        // Somebody was faster: the next look finds it.
        409 if refusal.code.as_deref() == Some("SecurityGroupRuleExists") => Fault::Busy,
        // Somebody has to choose other groups.
        409 if refusal.says(OTHER_KIND) => Fault::Invalid,
        // Octavia: another listener has the port, or another port the address. Waiting does not help.
        409 if TAKEN.iter().any(|words| refusal.says(words)) => Fault::Invalid,
        // Octavia: it, or what it is a part of, is being changed. Neutron: it is in use, or changed since it was read (412).
        409 | 412 | 423 => Fault::Busy,
        429 => Fault::Throttled,
        // Octavia passes on what Neutron told it, as its own failure: nothing was made.
        500 if refusal.is_ours() && refusal.says("reports error: BadRequestException: 400") => Fault::Invalid,
        // An address that somebody has, or a quota: it does not say which.
        500 if refusal.is_ours() && refusal.says("reports error: ConflictException: 409") => Fault::Quota,
        // Whoever answers for the service, a proxy even, need not know whether it has done the work.
        408 | 500..=599 if operation.write => Fault::OutcomeUnknown,
        408 | 500..=599 => Fault::Unavailable,
        400..=499 => Fault::Invalid,
        _ => Fault::Nonsense,
    }
}

/// Only a service's own words about a thing are its absence, and not about a path.
fn is_absence(refusal: &Refusal) -> bool {
    let named =
        refusal.says("could not be found") || refusal.says("not found") || refusal.says("Could not find");
    refusal.is_ours() && named && !refusal.says(NO_SUCH_PATH)
}

/// Neutron has other words for each thing, such as "Security group rule 1 does not exist", and a type that ends alike.
fn is_absence_by_type(operation: Operation, refusal: &Refusal) -> bool {
    let typed = refusal.code.as_deref().is_some_and(|code| code.ends_with("NotFound"));
    operation.family == Family::Network && refusal.is_ours() && typed && !refusal.says(NO_SUCH_PATH)
}

/// Neutron says it by type, Octavia and Nova in words alone.
fn is_quota(refusal: &Refusal) -> bool {
    refusal.code.as_deref() == Some("OverQuota")
        || refusal.says("Quota has been met")
        || refusal.says("Quota exceeded")
}

/// A pool of addresses, or a table of routes, is full.
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

/// `Retry-After` in seconds, or as a date, which is counted from the answer's own `Date`. Some services have a word before it.
/// Source: RFC 9110, 10.2.3.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
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
