//! Finds the releases of the chart in the cluster. The search uses the labels of objects, because their names depend on values of the
//! chart.

use kube::ResourceExt;

use crate::{
    cluster::{Cluster, Deployed},
    labels::{INSTANCE, component_of, is_of_chart},
    missing::{Missing, Usage},
    options::{Common, Component},
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};

/// The entry in the list of what could not be read, for a chart that is not installed.
pub(crate) const NOT_INSTALLED: &str = "pods of the Helm release";

/// Several releases may exist beside each other only if their tasks differ.
const CONFLICTS: &str = "Two releases conflict if both have the same tasks: see `no two releases of the chart have the same tasks` in `cloudctl check`";

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release {
    pub(crate) namespace: String,
    /// The name of the release. `None`: the name is not known, and objects of all releases in the namespace are read.
    pub(crate) name: Option<String>,
    /// The prefix of the names of the release's objects: empty, or the chart's value `fullnameOverride` and a dash.
    prefix: String,
}

/// A release with the objects that were read to find it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) release: Release,
    pub(crate) pods: Vec<Pod>,
    /// The Deployments. `None` if the user may not list Deployments.
    pub(crate) deployments: Option<Vec<Deployed>>,
}

#[derive(Debug)]
pub(crate) enum NotFound {
    /// Several releases match, and the user has to name one of them.
    Usage(Usage),
    Missing(Missing),
}

