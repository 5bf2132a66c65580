//! Parses a request to the API server.

use http::{Method, request::Parts};

use super::Verb;

#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    pub(super) method: String,
    pub(super) path: String,
    /// The path without the namespace, such as `/api/v1/nodes`.
    pub(super) collection: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    /// The subresource, such as `status`.
    pub(super) subresource: Option<String>,
    pub(super) watch: bool,
    pub(super) bookmarks: bool,
    /// The name of the single object that a listing or a watch is limited to.
    pub(super) only: Option<String>,
    /// For a listing or a watch: the labels that the requested objects have.
    pub(super) labels: Vec<(String, String)>,
    /// The resource version that a watch resumes from.
    pub(super) resource_version: u64,
    /// Maximum number of objects on a page of a listing. `None` means all objects.
    pub(super) limit: Option<usize>,
    /// The `continue` token, which names the last object of the previous page.
    pub(super) continues: Option<String>,
    pub(super) content_type: String,
    pub(super) manager: Option<String>,
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
        let mut name = segments.next();
        if plural == "namespaces" {
            // If the path continues after a namespace, the path names objects in that namespace.
            if let Some(of_namespace) = segments.next() {
                (namespace, name, plural) = (name, segments.next(), of_namespace);
            }
        }
        collection.push(plural);
        let query = |key: &str| {
            let pairs = parts.uri.query().unwrap_or_default().split('&');
            pairs
                .filter_map(|pair| pair.split_once('='))
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value)
        };
        // The only selectors that the controllers use: for a single object, and for equal labels.
        let selector = query("fieldSelector").map(decoded);
        let only = selector.and_then(|selector| selector.strip_prefix("metadata.name=").map(str::to_owned));
        let labels = query("labelSelector").map(decoded).unwrap_or_default();
        let labels = labels.split(',').filter_map(|label| label.split_once('='));
        let content_type =
            parts.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Self {
            method: parts.method.to_string(),
            path: path.to_owned(),
            collection: format!("/{}", collection.join("/")),
            namespace,
            name,
            subresource: segments.next(),
            watch: query("watch").is_some_and(|value| value != "false"),
            bookmarks: query("allowWatchBookmarks") == Some("true"),
            only,
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            resource_version: query("resourceVersion")
                .and_then(|value| value.parse().ok())
                .unwrap_or_default(),
            limit: query("limit").and_then(|value| value.parse().ok()),
            continues: query("continue").map(str::to_owned),
            content_type: content_type.unwrap_or_default().to_owned(),
            manager: query("fieldManager").map(decoded),
        }
    }

    pub(super) fn is_write(&self) -> bool {
        self.method != Method::GET.as_str()
    }

    pub(super) fn verb(&self) -> Verb {
        match self.method.as_str() {
            "POST" => Verb::Create,
            "DELETE" => Verb::Delete,
            "GET" if self.watch => Verb::Watch,
            "GET" if self.name.is_some() => Verb::Get,
            "GET" if self.continues.is_some() => Verb::Continue,
            "GET" => Verb::List,
            _ => Verb::Patch,
        }
    }

    /// Whether the request is for this resource, such as `nodes`, or for this subresource, such as `nodes/status`.
    pub(super) fn is_about(&self, resource: &str) -> bool {
        let plural = self.collection.rsplit('/').next().unwrap_or_default();
        match resource.split_once('/') {
            Some((resource, subresource)) => {
                plural == resource && self.subresource.as_deref() == Some(subresource)
            }
            None => plural == resource,
        }
    }
}

fn decoded(value: &str) -> String {
    let value = value.replace('+', " ");
    let mut parts = value.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        text.extend(u8::from_str_radix(code, 16).map(char::from));
        text.push_str(rest);
    }
    text
}
