//! The callers that wait for the same work. The work has the priority of its most urgent waiter (see [`payer`]), and continues until the
//! last waiter leaves. A waiter is refused if the work will miss that waiter's deadline.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use super::error::VendorError;
use super::{
    Purpose, Session,
    position::{PositionGuard, QueuePosition},
    translate,
};

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    inner: Mutex<Inner>,
    joined: watch::Sender<()>,
    position: QueuePosition,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    /// The waiters, keyed by a number that grows in the sequence of arrival.
    waiting: BTreeMap<u64, Registration>,
}

#[derive(Debug)]
struct Registration {
    session: Session,
    refusal: oneshot::Sender<VendorError>,
}

/// The registration of a waiter, which lasts until this value is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Arc<Waiters>,
    number: u64,
    refused: oneshot::Receiver<VendorError>,
    /// While this guard exists, the waiter reports the queue position of the shared work.
    _position: Option<PositionGuard>,
}

impl Waiters {
    pub(crate) fn join(self: &Arc<Self>, session: &Session) -> Waiter {
        let (refusal, refused) = oneshot::channel();
        let number = self.with(|inner| {
            inner.last += 1;
            inner.waiting.insert(inner.last, Registration { session: session.clone(), refusal });
            inner.last
        });
        self.joined.send_replace(());
        let position = session.position.as_ref().map(|position| position.with(&self.position));
        Waiter { waiters: Arc::clone(self), number, refused, _position: position }
    }

    pub(super) fn position(&self) -> &QueuePosition {
        &self.position
    }

    /// The purpose of the work. `None`: there are no waiters.
    pub(super) fn payer(&self) -> Option<Purpose> {
        self.with(|inner| payer(inner.waiting.values().map(|waiter| waiter.session.payer())))
    }

    /// Returns a receiver that is notified when another waiter joins.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.joined.subscribe()
    }

    /// Refuses waiters whose deadline the work will miss. `late` checks a deadline: if the work will miss it, `late` returns the expected
    /// time and the error.
    pub(super) fn refuse_late(&self, late: impl FnOnce(Instant) -> Option<(Instant, VendorError)>) {
        let Some((expected, error)) = self.first_deadline().and_then(late) else { return };
        self.refuse(expected, &error);
    }

    fn first_deadline(&self) -> Option<Instant> {
        self.with(|inner| inner.waiting.values().filter_map(Registration::first_deadline).min())
    }

    fn refuse(&self, expected: Instant, error: &VendorError) {
        let late = self.with(|inner| {
            let late = |_: &u64, waiter: &mut Registration| match &waiter.session.waiters {
                Some(waiters) => {
                    waiters.refuse(expected, error);
                    false
                }
                None => waiter.session.purpose.deadline.is_some_and(|deadline| deadline < expected),
            };
            inner.waiting.extract_if(.., late).collect::<Vec<_>>()
        });
        for (_, waiter) in late {
            // The waiter may no longer exist.
            waiter.refusal.send(error.clone()).ok();
        }
    }

    /// Notifies the subscribers of this work when the priority of the work of `session` changes. The waiters of that work also wait for
    /// this work. Never returns.
    pub(crate) async fn follow(&self, session: &Session) {
        let mut changes = session.priority_changes();
        loop {
            changes.next().await;
            self.joined.send_replace(());
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Inner) -> R) -> R {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Registration {
    fn first_deadline(&self) -> Option<Instant> {
        match &self.session.waiters {
            Some(waiters) => waiters.first_deadline(),
            None => self.session.purpose.deadline,
        }
    }
}

impl Waiter {
    pub(crate) async fn refused(&mut self) -> VendorError {
        match (&mut self.refused).await {
            Ok(error) => error,
            Err(_never) => std::future::pending().await,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let left = self.waiters.with(|inner| inner.waiting.remove(&self.number));
        drop(left);
    }
}

/// Returns the purpose of the most urgent waiter, with the latest deadline of all waiters. If several waiters have equal priority, a waiter
/// that may use the reserve takes precedence, and then the waiter that came first.
fn payer(waiting: impl IntoIterator<Item = Purpose>) -> Option<Purpose> {
    waiting.into_iter().reduce(|one, other| {
        let deadline = one.deadline.zip(other.deadline).map(|(one, other)| one.max(other));
        let urgency = |purpose: &Purpose| (purpose.priority, translate::may_use_reserve(purpose));
        let most_urgent = if urgency(&other) > urgency(&one) { other } else { one };
        Purpose { deadline, ..most_urgent }
    })
}
