//! Writes to load balancers that others may use: each looks first who does by then, and nobody of this process comes in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cloud_adapter::{driver::VendorError, vendor::Session};
use cloud_api_proto::v1alpha1::LoadBalancerKey;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::{
    OpenStackDriver,
    ownership::{self, Sharing},
};

/// Which load balancers are shared, and whose turn it is to write.
#[derive(Debug, Default)]
pub(crate) struct KnownShares(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By ID: those that the last sweep showed as shared, or that somebody has come to since.
    shared: BTreeSet<String>,
    /// Held by who writes tags, or deletes.
    turns: BTreeMap<String, Arc<AsyncMutex<()>>>,
}

impl KnownShares {
    /// Takes note of a sweep: what is there, and what of it is shared. What somebody has come to meanwhile it need not show.
    pub(super) fn learn<'a>(&self, all: impl Iterator<Item = &'a str>, shared: impl Iterator<Item = String>) {
        let there: BTreeSet<&str> = all.collect();
        let mut state = self.lock();
        state.shared.retain(|id| there.contains(id.as_str()));
        state.shared.extend(shared);
        state.turns.retain(|_, turn| Arc::strong_count(turn) > 1);
    }

    fn is_shared(&self, id: &str) -> bool {
        self.lock().shared.contains(id)
    }

    async fn turn(&self, id: &str) -> OwnedMutexGuard<()> {
        let turn = Arc::clone(self.lock().turns.entry(id.to_owned()).or_default());
        turn.lock_owned().await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenStackDriver {
    /// Writes an owner's tags.
    ///
    /// Cost: 1 write; of one that is shared 1 read before.
    pub(crate) async fn tag(&self, session: &Session, id: &str, tags: &[String]) -> Result<(), VendorError> {
        let shares = &self.balancers.shares;
        let _turn = shares.turn(id).await;
        if !shares.is_shared(id) {
            return self.client.tag_load_balancer(session, id, tags).await;
        }
        let live = self.client.show_load_balancer(session, id).await?;
        let tags = ownership::beside_others(tags, &live.tags);
        self.client.tag_load_balancer(session, id, &tags).await
    }

    /// Writes the tags of one that shares it. Cost: 1 read and 1 write.
    pub(crate) async fn share(
        &self,
        session: &Session,
        id: &str,
        sharing: &Sharing,
    ) -> Result<(), VendorError> {
        let shares = &self.balancers.shares;
        shares.lock().shared.insert(id.to_owned());
        let _turn = shares.turn(id).await;
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
        let _turn = self.balancers.shares.turn(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        self.client.tag_load_balancer(session, id, &ownership::leave(&live, whose)?).await
    }

    /// Deletes one, unless somebody has come to it: what cannot be undone goes by what is so now. Cost: 1 read and 1 write.
    pub(crate) async fn delete_unshared(
        &self,
        session: &Session,
        id: &str,
        (whose, seen): (Option<&LoadBalancerKey>, &[String]),
    ) -> Result<(), VendorError> {
        let _turn = self.balancers.shares.turn(id).await;
        let live = self.client.show_load_balancer(session, id).await?;
        ownership::may_go(&live, (whose, seen))?;
        self.client.delete_load_balancer(session, id).await
    }
}
