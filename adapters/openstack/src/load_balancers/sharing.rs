//! Writes tags and deletes load balancers. Other owners may have started to use a load balancer since the last listing, so each write first
//! reads the users of the load balancer. Only one write of this process to a load balancer runs at a time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use cloud_adapter::{driver::VendorError, vendor::Session};
use cloud_api_proto::v1alpha1::LoadBalancerKey;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::{
    OpenStackDriver,
    ownership::{self, Sharing},
};

/// Locks that are held while tags are written or a load balancer is deleted, by the load balancer's ID.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<BTreeMap<String, Arc<AsyncMutex<()>>>>);

impl Locks {
    pub(super) fn forget_unused(&self) {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
    }

    async fn of(&self, id: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(locks.entry(id.to_owned()).or_default())
        };
        lock.lock_owned().await
    }
}

impl OpenStackDriver {
    /// Writes an owner's tags. Cost: 1 read and 1 write.
    pub(crate) async fn tag(&self, session: &Session, id: &str, tags: &[String]) -> Result<(), VendorError> {
        let _lock = self.balancers.locks.of(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        let tags = ownership::beside_others(tags, &live)?;
        self.client.tag_load_balancer(session, id, &tags).await
    }

    /// Writes the tags of an owner that shares the load balancer. Cost: 1 read and 1 write.
    pub(crate) async fn share(
        &self,
        session: &Session,
        id: &str,
        sharing: &Sharing,
    ) -> Result<(), VendorError> {
        let _lock = self.balancers.locks.of(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        self.client.tag_load_balancer(session, id, &sharing.join(&live)?).await
    }

    /// Removes the tags of an owner that no longer needs the load balancer. Cost: 1 read and 1 write.
    pub(crate) async fn leave(
        &self,
        session: &Session,
        id: &str,
        whose: Option<&LoadBalancerKey>,
    ) -> Result<(), VendorError> {
        let _lock = self.balancers.locks.of(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        self.client.tag_load_balancer(session, id, &ownership::leave(&live, whose)?).await
    }

    /// Removes an owner's tags. Cost: 1 read and 1 write.
    pub(crate) async fn release(&self, session: &Session, id: &str) -> Result<(), VendorError> {
        let _lock = self.balancers.locks.of(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        self.client.tag_load_balancer(session, id, &ownership::released(&live.tags)).await
    }

    /// Deletes a load balancer, unless another owner has started to share it. The state that is read now decides, because a deletion cannot
    /// be undone. The cost is 1 read and 1 write.
    pub(crate) async fn delete_unshared(
        &self,
        session: &Session,
        id: &str,
        whose: Option<&LoadBalancerKey>,
        seen: &[String],
    ) -> Result<(), VendorError> {
        let _lock = self.balancers.locks.of(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        ownership::may_go(&live, whose, seen)?;
        self.client.delete_load_balancer(session, id).await
    }
}
