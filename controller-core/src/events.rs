//! Tells a person, at the object they look at, what is done or refused and why: one call writes the Event and the log line with the
//! same words.
//!
//! Telling never blocks and never fails a reconcile. Repeats of one thing count up in one Event, each 10 s at most and the last ones
//! too; what lasts is told again each half an hour ([`Reminders`]) and counts up, too; writes are paced, Warnings before what is normal; what does
//! not fit is dropped and counted.
//!
//! Events have the shape that all of Kubernetes' own controllers give them (`count`, `lastTimestamp`, `source`), which exporters and
//! scripts read; in `events.k8s.io/v1` the API server refuses these fields. kube's own recorder is not used: it writes that API, takes
//! another message of the same reason for a repeat of the first, and makes the caller wait.

mod reminders;
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

pub use self::reminders::{REMIND, Reminders};
use self::series::{Overdue, QUIET, Series, Write};
use crate::{
    Clock,
    kube_api::{self, within},
    metrics::Registry,
};

/// Notices that wait to be written, of each kind. A cluster of 500 nodes that joins at once fits.
const QUEUE: usize = 1024;
/// So many Events are written at once, then [`PACE`] holds.
const BURST: u32 = 200;
/// Between two writes, on average: 20 a second.
const PACE: Duration = Duration::from_millis(50);
/// While both kinds wait, one write in so many is for what is normal.
const NORMAL_SHARE: u32 = 4;
/// A stop waits so long for what was told last.
const FLUSH: Duration = Duration::from_secs(3);
/// The API server's limit for notes.
const NOTE_MAX: usize = 1024;

/// How much a person should care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing to worry about; logged as info.
    Normal,
    /// Worth a look; logged as warning.
    Warning,
}

impl Kind {
    /// The word of `Event.type`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What is told about an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// How much a person should care.
    pub kind: Kind,
    /// One word in CamelCase, from a closed list.
    pub reason: &'static str,
    /// What was being done, one word in CamelCase.
    pub action: &'static str,
    /// A sentence for a person: what happens, and what to do about it.
    pub note: String,
}

/// Tells. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    component: &'static str,
    /// `None`: it only logs.
    told: Option<Senders>,
    dropped: Counter,
}

/// A queue for each kind: a Warning does not wait behind a thousand Events that all is well.
#[derive(Clone, Debug)]
struct Senders {
    normal: mpsc::Sender<Told>,
    warning: mpsc::Sender<Told>,
}

impl Senders {
    fn of(&self, kind: Kind) -> &mpsc::Sender<Told> {
        match kind {
            Kind::Normal => &self.normal,
            Kind::Warning => &self.warning,
        }
    }
}

impl Recorder {
    /// The same recorder, which writes no Events: nothing happens that they could tell of.
    #[must_use]
    pub fn only_logging(self) -> Self {
        Self { told: None, ..self }
    }

    /// The same recorder, speaking as another component: `kubectl describe` shows it as «From».
    ///
    /// For a process that does what several did in the classic cloud controller manager.
    #[must_use]
    pub fn as_component(&self, component: &'static str) -> Self {
        Self { component, ..self.clone() }
    }

    /// Logs the notice, and has it written as an Event on the object. Never blocks, never fails.
    ///
    /// `about` must carry the UID, or `kubectl describe` does not find the Event.
    pub fn tell(&self, about: &ObjectReference, notice: Notice) {
        log(about, &notice);
        let Some(writer) = self.told.as_ref().map(|told| told.of(notice.kind)) else { return };
        let told = Told { component: self.component, about: about.clone(), notice };
        if writer.try_send(told).is_err() {
            self.dropped.inc();
        }
    }

