//! Carries out what the candidate decides, and tells everybody who leads.

use std::sync::Arc;

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
    record::{self, Record},
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
    /// A watch is opened at most once a look: one that fails is no reason to hurry.
    may_watch: bool,
    /// Wall-clock time, for people and for epochs: as it was at the start, plus what passed since. So it never stands still or jumps back,
    /// and a renewal always differs from the one before.
    wall: (Timestamp, Instant),
    /// The last failure that was told.
    trouble: Option<String>,
}

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
        let now = Instant::now();
        let (told, leadership) = watch::channel(Leadership::Follower { holder: None });
        let elector = Self {
            api: LeaseApi::new(client, &settings),
            candidate: Candidate::new(&settings.identity, settings.timing, now),
            settings,
            told,
            beats: watch::Sender::new(now),
            changes: None,
            may_watch: false,
            wall: (wall, now),
            trouble: None,
        };
        Ok((elector, leadership))
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
            self.beats.send_replace(Instant::now());
            match self.candidate.decide(Instant::now()) {
                Step::Look => self.look().await,
                Step::Acquire(acquisition) => self.acquire(acquisition).await,
                Step::Renew { version } => self.renew(&version).await,
                Step::Lost(why) => {
                    tracing::warn!(lease = %self.lease(), %why, "No longer the leader");
                    self.candidate.resign();
                }
                Step::Wait(until) => {
                    tokio::select! {
                        () = self.wait(until) => (),
                        () = stop.cancelled() => (),
                    }
                }
            }
            self.tell();
        }
        self.release().await;
    }

    /// Until then, or until the Lease is seen to change while somebody else holds it.
    async fn wait(&mut self, until: Instant) {
        let idle = self.candidate.term().is_some();
        tokio::select! {
            () = sleep_until(until) => (),
            change = self.change(), if !idle => self.candidate.saw(Instant::now(), change),
        }
    }

    /// The next change. Pending if the Lease cannot be watched: then the next look finds out.
    async fn change(&mut self) -> Option<Record> {
        if let (None, true, Some(version)) = (&self.changes, self.may_watch, self.candidate.version()) {
            self.may_watch = false;
            match self.api.watch(version).await {
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
            }
            Err(error) => {
                self.failed("get", &error);
                self.candidate.saw_nothing(started);
            }
        }
    }

    async fn acquire(&mut self, acquisition: Acquisition) {
        let started = Instant::now();
        let former = self.candidate.holder().map(str::to_owned);
        let body = record::acquisition(&self.settings, &acquisition, self.wall());
        let answer = match acquisition.version {
            Some(_) => self.api.patch(&body).await,
            None => self.api.create(body).await,
        };
        self.written(started, answer);
        if let Some((epoch, _)) = self.candidate.term() {
            self.changes = None;
            let (lease, former) = (self.lease(), former.as_deref());
            let why = match former {
                None => "nobody held the lease",
                Some(former) if former == self.settings.identity => "the lease was still ours",
                Some(_) => "the holder let the lease expire",
            };
            tracing::info!(lease, epoch, former, why, "Leader now");
        }
    }

    async fn renew(&mut self, version: &str) {
        let started = Instant::now();
        let body = record::renewal(&self.settings.timing, version, self.wall());
        let answer = self.api.patch(&body).await;
        self.written(started, answer);
    }

    fn written(&mut self, started: Instant, answer: Result<Record, Error>) {
        match answer {
            Ok(record) => {
                self.worked();
                self.candidate.wrote((started, Instant::now()), record);
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
        self.candidate.resign();
        self.tell();
        let released = match self.api.get().await {
            Ok(Some(record)) if record.holder.as_deref() == Some(self.settings.identity.as_str()) => {
                self.api.patch(&record::release(&record.version, self.wall())).await
            }
            Ok(Some(_) | None) => return,
            Err(error) => Err(error),
        };
        let lease = self.lease();
        match released {
            Ok(_) => tracing::info!(lease, "Lease given back"),
            Err(error) => tracing::warn!(lease, %error, "Lease not given back: it expires"),
        }
    }

    fn tell(&self) {
        let now = match self.candidate.term() {
            Some((epoch, valid_until)) => {
                let since = self.candidate.since();
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
