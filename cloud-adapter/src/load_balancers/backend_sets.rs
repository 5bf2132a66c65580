//! Immutable sets of backends, uploaded once and named by ID. Least recently used, bounded in number and age.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Backend, BackendDelta, put_backend_set_request::Content},
};
use tokio::time::Instant;

/// Sets that are kept. Source: contract, section 6.
const SETS_MAX: usize = 64;
/// A set that nobody named for this long is dropped.
const SET_AGE: Duration = Duration::from_mins(15);

/// Backends by provider ID: ordered, so that equal sets are equal.
type Set = BTreeMap<String, Backend>;

/// The sets.
#[derive(Debug, Default)]
pub(crate) struct BackendSets(Mutex<BTreeMap<(String, String), Entry>>);

#[derive(Clone, Debug)]
struct Entry {
    set: Arc<Set>,
    used: Instant,
}

impl BackendSets {
    /// Stores a set of a cluster. Returns its size.
    ///
    /// # Errors
    /// `BACKEND_SET_UNKNOWN` if the base of a difference is not here; `FIELD_INVALID` for a missing field, a repeated backend,
    /// or an ID that already names other content.
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
            None => return Err(AdapterError::field("content", "is missing: send full or delta")),
            Some(Content::Full(full)) => index("full.backends", full.backends)?,
            Some(Content::Delta(delta)) => self.apply(cluster, delta)?,
        };
        let size = set.len();
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        sets.retain(|_, entry| now.duration_since(entry.used) < SET_AGE);
        let name = (cluster.to_owned(), id.to_owned());
        if sets.get(&name).is_some_and(|entry| *entry.set != set) {
            return Err(AdapterError::field("id", format!("{id:?} names other content already")));
        }
        if sets.len() >= SETS_MAX
            && !sets.contains_key(&name)
            && let Some(oldest) =
                sets.iter().min_by_key(|(_, entry)| entry.used).map(|(name, _)| name.clone())
        {
            sets.remove(&oldest);
        }
        sets.insert(name, Entry { set: Arc::new(set), used: now });
        Ok(size)
    }

    /// A set, ordered by provider ID.
    ///
    /// # Errors
    /// `BACKEND_SET_UNKNOWN`: put it, and repeat.
    pub(crate) fn get(&self, cluster: &str, id: &str) -> Result<Vec<Backend>, AdapterError> {
        Ok(self.find(cluster, id)?.values().cloned().collect())
    }

    fn find(&self, cluster: &str, id: &str) -> Result<Arc<Set>, AdapterError> {
        let now = Instant::now();
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = sets.get_mut(&(cluster.to_owned(), id.to_owned()));
        match entry.filter(|entry| now.duration_since(entry.used) < SET_AGE) {
            None => Err(AdapterError::new(
                Reason::BackendSetUnknown,
                format!("backend set {id:?} is not here: put it, and repeat"),
            )),
            Some(entry) => {
                entry.used = now;
                Ok(Arc::clone(&entry.set))
            }
        }
    }

    fn apply(&self, cluster: &str, delta: BackendDelta) -> Result<Set, AdapterError> {
        let mut set = Set::clone(&*self.find(cluster, &delta.base_id)?);
        for provider_id in delta.remove {
            set.remove(&provider_id);
        }
        set.extend(index("delta.add", delta.add)?);
        Ok(set)
    }
}

fn index(field: &str, backends: Vec<Backend>) -> Result<Set, AdapterError> {
    let mut set = Set::new();
    for (at, backend) in backends.into_iter().enumerate() {
        if backend.provider_id.is_empty() {
            return Err(AdapterError::field(format!("{field}[{at}].provider_id"), "is empty"));
        }
        if let Some(twice) = set.insert(backend.provider_id.clone(), backend) {
            let text = format!("{:?} is there twice", twice.provider_id);
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
        sets.get("c", id).expect("known").into_iter().map(|backend| backend.provider_id).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_difference_equals_the_full_set() {
        let sets = BackendSets::default();
        sets.put("c", "1", full(&["a", "b"])).expect("put");
        let delta = BackendDelta { base_id: "1".into(), add: vec![backend("c")], remove: vec!["a".into()] };
        sets.put("c", "2", Some(Content::Delta(delta))).expect("put");
        assert_eq!(ids(&sets, "2"), ["b", "c"]);
        assert_eq!(ids(&sets, "1"), ["a", "b"], "the base is as it was");
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
    async fn the_least_recently_used_set_makes_room() {
        let sets = BackendSets::default();
        for number in 0..SETS_MAX {
            sets.put("c", &number.to_string(), full(&["a"])).expect("put");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        sets.get("c", "0").expect("still there, and used now");
        sets.put("c", "new", full(&["a"])).expect("put");
        assert!(sets.get("c", "1").is_err(), "the oldest use");
        assert!(sets.get("c", "0").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn other_content_under_the_same_name_and_repeated_backends_are_refused() {
        let sets = BackendSets::default();
        sets.put("c", "1", full(&["a"])).expect("put");
        assert_eq!(sets.put("c", "1", full(&["b"])).expect_err("other").reason, Reason::FieldInvalid);
        let twice = sets.put("c", "2", full(&["b", "b"])).expect_err("twice");
        assert_eq!(twice.violations[0].field, "full.backends[1].provider_id");
    }
}
