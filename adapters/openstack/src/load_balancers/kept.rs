//! Floating IPs that stay in the project when their Services are deleted. These floating IPs use the project's quota indefinitely, so their
//! number per namespace is limited.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cloud_api_proto::v1alpha1::{LoadBalancerKey, Owner};

use crate::{
    api::responses::FloatingIp,
    ownership::{Description, short_namespace},
};

/// The default maximum number of kept addresses for a namespace.
pub(crate) const MOST: u32 = 10;

/// Keys of the Services that keep addresses, by cluster and namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept(BTreeMap<(String, String), Vec<LoadBalancerKey>>);

impl Kept {
    pub(super) fn of<'a>(floating_ips: impl IntoIterator<Item = &'a FloatingIp>) -> Self {
        let mut kept = Self::default();
        let records = floating_ips.into_iter().filter_map(|ip| Description::read(&ip.description));
        records.filter(|record| record.keep).for_each(|record| kept.add(&record));
        kept
    }

    fn add(&mut self, record: &Description) {
        let key = record.key();
        let of_namespace = self.0.entry(place(&key, &record.owner().namespace)).or_default();
        of_namespace.push(key);
    }

    /// Returns whether the owner's namespace already keeps the maximum number of addresses. A key that already keeps an address may
    /// continue, even above the maximum. Its address would otherwise be deleted with its Service.
    pub(crate) fn is_full(&self, key: &LoadBalancerKey, owner: &Owner, most: u32) -> bool {
        let all = self.0.get(&place(key, &owner.namespace)).map(Vec::as_slice).unwrap_or_default();
        all.len() >= usize::try_from(most).unwrap_or(usize::MAX) && !all.contains(key)
    }
}

/// Returns the cluster and the digest of the namespace. The digest is used because a record that is too long contains only the digest.
fn place(key: &LoadBalancerKey, namespace: &str) -> (String, String) {
    let short = if namespace.starts_with('#') { namespace.to_owned() } else { short_namespace(namespace) };
    (key.cluster_id.clone(), short)
}

/// The kept addresses in the last listing, and the addresses that this process has recorded since that listing. The second list is needed
/// because a namespace may create many Services between two listings.
#[derive(Debug, Default)]
pub(crate) struct KnownKept(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    listed: Kept,
    written: Vec<Write>,
    all: Arc<Kept>,
}

#[derive(Debug)]
struct Write {
    record: Description,
    /// The number of writes by this process when this write ended, or `None` while the write is in progress.
    done_at: Option<u64>,
}

impl KnownKept {
    pub(crate) fn all(&self) -> Arc<Kept> {
        Arc::clone(&self.lock().all)
    }

    /// Counts one more address, unless the namespace already keeps the maximum number.
    pub(crate) fn begin(&self, record: &Description, most: u32) -> bool {
        let mut state = self.lock();
        if state.all.is_full(&record.key(), &record.owner(), most) {
            return false;
        }
        state.written.push(Write { record: record.clone(), done_at: None });
        state.count();
        true
    }

    /// Records that the write has ended, whether it succeeded or not. `writes` is the number of writes by this process so far.
    pub(crate) fn done(&self, record: &Description, writes: u64) {
        let mut state = self.lock();
        let under_way = state.written.iter_mut().find(|one| one.done_at.is_none() && one.record == *record);
        under_way.into_iter().for_each(|one| one.done_at = Some(writes));
    }

    /// Stores the kept addresses in a listing. `writes` is the number of writes by this process when the listing began. The listing shows
    /// the results of these writes.
    pub(crate) fn learn(&self, listed: Kept, writes: u64) {
        let mut state = self.lock();
        state.listed = listed;
        state.written.retain(|one| one.done_at.is_none_or(|at| at > writes));
        state.count();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self) {
        let mut all = self.listed.clone();
        for Write { record, .. } in &self.written {
            if !all.0.values().flatten().any(|key| *key == record.key()) {
                all.add(record);
            }
        }
        self.all = all.into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept_by(namespace: &str, name: &str) -> Description {
        let text = json!({ "cloudadapter.dev/cluster-id": "c-1", "cloudadapter.dev/owner-uid": format!("{namespace}-{name}"),
            "cloudadapter.dev/service": format!("{namespace}/{name}"), "cloudadapter.dev/keep": "true" });
        Description::read(&text.to_string()).expect("a record")
    }

    #[test]
    fn writes_since_the_last_listing_count() {
        let known = KnownKept::default();
        let [web, api, old] = ["web", "api", "old"].map(|name| kept_by("shop", name));
        known.learn(Kept::default(), 0);
        assert!(known.begin(&web, 2) && known.begin(&api, 2));
        assert!(!known.begin(&old, 2), "the namespace keeps two already");
        assert!(known.begin(&kept_by("ops", "old"), 2), "the Service is in another namespace");
        assert!(known.begin(&web, 2), "the key keeps one already");

        known.done(&web, 7);
        known.done(&web, 7);
        known.learn(Kept::default(), 6);
        assert!(!known.begin(&old, 2), "the listing began before the write ended");
        known.learn(Kept::default(), 7);
        assert!(known.begin(&old, 2), "the listing shows that the write had no effect");
        assert!(!known.begin(&kept_by("shop", "new"), 2), "another write is in progress");
    }
}
