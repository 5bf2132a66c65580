//! What is not as wanted, object by object, and why: written by the reconciler where it decides, read by whoever asks.
//!
//! Only what is not settled is kept, and every text is bounded: a cluster in which all is well costs nothing here.

use std::{
    collections::BTreeMap,
    fmt::Display,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use tokio::time::Instant;

use crate::{Clock, events::cut, mirror::ObjectName};

/// Lines of a plan that are kept.
const LINES: usize = 20;
/// What an object waits for whose controller changes nothing.
const DRY_RUN: &str = "Dry run: nothing is changed";

/// An object: one that was made anew under its name is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its name.
    pub name: ObjectName,
    /// Its UID.
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
    /// In the words of the Event.
    pub text: String,
    /// The adapter's typed reason, if it was one.
    pub reason: Option<&'static str>,
    /// Tells whether it is the same trouble as before, though its words may vary.
    pub topic: String,
    /// An Event with exactly these words is written now. While the trouble lasts and none is, the words of the last one stand.
    pub told: bool,
}

impl Waits {
    /// For a controller that changes anything.
    #[must_use]
    pub fn dry_run() -> Self {
        Self { text: DRY_RUN.to_owned(), reason: None, topic: DRY_RUN.to_owned(), told: false }
    }
}

/// What is found about an object by who looks at all of them in one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// A line an action.
    pub plan: Vec<String>,
    /// Why nothing comes of it.
    pub waits: Option<Waits>,
    /// If nothing is said of that: what was in the way before still is.
    pub stays: bool,
    /// When it is tried again, if that is not when the next pass comes.
    pub next: Option<Instant>,
    /// How often it was tried.
    pub attempts: u32,
}

/// What is known of an object that is not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) since: Timestamp,
    pub(super) plan: Vec<String>,
    pub(super) waits: Option<Waits>,
    pub(super) next: Option<Instant>,
    pub(super) attempts: u32,
    /// What this turn has said so far.
    said: Said,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    /// Nothing.
    #[default]
    Nothing,
    /// That there is something to do.
    Plan,
    /// What it waits for.
    Waits,
}

/// Keeps what is not settled. Cloning gives another handle.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    /// Every operation on it is a single one: it is consistent whatever happened.
    entries: Mutex<BTreeMap<Object, Entry>>,
    /// By name, the UIDs of the objects that were looked at.
    seen: Mutex<BTreeMap<ObjectName, String>>,
}

