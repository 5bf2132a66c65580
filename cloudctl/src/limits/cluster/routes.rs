//! Routes, which the adapter creates batch by batch, one call after the other, because a route table is one object.

use std::sync::Arc;

use cloud_budget::Class;

use super::{Cluster, ClusterEvent, listings::Reader};
use crate::limits::{cloud::Collection, tally::Caller, world::Request};

impl Cluster {
    pub(super) fn begin_route_batch(&mut self) {
        let batch = self.routes_left.min(self.model.route_batch);
        if batch > 0 {
            self.route_calls = Some((self.model.create_routes)(batch).into_iter().rev().collect());
            self.routes_left -= batch;
            self.stock.routes += batch;
            self.send_route_call();
        }
    }

    pub(super) fn send_route_call(&mut self) {
        let caller = Caller {
            class: Class::Traffic,
            controller: "route-controller",
            object: Arc::from("routes"),
            user: false,
            periodic: false,
        };
        match self.route_calls.as_mut().and_then(Vec::pop) {
            Some(operation) => {
                self.world.submit(Request { operation, caller, answered: ClusterEvent::RouteCallAnswered });
            }
            None if self.model.lists_created_routes => {
                self.read(Collection::Routes, self.world.now(), caller, Reader::Routes);
            }
            None => self.end_route_batch(),
        }
    }

    pub(super) fn end_route_batch(&mut self) {
        self.route_calls = None;
        self.begin_route_batch();
        self.record_milestones();
    }
}
