//! Routes, which the adapter creates batch by batch, one call after the other, because a route table is one object.

use std::sync::Arc;

use cloud_budget::Class;

use super::{Cluster, ClusterEvent, listings::Reader};
use crate::limits::{
    cloud::Collection,
    world::{Asked, Caller},
};

impl Cluster {
    /// Begins with the first batch.
    pub(super) fn lay_first(&mut self) {
        let batch = self.to_lay.min(self.model.route_batch);
        if batch > 0 {
            self.laying = Some((self.model.create_routes)(batch).into_iter().rev().collect());
            self.to_lay -= batch;
            self.stock.routes += batch;
            self.lay();
        }
    }

    /// Sends the next call of the batch, if there is one.
    pub(super) fn lay(&mut self) {
        let caller = Caller {
            class: Class::Traffic,
            controller: "route-controller",
            object: Arc::from("routes"),
            user: false,
            again: false,
        };
        match self.laying.as_mut().and_then(Vec::pop) {
            Some(operation) => {
                self.world.submit(Asked { operation, caller, news: ClusterEvent::Laid });
            }
            None if self.model.lists_created_routes => {
                self.read(Collection::Routes, self.world.now(), (caller, Reader::Routes));
            }
            None => self.lay_next(),
        }
    }

    /// Ends a batch, and begins the next one.
    pub(super) fn lay_next(&mut self) {
        self.laying = None;
        self.lay_first();
        self.settle();
    }
}
