//! The cloud's HTTP API, with one function for each call. Each call sends exactly one request through the session.
//!
//! The client does not retry or wait, and has no connection of its own.

use std::fmt;

use bytes::Bytes;
use cloud_adapter::{
    driver::VendorError,
    kit::{bearer, body, parse},
    vendor::{Operation, Session, VendorRequest, VendorResponse},
};
use http::{HeaderValue, Method, Uri, header};
use secrecy::SecretString;
use serde::{Serialize, de::DeserializeOwned};

/// The cloud and its credentials.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) endpoint: String,
    /// Marked as sensitive, so that it is never logged.
    authorization: HeaderValue,
    pub(crate) token: SecretString,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Client {
    /// Does not connect to the cloud yet.
    ///
    /// # Errors
    /// Returns an error if the token contains characters that are not allowed in a header.
    pub(crate) fn new(endpoint: &Uri, token: &str) -> Result<Self, header::InvalidHeaderValue> {
        let authorization = bearer(token)?;
        let endpoint = endpoint.to_string().trim_end_matches('/').to_owned();
        Ok(Self { endpoint, authorization, token: token.into() })
    }

    /// Reads an object. `classify` has already turned unsuccessful answers into errors.
    #[expect(dead_code, reason = "used by the first call that reads")]
    async fn read<T: DeserializeOwned>(
        &self,
        session: &Session,
        operation: Operation,
        path: &str,
    ) -> Result<T, VendorError> {
        let answer = self.send(session, operation, (Method::GET, path), Bytes::new()).await?;
        parse(operation, &answer)
    }

    /// Writes an object. The body of the answer is not read, because the next observation shows the result.
    #[expect(dead_code, reason = "used by the first call that writes")]
    async fn write(
        &self,
        session: &Session,
        operation: Operation,
        target: (Method, &str),
        content: &impl Serialize,
    ) -> Result<VendorResponse, VendorError> {
        self.send(session, operation, target, body(operation, content)?).await
    }

    async fn send(
        &self,
        session: &Session,
        operation: Operation,
        (method, path): (Method, &str),
        body: Bytes,
    ) -> Result<VendorResponse, VendorError> {
        let unfit = |error| VendorError::nonsense(format!("{operation}: cannot build the request: {error}"));
        let request: VendorRequest = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.endpoint))
            .header(header::AUTHORIZATION, self.authorization.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(unfit)?;
        session.call(operation, request).await
    }
}
