//! Searches for evidence that the controller made or recorded a route. Without such evidence, nothing is lost in another scope.

use controller_core::kube_api::{Error, any};
use controller_core::node::TrimmedNode;
use kube::{Api, Client};

use crate::execute::record::Store;
use crate::mirror::nodes::trim;
use crate::plan::condition::Network;
use crate::plan::record::Record;

/// Whether a node has the condition that its routes exist, or the record has an entry.
pub(crate) async fn exists(kube: Client, record: Store) -> Result<bool, Error> {
    let has_route =
        |TrimmedNode(node): &TrimmedNode| trim(node).is_some_and(|node| Network::Available.stands_on(&node));
    Ok(record.load().await? != Record::default() || any(&Api::all(kube), has_route).await?)
}

#[cfg(test)]
mod tests {
    use controller_core::testing::{FakeKube, NodeBuilder, node};
    use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeCondition};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;
    use crate::execute::record::NAME;

    fn says(node: NodeBuilder, status: &str, reason: &str) -> Node {
        let mut node = node.build();
        let condition = NodeCondition {
            type_: "NetworkUnavailable".to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            ..NodeCondition::default()
        };
        node.status.get_or_insert_default().conditions = Some(vec![condition]);
        node
    }

    #[tokio::test(start_paused = true)]
    async fn created_routes_are_evidence() {
        for (status, reason, expected) in [
            ("False", "RouteCreated", true),
            ("True", "NoRouteCreated", false),
            ("False", "CalicoIsUp", false),
        ] {
            let kube = FakeKube::new();
            kube.put::<Node>(says(node("a"), status, reason));
            let found = exists(kube.client(), Store::new(kube.client())).await;
            assert_eq!(found.expect("no fault"), expected, "{reason}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn recorded_routes_are_evidence() {
        let kube = FakeKube::new();
        let metadata = ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        };
        let data = Some([("rt-1".to_owned(), "uid".to_owned())].into());
        kube.put::<ConfigMap>(ConfigMap { metadata, data, ..ConfigMap::default() });
        assert!(exists(kube.client(), Store::new(kube.client())).await.expect("no fault"));
    }
}
