//! The only HTTP client. It sends no request without a [`Permit`].

use std::{fmt, time::Duration};

use bytes::BytesMut;
use futures::{FutureExt as _, future::BoxFuture};

use super::Permit;
use crate::vendor::{
    Operation, VendorRequest, VendorResponse,
    error::{Fault, VendorError},
};

/// Timeout of a vendor call. Drivers set no timeouts.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of an answer. A page of a listing has some hundred KiB; larger answers are refused, so that they cannot exhaust the memory.
const ANSWER_MAX: usize = 16 * 1024 * 1024;

pub(in crate::vendor) trait Transport: fmt::Debug + Send + Sync {
    /// Sends one request and reads the whole answer.
    ///
    /// Returns [`Fault::Unavailable`] if no connection was made, and [`Fault::OutcomeUnknown`] for a write whose answer was lost.
    fn send(
        &self,
        permit: Permit,
        operation: Operation,
        request: VendorRequest,
    ) -> BoxFuture<'_, Result<VendorResponse, VendorError>>;
}

#[derive(Debug)]
pub(in crate::vendor) struct Wire(reqwest::Client);

impl Wire {
    /// Opens no connection yet. If `ca` is set, its PEM certificates are trusted in place of the system's CAs.
    ///
    /// Returns an error if the TLS library cannot be set up, or a certificate cannot be read.
    #[expect(clippy::disallowed_methods, reason = "the only client, behind the permit")]
    pub(in crate::vendor) fn new(ca: Option<&[u8]>) -> Result<Self, reqwest::Error> {
        // Redirects, retries or a proxy from the environment would cause calls that the budget does not count.
        let mut client = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .retry(reqwest::retry::never());
        if let Some(ca) = ca {
            client = client.tls_certs_only(reqwest::Certificate::from_pem_bundle(ca)?);
        }
        Ok(Self(client.build()?))
    }

