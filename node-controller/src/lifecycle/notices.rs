//! Defines the Events about the shutdown and the deletion of nodes.
//!
//! Each pass, every few seconds, finds the same reasons why a node is not deleted. An Event is emitted when a condition begins, and
//! re-emitted each hour while it lasts, since Events are kept for an hour. The Event for a node of another cloud is emitted only once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use controller_core::{
    brake::Limits,
    events::{Kind, Notice, Recorder, Repeat, gist},
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
/// The brake has tripped.
const TRIPPED: &str = "NodeDeletionBrakeTripped";
/// The node's instance belongs to another cloud. This Event is emitted once per process, since the condition lasts as long as the node and
/// may be intended.
const ANOTHER: &str = "InstanceOfAnotherCloud";
/// The plan for a node whose instance is proven to be gone.
pub(crate) const GOES: &str = "delete the node: its instance is gone";
/// Maximum number of nodes that the notice about all nodes lists by name.
const NAMED: usize = 10;

/// The controller is about to delete the node. The note and the reason are those of the former cloud controller manager.
pub(super) fn deleting(node: &Node) -> Notice {
    let note = format!("Deleting node {} because it does not exist in the cloud provider", node.name);
    Notice { kind: Kind::Normal, reason: "DeletingNode", action: ACTION, note }
}

/// The API server did not delete the node. The note and the reason are those of the former cloud controller manager.
pub(super) fn deleting_failed(node: &Node, error: &kube_api::Error) -> Notice {
    let note = format!("Failed deleting node {}: {error}", node.name);
    Notice { kind: Kind::Warning, reason: "DeletingNodeFailed", action: ACTION, note }
}

/// The deletions that the brake holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tripped<'a> {
    pub(super) held: &'a [Arc<Node>],
    /// Number of all nodes.
    pub(super) n_nodes: usize,
    /// Maximum number of deletions per window.
    pub(super) allowance: usize,
    pub(super) window: Duration,
}

/// The notices of a pass about nodes that are not deleted.
#[derive(Debug, Default)]
pub(super) struct Notices(Vec<(ObjectReference, Notice)>);

impl Notices {
    pub(super) fn not_visible(&mut self, node: &Node) {
        let note = format!(
            "The node is not ready but is not deleted: the cloud does not list instance {}, but has \
            not proven that the instance is gone. If you know that the instance is gone, run: \
            kubectl delete node {}",
            id(node),
            node.name
        );
        self.warn(node, "InstanceNotVisible", note);
    }

    pub(super) fn foreign(&mut self, node: &Node) {
        let note = format!(
            "The node is not ready but is not deleted: according to the cloud adapter, instance {} \
             belongs to another cloud or region",
            id(node)
        );
        self.warn(node, "InstanceForeign", note);
    }

    /// The scheme of the node's provider ID differs from the scheme of this cloud.
    pub(super) fn of_another_cloud(&mut self, node: &Node, scheme: &str) {
        let note = format!(
            "Ignoring the node: instance {} does not belong to the cloud adapter's cloud, \
            whose provider IDs begin with {scheme}://. The controller neither updates nor \
            deletes the node. To \
            delete the node: kubectl delete node {}",
            id(node),
            node.name
        );
        self.warn(node, ANOTHER, note);
    }

    pub(super) fn failed(&mut self, node: &Node, error: &str) {
        let note = format!(
            "The node is not ready but is not deleted: the cloud returned an error for instance \
            {} ({error}). The controller retries with backoff",
            id(node)
        );
        self.warn(node, FAILED, note);
    }

    pub(super) fn delayed(&mut self, node: &Node, limits: Limits) {
        let note = format!(
            "Deletion is delayed although instance {} does not exist in the cloud provider. The \
            controller has just started and spreads deletions over {}. {}",
            id(node),
            words(limits.window),
            command(node)
        );
        self.0.push((
            about(node),
            Notice { kind: Kind::Normal, reason: "DeletionDelayed", action: ACTION, note },
        ));
    }

