//! Serves `/status`, `/explain` and `/plan`, beside `/metrics`. The pages show what this controller does about an object, and what the
//! object waits for.
//!
//! The answers are assembled on request from existing state: the reconciler's ledger of unsettled objects, the key's state in the queue,
//! and lines that the controller derives from its mirrors. Neither the API server nor the adapter is called, except for plans, which are
//! dry runs.
//!
//! - [`ledger`]: which objects are not in sync, and why.
//! - [`rehearse`]: what the controller would do about them.
//! - `pages`: the pages over HTTP.
//! - `metrics`: the number of objects that are not in sync, and since when.

mod endpoints;
pub mod ledger;
mod metrics;
pub mod rehearse;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
pub use telemetry::report;
use telemetry::report::{
    AdapterLink, ControllerStatus, Explanation, Explanations, Orphan, State, Waiting, WorkQueue,
};
use tokio::{runtime::Handle, time::Instant};

use self::rehearse::RecentRehearsals;
pub(crate) use self::{endpoints::routes, metrics::register};
pub use self::{
    ledger::{Finding, Ledger, Object, Waits},
    rehearse::{Rehearsal, Rehearse},
};
use crate::{
    Clock, Link,
    adapter::Adapter,
    leadership::Shards,
    mirror::{Mirror, ObjectName},
    queue::{Key, KeyState, Load, Queue},
};

/// Maximum number of objects on one page.
const OBJECTS: usize = 500;
/// Maximum number of orphans on one page.
const ORPHANS: usize = 200;
/// Maximum number of objects that `/status` names.
const NAMED: usize = 10;
/// Shown instead of the state in the cloud while the adapter works in another scope.
const IN_ANOTHER_SCOPE: &str = "not known: the adapter works in another part of the cloud";

/// How a controller describes an object from its mirrors. The methods are called only on request.
pub trait Describe: Send + Sync + 'static {
    /// Returns the UID of the object with this name, or `None` if the mirror does not contain such an object.
    fn uid(&self, name: &ObjectName) -> Option<String>;

    /// Returns all objects in the mirror.
    fn all(&self) -> Vec<Object>;

    /// Whether the objects of the API server and of the cloud were listed completely. Before that, objects may exist that the caches do not
    /// show.
    fn listed(&self) -> bool;

    /// Returns what the caches show of an object. The object may exist in the cloud only.
    fn describe(&self, object: &Object) -> Seen;

    /// Returns the load balancers that no Service needs any more, in all shards. Empty for a controller without load balancers.
    fn orphans(&self) -> Vec<Orphan> {
        Vec::new()
    }
}

/// What the caches show of an object, in human-readable lines. The lines must not contain secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The desired state.
    pub wanted: Vec<String>,
    /// The state in the cloud.
    pub cloud: Vec<String>,
    /// Whether the controller knows, apart from the queue, that it has not reconciled the object's current state.
    pub unseen: bool,
    /// Whether this controller does not manage the object; `wanted` says why.
    pub apart: bool,
}

/// A queue key for one object.
pub trait ObjectKey: Key {
    /// Returns the key for an object.
    fn of(object: &Object) -> Self;

    /// Returns the object's name, and its UID if the key contains the UID.
    fn object(&self) -> (ObjectName, Option<String>);
}

impl ObjectKey for ObjectName {
    fn of(object: &Object) -> Self {
        object.name.clone()
    }

    fn object(&self) -> (ObjectName, Option<String>) {
        (self.clone(), None)
    }
}

trait QueueView: Send + Sync {
    fn key_state(&self, object: &Object) -> KeyState;
    fn changed(&self) -> Vec<((ObjectName, Option<String>), Instant)>;
    fn load(&self) -> Load;
}

/// A queue with one key per object.
struct Each<K>(Queue<K>);

impl<K: ObjectKey> QueueView for Each<K> {
    fn key_state(&self, object: &Object) -> KeyState {
        self.0.key_state(&K::of(object))
    }

    fn changed(&self) -> Vec<((ObjectName, Option<String>), Instant)> {
        self.0.changed().into_iter().map(|(key, since)| (key.object(), since)).collect()
    }

    fn load(&self) -> Load {
        self.0.load()
    }
}

/// A queue with one key for all objects.
struct All<K>(Queue<K>, K);

