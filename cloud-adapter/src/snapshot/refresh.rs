//! When a collection is listed again by itself, and the one task that does it.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use cloud_api_proto::{AdapterError, v1alpha1::Priority};
use sha2::{Digest as _, Sha256};
use tokio::{sync::watch as signal, time::Instant};

use super::Snapshot;
use crate::{
    driver::{Collection, Item, VendorError},
    replica::{Duty, Replica},
    vendor::{Purpose, Vendor},
};

/// How soon a failed listing is tried again.
const RETRY: Duration = Duration::from_secs(5);

impl<T: Item> Snapshot<T> {
    /// Lists again whenever it is due, somebody watches and this replica leads. Never ends.
    ///
    /// `who` names this adapter among those that share the account, such as by its cluster: it shifts the ticks, so that they do not
    /// all list at once.
    pub(crate) async fn keep_fresh(
        &self,
        source: &impl Collection<T>,
        vendor: &Arc<Vendor>,
        replica: &Replica,
        who: &str,
    ) {
        let started = Instant::now();
        let (mut changed, mut duty) = (self.revision.subscribe(), replica.subscribe());
        let mut failing = false;
        loop {
            let wanted = self.watches.any() && replica.leads();
            let pages = self.with(|state| state.pages).unwrap_or(1);
            let period = self.settings().period(vendor.rate(T::FAMILY), pages);
            *self.target.lock().unwrap_or_else(PoisonError::into_inner) = wanted.then_some(period);
            let origin = started + phase(&[who, T::COLLECTION], period);
            let due = self.with(|state| match &state.attempt {
                // A watcher wants it fresher.
                Some((began, _)) if Some(*began) < state.wanted => Instant::now(),
                attempt => due(attempt.as_ref(), period, origin),
            });
            if !wanted || due > Instant::now() {
                tokio::select! {
                    () = tokio::time::sleep_until(due), if wanted => (),
                    // A new watcher, other settings, or a listing that a reader made.
                    _ = changed.changed() => (),
                    () = turned(&mut duty) => (),
                }
                continue;
            }
            let session = vendor.session(Purpose::own(Priority::Background, "refresh"));
            match self.at_least(Some(Instant::now()), source, &session).await {
                Ok(_) if failing => {
                    failing = false;
                    tracing::info!(collection = T::COLLECTION, "Listing works again");
                }
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(collection = T::COLLECTION, %error, "Listing failed: the old one stays");
                }
                Ok(_) | Err(_) => (),
            }
        }
    }
}

/// Until the duty changes. Only a broken adapter has nobody left who could change it.
async fn turned(duty: &mut signal::Receiver<Duty>) {
    if duty.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// When the next listing is due: at once if there was none, at the next tick after one, sooner after one that failed.
fn due(attempt: Option<&(Instant, Option<VendorError>)>, period: Duration, origin: Instant) -> Instant {
    match attempt {
        None => origin.min(Instant::now()),
        Some((at, Some(error))) => {
            let asked = AdapterError::from(error.clone()).retry_after.unwrap_or_default();
            at.checked_add(asked.max(RETRY)).unwrap_or(*at + RETRY)
        }
        Some((at, None)) => tick_after(*at, period, origin),
    }
}

/// The first tick after a moment. A listing that somebody else asked for does not move the ticks.
fn tick_after(at: Instant, period: Duration, origin: Instant) -> Instant {
    let nanos = |duration: Duration| i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
    let since = nanos(at.saturating_duration_since(origin)) - nanos(origin.saturating_duration_since(at));
    let rest = nanos(period) - since.rem_euclid(nanos(period).max(1));
    at + u64::try_from(rest).map_or(period, Duration::from_nanos)
}

/// A part of the period that depends on nothing but these words.
fn phase(words: &[&str], period: Duration) -> Duration {
    let digest = words.iter().fold(Sha256::new(), |digest, word| digest.chain_update(word).chain_update([0]));
    let number = digest.finalize().iter().take(4).fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
    period.mul_f64(f64::from(number) / (f64::from(u32::MAX) + 1.0))
}
