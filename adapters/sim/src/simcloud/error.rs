//! Errors. Each has a status, a stable code on which callers base decisions, a message for users, and details for programs.

use http::StatusCode;
use serde_json::{Value, json};

/// A refused call.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ApiError {
    /// HTTP status of the answer.
    pub status: StatusCode,
    /// The code on which callers base decisions, for example `immutable`. The README lists all codes.
    pub code: &'static str,
    /// The cause and the remedy, for users.
    pub message: String,
    /// Details that depend on the code.
    pub details: Value,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), details: json!({}) }
    }

    pub(super) fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// Returns the error that a field of the request is invalid. The message names valid values.
    pub(super) fn invalid(field: &str, message: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", format!("{field}: {message}"))
            .with(json!({ "field": field }))
    }

    pub(super) fn not_found(kind: &str, id: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("{kind} {id} not found in this project"))
            .with(json!({ "kind": kind, "id": id }))
    }

    pub(super) fn immutable(id: &str, status: &str) -> Self {
        let message = format!("load balancer {id} is {status} and cannot be changed until it is ACTIVE");
        Self::new(StatusCode::CONFLICT, "immutable", message).with(json!({ "id": id, "status": status }))
    }

    pub(super) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    pub(super) fn quota(name: &'static str, limit: usize, used: usize) -> Self {
        let message = format!("quota {name} is used up: {used} of {limit}");
        Self::new(StatusCode::FORBIDDEN, "quota_exceeded", message)
            .with(json!({ "quota": name, "limit": limit, "used": used }))
    }

    /// The response body without the request ID.
    pub(super) fn body(&self) -> Value {
        json!({ "code": self.code, "message": self.message, "details": self.details })
    }
}
