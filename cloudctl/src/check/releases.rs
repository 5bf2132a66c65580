//! Finds releases of the chart, in all namespaces, whose controllers have the same tasks. They would change the same objects.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, api::ListParams};

use super::{About, Check, CheckResult, flags};
use crate::{
    cluster::Cluster,
    labels::{component_of, is_of_chart, selector},
    options::Component,
    release::Release,
    words::named,
};

const RELEASES: About = About {
    name: "no two releases of the chart have the same tasks",
    hint: "uninstall one release, or disable these controllers in one (two service-controllers may run with different classes, and two node-controllers with different nodeController.nodes.cloudName)",
    link: "helm/cloud-controllers/README.md#several-releases",
};

/// The objects that a controller changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// Nodes of the cloud with this name. `None`: all nodes.
    Nodes(Option<String>),
    Routes,
    /// Services with this class. `None`: Services without a class.
    Services(Option<String>),
}

impl Task {
    /// Returns the objects that both tasks change.
    fn common(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Nodes(None), Self::Nodes(cloud)) | (Self::Nodes(cloud), Self::Nodes(None)) => {
                Some(Self::Nodes(cloud.clone()))
            }
            (one, other) => (one == other).then(|| one.clone()),
        }
    }
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nodes(None) => f.write_str("nodes"),
            Self::Nodes(Some(cloud)) => write!(f, "nodes of cloud {cloud}"),
            Self::Routes => f.write_str("routes"),
            Self::Services(None) => f.write_str("Services without a class"),
            Self::Services(Some(class)) => write!(f, "Services of class {class}"),
        }
    }
}

/// The tasks of each release.
type Tasks = BTreeMap<Release, BTreeSet<Task>>;

/// Before an installation: any release that changes objects is a reason not to install another one.
pub(super) async fn before(cluster: &Cluster, namespace: &str) -> Check {
    read(cluster).await.map_or_else(|unknown| unknown, |all| of_installed(&of_deployments(&all), namespace))
}

pub(super) async fn after(cluster: &Cluster) -> Check {
    read(cluster).await.map_or_else(|unknown| unknown, |all| of_several(&of_deployments(&all)))
}

async fn read(cluster: &Cluster) -> Result<Vec<Deployment>, Check> {
    let api: Api<Deployment> = cluster.all();
    let params = ListParams::default().labels(&selector());
    let all = cluster.ask("deployments of all namespaces", async { api.list(&params).await }).await;
    all.map(|all| all.items).map_err(|why| RELEASES.unknown(&why))
}

fn of_deployments(all: &[Deployment]) -> Tasks {
    let mut tasks = Tasks::new();
    for it in all.iter().filter(|it| is_of_chart(*it)) {
        if let Some(release) = Release::of(it) {
            tasks.entry(release).or_default().extend(of_controller(it));
        }
    }
    tasks
}

fn of_controller(deployment: &Deployment) -> Vec<Task> {
    if !flags::is_live(deployment) {
        return Vec::new();
    }
    match component_of(deployment) {
        Some(Component::NodeController) => vec![Task::Nodes(flags::cloud(deployment))],
        Some(Component::RouteController) => vec![Task::Routes],
        Some(Component::ServiceController) => {
            flags::classes(deployment).into_iter().map(Task::Services).collect()
        }
        Some(Component::CloudAdapter) | None => Vec::new(),
    }
}

/// Only a release whose controllers select Services by a class, and nodes by the name of a cloud, leaves room for another one.
fn of_installed(releases: &Tasks, namespace: &str) -> Check {
    let of_all = |task: &Task| !matches!(task, Task::Services(Some(_)) | Task::Nodes(Some(_)));
    let Some((first, _)) = releases.iter().find(|(_, tasks)| tasks.iter().any(of_all)) else {
        let others: Vec<String> = releases.keys().map(Release::label).collect();
        return RELEASES.ok(if others.is_empty() { String::new() } else { named(&others) });
    };
    let texts = releases.iter().filter(|(_, tasks)| !tasks.is_empty());
    let texts: Vec<String> = texts
        .map(|(it, tasks)| format!("release {} runs already and changes {}", it.label(), list(tasks)))
        .collect();
    let found = format!("{}; a second one in {namespace} would change the same objects", texts.join("; "));
    let hint = format!(
        "use --release-namespace {} to check the release that runs; to install another one, disable these controllers in one of them",
        first.namespace
    );
    Check { hint: Some(hint), ..RELEASES.result(CheckResult::Failed, found) }
}

/// Names each pair of releases with a common task.
fn of_several(releases: &Tasks) -> Check {
    let mut troubles = Vec::new();
    for (n, (one, its)) in releases.iter().enumerate() {
        for (other, others) in releases.iter().skip(n + 1) {
            let common: BTreeSet<Task> =
                its.iter().filter_map(|task| others.iter().find_map(|other| task.common(other))).collect();
            if !common.is_empty() {
                troubles.push(format!(
                    "{} and {}: both change {}",
                    one.label(),
                    other.label(),
                    list(&common)
                ));
            }
        }
    }
    RELEASES.judged(
        &troubles,
        if releases.len() > 1 { format!("{} releases", releases.len()) } else { String::new() },
    )
}

