//! Which provider IDs are this cloud's own: the adapter says it once for each time that it comes up.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use controller_core::{Link, adapter::Adapter};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::mirror::Mirrors;

/// Between two questions to an adapter that does not say it.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The part before `://` of this cloud's provider IDs. Cloning gives another handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Scheme(Arc<Mutex<Option<Arc<str>>>>);

impl Scheme {
    /// `None`: the adapter has not said it yet.
    pub(super) fn get(&self) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks when the adapter is there, and again with each new connection: another one may be there. Cost: no vendor call.
    pub(super) async fn follow(&self, mirrors: &Mirrors, adapter: &Adapter) {
        let (mut links, mut connections) = (mirrors.instances.links(), mirrors.instances.connections());
        // The senders live in the mirror: waiting fails only when nobody is left to care.
        while links.wait_for(Link::is_up).await.is_ok() {
            connections.mark_unchanged();
            self.ask(adapter).await;
            if connections.changed().await.is_err() {
                return;
            }
        }
    }

    async fn ask(&self, adapter: &Adapter) {
        loop {
            match adapter.get_info().await {
                Ok(info) if info.provider.is_empty() => {
                    warn!("The cloud adapter does not name its provider IDs' scheme: no node is deleted");
                }
                Ok(info) => return self.set(info.provider),
                Err(error) => {
                    warn!(%error, "The cloud adapter does not say which provider IDs are its own, asks again");
                }
            }
            sleep(ASK_AGAIN).await;
        }
    }

    fn set(&self, scheme: String) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref() != Some(scheme.as_str()) {
            info!(scheme, "Nodes with such provider IDs are this cloud's own");
            *known = Some(scheme.into());
        }
    }
}
