//! Defines the Events about the shutdown and the deletion of nodes.
//!
//! Every few seconds, the controller checks all nodes and finds the same reasons why a node is not deleted. An Event is emitted when a
//! condition begins, and re-emitted each hour while it lasts, since Events are kept for an hour. The Events for a node of another cloud are
//! emitted only once.
//!
//! The text of an Event is shortened to its maximum length, but a command in the text is never cut. The status pages show the whole text.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use controller_core::{
    brake::Limits,
    events::{Kind, NOTE_MAX, Notice, Recorder, Repeat, bounded, ended, gist},
    explain::{Finding, Object, Waits},
    kube_api,
    node::{DELETE_DESPITE_BRAKE, SHUTDOWN},
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;

use super::plan::Change;
use crate::{events::about, plan::Node};

const ACTION: &str = "Delete";
/// Interval after which an Event is re-emitted while its condition lasts.
const REMIND: Duration = Duration::from_hours(1);
/// The cloud returned an error. Errors whose texts differ only in words with digits count as one condition.
const FAILED: &str = "CloudProviderFailed";
const TRIPPED: &str = "NodeDeletionBrakeTripped";
/// The node's instance belongs to another cloud, according to its provider ID or to the adapter. These Events are emitted once per process,
/// since the condition lasts as long as the node and may be intended.
const ANOTHER: &str = "InstanceOfAnotherCloud";
const FOREIGN: &str = "InstanceForeign";
/// The plan for a node whose instance is proven to be gone.
pub(crate) const DELETE_GONE_NODE: &str = "delete the node: its instance is gone";
/// Maximum number of nodes that the text about all nodes lists by name.
const NAMED: usize = 10;
/// Minimum length of the text before a command in an Event, in characters.
const FRONT_MIN: usize = 40;

/// The Event before the deletion of a node. The note and the reason are those of the former cloud controller manager.
pub(super) fn deleting(node: &Node) -> Notice {
    let note = format!("Deleting node {} because it does not exist in the cloud provider", node.name);
    Notice { kind: Kind::Normal, reason: "DeletingNode", action: ACTION, note }
}

/// The Event for a node that the API server did not delete. The note and the reason are those of the former cloud controller manager.
pub(super) fn deleting_failed(node: &Node, error: &kube_api::Error) -> Notice {
    let note = format!("Failed deleting node {}: {error}", node.name);
    Notice { kind: Kind::Warning, reason: "DeletingNodeFailed", action: ACTION, note }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Tripped<'a> {
    pub(super) held: &'a [Arc<Node>],
    pub(super) n_nodes: usize,
    /// Maximum number of deletions per window.
    pub(super) allowance: usize,
    pub(super) window: Duration,
}

/// The notices from one check of all nodes, about nodes that are not deleted.
#[derive(Debug, Default)]
pub(super) struct Notices(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    about: ObjectReference,
    notice: Notice,
    /// The text for the status pages.
    whole: String,
}

impl Notices {
    pub(super) fn not_visible(&mut self, node: &Node) {
        let (id, command) = (id(node), delete(node));
        let whole = format!(
            "The node is not ready but is not deleted: the cloud does not list instance {id}, but has \
            not proven that the instance is gone. If you know that the instance is gone, run: {command}"
        );
        let front = format!("The cloud does not list instance {id}, which may still exist.");
        self.warn(node, "InstanceNotVisible", with_command(&front, "If it is gone", &command), whole);
    }

    pub(super) fn foreign(&mut self, node: &Node) {
        let note = format!(
            "The node is not ready but is not deleted: according to the cloud adapter, instance {} \
             belongs to another cloud or region",
            id(node)
        );
        self.warn(node, FOREIGN, bounded(&note, NOTE_MAX), note);
    }

    /// Adds a notice for a node whose provider ID has another scheme than this cloud's provider IDs.
    pub(super) fn of_another_cloud(&mut self, node: &Node, scheme: &str) {
        let (id, command) = (id(node), delete(node));
        let front = format!("Ignoring the node: {id} does not belong to cloud {scheme}://.");
        let note = with_command(&front, "If it is gone", &command);
        self.warn(node, ANOTHER, note.clone(), note);
    }

    pub(super) fn failed(&mut self, node: &Node, error: &str) {
        let whole = format!(
            "The node is not ready but is not deleted: the cloud returned an error for instance \
            {} ({error}). The controller retries with backoff",
            id(node)
        );
        let front = format!("The node is not deleted: the cloud returned an error for its instance: {error}");
        self.warn(node, FAILED, ended(&front, ". The controller retries"), whole);
    }

