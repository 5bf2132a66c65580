//! Authentication: bearer tokens, each for one project. No token appears in a response or a log.

use std::fmt;

use http::StatusCode;
use serde::Deserialize;

use super::error::ApiError;

/// All valid tokens. Empty: callers need no token.
#[derive(Debug, Default)]
pub(super) struct Tokens(Vec<Token>);

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Token {
    token: String,
    /// The project of the token. Unset: the project that owns all objects.
    #[serde(default)]
    project: Option<String>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("project", &self.project).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Accepts only this token, for the project that owns all objects.
    pub(super) fn one(token: String) -> Self {
        Self(vec![Token { token, project: None }])
    }

    /// Accepts only these tokens. Returns an error if one of them is empty.
    pub(super) fn these(tokens: Vec<Token>) -> Result<Self, ApiError> {
        if tokens.iter().any(|one| one.token.is_empty()) {
            return Err(ApiError::invalid("tokens", "must not be empty"));
        }
        Ok(Self(tokens))
    }

    /// Returns the token's project, or `None` if it is the project that owns all objects.
    pub(super) fn other_project(&self, bearer: Option<&str>) -> Result<Option<&str>, ApiError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        match self.0.iter().find(|one| bearer == Some(&one.token)) {
            Some(one) => Ok(one.project.as_deref()),
            None => {
                let message = "send the project's token as `Authorization: Bearer <token>`";
                Err(ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message))
            }
        }
    }

    /// Returns an error unless the token is valid for the project that owns all objects.
    pub(super) fn check(&self, bearer: Option<&str>) -> Result<(), ApiError> {
        match self.other_project(bearer)? {
            None => Ok(()),
            Some(other) => {
                let message =
                    format!("the token is for the project {other}, which has no objects in this cloud");
                Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message))
            }
        }
    }
}
