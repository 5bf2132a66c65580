//! What a request to the API server is about.

use http::{Method, request::Parts};

/// A request, taken apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    pub(super) method: String,
    pub(super) path: String,
    /// `/api/v1/nodes`; namespaces left out.
    pub(super) collection: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    /// `status`
    pub(super) subresource: Option<String>,
    pub(super) watch: bool,
    /// Where a watch goes on.
    pub(super) resource_version: u64,
    pub(super) content_type: String,
}

impl Target {
    pub(super) fn read(parts: &Parts) -> Self {
        let path = parts.uri.path();
        let mut segments = path.trim_matches('/').split('/').map(str::to_owned);
        let root = segments.next().unwrap_or_default();
        let n_prefix = if root == "apis" { 2 } else { 1 };
        let mut collection: Vec<String> =
            [root].into_iter().chain(segments.by_ref().take(n_prefix)).collect();
        let mut plural = segments.next().unwrap_or_default();
        let mut namespace = None;
        if plural == "namespaces" {
            namespace = segments.next();
            plural = segments.next().unwrap_or_default();
        }
        collection.push(plural);
        let query = |key: &str| {
            let pairs = parts.uri.query().unwrap_or_default().split('&');
            pairs
                .filter_map(|pair| pair.split_once('='))
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value)
        };
        let content_type =
            parts.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Self {
            method: parts.method.to_string(),
            path: path.to_owned(),
            collection: format!("/{}", collection.join("/")),
            namespace,
            name: segments.next(),
            subresource: segments.next(),
            watch: query("watch").is_some_and(|value| value != "false"),
            resource_version: query("resourceVersion")
                .and_then(|value| value.parse().ok())
                .unwrap_or_default(),
            content_type: content_type.unwrap_or_default().to_owned(),
        }
    }

    pub(super) fn is_write(&self) -> bool {
        self.method != Method::GET.as_str()
    }
}
