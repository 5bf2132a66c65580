//! The flags of the controllers in the Deployments of the chart. They show what the controllers of a release do.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;

/// Flags of the controllers. Source: helm/cloud-controllers/templates/_controller.tpl, node-controller.yaml and service-controller.yaml.
const DRY_RUN: &str = "--dry-run=true";
const CLOUD: &str = "--cloud-name=";
const CLASS: &str = "--load-balancer-class=";
const NO_DEFAULT: &str = "--default-load-balancer=false";

/// The classes of Services. `None`: Services without a class.
pub(super) type Classes = BTreeSet<Option<String>>;

pub(super) fn args(deployment: &Deployment) -> impl Iterator<Item = &str> {
    let pods = deployment.spec.iter().filter_map(|spec| spec.template.spec.as_ref());
    let containers = pods.flat_map(|pod| &pod.containers);
    containers.flat_map(|it| it.args.iter().flatten()).map(String::as_str)
}

/// Whether the controller changes objects. It does not without replicas, or in a dry run.
pub(super) fn is_live(controller: &Deployment) -> bool {
    let replicas = controller.spec.as_ref().map(|spec| spec.replicas.unwrap_or(1));
    replicas.is_some_and(|it| it > 0) && !args(controller).any(|it| it == DRY_RUN)
}

/// Returns the name of the cloud whose nodes a node-controller manages. `None`: it manages nodes of all clouds.
pub(super) fn cloud(node_controller: &Deployment) -> Option<String> {
    args(node_controller).find_map(|it| it.strip_prefix(CLOUD)).map(str::to_owned)
}

/// Returns the classes of the Services that a service-controller manages.
pub(super) fn classes(service_controller: &Deployment) -> Classes {
    let class = args(service_controller).find_map(|it| it.strip_prefix(CLASS)).map(str::to_owned);
    let default = (!args(service_controller).any(|it| it == NO_DEFAULT)).then_some(None);
    default.into_iter().chain(class.map(Some)).collect()
}
