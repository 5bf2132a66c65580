//! The automatic refresh of a collection. This module decides when a listing is due, and runs the task that lists.

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
    leadership::{Duty, Replica},
    vendor::{Purpose, Vendor},
};

const RETRY: Duration = Duration::from_secs(5);

impl<T: Item> Snapshot<T> {
    /// Lists whenever a listing is due, provided that there are watches and this replica leads. Never ends.
    ///
    /// `who` identifies the adapter among the adapters that share the account, for example by its cluster. It shifts the times of listings,
    /// so that these adapters do not list simultaneously.
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
                // A watch needs a fresher listing.
                Some((began, _)) if Some(*began) < state.wanted => Instant::now(),
                attempt => due(attempt.as_ref(), period, origin),
            });
            if !wanted || due > Instant::now() {
                tokio::select! {
                    () = tokio::time::sleep_until(due), if wanted => (),
                    // There is a new watch, the settings have changed, or a reader has listed.
                    _ = changed.changed() => (),
                    () = turned(&mut duty) => (),
                }
                continue;
            }
            let session = vendor.session(Purpose::own(Priority::Background, "refresh"));
            match self.at_least(Some(Instant::now()), source, &session).await {
                Ok(_) if failing => {
                    failing = false;
                    tracing::info!(collection = T::COLLECTION, "Listed the collection again after failures");
                }
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(collection = T::COLLECTION, %error, "Cannot list the collection; \
                    continuing with the previous listing");
                }
                Ok(_) | Err(_) => (),
            }
        }
    }
}

/// Waits until the duty changes. Waits forever if the sender is gone, which happens only after a panic.
async fn turned(duty: &mut signal::Receiver<Duty>) {
    if duty.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Returns the time of the next listing. The first attempt is made at once. After a success, the next listing is at the next tick. After a
/// failure, it follows the vendor's delay, but not sooner than `RETRY`.
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

/// Returns the first tick after a time. Listings by readers do not move the ticks.
fn tick_after(at: Instant, period: Duration, origin: Instant) -> Instant {
    let nanos = |duration: Duration| i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
    let since = nanos(at.saturating_duration_since(origin)) - nanos(origin.saturating_duration_since(at));
    let rest = nanos(period) - since.rem_euclid(nanos(period).max(1));
    at + u64::try_from(rest).map_or(period, Duration::from_nanos)
}

/// Returns a fraction of the period that depends only on these strings.
fn phase(words: &[&str], period: Duration) -> Duration {
    let digest = words.iter().fold(Sha256::new(), |digest, word| digest.chain_update(word).chain_update([0]));
    let number = digest.finalize().iter().take(4).fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
    period.mul_f64(f64::from(number) / (f64::from(u32::MAX) + 1.0))
}