    pub(super) fn delayed(&mut self, node: &Node, limits: Limits) {
        let (window, command) = (words(limits.window), release(node));
        let whole = format!(
            "Deletion is delayed although instance {} does not exist in the cloud provider. The \
            controller has just started and spreads deletions over {window}. To delete the node \
            anyway: {command}",
            id(node)
        );
        let front = format!("Deletion waits up to {window} after controller start.");
        let note = with_command(&front, "Delete now", &command);
        let notice = Notice { kind: Kind::Normal, reason: "DeletionDelayed", action: ACTION, note };
        self.0.push(Entry { about: about(node), notice, whole });
    }

    pub(super) fn held(&mut self, node: &Node, n_held: usize, allowance: usize, limits: Limits) {
        let (window, command) = (words(limits.window), release(node));
        let whole = format!(
            "Deletion is held although instance {} does not exist in the cloud provider: {n_held} \
            nodes would be deleted; the limit is {allowance} per {window}. Check the cloud adapter's \
            credentials, project and region. To delete the node anyway: {command}",
            id(node)
        );
        let front = format!("Deletion is held: {n_held} instances seem gone (limit {allowance}).");
        self.warn(node, "DeletionHeld", with_command(&front, "If gone", &command), whole);
    }

    /// Adds a notice on the object that represents all nodes.
    pub(super) fn tripped(&mut self, regarding: ObjectReference, tripped: &Tripped<'_>) {
        let Tripped { held, n_nodes, allowance, window } = *tripped;
        let mut names: Vec<&str> = held.iter().map(|node| node.name.as_str()).take(NAMED).collect();
        if held.len() > NAMED {
            names.push("...");
        }
        let (n_held, names, window) = (held.len(), names.join(", "), words(window));
        let command = format!("kubectl annotate node NAME {DELETE_DESPITE_BRAKE}=NODE_UID");
        let whole = format!(
            "All node deletions are held: {n_held} of {n_nodes} nodes do not exist in the cloud provider \
            any more ({names}); the limit is {allowance} per {window}. Check the cloud adapter's \
            credentials, project and region. To delete a node anyway: {command}"
        );
        let front = format!(
            "All node deletions are held: {n_held} of {n_nodes} nodes seem gone; the limit is \
            {allowance} per {window}. Check the adapter's project."
        );
        let note = with_command(&front, "To delete one", &command);
        let notice = Notice { kind: Kind::Warning, reason: TRIPPED, action: ACTION, note };
        // This notice comes first, since there may be more notices than the recorder takes at once.
        self.0.insert(0, Entry { about: regarding, notice, whole });
    }

    pub(super) fn tripped_words(&self) -> Vec<String> {
        let tripped = self.0.iter().filter(|entry| entry.notice.reason == TRIPPED);
        tripped.map(|entry| entry.whole.clone()).collect()
    }

    /// Returns the notices for the status pages, and adds the plans for nodes that may be deleted and nodes that are deleted now.
    pub(super) fn findings<'a>(
        &self,
        candidates: impl Iterator<Item = &'a Node>,
        going: &[Arc<Node>],
    ) -> BTreeMap<Object, Finding> {
        let planned = |node: &Node, plan: &str| {
            let finding = Finding { plan: vec![plan.to_owned()], ..Finding::default() };
            (Object::node(&node.name, &node.uid), finding)
        };
        let mut found: BTreeMap<Object, Finding> = candidates
            .filter(|node| !self.0.iter().any(|entry| entry.about.uid.as_ref() == Some(&node.uid)))
            .map(|node| planned(node, "ask the cloud whether its instance is gone"))
            .collect();
        for Entry { about, notice, whole } in self.0.iter().filter(|entry| entry.notice.reason != TRIPPED) {
            let (name, uid) = (about.name.as_deref(), about.uid.as_deref());
            let object = Object::node(name.unwrap_or_default(), uid.unwrap_or_default());
            let (text, topic) = (whole.clone(), notice.reason.to_owned());
            let waits = Some(Waits { text, topic, reason: None, reported: false });
            found.insert(object, Finding { waits, ..Finding::default() });
        }
        found.extend(going.iter().map(|node| planned(node, DELETE_GONE_NODE)));
        found
    }

    fn warn(&mut self, node: &Node, reason: &'static str, note: String, whole: String) {
        let notice = Notice { kind: Kind::Warning, reason, action: ACTION, note };
        self.0.push(Entry { about: about(node), notice, whole });
    }
}

