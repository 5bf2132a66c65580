//! Keeps the objects that are not in sync, and why. The reconciler writes the entries where it decides, and the status pages read them.
//!
//! Only objects that are not in sync are kept, so a cluster in which all objects are in sync uses no memory here. Every text is bounded.

use std::{
    collections::BTreeMap,
    fmt::Display,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use tokio::time::Instant;

use crate::{Clock, mirror::ObjectName, text::cut};

/// Maximum number of kept plan lines.
const LINES: usize = 20;
const DRY_RUN: &str = "Dry run: nothing is changed";

/// An object. A recreated object with the same name is a different one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// The name of the object.
    pub name: ObjectName,
    /// The UID of the object.
    pub uid: String,
}

impl Object {
    /// A node.
    #[must_use]
    pub fn node(name: &str, uid: &str) -> Self {
        Self { name: ObjectName::cluster(name), uid: uid.to_owned() }
    }
}

/// What an object waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The text, as in the Event.
    pub text: String,
    /// The adapter's typed reason, if the adapter returned an error.
    pub reason: Option<&'static str>,
    /// A text that identifies the problem across attempts, even if `text` varies.
    pub topic: String,
    /// Whether an Event with exactly this text is being written. If the problem lasts without a new Event, the text of the last Event is
    /// kept.
    pub reported: bool,
}

impl Waits {
    /// Returns the value for an object that waits until a controller runs without `--dry-run`.
    #[must_use]
    pub fn dry_run() -> Self {
        Self { text: DRY_RUN.to_owned(), reason: None, topic: DRY_RUN.to_owned(), reported: false }
    }
}

/// What a pass over all objects found out about a single object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// One line per action.
    pub plan: Vec<String>,
    /// Why the actions are not executed.
    pub waits: Option<Waits>,
    /// Used if `waits` is `None`: whether the earlier cause still applies.
    pub stays: bool,
    /// When the next attempt is made, if not in the next pass.
    pub next: Option<Instant>,
    /// Number of attempts so far.
    pub attempts: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) since: Timestamp,
    pub(super) plan: Vec<String>,
    pub(super) waits: Option<Waits>,
    pub(super) next: Option<Instant>,
    pub(super) attempts: u32,
    /// What the reconcile in progress has recorded.
    recorded: Recorded,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Recorded {
    #[default]
    Nothing,
    /// The reconcile has recorded that an action is pending.
    Plan,
    /// The reconcile has recorded what the object waits for.
    Waits,
}

/// Keeps the objects that are not in sync. Clones share the state.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    /// The map is consistent even after a panic, since every operation on the map is a single step.
    entries: Mutex<BTreeMap<Object, Entry>>,
    /// The UIDs of the objects that were reconciled, by name.
    seen: Mutex<BTreeMap<ObjectName, String>>,
}

