//! Follows a watch on the adapter.
//!
//! The protocol is a pure state machine in `protocol`; `sources` names the three watches of the contract; here is only the
//! stream around them. Does not judge what is gone: that an item left the mirror proves nothing.

mod protocol;
mod sources;

use std::time::Duration;

use cloud_api_proto::AdapterError;
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
    adapter::{Adapter, is_caller_refused, is_unreachable, typed},
    outage::Outage,
};

/// Bookmarks come at least every 30 s: three missed ones mean that the connection is dead.
const SILENCE: Duration = Duration::from_secs(90);

/// When a watch breaks that told of the content, that alone is no outage (the adapter may be replaced): the next attempt tells. So many
/// in a row that did not hold are one: an adapter that breaks off each time is not there. An attempt that takes long to fail has
/// told nothing.
const SHORT_LIVED: u32 = 3;
/// A watch that held for so long begins a new row.
const STEADY: Duration = Duration::from_secs(10);
/// The pause before that attempt.
const RECONNECT: Duration = Duration::from_millis(250);

/// What ended a session of the watch.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("{}", .0.message)]
    Unreachable(AdapterError),
    #[error("it does not let this controller in: {0}")]
    Refused(AdapterError),
    #[error(transparent)]
    Adapter(AdapterError),
    #[error("the adapter ended the watch")]
    Ended,
    #[error("nothing heard from the adapter for {} s", SILENCE.as_secs())]
    Silent,
    #[error("the adapter broke the watch protocol: {0}")]
    Protocol(#[from] Violation),
}

impl From<AdapterError> for Broken {
    fn from(error: AdapterError) -> Self {
        if is_caller_refused(error.reason) {
            Self::Refused(error)
        } else if is_unreachable(&error) {
            Self::Unreachable(error)
        } else {
            Self::Adapter(error)
        }
    }
}

impl Broken {
    /// Whether this is what is seen of an adapter that another one takes the place of. One that is there and says nothing is not.
    fn may_be_replaced(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Adapter(_) | Self::Ended => true,
            Self::Silent | Self::Protocol(_) | Self::Refused(_) => false,
        }
    }
}

impl<T: PartialEq + Send + Sync> Mirror<String, T> {
    /// Keeps this mirror in step with the adapter, whatever happens to the connection. Never ends; drop it to stop.
    ///
    /// `trim` keeps of an item what the controller uses. `wake` is called for each item whose trimmed form changed, after the
    /// mirror shows it; it must not block. While a listing runs, or the adapter is away, the old content stays in force.
    /// Cost: no vendor call of its own.
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
                Session { mirror: self, protocol: &mut protocol, outage: &mut outage, heard: None };
            let broken = session.run(adapter, &source, &trim, &mut wake).await;
            let held = session.heard.map(|heard| heard.elapsed());
            short_lived =
                if held.is_some_and(|held| held >= STEADY) { 0 } else { short_lived.saturating_add(1) };
            protocol.disconnected(matches!(broken, Broken::Protocol(_)));
            if held.is_some() && short_lived < SHORT_LIVED && broken.may_be_replaced() {
                debug!(mirror = self.what(), error = %broken, "The watch broke, connects again");
                tokio::time::sleep(RECONNECT).await;
                continue;
            }
            let told = match &broken {
                Broken::Adapter(error) => error.retry_after,
                Broken::Unreachable(_)
                | Broken::Refused(_)
                | Broken::Ended
                | Broken::Silent
                | Broken::Protocol(_) => None,
            };
            let pause = outage.failed(&broken.to_string());
            tokio::time::sleep(told.unwrap_or(pause).clamp(pause, SILENCE)).await;
        }
    }
}

/// One connection's worth of watching.
struct Session<'a, T> {
    mirror: &'a Mirror<String, T>,
    protocol: &'a mut Protocol<T>,
    outage: &'a mut Outage,
    /// When this connection first told of the content in force.
    heard: Option<Instant>,
}

impl<T: PartialEq + Send + Sync> Session<'_, T> {
    /// Runs until something breaks; returns what.
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
            let message = match tokio::time::timeout(SILENCE, stream.message()).await {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) => return Broken::Ended,
                Ok(Err(status)) => return typed(&status).into(),
                Err(_elapsed) => return Broken::Silent,
            };
            // An event of a newer contract is none of ours.
            let Some(event) = source.event(message) else { continue };
            // Before anything of it shows in the mirror.
            if let Event::Reset(scope) = &event {
                adapter.scope().heard(scope.as_ref());
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
            warn!(mirror = mirror.what(), %from, %to, "The adapter looks at another part of the cloud now");
        }
        if effects.alive {
            if self.heard.is_none() {
                self.heard = Some(Instant::now());
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
                info!(mirror = mirror.what(), objects = mirror.read(|content| content.len()), "Listed");
            }
            mirror.mark_synced();
        }
        effects.changes.into_iter().for_each(wake);
        Ok(())
    }
}
