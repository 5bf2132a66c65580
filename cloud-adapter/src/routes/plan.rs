//! Decides the changes of a request, item by item. This module is pure.
//!
//! A deletion needs an explicit key and ownership. Routes of other owners are reported, but never changed.

use std::{net::IpAddr, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        NextHop, Route, RouteKey, RouteOwner, RouteResult, RouteState, RouteUpsert, route_result::Outcome,
    },
};
use ipnet::IpNet;

use super::Order;
use crate::driver::{RouteChanges, WantedRoute};

#[derive(Clone, Debug)]
pub(crate) enum Item {
    Upsert { destination: IpNet, upsert: RouteUpsert },
    Delete { destination: IpNet, key: RouteKey, next_hop: Option<NextHop> },
    Bad { key: RouteKey, error: AdapterError },
}

impl Item {
    pub(crate) fn destination(&self) -> Option<IpNet> {
        match self {
            Self::Upsert { destination, .. } | Self::Delete { destination, .. } => Some(*destination),
            Self::Bad { .. } => None,
        }
    }

    pub(crate) fn key(&self) -> RouteKey {
        match self {
            Self::Upsert { upsert, .. } => upsert.key.clone().unwrap_or_default(),
            Self::Delete { key, .. } | Self::Bad { key, .. } => key.clone(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Change {
    pub(crate) remove: Option<String>,
    pub(crate) add: Option<RouteUpsert>,
}

impl Change {
    fn size(&self) -> usize {
        usize::from(self.remove.is_some()) + usize::from(self.add.is_some())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) key: RouteKey,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<AdapterError>,
    pub(crate) change: Change,
    /// The time after which to ask again, if the outcome is pending.
    retry_after: Option<Duration>,
}

impl Verdict {
    fn new(key: &RouteKey, outcome: Outcome, change: Change) -> Self {
        Self { key: key.clone(), outcome, error: None, change, retry_after: None }
    }

    fn refused(key: &RouteKey, outcome: Outcome, error: AdapterError) -> Self {
        Self { error: Some(error), ..Self::new(key, outcome, Change::default()) }
    }

    pub(crate) fn pending(key: &RouteKey, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(key, Outcome::Pending, Change::default()) }
    }

    pub(crate) fn result(&self) -> RouteResult {
        RouteResult {
            key: Some(self.key.clone()),
            outcome: self.outcome.into(),
            error: self.error.as_ref().map(AdapterError::to_item),
            retry_after: self.retry_after.and_then(|delay| prost_types::Duration::try_from(delay).ok()),
        }
    }
}

/// Returns the owner of a route from the point of view of this cluster.
pub(crate) fn owner(route: &Route, cluster_id: &str) -> RouteOwner {
    match &route.key {
        Some(key) if key.cluster_id == cluster_id => RouteOwner::Mine,
        Some(_) => RouteOwner::OtherCluster,
        None => RouteOwner::Unmanaged,
    }
}

/// Decides each item, given the existing routes. If the state of a destination is unknown, `doubt` returns the remaining time until it is
/// known.
pub(crate) fn plan(
    order: &Order,
    routes: &[&Route],
    doubt: impl Fn(IpNet) -> Option<Duration>,
) -> Vec<Verdict> {
    let judge = |item: &Item| match item.destination().and_then(&doubt) {
        Some(wait) => Verdict::pending(&item.key(), wait),
        None => judge(item, order, routes),
    };
    order.items.iter().map(judge).collect()
}

pub(crate) fn changes(verdicts: &[Verdict], order: &Order) -> RouteChanges {
    let wanted = |upsert: &RouteUpsert| WantedRoute {
        upsert: upsert.clone(),
        fence: order.fence.clone().unwrap_or_default(),
        cluster_name: order.cluster_name.clone(),
    };
    RouteChanges {
        remove: verdicts.iter().filter_map(|verdict| verdict.change.remove.clone()).collect(),
        add: verdicts.iter().filter_map(|verdict| verdict.change.add.as_ref().map(wanted)).collect(),
    }
}

/// Groups items so that no group has more than `max` changes. A single item with more changes is a group of its own.
pub(crate) fn batches(verdicts: &mut [Verdict], max: usize) -> impl Iterator<Item = &mut [Verdict]> {
    let mut changes = 0;
    verdicts.chunk_by_mut(move |before, after| {
        // `changes` is the number of changes in the current group.
        changes += before.change.size();
        let fits = changes + after.change.size() <= max;
        changes = if fits { changes } else { 0 };
        fits
    })
}

fn judge(item: &Item, order: &Order, routes: &[&Route]) -> Verdict {
    match item {
        Item::Bad { key, error } => Verdict::refused(key, Outcome::Failed, error.clone()),
        Item::Delete { destination, key, next_hop } => {
            delete(key, *destination, next_hop.as_ref(), order, routes)
        }
        Item::Upsert { destination, upsert } => {
            let key = upsert.key.clone().unwrap_or_default();
            if !order.covers(*destination) {
                let text = format!("{destination} is outside the cluster CIDRs");
                let error = AdapterError::field("upserts.key.destination", text);
                return Verdict::refused(&key, Outcome::Failed, error);
            }
            let there = routes.iter().find(|route| to(route) == Some(*destination));
            match there {
                None => lay(&key, upsert, None),
                Some(route) => replace(&key, upsert, route, order),
            }
        }
    }
}

fn replace(key: &RouteKey, upsert: &RouteUpsert, route: &Route, order: &Order) -> Verdict {
    let serves = route.state() != RouteState::Blackhole;
    let unchanged = serves && same_hop(route.next_hop.as_ref(), upsert.next_hop.as_ref());
    let ours = match owner(route, &order.cluster_id) {
        // A route of another node with the same destination is a conflict until a request deletes that route.
        RouteOwner::Mine => route.key.as_ref().is_some_and(|there| there.node_uid == key.node_uid),
        // The route is untagged, inside the cluster's CIDRs, and its target is the instance of the node.
        RouteOwner::Unmanaged => leads_to(route, upsert.next_hop.as_ref()),
        RouteOwner::OtherCluster | RouteOwner::Unspecified => false,
    };
    match (ours, order.overtaken_at(route)) {
        (false, _) => Verdict::refused(key, Outcome::Conflict, owned_by_other(route, order)),
        (true, Err(stale)) => Verdict::refused(key, Outcome::Failed, stale),
        (true, Ok(())) if unchanged => Verdict::new(key, Outcome::Unchanged, Change::default()),
        (true, Ok(())) => lay(key, upsert, Some(route.vendor_id.clone())),
    }
}

fn owned_by_other(route: &Route, order: &Order) -> AdapterError {
    let whose = match &route.key {
        Some(there) if there.cluster_id == order.cluster_id => "another node of this cluster",
        Some(_) => "another cluster",
        None => "an unknown owner",
    };
    let text = format!("route {} to {} belongs to {whose}", route.vendor_id, route.destination);
    AdapterError::new(Reason::OwnedByOther, text)
}

fn lay(key: &RouteKey, upsert: &RouteUpsert, remove: Option<String>) -> Verdict {
    Verdict::new(key, Outcome::Applied, Change { remove, add: Some(upsert.clone()) })
}

fn delete(
    key: &RouteKey,
    destination: IpNet,
    next_hop: Option<&NextHop>,
    order: &Order,
    routes: &[&Route],
) -> Verdict {
    let ours = |route: &&&Route| {
        let theirs = || leads_to(route, next_hop) || is_left_by(route, next_hop);
        let untagged = route.key.is_none() && order.covers(destination) && theirs();
        to(route) == Some(destination) && (route.key.as_ref() == Some(key) || untagged)
    };
    match routes.iter().find(ours).map(|route| (route, order.overtaken_at(route))) {
        None => Verdict::new(key, Outcome::Unchanged, Change::default()),
        Some((_, Err(stale))) => Verdict::refused(key, Outcome::Failed, stale),
        Some((route, Ok(()))) => {
            let change = Change { remove: Some(route.vendor_id.clone()), add: None };
            Verdict::new(key, Outcome::Applied, change)
        }
    }
}

/// Returns whether the target of the route is the instance of this next hop.
fn leads_to(route: &Route, hop: Option<&NextHop>) -> bool {
    let machine = |hop: Option<&NextHop>| {
        hop.map(|hop| hop.provider_id.clone()).filter(|provider_id| !provider_id.is_empty())
    };
    let there = machine(route.next_hop.as_ref());
    there.is_some() && there == machine(hop)
}

/// Returns whether the route has lost its target and its next hop has the address of `hop`.
fn is_left_by(route: &Route, hop: Option<&NextHop>) -> bool {
    let (Some(there), Some(hop)) = (&route.next_hop, hop) else { return false };
    let address = |hop: &NextHop| hop.address.parse::<IpAddr>().ok();
    let without_target = route.state() == RouteState::Blackhole && there.provider_id.is_empty();
    without_target && address(there).is_some_and(|at| address(hop) == Some(at))
}

fn to(route: &Route) -> Option<IpNet> {
    route.destination.parse().ok()
}

/// Returns whether the provider IDs are equal. If the request sets the address or the interface, these must be equal, too. Otherwise the
/// driver chooses them.
fn same_hop(there: Option<&NextHop>, wanted: Option<&NextHop>) -> bool {
    let (Some(there), Some(wanted)) = (there, wanted) else { return false };
    let same = |there: &str, wanted: &str| wanted.is_empty() || there == wanted;
    there.provider_id == wanted.provider_id
        && same(&there.address, &wanted.address)
        && same(&there.interface, &wanted.interface)
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::Fence;

    use super::*;

    fn key(cluster: &str, node: &str, destination: &str) -> RouteKey {
        RouteKey { cluster_id: cluster.into(), node_uid: node.into(), destination: destination.into() }
    }

    fn route(id: &str, owner: Option<RouteKey>, destination: &str, hop: &str) -> Route {
        let next_hop = NextHop { provider_id: hop.into(), ..NextHop::default() };
        Route {
            vendor_id: id.into(),
            key: owner,
            destination: destination.into(),
            next_hop: Some(next_hop),
            state: RouteState::Active.into(),
            ..Route::default()
        }
    }

    fn upsert(node: &str, destination: &str, hop: &str) -> Item {
        let next_hop = Some(NextHop { provider_id: hop.into(), ..NextHop::default() });
        let upsert = RouteUpsert { key: Some(key("me", node, destination)), next_hop, owner: None };
        Item::Upsert { destination: destination.parse().expect("CIDR"), upsert }
    }

    fn delete(node: &str, destination: &str) -> Item {
        leaving(node, destination, "")
    }

    fn leaving(node: &str, destination: &str, hop: &str) -> Item {
        let next_hop = Some(NextHop { provider_id: hop.into(), ..NextHop::default() });
        let key = key("me", node, destination);
        Item::Delete { destination: destination.parse().expect("CIDR"), key, next_hop }
    }

    fn left_at(destination: &str, address: &str, hop: &str) -> Item {
        let next_hop = NextHop { provider_id: hop.into(), address: address.into(), ..NextHop::default() };
        let key = key("me", "a", destination);
        Item::Delete { destination: destination.parse().expect("CIDR"), key, next_hop: Some(next_hop) }
    }

    fn order(item: Item) -> Order {
        Order {
            cluster_id: "me".into(),
            cluster_name: "test".into(),
            cluster_cidrs: vec!["10.244.0.0/16".parse().expect("CIDR")],
            items: vec![item],
            fence: Some(Fence { scope: "a/0".into(), epoch: 2, sequence: 5 }),
        }
    }

    #[test]
    fn batches_hold_as_many_changes_as_the_vendor_takes() {
        let sized = |size| Change {
            remove: (size > 0).then(|| "rt".to_owned()),
            add: (size > 1).then(RouteUpsert::default),
        };
        let mut verdicts: Vec<Verdict> = [1, 2, 0, 1, 2, 2, 1]
            .map(|size| Verdict::new(&RouteKey::default(), Outcome::Applied, sized(size)))
            .into();
        let sizes = |batch: &mut [Verdict]| batch.iter().map(|one| one.change.size()).collect::<Vec<_>>();
        let found: Vec<_> = batches(&mut verdicts, 3).map(sizes).collect();
        assert_eq!(found, [vec![1, 2, 0], vec![1, 2], vec![2, 1]]);
    }

    #[test]
    fn route_items_are_judged_by_existing_routes() {
        let d = "10.244.1.0/24";
        let mine = |hop| route("rt-1", Some(key("me", "a", d)), d, hop);
        let other = route("rt-1", Some(key("you", "a", d)), d, "i-1");
        let unmanaged = |hop| route("rt-1", None, d, hop);
        let fence = Some(Fence { scope: "a/0".into(), epoch: 2, sequence: 6 });
        let newer = Route { fence, ..mine("i-1") };
        let blackhole = Route { state: RouteState::Blackhole.into(), ..mine("i-1") };
        for (name, there, item, outcome, remove, add) in [
            ("new", None, upsert("a", d, "i-1"), Outcome::Applied, false, true),
            ("same", Some(mine("i-1")), upsert("a", d, "i-1"), Outcome::Unchanged, false, false),
            ("moves", Some(mine("i-2")), upsert("a", d, "i-1"), Outcome::Applied, true, true),
            ("blackhole", Some(blackhole), upsert("a", d, "i-1"), Outcome::Applied, true, true),
            ("another node's", Some(mine("i-1")), upsert("b", d, "i-1"), Outcome::Conflict, false, false),
            (
                "another cluster's",
                Some(other.clone()),
                upsert("a", d, "i-1"),
                Outcome::Conflict,
                false,
                false,
            ),
            ("unmanaged", Some(unmanaged("i-2")), upsert("a", d, "i-1"), Outcome::Conflict, false, false),
            (
                "untagged, to the same target",
                Some(unmanaged("i-1")),
                upsert("a", d, "i-1"),
                Outcome::Unchanged,
                false,
                false,
            ),
            ("newer request", Some(newer.clone()), upsert("a", d, "i-2"), Outcome::Failed, false, false),
            ("outside", None, upsert("a", "192.0.2.0/24", "i-1"), Outcome::Failed, false, false),
            ("delete own", Some(mine("i-1")), delete("a", d), Outcome::Applied, true, false),
            ("delete missing", None, delete("a", d), Outcome::Unchanged, false, false),
            ("delete foreign", Some(other), delete("a", d), Outcome::Unchanged, false, false),
            ("delete untagged", Some(unmanaged("i-1")), delete("a", d), Outcome::Unchanged, false, false),
            ("own target", Some(unmanaged("i-1")), leaving("a", d, "i-1"), Outcome::Applied, true, false),
            (
                "other target",
                Some(unmanaged("i-2")),
                leaving("a", d, "i-1"),
                Outcome::Unchanged,
                false,
                false,
            ),
            ("delete newer request", Some(newer), delete("a", d), Outcome::Failed, false, false),
        ] {
            let verdict = plan(&order(item), &there.iter().collect::<Vec<_>>(), |_| None).remove(0);
            assert_eq!(verdict.outcome, outcome, "{name}");
            assert_eq!(verdict.change.remove.is_some(), remove, "{name}");
            assert_eq!(verdict.change.add.is_some(), add, "{name}");
        }
    }

    #[test]
    fn untagged_blackhole_route_is_deleted_only_by_its_address() {
        let d = "10.244.1.0/24";
        let at = |machine: &str, state: RouteState, owner: Option<RouteKey>, destination: &str| {
            let mut route = route("rt-1", owner, destination, machine);
            route.next_hop = route.next_hop.map(|hop| NextHop { address: "192.0.2.7".into(), ..hop });
            Route { state: state.into(), ..route }
        };
        let (hole, active) = (RouteState::Blackhole, RouteState::Active);
        for (name, there, item, goes) in [
            ("without target", at("", hole, None, d), left_at(d, "192.0.2.7", ""), true),
            ("with the provider ID, too", at("", hole, None, d), left_at(d, "192.0.2.7", "i-1"), true),
            ("another address", at("", hole, None, d), left_at(d, "192.0.2.8", ""), false),
            ("no address", at("", hole, None, d), left_at(d, "", ""), false),
            ("no next hop", at("", hole, None, d), delete("a", d), false),
            ("active target", at("", active, None, d), left_at(d, "192.0.2.7", ""), false),
            ("to another instance", at("i-2", hole, None, d), left_at(d, "192.0.2.7", ""), false),
            (
                "of another cluster",
                at("", hole, Some(key("you", "a", d)), d),
                left_at(d, "192.0.2.7", ""),
                false,
            ),
            ("outside", at("", hole, None, "10.99.0.0/24"), left_at("10.99.0.0/24", "192.0.2.7", ""), false),
        ] {
            let verdict = plan(&order(item), &[&there], |_| None).remove(0);
            assert_eq!(verdict.change.remove.is_some(), goes, "{name}");
        }
    }

    #[test]
    fn a_next_hop_is_the_same_in_either_form() {
        let d = "10.244.1.0/24";
        let listed = |id: &str| id.replace("s://region/", "s:///");
        for (owner, item, outcome) in [
            (Some(key("me", "a", d)), upsert("a", d, "s://region/i-1"), Outcome::Unchanged),
            (None, leaving("a", d, "s://region/i-1"), Outcome::Applied),
        ] {
            let there = route("rt-1", owner, d, "s:///i-1");
            let order = order(item).spelled(listed);
            assert_eq!(plan(&order, &[&there], |_| None).remove(0).outcome, outcome, "{order:?}");
        }
    }

    #[test]
    fn doubtful_route_is_neither_created_nor_deleted() {
        let d = "10.244.1.0/24";
        for item in [upsert("a", d, "i-1"), delete("a", d)] {
            let wait = Duration::from_secs(2);
            let verdict = plan(&order(item), &[], |_| Some(wait)).remove(0);
            assert_eq!((verdict.outcome, verdict.change.size()), (Outcome::Pending, 0));
            assert!(verdict.result().retry_after.is_some());
        }
    }
}
