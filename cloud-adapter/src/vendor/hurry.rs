//! Raises the priority of work when more urgent waiters join. The work keeps its purpose, but its queued call gets the priority of these
//! waiters.
//!
//! Shared work instead takes over the purpose of the most urgent waiter; see `waiters`.

use cloud_api_proto::v1alpha1::Priority;
use tokio::sync::watch;

use super::Purpose;
use crate::urgency::classed;

/// The priority that waiters request for the work of a session.
#[derive(Clone, Debug)]
pub(super) struct Hurry {
    asked: watch::Receiver<Priority>,
    /// The class of the work, if it limits the priority. `None`: the requested priority is not limited.
    class: Option<Priority>,
}

impl Hurry {
    pub(super) fn new(asked: watch::Receiver<Priority>, class: Option<Priority>) -> Self {
        Self { asked, class }
    }

    /// The purpose with the requested priority, if that is higher.
    pub(super) fn raise(&self, purpose: Purpose) -> Purpose {
        let asked = *self.asked.borrow();
        let hurried = Purpose { priority: asked, ..purpose };
        let Purpose { priority, .. } = classed(&hurried, self.class.unwrap_or(asked));
        Purpose { priority: priority.max(purpose.priority), ..hurried }
    }

    fn asked(&self) -> watch::Receiver<Priority> {
        let mut asked = self.asked.clone();
        asked.mark_unchanged();
        asked
    }
}

/// Notifies when the priority of a queued call may have changed.
#[derive(Debug)]
pub(super) struct PriorityChange {
    joined: Option<watch::Receiver<()>>,
    asked: Option<watch::Receiver<Priority>>,
}

impl PriorityChange {
    pub(super) fn new(joined: Option<watch::Receiver<()>>, hurry: Option<&Hurry>) -> Self {
        Self { joined, asked: hurry.map(Hurry::asked) }
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            () = changed(self.joined.as_mut()) => (),
            () = changed(self.asked.as_mut()) => (),
        }
    }
}

/// Waits for a change. Waits forever if there is no sender.
async fn changed<T>(news: Option<&mut watch::Receiver<T>>) {
    if let Some(news) = news
        && news.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