    /// The same, for who says it again soon if it is not taken now: returns whether it was. Nothing is logged and nothing is lost
    /// before. Half of the places are left to news.
    #[must_use]
    pub fn try_tell(&self, about: &ObjectReference, notice: Notice) -> bool {
        let Some(writer) = self.told.as_ref().map(|told| told.of(notice.kind)) else {
            log(about, &notice);
            return true;
        };
        let Some(place) = writer.try_reserve().ok().filter(|_| writer.capacity() >= QUEUE / 2) else {
            return false;
        };
        log(about, &notice);
        place.send(Told { component: self.component, about: about.clone(), notice });
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

/// What somebody told about something.
#[derive(Clone, Debug)]
struct Told {
    /// Who speaks: `source.component`, what `kubectl describe` shows as «From».
    component: &'static str,
    about: ObjectReference,
    notice: Notice,
}

/// Writes what the recorder is told. One task a process runs it.
pub struct Writer {
    client: Client,
    /// Which replica: `reportingInstance`.
    instance: String,
    clock: Clock,
    normal: mpsc::Receiver<Told>,
    warning: mpsc::Receiver<Told>,
    /// Notices taken so far.
    taken: u32,
    dropped: Counter,
    written: Counter,
    /// Sets names apart that are made within one tick of the clock.
    serial: u32,
    /// When the burst is used up: the theoretical time of the next write.
    paced: Option<Instant>,
}

/// What the writer is woken by.
enum Next {
    Told(Box<Told>),
    /// The quiet time of what was told again is over.
    Overdue,
    /// Nobody is left who could tell.
    End,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// A recorder and the task behind it.
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
    let recorder = Recorder { component, told: Some(senders), dropped: dropped.clone() };
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

    /// Writes Events until `stop`, then what was told before it, as far as that goes within three seconds.
    pub async fn run(self, stop: CancellationToken) {
        let out_of_time = async {
            stop.cancelled().await;
            sleep(FLUSH).await;
        };
        tokio::select! {
            () = self.write_all(&stop) => (),
            () = out_of_time => debug!("Not every Event could be written before the stop"),
        }
    }

    /// After a stop, what waits is written without pace, repeats without their quiet time; a write under way is finished.
    async fn write_all(mut self, stop: &CancellationToken) {
        let mut series = Series::default();
        while let Some(next) = stop.run_until_cancelled(self.next(&series)).await {
            stop.run_until_cancelled(self.pace()).await;
            match next {
                Next::Told(told) => self.write(&mut series, *told).await,
                Next::Overdue => {
                    self.catch_up(&mut series, Instant::now()).await;
                }
                Next::End => break,
            }
        }
        while let Ok(told) = self.warning.try_recv().or_else(|_none| self.normal.try_recv()) {
            self.write(&mut series, told).await;
        }
        while self.catch_up(&mut series, Instant::now() + QUIET).await {}
    }

    /// Waits. Neither of both may keep the other waiting for ever, so that chance decides if both are there.
    async fn next(&mut self, series: &Series) -> Next {
        let due = series.due();
        let overdue = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            told = self.take() => told.map_or(Next::End, |told| Next::Told(Box::new(told))),
            () = overdue => Next::Overdue,
        }
    }

    /// The next notice: Warnings come first, but for a share that keeps what is normal from waiting for ever. `None`: there will be none.
    async fn take(&mut self) -> Option<Told> {
        let turn = self.taken.wrapping_add(1);
        let (first, second) = if turn.is_multiple_of(NORMAL_SHARE) {
            (&mut self.normal, &mut self.warning)
        } else {
            (&mut self.warning, &mut self.normal)
        };
        let told = tokio::select! {
            biased;
            Some(told) = first.recv() => Some(told),
            Some(told) = second.recv() => Some(told),
            else => None,
        };
        self.taken = turn;
        told
    }

    /// Lets a burst through and then one write a [`PACE`].
    async fn pace(&mut self) {
        let now = Instant::now();
        let next = self.paced.map_or(now, |paced| paced.max(now)) + PACE;
        self.paced = Some(next);
        if let Some(due) = next.checked_sub(PACE * BURST) {
            tokio::time::sleep_until(due).await;
        }
    }

    async fn write(&mut self, series: &mut Series, told: Told) {
        let now = self.clock.now();
        let mut result = match series.next(&told, Instant::now(), || self.serial_name()) {
            Write::Nothing => return,
            Write::Create { name } => self.create(&told, &name).await,
            Write::CountUp { name, count } => self.count_up(&told.about, &name, count, now).await,
        };
        // Its Event is gone already: here they are not kept for long.
        if result.as_ref().is_err_and(kube_api::Error::is_not_found) {
            series.forget(&told);
            if let Write::Create { name } = series.next(&told, Instant::now(), || self.serial_name()) {
                result = self.create(&told, &name).await;
            }
        }
        self.note(series, &told, result);
    }

    /// Writes one that was told again while it was quiet, if that is over at `by`. Returns whether there was one.
    async fn catch_up(&self, series: &mut Series, by: Instant) -> bool {
        let Some(Overdue { told, name, count, ago }) = series.overdue(by, Instant::now()) else {
            return false;
        };
        let now = self.clock.now();
        let last = now.checked_sub(ago).unwrap_or(now);
        let result = self.count_up(&told.about, &name, count, last).await;
        self.note(series, &told, result);
        true
    }

    fn note(&self, series: &mut Series, told: &Told, result: Result<(), kube_api::Error>) {
        match result {
            Ok(()) => drop(self.written.inc()),
            Err(error) => {
                debug!(%error, "Event could not be written");
                self.dropped.inc();
                // Forgotten, so that the next one is created anew.
                series.forget(told);
            }
        }
    }

    fn serial_name(&mut self) -> String {
        self.serial = self.serial.wrapping_add(1);
        format!("{:x}{:04x}", self.clock.now().as_millisecond(), self.serial & 0xffff)
    }

    async fn create(&self, told: &Told, suffix: &str) -> Result<(), kube_api::Error> {
        let event = self.event(told, suffix, self.clock.now());
        within(self.events(&told.about).create(&PostParams::default(), &event)).await.map(drop)
    }

    async fn count_up(
        &self,
        about: &ObjectReference,
        suffix: &str,
        count: i32,
        last: Timestamp,
    ) -> Result<(), kube_api::Error> {
        let patch = Patch::Merge(json!({ "count": count, "lastTimestamp": Time(last) }));
        let name = event_name(about, suffix);
        within(self.events(about).patch(&name, &PatchParams::default(), &patch)).await.map(drop)
    }

    fn events(&self, about: &ObjectReference) -> Api<Event> {
        Api::namespaced(self.client.clone(), namespace(about))
    }

    fn event(&self, told: &Told, suffix: &str, now: Timestamp) -> Event {
        let Told { component, about, notice } = told;
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(about, suffix)),
                namespace: Some(namespace(about).to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(notice.kind.word().to_owned()),
            reason: Some(notice.reason.to_owned()),
            action: Some(notice.action.to_owned()),
            message: Some(cut(&notice.note)),
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

/// Events about cluster-scoped objects live in the namespace `default`; the API server insists.
fn namespace(about: &ObjectReference) -> &str {
    about.namespace.as_deref().unwrap_or("default")
}

fn event_name(about: &ObjectReference, suffix: &str) -> String {
    format!("{}.{suffix}", about.name.as_deref().unwrap_or("unnamed"))
}

/// A text without the words that have a digit: delays, counts, addresses and request IDs change from try to try while the trouble stays
/// the same. Two texts of one reason with another gist are two troubles.
#[must_use]
pub fn gist(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| !word.contains(|it: char| it.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

/// At most so many characters of a text that a user writes.
#[must_use]
pub fn bounded(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// At most [`NOTE_MAX`] bytes, cut between characters.
pub(crate) fn cut(note: &str) -> String {
    if note.len() <= NOTE_MAX {
        return note.to_owned();
    }
    let end = (0..=NOTE_MAX - '…'.len_utf8()).rev().find(|at| note.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", note.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests;