/// Returns one example of each notice, for the reference page.
#[cfg(test)]
pub(crate) fn examples(node: &Node) -> Vec<Notice> {
    let limits = Limits { share: 30, number: 50, window: Duration::from_mins(10) };
    let (mut all, held) = (Notices::default(), [(); 40].map(|()| Arc::new(node.clone())));
    all.not_visible(node);
    all.foreign(node);
    all.of_another_cloud(node, "openstack");
    all.failed(node, "VENDOR_AUTH: the token was rejected");
    all.delayed(node, limits);
    all.held(node, 40, 30, limits);
    let window = limits.window;
    let tripped = Tripped { held: &held, n_nodes: 100, allowance: 30, window };
    all.tripped(ObjectReference::default(), &tripped);
    let held = kube_api::Error::Held(kube_api::Held::NotLeading);
    let alone = [deleting(node), deleting_failed(node, &held)];
    all.0.into_iter().map(|entry| entry.notice).chain(alone).collect()
}

/// Emits notices when their conditions begin, and again while they last.
#[derive(Debug)]
pub(super) struct Reporter {
    recorder: Recorder,
    conditions: Repeat<Condition>,
}

/// Why a node is not deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Condition {
    name: Option<String>,
    uid: Option<String>,
    reason: &'static str,
    /// The gist of the cloud's error: the text without words that contain a digit, which differ between attempts.
    gist: String,
}

impl Condition {
    fn of(entry: &Entry) -> Self {
        let Entry { about, notice, whole } = entry;
        let gist = if notice.reason == FAILED { gist(whole) } else { String::new() };
        Self { name: about.name.clone(), uid: about.uid.clone(), reason: notice.reason, gist }
    }
}

impl Reporter {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, conditions: Repeat::every(REMIND) }
    }

    pub(super) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Emits the notices that are due, and returns their conditions. If the recorder has no capacity for a notice, the next check of all
    /// nodes retries it.
    pub(super) fn report(&mut self, notices: Notices, now: Instant) -> BTreeSet<Condition> {
        let (mut present, mut reported) = (BTreeSet::new(), BTreeSet::new());
        for entry in notices.0 {
            let condition = Condition::of(&entry);
            let is_due = match condition.reason {
                ANOTHER | FOREIGN => self.conditions.last(&condition).is_none(),
                _ => self.conditions.is_due(&condition, now),
            };
            if is_due && self.recorder.try_emit(&entry.about, entry.notice) {
                self.conditions.reported(condition.clone(), now);
                reported.insert(condition.clone());
            }
            present.insert(condition);
        }
        let is_error = |condition: &Condition| condition.reason == FAILED;
        self.conditions.end(now, |condition| present.contains(condition), is_error);
        reported
    }
}

/// Marks the findings whose Event was just emitted. The status page shows their current text until the next Event.
pub(super) fn mark_reported(found: &mut BTreeMap<Object, Finding>, reported: &BTreeSet<Condition>) {
    for (object, finding) in found {
        if let Some(waits) = &mut finding.waits {
            let is_this = |it: &Condition| it.uid.as_ref() == Some(&object.uid) && it.reason == waits.topic;
            waits.reported = reported.iter().any(is_this);
        }
    }
}

/// Returns what a dry run shows about a node's shutdown taint.
pub(super) fn would_taint(node: &Node, change: Change) -> (Object, Finding) {
    let plan = match change {
        Change::Add => format!("add the taint {SHUTDOWN}: its instance is switched off"),
        Change::Remove => format!("remove the taint {SHUTDOWN}: the node is ready"),
    };
    let finding = Finding { plan: vec![plan], waits: Some(Waits::dry_run()), ..Finding::default() };
    (Object::node(&node.name, &node.uid), finding)
}

/// Adds the reason to all nodes that a dry run does not delete.
pub(super) fn rest(found: &mut BTreeMap<Object, Finding>, going: &[Arc<Node>]) {
    for node in going {
        let finding = found.get_mut(&Object::node(&node.name, &node.uid));
        finding.into_iter().for_each(|finding| finding.waits = Some(Waits::dry_run()));
    }
}

/// Ends the text of an Event with a command. If a very long node name leaves too little space for the command, the text names
/// `docs/troubleshoot.md` instead.
fn with_command(front: &str, lead: &str, command: &str) -> String {
    let end = format!(" {lead}: {command}");
    if end.chars().count() + FRONT_MIN <= NOTE_MAX {
        ended(front, &end)
    } else {
        ended(front, " docs/troubleshoot.md has the command")
    }
}