impl Ledger {
    /// Creates an empty ledger.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(Inner { clock, entries: Mutex::default(), seen: Mutex::default() }))
    }

    /// Records that a reconcile of an object begins.
    pub fn begin_pass(&self, object: &Object) {
        if let Some(entry) = self.entries().get_mut(object) {
            entry.recorded = Recorded::Nothing;
        }
    }

    /// Records the plan, one line per action. An empty plan keeps the last recorded plan.
    pub fn record_plan(&self, object: &Object, plan: &impl Display) {
        let plan = lines(plan);
        if !plan.is_empty() {
            self.note(object, Recorded::Plan, |entry| entry.plan = plan);
        }
    }

    /// Removes an action from the recorded plan, because it is done. `action` has the text that it has in the plan.
    pub fn record_done(&self, object: &Object, action: &impl Display) {
        let done = lines(action);
        if let Some(entry) = self.entries().get_mut(object)
            && let Some(at) = entry.plan.iter().position(|line| done.first() == Some(line))
        {
            entry.plan.remove(at);
        }
    }

    /// Records what the object waits for.
    pub fn record_wait(&self, object: &Object, waits: &Waits) {
        self.note(object, Recorded::Waits, |entry| entry.wait(waits));
    }

    /// Records that the object waits until a controller runs without `--dry-run`.
    pub fn record_dry_run(&self, object: &Object) {
        self.record_wait(object, &Waits::dry_run());
    }

    /// Keeps what the previous reconcile recorded, if it recorded anything.
    pub fn keep_last_wait(&self, object: &Object) {
        if let Some(entry) = self.entries().get_mut(object) {
            entry.recorded = Recorded::Waits;
        }
    }

    /// Records that the object is in sync.
    pub fn mark_settled(&self, object: &Object) {
        self.entries().remove(object);
    }

    /// Records that the object was reconciled at least once.
    pub fn mark_seen(&self, object: &Object) {
        self.seen().insert(object.name.clone(), object.uid.clone());
    }

    /// Records that these objects were reconciled and that no other objects exist.
    pub fn replace_seen(&self, objects: impl IntoIterator<Item = Object>) {
        *self.seen() = objects.into_iter().map(|Object { name, uid }| (name, uid)).collect();
    }

    /// Records that the object is gone, and drops its entry.
    pub fn forget_seen(&self, object: &Object) {
        let mut seen = self.seen();
        if seen.get(&object.name) == Some(&object.uid) {
            seen.remove(&object.name);
        }
    }

    /// Records that the reconcile of an object ends. If the reconcile recorded nothing, the object is in sync. If the reconcile recorded
    /// only a plan, the object waits for nothing and is being processed.
    pub fn end_pass(&self, object: &Object) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(object) else { return };
        entry.attempts = entry.attempts.saturating_add(1);
        match entry.recorded {
            Recorded::Nothing => drop(entries.remove(object)),
            Recorded::Plan => entry.waits = None,
            Recorded::Waits => (),
        }
    }

    /// Records that the object with this name was deleted.
    pub fn forget_name(&self, name: &ObjectName) {
        self.seen().remove(name);
        let mut entries = self.entries();
        let first = Object { name: name.clone(), uid: String::new() };
        let named: Vec<Object> =
            entries.range(first..).map(|(it, _)| it).take_while(|it| it.name == *name).cloned().collect();
        for object in named {
            entries.remove(&object);
        }
    }

    /// Records that no other object has the name of this object, and drops the entries of other objects with this name.
    pub fn forget_others_of_name(&self, object: &Object) {
        let mut entries = self.entries();
        let first = Object { name: object.name.clone(), uid: String::new() };
        let others = entries.range(first..).map(|(it, _)| it).take_while(|it| it.name == object.name);
        let others: Vec<Object> = others.filter(|it| *it != object).cloned().collect();
        for other in others {
            entries.remove(&other);
        }
    }

    /// Drops the objects whose UIDs satisfy `of`, because their entries are no longer valid.
    pub fn forget_where(&self, of: impl Fn(&str) -> bool) {
        self.seen().retain(|_, uid| !of(uid));
        self.entries().retain(|object, _| !of(&object.uid));
    }

    /// Records all findings of a pass. `at` selects the objects that the pass covers, by UID. A covered object without a finding is in
    /// sync.
    pub fn replace_findings(&self, found: BTreeMap<Object, Finding>, at: impl Fn(&str) -> bool) {
        let now = self.0.clock.now();
        let mut entries = self.entries();
        let (mut before, others) = mem::take(&mut *entries).into_iter().partition(|(it, _)| at(&it.uid));
        *entries = others;
        for (object, Finding { plan, waits, stays, next, attempts }) in found {
            let mut entry = before.remove(&object).unwrap_or_else(|| Entry::new(now));
            match waits {
                Some(waits) => entry.wait(&waits),
                None if stays => (),
                None => entry.waits = None,
            }
            let entry = Entry { plan, next, attempts, ..entry };
            entries.insert(object, entry);
        }
    }

    /// Returns since when an object is not in sync, and what it waits for. `None`: the object is in sync.
    #[must_use]
    pub fn waiting_since(&self, object: &Object) -> Option<(Timestamp, Option<String>)> {
        let entry = self.get(object)?;
        Some((entry.since, entry.waits.map(|waits| waits.text)))
    }

    /// Returns what an object waits for. `None`: the object waits for nothing, or only until a controller runs without `--dry-run`.
    #[must_use]
    pub fn problem(&self, object: &Object) -> Option<Waits> {
        self.get(object)?.waits.filter(|waits| waits.topic != DRY_RUN)
    }

    /// Returns the pending actions for an object, one line each.
    #[must_use]
    pub fn plan(&self, object: &Object) -> Vec<String> {
        self.get(object).map(|entry| entry.plan).unwrap_or_default()
    }

    pub(super) fn has_seen(&self, object: &Object) -> bool {
        self.seen().get(&object.name) == Some(&object.uid)
    }

    pub(super) fn get(&self, object: &Object) -> Option<Entry> {
        self.entries().get(object).cloned()
    }

    /// Returns the UID of the first object with this name.
    pub(super) fn uid(&self, name: &ObjectName) -> Option<String> {
        let first = Object { name: name.clone(), uid: String::new() };
        let entries = self.entries();
        let (object, _) = entries.range(first..).next()?;
        (object.name == *name).then(|| object.uid.clone())
    }

    /// Returns since when each object is not in sync.
    pub(super) fn all(&self) -> Vec<(Object, Timestamp)> {
        self.entries().iter().map(|(object, entry)| (object.clone(), entry.since)).collect()
    }

    fn note(&self, object: &Object, said: Recorded, change: impl FnOnce(&mut Entry)) {
        let now = self.0.clock.now();
        let mut entries = self.entries();
        let entry = entries.entry(object.clone()).or_insert_with(|| Entry::new(now));
        entry.recorded = entry.recorded.max(said);
        change(entry);
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Object, Entry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<ObjectName, String>> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(since: Timestamp) -> Self {
        Self { since, plan: Vec::new(), waits: None, next: None, attempts: 0, recorded: Recorded::Nothing }
    }

    /// Keeps the text of an Event as long as no other Event reports the same problem.
    fn wait(&mut self, waits: &Waits) {
        let same = |before: &&mut Waits| before.reported && !waits.reported && before.topic == waits.topic;
        match self.waits.as_mut().filter(same) {
            Some(before) => before.reason = waits.reason,
            None => {
                let (text, topic) = (cut(&waits.text), cut(&waits.topic));
                self.waits = Some(Waits { text, topic, reason: waits.reason, reported: waits.reported });
            }
        }
    }
}

