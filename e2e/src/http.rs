//! Plain HTTP to test servers on loopback.

use std::time::Duration;

use anyhow::{Context, ensure};
use http::{HeaderMap, StatusCode};
use reqwest::{Client, Method, RequestBuilder};

/// The deadline of a request. Servers on loopback answer at once or not at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A client without proxies and certificates.
#[derive(Clone, Debug)]
pub(crate) struct Http(Client);

#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Http {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Self::within(ANSWER_WITHIN)
    }

    /// Creates a client with another deadline, for slower servers.
    pub(crate) fn within(limit: Duration) -> anyhow::Result<Self> {
        // Does not load the system's certificates, because loading takes time and fails if there are none.
        #[expect(
            clippy::disallowed_methods,
            reason = "the tests act as the vendor's operator, without a budget"
        )]
        let client = Client::builder().no_proxy().tls_certs_only([]).timeout(limit).build();
        client.map(Self).context("cannot create an HTTP client")
    }

    /// Returns the body of a successful answer. For any other status, returns an error that contains the body.
    pub(crate) async fn get_text(&self, url: &str) -> anyhow::Result<String> {
        self.text(url, |client| client.get(url)).await
    }

    pub(crate) async fn status(&self, method: Method, url: &str) -> anyhow::Result<u16> {
        let answer = self.0.request(method, url).send().await;
        Ok(answer.with_context(|| format!("{url} did not answer"))?.status().as_u16())
    }

    /// Sends the request that `request` builds. Errors contain `what`.
    pub(crate) async fn text(
        &self,
        what: &str,
        request: impl FnOnce(&Client) -> RequestBuilder,
    ) -> anyhow::Result<String> {
        let HttpResponse { status, body, .. } = self.answer(what, request).await?;
        ensure!(status.is_success(), "{what} answered {status}: {}", body.trim());
        Ok(body)
    }

    /// Same as [`Self::text`], but returns answers with error statuses, too.
    pub(crate) async fn answer(
        &self,
        what: &str,
        request: impl FnOnce(&Client) -> RequestBuilder,
    ) -> anyhow::Result<HttpResponse> {
        let answer = request(&self.0).send().await.with_context(|| format!("{what} got no answer"))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.text().await.with_context(|| format!("{what} got an incomplete answer"))?;
        Ok(HttpResponse { status, headers, body })
    }
}
