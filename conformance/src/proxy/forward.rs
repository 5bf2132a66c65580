//! Handles one call: applies the matching rule, sends the call to the vendor, and returns the response.

use std::{fs, path::Path, sync::Arc};

use anyhow::Context as _;
use http::{HeaderMap, HeaderName, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{
    ProxyError, Shared,
    log::Call,
    response::{Body, Cut, FullResponse, echo, throttled},
    rule::{Action, Strike},
};

/// Maximum bytes of a body. No vendor sends larger pages.
const BODY_MAX: usize = 64 * 1024 * 1024;
/// Headers that belong to one connection. Source: RFC 9110, section 7.6.1.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
];

/// Builds the client for vendors. It follows no redirects, retries nothing and uses no other proxy.
pub(super) fn client(ca: Option<&Path>) -> Result<reqwest::Client, ProxyError> {
    let fault = |path: &Path, source| ProxyError::UpstreamCa { path: path.display().to_string(), source };
    #[expect(
        clippy::disallowed_methods,
        reason = "the proxy forwards the adapter's calls; it is not a driver"
    )]
    let builder = reqwest::Client::builder();
    let mut builder =
        builder.no_proxy().redirect(reqwest::redirect::Policy::none()).retry(reqwest::retry::never());
    if let Some(path) = ca {
        let read = || {
            let pem = fs::read(path)?;
            reqwest::Certificate::from_pem_bundle(&pem).context("the file has no certificates")
        };
        for certificate in read().map_err(|error| fault(path, error))? {
            builder = builder.add_root_certificate(certificate);
        }
    }
    builder.build().map_err(|error| fault(ca.unwrap_or(Path::new("")), error.into()))
}

/// Forwards one call to the vendor, with the fault of a matching rule. `host`: the destination of a CONNECT.
/// Returns an error if the caller must close the connection.
pub(super) async fn call(
    shared: Arc<Shared>,
    host: Option<String>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Cut> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let mut call = Call::new(request.method().clone(), path, &shared.vendor);
    call.credentials = credentials(request.headers());
    let at = shared.log().begin(call.clone());
    let _ended = Ended { shared: &shared, at };
    let strike = shared.rules().strike(&call);
    let outcome = match strike {
        None => pass(&shared, (host, request), at).await.map(FullResponse::response),
        Some(strike) => struck(&shared, (host, request), &call, strike, at).await,
    };
    if let Ok(response) = &outcome {
        let status = response.status().as_u16();
        shared.log().change(at, |call| call.status = Some(status));
    }
    outcome
}

/// A digest that identifies the credentials of a call without revealing them.
fn credentials(headers: &HeaderMap) -> Option<u64> {
    let digest = Sha256::digest(headers.get(header::AUTHORIZATION)?);
    Some(digest.iter().take(8).fold(0, |sum, &byte| (sum << 8) | u64::from(byte)))
}

/// Records when a call ends, even if its connection breaks.
struct Ended<'a> {
    shared: &'a Shared,
    at: usize,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.shared.log().change(self.at, |call| call.ended = Some(Instant::now()));
    }
}

type Order = (Option<String>, Request<Incoming>);

async fn struck(
    shared: &Shared,
    order: Order,
    call: &Call,
    strike: Strike,
    at: usize,
) -> Result<Response<Body>, Cut> {
    let Strike { rule, action, gate, frozen } = strike;
    if action != Action::HoldAfter {
        gate.reach();
    }
    let answered = match action {
        Action::Delay(time) => {
            tokio::time::sleep(time).await;
            pass(shared, order, at).await?
        }
        Action::Throttle(after) => throttled(after),
        Action::Limit { .. } => throttled(None),
        Action::Answer(status) => FullResponse::canned(status, &[], "{}"),
        Action::AnswerWith { status, headers, body } => FullResponse::canned(status, &headers, &body),
        Action::Echo(status) => echo(status, order.1.headers()),
        Action::ResetBefore => return Err(Cut),
        Action::ResetAfter => {
            pass(shared, order, at).await?;
            return Err(Cut);
        }
        Action::Truncate => return Ok(pass(shared, order, at).await?.truncated()),
        Action::EmptyPage => empty_page(shared, call),
        Action::Stale(_) => match frozen {
            Some(answer) => answer,
            None => {
                let answer = pass(shared, order, at).await?;
                shared.rules().freeze(rule, &call.path, &answer);
                answer
            }
        },
        Action::HoldBefore => {
            gate.passed().await;
            pass(shared, order, at).await?
        }
        Action::HoldAfter => {
            let answer = pass(shared, order, at).await?;
            gate.reach();
            gate.passed().await;
            answer
        }
    };
    Ok(answered.response())
}

fn empty_page(shared: &Shared, call: &Call) -> FullResponse {
    let list = shared.vendor.lists.iter().find(|list| list.call.matches(&call.method, &call.path));
    FullResponse::canned(200, &[], list.map_or("{}", |list| &list.empty_body))
}

/// Forwards a call unchanged. If the vendor cannot be reached, the answer is 502, as with any proxy.
async fn pass(shared: &Shared, (host, request): Order, at: usize) -> Result<FullResponse, Cut> {
    let Some(url) = url(shared, host.as_deref(), request.uri()) else {
        return Ok(FullResponse::canned(502, &[], r#"{"message":"proxy.upstream is not set"}"#));
    };
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_MAX).collect().await.map_err(|_too_large| Cut)?.to_bytes();
    let sent = shared.client.request(parts.method, url).headers(end_to_end(parts.headers)).body(body);
    shared.log().change(at, |call| call.reached = true);
    let bad = |error: reqwest::Error| {
        let text = serde_json::json!({ "message": format!("cannot reach the vendor: {error}") });
        FullResponse::canned(502, &[], &text.to_string())
    };
    let answer = match sent.send().await {
        Ok(answer) => answer,
        Err(error) => return Ok(bad(error)),
    };
    let (status, headers) = (answer.status(), end_to_end(answer.headers().clone()));
    note_request_id(shared, &headers, at);
    Ok(match answer.bytes().await {
        Ok(body) => FullResponse { status, headers, body },
        Err(error) => bad(error),
    })
}

fn note_request_id(shared: &Shared, headers: &HeaderMap, at: usize) {
    let name = shared.vendor.request_id_header.as_deref();
    let id = name.and_then(|name| headers.get(name)).and_then(|id| id.to_str().ok());
    if let Some(id) = id {
        shared.log().change(at, |call| call.request_id = Some(id.to_owned()));
    }
}

/// The destination of a call: that of a CONNECT or of an absolute URL, otherwise the upstream.
fn url(shared: &Shared, host: Option<&str>, uri: &Uri) -> Option<String> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    if let Some(host) = host {
        return Some(format!("https://{host}{path}"));
    }
    if uri.authority().is_some() {
        return Some(uri.to_string());
    }
    shared.params.target(path)
}

fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove("proxy-connection");
    headers.remove("keep-alive");
    headers
}