fn list(tasks: &BTreeSet<Task>) -> String {
    tasks.iter().map(Task::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::labels::{COMPONENT, INSTANCE, PART_OF};

    fn deployment(release: (&str, &str), component: &str, replicas: u32, args: &[&str]) -> Deployment {
        let (name, namespace) = release;
        let labels = json!({ INSTANCE: name, COMPONENT: component, PART_OF.0: PART_OF.1 });
        let template = json!({ "spec": { "containers": [{ "name": "it", "args": args }] } });
        serde_json::from_value(json!({
            "metadata": { "name": component, "namespace": namespace, "labels": labels },
            "spec": { "replicas": replicas, "selector": {}, "template": template },
        }))
        .expect("a Deployment")
    }

    const ONE: (&str, &str) = ("ccm", "kube-system");
    const TWO: (&str, &str) = ("ccm", "default");

    fn check(all: &[Deployment]) -> (CheckResult, String) {
        let check = of_several(&of_deployments(all));
        (check.result, check.found)
    }

    #[test]
    fn releases_with_the_same_tasks_are_named() {
        let nodes = |release| deployment(release, "node-controller", 1, &[]);
        let services = |release, args: &[&str]| deployment(release, "service-controller", 1, args);
        let routes = deployment(TWO, "route-controller", 1, &[]);
        let (ok, failed) = (CheckResult::Ok, CheckResult::Failed);
        assert_eq!(check(&[nodes(ONE), services(ONE, &[]), routes.clone()]), (ok, "2 releases".to_owned()));
        assert_eq!(check(&[nodes(ONE), services(ONE, &[])]), (ok, String::new()));
        let both = "ccm in default and ccm in kube-system: both change ";
        let all = [nodes(ONE), services(ONE, &[]), nodes(TWO), services(TWO, &[]), routes];
        assert_eq!(check(&all), (failed, format!("{both}nodes, Services without a class")));
        let own = ["--load-balancer-class=a/b", "--default-load-balancer=false"];
        assert_eq!(check(&[services(ONE, &[]), services(TWO, &own)]).0, ok, "each has its own Services");
        let a_class = [services(ONE, &own[..1]), services(TWO, &own)];
        assert_eq!(check(&a_class), (failed, format!("{both}Services of class a/b")));
        let cloud = |release, args: &[&str]| deployment(release, "node-controller", 1, args);
        let (eu, us) = (["--cloud-name=eu"], ["--cloud-name=us"]);
        assert_eq!(check(&[cloud(ONE, &eu), cloud(TWO, &us)]).0, ok, "each has its own nodes");
        for others in [&eu[..], &[]] {
            let found = check(&[cloud(ONE, &eu), cloud(TWO, others)]);
            assert_eq!(found, (failed, format!("{both}nodes of cloud eu")), "{others:?}");
        }
        let idle = deployment(TWO, "node-controller", 0, &[]);
        assert_eq!(check(&[nodes(ONE), idle]).0, ok, "it has no replicas");
        let planning = deployment(TWO, "node-controller", 1, &["--dry-run=true"]);
        assert_eq!(check(&[nodes(ONE), planning]).0, ok, "it changes nothing");
    }

    #[test]
    fn a_release_elsewhere_is_found_before_an_installation() {
        let of = |all: &[Deployment]| of_installed(&of_deployments(all), "default");
        let found =
            of(&[deployment(ONE, "node-controller", 1, &[]), deployment(ONE, "cloud-adapter", 1, &[])]);
        assert_eq!(
            (found.result, found.found.as_str()),
            (
                CheckResult::Failed,
                "release ccm in kube-system runs already and changes nodes; a second one in default would change the same objects"
            )
        );
        assert!(found.hint.is_some_and(|it| it.starts_with("use --release-namespace kube-system to check")));
        let own = ["--load-balancer-class=a/b", "--default-load-balancer=false"];
        let found = of(&[deployment(ONE, "service-controller", 1, &own)]);
        assert_eq!((found.result, found.found.as_str()), (CheckResult::Ok, "1: ccm in kube-system"));
        assert_eq!(of(&[]).result, CheckResult::Ok);
    }

    #[tokio::test]
    async fn without_the_right_to_list_deployments_the_result_is_unknown() {
        let no = json!({ "kind": "Status", "code": 403, "message": "deployments.apps is forbidden" });
        let cluster = Cluster::answering(403, &no);
        for found in [before(&cluster, "default").await, after(&cluster).await] {
            assert_eq!(found.result, CheckResult::Unknown);
            assert!(found.found.contains("deployments.apps is forbidden"), "{found:?}");
        }
    }
}
