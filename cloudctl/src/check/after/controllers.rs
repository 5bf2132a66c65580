//! The controllers of a release, according to its Deployments.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, api::ListParams};

use super::super::flags::{self, Classes};
use crate::{
    cluster::Cluster,
    labels::{component_of, is_of_chart, selector},
    missing::Missing,
    options::Component,
    release::Release,
};

#[derive(Clone, Debug)]
pub(in super::super) struct Controllers {
    installed: BTreeSet<Component>,
    /// The controllers that change objects.
    live: BTreeSet<Component>,
    /// The Services that the release manages. Empty: it has no service-controller.
    pub(in super::super) classes: Classes,
}

pub(in super::super) async fn read(cluster: &Cluster, release: &Release) -> Result<Controllers, Missing> {
    let api: Api<Deployment> = cluster.namespaced(&release.namespace);
    let params = ListParams::default().labels(&selector());
    let mut all = cluster.ask("deployments", async { api.list(&params).await }).await?.items;
    all.retain(|it| is_of_chart(it) && release.has(it));
    Ok(Controllers::of(&all))
}

impl Controllers {
    /// Without Deployments, the processes run outside of the cluster, and all controllers with their default flags are assumed.
    pub(in super::super) fn of(all: &[Deployment]) -> Self {
        if all.is_empty() {
            let components = BTreeSet::from(Component::CONTROLLERS);
            return Self { installed: components.clone(), live: components, classes: [None].into() };
        }
        let components = |it: &mut dyn Iterator<Item = &Deployment>| -> BTreeSet<Component> {
            it.filter_map(component_of).filter(|it| Component::CONTROLLERS.contains(it)).collect()
        };
        let of_services = all.iter().filter(|it| component_of(*it) == Some(Component::ServiceController));
        Self {
            installed: components(&mut all.iter()),
            live: components(&mut all.iter().filter(|it| flags::is_live(it))),
            classes: of_services.flat_map(flags::classes).collect(),
        }
    }

    pub(in super::super) fn has(&self, component: Component) -> bool {
        self.installed.contains(&component)
    }

    /// Returns the controllers that change objects without a class, as those of other cloud controller managers do.
    pub(in super::super) fn live(&self) -> impl Iterator<Item = Component> {
        let is_apart = |it: &Component| *it == Component::ServiceController && !self.classes.contains(&None);
        self.live.iter().copied().filter(move |it| !is_apart(it))
    }
}

#[cfg(test)]
pub(in super::super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::labels::COMPONENT;

    pub(in super::super::super) fn deployment(component: &str, replicas: u32, args: &[&str]) -> Deployment {
        let template = json!({ "spec": { "containers": [{ "name": "it", "args": args }] } });
        serde_json::from_value(json!({
            "metadata": { "name": component, "labels": { COMPONENT: component } },
            "spec": { "replicas": replicas, "selector": {}, "template": template },
        }))
        .expect("a Deployment")
    }

    #[test]
    fn deployments_show_what_the_controllers_of_a_release_do() {
        let (nodes, services) = (Component::NodeController, Component::ServiceController);
        let live = |it: &Controllers| it.live().collect::<Vec<_>>();
        let adapter = deployment("cloud-adapter", 1, &[]);
        let it = Controllers::of(&[adapter.clone(), deployment("service-controller", 1, &[])]);
        assert!(!it.has(nodes) && it.has(services), "{it:?}");
        assert_eq!((live(&it), &it.classes), (vec![services], &Classes::from([None])));
        let class = "--load-balancer-class=a/b";
        let it = Controllers::of(&[deployment("service-controller", 1, &[class])]);
        assert_eq!(it.classes, Classes::from([None, Some("a/b".to_owned())]));
        let own = [class, "--default-load-balancer=false"];
        let it = Controllers::of(&[
            deployment("node-controller", 1, &["--dry-run=true"]),
            deployment("service-controller", 1, &own),
        ]);
        assert_eq!((live(&it), &it.classes), (vec![], &Classes::from([Some("a/b".to_owned())])));
        assert!(it.has(nodes));
        let it = Controllers::of(&[adapter, deployment("node-controller", 0, &[])]);
        assert_eq!((live(&it), &it.classes), (vec![], &Classes::new()));
        assert_eq!(live(&Controllers::of(&[])), Component::CONTROLLERS, "outside of the cluster");
    }
}
