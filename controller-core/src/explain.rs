//! What this controller does about an object, and what that waits for: `/status`, `/explain` and `/plan`, beside `/metrics`.
//!
//! Joined when somebody asks, out of what is there already: the ledger that the reconciler keeps of what is not settled, the place of
//! the key in the queue, and lines that the controller makes of its mirrors. Neither the API server nor the adapter is asked, but for
//! plans, which are tried out.
//!
//! - [`ledger`]: what is not settled, and why.
//! - [`rehearse`]: what would be done about it.
//! - `pages`: the pages over HTTP.
//! - `metrics`: how much it is, and since when.

pub mod ledger;
mod metrics;
mod pages;
pub mod rehearse;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

pub use ::pages::report;
use ::pages::report::{
    AdapterLink, ControllerStatus, Explanation, Explanations, Orphan, State, Waiting, WorkQueue,
};
use jiff::{SignedDuration, Timestamp};
use tokio::{runtime::Handle, time::Instant};

use self::rehearse::Lately;
pub use self::{
    ledger::{Finding, Ledger, Object, Waits},
    rehearse::{Rehearsal, Rehearse},
};
pub(crate) use self::{metrics::register, pages::pages};
use crate::{
    Clock, Link,
    adapter::Adapter,
    mirror::{Mirror, ObjectName},
    queue::{Key, Load, Place, Queue},
    start::Shards,
};

/// Objects on one page.
const OBJECTS: usize = 500;
/// Orphans on one page.
const ORPHANS: usize = 200;
/// Objects that `/status` names.
const NAMED: usize = 10;

/// What a controller tells of an object out of its mirrors. Called when somebody asks, and not before.
pub trait Look: Send + Sync + 'static {
    /// The UID of the object of this name. `None`: there is no such object in the mirror.
    fn uid(&self, name: &ObjectName) -> Option<String>;

    /// All objects in the mirror.
    fn all(&self) -> Vec<Object>;

    /// Whether both sides were listed: before that, what is not shown may be there.
    fn listed(&self) -> bool;

    /// What the mirrors show of an object, which may be one that only the cloud still has.
    fn look(&self, object: &Object) -> Seen;

    /// Load balancers that no Service wants any more, of all shards. Of a controller that has none: nothing.
    fn orphans(&self) -> Vec<Orphan> {
        Vec::new()
    }
}

/// What the mirrors show of an object: lines for people. Nothing in them may be a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What it asks for.
    pub wanted: Vec<String>,
    /// What the cloud has.
    pub cloud: Vec<String>,
    /// Known to the controller beside the queue: it was not looked at as it is now.
    pub unseen: bool,
    /// It is none of the controller's: nothing is done for it, and `wanted` says why.
    pub apart: bool,
}

/// A key of a queue that stands for one object.
pub trait ObjectKey: Key {
    /// The key of an object.
    fn of(object: &Object) -> Self;

    /// The name of the object, and its UID if the key has it.
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

/// What of a queue is told.
trait Places: Send + Sync {
    fn place(&self, object: &Object) -> Place;
    fn changed(&self) -> Vec<((ObjectName, Option<String>), Instant)>;
    fn load(&self) -> Load;
}

/// A key an object.
struct Each<K>(Queue<K>);

impl<K: ObjectKey> Places for Each<K> {
    fn place(&self, object: &Object) -> Place {
        self.0.place(&K::of(object))
    }

    fn changed(&self) -> Vec<((ObjectName, Option<String>), Instant)> {
        self.0.changed().into_iter().map(|(key, since)| (key.object(), since)).collect()
    }

    fn load(&self) -> Load {
        self.0.load()
    }
}

/// One key for all objects.
struct All<K>(Queue<K>, K);

impl<K: Key> Places for All<K> {
    /// That the next pass has begun, or is due, says nothing of a single object.
    fn place(&self, _object: &Object) -> Place {
        match self.0.place(&self.1) {
            later @ Place::Later { .. } => later,
            Place::Nowhere | Place::Waits { .. } | Place::Runs => Place::Nowhere,
        }
    }

    fn changed(&self) -> Vec<((ObjectName, Option<String>), Instant)> {
        Vec::new()
    }

    fn load(&self) -> Load {
        self.0.load()
    }
}

/// Where all that is told of a controller's objects comes from.
pub struct Sources {
    kind: Kind,
    look: Arc<dyn Look>,
    ledgers: Vec<Ledger>,
    places: Box<dyn Places>,
    link: Box<dyn Fn() -> Link + Send + Sync>,
    rehearse: Option<Arc<dyn Rehearse>>,
}

/// Of which kind the objects are.
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

    /// How a key is written.
    const fn form(self) -> &'static str {
        match self {
            Self::Node => "key: want the name of a Node",
            Self::Service => "key: want NAMESPACE/NAME of a Service",
        }
    }

    /// Reads a key.
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

