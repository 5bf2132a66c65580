//! A watch of load balancers that omits some of them.

use cloud_api_proto::v1alpha1::{
    LoadBalancer, LoadBalancerState, WatchLoadBalancersResponse, watch_load_balancers_response::Event,
};
use sha2::{Digest as _, Sha256};

use super::Front;
use crate::broken::Fault;

impl Front {
    /// Changes the messages of a watch consistently, so that the count and the checksum match the remaining items.
    pub(super) fn listed(
        &self,
    ) -> impl FnMut(WatchLoadBalancersResponse) -> Option<WatchLoadBalancersResponse> + Send + use<> {
        let hides = self.is(Fault::ListHidesUnfinished);
        let (mut count, mut checksum) = (0_u64, 0_u64);
        move |mut message| {
            if !hides {
                return Some(message);
            }
            match &mut message.event {
                Some(Event::Reset(_)) => (count, checksum) = (0, 0),
                Some(Event::Items(items)) => {
                    items.items.retain(is_finished);
                    count += u64::try_from(items.items.len()).unwrap_or(u64::MAX);
                    let sums = items.items.iter().map(|one| digest(&one.vendor_id));
                    checksum = sums.fold(checksum, u64::wrapping_add);
                }
                Some(Event::Upsert(one)) if !is_finished(one) => return None,
                Some(Event::Synced(synced)) => (synced.count, synced.checksum) = (count, checksum),
                _ => (),
            }
            Some(message)
        }
    }
}

fn is_finished(one: &LoadBalancer) -> bool {
    one.state() == LoadBalancerState::Active && !one.applied_hash.is_empty()
}

/// Returns an item's contribution to the checksum. Source: `Synced.checksum` in the API definition.
fn digest(key: &str) -> u64 {
    Sha256::digest(key).iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
