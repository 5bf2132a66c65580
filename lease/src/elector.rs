//! Carries out what the candidate decides, and tells everybody who leads.

use std::sync::Arc;

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
    candidate::{Acquisition, Candidate, Step},
    member::{Act, Member},
    record::{self, Notes, Record},
    settings::{Settings, SettingsError},
};

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// This process does.
    Leader {
        /// Acts of a leader end then: whoever acts compares it with the clock itself. Moves on with each renewal.
        valid_until: Instant,
        /// Names the term: greater than that of every term before. See [`Record::epoch`].
        epoch: u64,
        /// The epoch of this process's first term since which nobody else had one.
        since: u64,
        /// The UID of the Lease, by which Events refer to it.
        uid: Arc<str>,
    },
    /// This process does not.
    Follower {
        /// Who does. `None`: nobody, or we do not know yet.
        holder: Option<String>,
    },
}

/// Takes part in the election for one Lease.
pub struct Elector {
    api: LeaseApi,
    settings: Settings,
    candidate: Candidate,
    told: watch::Sender<Leadership>,
    beats: watch::Sender<Instant>,
    changes: Option<Changes>,
    opening: Option<Opening>,
    /// A watch is opened at most once a look: one that fails is no reason to hurry.
    may_watch: bool,
    /// Wall-clock time, for people and for epochs: as it was at the start, plus what passed since. So it never stands still or jumps back,
    /// and a renewal always differs from the one before.
    wall: (Timestamp, Instant),
    /// The last failure that was told.
    trouble: Option<String>,
    /// Our part in sharing out many Leases, if this is one of them.
    member: Option<Member>,
}

/// A watch that is being opened.
type Opening = BoxFuture<'static, Result<Changes, Error>>;

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector").field("candidate", &self.candidate).finish_non_exhaustive()
    }
}

impl Elector {
    /// Asks nothing yet. `wall` is the time of day now, for the times in the Lease.
    ///
    /// # Errors
    /// Settings that cannot be used.
    pub fn new(
        client: Client,
        settings: Settings,
        wall: Timestamp,
    ) -> Result<(Self, watch::Receiver<Leadership>), SettingsError> {
        settings.check()?;
        Ok(Self::of(client, settings, wall, None))
    }

    /// With settings that were checked.
    pub(crate) fn of(
        client: Client,
        settings: Settings,
        wall: Timestamp,
        member: Option<Member>,
    ) -> (Self, watch::Receiver<Leadership>) {
        let now = Instant::now();
        let (told, leadership) = watch::channel(Leadership::Follower { holder: None });
        let elector = Self {
            api: LeaseApi::new(client, &settings),
            candidate: Candidate::new(&settings.identity, settings.timing, now),
            settings,
            told,
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

    /// When it last decided what comes next: no longer ago than a call or a pause takes, or it is stuck.
    #[must_use]
    pub fn beats(&self) -> watch::Receiver<Instant> {
        self.beats.subscribe()
    }

    /// Takes part until told to stop; then gives the lease back, if we hold it.
    ///
    /// Cost: one request each two seconds, and one watch while somebody else leads.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let now = Instant::now();
            self.beats.send_replace(now);
            let act = match &mut self.member {
                None => Act::Step(self.candidate.decide(now)),
                Some(member) => member.decide(&self.candidate, now),
            };
            self.tell();
            match act {
                Act::Step(Step::Look) => self.look().await,
                Act::Step(Step::Acquire(acquisition)) => self.acquire(acquisition).await,
                Act::Step(Step::Renew { version }) => self.renew(&version, &Notes::new()).await,
                Act::Step(Step::Lost(why)) => {
                    tracing::warn!(lease = %self.lease(), %why, "No longer the leader");
                    self.resign();
                }
                Act::Step(Step::Wait(until)) => {
                    tokio::select! {
                        () = self.wait(until) => (),
                        () = stop.cancelled() => (),
                    }
                }
                Act::RenewWith { version, notes } => self.renew(&version, &notes).await,
                Act::Note { version, notes } => self.note(&version, &notes).await,
                Act::GiveBack { why } => self.give_back(why).await,
            }
            self.tell();
        }
        self.release().await;
    }

    /// Until then, or until the Lease is seen to change while somebody else holds it, or something else changes what is to be done.
    async fn wait(&mut self, until: Instant) {
        let idle = self.candidate.term().is_some();
        let woken = OptionFuture::from(self.member.as_ref().map(Member::woken));
        tokio::select! {
            () = sleep_until(until) => (),
            Some(()) = woken => (),
            change = self.change(), if !idle => self.candidate.saw_change(Instant::now(), change),
        }
    }

    /// The next change. Pending if the Lease cannot be watched: then the next look finds out.
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

