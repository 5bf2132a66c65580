//! The cloud's HTTP API: one function a call, each exactly one request through the session.
//!
//! Retries nothing, waits for nothing, and has no connection of its own.

use std::fmt;

use bytes::Bytes;
use cloud_adapter::{
    driver::VendorError,
    vendor::{Operation, Session, VendorRequest},
};
use http::{HeaderValue, Method, Uri, header};
use secrecy::SecretString;
use serde::{Serialize, de::DeserializeOwned};

/// Where the cloud is, and who we are there.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) endpoint: String,
    /// Marked as sensitive, so that no log shows it.
    authorization: HeaderValue,
    pub(crate) token: SecretString,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects nowhere yet.
    ///
    /// # Errors
    /// If the token cannot stand in a header.
    pub(crate) fn new(endpoint: &Uri, token: &str) -> Result<Self, header::InvalidHeaderValue> {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}"))?;
        authorization.set_sensitive(true);
        let endpoint = endpoint.to_string().trim_end_matches('/').to_owned();
        Ok(Self { endpoint, authorization, token: token.into() })
    }

    /// Reads something. What is not success has passed the table in `classify` already.
    #[expect(dead_code, reason = "the first call that reads uses it")]
    async fn read<T: DeserializeOwned>(
        &self,
        session: &Session,
        operation: Operation,
        path: &str,
    ) -> Result<T, VendorError> {
        self.send(session, operation, (Method::GET, path), Bytes::new()).await
    }

    /// Writes something.
    #[expect(dead_code, reason = "the first call that writes uses it")]
    async fn write<T: DeserializeOwned>(
        &self,
        session: &Session,
        operation: Operation,
        target: (Method, &str),
        body: &impl Serialize,
    ) -> Result<T, VendorError> {
        let unfit =
            |error| VendorError::nonsense(format!("{operation}: the request cannot be written: {error}"));
        let body = serde_json::to_vec(body).map_err(unfit)?;
        self.send(session, operation, target, body.into()).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        session: &Session,
        operation: Operation,
        (method, path): (Method, &str),
        body: Bytes,
    ) -> Result<T, VendorError> {
        let unfit =
            |error| VendorError::nonsense(format!("{operation}: the request cannot be made: {error}"));
        let request: VendorRequest = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.endpoint))
            .header(header::AUTHORIZATION, self.authorization.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(unfit)?;
        let answer = session.call(operation, request).await?;
        let unread =
            |error| VendorError::nonsense(format!("{operation}: the answer cannot be read: {error}"));
        serde_json::from_slice(answer.body()).map_err(unread)
    }
}
