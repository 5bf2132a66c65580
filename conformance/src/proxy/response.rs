//! Responses to calls, from the vendor or made by the proxy.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};

pub(super) type Body = UnsyncBoxBody<Bytes, Cut>;

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the proxy cut off the body on purpose")]
pub(super) struct Cut;

#[derive(Clone, Debug)]
pub(super) struct FullResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl FullResponse {
    pub(super) fn canned(status: u16, headers: &[(String, String)], body: &str) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let pairs = headers.iter().filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        });
        let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let headers = std::iter::once(json).chain(pairs).collect();
        Self { status, headers, body: Bytes::copy_from_slice(body.as_bytes()) }
    }

    pub(super) fn response(self) -> Response<Body> {
        let body = Full::new(self.body).map_err(|never: Infallible| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }

    /// Announces the full length, but ends after half of the body.
    pub(super) fn truncated(self) -> Response<Body> {
        let half = self.body.slice(..self.body.len() / 2);
        let length = HeaderValue::from(self.body.len().max(1));
        let body = stream::iter([Ok(Frame::data(half)), Err(Cut)]);
        let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(body.boxed())));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response.headers_mut().insert(header::CONTENT_LENGTH, length);
        response
    }
}

/// A refusal by a vendor that throttles.
pub(super) fn throttled(after: Option<Duration>) -> FullResponse {
    let after = after.map(|time| ("retry-after".to_owned(), time.as_secs().to_string()));
    FullResponse::canned(429, after.as_slice(), r#"{"code":"throttled","message":"too many requests"}"#)
}

/// A refusal whose message repeats the credentials of the call. A driver may pass this message on to its caller.
pub(super) fn echo(status: u16, headers: &HeaderMap) -> FullResponse {
    let carried = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let text = format!("authorization: {} is not welcome", String::from_utf8_lossy(carried));
    let inner = serde_json::json!({ "code": "conformance", "message": text });
    let body = serde_json::json!({ "code": "conformance", "message": text, "error": inner });
    FullResponse::canned(status, &[("x-refused".to_owned(), text)], &body.to_string())
}
