//! Reports to users what a controller does or refuses, and why, on the object concerned. One call emits the Event and the log line with the
//! same text; only the Event is shortened to [`NOTE_MAX`] characters.
//!
//! Emitting never blocks and never fails a reconcile. Repeats of a notice increase the count of one Event, which is written at most every
//! 10 s. Repeats within this interval (the quiet time) are counted and written at its end. Lasting conditions are re-emitted every half
//! hour and counted in the same way. Writes are rate limited, Warnings first; notices that exceed the queue are dropped and counted.
//!
//! Three types deal with repetition. [`Repeat`] decides when a condition that each pass (a check of all objects) finds again is reported
//! again. [`Reminders`] re-emits the Events about objects that no pass visits. `Series` decides which notices are written as the count of
//! one Event.
//!
//! Several processes may emit the same notice about an object, for example several releases in one cluster. [`Recorder::emit_shared`] gives
//! the Event a name that depends only on the object and the reason, so that the API server has one Event and not one for each process.
//!
//! Events have the fields that Kubernetes' own controllers set (`count`, `lastTimestamp`, `source`), because exporters and scripts read
//! these fields. The API server refuses them in `events.k8s.io/v1`. kube's recorder is not used, because it writes that API and makes the
//! caller wait. It also treats a notice with the same reason but another message as a repeat.

mod reminders;
mod repeat;
mod series;

use std::{fmt, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::series::{Overdue, Series, WRITE_INTERVAL, Write};
pub use self::{
    reminders::Reminders,
    repeat::{REMIND, Repeat},
};
pub use crate::text::{NOTE_MAX, bounded, ended, gist};
use crate::{
    Clock,
    kube_api::{self, within},
    metrics::Registry,
};

/// Capacity of the queue of each kind, enough for a cluster of 500 nodes that join at once.
const QUEUE: usize = 1024;
/// Number of Events that can be written at once before [`PACE`] applies.
const BURST: u32 = 200;
/// Average interval between two writes: 20 per second.
const PACE: Duration = Duration::from_millis(50);
/// While both kinds wait, each n-th write is for a Normal Event.
const NORMAL_SHARE: u32 = 4;
/// HTTP status of a create if the object exists.
const CONFLICT: u16 = 409;
/// How long a stopping process waits for the last Events to be written.
const FLUSH: Duration = Duration::from_secs(3);

/// Severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The notice is expected, and is logged at level info.
    Normal,
    /// The notice needs attention, and is logged as a warning.
    Warning,
}

impl Kind {
    /// Returns the value of `Event.type`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A message about an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// Severity.
    pub kind: Kind,
    /// One word in CamelCase, from a fixed list.
    pub reason: &'static str,
    /// What the controller was doing, one word in CamelCase.
    pub action: &'static str,
    /// A sentence for the user: what happens, and what the user can do about it. The Event contains its first [`NOTE_MAX`] characters.
    pub note: String,
}

impl Notice {
    fn bounded(self) -> Self {
        Self { note: bounded(&self.note, NOTE_MAX), ..self }
    }
}

/// Emits Events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    component: &'static str,
    /// The queues of the task that writes Events. `None`: notices are only logged.
    senders: Option<Senders>,
    dropped: Counter,
}

/// One queue per kind, so that a Warning does not wait behind a thousand Normal Events.
#[derive(Clone, Debug)]
struct Senders {
    normal: mpsc::Sender<Message>,
    warning: mpsc::Sender<Message>,
}

impl Senders {
    fn of(&self, kind: Kind) -> &mpsc::Sender<Message> {
        match kind {
            Kind::Normal => &self.normal,
            Kind::Warning => &self.warning,
        }
    }
}

impl Recorder {
    /// Returns a recorder that logs notices but writes no Events, for a process that changes nothing (a dry run).
    #[must_use]
    pub fn only_logging(self) -> Self {
        Self { senders: None, ..self }
    }

    /// Returns a recorder under another component's name, which `kubectl describe` shows as «From».
    ///
    /// Used by a process that replaces several controllers of the former cloud controller manager.
    #[must_use]
    pub fn as_component(&self, component: &'static str) -> Self {
        Self { component, ..self.clone() }
    }

    /// Logs the notice, and queues it as an Event on the object. Never blocks, never fails.
    ///
    /// `about` must contain the UID. Otherwise `kubectl describe` does not show the Event.
    pub fn emit(&self, about: &ObjectReference, notice: Notice) {
        self.send(about, notice, Writers::This);
    }

    /// Like [`Self::emit`], for a notice that other processes emit, too. The API server has one Event of all these processes, which is not
    /// counted; each repeat only renews its time.
    pub fn emit_shared(&self, about: &ObjectReference, notice: Notice) {
        self.send(about, notice, Writers::Many);
    }

    fn send(&self, about: &ObjectReference, notice: Notice, writers: Writers) {
        log(about, &notice);
        let Some(sender) = self.senders.as_ref().map(|senders| senders.of(notice.kind)) else { return };
        if sender.try_send(self.message(about, notice, writers)).is_err() {
            self.dropped.inc();
        }
    }

