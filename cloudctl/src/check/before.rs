//! The checks before an installation: the cluster, and the rights of the user.

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::{
    authorization::v1::SelfSubjectAccessReview,
    core::v1::{Namespace, Node},
};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PostParams},
};
use serde_json::json;

use super::{About, Check, CheckResult, releases};
use crate::{
    adopt::{Former, former, is_uninitialised},
    cluster::Cluster,
    missing::Missing,
    words::named,
};

/// The oldest supported minor version of Kubernetes 1.x. Source: helm/cloud-controllers/Chart.yaml, `kubeVersion`.
const OLDEST_MINOR: u32 = 33;
/// The label with the Pod Security Standard that a namespace enforces.
const ENFORCED: &str = "pod-security.kubernetes.io/enforce";
/// What the chart creates: the API group, the resource, and whether it is namespaced.
const CREATED: [(&str, &str, bool); 8] = [
    ("rbac.authorization.k8s.io", "clusterroles", false),
    ("rbac.authorization.k8s.io", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io", "roles", true),
    ("rbac.authorization.k8s.io", "rolebindings", true),
    ("apps", "deployments", true),
    ("coordination.k8s.io", "leases", true),
    ("", "secrets", true),
    ("", "serviceaccounts", true),
];

pub(super) const VERSION: About = About {
    name: "the API server is Kubernetes 1.33 or later",
    hint: "upgrade the control plane",
    link: "docs/upgrade.md",
};
const RIGHTS: About = About {
    name: "you may install the chart",
    hint: "install it as cluster-admin",
    link: "docs/install.md#3-the-chart",
};
const OTHERS: About = About {
    name: "no other cloud controller manager runs",
    hint: "stop it first, or install with dryRun=true beside it",
    link: "docs/migrate.md",
};
const KUBELETS: About = About {
    name: "the kubelets run with --cloud-provider=external",
    hint: "set the flag, delete the Node objects and restart these kubelets",
    link: "docs/install.md#1-kubelets",
};
const SECURITY: About = About {
    name: "the namespace admits pods on the host network",
    hint: "install in kube-system, or label the namespace pod-security.kubernetes.io/enforce=privileged",
    link: "docs/install.md#3-the-chart",
};

pub(super) async fn checks(cluster: &Cluster, namespace: &str, now: Timestamp) -> Vec<Check> {
    let (former, _missing) = former::read(cluster, now).await;
    vec![
        version(cluster.version().await),
        rights(cluster, namespace).await,
        releases::before(cluster, namespace).await,
        others(&former),
        kubelets(cluster).await,
        security(cluster, namespace).await,
    ]
}

pub(super) fn version(read: Result<(u32, u32), Missing>) -> Check {
    match read {
        Ok((major, minor)) => {
            let old = (major, minor) < (1, OLDEST_MINOR);
            VERSION
                .result(if old { CheckResult::Failed } else { CheckResult::Ok }, format!("{major}.{minor}"))
        }
        Err(why) => VERSION.unknown(&why),
    }
}

/// Asks the API server about each object that the chart creates.
pub(super) async fn rights(cluster: &Cluster, namespace: &str) -> Check {
    let api: Api<SelfSubjectAccessReview> = cluster.all();
    let params = PostParams::default();
    let asked = CREATED.map(|(group, resource, namespaced)| {
        let namespace = if namespaced { namespace } else { "" };
        let attributes =
            json!({ "group": group, "resource": resource, "verb": "create", "namespace": namespace });
        let review = json!({ "metadata": {}, "spec": { "resourceAttributes": attributes } });
        let (api, params) = (&api, &params);
        async move {
            let review =
                serde_json::from_value(review).map_err(|error| Missing::new(resource, error.to_string()))?;
            let answer = cluster.ask(resource, api.create(params, &review)).await?;
            let allowed = answer.status.is_some_and(|it| it.allowed);
            Ok((!allowed).then(|| resource.to_owned()))
        }
    });
    let answers: Result<Vec<Option<String>>, Missing> = join_all(asked).await.into_iter().collect();
    match answers {
        Err(why) => RIGHTS.unknown(&why),
        Ok(refused) => {
            let refused: Vec<String> = refused.into_iter().flatten().collect();
            let troubles: Vec<String> = (!refused.is_empty())
                .then(|| format!("you cannot create {}", refused.join(", ")))
                .into_iter()
                .collect();
            RIGHTS.judged(&troubles, "")
        }
    }
}

pub(super) fn others(former: &Former) -> Check {
    let mut troubles = Vec::new();
    if let Some(lease) = former.lease.as_ref().filter(|it| it.running) {
        troubles.push(format!("{} renews Lease kube-system/cloud-controller-manager", lease.holder));
    }
    if !former.pods.is_empty() {
        troubles.push(format!("pods in kube-system: {}", named(&former.pods)));
    }
    match former.unread.iter().next() {
        Some((what, why)) if troubles.is_empty() => OTHERS.unknown(&Missing::new(what, why)),
        _ => OTHERS.judged(&troubles, ""),
    }
}

async fn kubelets(cluster: &Cluster) -> Check {
    let api: Api<Node> = cluster.all();
    match cluster.ask("nodes", async { api.list(&ListParams::default()).await }).await {
        Ok(nodes) => of_nodes(&nodes.items),
        Err(why) => KUBELETS.unknown(&why),
    }
}

/// A node has the taint until a cloud provider initialises it, and from then on a provider ID.
pub(super) fn of_nodes(nodes: &[Node]) -> Check {
    let has_id = |it: &Node| it.spec.as_ref().and_then(|spec| spec.provider_id.as_ref()).is_some();
    let wrong = nodes.iter().filter(|it| !is_uninitialised(it) && !has_id(it));
    let wrong: Vec<String> = wrong.map(|it| it.name_any()).collect();
    if nodes.is_empty() {
        return KUBELETS.result(CheckResult::Warning, "the cluster has no nodes yet");
    }
    let trouble = (!wrong.is_empty()).then(|| {
        format!("of {} nodes, these have neither the taint nor a provider ID: {}", nodes.len(), named(&wrong))
    });
    KUBELETS.judged(&trouble.into_iter().collect::<Vec<_>>(), format!("{} nodes", nodes.len()))
}

async fn security(cluster: &Cluster, namespace: &str) -> Check {
    let api: Api<Namespace> = cluster.all();
    match cluster.ask("namespaces", async { api.get_opt(namespace).await }).await {
        Ok(found) => of_namespace(namespace, found.as_ref()),
        Err(why) => SECURITY.unknown(&why),
    }
}

pub(super) fn of_namespace(name: &str, found: Option<&Namespace>) -> Check {
    let Some(namespace) = found else {
        return SECURITY.ok(format!("{name} does not exist yet"));
    };
    let level = namespace.labels().get(ENFORCED).map_or("privileged", String::as_str);
    let text = format!("{name} enforces the level {level}");
    let trouble = (level != "privileged").then(|| text.clone());
    SECURITY.judged(&trouble.into_iter().collect::<Vec<_>>(), text)
}
