//! The connection state of a peer (API server, adapter), and the rules for logging it.
//!
//! An outage is logged when it begins, at intervals while it lasts, and when it ends, so that an outage does not flood the log.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{sync::watch, time::Instant};
use tracing::{info, warn};

use crate::Clock;

/// Interval at which an outage is logged again while it lasts.
const REMIND: Duration = Duration::from_mins(1);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two attempts. The controller notices within this time that a peer is back.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The state of the connection to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// No connection was tried yet.
    #[default]
    Starting,
    /// The last exchange succeeded.
    Up,
    /// The peer is unreachable, or does not serve.
    Down {
        /// Wall-clock time of the first failure.
        since: Timestamp,
        /// The last error.
        error: Arc<str>,
    },
}

impl Link {
    /// Whether the last exchange succeeded.
    #[must_use]
    pub fn is_up(&self) -> bool {
        *self == Self::Up
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("not reached yet"),
            Self::Up => f.write_str("reachable"),
            Self::Down { since, error } => write!(f, "unavailable since {since:.0}: {error}"),
        }
    }
}

/// Tracks the connection to one peer: the state, the pause before the next attempt, and what is logged.
#[derive(Debug)]
pub(crate) struct Outage {
    /// The peer's name in logs, such as `cloud adapter`.
    peer: &'static str,
    clock: Clock,
    failures: u32,
    began: Option<Instant>,
    logged: Option<Instant>,
    link: watch::Sender<Link>,
}

impl Outage {
    pub(crate) fn new(peer: &'static str, clock: Clock, link: watch::Sender<Link>) -> Self {
        Self { peer, clock, failures: 0, began: None, logged: None, link }
    }

    /// Records a failed attempt and returns the pause before the next one.
    pub(crate) fn failed(&mut self, error: &str) -> Duration {
        let now = Instant::now();
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        let began = *self.began.get_or_insert(now);
        if self.logged.is_none_or(|at| now.duration_since(at) >= REMIND) {
            self.logged = Some(now);
            let waited = now.duration_since(began);
            warn!(
                peer = self.peer,
                error,
                waited_seconds = waited.as_secs(),
                "Cannot reach the \
                 peer; retrying"
            );
        }
        let wall = self.clock.now();
        self.link.send_if_modified(|link| {
            let since = if let Link::Down { since, .. } = link { *since } else { wall };
            let down = Link::Down { since, error: error.into() };
            let changed = *link != down;
            *link = down;
            changed
        });
        pause
    }

    pub(crate) fn answered(&mut self) {
        self.failures = 0;
        self.logged = None;
        if let Some(began) = self.began.take() {
            info!(peer = self.peer, away_seconds = began.elapsed().as_secs(), "The peer is reachable again");
        }
        self.link.send_if_modified(|link| {
            let changed = !link.is_up();
            *link = Link::Up;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage() -> (Outage, watch::Receiver<Link>) {
        let (link, seen) = watch::channel(Link::Starting);
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
        (Outage::new("cloud adapter", clock, link), seen)
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_a_limit_and_reset_after_an_answer() {
        let (mut outage, _seen) = outage();
        let pauses: Vec<_> = (0..8).map(|_| outage.failed("refused").as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        outage.answered();
        assert_eq!(outage.failed("refused"), FIRST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_link_remembers_when_the_outage_began() {
        let (mut outage, seen) = outage();
        outage.failed("refused");
        tokio::time::advance(Duration::from_secs(30)).await;
        outage.failed("timed out");
        let text = seen.borrow().to_string();
        assert_eq!(text, "unavailable since 2026-01-01T00:00:00Z: timed out");
        outage.answered();
        assert!(seen.borrow().is_up());
    }
}