fn release(node: &Node) -> String {
    format!("kubectl annotate node {} {DELETE_DESPITE_BRAKE}={}", node.name, node.uid)
}

fn delete(node: &Node) -> String {
    format!("kubectl delete node {}", node.name)
}

fn id(node: &Node) -> &str {
    node.provider_id.as_deref().unwrap_or_default()
}

/// Formats a duration in the syntax of flags, such as `10m`.
fn words(duration: Duration) -> String {
    SignedDuration::try_from(duration)
        .map_or_else(|_| format!("{duration:?}"), |duration| format!("{duration:#}"))
}

#[cfg(test)]
mod tests {
    use controller_core::{
        Clock, events,
        testing::{BEGIN, FakeKube, node},
    };
    use proptest::prelude::*;

    use super::*;
    use crate::mirror::trim_node;

    #[tokio::test(start_paused = true)]
    async fn different_error_of_the_cloud_is_reported_at_once() {
        let (client, clock) = (FakeKube::new().client(), Clock::starting_at(BEGIN));
        let (recorder, _writer) = events::recorder(client, "c", "pod-1".to_owned(), clock);
        let (mut reporter, node) = (Reporter::new(recorder), trim_node(&node("worker-1").build()));
        let mut report = |error: &str| {
            let mut notices = Notices::default();
            notices.failed(&node, error);
            reporter.report(notices, Instant::now()).len()
        };
        let reported =
            ["429, wait 3 s", "429, wait 5 s", "the token was rejected", "429, wait 7 s"].map(&mut report);
        assert_eq!(reported, [1, 0, 1, 0]);
    }

    fn named(length: usize, id_length: usize) -> Node {
        let worker =
            node(&"n".repeat(length)).provider_id(&format!("openstack:///{}", "i".repeat(id_length)));
        Node { uid: "u".repeat(36), ..trim_node(&worker.build()) }
    }

    /// Returns the reason, the text before the command, and the command.
    fn parts(notice: &Notice) -> (&'static str, &str, Option<&str>) {
        let command = notice.note.find("kubectl ").and_then(|at| notice.note.split_at_checked(at));
        command.map_or((notice.reason, notice.note.as_str(), None), |(front, command)| {
            (notice.reason, front, Some(command))
        })
    }

    #[test]
    fn typical_events_are_whole_and_end_with_the_command() {
        let node = named(40, 47);
        let release = format!("kubectl annotate node {} {DELETE_DESPITE_BRAKE}={}", node.name, node.uid);
        let delete = format!("kubectl delete node {}", node.name);
        let all = format!("kubectl annotate node NAME {DELETE_DESPITE_BRAKE}=NODE_UID");
        let examples = examples(&node);
        let with = |reason| {
            let (_, front, command) = examples.iter().map(parts).find(|it| it.0 == reason).unwrap();
            assert!(!front.contains('…'), "{front}");
            command.unwrap().to_owned()
        };
        for (reason, command) in [
            ("InstanceNotVisible", &delete),
            (ANOTHER, &delete),
            ("DeletionDelayed", &release),
            ("DeletionHeld", &release),
            (TRIPPED, &all),
        ] {
            assert_eq!(&with(reason), command, "{reason}");
        }
        for notice in &examples {
            assert!(notice.note.chars().count() <= NOTE_MAX, "{notice:?}");
            assert!(!notice.note.contains('…'), "{notice:?}");
        }
    }

    proptest! {
        #[test]
        fn events_are_short_and_have_no_part_of_a_command(name in 1_usize..254, id in 1_usize..254) {
            let node = named(name, id);
            let mut all = examples(&node);
            let mut errors = Notices::default();
            errors.failed(&node, &"x".repeat(name + id));
            all.extend(errors.0.into_iter().map(|entry| entry.notice));
            // The recorder shortens the texts about deletions, which are those of the former cloud controller manager.
            for notice in all.iter().filter(|notice| !notice.reason.starts_with("DeletingNode")) {
                prop_assert!(notice.note.chars().count() <= NOTE_MAX, "{notice:?}");
                let command = notice.note.find("kubectl ").map(|at| notice.note.split_at(at).1);
                let ends = [node.name.as_str(), node.uid.as_str(), "=NODE_UID"];
                prop_assert!(command.is_none_or(|it| ends.iter().any(|end| it.ends_with(end))), "{notice:?}");
            }
        }
    }
}
