//! Checks that the Deployments are available, and finds out why their pods do not start.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Pod},
};
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{
    super::{About, Check, causes::Need},
    objects::{CREATES, filled_by_adapter},
    starting,
};
use crate::{
    cluster::Cluster,
    labels::{component_of, is_of_chart, selector},
    options::Component,
    pods::{Stopped, stopped},
    release::Release,
};

const DEPLOYMENTS: About = About {
    name: "the Deployments are available",
    hint: "see kubectl describe pod",
    link: "docs/troubleshoot.md#pods-that-do-not-start",
};

pub(in super::super) async fn check(cluster: &Cluster, release: &Release) -> Check {
    let api: Api<Deployment> = cluster.namespaced(&release.namespace);
    let params = ListParams::default().labels(&selector());
    let all = cluster.ask("deployments", async { api.list(&params).await }).await;
    let mut all = match all {
        Ok(all) => all.items,
        Err(why) => return DEPLOYMENTS.unknown(&why),
    };
    all.retain(|it| is_of_chart(it) && release.has(it));
    // Without pods, the check shows only the numbers of replicas.
    let mut pods = cluster.pods(Some(&release.namespace)).await.unwrap_or_default();
    pods.retain(|it| release.has(it));
    let is_starting = |it: &Pod| stopped(it).is_some_and(|why| why.is_starting());
    let events = match pods.iter().any(is_starting) {
        true => starting::events(cluster, &release.namespace).await,
        false => Vec::new(),
    };
    of(&all, &pods, &events)
}

/// The hint is about the first pod that does not start.
pub(in super::super) fn of(all: &[Deployment], pods: &[Pod], events: &[Event]) -> Check {
    let (mut troubles, mut hint) = (Vec::new(), None);
    let (mut faults, mut without) = (Vec::new(), Vec::new());
    let authority = filled_by_adapter(all);
    for deployment in all {
        let Some(lacking) = unavailable(deployment) else { continue };
        let mut cause = cause(deployment, pods, events);
        let lacks_authority = cause.as_ref().is_some_and(|(_, why)| lacks(&why.text, authority.as_deref()));
        if let Some((_, why)) = cause.as_mut().filter(|_| lacks_authority) {
            why.hint = CREATES.into();
        }
        hint = hint.or(is_scaled_to_none(deployment).then(|| scaling(deployment)));
        faults.push(match &cause {
            _ if is_scaled_to_none(deployment) => Vec::new(),
            Some(_) if lacks_authority => vec![Need::Authority],
            Some(_) => Vec::new(),
            None => needs(deployment),
        });
        if available(deployment) == 0 || is_scaled_to_none(deployment) {
            without.extend(component_of(deployment).map(Need::Runs));
        }
        let text = cause.as_ref().map(|(who, why)| format!(": {who}: {}", why.text)).unwrap_or_default();
        hint = hint.or(cause.map(|(_, why)| why.hint.into_owned()));
        troubles.push(format!("{lacking}{text}"));
    }
    let check = DEPLOYMENTS.judged(&troubles, format!("{} Deployments", all.len()));
    Check { hint: hint.or(check.hint), ..check }.following(faults).without(without)
}

/// A process that runs, but is not ready, may lack one of these.
fn needs(deployment: &Deployment) -> Vec<Need> {
    match component_of(deployment) {
        Some(Component::CloudAdapter) => vec![Need::Cloud],
        Some(controller) => {
            vec![Need::Rights(controller), Need::Adapter(controller), Need::Scope(controller)]
        }
        None => Vec::new(),
    }
}

