//! Executes the decisions of the candidate and publishes the leadership.

use futures::future::{BoxFuture, OptionFuture};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{Changes, Error, LeaseApi},
    candidate::{Action, Candidate},
    member::{Act, Member},
    record::{self, Acquisition, Notes, Record},
    settings::{Settings, SettingsError},
    shard_handle::Leadership,
};

/// Takes part in the election for one Lease.
pub struct Elector {
    api: LeaseApi,
    settings: Settings,
    candidate: Candidate,
    leadership: watch::Sender<Leadership>,
    beats: watch::Sender<Instant>,
    changes: Option<Changes>,
    opening: Option<Opening>,
    /// Whether a watch may be opened. This limits the attempts to open a watch to one per read, because opening a watch again is not
    /// urgent.
    may_watch: bool,
    /// The wall-clock time for the Lease and for epochs, which is the time at the start plus the time elapsed since then. This time never
    /// stops or jumps back, so each renewal changes the Lease.
    wall: (Timestamp, Instant),
    /// The last failure that was logged.
    trouble: Option<String>,
    /// Decides together with the other shards of this process, if the process shares several Leases with other replicas.
    member: Option<Member>,
}

/// A watch that is not open yet.
type Opening = BoxFuture<'static, Result<Changes, Error>>;

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector").field("candidate", &self.candidate).finish_non_exhaustive()
    }
}

impl Elector {
    /// Creates an elector without sending a request. `wall` is the current time, which is used in the Lease.
    pub fn new(
        client: Client,
        settings: Settings,
        wall: Timestamp,
    ) -> Result<(Self, watch::Receiver<Leadership>), SettingsError> {
        settings.check()?;
        Ok(Self::of(client, settings, wall, None))
    }

    /// Creates an elector from settings that were checked before.
    pub(crate) fn of(
        client: Client,
        settings: Settings,
        wall: Timestamp,
        member: Option<Member>,
    ) -> (Self, watch::Receiver<Leadership>) {
        let now = Instant::now();
        let (sender, leadership) = watch::channel(Leadership::Follower { holder: None });
        let elector = Self {
            api: LeaseApi::new(client, &settings),
            candidate: Candidate::new(&settings.identity, settings.timing, now),
            settings,
            leadership: sender,
            beats: watch::Sender::new(now),
            changes: None,
            opening: None,
            may_watch: false,
            wall: (wall, now),
            trouble: None,
            member,
        };
        (elector, leadership)
    }

    /// Returns a receiver of the time of the last decision. The elector is stuck if that time is longer ago than any request or pause
    /// takes.
    #[must_use]
    pub fn beats(&self) -> watch::Receiver<Instant> {
        self.beats.subscribe()
    }

