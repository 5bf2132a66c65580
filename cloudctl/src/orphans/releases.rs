//! The ConfigMap whose keys name the orphans to delete. service-controller reads the ConfigMap, and never writes to it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{cluster::Cluster, missing::Missing, options::Component, session::Session};

/// The ConfigMap that names released load balancers. Source: service-controller/README.md.
pub(super) const NAME: &str = "cloud-controllers-orphans";

/// Reads the releases from the ConfigMap. Maps the UID of the former Service to its `NAMESPACE/NAME`.
pub(super) async fn read(session: &Session) -> Result<BTreeMap<String, String>, Missing> {
    // The missing connection has already been reported.
    let Some(cluster) = &session.cluster else { return Ok(BTreeMap::new()) };
    let maps: Api<ConfigMap> = cluster.namespaced(&session.release.namespace);
    let what = format!("ConfigMap {}/{NAME}", session.release.namespace);
    let map = cluster.ask(&what, maps.get_opt(NAME)).await?;
    Ok(map.and_then(|map| map.data).unwrap_or_default())
}

/// Sets keys of the ConfigMap, or removes those whose value is null.
pub(super) async fn write(cluster: &Cluster, namespace: &str, keys: &Value) -> Result<(), Missing> {
    let maps: Api<ConfigMap> = cluster.namespaced(namespace);
    let what = format!("ConfigMap {namespace}/{NAME}");
    let patch = Patch::Merge(json!({ "data": keys }));
    let patching = async {
        match maps.patch(NAME, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                let new = json!({ "metadata": { "name": NAME }, "data": keys });
                let new = serde_json::from_value(new).map_err(kube::Error::SerdeError)?;
                maps.create(&PostParams::default(), &new).await
            }
            patched => patched,
        }
    };
    cluster.ask(&what, patching).await.map(drop)
}

/// Returns why no service-controller would read a release in this namespace. Returns `None` if a service-controller runs in it.
pub(super) async fn why_not_read(session: &Session) -> Option<Missing> {
    let Session { cluster: Some(cluster), release, processes, .. } = session else { return None };
    if processes.iter().any(|it| it.component == Component::ServiceController && it.is_pod()) {
        return None;
    }
    let of = Component::ServiceController;
    let (lease, namespace) = (of.lease(), &release.namespace);
    match cluster.leases(namespace).await {
        Ok(all) if all.iter().any(|it| release.shard(of, it).is_some()) => None,
        Ok(_others) => {
            let why = format!(
                "Lease {lease} not found in {namespace}, so no service-controller would read the \
                 ConfigMap: use --release-namespace NAMESPACE"
            );
            Some(Missing::new("leases", why))
        }
        Err(why) => Some(why),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{release::Release, session::Process};

    fn session(status: u16, leases: &[&str]) -> Session {
        let leases: Vec<Value> = leases.iter().map(|name| json!({ "metadata": { "name": name } })).collect();
        let answer = match status {
            200 => {
                json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": {}, "items": leases })
            }
            code => json!({ "kind": "Status", "code": code, "message": "leases is forbidden" }),
        };
        Session {
            cluster: Some(Cluster::answering(status, &answer)),
            release: Release::within("ccm"),
            processes: vec![Process::fake(Component::ServiceController, "http://a:1")],
            missing: Vec::new(),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    #[tokio::test]
    async fn a_release_needs_a_service_controller_in_the_namespace() {
        let others = ["cloud-node-controller", "cloud-adapter"];
        let why = why_not_read(&session(200, &others)).await.expect("no service-controller reads it");
        assert!(
            why.source == "leases"
                && why.why.contains("in ccm")
                && why.why.contains("--release-namespace NAMESPACE"),
            "{why:?}"
        );
        let shard = ["cloud-node-controller", "cloud-service-controller-1"];
        assert_eq!(why_not_read(&session(200, &shard)).await, None);
    }

    #[tokio::test]
    async fn unreadable_leases_are_reported() {
        let why = why_not_read(&session(403, &[])).await.expect("the Leases may not be read");
        assert!(why.source == "leases" && why.why.starts_with("leases is forbidden: "), "{why:?}");
        let without = Session { cluster: None, ..session(200, &[]) };
        assert_eq!(why_not_read(&without).await, None, "the missing connection is reported already");
    }
}