    async fn look(&mut self) {
        let started = Instant::now();
        match self.api.get().await {
            Ok(record) => {
                self.worked();
                self.may_watch = true;
                self.candidate.saw(Instant::now(), record);
                if self.changes.is_some() && self.candidate.version().is_some() {
                    self.candidate.looks_less(Instant::now());
                }
                self.looked(started);
            }
            Err(error) => {
                self.failed("get", &error);
                self.candidate.saw_nothing(started);
            }
        }
    }

    /// What the candidate knows now is no older than `started`.
    fn looked(&mut self, started: Instant) {
        if let Some(member) = &mut self.member {
            member.looked(&self.candidate, started);
        }
    }

    async fn acquire(&mut self, acquisition: Acquisition) {
        let started = Instant::now();
        let former = self.candidate.holder().map(str::to_owned);
        let mut body = record::acquisition(&self.settings, &acquisition, self.wall());
        if let Some(member) = &self.member {
            let mut notes = member.notes(acquisition.transitions);
            // What is new has none to remove.
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
            let (lease, former) = (self.lease(), former.as_deref());
            let why = match former {
                None => "nobody held the lease",
                Some(former) if former == self.settings.identity => "the lease was still ours",
                Some(_) => "the holder let the lease expire",
            };
            tracing::info!(lease, epoch, former, why, "Leader now");
        }
    }

    async fn renew(&mut self, version: &str, notes: &Notes) {
        let started = Instant::now();
        let body = record::renewal(&self.settings.timing, version, self.wall());
        let answer = self.api.patch(&record::with_notes(body, notes)).await;
        self.written(started, answer);
    }

    /// Writes annotations on a Lease that somebody else holds.
    async fn note(&mut self, version: &str, notes: &Notes) {
        let started = Instant::now();
        match self.api.patch(&record::note(version, notes)).await {
            Ok(record) => {
                self.candidate.saw(Instant::now(), Some(record));
                self.looked(started);
            }
            // Its holder renewed it meanwhile: what is seen next decides anew.
            Err(error) if error.status() == Some(409) => (),
            Err(error) => self.failed("write", &error),
        }
    }

    /// Gives the lease back and goes on.
    async fn give_back(&mut self, why: &'static str) {
        let lease = self.lease();
        self.resign();
        self.tell();
        let started = Instant::now();
        match self.empty().await {
            Ok(Some(record)) => {
                tracing::info!(lease, why, "Lease given back");
                self.candidate.saw(Instant::now(), Some(record));
                self.looked(started);
            }
            Ok(None) => self.candidate.failed(started, Instant::now()),
            Err(error) => {
                tracing::warn!(lease, %error, "Lease not given back: it expires");
                self.candidate.failed(started, Instant::now());
            }
        }
    }

    /// Empties the Lease, if it is ours. Whoever writes an annotation on it meanwhile does not keep it from that.
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
                self.candidate.wrote((started, Instant::now()), record);
                self.looked(started);
            }
            Err(error) => {
                // Somebody was faster: the next look tells who.
                if error.status() != Some(409) {
                    self.failed("write", &error);
                }
                self.candidate.failed(started, Instant::now());
            }
        }
    }

    /// Gives the lease back, also one that we hold only because the answer to its acquisition was lost.
    async fn release(mut self) {
        self.resign();
        self.tell();
        let released = self.empty().await;
        let lease = self.lease();
        match released {
            Ok(Some(_)) => tracing::info!(lease, "Lease given back"),
            Ok(None) => (),
            Err(error) => tracing::warn!(lease, %error, "Lease not given back: it expires"),
        }
    }

    /// We rely on the lease no more, and the others of this process hear of it.
    fn resign(&mut self) {
        self.candidate.resign();
        if let Some(member) = &mut self.member {
            member.resigned(&self.candidate);
        }
    }

    fn tell(&self) {
        let confirmed = self.member.as_ref().is_none_or(Member::is_confirmed);
        let now = match self.candidate.term().filter(|_| confirmed) {
            Some((epoch, valid_until)) => {
                let since = self.candidate.since();
                let since = self.member.as_ref().map_or(since, |member| member.since().max(since));
                Leadership::Leader { valid_until, epoch, since, uid: self.candidate.uid().into() }
            }
            None => Leadership::Follower { holder: self.candidate.holder().map(str::to_owned) },
        };
        self.told.send_if_modified(|told| {
            let changes = *told != now;
            *told = now;
            changes
        });
    }

    /// Says what fails, once per change.
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
                    "May not use the Lease: grant get, watch and patch on it, and create it or grant create"
                );
            }
            Some(_) | None => tracing::warn!(lease, call, error = text, "The Lease is out of reach"),
        }
        self.trouble = Some(text);
    }

    fn worked(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!(lease = self.lease(), "The Lease is within reach again");
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
