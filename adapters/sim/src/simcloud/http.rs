//! The cloud's HTTP API: routing by the table of operations, and delayed, truncated or missing responses.

use std::collections::BTreeMap;
use std::future::ready;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde_json::Value;

use super::SharedCloud;
use super::call::{Call, CallResponse, Ending};
use super::cloud::error_body;
use super::error::ApiError;
use super::operation::Operation;

/// Marks a response that must not be sent. The server closes the connection instead.
#[derive(Clone, Copy, Debug)]
pub(super) struct CloseConnection;

/// Builds the router with all paths of the cloud. `admin`: the paths of the admin API.
pub(super) fn router(cloud: SharedCloud, admin: Router<SharedCloud>) -> Router {
    let mut paths: BTreeMap<&str, MethodRouter<SharedCloud>> = BTreeMap::new();
    // Operations that differ only by a query parameter have the same method and path. The handler of the first of these operations selects
    // the right one.
    for operation in Operation::ALL.into_iter().filter(|operation| operation.selector().is_none()) {
        let (method, path) = operation.endpoint();
        let methods = paths.remove(path).unwrap_or_default();
        let handler =
            move |cloud, id, query, headers, body| vendor(operation, (cloud, id, query, headers), body);
        paths.insert(path, methods.on(filter(method), handler));
    }
    let router = paths.into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods));
    router.merge(admin).fallback(unknown_path).method_not_allowed_fallback(unknown_path).with_state(cloud)
}

fn filter(method: &str) -> MethodFilter {
    Method::try_from(method).ok().and_then(|method| method.try_into().ok()).unwrap_or(MethodFilter::GET)
}

type Parts = (State<SharedCloud>, Option<Path<String>>, Query<Vec<(String, String)>>, HeaderMap);

async fn vendor(first: Operation, parts: Parts, body: Bytes) -> Response {
    let (State(cloud), id, Query(query), headers) = parts;
    let object = id.map(|Path(id)| id);
    let call = Call { operation: select(first, &query), object, query, body, bearer: bearer(&headers) };
    let answer = cloud.with(|cloud, now| cloud.handle(&call, now));
    // The delay comes after the call, so the call is executed completely even if the caller closes the connection.
    if !answer.delay.is_zero() {
        tokio::time::sleep(answer.delay).await;
    }
    send(&answer)
}

/// Returns the operation that the query selects among the operations with the same method and path.
fn select(first: Operation, query: &[(String, String)]) -> Operation {
    let same = |operation: &Operation| operation.endpoint() == first.endpoint();
    let selected = |operation: &Operation| {
        operation.selector().is_some_and(|selector| query.iter().any(|(key, _)| key == selector))
    };
    Operation::ALL.into_iter().filter(same).find(selected).unwrap_or(first)
}

pub(super) fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::to_owned)
}

fn send(answer: &CallResponse) -> Response {
    let text = answer.body.to_string();
    let mut response = match answer.ending {
        Ending::Whole => json_response(answer.status, text.into()),
        Ending::Truncated => truncated(answer.status, text),
        Ending::Closed => {
            let mut response = StatusCode::OK.into_response();
            response.extensions_mut().insert(CloseConnection);
            return response;
        }
    };
    for (name, value) in &answer.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn json_response(status: StatusCode, body: Body) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Returns a response that announces the length of `text`, but ends in the middle of the text.
fn truncated(status: StatusCode, text: String) -> Response {
    let length = text.len();
    let half = Bytes::from(text).slice(..length.div_euclid(2));
    let broken = async {
        // Without this pause, hyper would see the error before it has sent any byte.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("a fault rule cut off the response"))
    };
    let parts = futures::stream::once(ready(Ok(half))).chain(futures::stream::once(broken));
    let mut response = json_response(status, Body::from_stream(parts));
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response
}

/// Returns a response of the admin API, or an error for an unknown path.
pub(super) fn plain(cloud: &SharedCloud, result: Result<Value, ApiError>) -> Response {
    let request_id = cloud.with(|cloud, _| cloud.next_request_id());
    let (status, body) = match result {
        Ok(body) => (StatusCode::OK, body),
        Err(error) => (error.status, error_body(&error, &request_id)),
    };
    let mut response = json_response(status, body.to_string().into());
    if let Ok(value) = HeaderValue::try_from(request_id) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}

async fn unknown_path(State(cloud): State<SharedCloud>, method: Method, uri: Uri) -> Response {
    let message = format!("unknown path '{method} {}': the README has all paths", uri.path());
    plain(&cloud, Err(ApiError::new(StatusCode::NOT_FOUND, "no_such_operation", message)))
}
