//! Records the owner of a security group and of its rules in their descriptions, which are set on creation. The functions have no side
//! effects.

use std::collections::BTreeMap;

use cloud_adapter::kit::digest;
use cloud_api_proto::DOMAIN;

const NAME_DIGEST: usize = 10;

const CLUSTER_ID: &str = "cluster-id";
const LOAD_BALANCER: &str = "load-balancer";
const OWNER_UID: &str = "owner-uid";

/// Returns the name of a cluster's group, which is unique for the cluster and never changes.
pub(crate) fn group_name(cluster_id: &str) -> String {
    let digest: String = digest(&[cluster_id]).chars().take(NAME_DIGEST).collect();
    format!("load-balancers-to-nodes-{digest}")
}

/// Returns the description of a cluster's group, such as `{"cloudadapter.dev/cluster-id":"..."}`.
pub(crate) fn group_description(cluster_id: &str) -> String {
    written([(CLUSTER_ID, cluster_id)])
}

/// Returns the cluster in a group's description, or `None` if the group does not belong to any cluster.
pub(crate) fn cluster_of(description: &str) -> Option<String> {
    read(description, CLUSTER_ID)
}

/// Returns the description of a rule for a load balancer. The ID distinguishes two load balancers of one Service, which may both exist for
/// a while. The UID of the Service identifies the owner after the load balancer is deleted.
pub(crate) fn rule_description(balancer: &str, owner_uid: &str) -> String {
    written([(LOAD_BALANCER, balancer), (OWNER_UID, owner_uid)])
}

/// Returns the ID of the load balancer in a rule's description, or `None` if no adapter created the rule.
pub(crate) fn balancer_of(description: &str) -> Option<String> {
    read(description, LOAD_BALANCER)
}

pub(crate) fn owner_of(description: &str) -> Option<String> {
    read(description, OWNER_UID)
}

fn written<const N: usize>(words: [(&str, &str); N]) -> String {
    let words: serde_json::Map<String, serde_json::Value> =
        words.into_iter().map(|(word, value)| (format!("{DOMAIN}/{word}"), value.into())).collect();
    serde_json::Value::Object(words).to_string()
}

fn read(description: &str, word: &str) -> Option<String> {
    let mut words: BTreeMap<String, String> = serde_json::from_str(description).ok()?;
    words.remove(&format!("{DOMAIN}/{word}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_and_rule_descriptions_round_trip() {
        assert_eq!(cluster_of(&group_description("c-1")).as_deref(), Some("c-1"));
        let rule = rule_description("lb-1", "u-1");
        assert_eq!(balancer_of(&rule).as_deref(), Some("lb-1"));
        assert_eq!(owner_of(&rule).as_deref(), Some("u-1"));
        for text in ["", "my group", "{}", "[]", r#"{"cluster-id":"c-1"}"#, &rule] {
            assert_eq!(cluster_of(text), None, "{text}");
        }
        assert_ne!(group_name("c-1"), group_name("c-2"));
    }
}
