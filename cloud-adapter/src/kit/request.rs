//! Requests to the vendor's API, and the parameters of a request of the contract.

use bytes::Bytes;
use http::{HeaderValue, Method, header, header::InvalidHeaderValue};
use serde::Serialize;

use crate::{
    driver::{Fault, VendorError},
    vendor::{Operation, VendorRequest},
};

/// What a user can do about a field that cannot change on an existing load balancer.
pub const RECREATE: &str = "set it back, or delete and recreate the Service";

/// Returns the authorization header of a bearer token. The header is marked as sensitive, so that it is never logged.
pub fn bearer(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Starts to build a request for an answer in JSON. `content` is the body that the caller will set.
pub fn request(method: Method, url: String, content: &Bytes) -> http::request::Builder {
    let request = http::Request::builder().method(method).uri(url).header(header::ACCEPT, "application/json");
    if content.is_empty() { request } else { request.header(header::CONTENT_TYPE, "application/json") }
}

/// Returns the built request, or converts the error of a request that cannot be built.
pub fn built(
    operation: Operation,
    request: Result<VendorRequest, http::Error>,
) -> Result<VendorRequest, VendorError> {
    request.map_err(|error| VendorError::nonsense(format!("{operation}: cannot build the request: {error}")))
}

/// Serialises the body of a request.
pub fn body(operation: Operation, content: &impl Serialize) -> Result<Bytes, VendorError> {
    // Requests may wait in a queue for minutes, so the unused capacity is released.
    serde_json::to_vec(content)
        .map(|text| Bytes::from(text.into_boxed_slice()))
        .map_err(|error| VendorError::nonsense(format!("{operation}: cannot serialise the request: {error}")))
}

/// Returns the path of a page of a listing: `<path>?limit=<size>&cursor=<cursor>`. `most` is the vendor's maximum page size.
pub fn page(path: &str, cursor: Option<&str>, size: Option<u32>, most: u32) -> String {
    let limit = size.unwrap_or(most).min(most);
    match cursor {
        None => format!("{path}?limit={limit}"),
        Some(cursor) => format!("{path}?limit={limit}&cursor={}", encode(cursor)),
    }
}

/// Percent-encodes a word for a path segment or a query value. Source: RFC 3986, section 2.3, "unreserved".
pub fn encode(word: &str) -> String {
    let mut encoded = String::with_capacity(word.len());
    for byte in word.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Returns the path of the request field that contains the vendor parameter with this key.
pub fn parameter_field(key: &str) -> String {
    format!("spec.parameters[{key}]")
}

/// Returns the error for a vendor parameter that cannot be used.
pub fn invalid_parameter(key: &str, text: &str) -> VendorError {
    invalid(parameter_field(key), text)
}

/// Returns the error for a field that cannot be used.
pub fn invalid(field: impl AsRef<str>, text: impl AsRef<str>) -> VendorError {
    refused(Fault::Invalid, field.as_ref(), text.as_ref())
}

/// Returns the error for a field that requests a feature which the cloud does not have.
pub fn unsupported(field: &str, text: &str) -> VendorError {
    refused(Fault::Unsupported, field, text)
}

/// Names the listener in the error of one of its fields. `index`: the position of the listener in the request.
pub fn in_listener(index: usize, mut error: VendorError) -> VendorError {
    if !error.message.starts_with("spec.") {
        error.message = format!("spec.listeners[{index}].{}", error.message);
        for field in &mut error.fields {
            *field = format!("spec.listeners[{index}].{field}");
        }
    }
    error
}

/// Converts a port number of the contract.
pub fn port_number(field: &str, number: u32) -> Result<u16, VendorError> {
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    port.ok_or_else(|| invalid(field, format!("invalid port {number}: use 1 to 65535")))
}

/// Converts a duration of the contract for vendors that count whole seconds. Rounds up, because 0 often means "never".
pub fn whole_seconds(
    field: &str,
    duration: Option<prost_types::Duration>,
) -> Result<Option<u32>, VendorError> {
    let Some(duration) = duration else { return Ok(None) };
    let whole = duration.seconds.saturating_add((duration.nanos > 0).into());
    match u32::try_from(whole) {
        Ok(whole) if whole > 0 => Ok(Some(whole)),
        Ok(_) | Err(_) => Err(invalid(field, "must be more than 0 and at most 136 years")),
    }
}

fn refused(fault: Fault, field: &str, text: &str) -> VendorError {
    VendorError::new(fault, format!("{field}: {text}")).in_field(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_percent_encoded_for_paths() {
        assert_eq!(encode("lb-0001"), "lb-0001");
        assert_eq!(encode("../i 1?ä"), "..%2Fi%201%3F%C3%A4");
    }

    #[test]
    fn ports_and_durations_are_checked() {
        assert_eq!(port_number("port", 65_535), Ok(65_535));
        for number in [0, 65_536] {
            let error = port_number("port", number).expect_err("out of range");
            assert_eq!(error.message, format!("port: invalid port {number}: use 1 to 65535"));
        }
        let of = |seconds, nanos| whole_seconds("timeout", Some(prost_types::Duration { seconds, nanos }));
        assert_eq!(whole_seconds("timeout", None), Ok(None));
        assert_eq!((of(1, 0), of(0, 1), of(1, 1)), (Ok(Some(1)), Ok(Some(1)), Ok(Some(2))));
        for seconds in [-1, 0, i64::from(u32::MAX) + 1] {
            let error = of(seconds, 0).expect_err("out of range");
            assert_eq!(error.fields, ["timeout"], "{seconds}");
        }
    }

    #[test]
    fn page_has_a_limited_size_and_an_encoded_cursor() {
        assert_eq!(page("/v1/a", None, None, 100), "/v1/a?limit=100");
        assert_eq!(page("/v1/a", Some("b c"), Some(500), 100), "/v1/a?limit=100&cursor=b%20c");
        assert_eq!(page("/v1/a", None, Some(5), 100), "/v1/a?limit=5");
    }
}
