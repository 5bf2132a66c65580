//! Does the background work of the current duty. When the duty changes, the work of the new duty replaces it.

use tonic_health::ServingStatus;

use super::{Work, feed};
use crate::{driver::Driver, leadership::Duty};

impl<D: Driver> Work<D> {
    pub(crate) async fn run(self) {
        let mut duty = self.rpc.replica.subscribe();
        loop {
            let now = duty.borrow_and_update().clone();
            match now {
                Duty::Leading { .. } => {
                    tokio::select! {
                        () = self.lead() => (),
                        _ = duty.changed() => (),
                    }
                    self.publish_health(ServingStatus::NotServing).await;
                }
                Duty::Standby { leader } => {
                    self.publish_health(ServingStatus::NotServing).await;
                    tokio::select! {
                        () = self.follow(leader.as_deref()) => (),
                        _ = duty.changed() => (),
                    }
                }
                Duty::Draining => return,
            }
        }
    }

    /// Updates the snapshots from the leader's watches. Never ends by itself.
    async fn follow(&self, leader: Option<&str>) {
        if let (Some(peer), Some(leader)) = (&self.peer, leader) {
            feed::follow(peer, leader, self).await;
        }
        std::future::pending::<()>().await;
    }
}
