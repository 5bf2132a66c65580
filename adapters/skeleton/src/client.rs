//! The cloud's HTTP API, with one function for each call. Each call sends exactly one request through the session.
//!
//! The client does not retry or wait, and opens no connection of its own.

use std::fmt;

use bytes::Bytes;
use cloud_adapter::{
    driver::VendorError,
    kit::{bearer, body, built, parse, request},
    vendor::{Operation, Session, VendorResponse},
};
use http::{HeaderValue, Method, Uri, header};
use secrecy::SecretString;
use serde::{Serialize, de::DeserializeOwned};

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) endpoint: String,
    /// Marked as sensitive, so that it is never logged.
    authorization: HeaderValue,
    pub(crate) token: SecretString,
}

/// The head of a request, without headers and body.
struct Call {
    operation: Operation,
    method: Method,
    path: String,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Client {
    /// Creates the client without connecting to the cloud.
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
        path: String,
    ) -> Result<T, VendorError> {
        let call = Call { operation, method: Method::GET, path };
        let answer = self.send(session, call, Bytes::new()).await?;
        parse(operation, &answer)
    }

    /// Writes an object. The body of the answer is not read, because the next observation shows the result.
    #[expect(dead_code, reason = "used by the first call that writes")]
    async fn write(
        &self,
        session: &Session,
        call: Call,
        content: &impl Serialize,
    ) -> Result<VendorResponse, VendorError> {
        let content = body(call.operation, content)?;
        self.send(session, call, content).await
    }

    async fn send(&self, session: &Session, call: Call, body: Bytes) -> Result<VendorResponse, VendorError> {
        let Call { operation, method, path } = call;
        let request = request(method, format!("{}{path}", self.endpoint), &body);
        let request = request.header(header::AUTHORIZATION, self.authorization.clone()).body(body);
        session.call(operation, built(operation, request)?).await
    }
}
