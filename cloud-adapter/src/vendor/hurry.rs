//! Work that others come to wait for in more of a hurry: it stays in its own name, and a call of it that is queued goes as fast as
//! theirs would.
//!
//! Of shared work, which is done in the name of the most urgent, `waiters` knows.

use cloud_api_proto::v1alpha1::Priority;
use tokio::sync::watch;

use super::Purpose;
use crate::urgency::classed;

/// How urgently the work of a session is asked for now.
#[derive(Clone, Debug)]
pub(super) struct Hurry {
    asked: watch::Receiver<Priority>,
    /// What the work is, if that decides how urgent it is. `None`: as urgent as asked.
    class: Option<Priority>,
}

impl Hurry {
    pub(super) fn new(asked: watch::Receiver<Priority>, class: Option<Priority>) -> Self {
        Self { asked, class }
    }

    /// The purpose, raised in its priority if more is asked for.
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

/// Tells when a queued call may have become more urgent.
#[derive(Debug)]
pub(super) struct News {
    joined: Option<watch::Receiver<()>>,
    asked: Option<watch::Receiver<Priority>>,
}

impl News {
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

/// Never, if there is nobody who could change it.
async fn changed<T>(news: Option<&mut watch::Receiver<T>>) {
    if let Some(news) = news
        && news.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
