//! What a request changes, item by item. Pure.
//!
//! A deletion needs an explicit key and ownership; another owner's route is reported and never touched.

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        NextHop, Route, RouteKey, RouteOwner, RouteResult, RouteState, RouteUpsert, route_result::Outcome,
    },
};
use ipnet::IpNet;

use super::Order;
use crate::driver::{RouteChanges, WantedRoute};

/// One item of a request, its destination parsed.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// Shall be.
    Upsert { destination: IpNet, upsert: RouteUpsert },
    /// Shall not be.
    Delete { destination: IpNet, key: RouteKey },
    /// Cannot be read.
    Bad { key: RouteKey, error: AdapterError },
}

impl Item {
    /// Which route it is about, as asked.
    pub(crate) fn key(&self) -> RouteKey {
        match self {
            Self::Upsert { upsert, .. } => upsert.key.clone().unwrap_or_default(),
            Self::Delete { key, .. } | Self::Bad { key, .. } => key.clone(),
        }
    }
}

/// What an item changes at the vendor.
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

/// What becomes of an item.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) key: RouteKey,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<AdapterError>,
    pub(crate) change: Change,
}

impl Verdict {
    fn new(key: &RouteKey, outcome: Outcome, change: Change) -> Self {
        Self { key: key.clone(), outcome, error: None, change }
    }

    fn refused(key: &RouteKey, outcome: Outcome, error: AdapterError) -> Self {
        Self { key: key.clone(), outcome, error: Some(error), change: Change::default() }
    }

    /// The item's result, in the words of the contract.
    pub(crate) fn result(&self) -> RouteResult {
        RouteResult {
            key: Some(self.key.clone()),
            outcome: self.outcome.into(),
            error: self.error.as_ref().map(AdapterError::to_item),
            retry_after: None,
        }
    }
}

/// Whose a route is, for this cluster.
pub(crate) fn owner(route: &Route, cluster_id: &str) -> RouteOwner {
    match &route.key {
        Some(key) if key.cluster_id == cluster_id => RouteOwner::Mine,
        Some(_) => RouteOwner::OtherCluster,
        None => RouteOwner::Unmanaged,
    }
}

/// What becomes of each item, given what is there.
pub(crate) fn plan(order: &Order, routes: &[&Route]) -> Vec<Verdict> {
    order.items.iter().map(|item| judge(item, order, routes)).collect()
}

/// All changes together.
pub(crate) fn changes(verdicts: &[Verdict], cluster_name: &str) -> RouteChanges {
    let wanted =
        |upsert: &RouteUpsert| WantedRoute { upsert: upsert.clone(), cluster_name: cluster_name.to_owned() };
    RouteChanges {
        remove: verdicts.iter().filter_map(|verdict| verdict.change.remove.clone()).collect(),
        add: verdicts.iter().filter_map(|verdict| verdict.change.add.as_ref().map(wanted)).collect(),
    }
}

/// Groups items so that no group has more than `max` changes, except where a single item has.
pub(crate) fn batches(verdicts: &mut [Verdict], max: usize) -> impl Iterator<Item = &mut [Verdict]> {
    let mut changes = 0;
    verdicts.chunk_by_mut(move |before, after| {
        // Counts what stands before the boundary that is being judged.
        changes += before.change.size();
        let fits = changes + after.change.size() <= max;
        changes = if fits { changes } else { 0 };
        fits
    })
}

fn judge(item: &Item, order: &Order, routes: &[&Route]) -> Verdict {
    match item {
        Item::Bad { key, error } => Verdict::refused(key, Outcome::Failed, error.clone()),
        Item::Delete { destination, key } => delete(key, *destination, routes),
        Item::Upsert { destination, upsert } => {
            let key = upsert.key.clone().unwrap_or_default();
            if !order.cluster_cidrs.iter().any(|cidr| cidr.contains(destination)) {
                let text = format!("{destination} is outside of the cluster's CIDRs");
                let error = AdapterError::field("upserts.key.destination", text);
                return Verdict::refused(&key, Outcome::Failed, error);
            }
            let there = routes.iter().find(|route| to(route) == Some(*destination));
            match there {
                None => lay(&key, upsert, None),
                Some(route) => replace(&key, upsert, route, &order.cluster_id),
            }
        }
    }
}