    pub(super) fn held(&mut self, node: &Node, n_held: usize, allowance: usize, limits: Limits) {
        let note = format!(
            "Deletion is held although instance {} does not exist in the cloud provider: {n_held} \
            nodes would be deleted; the limit is {allowance} per {}. Check the cloud adapter's \
            credentials, project and region. {}",
            id(node),
            words(limits.window),
            command(node)
        );
        self.warn(node, "DeletionHeld", note);
    }

    /// Adds a notice on the object that represents all nodes.
    pub(super) fn tripped(&mut self, regarding: ObjectReference, tripped: &Tripped<'_>) {
        let Tripped { held, n_nodes, allowance, window } = *tripped;
        let mut names: Vec<&str> = held.iter().map(|node| node.name.as_str()).take(NAMED).collect();
        if held.len() > NAMED {
            names.push("...");
        }
        let note = format!(
            "All node deletions are held: {} of {n_nodes} nodes do not exist in the cloud provider \
            any more ({}); the limit is {allowance} per {}. Check the cloud adapter's \
            credentials, project and region. To delete a node anyway: kubectl \
            annotate node NAME {DELETE_DESPITE_BRAKE}=UID",
            held.len(),
            names.join(", "),
            words(window)
        );
        let notice = Notice { kind: Kind::Warning, reason: TRIPPED, action: ACTION, note };
        // This notice comes first, since there may be more notices than the recorder takes at once.
        self.0.insert(0, (regarding, notice));
    }

    /// Returns the notes about the tripped brake.
    pub(super) fn tripped_words(&self) -> Vec<String> {
        let tripped = self.0.iter().filter(|(_, notice)| notice.reason == TRIPPED);
        tripped.map(|(_, notice)| notice.note.clone()).collect()
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
            .filter(|node| !self.0.iter().any(|(about, _)| about.uid.as_ref() == Some(&node.uid)))
            .map(|node| planned(node, "ask the cloud whether its instance is gone"))
            .collect();
        for (about, notice) in self.0.iter().filter(|(_, notice)| notice.reason != TRIPPED) {
            let (name, uid) = (about.name.as_deref(), about.uid.as_deref());
            let object = Object::node(name.unwrap_or_default(), uid.unwrap_or_default());
            let (text, topic) = (notice.note.clone(), notice.reason.to_owned());
            let waits = Some(Waits { text, topic, reason: None, reported: false });
            found.insert(object, Finding { waits, ..Finding::default() });
        }
        found.extend(going.iter().map(|node| planned(node, GOES)));
        found
    }

    fn warn(&mut self, node: &Node, reason: &'static str, note: String) {
        self.0.push((about(node), Notice { kind: Kind::Warning, reason, action: ACTION, note }));
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
    all.0.into_iter().map(|(_, notice)| notice).chain(alone).collect()
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
    fn of(about: &ObjectReference, notice: &Notice) -> Self {
        let gist = if notice.reason == FAILED { gist(&notice.note) } else { String::new() };
        Self { name: about.name.clone(), uid: about.uid.clone(), reason: notice.reason, gist }
    }
}

impl Reporter {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, conditions: Repeat::every(REMIND) }
    }

    /// The recorder for Events that are emitted directly.
    pub(super) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Emits the notices of a pass that are due, and returns their conditions. If the recorder has no capacity for a notice, a later pass
    /// retries it.
    pub(super) fn report(&mut self, notices: Notices, now: Instant) -> BTreeSet<Condition> {
        let (mut present, mut reported) = (BTreeSet::new(), BTreeSet::new());
        for (about, notice) in notices.0 {
            let condition = Condition::of(&about, &notice);
            let is_due = match condition.reason {
                ANOTHER => self.conditions.last(&condition).is_none(),
                _ => self.conditions.is_due(&condition, now),
            };
            if is_due && self.recorder.try_emit(&about, notice) {
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

/// Marks findings whose Event was emitted now: the status page shows the Event's note until the next Event.
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

/// Returns the command that releases a node from the brake.
fn command(node: &Node) -> String {
    format!(
        "To delete the node anyway: kubectl annotate node {} {DELETE_DESPITE_BRAKE}={}",
        node.name, node.uid
    )
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
}
