//! Pages of a collection. All three services return the next page as a link next to the items.

use std::collections::BTreeMap;

use cloud_adapter::{
    driver::VendorError,
    vendor::{Operation, VendorResponse},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

#[derive(Debug, PartialEq)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// The query of the next page. A page without this query is the last page, whatever its number of items.
    pub(crate) next: Option<String>,
}

#[derive(Deserialize)]
struct Link {
    rel: String,
    href: String,
}

/// Reads a page: `{"servers": [...], "servers_links": [{"rel": "next", "href": "..."}]}`.
///
/// The function uses only the query of the link, because proxies may return a wrong host or path.
pub(crate) fn read<T: DeserializeOwned>(
    operation: Operation,
    collection: &str,
    response: &VendorResponse,
) -> Result<Page<T>, VendorError> {
    let unread =
        |what: String| VendorError::nonsense(format!("{operation}: cannot parse the answer: {what}"));
    let parts: BTreeMap<String, &RawValue> =
        serde_json::from_slice(response.body()).map_err(|error| unread(error.to_string()))?;
    let items = parts.get(collection).ok_or_else(|| unread(format!("it has no field {collection}")))?;
    let items =
        serde_json::from_str(items.get()).map_err(|error| unread(format!("{collection}: {error}")))?;
    let links: Vec<Link> = match parts.get(&format!("{collection}_links")) {
        None => Vec::new(),
        Some(links) => {
            serde_json::from_str(links.get()).map_err(|error| unread(format!("its links: {error}")))?
        }
    };
    let next = links.into_iter().find(|link| link.rel == "next").map(|link| link.href);
    let query = |href: String| match href.split_once('?') {
        Some((_, query)) => Ok(query.split('#').next().unwrap_or_default().to_owned()),
        None => Err(unread(format!("its next link has no query: {href}"))),
    };
    Ok(Page { items, next: next.map(query).transpose()? })
}

#[cfg(test)]
mod tests {
    use cloud_adapter::{driver::Fault, vendor::Family};
    use serde_json::{Value, json};

    use super::*;

    fn page(collection: &str, body: &Value) -> Result<Page<Value>, VendorError> {
        let response = http::Response::new(body.to_string().into());
        read(Operation::read(Family::Compute, "List"), collection, &response)
    }

    #[test]
    fn next_page_is_identified_by_its_query() {
        let nova = json!({
            "servers": [{"id": "a"}],
            "servers_links": [{"rel": "next", "href": "http://10.0.0.1:8774/v2.1/servers/detail?limit=1&marker=a"}],
        });
        let read = page("servers", &nova).expect("a page");
        assert_eq!((read.items.len(), read.next.as_deref()), (1, Some("limit=1&marker=a")));
        let neutron = json!({
            "ports": [],
            "ports_links": [
                {"rel": "previous", "href": "http://net/v2.0/ports?page_reverse=True"},
                {"rel": "next", "href": "http://net/v2.0/ports?limit=1&marker=b"},
            ],
        });
        let read = page("ports", &neutron).expect("a page");
        assert_eq!(
            (read.items.len(), read.next.as_deref()),
            (0, Some("limit=1&marker=b")),
            "empty, but not the last page"
        );
        for last in [json!({"loadbalancers": [1], "loadbalancers_links": []}), json!({"loadbalancers": [1]})]
        {
            assert_eq!(page("loadbalancers", &last).expect("a page").next, None);
        }
    }

    #[test]
    fn invalid_page_is_not_an_empty_page() {
        for (name, body) in [
            ("another collection", json!({"images": []})),
            ("nothing", json!({})),
            ("null", json!({"servers": null})),
            ("no object", json!([])),
            (
                "a link without query",
                json!({"servers": [], "servers_links": [{"rel": "next", "href": "http://x/"}]}),
            ),
        ] {
            assert_eq!(page("servers", &body).expect_err(name).fault, Fault::Nonsense, "{name}");
        }
    }
}
