//! What people hear at their Service. Reasons and messages are those that dashboards and habits know from the classic
//! controller; only the errors say more.

use controller_core::events::{Kind, Notice, bounded};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    mirror::released::RELEASES,
    plan::{
        News, Step,
        annotations::selector::Selector,
        compat::may_be_understood,
        service::{FINALIZER, ServiceId},
    },
};

/// Characters of an Event that repeats what users write.
const NOTE_MAX: usize = 200;

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
        News::NoTargets(unmatched) => {
            let why = unmatched.as_ref().map(|selector| format!(": {}", matches_none(selector)));
            let note = format!("There are no available nodes for LoadBalancer{}", why.unwrap_or_default());
            warning("UnAvailableLoadBalancer", "Ensure", bounded(&note, NOTE_MAX))
        }
        News::NoNodes => {
            let note = "No node is listed at all, and nobody said that the last one went: the load balancer stays as it is until one is";
            warning("NoNodesListed", "Update", note.to_owned())
        }
        News::HeldByAnother(holders) => held_by_another(holders.as_deref()),
        News::Compatible(words) => {
            let note = format!("Understood, and better written in our words: {}", words.join("; "));
            Notice { kind: Kind::Normal, reason: "CompatibleAnnotations", action: "Read", note }
        }
        News::Ignored(keys) => {
            Notice { kind: Kind::Normal, reason: "IgnoredAnnotations", action: "Read", note: ignored(keys) }
        }
        News::Unnamed => {
            let note = "The cloud adapter calls load balancers as it likes (no capability lb.name): --load-balancer-name-template \
                        does nothing here";
            Notice {
                kind: Kind::Normal,
                reason: "IgnoredNameTemplate",
                action: "Read",
                note: note.to_owned(),
            }
        }
        News::Failed(Step::Sync, why) => {
            warning("SyncLoadBalancerFailed", "Sync", format!("Error syncing load balancer: {why}"))
        }
        News::Failed(Step::Hosts(hosts), why) => {
            let note = format!("Error updating load balancer with new hosts {hosts}, error: {why}");
            warning("UpdateLoadBalancerFailed", "Update", note)
        }
        News::Failed(Step::LeftOver, why) => {
            warning("DeleteLoadBalancerFailed", "Delete", format!("Error deleting load balancer: {why}"))
        }
        News::Orphaned(ids) => orphaned(ids),
        News::OrphanHeld(why) => warning("OrphanHeld", "Sweep", why.clone()),
        News::OrphanReleased(ids) => {
            let note = format!("Removes load balancer {ids} that a person released: no Service wants it");
            normal("OrphanReleased", "Sweep", &note)
        }
        News::ReleaseRefused(given, owner) => release_refused(given, owner),
        News::OfAnother(ids) => of_another(ids),
        News::WaitsForBudget(words) => normal("WaitingForBudget", "Ensure", words),
        News::Grown(members) => {
            let note = format!(
                "{members}: the load balancer goes on following nodes, but gets no further ports and no other node-selector"
            );
            warning("TooManyMembers", "Update", note)
        }
    }
}

/// Names as many annotations as there is place for, at least one.
fn ignored(keys: &[String]) -> String {
    let instead = if keys.iter().any(|key| may_be_understood(key)) {
        "start service-controller with --compat=openstack, or write those of lb.cloudadapter.dev"
    } else {
        "write those of lb.cloudadapter.dev"
    };
    let note = |named: usize| {
        let list = keys.iter().take(named).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = match keys.len().saturating_sub(named) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("These annotations have no effect here: {list}{more}; {instead}")
    };
    let fits = |named: &usize| note(*named).chars().count() <= NOTE_MAX;
    bounded(&note((1..=keys.len()).rev().find(fits).unwrap_or(1)), NOTE_MAX)
}

/// Why a load balancer has no nodes, where its selector is the cause.
pub(crate) fn matches_none(selector: &Selector) -> String {
    if selector.is_nothing() {
        return "the Service has none of the node ports of its last good settings any more".to_owned();
    }
    format!("no node matches node-selector {selector}")
}