impl Ledger {
    /// An empty one.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(Inner { clock, entries: Mutex::default(), seen: Mutex::default() }))
    }

    /// A turn at an object begins.
    pub fn begins(&self, object: &Object) {
        if let Some(entry) = self.entries().get_mut(object) {
            entry.said = Said::Nothing;
        }
    }

    /// This is to be done, a line an action. Nothing: the last plan stands.
    pub fn plans(&self, object: &Object, plan: &impl Display) {
        let plan = lines(plan);
        if !plan.is_empty() {
            self.note(object, Said::Plan, |entry| entry.plan = plan);
        }
    }

    /// It waits for this.
    pub fn waits(&self, object: &Object, waits: &Waits) {
        self.note(object, Said::Waits, |entry| entry.wait(waits));
    }

    /// It waits for a controller that changes anything.
    pub fn rests(&self, object: &Object) {
        self.waits(object, &Waits::dry_run());
    }

    /// It is as it was at the last turn, if something was said of it then.
    pub fn stays(&self, object: &Object) {
        if let Some(entry) = self.entries().get_mut(object) {
            entry.said = Said::Waits;
        }
    }

    /// It is as it should be.
    pub fn settles(&self, object: &Object) {
        self.entries().remove(object);
    }

    /// It was looked at, at least once.
    pub fn looked_at(&self, object: &Object) {
        self.seen().insert(object.name.clone(), object.uid.clone());
    }

    /// These were looked at, and nothing else is there.
    pub fn looked_at_all(&self, objects: impl IntoIterator<Item = Object>) {
        *self.seen() = objects.into_iter().map(|Object { name, uid }| (name, uid)).collect();
    }

    /// It is gone, whatever else is known of it.
    pub fn overlooks(&self, object: &Object) {
        let mut seen = self.seen();
        if seen.get(&object.name) == Some(&object.uid) {
            seen.remove(&object.name);
        }
    }

    /// The turn ends. An object of which nothing was said in it is settled; one that waits for nothing is worked on.
    pub fn ends(&self, object: &Object) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(object) else { return };
        entry.attempts = entry.attempts.saturating_add(1);
        match entry.said {
            Said::Nothing => drop(entries.remove(object)),
            Said::Plan => entry.waits = None,
            Said::Waits => (),
        }
    }

    /// There is no object of this name.
    pub fn gone(&self, name: &ObjectName) {
        self.seen().remove(name);
        let mut entries = self.entries();
        let first = Object { name: name.clone(), uid: String::new() };
        let named: Vec<Object> =
            entries.range(first..).map(|(it, _)| it).take_while(|it| it.name == *name).cloned().collect();
        for object in named {
            entries.remove(&object);
        }
    }

    /// Nobody else has its name.
    pub fn only(&self, object: &Object) {
        let mut entries = self.entries();
        let first = Object { name: object.name.clone(), uid: String::new() };
        let others = entries.range(first..).map(|(it, _)| it).take_while(|it| it.name == object.name);
        let others: Vec<Object> = others.filter(|it| *it != object).cloned().collect();
        for other in others {
            entries.remove(&other);
        }
    }

    /// What is known of objects of which that is true is worth nothing any more.
    pub fn forget(&self, of: impl Fn(&str) -> bool) {
        self.seen().retain(|_, uid| !of(uid));
        self.entries().retain(|object, _| !of(&object.uid));
    }

    /// All that a pass has found. Of the objects that it looked `at`, by their UIDs, whatever it did not name is settled.
    pub fn replace(&self, found: BTreeMap<Object, Finding>, at: impl Fn(&str) -> bool) {
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

    /// Since when an object is not settled, and what it waits for. `None`: it is.
    #[must_use]
    pub fn unsettled(&self, object: &Object) -> Option<(Timestamp, Option<String>)> {
        let entry = self.get(object)?;
        Some((entry.since, entry.waits.map(|waits| waits.text)))
    }

    /// What an object waits for, unless that is a controller that changes anything.
    #[must_use]
    pub fn trouble(&self, object: &Object) -> Option<Waits> {
        self.get(object)?.waits.filter(|waits| waits.topic != DRY_RUN)
    }

    /// What is to be done about an object. A line an action.
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

    /// The UID of the first object of this name.
    pub(super) fn uid(&self, name: &ObjectName) -> Option<String> {
        let first = Object { name: name.clone(), uid: String::new() };
        let entries = self.entries();
        let (object, _) = entries.range(first..).next()?;
        (object.name == *name).then(|| object.uid.clone())
    }

    /// Since when each object is not settled.
    pub(super) fn all(&self) -> Vec<(Object, Timestamp)> {
        self.entries().iter().map(|(object, entry)| (object.clone(), entry.since)).collect()
    }

    fn note(&self, object: &Object, said: Said, change: impl FnOnce(&mut Entry)) {
        let now = self.0.clock.now();
        let mut entries = self.entries();
        let entry = entries.entry(object.clone()).or_insert_with(|| Entry::new(now));
        entry.said = entry.said.max(said);
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
        Self { since, plan: Vec::new(), waits: None, next: None, attempts: 0, said: Said::Nothing }
    }

    /// The words of the Event stand as long as it is the only one of this trouble.
    fn wait(&mut self, waits: &Waits) {
        let same = |before: &&mut Waits| before.told && !waits.told && before.topic == waits.topic;
        match self.waits.as_mut().filter(same) {
            Some(before) => before.reason = waits.reason,
            None => {
                let (text, topic) = (cut(&waits.text), cut(&waits.topic));
                self.waits = Some(Waits { text, topic, reason: waits.reason, told: waits.told });
            }
        }
    }
}

