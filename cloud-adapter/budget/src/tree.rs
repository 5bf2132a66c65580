//! The tree of buckets. A call takes tokens from all buckets of its path or from none.

use std::collections::{BTreeMap, BTreeSet};

use crate::{BucketConfig, BucketReport, Config, Time, bucket::Bucket};

/// Name of the bucket that the whole account shares.
const ACCOUNT: &str = "account";

#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    buckets: Vec<Bucket>,
    names: BTreeMap<String, BucketId>,
    paths: Vec<Path>,
    /// The buckets of all paths, each before its parents.
    narrowest_first: Vec<BucketId>,
    /// The path of each family and operation used so far.
    known: BTreeMap<(&'static str, &'static str), PathId>,
    /// All families used so far. If a new configuration no longer contains a family, its bucket is kept.
    families: BTreeSet<&'static str>,
    /// Time at which all buckets were last emptied. The bucket of an unconfigured family that is added later counts as emptied at this
    /// time, too. `None`: a bucket that is added later starts full.
    empty_since: Option<Time>,
}

/// Index of a bucket, valid until the next configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BucketId(usize);

/// Index of a path, valid until the next configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathId(usize);

/// The buckets from which a call takes its tokens.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) family: &'static str,
    /// Buckets of the path: the most specific first, the topmost last; never empty.
    pub(crate) buckets: Vec<BucketId>,
}

impl Tree {
    /// Creates the tree with full buckets.
    pub(crate) fn new(config: &Config) -> Self {
        let mut tree = Self::default();
        for (name, bucket) in &config.buckets {
            tree.add(Bucket::new(name, bucket));
        }
        tree
    }

    /// Applies a new configuration and changes all indices. Buckets that remain keep their tokens; new buckets start empty, because earlier
    /// calls were not counted in them.
    pub(crate) fn configure(&mut self, now: Time, config: &Config) {
        let old = std::mem::take(self);
        self.empty_since = old.empty_since;
        self.families = old.families;
        let mut old: BTreeMap<_, _> =
            old.buckets.into_iter().map(|bucket| (bucket.name.clone(), bucket)).collect();
        for (name, settings) in &config.buckets {
            let mut bucket = old.remove(name).unwrap_or_else(|| {
                let mut bucket = Bucket::new(name, settings);
                bucket.empty(now);
                bucket
            });
            bucket.configure(now, settings);
            self.add(bucket);
        }
        // A family whose settings were removed keeps its tokens.
        for family in self.families.clone() {
            if let Some(mut bucket) = old.remove(family) {
                bucket.configure(now, &BucketConfig::unconfigured());
                self.add(bucket);
            }
        }
    }

    /// The path of an operation. Creates a bucket for a family that is not configured.
    pub(crate) fn path(&mut self, family: &'static str, operation: &'static str, config: &Config) -> PathId {
        if let Some(known) = self.known.get(&(family, operation)) {
            return *known;
        }
        self.families.insert(family);
        if !self.names.contains_key(family) {
            let mut bucket = Bucket::new(family, &BucketConfig::unconfigured());
            if let Some(since) = self.empty_since {
                bucket.empty(since);
            }
            self.add(bucket);
        }
        let mut buckets = Vec::new();
        self.climb(&format!("{family}:{operation}"), config, &mut buckets);
        self.climb(family, config, &mut buckets);
        let same = self.paths.iter().position(|path| path.family == family && path.buckets == buckets);
        let id = PathId(same.unwrap_or(self.paths.len()));
        if same.is_none() {
            self.paths.push(Path { family, buckets });
            self.sort();
        }
        self.known.insert((family, operation), id);
        id
    }

    /// Adds the bucket and its parents to the path; stops at a bucket that is already in the path, which also ends cycles.
    fn climb(&self, name: &str, config: &Config, path: &mut Vec<BucketId>) {
        let (mut chain, mut next) = (Vec::new(), Some(name));
        while let Some(name) = next {
            let Some(id) = self.names.get(name) else { break };
            if let Some(met) = path.iter().position(|one| one == id) {
                // The topmost bucket must remain at the end of the path.
                path.splice(met..met, chain);
                return;
            }
            if chain.contains(id) {
                break;
            }
            chain.push(*id);
            next = match config.buckets.get(name).and_then(|bucket| bucket.parent.as_deref()) {
                Some(parent) => Some(parent),
                None if name.contains(':') || name == ACCOUNT => None,
                None => Some(ACCOUNT),
            };
        }
        path.extend(chain);
    }

    /// Orders the buckets by their distance from the topmost bucket.
    fn sort(&mut self) {
        let mut above = BTreeMap::new();
        for path in &self.paths {
            for (height, id) in path.buckets.iter().rev().enumerate() {
                let highest = above.entry(*id).or_insert(height);
                *highest = height.max(*highest);
            }
        }
        let mut sorted: Vec<_> = above.into_iter().collect();
        sorted.sort_by_key(|(_, height)| std::cmp::Reverse(*height));
        self.narrowest_first = sorted.into_iter().map(|(id, _)| id).collect();
    }