    async fn execute(
        &self,
        operation: Operation,
        request: VendorRequest,
    ) -> Result<VendorResponse, VendorError> {
        let place = place(request.uri());
        let request = reqwest::Request::try_from(request).map_err(|error| {
            VendorError::nonsense(format!("{operation}: cannot send the request: {error}"))
        })?;
        let lost = |error: reqwest::Error| {
            // It is certain that the vendor did nothing only if no connection was made.
            let fault = if operation.write && !error.is_connect() {
                Fault::OutcomeUnknown
            } else {
                Fault::Unavailable
            };
            // Log only the host and port of the URL, because some vendors put signatures in the query.
            VendorError::new(fault, format!("{operation}: {place}: {}", text(&error.without_url())))
        };
        let mut answer = self.0.execute(request).await.map_err(lost)?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        // Reserve the announced size, because a growing buffer may become twice as large.
        let announced = answer.content_length().and_then(|length| usize::try_from(length).ok());
        let mut body = BytesMut::with_capacity(announced.unwrap_or_default().min(ANSWER_MAX));
        while let Some(chunk) = answer.chunk().await.map_err(lost)? {
            if body.len() + chunk.len() > ANSWER_MAX {
                return Err(too_large(operation, &place));
            }
            body.extend_from_slice(&chunk);
        }
        let mut response = http::Response::new(body.freeze());
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

/// Returns the host and port of a URL.
fn place(uri: &http::Uri) -> String {
    let default = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    format!("{}:{}", uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(default))
}

/// If the answer to a write is too large, the outcome of the write is unknown.
fn too_large(operation: Operation, place: &str) -> VendorError {
    let fault = if operation.write { Fault::OutcomeUnknown } else { Fault::Nonsense };
    VendorError::new(fault, format!("{operation}: {place}: the answer is larger than {ANSWER_MAX} bytes"))
}

/// Returns the text of an error and of its causes, which reqwest omits from `Display`. If there was no connection, the last cause says why,
/// and the other texts would leave no room for it in an Event.
fn text(error: &reqwest::Error) -> String {
    let first: &dyn std::error::Error = error;
    let texts: Vec<String> =
        std::iter::successors(Some(first), |error| error.source()).map(ToString::to_string).collect();
    match texts.last() {
        Some(last) if error.is_connect() => last.clone(),
        _ => texts.join(": "),
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, routing::get};
    use bytes::Bytes;
    use tokio::{io::AsyncWriteExt as _, net::TcpListener, task::JoinSet};

    use super::*;
    use crate::vendor::Family;

    /// Reads an answer of `size` bytes that does not announce its length, and returns the number of bytes read.
    async fn answered(operation: Operation, size: usize) -> Result<usize, VendorError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let page = get(move || async move {
            let piece = Bytes::from(vec![b'a'; 64 * 1024]);
            let pieces = std::iter::repeat_n(Ok::<_, std::convert::Infallible>(piece), size / (64 * 1024));
            Body::from_stream(futures::stream::iter(pieces))
        });
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, Router::new().route("/", page)).await });
        let request = http::Request::get(format!("http://{address}/")).body(Bytes::new()).expect("good");
        let wire = Wire::new(None).expect("a TLS library");
        wire.execute(operation, request).await.map(|answer| answer.body().len())
    }

    /// Starts a fake vendor that shows this certificate on a loopback port, and returns its address.
    async fn encrypted(shown: rcgen::CertifiedKey<rcgen::KeyPair>, serving: &mut JoinSet<()>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("https://localhost:{}/", listener.local_addr().expect("bound").port());
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(shown.signing_key.serialize_der().into());
        let config = rustls::ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![shown.cert.der().clone()], key).expect("a pair");
        let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
        serving.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                let answered = stream.write_all(answer).await.is_ok() && stream.shutdown().await.is_ok();
                assert!(answered, "the client reads the answer");
            }
        });
        url
    }

    #[tokio::test]
    async fn vendor_is_trusted_by_configured_certificates_only() {
        // This fails if a provider is installed already; that provider is then used.
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let (shown, other) = (made(), made());
        let named = shown.cert.pem();
        let mut serving = JoinSet::new();
        let url = encrypted(shown, &mut serving).await;
        let read = Operation::read(Family::Compute, "List");
        for (name, ca, wanted) in [
            ("named", Some(named), Ok("ok".into())),
            ("another", Some(other.cert.pem()), Err(Fault::Unavailable)),
            ("the system's", None, Err(Fault::Unavailable)),
        ] {
            let wire = Wire::new(ca.as_ref().map(String::as_bytes)).expect("good certificates");
            let request = http::Request::get(&url).body(Bytes::new()).expect("good");
            let answer = wire.execute(read, request).await;
            assert_eq!(
                answer.map(|answer| answer.into_body()).map_err(|error| error.fault),
                wanted,
                "{name}"
            );
        }
        assert!(Wire::new(Some(b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----")).is_err());
    }

    #[tokio::test]
    async fn an_unreachable_endpoint_is_named_with_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        let request = http::Request::get(format!("http://{address}/v1?signature=x")).body(Bytes::new());
        let wire = Wire::new(None).expect("a TLS library");
        let read = Operation::read(Family::Compute, "List");
        let error = wire.execute(read, request.expect("good")).await.expect_err("no vendor listens");
        assert_eq!(error.fault, Fault::Unavailable);
        let text = error.to_string();
        assert!(text.starts_with(&format!("List: {address}: Connection refused")), "{text}");
        assert!(!text.contains("signature"), "{text}");
        for (uri, named) in [("https://cloud/v3", "cloud:443"), ("http://[fd00::1]/", "[fd00::1]:80")] {
            assert_eq!(place(&uri.parse().expect("a URL")), named);
        }
    }

    #[tokio::test]
    async fn an_answer_is_read_up_to_a_limit() {
        let (read, write) =
            (Operation::read(Family::Compute, "List"), Operation::write(Family::Compute, "Make"));
        assert_eq!(answered(read, ANSWER_MAX).await.expect("just small enough"), ANSWER_MAX);
        let error = answered(read, 4 * ANSWER_MAX).await.expect_err("too large");
        assert_eq!(error.fault, Fault::Nonsense, "{error}");
        let text = error.to_string();
        assert!(text.contains("List: 127.0.0.1:") && text.contains(": the answer is larger than"), "{text}");
        let error = answered(write, 4 * ANSWER_MAX).await.expect_err("too large");
        assert_eq!(error.fault, Fault::OutcomeUnknown, "the vendor may have executed the request");
    }
}