/// Returns a plan's lines up to the limit, then the number of omitted lines.
fn lines(plan: &impl Display) -> Vec<String> {
    let text = plan.to_string();
    let mut all = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let mut lines: Vec<String> = all.by_ref().take(LINES).map(cut).collect();
    let more = all.count();
    if more > 0 {
        lines.push(format!("{more} more"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::BEGIN;

    fn ledger() -> (Ledger, Object) {
        (Ledger::new(Clock::starting_at(BEGIN)), Object::node("a", "uid-a"))
    }

    fn waits(text: &str, reported: bool) -> Waits {
        Waits { text: text.to_owned(), reason: None, topic: "quota".to_owned(), reported }
    }

    fn text(ledger: &Ledger, object: &Object) -> Option<String> {
        ledger.get(object)?.waits.map(|waits| waits.text)
    }

    #[tokio::test(start_paused = true)]
    async fn only_unsettled_objects_are_kept_with_their_begin() {
        let (ledger, object) = ledger();
        ledger.begin_pass(&object);
        ledger.end_pass(&object);
        assert_eq!(ledger.get(&object), None, "nothing was to be done");
        for attempt in 1..=3 {
            ledger.begin_pass(&object);
            ledger.record_plan(&object, &"ensure\n");
            ledger.record_wait(&object, &waits("no quota", true));
            ledger.end_pass(&object);
            let entry = ledger.get(&object).expect("it waits");
            assert_eq!(
                (entry.since, entry.attempts, entry.plan),
                (BEGIN, attempt, vec!["ensure".to_owned()])
            );
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        ledger.begin_pass(&object);
        ledger.keep_last_wait(&object);
        ledger.end_pass(&object);
        assert_eq!(text(&ledger, &object).as_deref(), Some("no quota"), "the state is unchanged");
        ledger.begin_pass(&object);
        ledger.record_plan(&object, &"ensure\n");
        ledger.end_pass(&object);
        assert_eq!(text(&ledger, &object), None, "the object waits for nothing and is not settled");
        ledger.begin_pass(&object);
        ledger.record_plan(&object, &"write status\n");
        ledger.mark_settled(&object);
        ledger.end_pass(&object);
        assert_eq!(ledger.all(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_finished_action_leaves_the_plan() {
        let (ledger, object) = ledger();
        ledger.record_done(&object, &"ensure");
        assert_eq!(ledger.all(), [], "an object without an entry stays without an entry");
        ledger.record_plan(&object, &"add finalizer\nensure\nensure\n");
        for (done, left) in [
            ("add finalizer", &["ensure", "ensure"][..]),
            ("delete", &["ensure", "ensure"]),
            ("ensure", &["ensure"]),
            ("ensure", &[]),
        ] {
            ledger.record_done(&object, &done);
            assert_eq!(ledger.plan(&object), left, "{done}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_records_nothing_ends_a_wait() {
        let (ledger, object) = ledger();
        ledger.record_wait(&object, &waits("no quota", true));
        ledger.end_pass(&object);
        ledger.begin_pass(&object);
        ledger.end_pass(&object);
        assert_eq!(ledger.all(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_text_of_the_event_is_kept_while_the_problem_lasts() {
        let (ledger, object) = ledger();
        let said = [
            (waits("away for 1 s", false), "away for 1 s"),
            (waits("away for 2 s", false), "away for 2 s"),
            (waits("away for 10 s", true), "away for 10 s"),
            (waits("away for 11 s", false), "away for 10 s"),
            (waits("away for 99 s", true), "away for 99 s"),
            (Waits { topic: "other".to_owned(), ..waits("a mistake", false) }, "a mistake"),
        ];
        for (waits, want) in said {
            ledger.begin_pass(&object);
            ledger.record_wait(&object, &waits);
            ledger.end_pass(&object);
            assert_eq!(text(&ledger, &object).as_deref(), Some(want));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_settles_unnamed_objects_and_keeps_begin_times() {
        let (ledger, object) = ledger();
        let finding = |next| Finding { plan: vec!["lay".to_owned()], next, ..Finding::default() };
        let other = Object::node("b", "uid-b");
        ledger.replace_findings(
            [(object.clone(), finding(None)), (other.clone(), finding(None))].into(),
            |_| true,
        );
        tokio::time::advance(Duration::from_secs(10)).await;
        ledger.record_wait(&object, &waits("no quota", true));
        let stays = Finding { stays: true, ..finding(None) };
        ledger.replace_findings([(object.clone(), stays)].into(), |uid| uid == "uid-a");
        assert_eq!(text(&ledger, &object).as_deref(), Some("no quota"), "the cause still applies");
        let soon = Some(Instant::now());
        ledger.replace_findings([(object.clone(), finding(soon))].into(), |_| true);
        assert_eq!(ledger.all(), [(object.clone(), BEGIN)]);
        let entry = ledger.get(&object).expect("there");
        assert_eq!((entry.next, entry.waits), (soon, None));
        assert_eq!((ledger.uid(&object.name), ledger.uid(&other.name)), (Some("uid-a".to_owned()), None));
        ledger.replace_findings(BTreeMap::new(), |uid| uid != "uid-a");
        assert_eq!(ledger.all(), [(object, BEGIN)], "the pass did not cover it");
    }

    #[tokio::test(start_paused = true)]
    async fn objects_go_by_name_and_by_shard() {
        let (ledger, object) = ledger();
        let recreated = Object::node("a", "uid-2");
        let other = Object::node("ab", "uid-3");
        let fill =
            || [&object, &recreated, &other].into_iter().for_each(|it| ledger.record_plan(it, &"create"));
        fill();
        ledger.forget_name(&object.name);
        assert_eq!(ledger.all(), [(other.clone(), BEGIN)]);
        fill();
        ledger.forget_where(|uid| uid == "uid-2");
        assert_eq!(ledger.all(), [(object.clone(), BEGIN), (other.clone(), BEGIN)]);
    }

    #[tokio::test(start_paused = true)]
    async fn texts_are_bounded() {
        let (ledger, object) = ledger();
        ledger.record_plan(&object, &"x".repeat(100_000));
        ledger.record_wait(&object, &waits(&"x".repeat(100_000), true));
        let entry = ledger.get(&object).expect("there");
        assert!(entry.plan.iter().chain(text(&ledger, &object).iter()).all(|text| text.len() <= 4096));
        ledger.record_plan(&object, &"x\n".repeat(1000));
        let entry = ledger.get(&object).expect("there");
        assert_eq!((entry.plan.len(), entry.plan.last().cloned()), (21, Some("980 more".to_owned())));
    }
}
