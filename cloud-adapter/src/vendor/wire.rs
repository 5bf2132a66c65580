//! The HTTP client. It is the only one, and sends nothing without a [`Permit`].

use std::{fmt, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};

use super::{Operation, Permit, VendorRequest, VendorResponse};
use crate::driver::{Fault, VendorError};

/// A vendor call that takes longer has failed. Drivers do not set their own.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Carries requests to the vendor.
pub(super) trait Transport: fmt::Debug + Send + Sync {
    /// Sends one request and reads the whole answer.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if no connection came about; for a write whose answer was lost [`Fault::OutcomeUnknown`].
    fn send(
        &self,
        permit: Permit,
        operation: Operation,
        request: VendorRequest,
    ) -> BoxFuture<'_, Result<VendorResponse, VendorError>>;
}

/// Connections to the vendor.
#[derive(Debug)]
pub(super) struct Wire(reqwest::Client);

impl Wire {
    /// Opens no connection yet.
    ///
    /// # Errors
    /// If the TLS library cannot be set up.
    #[expect(clippy::disallowed_methods, reason = "the one place, behind the permit")]
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        // A redirect, a retry or a proxy from the environment would be a call that nobody counted.
        let client = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .retry(reqwest::retry::never())
            .build()?;
        Ok(Self(client))
    }

    async fn execute(
        &self,
        operation: Operation,
        request: VendorRequest,
    ) -> Result<VendorResponse, VendorError> {
        let place = request.uri().host().unwrap_or_default().to_owned();
        let request = reqwest::Request::try_from(request)
            .map_err(|error| VendorError::nonsense(format!("{operation}: cannot be sent: {error}")))?;
        let lost = |error: reqwest::Error| {
            // Only a connection that never came about proves that nothing was done.
            let fault = if operation.write && !error.is_connect() {
                Fault::OutcomeUnknown
            } else {
                Fault::Unavailable
            };
            // Of the address only the host: some vendors sign in the query.
            VendorError::new(fault, format!("{operation}: {place}: {}", chain(&error.without_url())))
        };
        let answer = self.0.execute(request).await.map_err(lost)?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let mut response = http::Response::new(answer.bytes().await.map_err(lost)?);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

impl Transport for Wire {
    fn send(
        &self,
        _permit: Permit,
        operation: Operation,
        request: VendorRequest,
    ) -> BoxFuture<'_, Result<VendorResponse, VendorError>> {
        self.execute(operation, request).boxed()
    }
}

/// An error with its causes; reqwest hides them from `Display`.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
