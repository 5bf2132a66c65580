//! The status page: `GET /status.json` for programs, and `GET /` as HTML, rendered from the same data.
//!
//! With `--status-pages=all`, all clients that reach the port can read the page, so the page contains no secrets. The page needs no script
//! and no external resources, and texts from users or the cloud are escaped.
//!
//! Modules:
//!
//! - `collect`: collects the data from its sources ([`Page`]). Makes no vendor calls.
//! - `clusters`: the number of objects of each cluster. Pure functions.
//! - `history`: the last ten minutes of the budgets. Pure functions.
//! - `html`: the HTML page. Pure functions.

mod clusters;
mod collect;
mod history;
mod html;

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderName, header},
    response::{Html, IntoResponse},
    routing::get,
};

pub(crate) use self::collect::{Page, Sources};

/// The headers of responses. They prevent caching and content sniffing.
const HEADERS: [(HeaderName, &str); 3] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

pub(crate) fn routes(page: Page) -> Router {
    Router::new().route("/", get(for_people)).route("/status.json", get(for_programs)).with_state(page)
}

async fn for_people(State(page): State<Page>) -> impl IntoResponse {
    let policy = [(header::CONTENT_SECURITY_POLICY, html::policy())];
    (HEADERS, policy, Html(html::document(&page.status())))
}

async fn for_programs(State(page): State<Page>) -> impl IntoResponse {
    (HEADERS, Json(page.status()))
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body::Body as _;
    use telemetry::report::AdapterStatus;
    use tower::ServiceExt as _;

    use super::*;

    async fn get(path: &str) -> (http::HeaderMap, String) {
        let status = AdapterStatus { adapter: "adapter-<b>".to_owned(), ..AdapterStatus::default() };
        let routes = routes(Page::showing(move || status.clone()));
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let (head, mut body) = routes.oneshot(request).await.expect("never fails").into_parts();
        let mut text = Vec::new();
        while let Some(frame) = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await
        {
            text.extend_from_slice(frame.expect("whole").data_ref().expect("data"));
        }
        (head.headers, String::from_utf8(text).expect("text"))
    }

    #[tokio::test]
    async fn json_and_html_show_the_same() {
        let (headers, json) = get("/status.json").await;
        assert_eq!(headers["content-type"], "application/json");
        let read: AdapterStatus = serde_json::from_str(&json).expect("valid JSON");
        assert_eq!(read.adapter, "adapter-<b>");
        let (headers, page) = get("/").await;
        assert_eq!(headers["content-type"], "text/html; charset=utf-8");
        assert!(page.contains("adapter-&lt;b&gt;") && !page.contains("adapter-<b>"), "{page}");
    }

    #[tokio::test]
    async fn page_forbids_scripts_and_caching() {
        let (headers, _page) = get("/").await;
        let policy = headers["content-security-policy"].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert!(!policy.contains("script-src") && !policy.contains("unsafe"), "{policy}");
        for headers in [headers.clone(), get("/status.json").await.0] {
            assert_eq!(headers["cache-control"], "no-store");
            assert_eq!(headers["x-content-type-options"], "nosniff");
        }
    }
}
