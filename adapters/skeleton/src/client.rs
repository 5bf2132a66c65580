//! The cloud's HTTP API: one function a call, each exactly one request through the session.
//!
//! Retries nothing, waits for nothing, and has no connection of its own.

use std::fmt;

use bytes::Bytes;
use cloud_adapter::{
    driver::VendorError,
    vendor::{Operation, Session, VendorRequest, VendorResponse},
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
        let answer = self.send(session, operation, (Method::GET, path), Bytes::new()).await?;
        parse(operation, &answer)
    }

    /// Writes something. The answer need not be read: the next look shows what came of it.
    #[expect(dead_code, reason = "the first call that writes uses it")]
    async fn write(
        &self,
        session: &Session,
        operation: Operation,
        target: (Method, &str),
        body: &impl Serialize,
    ) -> Result<VendorResponse, VendorError> {
        let unfit =
            |error| VendorError::nonsense(format!("{operation}: the request cannot be written: {error}"));
        let body = serde_json::to_vec(body).map_err(unfit)?;
        self.send(session, operation, target, body.into()).await
    }

    async fn send(
        &self,
        session: &Session,
        operation: Operation,
        (method, path): (Method, &str),
        body: Bytes,
    ) -> Result<VendorResponse, VendorError> {
        let unfit =
            |error| VendorError::nonsense(format!("{operation}: the request cannot be made: {error}"));
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

fn parse<T: DeserializeOwned>(operation: Operation, answer: &VendorResponse) -> Result<T, VendorError> {
    serde_json::from_slice(answer.body())
        .map_err(|error| VendorError::nonsense(format!("{operation}: the answer cannot be read: {error}")))
}