    fn message(&self, about: &ObjectReference, notice: Notice, writers: Writers) -> Message {
        Message { component: self.component, about: about.clone(), notice: notice.bounded(), writers }
    }

    /// Like [`Self::emit`], for a caller that retries soon if the queue is full. Returns `false` if the notice was refused. A refused
    /// notice is neither logged nor counted as dropped. Half of the queue is reserved for new notices.
    #[must_use]
    pub fn try_emit(&self, about: &ObjectReference, notice: Notice) -> bool {
        let Some(writer) = self.senders.as_ref().map(|senders| senders.of(notice.kind)) else {
            log(about, &notice);
            return true;
        };
        let Some(permit) = writer.try_reserve().ok().filter(|_| writer.capacity() >= QUEUE / 2) else {
            return false;
        };
        log(about, &notice);
        permit.send(self.message(about, notice, Writers::This));
        true
    }
}

fn log(about: &ObjectReference, notice: &Notice) {
    let object = about.name.as_deref().unwrap_or_default();
    let namespace = about.namespace.as_deref();
    match notice.kind {
        Kind::Normal => info!(reason = notice.reason, object, namespace, "{}", notice.note),
        Kind::Warning => warn!(reason = notice.reason, object, namespace, "{}", notice.note),
    }
}

#[derive(Clone, Debug)]
struct Message {
    /// The emitting component: `source.component`, which `kubectl describe` shows as «From».
    component: &'static str,
    about: ObjectReference,
    notice: Notice,
    writers: Writers,
}

/// Which processes write the Event of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Writers {
    /// Only this process, so that each Event has a new name.
    This,
    /// Other processes, too. The first of them creates the Event.
    Many,
}

/// Writes the queued Events. Each process runs it as one task.
pub struct Writer {
    client: Client,
    /// The identity of this replica: `reportingInstance`.
    instance: String,
    clock: Clock,
    normal: mpsc::Receiver<Message>,
    warning: mpsc::Receiver<Message>,
    /// Number of notices taken from the queues so far.
    taken: u32,
    dropped: Counter,
    written: Counter,
    /// Distinguishes the names of Events created within one tick of the clock.
    serial: u32,
    /// Scheduled time of the next write at a steady rate. If this time is too far in the future, the burst is used up.
    paced: Option<Instant>,
}

enum Wakeup {
    Message(Box<Message>),
    /// The quiet time of a repeated notice's Event is over.
    Overdue,
    End,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// Returns a recorder and the task that writes its Events.
#[must_use]
pub fn recorder(
    client: Client,
    component: &'static str,
    instance: String,
    clock: Clock,
) -> (Recorder, Writer) {
    let (to_normal, normal) = mpsc::channel(QUEUE);
    let (to_warning, warning) = mpsc::channel(QUEUE);
    let (dropped, written) = (Counter::default(), Counter::default());
    let senders = Senders { normal: to_normal, warning: to_warning };
    let recorder = Recorder { component, senders: Some(senders), dropped: dropped.clone() };
    let (taken, serial, paced) = (0, 0, None);
    let writer = Writer { client, instance, clock, normal, warning, taken, dropped, written, serial, paced };
    (recorder, writer)
}

impl Writer {
    /// Registers `events_written_total` and `events_dropped_total`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("events_written", "Events created or counted up", self.written.clone());
        registry.register("events_dropped", "Events that could not be written", self.dropped.clone());
    }

    /// Writes Events until `stop`. Then writes the Events that were emitted before, for up to three seconds.
    pub async fn run(self, stop: CancellationToken) {
        let out_of_time = async {
            stop.cancelled().await;
            sleep(FLUSH).await;
        };
        tokio::select! {
            () = self.write_all(&stop) => (),
            () = out_of_time => debug!("Stopping before all Events were written"),
        }
    }

    /// After a stop, queued Events are written without a rate limit, and repeated notices without their quiet time. A write in progress is
    /// finished.
    async fn write_all(mut self, stop: &CancellationToken) {
        let mut series = Series::default();
        while let Some(next) = stop.run_until_cancelled(self.next(&series)).await {
            stop.run_until_cancelled(self.pace()).await;
            match next {
                Wakeup::Message(message) => self.write(&mut series, *message).await,
                Wakeup::Overdue => {
                    self.catch_up(&mut series, Instant::now()).await;
                }
                Wakeup::End => break,
            }
        }
        while let Ok(message) = self.warning.try_recv().or_else(|_none| self.normal.try_recv()) {
            self.write(&mut series, message).await;
        }
        while self.catch_up(&mut series, Instant::now() + WRITE_INTERVAL).await {}
    }

