//! Deletions that are reported too early, or that delete too much.

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        Cost, DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, Known, LoadBalancerKey,
        LoadBalancerState, cost::Source,
    },
};
use tonic::{Request, Response, Status};

use super::Front;
use crate::broken::{Fault, front::beside, memory::key};

impl Front {
    pub(super) async fn delete(
        &self,
        mut request: Request<DeleteLoadBalancerRequest>,
    ) -> Result<Response<DeleteLoadBalancerResponse>, Status> {
        if let Some(answer) = self.instead_of_deleting(request.get_ref())? {
            return Ok(Response::new(answer));
        }
        self.claim_balancer(request.get_ref().key.clone(), request.get_ref().known.clone());
        self.renamed_deletion(request.get_mut());
        self.delete_namesakes(&request).await;
        let answer = self.balancers().delete_load_balancer(request).await;
        let mut answer = answer.map_err(|status| self.reported(status))?;
        let reported = answer.get_mut();
        if self.is(Fault::AbsentTooEarly) && reported.state() == LoadBalancerState::Deleting {
            reported.set_state(LoadBalancerState::Absent);
            reported.retry_after = None;
        }
        self.price(&mut reported.cost);
        Ok(answer)
    }

    fn instead_of_deleting(
        &self,
        request: &DeleteLoadBalancerRequest,
    ) -> Result<Option<DeleteLoadBalancerResponse>, Status> {
        let Some(key) = request.key.as_ref().map(key) else { return Ok(None) };
        let mut notes = self.memory.notes();
        if self.is(Fault::DeleteOfNothingFails) && !notes.seen.contains(&key) {
            return Err(AdapterError::new(Reason::ResourceGone, "load balancer not found").into());
        }
        let unfinished = self.is(Fault::DeleteMissesWhatIsBeingMade) && notes.unfinished.remove(&key);
        let nameless = self.is(Fault::DeletesByIdAlone) && !names_one(request.known.as_ref());
        if unfinished || nameless {
            let cost = Cost { source: Source::Memory.into(), ..Cost::default() };
            let state = LoadBalancerState::Absent.into();
            let nothing = DeleteLoadBalancerResponse { state, cost: Some(cost), ..Default::default() };
            return Ok(Some(nothing));
        }
        Ok(None)
    }

    /// Finds all load balancers that this fault attributes to the owner.
    fn renamed_deletion(&self, request: &mut DeleteLoadBalancerRequest) {
        if let (Some(key), Some(owner)) = (&mut request.key, &request.owner) {
            self.rename(key, &owner.name.clone());
            self.take_for_the_first(key, owner);
        }
    }

    async fn delete_namesakes(&self, request: &Request<DeleteLoadBalancerRequest>) {
        if !self.is(Fault::IgnoresTheCluster) {
            return;
        }
        let Some((cluster, uid)) = request.get_ref().key.as_ref().map(key) else { return };
        let seen: Vec<_> = self.memory.notes().seen.iter().cloned().collect();
        for (other, owner_uid) in seen.into_iter().filter(|(other, same)| *other != cluster && *same == uid) {
            let mut message = request.get_ref().clone();
            message.context.iter_mut().for_each(|context| context.cluster_id.clone_from(&other));
            message.key = Some(LoadBalancerKey { cluster_id: other, owner_uid });
            message.known = None;
            // Only the call matters, not its result.
            drop(self.balancers().delete_load_balancer(beside(request, message)).await);
        }
    }
}

fn names_one(known: Option<&Known>) -> bool {
    let ids = known.and_then(|known| known.vendor_ids.as_ref());
    ids.is_some_and(|parts| parts.ids.contains_key("loadbalancer"))
}
