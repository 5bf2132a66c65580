//! Immutable sets of backends. A caller uploads a set once and then refers to it by ID. An LRU cache keeps the sets, with limits on their
//! number, age and bytes.

use std::{
    collections::BTreeMap,
    mem::size_of,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Backend, BackendDelta, put_backend_set_request::Content},
};
use tokio::time::Instant;

use crate::strings;

const SETS_MAX: usize = 64;
/// The time without use after which a set expires.
const SET_AGE: Duration = Duration::from_mins(15);
/// Maximum size in bytes of all sets, including evicted sets that tasks still use. A set of 5,000 nodes takes about 1 MiB.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// The cluster and the ID of a set.
type Name = (String, String);

#[derive(Debug, Default)]
pub(crate) struct BackendSets(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    kept: BTreeMap<Name, Entry>,
    /// All sets in use with their sizes in bytes, whether cached or not.
    alive: Vec<(Weak<[Backend]>, usize)>,
}

#[derive(Clone, Debug)]
struct Entry {
    /// The set is ordered by provider ID, so that equal sets compare equal.
    set: Arc<[Backend]>,
    used: Instant,
}

impl BackendSets {
    /// Returns the number of backends in the set.
    ///
    /// Returns `BACKEND_SET_UNKNOWN` if the base of a delta is not cached; `FIELD_INVALID` for a missing field, a repeated backend, an ID
    /// that already has other content, or a set larger than the bound for all sets; `QUEUE_FULL` if the sets in use by tasks leave no
    /// space.
    pub(crate) fn put(
        &self,
        cluster: &str,
        id: &str,
        content: Option<Content>,
    ) -> Result<usize, AdapterError> {
        if id.is_empty() {
            return Err(AdapterError::field("id", "is empty: use a digest of the content"));
        }
        let set = match content {
            None => return Err(AdapterError::field("content", "is missing: set full or delta")),
            Some(Content::Full(full)) => index("full.backends", full.backends)?,
            Some(Content::Delta(delta)) => self.apply(cluster, delta)?,
        };
        let set: Arc<[Backend]> = set.into_values().collect();
        let size = set.len();
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        inner.kept.retain(|_, entry| now.duration_since(entry.used) < SET_AGE);
        let name = (cluster.to_owned(), id.to_owned());
        match inner.kept.get_mut(&name) {
            Some(entry) if entry.set == set => entry.used = now,
            Some(_) => {
                return Err(AdapterError::field("id", format!("{id:?} already has other content")));
            }
            None => inner.insert(name, Entry { set, used: now })?,
        }
        Ok(size)
    }

    /// Returns a set, ordered by provider ID.
    ///
    /// Returns `BACKEND_SET_UNKNOWN` if the set is not cached. The caller must then upload the set and repeat the request.
    pub(crate) fn get(&self, cluster: &str, id: &str) -> Result<Arc<[Backend]>, AdapterError> {
        let now = Instant::now();
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = inner.kept.get_mut(&(cluster.to_owned(), id.to_owned()));
        match entry.filter(|entry| now.duration_since(entry.used) < SET_AGE) {
            None => Err(AdapterError::new(
                Reason::BackendSetUnknown,
                format!("backend set {id:?} is not cached: put it, and repeat the request"),
            )),
            Some(entry) => {
                entry.used = now;
                Ok(Arc::clone(&entry.set))
            }
        }
    }

    fn apply(&self, cluster: &str, delta: BackendDelta) -> Result<BTreeMap<String, Backend>, AdapterError> {
        let base = self.get(cluster, &delta.base_id)?;
        let mut set: BTreeMap<_, _> =
            base.iter().map(|backend| (backend.provider_id.clone(), backend.clone())).collect();
        for provider_id in delta.remove {
            set.remove(&provider_id);
        }
        set.extend(index("delta.add", delta.add)?);
        Ok(set)
    }
}

impl Inner {
    fn insert(&mut self, name: Name, entry: Entry) -> Result<(), AdapterError> {
        let bytes = weigh(&name, &entry.set);
        if bytes > BYTES_MAX {
            let text = format!("has a size of {bytes} bytes: at most {BYTES_MAX} are allowed");
            return Err(AdapterError::field("content", text));
        }
        if self.kept.len() >= SETS_MAX {
            self.evict(|_| true);
        }
        while self.taken() + bytes > BYTES_MAX {
            // Only sets that no task uses are evicted here, because the eviction of other sets would free no memory.
            if !self.evict(|entry| Arc::strong_count(&entry.set) == 1) {
                let text = "the backend sets of running tasks take too much memory: retry later";
                return Err(AdapterError::new(Reason::QueueFull, text));
            }
        }
        self.alive.push((Arc::downgrade(&entry.set), bytes));
        self.kept.insert(name, entry);
        Ok(())
    }

    /// Evicts the least recently used set for which `may_go` returns true. Returns false if there is no such set.
    fn evict(&mut self, may_go: impl Fn(&Entry) -> bool) -> bool {
        let those = self.kept.iter().filter(|(_, entry)| may_go(entry));
        let oldest = those.min_by_key(|(_, entry)| entry.used).map(|(name, _)| name.clone());
        oldest.is_some_and(|name| self.kept.remove(&name).is_some())
    }

