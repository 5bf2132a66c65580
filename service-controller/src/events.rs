//! Events about Services. Reasons and messages are those of the former cloud controller manager, which dashboards and users know; only the
//! errors have more detail.

use controller_core::events::{Kind, NOTE_MAX, Notice, bounded, ended};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    mirror::released::RELEASES,
    plan::{
        Fact, Operation,
        cloud::WriteFailure,
        compat::may_be_understood,
        service::{FINALIZER, ServiceId},
        targets::Hosts,
    },
};

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

const FAILED: &str = "Error syncing load balancer: ";

const UNNAMED: &str = "The cloud adapter does not support custom load balancer names (no capability lb.name): \
                       serviceController.loadBalancerNameTemplate (--load-balancer-name-template) has no effect";

/// Builds the Event that reports `fact`. `id` is the Service whose explain page shows the whole text.
pub(crate) fn notice(fact: &Fact, id: Option<&ServiceId>) -> Notice {
    let whole = whole(fact);
    let shown = id.map(|id| format!(": cloudctl explain service {id}")).unwrap_or_default();
    let fits = whole.note.chars().count() <= NOTE_MAX;
    let note = if let Fact::Refused(all) = fact {
        let more = format!(" and {} more", all.len().saturating_sub(1));
        with_command(&failed(all.first().map_or("", String::as_str)), &more, &shown)
    } else if fits {
        return whole;
    } else if let Fact::WriteFailed(step, failure) = fact {
        // The end of the text says when the next try is, so only the error is shortened.
        let excess = whole.note.chars().count().saturating_sub(NOTE_MAX);
        let kept = failure.error.chars().count().saturating_sub(excess);
        let failure = WriteFailure { error: bounded(&failure.error, kept), ..failure.clone() };
        bounded(&self::whole(&Fact::WriteFailed(step.clone(), failure)).note, NOTE_MAX)
    } else if let Fact::Failed(Operation::Hosts(hosts), why) = fact {
        bounded(&hosts_failed(&hosts.unnamed(), why), NOTE_MAX)
    } else {
        shortened(&whole.note, &shown)
    };
    Notice { note, ..whole }
}

/// Shortens a long text. What the controller does next, after the last semicolon, is less important than the cause.
fn shortened(text: &str, shown: &str) -> String {
    with_command(text.rsplit_once("; ").map_or(text, |(cause, _next)| cause), "", shown)
}

/// Adds the command that shows the whole text. The cause, followed by `more`, has precedence: the command is shortened or left out before the
/// cause is cut. `shown`: the end of the Event with the whole command, or empty.
fn with_command(cause: &str, more: &str, shown: &str) -> String {
    let short = if shown.is_empty() { "" } else { " (cloudctl explain)" };
    let texts = [shown, short, ""].map(|command| format!("{cause}{more}{command}"));
    let fitting = texts.into_iter().find(|text| text.chars().count() <= NOTE_MAX);
    fitting.unwrap_or_else(|| ended(cause, &format!("{more}{short}")))
}

pub(crate) fn cause(note: &str) -> &str {
    note.strip_prefix(FAILED).unwrap_or(note)
}

fn failed(why: &str) -> String {
    format!("{FAILED}{why}")
}

fn hosts_failed(hosts: &Hosts, why: &str) -> String {
    format!("Error updating load balancer with new hosts {hosts}, error: {why}")
}