    /// Takes part in the election until `stop` is cancelled. After that, the elector releases the lease if this process holds it.
    ///
    /// Cost: one request per [`Timing::retry`](crate::Timing::retry), and one watch while another process leads.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let now = Instant::now();
            self.beats.send_replace(now);
            let act = match &mut self.member {
                None => Act::Step(self.candidate.decide(now)),
                Some(member) => member.decide(&self.candidate, now),
            };
            self.publish();
            match act {
                Act::Step(Action::Read) => self.read().await,
                Act::Step(Action::Acquire(acquisition)) => self.acquire(acquisition).await,
                Act::Step(Action::Renew { version }) => self.renew(&version, &Notes::new()).await,
                Act::Step(Action::Lost(why)) => {
                    tracing::warn!(lease = %self.lease(), %why, "This process is no longer the leader");
                    self.resign();
                }
                Act::Step(Action::Wait(until)) => {
                    tokio::select! {
                        () = self.wait(until) => (),
                        () = stop.cancelled() => (),
                    }
                }
                Act::RenewWith { version, notes } => self.renew(&version, &notes).await,
                Act::Note { version, notes } => self.note(&version, &notes).await,
                Act::Release { why } => self.release_for(why).await,
            }
            self.publish();
        }
        self.release().await;
    }

    /// Waits until `until`, until a Lease held by another process changes, or until observations of other shards change the next action.
    async fn wait(&mut self, until: Instant) {
        let idle = self.candidate.term().is_some();
        let woken = OptionFuture::from(self.member.as_ref().map(Member::woken));
        tokio::select! {
            () = sleep_until(until) => (),
            Some(()) = woken => (),
            change = self.change(), if !idle => self.candidate.saw_change(Instant::now(), change),
        }
    }

    /// Returns the next change. This future never resolves if the Lease cannot be watched. In that case, the next read detects the change.
    async fn change(&mut self) -> Option<Record> {
        let closed = self.changes.is_none() && self.opening.is_none();
        if let (true, true, Some(version)) = (closed, self.may_watch, self.candidate.version()) {
            self.may_watch = false;
            self.opening = Some(self.api.watch(version));
        }
        if let Some(opening) = &mut self.opening {
            let opened = opening.await;
            self.opening = None;
            match opened {
                Ok(changes) => self.changes = Some(changes),
                Err(error) => self.failed("watch", &error),
            }
        }
        if let Some(changes) = &mut self.changes {
            if let Some(change) = futures::StreamExt::next(changes).await {
                return change;
            }
            self.changes = None;
        }
        std::future::pending().await
    }

    async fn read(&mut self) {
        let started = Instant::now();
        match self.api.get().await {
            Ok(record) => {
                self.worked();
                self.may_watch = true;
                self.candidate.saw(Instant::now(), record);
                if self.changes.is_some() && self.candidate.version().is_some() {
                    self.candidate.read_less_often(Instant::now());
                }
                self.observed(started);
            }
            Err(error) => {
                self.failed("get", &error);
                self.candidate.saw_nothing(started);
            }
        }
    }

    /// Publishes the candidate's observation, which was made at `started` or later.
    fn observed(&mut self, started: Instant) {
        if let Some(member) = &mut self.member {
            member.observed(&self.candidate, started);
        }
    }

    async fn acquire(&mut self, acquisition: Acquisition) {
        let started = Instant::now();
        let previous_holder = self.candidate.holder().map(str::to_owned);
        let mut body = record::acquisition(&self.settings, &acquisition, self.wall());
        if let Some(member) = &self.member {
            let mut notes = member.notes(acquisition.transitions);
            // A new Lease has no annotations to remove.
            notes.retain(|_, note| note.is_some() || acquisition.version.is_some());
            body = record::with_notes(body, &notes);
        }
        let answer = match acquisition.version {
            Some(_) => self.api.patch(&body).await,
            None => self.api.create(body).await,
        };
        self.written(started, answer);
        if let Some((epoch, _)) = self.candidate.term() {
            self.changes = None;
            self.opening = None;
            let (lease, previous_holder) = (self.lease(), previous_holder.as_deref());
            let cause = match previous_holder {
                None => "no process held the lease",
                Some(holder) if holder == self.settings.identity => "this process still held the lease",
                Some(_) => "the holder let the lease expire",
            };
            tracing::info!(lease, epoch, previous_holder, cause, "This process is now the leader");
        }
    }

    async fn renew(&mut self, version: &str, notes: &Notes) {
        let started = Instant::now();
        let body = record::renewal(&self.settings.timing, version, self.wall());
        let answer = self.api.patch(&record::with_notes(body, notes)).await;
        self.written(started, answer);
    }

    /// Writes annotations on a Lease that another process holds.
    async fn note(&mut self, version: &str, notes: &Notes) {
        let started = Instant::now();
        match self.api.patch(&record::note(version, notes)).await {
            Ok(record) => {
                self.candidate.saw(Instant::now(), Some(record));
                self.observed(started);
            }
            // A conflict means that the holder renewed the lease at the same time. The next observation decides whether to try again.
            Err(error) if error.status() == Some(409) => (),
            Err(error) => self.failed("write", &error),
        }
    }

    /// Releases the lease and continues as a standby.
    async fn release_for(&mut self, why: &'static str) {
        let lease = self.lease();
        self.resign();
        self.publish();
        let started = Instant::now();
        match self.empty().await {
            Ok(Some(record)) => {
                tracing::info!(lease, why, "Lease released");
                self.candidate.saw(Instant::now(), Some(record));
                self.observed(started);
            }
            Ok(None) => self.candidate.failed(started, Instant::now()),
            Err(error) => {
                tracing::warn!(lease, %error, "Cannot release the Lease; standbys wait until it expires");
                self.candidate.failed(started, Instant::now());
            }
        }
    }

    /// Empties the Lease if this process holds it. If another client writes an annotation at the same time, this function tries again.
    async fn empty(&mut self) -> Result<Option<Record>, Error> {
        let mut tries = 3;
        loop {
            tries -= 1;
            let record = self.api.get().await?;
            let ours = |record: &Record| record.holder.as_deref() == Some(self.settings.identity.as_str());
            let Some(record) = record.filter(ours) else { return Ok(None) };
            match self.api.patch(&record::release(&record.version, self.wall())).await {
                Err(error) if error.status() == Some(409) && tries > 0 => (),
                answer => return answer.map(Some),
            }
        }
    }

    fn written(&mut self, started: Instant, answer: Result<Record, Error>) {
        match answer {
            Ok(record) => {
                self.worked();
                self.candidate.wrote(started, Instant::now(), record);
                self.observed(started);
            }
            Err(error) => {
                // After a conflict, the next read shows which other process was faster.
                if error.status() != Some(409) {
                    self.failed("write", &error);
                }
                self.candidate.failed(started, Instant::now());
            }
        }
    }

    /// Releases the lease. The process may hold the lease without knowing so, because the answer to its acquisition was lost. This function
    /// also releases such a lease.
    async fn release(mut self) {
        self.resign();
        self.publish();
        let released = self.empty().await;
        let lease = self.lease();
        match released {
            Ok(Some(_)) => tracing::info!(lease, "Lease released"),
            Ok(None) => (),
            Err(error) => {
                tracing::warn!(lease, %error, "Cannot release the Lease; standbys wait until it expires");
            }
        }
    }

    /// Ends the term and informs the other shards of this process.
    fn resign(&mut self) {
        self.candidate.resign();
        if let Some(member) = &mut self.member {
            member.resigned(&self.candidate);
        }
    }

    fn publish(&self) {
        let confirmed = self.member.as_ref().is_none_or(Member::is_confirmed);
        let now = match self.candidate.term().filter(|_| confirmed) {
            Some((epoch, valid_until)) => {
                let since = self.candidate.since();
                let since = self.member.as_ref().map_or(since, |member| member.since().max(since));
                Leadership::Leader { valid_until, epoch, since, uid: self.candidate.uid().into() }
            }
            None => Leadership::Follower { holder: self.candidate.holder().map(str::to_owned) },
        };
        self.leadership.send_if_modified(|published| {
            let changes = *published != now;
            *published = now;
            changes
        });
    }

    /// Logs a failure, unless the failure has the same text as the last logged failure.
    fn failed(&mut self, call: &'static str, error: &Error) {
        let text = error.to_string();
        if self.trouble.as_ref() == Some(&text) {
            return;
        }
        let lease = self.lease();
        match error.status() {
            Some(403) => {
                tracing::error!(
                    lease,
                    call,
                    error = text,
                    "Access to the Lease is forbidden: grant get, watch and patch on it, and either \
                    create the Lease or grant create"
                );
            }
            Some(_) | None => tracing::warn!(lease, call, error = text, "Request for the Lease failed"),
        }
        self.trouble = Some(text);
    }

    fn worked(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!(lease = self.lease(), "Requests for the Lease succeed again");
        }
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }

    fn wall(&self) -> Timestamp {
        let (wall, since) = self.wall;
        SignedDuration::try_from(since.elapsed())
            .ok()
            .and_then(|passed| wall.checked_add(passed).ok())
            .unwrap_or(wall)
    }
}
