//! The lock and the clock for concurrent access to a [`Cloud`].

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::{Cloud, Moment};

/// A running cloud. Clones share the cloud.
///
/// The clock is tokio's, so that tests can pause and advance it.
#[derive(Clone, Debug)]
pub struct SharedCloud {
    cloud: Arc<Mutex<Cloud>>,
    switched_on: Instant,
}

impl SharedCloud {
    /// Starts the clock of the cloud.
    pub fn new(cloud: Cloud) -> Self {
        Self { cloud: Arc::new(Mutex::new(cloud)), switched_on: Instant::now() }
    }

    /// Calls `work` with the cloud and the current time. `work` must be short, because all other callers wait until it ends.
    pub fn with<R>(&self, work: impl FnOnce(&mut Cloud, Moment) -> R) -> R {
        let now = self.switched_on.elapsed();
        // A panic in one caller must not make the cloud unusable for the other callers.
        let mut cloud = self.cloud.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut cloud, now)
    }
}
