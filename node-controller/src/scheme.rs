//! The scheme of this cloud's provider IDs, which the adapter reports each time it connects.

use std::{sync::Arc, time::Duration};

use controller_core::{Link, adapter::Adapter, mirror::Mirror};
use tokio::{sync::watch, time::sleep};
use tracing::{info, warn};

use crate::plan::Instance;

/// Pause before the controller asks again if the adapter has not reported the scheme.
const SCHEME_RETRY: Duration = Duration::from_secs(5);

/// The part of this cloud's provider IDs before `://`. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scheme(Arc<watch::Sender<Option<Arc<str>>>>);

impl Scheme {
    /// Returns `None` until the adapter has reported the scheme.
    pub(crate) fn get(&self) -> Option<Arc<str>> {
        self.0.borrow().clone()
    }

    /// Returns a receiver that reports when the scheme changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.0.subscribe()
    }

    /// Asks the adapter after each new connection, since another adapter may have answered. Cost: no vendor call.
    pub(crate) async fn follow(&self, instances: &Mirror<String, Instance>, adapter: &Adapter) {
        let (mut links, mut connections) = (instances.links(), instances.connections());
        // Waiting fails only when the process stops, because the cache owns the senders.
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
                    warn!(
                        "The cloud adapter does not report the scheme of its provider IDs; no node \
                        is deleted until the scheme is known"
                    );
                }
                Ok(info) => return self.set(info.provider),
                Err(error) => {
                    warn!(%error, "Cannot get the provider ID scheme from the cloud adapter; retrying");
                }
            }
            sleep(SCHEME_RETRY).await;
        }
    }

    fn set(&self, scheme: String) {
        self.0.send_if_modified(|known| {
            let changes = known.as_deref() != Some(scheme.as_str());
            if changes {
                info!(scheme, "Learned the provider ID scheme of this cloud");
                *known = Some(scheme.into());
            }
            changes
        });
    }
}