/// Whether the API server would take it: a DNS subdomain.
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
    /// Of a controller whose queue has a key an object.
    pub fn of_each<K: ObjectKey>(
        kind: Kind,
        look: Arc<dyn Look>,
        ledgers: Vec<Ledger>,
        queue: &Queue<K>,
    ) -> Self {
        let places = Box::new(Each(queue.clone()));
        Self { kind, look, ledgers, places, link: Box::new(|| Link::Starting), rehearse: None }
    }

    /// Of a controller that compares all objects in one pass, under one key.
    pub fn of_all<K: Key>(
        kind: Kind,
        look: Arc<dyn Look>,
        ledgers: Vec<Ledger>,
        (queue, key): (&Queue<K>, K),
    ) -> Self {
        let places = Box::new(All(queue.clone(), key));
        Self { kind, look, ledgers, places, link: Box::new(|| Link::Starting), rehearse: None }
    }

    /// The mirror that tells how the connection to the adapter is.
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

    /// Whether the mirror shows this object, and not another one of its name.
    fn knows(&self, object: &Object) -> bool {
        self.look.uid(&object.name).is_some_and(|uid| uid == object.uid)
    }

    /// Who tries out what would be done.
    #[must_use]
    pub fn rehearsed(self, by: Arc<dyn Rehearse>) -> Self {
        Self { rehearse: Some(by), ..self }
    }
}

/// Whose objects these are.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) controller: &'static str,
    pub(crate) adapter: Adapter,
    pub(crate) shards: Shards,
    pub(crate) clock: Clock,
    /// It looks and plans, and changes nothing.
    pub(crate) dry_run: bool,
    /// Where the controller runs.
    pub(crate) runtime: Handle,
}

/// What a process tells of its work. Cloning gives another handle.
#[derive(Clone, Debug, Default)]
pub struct Explain(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    identity: OnceLock<Identity>,
    sources: OnceLock<Sources>,
    brakes: Brakes,
    lately: Lately,
}

