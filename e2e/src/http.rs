//! Plain HTTP to our own servers on loopback.

use std::time::Duration;

use anyhow::{Context, ensure};
use http::{HeaderMap, StatusCode};
use reqwest::{Client, Method, RequestBuilder};

/// Servers on loopback answer at once or not at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A client that knows no proxy and no certificates.
#[derive(Clone, Debug)]
pub(crate) struct Http(Client);

/// Whatever was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Http {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Self::within(ANSWER_WITHIN)
    }

    /// For servers that are not as quick as ours.
    pub(crate) fn within(limit: Duration) -> anyhow::Result<Self> {
        // Without certificates, because loading the system's takes time and fails where there are none.
        #[expect(
            clippy::disallowed_methods,
            reason = "the tests play the vendor's operator, who has no budget"
        )]
        let client = Client::builder().no_proxy().tls_certs_only([]).timeout(limit).build();
        client.map(Self).context("cannot make an HTTP client")
    }

    /// The body of a successful answer. A refusal is an error with its body.
    pub(crate) async fn get_text(&self, url: &str) -> anyhow::Result<String> {
        self.text(url, |client| client.get(url)).await
    }

    /// The status of the answer, whatever it is.
    pub(crate) async fn status(&self, method: Method, url: &str) -> anyhow::Result<u16> {
        let answer = self.0.request(method, url).send().await;
        Ok(answer.with_context(|| format!("no answer from {url}"))?.status().as_u16())
    }

    /// Sends what `request` makes of the client; `what` names it in errors.
    pub(crate) async fn text(
        &self,
        what: &str,
        request: impl FnOnce(&Client) -> RequestBuilder,
    ) -> anyhow::Result<String> {
        let Answer { status, body, .. } = self.answer(what, request).await?;
        ensure!(status.is_success(), "{what} answered {status}: {}", body.trim());
        Ok(body)
    }

    /// The same, and refusals are answers, too.
    pub(crate) async fn answer(
        &self,
        what: &str,
        request: impl FnOnce(&Client) -> RequestBuilder,
    ) -> anyhow::Result<Answer> {
        let answer = request(&self.0).send().await.with_context(|| format!("no answer from {what}"))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.text().await.with_context(|| format!("half an answer from {what}"))?;
        Ok(Answer { status, headers, body })
    }
}