impl<K: Key> QueueView for All<K> {
    /// A pass covers all objects, so the next pass says nothing about a single object.
    fn key_state(&self, _object: &Object) -> KeyState {
        match self.0.key_state(&self.1) {
            later @ KeyState::Later { .. } => later,
            KeyState::Nowhere | KeyState::Waits { .. } | KeyState::Runs => KeyState::Nowhere,
        }
    }

    fn changed(&self) -> Vec<((ObjectName, Option<String>), Instant)> {
        Vec::new()
    }

    fn load(&self) -> Load {
        self.0.load()
    }
}

/// The sources of everything that the pages show about a controller's objects.
pub struct Sources {
    kind: Kind,
    objects: Arc<dyn Describe>,
    ledgers: Vec<Ledger>,
    queue: Box<dyn QueueView>,
    link: Box<dyn Fn() -> Link + Send + Sync>,
    watches: Vec<Watch>,
    rehearse: Option<Arc<dyn Rehearse>>,
}

/// A watch on the API server.
struct Watch {
    /// The objects, such as `services`.
    what: &'static str,
    link: Box<dyn Fn() -> Link + Send + Sync>,
}

/// The kind of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nodes.
    Node,
    /// Services.
    Service,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Service => "Service",
        }
    }

    const fn form(self) -> &'static str {
        match self {
            Self::Node => "key: expected the name of a Node",
            Self::Service => "key: expected NAMESPACE/NAME of a Service",
        }
    }

    fn name(self, key: &str) -> Option<ObjectName> {
        match (self, key.split_once('/')) {
            (Self::Node, None) if is_name(key) => Some(ObjectName::cluster(key)),
            (Self::Service, Some((namespace, name))) if is_name(namespace) && is_name(name) => {
                Some(ObjectName::namespaced(namespace, name))
            }
            (Self::Node | Self::Service, _) => None,
        }
    }
}

/// Whether the API server would accept the name: a DNS subdomain.
fn is_name(text: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=253).contains(&text.len()) && text.bytes().all(fine)
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Sources {
    fn new(kind: Kind, objects: Arc<dyn Describe>, ledgers: Vec<Ledger>, queue: Box<dyn QueueView>) -> Self {
        let (link, watches) = (Box::new(|| Link::Starting), Vec::new());
        Self { kind, objects, ledgers, queue, link, watches, rehearse: None }
    }

    /// Creates the sources for a controller whose queue has one key per object.
    pub fn of_each<K: ObjectKey>(
        kind: Kind,
        objects: Arc<dyn Describe>,
        ledgers: Vec<Ledger>,
        queue: &Queue<K>,
    ) -> Self {
        let places = Box::new(Each(queue.clone()));
        Self::new(kind, objects, ledgers, places)
    }

    /// Creates the sources for a controller that compares all objects in one pass, under one key.
    pub fn of_all<K: Key>(
        kind: Kind,
        objects: Arc<dyn Describe>,
        ledgers: Vec<Ledger>,
        queue: &Queue<K>,
        key: K,
    ) -> Self {
        let places = Box::new(All(queue.clone(), key));
        Self::new(kind, objects, ledgers, places)
    }

    /// Sets the mirror that tracks the connection to the adapter.
    #[must_use]
    pub fn linked<K, T>(mut self, cloud: &Mirror<K, T>) -> Self
    where
        K: Ord + Clone + Send + Sync + 'static,
        T: Send + Sync + 'static,
    {
        let cloud = cloud.clone();
        self.link = Box::new(move || cloud.link());
        self
    }

    /// Adds a mirror of the API server's objects, without which the pages may be wrong.
    #[must_use]
    pub fn watching<K, T>(mut self, mirror: &Mirror<K, T>) -> Self
    where
        K: Ord + Clone + Send + Sync + 'static,
        T: Send + Sync + 'static,
    {
        let mirror = mirror.clone();
        self.watches.push(Watch { what: mirror.what(), link: Box::new(move || mirror.link()) });
        self
    }

    /// Returns why watches on the API server fail, one line each.
    fn failing_watches(&self) -> Vec<String> {
        let failing = self.watches.iter().filter_map(|Watch { what, link }| match link() {
            link @ Link::Down { .. } => Some(format!("the watch of {what} has been {link}")),
            Link::Starting | Link::Up => None,
        });
        failing.collect()
    }

    /// Whether the mirror shows this object, and not another one with the same name.
    fn knows(&self, object: &Object) -> bool {
        self.objects.uid(&object.name).is_some_and(|uid| uid == object.uid)
    }

    /// Sets how dry runs are made.
    #[must_use]
    pub fn rehearsed(self, by: Arc<dyn Rehearse>) -> Self {
        Self { rehearse: Some(by), ..self }
    }
}

