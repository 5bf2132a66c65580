//! What people hear at their Service. Reasons and messages are those that dashboards and habits know from the classic
//! controller; only the errors say more.

use controller_core::events::{Kind, Notice};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::plan::{News, service::ServiceId};

/// The Service that an Event is about.
pub(crate) fn about(id: &ServiceId) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Service".to_owned()),
        namespace: Some(id.namespace.clone()),
        name: Some(id.name.clone()),
        uid: Some(id.uid.clone()),
        ..ObjectReference::default()
    }
}

/// The words for a piece of news.
pub(crate) fn notice(news: &News) -> Notice {
    match news {
        News::Ensuring => normal("EnsuringLoadBalancer", "Ensure", "Ensuring load balancer"),
        News::Ensured => normal("EnsuredLoadBalancer", "Ensure", "Ensured load balancer"),
        News::Updated => normal("UpdatedLoadBalancer", "Update", "Updated load balancer with new hosts"),
        News::Deleting => normal("DeletingLoadBalancer", "Delete", "Deleting load balancer"),
        News::Deleted => normal("DeletedLoadBalancer", "Delete", "Deleted load balancer"),
        News::NoTargets => {
            let note = "There are no available nodes for LoadBalancer".to_owned();
            warning("UnAvailableLoadBalancer", "Ensure", note)
        }
        News::Compatible(words) => {
            let note = format!("Understood, and better written in our words: {}", words.join("; "));
            Notice { kind: Kind::Normal, reason: "CompatibleAnnotations", action: "Read", note }
        }
        News::Ignored(keys) => {
            let instead =
                "start service-controller with --compat=openstack, or write those of lb.cloudadapter.dev";
            let note = format!("These annotations do nothing here: {}; {instead}", keys.join(", "));
            Notice { kind: Kind::Normal, reason: "IgnoredAnnotations", action: "Read", note }
        }
        News::Trouble(why) => {
            warning("SyncLoadBalancerFailed", "Sync", format!("Error syncing load balancer: {why}"))
        }
    }
}

fn normal(reason: &'static str, action: &'static str, note: &str) -> Notice {
    Notice { kind: Kind::Normal, reason, action, note: note.to_owned() }
}

fn warning(reason: &'static str, action: &'static str, note: String) -> Notice {
    Notice { kind: Kind::Warning, reason, action, note }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_messages_are_the_classic_ones() {
        let all = [
            News::Ensuring,
            News::Ensured,
            News::Updated,
            News::NoTargets,
            News::Deleting,
            News::Deleted,
            News::Trouble("spec.ports: none".to_owned()),
            News::Compatible(vec!["a is b: 1".to_owned(), "c is d: 2".to_owned()]),
            News::Ignored(vec!["a".to_owned(), "c".to_owned()]),
        ];
        let line = |news| {
            let notice = notice(news);
            format!("{} {}: {}", notice.kind.word(), notice.reason, notice.note)
        };
        insta::assert_snapshot!(all.iter().map(line).collect::<Vec<_>>().join("\n"), @r"
        Normal EnsuringLoadBalancer: Ensuring load balancer
        Normal EnsuredLoadBalancer: Ensured load balancer
        Normal UpdatedLoadBalancer: Updated load balancer with new hosts
        Warning UnAvailableLoadBalancer: There are no available nodes for LoadBalancer
        Normal DeletingLoadBalancer: Deleting load balancer
        Normal DeletedLoadBalancer: Deleted load balancer
        Warning SyncLoadBalancerFailed: Error syncing load balancer: spec.ports: none
        Normal CompatibleAnnotations: Understood, and better written in our words: a is b: 1; c is d: 2
        Normal IgnoredAnnotations: These annotations do nothing here: a, c; start service-controller with --compat=openstack, or write those of lb.cloudadapter.dev
        ");
    }
}
