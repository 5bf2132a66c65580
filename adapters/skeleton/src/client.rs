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
use serde::de::DeserializeOwned;

/// Where the cloud is, and who we are there.
#[derive(Clone)]
pub(crate) struct Client {
    endpoint: String,
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
    #[expect(dead_code, reason = "the first call that is written uses it")]
    async fn read<T: DeserializeOwned>(
        &self,
        session: &Session,
        operation: Operation,
        path: &str,
    ) -> Result<T, VendorError> {
        let unfit = |error: http::Error| VendorError::nonsense(format!("{operation}: {error}"));
        let request: VendorRequest = http::Request::builder()
            .method(Method::GET)
            .uri(format!("{}{path}", self.endpoint))
            .header(header::AUTHORIZATION, self.authorization.clone())
            .body(Bytes::new())
            .map_err(unfit)?;
        let answer = session.call(operation, request).await?;
        serde_json::from_slice(answer.body()).map_err(|error| {
            VendorError::nonsense(format!("{operation}: the answer cannot be read: {error}"))
        })
    }
}
