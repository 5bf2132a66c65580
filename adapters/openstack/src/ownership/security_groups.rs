//! Whose a security group and its rules are, in their descriptions: both are set with the create. Pure.

use std::collections::BTreeMap;

use cloud_api_proto::DOMAIN;

use super::{NAME_DIGEST, digest};

const CLUSTER_ID: &str = "cluster-id";
const LOAD_BALANCER: &str = "load-balancer";
const OWNER_UID: &str = "owner-uid";

/// The name of a cluster's group: another one for each cluster, and the same for good.
pub(crate) fn group_name(cluster_id: &str) -> String {
    let digest: String = digest(&[cluster_id]).chars().take(NAME_DIGEST).collect();
    format!("load-balancers-to-nodes-{digest}")
}

/// What a cluster's group says of itself: `{"cloudadapter.dev/cluster-id":"..."}`.
pub(crate) fn group_description(cluster_id: &str) -> String {
    written([(CLUSTER_ID, cluster_id)])
}

/// The cluster whose group says this. `None`: it is not ours.
pub(crate) fn cluster_of(description: &str) -> Option<String> {
    read(description, CLUSTER_ID)
}

/// What a rule says that was made for a load balancer. Its ID tells of two of one Service, which there may be for a while, whose it is;
/// and when it is gone, the UID of its Service tells with what the rule goes.
pub(crate) fn rule_description(balancer: &str, owner_uid: &str) -> String {
    written([(LOAD_BALANCER, balancer), (OWNER_UID, owner_uid)])
}

/// The load balancer that a rule was made for. `None`: it is not ours.
pub(crate) fn balancer_of(description: &str) -> Option<String> {
    read(description, LOAD_BALANCER)
}

/// The UID of the Service whose load balancer a rule was made for.
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
    fn what_is_written_is_read_and_nothing_else() {
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
