//! Reads the endpoints of Services, to find out whether a Service has a ready pod for the traffic of its load balancer.

use std::collections::BTreeSet;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::{Api, ResourceExt as _, api::ListParams};

use crate::{cluster::Cluster, missing::Missing};

/// The label of an EndpointSlice whose value is the name of the Service.
const SERVICE: &str = "kubernetes.io/service-name";
/// The name of the resource in the list of what could not be read.
const SLICES: &str = "endpointslices";

pub(crate) async fn any_ready(cluster: &Cluster, namespace: &str, name: &str) -> Result<bool, Missing> {
    let api: Api<EndpointSlice> = cluster.namespaced(namespace);
    let params = ListParams::default().labels(&format!("{SERVICE}={name}"));
    let slices = cluster.ask(SLICES, async { api.list(&params).await }).await?;
    Ok(!ready(&slices.items).is_empty())
}

/// Returns the Services, as `NAMESPACE/NAME`, that have a ready endpoint.
pub(crate) async fn all_ready(cluster: &Cluster) -> Result<BTreeSet<String>, Missing> {
    let api: Api<EndpointSlice> = cluster.all();
    // Any version will do, so the API server need not read etcd.
    let params = ListParams::default().match_any().labels(SERVICE);
    let slices = cluster.ask(SLICES, async { api.list(&params).await }).await?;
    Ok(ready(&slices.items))
}

fn ready(slices: &[EndpointSlice]) -> BTreeSet<String> {
    let ready = slices.iter().filter(|slice| slice.endpoints.iter().any(is_ready));
    let service = |slice: &EndpointSlice| {
        let name = slice.labels().get(SERVICE)?;
        Some(format!("{}/{name}", slice.namespace().unwrap_or_default()))
    };
    ready.filter_map(service).collect()
}

/// By the API's definition, an endpoint without the condition is ready.
fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|it| it.ready).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a cluster whose API server has one EndpointSlice of Service default/web, with these endpoints.
    fn with(endpoints: &Value) -> Cluster {
        let metadata = json!({ "name": "web-1", "namespace": "default", "labels": { SERVICE: "web" } });
        let slice = json!({ "metadata": metadata, "addressType": "IPv4", "endpoints": endpoints });
        Cluster::answering(
            200,
            &json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": [slice] }),
        )
    }

    #[tokio::test]
    async fn a_service_is_ready_if_one_endpoint_is() {
        let endpoint = |conditions: Value| json!({ "addresses": ["192.0.2.7"], "conditions": conditions });
        let no = endpoint(json!({ "ready": false, "serving": true, "terminating": true }));
        for (endpoints, expected) in [
            (json!([]), false),
            (json!([no]), false),
            (json!([no, endpoint(json!({ "ready": true }))]), true),
            (json!([endpoint(json!({}))]), true),
        ] {
            let cluster = with(&endpoints);
            let one = any_ready(&cluster, "default", "web").await.map_err(|it| it.why);
            assert_eq!(one, Ok(expected), "{endpoints}");
            let all = all_ready(&cluster).await.map_err(|it| it.why).expect("it answers");
            assert_eq!(all.contains("default/web"), expected, "{endpoints}");
        }
        let forbidden = Cluster::answering(403, &json!({ "kind": "Status", "code": 403, "message": "no" }));
        let missing = any_ready(&forbidden, "default", "web").await.expect_err("refused");
        assert_eq!(missing.source, SLICES);
    }
}