impl Release {
    /// A release whose name is not known.
    pub(crate) fn within(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Returns the release of a Deployment or pod of a component.
    pub(crate) fn of(object: &impl ResourceExt) -> Option<Self> {
        let component = component_of(object)?;
        let prefix = object.name_any().split_once(component.name()).map(|(prefix, _)| prefix.to_owned());
        let name = object.labels().get(INSTANCE).cloned();
        Some(Self {
            namespace: object.namespace().unwrap_or_default(),
            name,
            prefix: prefix.unwrap_or_default(),
        })
    }

    /// Whether an object belongs to the release, according to its labels.
    pub(crate) fn has(&self, object: &impl ResourceExt) -> bool {
        match (&self.name, object.labels().get(INSTANCE)) {
            (Some(own), Some(its)) => own == its,
            (None, _) => true,
            (Some(_), None) => false,
        }
    }

    /// Returns the shard of this component that the Lease belongs to. If the holder has recreated the Lease, the Lease has no labels, and
    /// only the name tells the shard.
    pub(crate) fn shard(&self, component: Component, lease: &Lease) -> Option<u32> {
        let name = lease.metadata.name.as_deref()?;
        let rest = if lease.labels().contains_key(INSTANCE) {
            let its = component_of(lease) == Some(component) && self.has(lease);
            name.split_once(component.lease()).map(|(_, rest)| rest).filter(|_| its)
        } else {
            name.strip_prefix(self.prefix.as_str())?.strip_prefix(component.lease())
        }?;
        if rest.is_empty() { Some(0) } else { rest.strip_prefix('-')?.parse().ok() }
    }

    pub(crate) fn label(&self) -> String {
        format!("{} in {}", self.name.as_deref().unwrap_or("without a name"), self.namespace)
    }
}

/// Finds the release that the flags name: in the given namespace, in kube-system, or else in the only namespace that has one.
pub(crate) async fn find(cluster: &Cluster, common: &Common) -> Result<Found, NotFound> {
    let namespace = common.release_namespace();
    let (mut pods, mut deployments) = read(cluster, Some(namespace)).await.map_err(NotFound::Missing)?;
    let chosen = |pods: &[Pod], deployments: &Option<Vec<Deployed>>| {
        let mut all = releases(pods, deployments.as_deref());
        all.retain(|it| common.release.is_none() || it.name == common.release);
        all
    };
    let mut all = chosen(&pods, &deployments);
    if all.is_empty()
        && let Ok(everywhere) = read(cluster, None).await
    {
        (pods, deployments) = everywhere;
        let others = chosen(&pods, &deployments);
        if common.release_namespace.is_some() || others.is_empty() {
            return Err(NotFound::Missing(nowhere(common, &releases(&pods, deployments.as_deref()))));
        }
        all = others;
    }
    match all.as_slice() {
        [] => Err(NotFound::Missing(nowhere(common, &[]))),
        [release] => {
            pods.retain(|it| release.has(it) && it.namespace().as_ref() == Some(&release.namespace));
            Ok(Found { release: release.clone(), pods, deployments: deployments.map(|all| of(release, all)) })
        }
        several => Err(NotFound::Usage(Usage(format!(
            "there are several releases of the chart: {}; choose one with --release NAME and --release-namespace NAME. \
             {CONFLICTS}",
            list(several)
        )))),
    }
}

fn of(release: &Release, mut all: Vec<Deployed>) -> Vec<Deployed> {
    all.retain(|it| release.has(it) && it.namespace().as_ref() == Some(&release.namespace));
    all
}

/// Reads pods and, if that is allowed, Deployments.
async fn read(
    cluster: &Cluster,
    namespace: Option<&str>,
) -> Result<(Vec<Pod>, Option<Vec<Deployed>>), Missing> {
    let pods = cluster.pods(namespace).await;
    match cluster.deployments(namespace).await {
        Ok(deployments) => Ok((pods?, Some(deployments))),
        Err(_forbidden) => Ok((pods?, None)),
    }
}

/// Finds the release by its Deployments alone, for processes that are read at URLs. Without permission to list Deployments, the name stays
/// unknown.
///
/// Errors: The flags name no release that exists, or do not name one of several.
pub(crate) async fn locate(cluster: &Cluster, common: &Common) -> Result<Release, Usage> {
    let unknown = Release::within(common.release_namespace());
    let Ok(deployments) = cluster.deployments(Some(&unknown.namespace)).await else { return Ok(unknown) };
    let mut all = releases(&[], Some(&deployments));
    all.retain(|it| common.release.is_none() || it.name == common.release);
    match all.as_slice() {
        [] => match (&common.release, cluster.deployments(None).await) {
            (Some(name), Ok(everywhere)) => match releases(&[], Some(&everywhere)).as_slice() {
                [] => Ok(unknown),
                others => Err(Usage(no_such(name, common.release_namespace(), others))),
            },
            (name, _) => Ok(Release { name: name.clone(), ..unknown }),
        },
        [release] => Ok(release.clone()),
        several => Err(Usage(format!(
            "there are several releases of the chart: {}; choose one with --release NAME. {CONFLICTS}",
            list(several)
        ))),
    }
}

/// Returns the releases. Pods count only if Deployments may not be listed, because other projects may use the same component names.
fn releases(pods: &[Pod], deployments: Option<&[Deployed]>) -> Vec<Release> {
    let mut all: Vec<Release> = match deployments {
        Some(all) => all.iter().filter(|it| is_of_chart(*it)).filter_map(Release::of).collect(),
        None => pods.iter().filter_map(Release::of).collect(),
    };
    all.sort();
    all.dedup_by(|a, b| (&a.namespace, &a.name) == (&b.namespace, &b.name));
    all
}

/// Returns where other releases are, if none matches the flags.
fn nowhere(common: &Common, others: &[Release]) -> Missing {
    let namespace = common.release_namespace();
    let named = common.release.as_ref().map(|name| format!("release {name} ")).unwrap_or_default();
    let why = match (others.first(), &common.release) {
        (Some(_), Some(name)) => no_such(name, namespace, others),
        (Some(first), None) => format!(
            "not found in {namespace}; there are: {}; use --release-namespace {}",
            list(others),
            first.namespace
        ),
        (None, _) => format!(
            "{named}not found in {namespace}: use --release-namespace NAMESPACE, or --url COMPONENT=URL for processes \
             outside of the cluster"
        ),
    };
    Missing::new(NOT_INSTALLED, why)
}

fn no_such(name: &str, namespace: &str, others: &[Release]) -> String {
    let verb = if others.len() == 1 { "is" } else { "are" };
    format!(
        "there is no release {name} in namespace {namespace}; there {verb}: {}; use --release NAME and --release-namespace NAME",
        list(others)
    )
}

fn list(releases: &[Release]) -> String {
    releases.iter().map(Release::label).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::labels::{COMPONENT, PART_OF};

    fn deployment(name: &str, namespace: &str, instance: &str, component: &str) -> Deployed {
        serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": name, "namespace": namespace, "labels": labels(instance, component) },
        }))
        .expect("a Deployment")
    }

    fn labels(instance: &str, component: &str) -> Value {
        json!({ INSTANCE: instance, COMPONENT: component, PART_OF.0: PART_OF.1, "app.kubernetes.io/name": "other" })
    }

    fn lease(name: &str, labels: &Value) -> Lease {
        serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).expect("a Lease")
    }

    #[test]
    fn releases_are_found_by_labels() {
        let of_another = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "node-controller", "namespace": "a", "labels": { INSTANCE: "x", COMPONENT: "node-controller" } },
        }));
        let all = [
            deployment("node-controller", "a", "one", "node-controller"),
            deployment("cloud-adapter", "a", "one", "cloud-adapter"),
            deployment("eu-node-controller", "a", "two", "node-controller"),
            of_another.expect("a Deployment"),
        ];
        let found = releases(&[], Some(&all));
        let names: Vec<_> = found.iter().map(|it| (it.label(), it.prefix.as_str())).collect();
        assert_eq!(names, [("one in a".to_owned(), ""), ("two in a".to_owned(), "eu-")]);
    }

    #[test]
    fn leases_are_found_by_labels_or_without_labels_by_name() {
        let two = Release { name: Some("two".to_owned()), prefix: "eu-".to_owned(), ..Release::within("a") };
        let shard = |name, labels: &Value| two.shard(Component::NodeController, &lease(name, labels));
        let own = labels("two", "node-controller");
        assert_eq!(shard("eu-cloud-node-controller-3", &own), Some(3));
        assert_eq!(shard("eu-cloud-node-controller", &own), Some(0));
        assert_eq!(shard("eu-cloud-node-controller-x", &own), None);
        assert_eq!(shard("eu-cloud-node-controller", &labels("one", "node-controller")), None);
        assert_eq!(shard("eu-cloud-node-controller", &labels("two", "route-controller")), None);
        assert_eq!(shard("eu-cloud-node-controller-1", &json!({})), Some(1), "recreated by its holder");
        assert_eq!(shard("cloud-node-controller", &json!({})), None, "of another release");
    }

    #[tokio::test]
    async fn several_releases_are_named_and_one_is_chosen() {
        let items: Vec<Value> = ["one", "two"]
            .iter()
            .map(|name| json!({ "metadata": { "name": "node-controller", "namespace": "kube-system", "labels": labels(name, "node-controller") } }))
            .collect();
        let answer = json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items });
        let cluster = Cluster::answering(200, &answer);
        let common = Common::default();
        let refused = find(&cluster, &common).await.expect_err("one must be chosen");
        assert!(
            matches!(&refused, NotFound::Usage(Usage(why)) if why.contains("one in kube-system, two in kube-system") && why.contains("conflict if both have the same tasks"))
        );
        let common = Common { release: Some("two".to_owned()), ..common };
        let found = find(&cluster, &common).await.expect("it is chosen");
        assert_eq!((found.release.name.as_deref(), found.pods.len()), (Some("two"), 1));
        let common = Common { release: Some("three".to_owned()), ..common };
        let Err(NotFound::Missing(why)) = find(&cluster, &common).await else { panic!("no release exists") };
        assert!(
            why.why.starts_with(
                "there is no release three in namespace kube-system; there are: one in kube-system, two"
            ),
            "{why:?}"
        );
        let Err(Usage(why)) = locate(&cluster, &common).await else { panic!("no such release") };
        assert!(why.starts_with("there is no release three in namespace kube-system"), "{why}");
    }
}