    /// Waits for a new notice or for an overdue repeat. `select!` picks at random if both are ready, so neither source starves the other.
    async fn next(&mut self, series: &Series) -> Wakeup {
        let due = series.due();
        let overdue = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            message = self.take() => message.map_or(Wakeup::End, |message| Wakeup::Message(Box::new(message))),
            () = overdue => Wakeup::Overdue,
        }
    }

    /// Returns the next notice: Warnings first, except for a share that prevents the starvation of Normal Events. `None`: all recorders
    /// have been dropped.
    async fn take(&mut self) -> Option<Message> {
        let taken = self.taken.wrapping_add(1);
        let (first, second) = if taken.is_multiple_of(NORMAL_SHARE) {
            (&mut self.normal, &mut self.warning)
        } else {
            (&mut self.warning, &mut self.normal)
        };
        let message = tokio::select! {
            biased;
            Some(message) = first.recv() => Some(message),
            Some(message) = second.recv() => Some(message),
            else => None,
        };
        self.taken = taken;
        message
    }

    /// Waits until the next write is allowed: a burst at once, then one write per [`PACE`].
    async fn pace(&mut self) {
        let now = Instant::now();
        let next = self.paced.map_or(now, |paced| paced.max(now)) + PACE;
        self.paced = Some(next);
        if let Some(due) = next.checked_sub(PACE * BURST) {
            tokio::time::sleep_until(due).await;
        }
    }

    async fn write(&mut self, series: &mut Series, message: Message) {
        let now = self.clock.now();
        let mut result = match series.next(&message, Instant::now(), || self.suffix(&message)) {
            Write::Nothing => return,
            Write::Create { name } => self.create(&message, &name).await,
            Write::CountUp { name, count } => self.count_up(&message, &name, count, now).await,
        };
        // The Event has already expired: this API server does not keep Events for long.
        if result.as_ref().is_err_and(kube_api::Error::is_not_found) {
            series.forget(&message);
            if let Write::Create { name } = series.next(&message, Instant::now(), || self.suffix(&message)) {
                result = self.create(&message, &name).await;
            }
        }
        self.note(series, &message, result);
    }

    /// Writes one notice that was repeated during its quiet time, if the quiet time is over at `by`. Returns whether a notice
    /// was due.
    async fn catch_up(&self, series: &mut Series, by: Instant) -> bool {
        let Some(Overdue { message, name, count, ago }) = series.overdue(by, Instant::now()) else {
            return false;
        };
        let now = self.clock.now();
        let last = now.checked_sub(ago).unwrap_or(now);
        let result = self.count_up(&message, &name, count, last).await;
        self.note(series, &message, result);
        true
    }

    fn note(&self, series: &mut Series, message: &Message, result: Result<(), kube_api::Error>) {
        match result {
            Ok(()) => drop(self.written.inc()),
            Err(error) => {
                debug!(%error, "Cannot write Event");
                self.dropped.inc();
                // The series is dropped, so that the next repeat creates an Event.
                series.forget(message);
            }
        }
    }

    /// Returns the end of the name of a notice's Event.
    fn suffix(&mut self, message: &Message) -> String {
        let uid = message.about.uid.as_deref().unwrap_or_default();
        match message.writers {
            Writers::This => self.serial_name(),
            Writers::Many => format!("{}.{uid}", message.notice.reason.to_ascii_lowercase()),
        }
    }

    fn serial_name(&mut self) -> String {
        self.serial = self.serial.wrapping_add(1);
        format!("{:x}{:04x}", self.clock.now().as_millisecond(), self.serial & 0xffff)
    }

    async fn create(&self, message: &Message, suffix: &str) -> Result<(), kube_api::Error> {
        let event = self.event(message, suffix, self.clock.now());
        match within(self.events(&message.about).create(&PostParams::default(), &event)).await {
            // Another process has created the Event.
            Err(error) if message.writers == Writers::Many && error.status() == Some(CONFLICT) => Ok(()),
            created => created.map(drop),
        }
    }

    async fn count_up(
        &self,
        Message { about, writers, .. }: &Message,
        suffix: &str,
        count: i32,
        last: Timestamp,
    ) -> Result<(), kube_api::Error> {
        let patch = match writers {
            Writers::This => json!({ "count": count, "lastTimestamp": Time(last) }),
            // The counts of the processes differ.
            Writers::Many => json!({ "lastTimestamp": Time(last) }),
        };
        let name = event_name(about, suffix);
        let patch = Patch::Merge(patch);
        within(self.events(about).patch(&name, &PatchParams::default(), &patch)).await.map(drop)
    }

    fn events(&self, about: &ObjectReference) -> Api<Event> {
        Api::namespaced(self.client.clone(), namespace(about))
    }

    fn event(&self, message: &Message, suffix: &str, now: Timestamp) -> Event {
        let Message { component, about, notice, writers: _ } = message;
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(about, suffix)),
                namespace: Some(namespace(about).to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(notice.kind.word().to_owned()),
            reason: Some(notice.reason.to_owned()),
            action: Some(notice.action.to_owned()),
            message: Some(notice.note.clone()),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            involved_object: about.clone(),
            source: Some(EventSource { component: Some((*component).to_owned()), host: None }),
            reporting_component: Some((*component).to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

/// The API server requires Events about cluster-scoped objects to be in the namespace `default`.
fn namespace(about: &ObjectReference) -> &str {
    about.namespace.as_deref().unwrap_or("default")
}

fn event_name(about: &ObjectReference, suffix: &str) -> String {
    format!("{}.{suffix}", about.name.as_deref().unwrap_or("unnamed"))
}

#[cfg(test)]
mod tests;