    pub(crate) fn narrowest_first(&self) -> impl Iterator<Item = (BucketId, &Bucket)> {
        self.narrowest_first.iter().filter_map(|id| Some((*id, self.get(*id)?)))
    }

    fn add(&mut self, bucket: Bucket) {
        self.names.insert(bucket.name.clone(), BucketId(self.buckets.len()));
        self.buckets.push(bucket);
    }

    pub(crate) fn named(&self, name: &str) -> Option<BucketId> {
        self.names.get(name).copied()
    }

    pub(crate) fn get(&self, id: BucketId) -> Option<&Bucket> {
        self.buckets.get(id.0)
    }

    pub(crate) fn get_mut(&mut self, id: BucketId) -> Option<&mut Bucket> {
        self.buckets.get_mut(id.0)
    }

    pub(crate) fn at(&self, path: PathId) -> Option<&Path> {
        self.paths.get(path.0)
    }

    /// The topmost bucket of a path.
    pub(crate) fn root(&self, path: PathId) -> Option<&Bucket> {
        self.get(*self.at(path)?.buckets.last()?)
    }

    /// The buckets of a path, the most specific first.
    pub(crate) fn along(&self, path: PathId) -> impl Iterator<Item = (BucketId, &Bucket)> {
        let ids = self.paths.get(path.0).map_or(&[][..], |path| &path.buckets);
        ids.iter().filter_map(|id| Some((*id, self.buckets.get(id.0)?)))
    }

    pub(crate) fn each(&mut self, path: PathId, mut act: impl FnMut(&mut Bucket)) {
        let ids = self.paths.get(path.0).map_or(&[][..], |path| &path.buckets);
        for id in ids {
            if let Some(bucket) = self.buckets.get_mut(id.0) {
                act(bucket);
            }
        }
    }

    /// Whether calls of that path take tokens from the bucket.
    pub(crate) fn pays(&self, path: PathId, bucket: BucketId) -> bool {
        self.paths.get(path.0).is_some_and(|path| path.buckets.contains(&bucket))
    }

    pub(crate) fn tick(&mut self, now: Time, reserve: f64) {
        for bucket in &mut self.buckets {
            bucket.tick(now);
            bucket.fill_reserve(now, reserve);
        }
    }

    pub(crate) fn empty(&mut self, now: Time) {
        self.empty_since = Some(now);
        self.buckets.iter_mut().for_each(|bucket| bucket.empty(now));
    }

    pub(crate) fn report(&self, now: Time, queued: impl Fn(BucketId) -> u64) -> Vec<BucketReport> {
        self.names.values().filter_map(|id| Some(self.get(*id)?.report(now, queued(*id)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn config(buckets: &[(&str, Option<&str>)]) -> Config {
        let bucket = |parent: Option<&str>| BucketConfig {
            parent: parent.map(str::to_owned),
            ..BucketConfig::unconfigured()
        };
        let buckets = buckets.iter().map(|(name, parent)| ((*name).to_owned(), bucket(*parent))).collect();
        Config { buckets, ..Config::default() }
    }

    #[test]
    fn the_topmost_bucket_is_last_in_every_path() {
        for (name, parent, wanted) in [
            ("its family", "net", ["net:Op", "net", "account"]),
            ("that of its family", "account", ["net:Op", "net", "account"]),
            ("itself", "net:Op", ["net:Op", "net", "account"]),
        ] {
            let config = config(&[("account", None), ("net", None), ("net:Op", Some(parent))]);
            let mut tree = Tree::new(&config);
            let path = tree.path("net", "Op", &config);
            let names: Vec<&str> = tree.along(path).map(|(_, bucket)| bucket.name.as_str()).collect();
            assert_eq!(names, wanted, "{name}");
        }
    }

    #[test]
    fn an_unconfigured_family_keeps_its_tokens_over_reloads() {
        let config = config(&[("account", None)]);
        let mut tree = Tree::new(&config);
        let path = tree.path("net", "Op", &config);
        tree.empty(Time::ZERO);
        let tokens = |tree: &Tree, now| {
            tree.named("net").and_then(|id| tree.get(id)).map(|bucket| bucket.report(now, 0).tokens)
        };
        assert!(tree.pays(path, tree.named("net").expect("used")));
        for _ in 0..3 {
            tree.configure(Time::ZERO, &config);
        }
        assert_eq!(tokens(&tree, Time::ZERO), Some(0.0));
        tree.tick(Time::ZERO + Duration::from_secs(1), 0.0);
        assert_eq!(tokens(&tree, Time::ZERO + Duration::from_secs(1)), Some(5.0), "at its own rate");
    }
}
