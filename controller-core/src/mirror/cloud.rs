//! Keeps a mirror up to date by a watch on the adapter.
//!
//! The protocol is a pure state machine in `protocol`. `sources` defines the three watches of the contract. This module handles the stream.
//! The absence of an item in the mirror does not prove that the item is gone.

mod protocol;
mod sources;

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use self::protocol::Protocol;
#[cfg(any(test, feature = "testing"))]
pub(crate) use self::protocol::checksum;
pub use self::{
    protocol::{Event, Violation},
    sources::{Instances, LoadBalancers, Routes, Source},
};
use super::{Change, Mirror};
use crate::{
    adapter::{Adapter, ScopeGuard, is_caller_refused, is_unreachable, typed},
    outage::Outage,
};

/// The time without messages after which the connection counts as dead. Bookmarks arrive at least every 30 s, so by then three bookmarks
/// are missing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Number of consecutive short-lived watches that count as an outage. A single broken watch does not count, because the adapter may be in
/// the process of being replaced. The lifetime of a watch begins when the content is first confirmed. An attempt that fails late but
/// without any content is therefore short-lived, too.
const SHORT_LIVED: u32 = 3;
/// The lifetime of a watch that resets the count of short-lived watches.
const STEADY: Duration = Duration::from_secs(10);
/// The pause before the next attempt to open the watch.
const RECONNECT: Duration = Duration::from_millis(250);

#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("{}", .0.message)]
    Unreachable(AdapterError),
    /// The adapter is starting, and its message names what it waits for.
    #[error("{}", .0.message)]
    Starting(AdapterError),
    #[error("the adapter denies this controller access: {0}")]
    Refused(AdapterError),
    #[error(transparent)]
    Adapter(AdapterError),
    #[error("the adapter ended the watch")]
    Ended,
    #[error("no message from the adapter for {} s", IDLE_TIMEOUT.as_secs())]
    Silent,
    #[error("the adapter broke the watch protocol: {0}")]
    Protocol(#[from] Violation),
}

impl From<AdapterError> for Broken {
    fn from(error: AdapterError) -> Self {
        if is_caller_refused(error.reason) {
            Self::Refused(error)
        } else if error.reason == Reason::Starting {
            Self::Starting(error)
        } else if is_unreachable(&error) {
            Self::Unreachable(error)
        } else {
            Self::Adapter(error)
        }
    }
}

impl Broken {
    /// Returns whether a replacement of the adapter may be the cause. An adapter that is connected but silent is not being replaced.
    fn may_be_replaced(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Starting(_) | Self::Adapter(_) | Self::Ended => true,
            Self::Silent | Self::Protocol(_) | Self::Refused(_) => false,
        }
    }
}

impl<T: PartialEq + Send + Sync> Mirror<String, T> {
    /// Keeps this mirror up to date with the adapter, and reconnects after failures. Never returns; drop the future to stop.
    ///
    /// `trim` reduces an item to the fields that the controller uses. `wake` is called for each item whose trimmed form changed, after the
    /// mirror shows the change; it must not block. While a listing is in progress, or the adapter is unreachable, the old content stays.
    /// This function causes no vendor calls of its own.
    pub async fn follow_cloud<S: Source>(
        &self,
        adapter: &Adapter,
        source: S,
        trim: impl Fn(S::Item) -> T,
        mut wake: impl FnMut(Change<String, T>),
    ) {
        let mut outage = Outage::new("cloud adapter", self.inner.clock, self.inner.link.clone());
        let mut protocol = Protocol::default();
        let mut short_lived: u32 = 0;
        loop {
            let mut session =
                Session { mirror: self, protocol: &mut protocol, outage: &mut outage, confirmed: None };
            let broken = session.run(adapter, &source, &trim, &mut wake).await;
            let held = session.confirmed.map(|at| at.elapsed());
            short_lived =
                if held.is_some_and(|held| held >= STEADY) { 0 } else { short_lived.saturating_add(1) };
            protocol.disconnected(matches!(broken, Broken::Protocol(_)));
            if held.is_some() && short_lived < SHORT_LIVED && broken.may_be_replaced() {
                debug!(mirror = self.what(), error = %broken, "The watch on the cloud adapter failed; reconnecting");
                tokio::time::sleep(RECONNECT).await;
                continue;
            }
            let retry_after = match &broken {
                Broken::Starting(error) | Broken::Adapter(error) => error.retry_after,
                Broken::Unreachable(_)
                | Broken::Refused(_)
                | Broken::Ended
                | Broken::Silent
                | Broken::Protocol(_) => None,
            };
            let pause = outage.failed(&broken.to_string());
            tokio::time::sleep(retry_after.unwrap_or(pause).clamp(pause, IDLE_TIMEOUT)).await;
        }
    }
}