/// The controller that works on these objects, and its clients.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) controller: &'static str,
    pub(crate) adapter: Adapter,
    pub(crate) shards: Shards,
    pub(crate) clock: Clock,
    pub(crate) dry_run: bool,
    pub(crate) runtime: Handle,
}

/// The data of the status pages of a process. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Explain(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    identity: OnceLock<Identity>,
    sources: OnceLock<Sources>,
    brakes: Brakes,
    lately: RecentRehearsals,
}

/// The deletions that the brakes hold. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Brakes(Arc<Mutex<BTreeMap<&'static str, Vec<String>>>>);

impl Brakes {
    /// Sets the texts that describe the deletions held by this brake. The status pages show these texts. Empty: the brake holds nothing any
    /// more.
    pub fn holds(&self, brake: &'static str, words: Vec<String>) {
        if words.is_empty() {
            self.all().remove(brake);
        } else {
            self.all().insert(brake, words);
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, Vec<String>>> {
        // The map is consistent even after a panic, since every operation on the map is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why an explanation is not available.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unexplained {
    /// The key does not name an object of this controller's kind.
    #[error("{0}")]
    Form(&'static str),
    /// The controller is not running yet.
    #[error("the controller has not started yet")]
    NotStarted,
    /// A bug in the controller.
    #[error("this is a bug; please report it with the controller's log")]
    Unknown,
}

impl Explain {
    /// Sets the sources of what is shown about the controller's objects. Only the first call has an effect.
    pub fn by(&self, sources: Sources) {
        let first = self.0.sources.set(sources).is_ok();
        debug_assert!(first, "a controller has one kind of objects");
    }

    /// Returns the handle with which brakes report what they hold.
    #[must_use]
    pub fn brakes(&self) -> Brakes {
        self.0.brakes.clone()
    }

    pub(crate) fn is_of(&self, identity: Identity) {
        // The process calls this function only once, so `set` cannot fail.
        let _set = self.0.identity.set(identity);
    }

    /// Returns the status of the controller.
    ///
    /// Errors: The controller is not running yet.
    pub fn status(&self) -> Result<ControllerStatus, Unexplained> {
        let Identity { controller, adapter, shards, dry_run, .. } = self.identity()?;
        let sources = self.sources()?;
        let load = sources.queue.load();
        let held = (0..shards.count()).filter(|shard| shards.since(*shard).is_some());
        let held: Vec<u32> = held.map(number).collect();
        let (refused, moved) = (adapter.call_health().readiness().err(), adapter.scope().readiness().err());
        let unheard = || adapter.overdue_call().or_else(|| adapter.away());
        let away = Some((sources.link)()).filter(|link| matches!(link, Link::Down { .. }));
        let away = away.map(|link| format!("the cloud adapter has been {link}"));
        let mut held_back: Vec<String> = moved.into_iter().collect();
        if !held.is_empty() {
            held_back.extend(self.0.brakes.all().values().flatten().cloned());
        }
        let mut orphans = sources.objects.orphans();
        orphans.retain(|orphan| shards.has(&orphan.uid));
        // Released orphans come first, so that they stay on the page while the user waits for their deletion.
        let order = |it: &Orphan| (!it.released, it.since.is_none(), it.since);
        orphans.sort_by(|a, b| (order(a), &a.key, &a.uid).cmp(&(order(b), &b.key, &b.uid)));
        let more_orphans = many(orphans.len().saturating_sub(ORPHANS));
        orphans.truncate(ORPHANS);
        let unsettled = self.unsettled()?;
        let waits = self.first(&unsettled)?;
        Ok(ControllerStatus {
            controller: (*controller).to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster_id: adapter.cluster_id().to_owned(),
            shards: number(shards.count()),
            held,
            listed: Some(sources.objects.listed()),
            adapter: AdapterLink { replica: adapter.replica(), trouble: away.or(refused).or_else(unheard) },
            failing_watches: sources.failing_watches(),
            queue: WorkQueue {
                waiting: many(load.waiting),
                running: many(load.running),
                later: many(load.later),
                oldest_seconds: load.oldest.as_secs_f64(),
            },
            unsettled: many(unsettled.len()),
            waits,
            held_back,
            orphans,
            more_orphans,
            dry_run: *dry_run,
        })
    }

    /// Explains one object.
    ///
    /// Errors: The key is invalid, or the controller is not running yet.
    pub fn one(&self, key: &str) -> Result<Explanation, Unexplained> {
        let sources = self.sources()?;
        let name = sources.kind.name(key).ok_or(Unexplained::Form(sources.kind.form()))?;
        let uid = sources.objects.uid(&name);
        let uid = uid.or_else(|| sources.ledgers.iter().find_map(|ledger| ledger.uid(&name)));
        match uid {
            Some(uid) => self.explain(&Object { name, uid }),
            None => self.unknown(&name),
        }
    }

    /// Explains all objects that are not in sync, the oldest first, up to the limit of a page.
    ///
    /// Errors: The controller is not running yet.
    pub fn all(&self) -> Result<Explanations, Unexplained> {
        let unsettled = self.unsettled()?;
        let more = unsettled.len().saturating_sub(OBJECTS);
        let objects: Result<Vec<Explanation>, _> =
            unsettled.iter().take(OBJECTS).map(|(_, object)| self.explain(object)).collect();
        Ok(Explanations { objects: objects?, more: many(more) })
    }

    /// Returns the oldest of the unsettled objects, and why they wait. Objects that only exist in the cloud are in
    /// [`ControllerStatus::orphans`].
    fn first(&self, unsettled: &BTreeSet<(Timestamp, Object)>) -> Result<Vec<Waiting>, Unexplained> {
        let sources = self.sources()?;
        let known = unsettled.iter().filter(|(_, object)| sources.knows(object)).take(NAMED);
        let waiting = |(since, object): &(Timestamp, Object)| {
            let Explanation { kind, key, waits_for, reason, .. } = self.explain(object)?;
            Ok(Waiting { kind, key, since: Some(seconds(*since)), waits_for, reason })
        };
        known.map(waiting).collect()
    }

    /// Returns how many objects of the API server are not in sync, and how long the first of these objects has been out of sync. A dry run
    /// reports no objects.
    fn backlog(&self) -> (usize, Duration) {
        let (Ok(Identity { clock, dry_run: false, .. }), Ok(sources)) = (self.identity(), self.sources())
        else {
            return (0, Duration::ZERO);
        };
        let unsettled = self.unsettled().unwrap_or_default();
        let mut known = unsettled.iter().filter(|(_, object)| sources.knows(object));
        let Some((first, _)) = known.next() else { return (0, Duration::ZERO) };
        (1 + known.count(), clock.now().duration_since(*first).try_into().unwrap_or_default())
    }

    /// Returns the objects in the shards of this replica that are not in sync, and since when each object is not in sync.
    fn unsettled(&self) -> Result<BTreeSet<(Timestamp, Object)>, Unexplained> {
        let (Identity { shards, clock, .. }, sources) = (self.identity()?, self.sources()?);
        let mut all: BTreeMap<Object, Timestamp> = BTreeMap::new();
        let noted = sources.ledgers.iter().flat_map(Ledger::all);
        let waiting = sources.queue.changed().into_iter().filter_map(|((name, uid), since)| {
            // A deleted object whose entry was not dropped yet is not shown.
            let known = sources.objects.uid(&name)?;
            let uid = uid.unwrap_or_else(|| known.clone());
            (known == uid).then(|| (Object { name, uid }, before(clock, since)))
        });
        for (object, since) in noted.chain(waiting).filter(|(object, _)| shards.has(&object.uid)) {
            let first = all.entry(object).or_insert(since);
            *first = since.min(*first);
        }
        Ok(all.into_iter().map(|(object, since)| (since, object)).collect())
    }

    /// Explains an object, with the causes that concern all objects: another scope of the adapter, and a failing watch.
    fn explain(&self, object: &Object) -> Result<Explanation, Unexplained> {
        let seen = self.explain_itself(object)?;
        if !seen.held || seen.state == State::NotOurs {
            return Ok(seen);
        }
        // What the adapter's new scope contains says nothing about the objects that were made in the former scope.
        if let Err(moved) = self.identity()?.adapter.scope().readiness() {
            let cloud = vec![IN_ANOTHER_SCOPE.to_owned()];
            let (state, waits_for) = (State::Waiting, Some(moved));
            return Ok(Explanation { state, cloud, plan: Vec::new(), waits_for, reason: None, ..seen });
        }
        let failing = self.sources()?.failing_watches().into_iter().next();
        Ok(match failing.filter(|_| seen.waits_for.is_none()) {
            Some(why) => Explanation { state: State::Waiting, waits_for: Some(why), ..seen },
            None => seen,
        })
    }

    fn explain_itself(&self, object: &Object) -> Result<Explanation, Unexplained> {
        let (Identity { shards, clock, adapter, .. }, sources) = (self.identity()?, self.sources()?);
        let held = shards.has(&object.uid);
        let known = sources.knows(object);
        let Seen { wanted, cloud, unseen, apart } = sources.objects.describe(object);
        let blank = Explanation { known, held, wanted, cloud, ..self.unknown(&object.name)? };
        let blank = Explanation { shard: number(shards.of(&object.uid)), ..blank };
        if !held {
            return Ok(blank);
        }
        let (key, now) = (sources.queue.key_state(object), Instant::now());
        let mut entries = sources.ledgers.iter().filter_map(|ledger| ledger.get(object)).peekable();
        if entries.peek().is_none() {
            let (state, since) = match key {
                KeyState::Runs => (State::Working, None),
                KeyState::Waits { since, changed: true } => (State::NotLookedAt, Some(before(clock, since))),
                _ if unseen => (State::NotLookedAt, None),
                _ if apart => (State::NotOurs, None),
                KeyState::Nowhere | KeyState::Later { .. } | KeyState::Waits { .. } => (State::Settled, None),
            };
            return Ok(Explanation { state, since: since.map(seconds), ..blank });
        }
        let mut all = Explanation { state: State::Working, ..blank };
        let (mut since, mut next) = (None, None);
        for entry in entries {
            all.plan.extend(entry.plan);
            if all.waits_for.is_none()
                && let Some(waits) = entry.waits
            {
                (all.waits_for, all.reason) = (Some(waits.text), waits.reason.map(str::to_owned));
            }
            all.attempts = all.attempts.max(entry.attempts.into());
            since = since.into_iter().chain([entry.since]).min();
            next = next.into_iter().chain(entry.next).min();
        }
        let due = match key {
            KeyState::Later { due } => Some(due),
            KeyState::Nowhere | KeyState::Waits { .. } | KeyState::Runs => None,
        };
        let next = next.or(due).filter(|_| key != KeyState::Runs);
        all.since = since.map(seconds);
        all.next_try = next.map(|due| seconds(after(clock, due.saturating_duration_since(now))));
        // It is not known to which object the overdue call belongs, so an object that waits for something else keeps its cause.
        let overdue = adapter.overdue_call().filter(|_| all.waits_for.is_none());
        if all.waits_for.is_some() && key != KeyState::Runs || overdue.is_some() {
            all.state = State::Waiting;
        }
        if overdue.is_some() {
            (all.waits_for, all.reason) = (overdue, None);
        }
        Ok(all)
    }

    /// Returns the explanation of an object of which nothing is known.
    fn unknown(&self, name: &ObjectName) -> Result<Explanation, Unexplained> {
        Ok(Explanation {
            controller: self.identity()?.controller.to_owned(),
            kind: self.sources()?.kind.word().to_owned(),
            key: name.to_string(),
            ..Explanation::default()
        })
    }

    fn identity(&self) -> Result<&Identity, Unexplained> {
        self.0.identity.get().ok_or(Unexplained::NotStarted)
    }

    fn sources(&self) -> Result<&Sources, Unexplained> {
        self.0.sources.get().ok_or(Unexplained::NotStarted)
    }
}

/// Returns the time of day at an earlier instant.
fn before(clock: &Clock, at: Instant) -> Timestamp {
    let now = clock.now();
    SignedDuration::try_from(at.elapsed()).ok().and_then(|ago| now.checked_sub(ago).ok()).unwrap_or(now)
}

fn after(clock: &Clock, delay: Duration) -> Timestamp {
    let now = clock.now();
    SignedDuration::try_from(delay).ok().and_then(|delay| now.checked_add(delay).ok()).unwrap_or(now)
}

/// Rounds a time to seconds, as Kubernetes writes it.
fn seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn number(shard: usize) -> u32 {
    u32::try_from(shard).unwrap_or(u32::MAX)
}

fn many(objects: usize) -> u64 {
    u64::try_from(objects).unwrap_or(u64::MAX)
}
