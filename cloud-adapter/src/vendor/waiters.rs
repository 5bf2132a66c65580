//! Those who wait for one piece of work: it is done in the name of the most urgent of them, and until the last of them stops waiting.
//!
//! Who pays is decided purely in [`payer`]. Each waits until its own deadline, and is sent away by it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use super::{
    Purpose, Session,
    place::{Place as Spot, Standing},
    translate,
};
use crate::driver::VendorError;

/// Everybody who waits now.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    inner: Mutex<Inner>,
    joined: watch::Sender<()>,
    /// Where the work stands that they wait for.
    spot: Spot,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    /// By number: in the order in which they came.
    places: BTreeMap<u64, Place>,
}

#[derive(Debug)]
struct Place {
    session: Session,
    told: oneshot::Sender<VendorError>,
}

/// One who waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Arc<Waiters>,
    number: u64,
    refused: oneshot::Receiver<VendorError>,
    /// What this one waits for is what the shared work waits for.
    _stands: Option<Standing>,
}

impl Waiters {
    /// From now on the work is done for this one, too.
    pub(crate) fn join(self: &Arc<Self>, session: &Session) -> Waiter {
        let (told, refused) = oneshot::channel();
        let number = self.with(|inner| {
            inner.last += 1;
            inner.places.insert(inner.last, Place { session: session.clone(), told });
            inner.last
        });
        self.joined.send_replace(());
        let stands = session.place.as_ref().map(|place| place.with(&self.spot));
        Waiter { waiters: Arc::clone(self), number, refused, _stands: stands }
    }

    /// Where the work stands that they wait for.
    pub(super) fn place(&self) -> &Spot {
        &self.spot
    }

    /// In whose name the work is done. `None`: nobody waits.
    pub(super) fn payer(&self) -> Option<Purpose> {
        self.with(|inner| payer(inner.places.values().map(|place| place.session.payer())))
    }

    /// Tells when somebody joins.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.joined.subscribe()
    }

    /// Refuses those who wait in vain. `late`: whether the work comes too late for a deadline; then before when it is not done, and why.
    pub(super) fn send_away(&self, late: impl FnOnce(Instant) -> Option<(Instant, VendorError)>) {
        let Some((expected, error)) = self.first_deadline().and_then(late) else { return };
        self.refuse(expected, &error);
    }

    fn first_deadline(&self) -> Option<Instant> {
        self.with(|inner| inner.places.values().filter_map(Place::first_deadline).min())
    }

    fn refuse(&self, expected: Instant, error: &VendorError) {
        let late = self.with(|inner| {
            let late = |_: &u64, place: &mut Place| match &place.session.waiters {
                Some(waiters) => {
                    waiters.refuse(expected, error);
                    false
                }
                None => place.session.purpose.deadline.is_some_and(|deadline| deadline < expected),
            };
            inner.places.extract_if(.., late).collect::<Vec<_>>()
        });
        for (_, place) in late {
            // Whoever waited may have left.
            place.told.send(error.clone()).ok();
        }
    }

    /// Those who wait for the session's work wait for this, too: whoever joins them is seen here. Never ends.
    pub(crate) async fn follow(&self, session: &Session) {
        let mut news = session.news();
        loop {
            news.next().await;
            self.joined.send_replace(());
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Inner) -> R) -> R {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Place {
    fn first_deadline(&self) -> Option<Instant> {
        match &self.session.waiters {
            Some(waiters) => waiters.first_deadline(),
            None => self.session.purpose.deadline,
        }
    }
}

impl Waiter {
    /// Until the work is known to come too late for this one.
    pub(crate) async fn refused(&mut self) -> VendorError {
        match (&mut self.refused).await {
            Ok(error) => error,
            Err(_never) => std::future::pending().await,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let left = self.waiters.with(|inner| inner.places.remove(&self.number));
        drop(left);
    }
}

/// The most urgent, who came first of those, until the latest deadline of all. Of the same urgency, who may use the reserve.
fn payer(waiting: impl IntoIterator<Item = Purpose>) -> Option<Purpose> {
    waiting.into_iter().reduce(|one, other| {
        let deadline = one.deadline.zip(other.deadline).map(|(one, other)| one.max(other));
        let urgency = |purpose: &Purpose| (purpose.priority, translate::may_use_reserve(purpose));
        let most_urgent = if urgency(&other) > urgency(&one) { other } else { one };
        Purpose { deadline, ..most_urgent }
    })
}
