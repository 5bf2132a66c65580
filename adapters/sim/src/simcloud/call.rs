//! A call and its response, independent of HTTP.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::ApiError;
use super::operation::Operation;

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The operation.
    pub operation: Operation,
    /// The ID in the path.
    pub object: Option<String>,
    /// Query parameters in the order of the request.
    pub query: Vec<(String, String)>,
    /// The unparsed body.
    pub body: Bytes,
    /// The token of the `Authorization: Bearer` header.
    pub bearer: Option<String>,
}

/// The response to a call.
#[derive(Clone, Debug)]
pub struct CallResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers, including `X-Request-Id`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Value,
    /// Delay before the response is sent.
    pub delay: Duration,
    /// How the response is sent.
    pub ending: Ending,
}

/// How a response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The complete response is sent.
    Whole,
    /// Only the first half of the response is sent; then the connection is closed.
    Truncated,
    /// No response is sent: the connection is closed.
    Closed,
}

impl Call {
    /// Creates a call without object, query and body.
    pub const fn new(operation: Operation) -> Self {
        Self { operation, object: None, query: Vec::new(), body: Bytes::new(), bearer: None }
    }

    /// Returns the same call for an object.
    #[must_use]
    pub fn on(mut self, object: impl Into<String>) -> Self {
        self.object = Some(object.into());
        self
    }

    /// Returns the same call with one more query parameter.
    #[must_use]
    pub fn query(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((key.into(), value.into()));
        self
    }

    /// Returns the same call with a JSON body.
    #[must_use]
    pub fn body(mut self, body: &Value) -> Self {
        self.body = body.to_string().into();
        self
    }

    pub(super) fn parameter(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(there, _)| there == key).map(|(_, value)| value.as_str())
    }

    pub(super) fn check_query(&self, known: &[&str]) -> Result<(), ApiError> {
        match self.query.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(ApiError::invalid(
                    key,
                    format!("{} has no such query parameter, only {known}", self.operation),
                ))
            }
        }
    }

    pub(super) fn id(&self) -> &str {
        self.object.as_deref().unwrap_or_default()
    }

    pub(super) fn parsed<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        parse(&self.body)
    }
}

/// Parses a JSON body. The error names the position and the expected value.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::invalid("body", error))
}
