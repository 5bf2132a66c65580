//! Checks before an installation that the user may create the objects of the chart.

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::{Api, api::PostParams};
use serde_json::json;

use super::{About, Check, CheckResult};
use crate::{cluster::Cluster, missing::Missing};

const RIGHTS: About = About {
    name: "you may install the chart",
    hint: "install it as cluster-admin",
    link: "docs/install.md#3-the-chart",
};
const RBAC: &str = "rbac.authorization.k8s.io";

/// A right to act on objects of a resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Right {
    verb: &'static str,
    group: &'static str,
    pub(super) resource: &'static str,
    scope: Scope,
    needed: Needed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Cluster,
    /// The namespace of the release.
    Namespace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    Always,
    /// With this value of the chart.
    With(&'static str),
    /// If the user lacks a right that the roles of the chart contain.
    UnlessHeld,
}

/// The rights to create what the chart renders. Source: helm/cloud-controllers/templates.
pub(super) const CREATED: [Right; 17] = {
    use Needed::{Always, With};
    use Scope::{Cluster, Namespace};
    const ADMISSION: &str = "admissionregistration.k8s.io";
    const MONITORING: &str = "monitoring.coreos.com";
    [
        create(RBAC, "clusterroles", Cluster, Always),
        create(RBAC, "clusterrolebindings", Cluster, Always),
        create(RBAC, "roles", Namespace, Always),
        create(RBAC, "rolebindings", Namespace, Always),
        create("apps", "deployments", Namespace, Always),
        create("coordination.k8s.io", "leases", Namespace, Always),
        create("", "secrets", Namespace, Always),
        create("", "serviceaccounts", Namespace, Always),
        create("", "services", Namespace, Always),
        create("", "configmaps", Namespace, Always),
        create("networking.k8s.io", "networkpolicies", Namespace, With("hostNetwork=false")),
        create("policy", "poddisruptionbudgets", Namespace, With("more than one replica")),
        create(ADMISSION, "validatingadmissionpolicies", Cluster, With("admissionPolicy.enabled=true")),
        create(ADMISSION, "validatingadmissionpolicybindings", Cluster, With("admissionPolicy.enabled=true")),
        create(MONITORING, "servicemonitors", Namespace, With("monitoring.serviceMonitor=true")),
        create(MONITORING, "prometheusrules", Namespace, With("monitoring.alerts=true")),
        create("batch", "jobs", Namespace, With("serviceController.onUninstall=delete")),
    ]
};
/// The API server permits roles and bindings with rights that their creator lacks only with these rights.
const BEYOND_OWN: [Right; 4] = [
    grant("escalate", "clusterroles", Scope::Cluster),
    grant("bind", "clusterroles", Scope::Cluster),
    grant("escalate", "roles", Scope::Namespace),
    grant("bind", "roles", Scope::Namespace),
];

const fn create(group: &'static str, resource: &'static str, scope: Scope, needed: Needed) -> Right {
    Right { verb: "create", group, resource, scope, needed }
}

const fn grant(verb: &'static str, resource: &'static str, scope: Scope) -> Right {
    Right { verb, group: RBAC, resource, scope, needed: Needed::UnlessHeld }
}

/// Asks the API server about each right.
pub(super) async fn check(cluster: &Cluster, namespace: &str) -> Check {
    let asked = CREATED.iter().chain(&BEYOND_OWN).map(|right| async move {
        let allowed = is_allowed(cluster, namespace, *right).await?;
        Ok((!allowed).then_some(*right))
    });
    let answers: Result<Vec<Option<Right>>, Missing> = join_all(asked).await.into_iter().collect();
    match answers {
        Err(why) => RIGHTS.unknown(&why),
        Ok(refused) => of_refused(&refused.into_iter().flatten().collect::<Vec<_>>()),
    }
}

async fn is_allowed(cluster: &Cluster, namespace: &str, right: Right) -> Result<bool, Missing> {
    let Right { verb, group, resource, scope, .. } = right;
    let namespace = if scope == Scope::Namespace { namespace } else { "" };
    let attributes = json!({ "group": group, "resource": resource, "verb": verb, "namespace": namespace });
    let review = json!({ "metadata": {}, "spec": { "resourceAttributes": attributes } });
    let review = serde_json::from_value(review).map_err(|error| Missing::new(resource, error.to_string()))?;
    let api: Api<SelfSubjectAccessReview> = cluster.all();
    let answer = cluster.ask(resource, api.create(&PostParams::default(), &review)).await?;
    Ok(answer.status.is_some_and(|it| it.allowed))
}

