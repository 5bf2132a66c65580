//! Raises the priority of work when more urgent waiters join. The work keeps its purpose, but its queued call gets the priority of these
//! waiters.
//!
//! Shared work instead takes over the purpose of the most urgent waiter; see `waiters`.

use cloud_api_proto::v1alpha1::Priority;
use tokio::sync::watch;

use super::{Purpose, urgency::classed};

/// The priority that waiters request for the work of a session.
#[derive(Clone, Debug)]
pub(super) struct RaisedPriority {
    priority: watch::Receiver<Priority>,
    /// The class of the work, if it limits the priority. `None`: the requested priority is not limited.
    class: Option<Priority>,
}

impl RaisedPriority {
    pub(super) fn new(priority: watch::Receiver<Priority>, class: Option<Priority>) -> Self {
        Self { priority, class }
    }

    /// Returns the purpose with the requested priority, if the requested priority is higher.
    pub(super) fn raise(&self, purpose: Purpose) -> Purpose {
        let requested = *self.priority.borrow();
        let raised = Purpose { priority: requested, ..purpose };
        let Purpose { priority, .. } = classed(&raised, self.class.unwrap_or(requested));
        Purpose { priority: priority.max(purpose.priority), ..raised }
    }

    fn changes(&self) -> watch::Receiver<Priority> {
        let mut changes = self.priority.clone();
        changes.mark_unchanged();
        changes
    }
}

/// Waits for changes that may affect the priority of a queued call.
#[derive(Debug)]
pub(super) struct PriorityChange {
    joined: Option<watch::Receiver<()>>,
    priority: Option<watch::Receiver<Priority>>,
}

impl PriorityChange {
    pub(super) fn new(joined: Option<watch::Receiver<()>>, raised: Option<&RaisedPriority>) -> Self {
        Self { joined, priority: raised.map(RaisedPriority::changes) }
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            () = changed(self.joined.as_mut()) => (),
            () = changed(self.priority.as_mut()) => (),
        }
    }
}

/// Waits for a change. Waits forever if there is no sender.
async fn changed<T>(receiver: Option<&mut watch::Receiver<T>>) {
    if let Some(receiver) = receiver
        && receiver.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