/// What brakes hold back. Cloning gives another handle.
#[derive(Clone, Debug, Default)]
pub struct Brakes(Arc<Mutex<BTreeMap<&'static str, Vec<String>>>>);

impl Brakes {
    /// What this brake holds, in the words of its Events. Nothing: it holds nothing any more.
    pub fn holds(&self, brake: &'static str, words: Vec<String>) {
        if words.is_empty() {
            self.all().remove(brake);
        } else {
            self.all().insert(brake, words);
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, Vec<String>>> {
        // Every operation on it is a single one: it is consistent whatever happened.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no explanation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unexplained {
    /// The key is no name of an object of ours.
    #[error("{0}")]
    Form(&'static str),
    /// The controller does not run yet.
    #[error("the controller has not started yet")]
    NotStarted,
    /// A defect of the controller.
    #[error("this is a bug, please report it with the log of the controller")]
    Unknown,
}

impl Explain {
    /// Where all that is told of its objects comes from. The first word counts.
    pub fn by(&self, sources: Sources) {
        let first = self.0.sources.set(sources).is_ok();
        debug_assert!(first, "a controller has one kind of objects");
    }

    /// What its brakes hold back.
    #[must_use]
    pub fn brakes(&self) -> Brakes {
        self.0.brakes.clone()
    }

    pub(crate) fn is_of(&self, identity: Identity) {
        // Told once, by the process.
        let _told = self.0.identity.set(identity);
    }

    /// How it goes.
    ///
    /// # Errors
    /// The controller does not run yet.
    pub fn status(&self) -> Result<ControllerStatus, Unexplained> {
        let Identity { controller, adapter, shards, dry_run, .. } = self.identity()?;
        let sources = self.sources()?;
        let load = sources.places.load();
        let held = (0..shards.count()).filter(|shard| shards.since(*shard).is_some());
        let held: Vec<u32> = held.map(number).collect();
        let (refused, moved) = (adapter.standing().readiness().err(), adapter.scope().readiness().err());
        let unheard = || adapter.silence().or_else(|| adapter.away());
        let away = Some((sources.link)()).filter(|link| matches!(link, Link::Down { .. }));
        let away = away.map(|link| format!("the cloud adapter is {link}"));
        let mut held_back: Vec<String> = moved.into_iter().collect();
        if !held.is_empty() {
            held_back.extend(self.0.brakes.all().values().flatten().cloned());
        }
        let mut orphans = sources.look.orphans();
        orphans.retain(|orphan| shards.has(&orphan.uid));
        // Whoever waits for the end of what is released must not lose it behind others.
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
            listed: Some(sources.look.listed()),
            adapter: AdapterLink { replica: adapter.replica(), trouble: away.or(refused).or_else(unheard) },
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

    /// One object.
    ///
    /// # Errors
    /// The key is none.
    pub fn one(&self, key: &str) -> Result<Explanation, Unexplained> {
        let sources = self.sources()?;
        let name = sources.kind.name(key).ok_or(Unexplained::Form(sources.kind.form()))?;
        let uid = sources.look.uid(&name);
        let uid = uid.or_else(|| sources.ledgers.iter().find_map(|ledger| ledger.uid(&name)));
        match uid {
            Some(uid) => self.explain(&Object { name, uid }),
            None => self.unknown(&name),
        }
    }

    /// All that are not as wanted, the oldest first, and no more than fit on a page.
    ///
    /// # Errors
    /// The controller does not run yet.
    pub fn all(&self) -> Result<Explanations, Unexplained> {
        let unsettled = self.unsettled()?;
        let more = unsettled.len().saturating_sub(OBJECTS);
        let objects: Result<Vec<Explanation>, _> =
            unsettled.iter().take(OBJECTS).map(|(_, object)| self.explain(object)).collect();
        Ok(Explanations { objects: objects?, more: many(more) })
    }

    /// The oldest of these, and why they wait. Of those that only the cloud still has, [`ControllerStatus::orphans`] tells.
    fn first(&self, unsettled: &BTreeSet<(Timestamp, Object)>) -> Result<Vec<Waiting>, Unexplained> {
        let sources = self.sources()?;
        let known = unsettled.iter().filter(|(_, object)| sources.knows(object)).take(NAMED);
        let waiting = |(since, object): &(Timestamp, Object)| {
            let Explanation { kind, key, waits_for, reason, .. } = self.explain(object)?;
            Ok(Waiting { kind, key, since: Some(seconds(*since)), waits_for, reason })
        };
        known.map(waiting).collect()
    }

    /// How many objects of the API server are not as wanted, and for how long the first of them. Who changes nothing has none.
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

    /// In our shards, since when.
    fn unsettled(&self) -> Result<BTreeSet<(Timestamp, Object)>, Unexplained> {
        let (Identity { shards, clock, .. }, sources) = (self.identity()?, self.sources()?);
        let mut all: BTreeMap<Object, Timestamp> = BTreeMap::new();
        let noted = sources.ledgers.iter().flat_map(Ledger::all);
        let waiting = sources.places.changed().into_iter().filter_map(|((name, uid), since)| {
            // What is gone already, and waits to be forgotten, is nobody's concern.
            let known = sources.look.uid(&name)?;
            let uid = uid.unwrap_or_else(|| known.clone());
            (known == uid).then(|| (Object { name, uid }, before(clock, since)))
        });
        for (object, since) in noted.chain(waiting).filter(|(object, _)| shards.has(&object.uid)) {
            let first = all.entry(object).or_insert(since);
            *first = since.min(*first);
        }
        Ok(all.into_iter().map(|(object, since)| (since, object)).collect())
    }

    fn explain(&self, object: &Object) -> Result<Explanation, Unexplained> {
        let (Identity { shards, clock, adapter, .. }, sources) = (self.identity()?, self.sources()?);
        let held = shards.has(&object.uid);
        let known = sources.knows(object);
        let Seen { wanted, cloud, unseen, apart } = sources.look.look(object);
        let blank = Explanation { known, held, wanted, cloud, ..self.unknown(&object.name)? };
        let blank = Explanation { shard: number(shards.of(&object.uid)), ..blank };
        if !held {
            return Ok(blank);
        }
        let (place, now) = (sources.places.place(object), Instant::now());
        let mut entries = sources.ledgers.iter().filter_map(|ledger| ledger.get(object)).peekable();
        if entries.peek().is_none() {
            let (state, since) = match place {
                Place::Runs => (State::Working, None),
                Place::Waits { since, changed: true } => (State::NotLookedAt, Some(before(clock, since))),
                _ if unseen => (State::NotLookedAt, None),
                _ if apart => (State::NotOurs, None),
                Place::Nowhere | Place::Later { .. } | Place::Waits { .. } => (State::Settled, None),
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
        let due = match place {
            Place::Later { due } => Some(due),
            Place::Nowhere | Place::Waits { .. } | Place::Runs => None,
        };
        let next = next.or(due).filter(|_| place != Place::Runs);
        all.since = since.map(seconds);
        all.next_try = next.map(|due| seconds(after(clock, due.saturating_duration_since(now))));
        // Whose call it is nobody knows here: what waits for something else goes on to say so.
        let silence = adapter.silence().filter(|_| all.waits_for.is_none());
        if all.waits_for.is_some() && place != Place::Runs || silence.is_some() {
            all.state = State::Waiting;
        }
        if silence.is_some() {
            (all.waits_for, all.reason) = (silence, None);
        }
        Ok(all)
    }

    /// Nothing is known of it.
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

/// The time of day at an earlier moment.
fn before(clock: &Clock, at: Instant) -> Timestamp {
    let now = clock.now();
    SignedDuration::try_from(at.elapsed()).ok().and_then(|ago| now.checked_sub(ago).ok()).unwrap_or(now)
}

/// The time of day after so long.
fn after(clock: &Clock, delay: Duration) -> Timestamp {
    let now = clock.now();
    SignedDuration::try_from(delay).ok().and_then(|delay| now.checked_add(delay).ok()).unwrap_or(now)
}

/// As Kubernetes writes times: to the second.
fn seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn number(shard: usize) -> u32 {
    u32::try_from(shard).unwrap_or(u32::MAX)
}

fn many(objects: usize) -> u64 {
    u64::try_from(objects).unwrap_or(u64::MAX)
}