/// A plan's lines, without those that are too many.
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

    fn waits(text: &str, told: bool) -> Waits {
        Waits { text: text.to_owned(), reason: None, topic: "quota".to_owned(), told }
    }

    fn text(ledger: &Ledger, object: &Object) -> Option<String> {
        ledger.get(object)?.waits.map(|waits| waits.text)
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_not_settled_is_kept_since_it_is_so() {
        let (ledger, object) = ledger();
        ledger.begins(&object);
        ledger.ends(&object);
        assert_eq!(ledger.get(&object), None, "nothing was to be done");
        for attempt in 1..=3 {
            ledger.begins(&object);
            ledger.plans(&object, &"ensure\n");
            ledger.waits(&object, &waits("no quota", true));
            ledger.ends(&object);
            let entry = ledger.get(&object).expect("it waits");
            assert_eq!(
                (entry.since, entry.attempts, entry.plan),
                (BEGIN, attempt, vec!["ensure".to_owned()])
            );
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        ledger.begins(&object);
        ledger.stays(&object);
        ledger.ends(&object);
        assert_eq!(text(&ledger, &object).as_deref(), Some("no quota"), "it is as it was");
        ledger.begins(&object);
        ledger.plans(&object, &"ensure\n");
        ledger.ends(&object);
        assert_eq!(text(&ledger, &object), None, "nothing is in the way any more, and it is not done");
        ledger.begins(&object);
        ledger.plans(&object, &"write status\n");
        ledger.settles(&object);
        ledger.ends(&object);
        assert_eq!(ledger.all(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_says_nothing_ends_a_wait() {
        let (ledger, object) = ledger();
        ledger.waits(&object, &waits("no quota", true));
        ledger.ends(&object);
        ledger.begins(&object);
        ledger.ends(&object);
        assert_eq!(ledger.all(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_words_are_those_of_the_event_as_long_as_the_trouble_lasts() {
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
            ledger.begins(&object);
            ledger.waits(&object, &waits);
            ledger.ends(&object);
            assert_eq!(text(&ledger, &object).as_deref(), Some(want));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_pass_does_not_name_is_settled_and_what_it_names_again_keeps_its_time() {
        let (ledger, object) = ledger();
        let finding = |next| Finding { plan: vec!["lay".to_owned()], next, ..Finding::default() };
        let other = Object::node("b", "uid-b");
        ledger.replace([(object.clone(), finding(None)), (other.clone(), finding(None))].into(), |_| true);
        tokio::time::advance(Duration::from_secs(10)).await;
        ledger.waits(&object, &waits("no quota", true));
        let stays = Finding { stays: true, ..finding(None) };
        ledger.replace([(object.clone(), stays)].into(), |uid| uid == "uid-a");
        assert_eq!(text(&ledger, &object).as_deref(), Some("no quota"), "it is still in the way");
        let soon = Some(Instant::now());
        ledger.replace([(object.clone(), finding(soon))].into(), |_| true);
        assert_eq!(ledger.all(), [(object.clone(), BEGIN)]);
        let entry = ledger.get(&object).expect("there");
        assert_eq!((entry.next, entry.waits), (soon, None));
        assert_eq!((ledger.uid(&object.name), ledger.uid(&other.name)), (Some("uid-a".to_owned()), None));
        ledger.replace(BTreeMap::new(), |uid| uid != "uid-a");
        assert_eq!(ledger.all(), [(object, BEGIN)], "it was not looked at");
    }

    #[tokio::test(start_paused = true)]
    async fn objects_go_by_name_and_by_shard() {
        let (ledger, object) = ledger();
        let anew = Object::node("a", "uid-2");
        let other = Object::node("ab", "uid-3");
        let fill = || [&object, &anew, &other].into_iter().for_each(|it| ledger.plans(it, &"lay"));
        fill();
        ledger.gone(&object.name);
        assert_eq!(ledger.all(), [(other.clone(), BEGIN)]);
        fill();
        ledger.forget(|uid| uid == "uid-2");
        assert_eq!(ledger.all(), [(object.clone(), BEGIN), (other.clone(), BEGIN)]);
    }

    #[tokio::test(start_paused = true)]
    async fn texts_are_bounded() {
        let (ledger, object) = ledger();
        ledger.plans(&object, &"x".repeat(100_000));
        ledger.waits(&object, &waits(&"x".repeat(100_000), true));
        let entry = ledger.get(&object).expect("there");
        assert!(entry.plan.iter().chain(text(&ledger, &object).iter()).all(|text| text.len() <= 1024));
        ledger.plans(&object, &"x\n".repeat(1000));
        let entry = ledger.get(&object).expect("there");
        assert_eq!((entry.plan.len(), entry.plan.last().cloned()), (21, Some("980 more".to_owned())));
    }
}
