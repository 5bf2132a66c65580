//! One cloud, many callers: the lock and the clock around [`Cloud`].

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::{Cloud, Moment};

/// A running cloud. Clones are the same cloud.
///
/// The clock is tokio's, so tests pause and advance it.
#[derive(Clone, Debug)]
pub struct SharedCloud {
    cloud: Arc<Mutex<Cloud>>,
    switched_on: Instant,
}

impl SharedCloud {
    /// Switches the cloud on.
    pub fn new(cloud: Cloud) -> Self {
        Self { cloud: Arc::new(Mutex::new(cloud)), switched_on: Instant::now() }
    }

    /// Does something with the cloud as it is now. `work` must be short: all callers wait for it.
    pub fn with<R>(&self, work: impl FnOnce(&mut Cloud, Moment) -> R) -> R {
        let now = self.switched_on.elapsed();
        // A caller that panicked is no reason to take the cloud from the others.
        let mut cloud = self.cloud.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut cloud, now)
    }
}