fn replace(key: &RouteKey, upsert: &RouteUpsert, route: &Route, cluster_id: &str) -> Verdict {
    let same_hop = same_hop(route.next_hop.as_ref(), upsert.next_hop.as_ref());
    let serves = route.state() != RouteState::Blackhole;
    match owner(route, cluster_id) {
        RouteOwner::Mine if route.key.as_ref() == Some(key) && same_hop && serves => {
            Verdict::new(key, Outcome::Unchanged, Change::default())
        }
        // Ours, for the same node: it moves. For another node: that node's key must be deleted first, or it is a conflict.
        RouteOwner::Mine if route.key.as_ref().is_some_and(|there| there.node_uid == key.node_uid) => {
            lay(key, upsert, Some(route.vendor_id.clone()))
        }
        RouteOwner::Mine | RouteOwner::OtherCluster | RouteOwner::Unmanaged | RouteOwner::Unspecified => {
            let whose = match &route.key {
                Some(there) if there.cluster_id == cluster_id => "another node of this cluster",
                Some(_) => "another cluster",
                None => "somebody unknown",
            };
            let text = format!("route {} to {} belongs to {whose}", route.vendor_id, route.destination);
            Verdict::refused(key, Outcome::Conflict, AdapterError::new(Reason::OwnedByOther, text))
        }
    }
}

fn lay(key: &RouteKey, upsert: &RouteUpsert, remove: Option<String>) -> Verdict {
    Verdict::new(key, Outcome::Applied, Change { remove, add: Some(upsert.clone()) })
}

fn delete(key: &RouteKey, destination: IpNet, routes: &[&Route]) -> Verdict {
    let mine = |route: &&&Route| to(route) == Some(destination) && route.key.as_ref() == Some(key);
    match routes.iter().find(mine) {
        None => Verdict::new(key, Outcome::Unchanged, Change::default()),
        Some(route) => {
            let change = Change { remove: Some(route.vendor_id.clone()), add: None };
            Verdict::new(key, Outcome::Applied, change)
        }
    }
}

fn to(route: &Route) -> Option<IpNet> {
    route.destination.parse().ok()
}

/// What the request leaves open is the driver's to choose, and not compared.
fn same_hop(there: Option<&NextHop>, wanted: Option<&NextHop>) -> bool {
    let (Some(there), Some(wanted)) = (there, wanted) else { return false };
    let same = |there: &str, wanted: &str| wanted.is_empty() || there == wanted;
    there.provider_id == wanted.provider_id
        && same(&there.address, &wanted.address)
        && same(&there.interface, &wanted.interface)
}

#[cfg(test)]
mod tests {
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
        Item::Delete { destination: destination.parse().expect("CIDR"), key: key("me", node, destination) }
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
    fn each_item_is_judged_by_what_is_there() {
        let d = "10.244.1.0/24";
        let mine = |hop| route("rt-1", Some(key("me", "a", d)), d, hop);
        let other = route("rt-1", Some(key("you", "a", d)), d, "i-1");
        let unmanaged = route("rt-1", None, d, "i-1");
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
            ("unmanaged", Some(unmanaged.clone()), upsert("a", d, "i-1"), Outcome::Conflict, false, false),
            ("outside", None, upsert("a", "192.0.2.0/24", "i-1"), Outcome::Failed, false, false),
            ("delete mine", Some(mine("i-1")), delete("a", d), Outcome::Applied, true, false),
            ("delete none", None, delete("a", d), Outcome::Unchanged, false, false),
            ("delete another's", Some(other), delete("a", d), Outcome::Unchanged, false, false),
            ("delete unmanaged", Some(unmanaged), delete("a", d), Outcome::Unchanged, false, false),
        ] {
            let order = Order {
                cluster_id: "me".into(),
                cluster_name: "test".into(),
                cluster_cidrs: vec!["10.244.0.0/16".parse().expect("CIDR")],
                items: vec![item],
                fence: None,
            };
            let verdict = plan(&order, &there.iter().collect::<Vec<_>>()).remove(0);
            assert_eq!(verdict.outcome, outcome, "{name}");
            assert_eq!(verdict.change.remove.is_some(), remove, "{name}");
            assert_eq!(verdict.change.add.is_some(), add, "{name}");
        }
    }
}
