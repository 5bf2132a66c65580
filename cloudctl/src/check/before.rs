//! The checks before an installation: the cluster, and the rights of the user.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{About, Check, CheckResult, releases, rights};
use crate::{
    adopt::{
        former::{self, Signs},
        is_uninitialised,
    },
    cluster::Cluster,
    missing::Missing,
    words::named,
};

/// The oldest supported minor version of Kubernetes 1.x. Source: helm/cloud-controllers/Chart.yaml, `kubeVersion`.
const OLDEST_MINOR: u32 = 33;
/// The label with the Pod Security Standard that a namespace enforces.
const ENFORCED: &str = "pod-security.kubernetes.io/enforce";

pub(super) const VERSION: About = About {
    name: "the API server is Kubernetes 1.33 or later",
    hint: "upgrade the control plane",
    link: "docs/upgrade.md",
};
pub(super) const OTHERS: About = About {
    name: "no other cloud controller manager runs",
    hint: "stop it first, or install with dryRun=true beside it",
    link: "docs/migrate.md",
};
pub(super) const KUBELETS: About = About {
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
    let signs = former::signs(cluster, now).await;
    vec![
        version(cluster.version().await),
        rights::check(cluster, namespace).await,
        releases::before(cluster, namespace).await,
        others(&signs),
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

pub(super) fn others(signs: &Signs) -> Check {
    let troubles = at_work(signs);
    match signs.unread.first() {
        Some((_, why)) if troubles.is_empty() => OTHERS.unknown(why),
        _ => OTHERS.judged(&troubles, ""),
    }
}

/// Returns what shows that another cloud controller manager runs.
pub(super) fn at_work(signs: &Signs) -> Vec<String> {
    let mut troubles = Vec::new();
    if let Some(lease) = signs.lease.as_ref().filter(|it| it.running) {
        troubles.push(format!("{} renews Lease kube-system/cloud-controller-manager", lease.holder));
    }
    if !signs.pods.is_empty() {
        let pods: Vec<String> = signs.pods.iter().map(|it| it.name_any()).collect();
        troubles.push(format!("pods in kube-system: {}", named(&pods)));
    }
    troubles
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
