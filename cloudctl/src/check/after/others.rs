//! Checks that no other cloud controller manager has the tasks of the release.

use jiff::Timestamp;

use super::{
    super::{About, Check, CheckResult, before},
    controllers::Controllers,
};
use crate::{
    adopt::former::{self, Signs},
    cluster::Cluster,
};

pub(super) const OTHERS: About = About {
    name: "no other cloud controller manager has the same tasks",
    hint: "stop it, or disable the same controllers in it with --controllers",
    link: "docs/migrate.md",
};

pub(in super::super) async fn check(cluster: &Cluster, own: &Controllers, now: Timestamp) -> Check {
    of(&former::signs(cluster, now).await, own)
}

fn of(signs: &Signs, own: &Controllers) -> Check {
    let found = before::at_work(signs);
    if found.is_empty() {
        return match signs.unread.first() {
            Some((what, why)) if why.forbidden => {
                OTHERS.not_permitted(CheckResult::Unknown, &format!("list {what} in kube-system"))
            }
            Some((_, why)) => OTHERS.unknown(why),
            None => OTHERS.ok(""),
        };
    }
    let found = found.join("; ");
    if own.live().next().is_none() {
        return OTHERS.ok(format!("{found}; this release does not change the same objects"));
    }
    let has_other_tasks = |pod| !own.live().any(|it| former::does(pod, it));
    if !signs.pods.is_empty() && signs.pods.iter().all(has_other_tasks) {
        return OTHERS.ok(format!("{found}; its flags disable the controllers of this release"));
    }
    OTHERS.result(CheckResult::Failed, found)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::{super::controllers::tests::deployment, *};
    use crate::{adopt::FormerLease, missing::Missing};

    fn pod(args: &[&str]) -> Pod {
        let container = json!({ "name": "it", "args": args });
        let pod = json!({ "metadata": { "name": "ccm-x" }, "spec": { "containers": [container] } });
        serde_json::from_value(pod).expect("a pod")
    }

    fn result(signs: &Signs, own: &Controllers) -> (CheckResult, String) {
        let check = of(signs, own);
        (check.result, check.found)
    }

    #[test]
    fn another_ccm_beside_a_live_release_fails() {
        let live = Controllers::of(&[deployment("node-controller", 1, &[])]);
        assert_eq!(result(&Signs::default(), &live), (CheckResult::Ok, String::new()));
        let lease = FormerLease { holder: "ccm-x".to_owned(), renewed: None, running: true };
        let leads = Signs { lease: Some(lease), ..Signs::default() };
        let renews = "ccm-x renews Lease kube-system/cloud-controller-manager";
        assert_eq!(result(&leads, &live), (CheckResult::Failed, renews.to_owned()));
        let planning = Controllers::of(&[deployment("node-controller", 1, &["--dry-run=true"])]);
        let text = format!("{renews}; this release does not change the same objects");
        assert_eq!(result(&leads, &planning), (CheckResult::Ok, text));

        let with = |args: &[&str]| Signs { pods: vec![pod(args)], ..leads.clone() };
        let found = format!("{renews}; pods in kube-system: 1: ccm-x");
        assert_eq!(result(&with(&[]), &live), (CheckResult::Failed, found.clone()));
        let apart = "--controllers=*,-cloud-node-controller,-cloud-node-lifecycle-controller";
        let text = format!("{found}; its flags disable the controllers of this release");
        assert_eq!(result(&with(&[apart]), &live), (CheckResult::Ok, text));
        let both = [deployment("node-controller", 1, &[]), deployment("service-controller", 1, &[])];
        assert_eq!(result(&with(&[apart]), &Controllers::of(&both)).0, CheckResult::Failed, "Services");
    }

    #[test]
    fn a_user_without_the_right_learns_it_calmly() {
        let live = Controllers::of(&[]);
        let unread = |why| Signs { unread: vec![("pods", why)], ..Signs::default() };
        let check = of(&unread(Missing::forbidden("pods", "pods is forbidden: ...")), &live);
        assert_eq!(
            (check.result, check.found.as_str()),
            (CheckResult::Unknown, "not checked, because this user may not list pods in kube-system")
        );
        let check = of(&unread(Missing::new("pods", "no answer")), &live);
        assert_eq!((check.result, check.found.as_str()), (CheckResult::Unknown, "not known: no answer"));
    }
}