    /// Returns the total size of all sets in use, in bytes.
    fn taken(&mut self) -> usize {
        self.alive.retain(|(set, _)| set.strong_count() > 0);
        self.alive.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Returns the approximate size of a set in bytes.
fn weigh((cluster, id): &Name, set: &[Backend]) -> usize {
    let heap = |backend: &Backend| {
        let Backend { provider_id, node_name, addresses, zone, .. } = backend;
        let addresses: usize = addresses.iter().map(|address| size_of::<String>() + address.len()).sum();
        provider_id.len() + node_name.len() + addresses + zone.len()
    };
    cluster.len() + id.len() + size_of_val(set) + set.iter().map(heap).sum::<usize>()
}

fn index(field: &str, backends: Vec<Backend>) -> Result<BTreeMap<String, Backend>, AdapterError> {
    let mut set = BTreeMap::new();
    for (at, backend) in backends.into_iter().enumerate() {
        if backend.provider_id.is_empty() {
            return Err(AdapterError::field(format!("{field}[{at}].provider_id"), "is empty"));
        }
        let fields = [
            ("provider_id", backend.provider_id.as_str()),
            ("node_name", &backend.node_name),
            ("zone", &backend.zone),
        ];
        strings::refuse(strings::too_long(format_args!("{field}[{at}]"), fields))?;
        if let Some(twice) = set.insert(backend.provider_id.clone(), backend) {
            let text = format!("{:?} is repeated", twice.provider_id);
            return Err(AdapterError::field(format!("{field}[{at}].provider_id"), text));
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::BackendList;

    use super::*;

    fn backend(id: &str) -> Backend {
        Backend { provider_id: id.to_owned(), ..Backend::default() }
    }

    fn full(ids: &[&str]) -> Option<Content> {
        Some(Content::Full(BackendList { backends: ids.iter().map(|id| backend(id)).collect() }))
    }

    fn ids(sets: &BackendSets, id: &str) -> Vec<String> {
        sets.get("c", id).expect("known").iter().map(|backend| backend.provider_id.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_difference_equals_the_full_set() {
        let sets = BackendSets::default();
        sets.put("c", "1", full(&["a", "b"])).expect("put");
        let delta = BackendDelta { base_id: "1".into(), add: vec![backend("c")], remove: vec!["a".into()] };
        sets.put("c", "2", Some(Content::Delta(delta))).expect("put");
        assert_eq!(ids(&sets, "2"), ["b", "c"]);
        assert_eq!(ids(&sets, "1"), ["a", "b"], "the base is unchanged");
        sets.put("c", "2", full(&["c", "b"])).expect("the same content in another order");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_or_forgotten_set_is_reported() {
        let sets = BackendSets::default();
        let reason = |id| sets.get("c", id).expect_err("unknown").reason;
        assert_eq!(reason("1"), Reason::BackendSetUnknown);
        sets.put("c", "1", full(&["a"])).expect("put");
        assert!(sets.get("other cluster", "1").is_err());
        tokio::time::advance(SET_AGE).await;
        assert_eq!(reason("1"), Reason::BackendSetUnknown);
    }

    #[tokio::test(start_paused = true)]
    async fn least_recently_used_set_is_evicted() {
        let sets = BackendSets::default();
        for number in 0..SETS_MAX {
            sets.put("c", &number.to_string(), full(&["a"])).expect("put");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        sets.get("c", "0").expect("cached, and used now");
        sets.put("c", "new", full(&["a"])).expect("put");
        assert!(sets.get("c", "1").is_err(), "the least recently used");
        assert!(sets.get("c", "0").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn changed_sets_and_invalid_backends_are_refused() {
        let sets = BackendSets::default();
        sets.put("c", "1", full(&["a"])).expect("put");
        assert_eq!(sets.put("c", "1", full(&["b"])).expect_err("other").reason, Reason::FieldInvalid);
        let twice = sets.put("c", "2", full(&["b", "b"])).expect_err("twice");
        assert_eq!(twice.violations[0].field, "full.backends[1].provider_id");
        let long = sets.put("c", "3", full(&["b", &"x".repeat(513)])).expect_err("too long");
        assert_eq!(long.violations[0].field, "full.backends[1].provider_id");
        sets.put("c", "3", full(&["b", &"x".repeat(512)])).expect("just short enough");
    }

    /// Returns a set of a single backend. The backend is slightly larger than this size.
    fn heavy(bytes: usize) -> Option<Content> {
        let heavy = Backend { addresses: vec!["x".repeat(bytes)], ..backend("a") };
        Some(Content::Full(BackendList { backends: vec![heavy] }))
    }

    #[tokio::test(start_paused = true)]
    async fn unused_sets_are_evicted_for_a_large_one() {
        let sets = BackendSets::default();
        for number in 0..10 {
            sets.put("c", &number.to_string(), heavy(BYTES_MAX / 4)).expect("the oldest is evicted");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let kept: Vec<_> = (0..10).filter(|number| sets.get("c", &number.to_string()).is_ok()).collect();
        assert_eq!(kept, [7, 8, 9]);
        let large = sets.put("c", "large", heavy(BYTES_MAX)).expect_err("larger than the bound");
        assert_eq!(large.reason, Reason::FieldInvalid);
        assert!(sets.get("c", "9").is_ok(), "nothing is evicted for a set that does not fit anyway");
    }

    #[tokio::test(start_paused = true)]
    async fn sets_in_use_count_until_released() {
        let sets = BackendSets::default();
        sets.put("c", "old", heavy(BYTES_MAX / 2)).expect("put");
        let at_work = sets.get("c", "old").expect("known");
        tokio::time::advance(SET_AGE).await;
        let put = || sets.put("c", "new", heavy(BYTES_MAX / 2));
        assert_eq!(put().expect_err("no space").reason, Reason::QueueFull);
        drop(at_work);
        put().expect("there is space again");
    }
}