/// Builds the Event with its whole text, which may be too long for the API server.
pub(crate) fn whole(fact: &Fact) -> Notice {
    match fact {
        Fact::Ensuring => normal("EnsuringLoadBalancer", "Ensure", "Ensuring load balancer"),
        Fact::Ensured => normal("EnsuredLoadBalancer", "Ensure", "Ensured load balancer"),
        Fact::Updated => normal("UpdatedLoadBalancer", "Update", "Updated load balancer with new hosts"),
        Fact::Deleting => normal("DeletingLoadBalancer", "Delete", "Deleting load balancer"),
        Fact::Deleted => normal("DeletedLoadBalancer", "Delete", "Deleted load balancer"),
        Fact::NoTargets(why) => {
            let note = format!("There are no available nodes for LoadBalancer: {why}");
            warning("UnAvailableLoadBalancer", "Ensure", bounded(&note, NOTE_MAX))
        }
        Fact::NoNodes => {
            let note = "The node list is empty although no node deletion was observed; keeping the \
                        current backends until a node is listed. Check the Nodes: kubectl get nodes";
            warning("NoNodesListed", "Update", note.to_owned())
        }
        Fact::HeldByAnother(holders) => held_by_another(holders.as_deref()),
        Fact::Compatible(words) => {
            let begin = "Deprecated annotations are in effect; replace or remove them: ";
            normal("CompatibleAnnotations", "Read", &as_many_as_fit(begin, words, "; ", ""))
        }
        Fact::Ignored(keys) => warning("IgnoredAnnotations", "Read", ignored(keys)),
        Fact::Unnamed => normal("IgnoredNameTemplate", "Read", UNNAMED),
        Fact::Failed(Operation::Sync, why) => warning("SyncLoadBalancerFailed", "Sync", failed(why)),
        Fact::Refused(all) => warning("SyncLoadBalancerFailed", "Sync", failed(&all.join("; "))),
        Fact::Failed(Operation::Hosts(hosts), why) => {
            warning("UpdateLoadBalancerFailed", "Update", hosts_failed(hosts, why))
        }
        Fact::WriteFailed(step, failure) => {
            let step = match step {
                Operation::Hosts(hosts) => Operation::Hosts(hosts.unnamed()),
                Operation::Sync | Operation::LeftOver => step.clone(),
            };
            whole(&Fact::Failed(step, failure.to_string()))
        }
        Fact::Failed(Operation::LeftOver, why) => {
            warning("DeleteLoadBalancerFailed", "Delete", format!("Error deleting load balancer: {why}"))
        }
        Fact::Orphaned(ids) => orphaned(ids),
        Fact::OrphanHeld(why) => warning("OrphanHeld", "Sweep", why.clone()),
        Fact::OrphanReleased(ids) => {
            let note = format!(
                "Deleting load balancer {ids}: no Service uses it, and \
                 ConfigMap {RELEASES} permits its deletion"
            );
            normal("OrphanReleased", "Sweep", &note)
        }
        Fact::ReleaseRefused(given, owner) => release_refused(given, owner),
        Fact::OfAnother(ids) => of_another(ids),
        Fact::WaitsForBudget(words) => waits_for_budget(words),
        Fact::Grown(members) => {
            let note = format!(
                "{members}. Node changes apply, but no new port or wider node-selector. Use \
                 fewer ports or nodes"
            );
            warning("TooManyMembers", "Update", note)
        }
    }
}

fn ignored(keys: &[String]) -> String {
    let instead = if keys.iter().any(|key| may_be_understood(key)) {
        "set serviceController.compat=openstack (--compat), or use the lb.cloudadapter.dev annotations"
    } else {
        "use the lb.cloudadapter.dev annotations"
    };
    as_many_as_fit("These annotations have no effect: ", keys, ", ", &format!("; {instead}"))
}

/// Lists as many entries as fit into the Event, but at least one. `between` separates the entries, and `end` follows the list.
fn as_many_as_fit(begin: &str, entries: &[String], between: &str, end: &str) -> String {
    let note = |named: usize| {
        let list = entries.iter().take(named).map(String::as_str).collect::<Vec<_>>().join(between);
        let more = match entries.len().saturating_sub(named) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{begin}{list}{more}{end}")
    };
    let fits = |named: &usize| note(*named).chars().count() <= NOTE_MAX;
    bounded(&note((1..=entries.len()).rev().find(fits).unwrap_or(1)), NOTE_MAX)
}

fn orphaned(ids: &str) -> Notice {
    let note = format!(
        "No Service uses load balancer {ids} any more. Delete it with `cloudctl orphans --delete`, \
         or set serviceController.orphans=delete (--orphans)"
    );
    warning("OrphanedLoadBalancer", "Sweep", note)
}

