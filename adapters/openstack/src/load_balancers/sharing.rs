//! Writes of tags, and deletions: others may use the load balancer, whatever the last listing shows. So each looks first who does by then, and
//! nobody of this process comes in between.

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

/// Whose turn it is to write tags, or to delete, by the load balancer's ID.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<BTreeMap<String, Arc<AsyncMutex<()>>>>);

impl Turns {
    /// Drops those that nobody has or waits for.
    pub(super) fn forget_unused(&self) {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
    }

    async fn of(&self, id: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(id.to_owned()).or_default())
        };
        turn.lock_owned().await
    }
}

impl OpenStackDriver {
    /// Writes an owner's tags. Cost: 1 read and 1 write.
    pub(crate) async fn tag(&self, session: &Session, id: &str, tags: &[String]) -> Result<(), VendorError> {
        let _turn = self.balancers.turns.of(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        let tags = ownership::beside_others(tags, &live)?;
        self.client.tag_load_balancer(session, id, &tags).await
    }

    /// Writes the tags of one that shares it. Cost: 1 read and 1 write.
    pub(crate) async fn share(
        &self,
        session: &Session,
        id: &str,
        sharing: &Sharing,
    ) -> Result<(), VendorError> {
        let _turn = self.balancers.turns.of(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        self.client.tag_load_balancer(session, id, &sharing.join(&live)?).await
    }

    /// Takes off the tags of one that has done with it. Cost: 1 read and 1 write.
    pub(crate) async fn leave(
        &self,
        session: &Session,
        id: &str,
        whose: Option<&LoadBalancerKey>,
    ) -> Result<(), VendorError> {
        let _turn = self.balancers.turns.of(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        self.client.tag_load_balancer(session, id, &ownership::leave(&live, whose)?).await
    }

    /// Takes an owner's tags off. Cost: 1 read and 1 write.
    pub(crate) async fn release(&self, session: &Session, id: &str) -> Result<(), VendorError> {
        let _turn = self.balancers.turns.of(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        self.client.tag_load_balancer(session, id, &ownership::released(&live.tags)).await
    }

    /// Deletes one, unless somebody has come to it: what cannot be undone goes by what is so now. Cost: 1 read and 1 write.
    pub(crate) async fn delete_unshared(
        &self,
        session: &Session,
        id: &str,
        (whose, seen): (Option<&LoadBalancerKey>, &[String]),
    ) -> Result<(), VendorError> {
        let _turn = self.balancers.turns.of(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        ownership::may_go(&live, (whose, seen))?;
        self.client.delete_load_balancer(session, id).await
    }
}