fn orphaned(ids: &str) -> Notice {
    let note = format!(
        "No Service wants load balancer {ids} any more; remove it by `cloudctl orphans --delete` if nobody \
         needs it, or start service-controller with --orphans=delete"
    );
    warning("OrphanedLoadBalancer", "Sweep", note)
}

fn release_refused(given: &str, owner: &ServiceId) -> Notice {
    let uid = &owner.uid;
    let note = format!(
        "ConfigMap {RELEASES} releases {uid} as \"{given}\", and its load balancer says that it was made for {owner}: it stays; write that \
         name, or take the key out"
    );
    warning("ReleaseRefused", "Sweep", note)
}

fn of_another(ids: &str) -> Notice {
    let note = format!(
        "The Service is of a class that is not ours, and load balancer {ids} in its status is: it is left alone; start \
         service-controller with --load-balancer-class if the class is meant for it"
    );
    warning("LoadBalancerClassChanged", "Sync", note)
}

fn held_by_another(holders: Option<&str>) -> Notice {
    let holders = holders.unwrap_or("nobody knows who");
    let note = format!(
        "The Service waits to be deleted: finalizer {FINALIZER} is on it, {holders} put it there, and nothing of it is ours; if no \
         controller of that name runs any more, see that it left no load balancer and take the finalizer off"
    );
    warning("HeldByAnother", "Delete", note)
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
    use crate::plan::{
        members::Members,
        targets::{Hosts, Node, Targets},
    };

    fn hosts(n: usize) -> Hosts {
        let node = |n| Node {
            name: format!("n{n:02}"),
            provider_id: Some(format!("sim://r1/{n}")),
            addresses: vec!["10.0.0.1".parse().unwrap()],
            ..Node::default()
        };
        let nodes: Vec<Node> = (0..n).rev().map(node).collect();
        Targets::of(&nodes, None).hosts
    }

    fn all() -> Vec<News> {
        let web =
            ServiceId { namespace: "default".to_owned(), name: "web".to_owned(), uid: "u-1".to_owned() };
        vec![
            News::Ensuring,
            News::Ensured,
            News::Updated,
            News::NoTargets(None),
            News::NoTargets(Some(Selector::read("zone=mars").unwrap())),
            News::NoTargets(Some(Selector::nothing())),
            News::NoNodes,
            News::Deleting,
            News::Deleted,
            News::Failed(Step::Sync, "spec.ports: none".to_owned()),
            News::Failed(Step::Hosts(hosts(3)), "no quota".to_owned()),
            News::Failed(Step::Hosts(hosts(23)), "no quota".to_owned()),
            News::Failed(Step::LeftOver, "token expired".to_owned()),
            News::Orphaned("lb-1".to_owned()),
            News::OrphanHeld("12 of 20 would go".to_owned()),
            News::OrphanReleased("lb-1".to_owned()),
            News::ReleaseRefused("default/api".to_owned(), web),
            News::OfAnother("lb-1".to_owned()),
            News::HeldByAnother(Some("a and b".to_owned())),
            News::HeldByAnother(None),
            News::Compatible(vec!["a is b: 1".to_owned(), "c is d: 2".to_owned()]),
            News::Ignored(vec![
                "loadbalancer.openstack.org/class".to_owned(),
                "metallb.io/address-pool".to_owned(),
            ]),
            News::Unnamed,
            News::WaitsForBudget("waits for the budget of loadbalancer".to_owned()),
            News::Grown(Members { listeners: 5, nodes: 5000, most: 20_000 }),
        ]
    }

    #[test]
    fn what_is_told_is_in_the_reference() {
        let event = |news: News| {
            let Notice { kind, reason, note, .. } = notice(&news);
            metrics_reference::Event { reason, kind: kind.word(), words: note }
        };
        let all: Vec<_> = all().into_iter().map(event).collect();
        metrics_reference::assert_events_up_to_date("service-controller", &all);
    }

    #[test]
    fn reasons_and_messages_are_the_classic_ones() {
        let line = |news: News| {
            let notice = notice(&news);
            format!("{} {}: {}", notice.kind.word(), notice.reason, notice.note)
        };
        insta::assert_snapshot!(all().into_iter().map(line).collect::<Vec<_>>().join("\n"), @r#"
        Normal EnsuringLoadBalancer: Ensuring load balancer
        Normal EnsuredLoadBalancer: Ensured load balancer
        Normal UpdatedLoadBalancer: Updated load balancer with new hosts
        Warning UnAvailableLoadBalancer: There are no available nodes for LoadBalancer
        Warning UnAvailableLoadBalancer: There are no available nodes for LoadBalancer: no node matches node-selector zone=mars
        Warning UnAvailableLoadBalancer: There are no available nodes for LoadBalancer: the Service has none of the node ports of its last good settings any more
        Warning NoNodesListed: No node is listed at all, and nobody said that the last one went: the load balancer stays as it is until one is
        Normal DeletingLoadBalancer: Deleting load balancer
        Normal DeletedLoadBalancer: Deleted load balancer
        Warning SyncLoadBalancerFailed: Error syncing load balancer: spec.ports: none
        Warning UpdateLoadBalancerFailed: Error updating load balancer with new hosts [n00 n01 n02] [node names limited, total number of nodes: 3], error: no quota
        Warning UpdateLoadBalancerFailed: Error updating load balancer with new hosts [n00 n01 n02 n03 n04 n05 n06 n07 n08 n09 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 <3 more>] [node names limited, total number of nodes: 23], error: no quota
        Warning DeleteLoadBalancerFailed: Error deleting load balancer: token expired
        Warning OrphanedLoadBalancer: No Service wants load balancer lb-1 any more; remove it by `cloudctl orphans --delete` if nobody needs it, or start service-controller with --orphans=delete
        Warning OrphanHeld: 12 of 20 would go
        Normal OrphanReleased: Removes load balancer lb-1 that a person released: no Service wants it
        Warning ReleaseRefused: ConfigMap cloud-controllers-orphans releases u-1 as "default/api", and its load balancer says that it was made for default/web: it stays; write that name, or take the key out
        Warning LoadBalancerClassChanged: The Service is of a class that is not ours, and load balancer lb-1 in its status is: it is left alone; start service-controller with --load-balancer-class if the class is meant for it
        Warning HeldByAnother: The Service waits to be deleted: finalizer service.kubernetes.io/load-balancer-cleanup is on it, a and b put it there, and nothing of it is ours; if no controller of that name runs any more, see that it left no load balancer and take the finalizer off
        Warning HeldByAnother: The Service waits to be deleted: finalizer service.kubernetes.io/load-balancer-cleanup is on it, nobody knows who put it there, and nothing of it is ours; if no controller of that name runs any more, see that it left no load balancer and take the finalizer off
        Normal CompatibleAnnotations: Understood, and better written in our words: a is b: 1; c is d: 2
        Normal IgnoredAnnotations: These annotations have no effect here: loadbalancer.openstack.org/class, metallb.io/address-pool; start service-controller with --compat=openstack, or write those of lb.cloudadapter.dev
        Normal IgnoredNameTemplate: The cloud adapter calls load balancers as it likes (no capability lb.name): --load-balancer-name-template does nothing here
        Normal WaitingForBudget: waits for the budget of loadbalancer
        Warning TooManyMembers: 5 listeners on 5000 nodes are 25000 members, more than 20000 (--max-members-per-service): the load balancer goes on following nodes, but gets no further ports and no other node-selector
        "#);
    }

    #[test]
    fn what_users_write_is_bounded() {
        let key = |n: usize| format!("metallb.io/{n}-{}", "x".repeat(40));
        let (one, long) = (key(1), "load-balancer.hetzner.cloud/".to_owned() + &"x".repeat(300));
        assert_eq!(
            ignored(std::slice::from_ref(&one)),
            format!("These annotations have no effect here: {one}; write those of lb.cloudadapter.dev")
        );
        let many: Vec<String> = (0..9).map(key).collect();
        let selector: Vec<String> = (0..4).map(|n| format!("k{n}={}", "x".repeat(63))).collect();
        let selector = Selector::read(&selector.join(",")).unwrap();
        let notes = [ignored(&many), ignored(&[long]), notice(&News::NoTargets(Some(selector))).note];
        for note in &notes {
            assert!(note.chars().count() <= NOTE_MAX, "{note}");
        }
        assert!(notes[0].ends_with(" and 7 more; write those of lb.cloudadapter.dev"), "{}", notes[0]);
    }
}