/// Only rights that each installation needs make the check fail. The values of the planned installation are not known.
fn of_refused(refused: &[Right]) -> Check {
    let create: Vec<&str> =
        refused.iter().filter(|it| it.needed == Needed::Always).map(|it| it.resource).collect();
    let with = refused.iter().filter_map(|it| match it.needed {
        Needed::With(value) => Some(format!("{} ({value})", it.resource)),
        Needed::Always | Needed::UnlessHeld => None,
    });
    let with: Vec<String> = with.collect();
    let grant = refused.iter().filter(|it| it.needed == Needed::UnlessHeld);
    let grant: Vec<String> = grant.map(|it| format!("{} {}", it.verb, it.resource)).collect();
    let mut texts = Vec::new();
    if !create.is_empty() {
        texts.push(format!("you cannot create {}", create.join(", ")));
    }
    if !grant.is_empty() {
        let why = "so you need every right that the roles of the chart contain";
        texts.push(format!("you cannot {}, {why}", grant.join(", ")));
    }
    if !with.is_empty() {
        texts.push(format!("with some values, you cannot create {}", with.join(", ")));
    }
    let result = match (create.is_empty(), texts.is_empty()) {
        (false, _) => CheckResult::Failed,
        (true, false) => CheckResult::Warning,
        (true, true) => CheckResult::Ok,
    };
    RIGHTS.result(result, texts.join("; "))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Objects of `helm test` are in a directory of their own, which is left out.
    #[test]
    fn every_kind_of_the_chart_is_asked_about() {
        let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../helm/cloud-controllers/templates");
        let mut kinds = BTreeSet::new();
        for file in fs::read_dir(templates).expect("the templates").map(|it| it.expect("an entry").path()) {
            if file.is_file() {
                let text = fs::read_to_string(&file).expect("a template");
                kinds.extend(text.lines().filter_map(|it| it.strip_prefix("kind: ")).map(resource));
            }
        }
        let asked: BTreeSet<String> = CREATED.iter().map(|it| it.resource.to_owned()).collect();
        assert_eq!(asked, kinds);
    }

    fn resource(kind: &str) -> String {
        let kind = kind.to_lowercase();
        kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |it| format!("{it}ies"))
    }

    #[test]
    fn only_rights_that_each_installation_needs_make_the_check_fail() {
        let of = |refused: &[&str]| {
            let all = CREATED.iter().chain(&BEYOND_OWN);
            let check = of_refused(
                &all.filter(|it| refused.contains(&format!("{} {}", it.verb, it.resource).as_str()))
                    .copied()
                    .collect::<Vec<_>>(),
            );
            (check.result, check.found)
        };
        assert_eq!(of(&[]), (CheckResult::Ok, String::new()));
        let (result, found) = of(&["create services", "create configmaps", "create networkpolicies"]);
        assert_eq!(result, CheckResult::Failed);
        assert_eq!(
            found,
            "you cannot create services, configmaps; with some values, you cannot create networkpolicies \
             (hostNetwork=false)"
        );
        let (result, found) = of(&["escalate clusterroles", "bind roles"]);
        assert_eq!(result, CheckResult::Warning);
        assert_eq!(
            found,
            "you cannot escalate clusterroles, bind roles, so you need every right that the roles of the chart contain"
        );
        assert_eq!(of(&["create validatingadmissionpolicies"]).0, CheckResult::Warning);
    }

    #[tokio::test]
    async fn a_user_without_rights_cannot_install_the_chart() {
        let no = json!({ "metadata": {}, "spec": {}, "status": { "allowed": false } });
        let check = check(&Cluster::answering(200, &no), "a").await;
        assert_eq!(check.result, CheckResult::Failed);
        for text in [
            "create clusterroles, ",
            "services, configmaps",
            "escalate clusterroles, bind clusterroles, escalate roles, bind roles",
        ] {
            assert!(check.found.contains(text), "{text}: {check:?}");
        }
    }
}