fn available(deployment: &Deployment) -> i32 {
    deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The chart renders each Deployment of a release that runs with at least one replica.
fn is_scaled_to_none(deployment: &Deployment) -> bool {
    wanted(deployment) == 0
}

fn scaling(deployment: &Deployment) -> String {
    let (name, namespace) = (deployment.name_any(), deployment.namespace().unwrap_or_default());
    format!("run kubectl --namespace {namespace} scale deployment/{name} --replicas=1, or helm upgrade")
}

/// Whether a pod does not start because the Secret of the certificate authority does not exist.
fn lacks(text: &str, authority: Option<&str>) -> bool {
    authority.is_some_and(|name| text.contains(&format!("secret \"{name}\" not found")))
}

fn unavailable(deployment: &Deployment) -> Option<String> {
    if is_scaled_to_none(deployment) {
        return Some(format!("{} is scaled to 0", deployment.name_any()));
    }
    let wanted = wanted(deployment);
    let available = available(deployment);
    (available < wanted)
        .then(|| format!("{}: {available} of {wanted} replicas available", deployment.name_any()))
}

/// Returns an object, such as `pod NAME`, and the reason that it gives: why a pod does not start, or why there is none.
fn cause(deployment: &Deployment, pods: &[Pod], events: &[Event]) -> Option<(String, Stopped)> {
    let component = component_of(deployment)?;
    let mut its = pods.iter().filter(|it| component_of(*it) == Some(component));
    let stopped = |pod: &Pod| {
        let why = stopped(pod)?;
        why.is_starting().then(|| starting::cause(pod, &why.text, events)).flatten().or(Some(why))
    };
    if let Some(found) = its.find_map(|it| Some((format!("pod {}", it.name_any()), stopped(it)?))) {
        return Some(found);
    }
    let mut conditions = deployment.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let refused = conditions.find(|it| it.type_ == "ReplicaFailure" && it.status == "True")?;
    let text = refused.message.clone().unwrap_or_default();
    let hint = "change what the API server refuses, such as the Pod Security Standard of the namespace";
    Some(("no pod".to_owned(), Stopped { text, hint: hint.into() }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::labels::COMPONENT;

    fn of_json<T: serde::de::DeserializeOwned>(value: &Value) -> T {
        serde_json::from_value(value.clone()).expect("an object")
    }

    fn without_message(pod: &Pod) -> Value {
        let mut pod = serde_json::to_value(pod).expect("JSON");
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"] = Value::Null;
        pod
    }

    #[test]
    fn a_pod_that_does_not_start_is_shown_with_its_cause_and_a_hint() {
        let labels = json!({ COMPONENT: "node-controller" });
        let deployment = |conditions: Value| -> Vec<Deployment> {
            vec![of_json(&json!({
                "metadata": { "name": "node-controller", "labels": labels },
                "spec": { "replicas": 1, "selector": {}, "template": {} }, "status": { "conditions": conditions },
            }))]
        };
        let pod = |component: &str, reason: &str| -> Pod {
            let waiting = json!({ "waiting": { "reason": reason, "message": "https://ghcr.io\nmore" } });
            let status = json!([{ "name": "it", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": waiting }]);
            of_json(
                &json!({ "metadata": { "name": "x", "labels": { COMPONENT: component } }, "status": { "containerStatuses": status } }),
            )
        };
        let pods = [pod("cloud-adapter", "ErrImagePull"), pod("node-controller", "InvalidImageName")];
        let check = of(&deployment(json!([])), &pods, &[]);
        let lacking = "node-controller: 0 of 1 replicas available";
        assert_eq!(check.found, format!("{lacking}: pod x: InvalidImageName: https://ghcr.io"));
        assert!(check.hint.is_some_and(|it| it.contains("image.registry: ghcr.io/acme")));
        let refused =
            json!([{ "type": "ReplicaFailure", "status": "True", "message": "violates PodSecurity" }]);
        let check = of(&deployment(refused), &[], &[]);
        assert_eq!(check.found, format!("{lacking}: no pod: violates PodSecurity"));
        let check = of(&deployment(json!([])), &[], &[]);
        assert_eq!(
            (check.found.as_str(), check.hint.as_deref()),
            (lacking, Some("see kubectl describe pod"))
        );
        let starting = [pod("node-controller", "ContainerCreating")];
        let starting = [of_json::<Pod>(&without_message(&starting[0]))];
        let event: Event = of_json(&json!({
            "metadata": {}, "involvedObject": { "name": "x" }, "reason": "FailedMount",
            "message": "MountVolume.SetUp failed for volume \"a\" : secret \"b\" not found",
        }));
        let found = |events: &[Event]| of(&deployment(json!([])), &starting, events).found;
        assert_eq!(found(&[event]), format!("{lacking}: pod x: ContainerCreating: secret \"b\" not found"));
        assert_eq!(found(&[]), format!("{lacking}: pod x: ContainerCreating"));
    }
}
