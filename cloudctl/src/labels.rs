//! The labels of the objects of the chart.

use kube::ResourceExt;

use crate::options::Component;

pub(crate) const COMPONENT: &str = "app.kubernetes.io/component";
pub(crate) const INSTANCE: &str = "app.kubernetes.io/instance";
/// The label of all objects of the chart except pods. Source: helm/cloud-controllers/templates/_helpers.tpl, `labels`.
pub(crate) const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "cloud-controllers");

pub(crate) fn component_of(object: &impl ResourceExt) -> Option<Component> {
    object.labels().get(COMPONENT).and_then(|name| Component::named(name))
}

/// Returns the selector of the Deployments and pods of all releases.
pub(crate) fn selector() -> String {
    let names = [Component::CloudAdapter].iter().chain(&Component::CONTROLLERS).map(|it| it.name());
    format!("{COMPONENT} in ({})", names.collect::<Vec<_>>().join(","))
}

pub(crate) fn is_of_chart(object: &impl ResourceExt) -> bool {
    object.labels().get(PART_OF.0).is_some_and(|it| it == PART_OF.1)
}
