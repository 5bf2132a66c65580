//! One call and its answer, without HTTP around them.

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
    /// What is asked.
    pub operation: Operation,
    /// The id in the path.
    pub object: Option<String>,
    /// Query parameters in the order given.
    pub query: Vec<(String, String)>,
    /// The body as it came.
    pub body: Bytes,
    /// The token of the `Authorization: Bearer` header.
    pub bearer: Option<String>,
}

/// What becomes of a call.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers, `X-Request-Id` included.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Value,
    /// How long the answer takes on its way.
    pub delay: Duration,
    /// How it arrives.
    pub ending: Ending,
}

/// How an answer arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As it should.
    Whole,
    /// Only its first half; then the connection is closed.
    Truncated,
    /// Not at all: the connection is closed.
    Closed,
}

impl Call {
    /// A call without object, query and body.
    pub const fn new(operation: Operation) -> Self {
        Self { operation, object: None, query: Vec::new(), body: Bytes::new(), bearer: None }
    }

    /// The same call about an object.
    #[must_use]
    pub fn on(mut self, object: impl Into<String>) -> Self {
        self.object = Some(object.into());
        self
    }

    /// The same call with one more query parameter.
    #[must_use]
    pub fn query(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((key.into(), value.into()));
        self
    }

    /// The same call with a JSON body.
    #[must_use]
    pub fn body(mut self, body: &Value) -> Self {
        self.body = body.to_string().into();
        self
    }

    pub(super) fn parameter(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(there, _)| there == key).map(|(_, value)| value.as_str())
    }

    /// Refuses query parameters that the operation does not know.
    pub(super) fn check_query(&self, known: &[&str]) -> Result<(), ApiError> {
        match self.query.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(ApiError::invalid(
                    key,
                    format!("{} knows no such query parameter, but {known}", self.operation),
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

/// Reads a JSON body; the error says where it is wrong and what would be right.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::invalid("body", error))
}