fn release_refused(given: &str, owner: &ServiceId) -> Notice {
    let uid = &owner.uid;
    let note = format!(
        "The load balancer of {owner} is kept, because key {uid} of ConfigMap {RELEASES} names \"{given}\". \
        Correct the value or remove the key"
    );
    warning("ReleaseRefused", "Sweep", note)
}

fn of_another(ids: &str) -> Notice {
    let note = format!(
        "This controller manages load balancer {ids}, but not the Service's loadBalancerClass. \
        Restore the class, or set the new one as serviceController.loadBalancerClass"
    );
    warning("LoadBalancerClassChanged", "Sync", note)
}

/// Builds the Event for the adapter's text `words`, which begins with `waits`.
fn waits_for_budget(words: &str) -> Notice {
    normal("WaitingForBudget", "Ensure", &format!("The load balancer {words}"))
}

fn held_by_another(holders: Option<&str>) -> Notice {
    let holders = holders.unwrap_or("an unknown controller");
    let note = format!(
        "Deletion is blocked by finalizer {FINALIZER}, set by {holders}. If that controller is \
        gone, check for leftover load balancers, then remove the finalizer"
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
    use controller_core::selector::Selector;

    use super::*;
    use crate::plan::{
        left_out::LeftOut,
        members::Members,
        targets::{Node, Targets},
        without_nodes::WithoutNodes,
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

    fn write_failed(error: &str) -> Fact {
        let next = "next try in about 20 s, after a check whether the write was made".to_owned();
        Fact::WriteFailed(Operation::Sync, WriteFailure { error: error.to_owned(), next })
    }

    fn unmatched(selector: Selector) -> Fact {
        let place = "annotation lb.cloudadapter.dev/node-selector".to_owned();
        Fact::NoTargets(WithoutNodes::Unmatched { place, selector })
    }

    fn web() -> ServiceId {
        ServiceId { namespace: "default".to_owned(), name: "web".to_owned(), uid: "u-1".to_owned() }
    }

    fn all() -> Vec<Fact> {
        vec![
            Fact::Ensuring,
            Fact::Ensured,
            Fact::Updated,
            Fact::NoTargets(WithoutNodes::LeftOut([(LeftOut::Excluded, 2)].into())),
            unmatched(Selector::read("zone=mars").unwrap()),
            Fact::NoTargets(WithoutNodes::PortsReleased),
            Fact::NoNodes,
            Fact::Deleting,
            Fact::Deleted,
            Fact::Failed(Operation::Sync, "spec.ports: a load balancer needs at least one port".to_owned()),
            write_failed("create load balancer default/web failed (503, OUTCOME_UNKNOWN): CreateLoadBalancer: out of order"),
            write_failed(&"x".repeat(300)),
            Fact::Refused(vec!["spec.ports: a".to_owned(), "b".to_owned(), "c".to_owned()]),
            Fact::Failed(Operation::Sync, "x".repeat(300)),
            Fact::Failed(Operation::Hosts(hosts(3)), "no quota".to_owned()),
            Fact::Failed(Operation::Hosts(hosts(23)), "no quota".to_owned()),
            Fact::Failed(Operation::LeftOver, "token expired".to_owned()),
            Fact::Orphaned("lb-1".to_owned()),
            Fact::OrphanHeld("12 of 20 load balancers have no Service. The limit is 6 deletions at once, so none is deleted. Delete the unneeded load balancers in the cloud".to_owned()),
            Fact::OrphanReleased("lb-1".to_owned()),
            Fact::ReleaseRefused("default/api".to_owned(), web()),
            Fact::OfAnother("lb-1".to_owned()),
            Fact::HeldByAnother(Some("a or b".to_owned())),
            Fact::HeldByAnother(None),
            Fact::Compatible(vec!["loadbalancer.openstack.org/hostname (new: lb.cloudadapter.dev/hostname: shop.example.com)".to_owned()]),
            Fact::Ignored(vec![
                "loadbalancer.openstack.org/class".to_owned(),
                "metallb.io/address-pool".to_owned(),
            ]),
            Fact::Unnamed,
            Fact::WaitsForBudget("waits for the call budget of bucket loadbalancer".to_owned()),
            Fact::Grown(Members { listeners: 5, nodes: 5000, most: 20_000 }),
        ]
    }

    #[test]
    fn events_are_in_the_reference() {
        let event = |fact: Fact| {
            let Notice { kind, reason, note, .. } = notice(&fact, Some(&web()));
            test_support::reference::Event { reason, kind: kind.word(), words: note }
        };
        let all: Vec<_> = all().into_iter().map(event).collect();
        test_support::reference::assert_events_up_to_date("service-controller", &all);
    }

    #[test]
    fn long_text_keeps_the_cause_rather_than_the_next_step() {
        let (shown, next) = (": cloudctl explain service a/b", format!("; {}", "n".repeat(200)));
        for (cause, want) in [
            (100, format!("{}{shown}", "c".repeat(100))),
            (180, format!("{} (cloudctl explain)", "c".repeat(180))),
            (190, "c".repeat(190)),
            (300, format!("{}… (cloudctl explain)", "c".repeat(180))),
        ] {
            assert_eq!(shortened(&format!("{}{next}", "c".repeat(cause)), shown), want, "{cause}");
        }
    }

    #[test]
    fn first_of_several_faults_is_cut_last() {
        let (explain, short) = (": cloudctl explain service default/web", " (cloudctl explain)");
        for (length, kept, command) in [
            (122, "f".repeat(122), explain),
            (123, "f".repeat(123), short),
            (141, "f".repeat(141), short),
            (142, "f".repeat(142), ""),
            (160, "f".repeat(160), ""),
            (161, format!("{}…", "f".repeat(140)), short),
        ] {
            let faults = vec!["f".repeat(length), "b".to_owned(), "c".to_owned()];
            let note = notice(&Fact::Refused(faults), Some(&web())).note;
            assert_eq!(note, format!("{FAILED}{kept} and 2 more{command}"), "{length}");
        }
    }

    // Behaviour: S26
    #[test]
    fn service_event_texts() {
        let line = |fact: Fact| {
            let notice = notice(&fact, Some(&web()));
            assert!(notice.note.chars().count() <= NOTE_MAX, "{}", notice.note);
            format!("{} {}: {}", notice.kind.word(), notice.reason, notice.note)
        };
        insta::assert_snapshot!(all().into_iter().map(line).collect::<Vec<_>>().join("\n"), @r#"
        Normal EnsuringLoadBalancer: Ensuring load balancer
        Normal EnsuredLoadBalancer: Ensured load balancer
        Normal UpdatedLoadBalancer: Updated load balancer with new hosts
        Warning UnAvailableLoadBalancer: There are no available nodes for LoadBalancer: 2 nodes excluded by label node.kubernetes.io/exclude-from-external-load-balancers
        Warning UnAvailableLoadBalancer: There are no available nodes for LoadBalancer: no node matches annotation lb.cloudadapter.dev/node-selector: zone=mars
        Warning UnAvailableLoadBalancer: There are no available nodes for LoadBalancer: the last valid settings use only node ports removed from the Service
        Warning NoNodesListed: The node list is empty although no node deletion was observed; keeping the current backends until a node is listed. Check the Nodes: kubectl get nodes
        Normal DeletingLoadBalancer: Deleting load balancer
        Normal DeletedLoadBalancer: Deleted load balancer
        Warning SyncLoadBalancerFailed: Error syncing load balancer: spec.ports: a load balancer needs at least one port
        Warning SyncLoadBalancerFailed: Error syncing load balancer: create load balancer default/web failed (503, OUTCOME_UNKNOWN): CreateLoadBalancer: out of order; next try in about 20 s, after a check whether the write was made
        Warning SyncLoadBalancerFailed: Error syncing load balancer: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…; next try in about 20 s, after a check whether the write was made
        Warning SyncLoadBalancerFailed: Error syncing load balancer: spec.ports: a and 2 more: cloudctl explain service default/web
        Warning SyncLoadBalancerFailed: Error syncing load balancer: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… (cloudctl explain)
        Warning UpdateLoadBalancerFailed: Error updating load balancer with new hosts [n00 n01 n02] [node names limited, total number of nodes: 3], error: no quota
        Warning UpdateLoadBalancerFailed: Error updating load balancer with new hosts [n00 n01 n02 n03 n04 n05 n06 n07 n08 n09 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 <3 more>] [node names limited, total number of nodes: 23], error: no quota
        Warning DeleteLoadBalancerFailed: Error deleting load balancer: token expired
        Warning OrphanedLoadBalancer: No Service uses load balancer lb-1 any more. Delete it with `cloudctl orphans --delete`, or set serviceController.orphans=delete (--orphans)
        Warning OrphanHeld: 12 of 20 load balancers have no Service. The limit is 6 deletions at once, so none is deleted. Delete the unneeded load balancers in the cloud
        Normal OrphanReleased: Deleting load balancer lb-1: no Service uses it, and ConfigMap cloud-controllers-orphans permits its deletion
        Warning ReleaseRefused: The load balancer of default/web is kept, because key u-1 of ConfigMap cloud-controllers-orphans names "default/api". Correct the value or remove the key
        Warning LoadBalancerClassChanged: This controller manages load balancer lb-1, but not the Service's loadBalancerClass. Restore the class, or set the new one as serviceController.loadBalancerClass
        Warning HeldByAnother: Deletion is blocked by finalizer service.kubernetes.io/load-balancer-cleanup, set by a or b. If that controller is gone, check for leftover load balancers, then remove the finalizer
        Warning HeldByAnother: Deletion is blocked by finalizer service.kubernetes.io/load-balancer-cleanup, set by an unknown controller. If that controller is gone, check for leftover load balancers, then remove the finalizer
        Normal CompatibleAnnotations: Deprecated annotations are in effect; replace or remove them: loadbalancer.openstack.org/hostname (new: lb.cloudadapter.dev/hostname: shop.example.com)
        Warning IgnoredAnnotations: These annotations have no effect: loadbalancer.openstack.org/class, metallb.io/address-pool; set serviceController.compat=openstack (--compat), or use the lb.cloudadapter.dev annotations
        Normal IgnoredNameTemplate: The cloud adapter does not support custom load balancer names (no capability lb.name): serviceController.loadBalancerNameTemplate (--load-balancer-name-template) has no effect
        Normal WaitingForBudget: The load balancer waits for the call budget of bucket loadbalancer
        Warning TooManyMembers: 5 listeners on 5000 nodes make 25000 members, more than 20000 (serviceController.maxMembersPerService). Node changes apply, but no new port or wider node-selector. Use fewer ports or nodes
        "#);
    }

    #[test]
    fn event_about_another_class_is_whole_with_a_uuid() {
        let note = notice(&Fact::OfAnother("u".repeat(36)), Some(&web())).note;
        assert!(note.ends_with("as serviceController.loadBalancerClass"), "{note}");
    }

    #[test]
    fn user_text_in_events_is_bounded() {
        let key = |n: usize| format!("metallb.io/{n}-{}", "x".repeat(40));
        let (one, long) = (key(1), "load-balancer.hetzner.cloud/".to_owned() + &"x".repeat(300));
        assert_eq!(
            ignored(std::slice::from_ref(&one)),
            format!("These annotations have no effect: {one}; use the lb.cloudadapter.dev annotations")
        );
        let many: Vec<String> = (0..9).map(key).collect();
        let selector: Vec<String> = (0..4).map(|n| format!("k{n}={}", "x".repeat(63))).collect();
        let selector = Selector::read(&selector.join(",")).unwrap();
        let notes = [ignored(&many), ignored(&[long]), notice(&unmatched(selector), None).note];
        for note in &notes {
            assert!(note.chars().count() <= NOTE_MAX, "{note}");
        }
        assert!(notes[0].ends_with(" and 7 more; use the lb.cloudadapter.dev annotations"), "{}", notes[0]);
    }
}