impl ScopeGuard {
    /// Reads a mirror of the cloud in order to write to Kubernetes. Returns an error while the adapter works in another scope, or while the
    /// mirror still shows another scope.
    pub fn read_mirror<T, R>(
        &self,
        mirror: &Mirror<String, T>,
        read: impl FnOnce() -> R,
    ) -> Result<R, AdapterError> {
        // If the adapter moves to another scope during `read`, the second check fails: this guard learns the new scope before the mirror
        // shows any content of that scope. The mirror's own scope changes only afterwards.
        self.may_show(mirror.scope().as_deref())?;
        let content = read();
        self.may_change()?;
        Ok(content)
    }
}

/// A session of the watch on one connection.
struct Session<'a, T> {
    mirror: &'a Mirror<String, T>,
    protocol: &'a mut Protocol<T>,
    outage: &'a mut Outage,
    /// The time when this connection first confirmed the content.
    confirmed: Option<Instant>,
}

impl<T: PartialEq + Send + Sync> Session<'_, T> {
    /// Runs until the watch breaks, and returns the cause.
    async fn run<S: Source>(
        &mut self,
        adapter: &Adapter,
        source: &S,
        trim: &impl Fn(S::Item) -> T,
        wake: &mut impl FnMut(Change<String, T>),
    ) -> Broken {
        let opened = adapter.stream(S::CALL, source.open(adapter, self.protocol.token().to_owned())).await;
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(error) => return error.into(),
        };
        loop {
            let message = match tokio::time::timeout(IDLE_TIMEOUT, stream.message()).await {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) => return Broken::Ended,
                Ok(Err(status)) => return typed(&status).into(),
                Err(_elapsed) => return Broken::Silent,
            };
            // Events that only a newer version of the contract defines are ignored.
            let Some(event) = source.event(message) else { continue };
            // The scope is set before the mirror shows any item of the new scope.
            if let Event::Reset(scope) = &event {
                adapter.scope().report(scope.as_ref());
            }
            if let Err(violation) = self.take(event.map(trim), wake) {
                return violation.into();
            }
        }
    }

    fn take(&mut self, event: Event<T>, wake: &mut impl FnMut(Change<String, T>)) -> Result<(), Violation> {
        let mirror = self.mirror;
        let effects = mirror.write(|content| self.protocol.step(content, event))?;
        if let Some((from, to)) = &effects.moved {
            warn!(mirror = mirror.what(), %from, %to, "The scope of the adapter's credentials changed");
        }
        if effects.alive {
            if self.confirmed.is_none() {
                self.confirmed = Some(Instant::now());
                mirror
                    .inner
                    .connections
                    .send_modify(|connections| *connections = connections.wrapping_add(1));
            }
            self.outage.answered();
        }
        if let Some(at) = effects.observed {
            mirror.mark_observed(at);
        }
        if effects.synced {
            mirror.mark_scope(self.protocol.scope().map(str::to_owned));
            if !mirror.is_synced() {
                info!(
                    mirror = mirror.what(),
                    objects = mirror.read(|content| content.len()),
                    "The copy of the cloud's objects is complete"
                );
            }
            mirror.mark_synced();
        }
        effects.changes.into_iter().for_each(wake);
        Ok(())
    }
}
