//! Load balancers that converge: the adapter reads each, makes one write, and reads again, until nothing is missing.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use cloud_adapter::vendor::Operation;
use cloud_budget::{Class, Time};

use super::{
    Cluster, ClusterEvent, Setup,
    listings::{Reader, tick_after},
};
use crate::limits::{cloud::Collection, tally::Caller, world::Request};

/// Number of Services that the service-controller reconciles at the same time, and its longest wait for one Service before it takes the
/// next. Source: `--concurrent-service-syncs`, and the longest wait in the contract.
const AT_ONCE: u32 = 50;
const SYNC_WAIT_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Balancer {
    object: Arc<str>,
    /// Whether the load balancer only needs the new node. The traffic of this node waits for the load balancer. Otherwise a user waits for
    /// the whole load balancer.
    joins: bool,
    pub(super) user: bool,
    writes: VecDeque<Operation>,
    pub(super) began: Time,
    pub(super) ready: Option<Time>,
}

impl Cluster {
    pub(super) fn add_load_balancers(&mut self, setup: &Setup) {
        let creation: VecDeque<_> = self.model.creation.iter().copied().collect();
        let kinds =
            [(setup.create, creation.clone(), false), (setup.join, [self.model.membership].into(), true)];
        for (count, writes, joins) in kinds {
            for _ in 0..count {
                self.add(writes.clone(), joins, false);
            }
        }
        for after in &setup.users {
            let at = self.add(creation.clone(), false, true);
            self.world.schedule(Time::ZERO + *after, ClusterEvent::Submit(at));
        }
        self.out_of_sync = self.balancers.len();
    }

    fn add(&mut self, writes: VecDeque<Operation>, joins: bool, user: bool) -> usize {
        let at = self.balancers.len();
        let object = Arc::from(format!("Service {at}"));
        self.balancers.push(Balancer { object, joins, user, writes, began: Time::ZERO, ready: None });
        at
    }

    /// Passes Services from the service-controller to the adapter, with limited concurrency.
    pub(super) fn submit_services(&mut self) {
        let now = self.world.now();
        let waiting = self.balancers.iter().enumerate().filter(|(_, balancer)| !balancer.user);
        let waiting: Vec<usize> = waiting.map(|(at, _)| at).collect();
        let mut after = Duration::ZERO;
        for (turn, at) in waiting.into_iter().enumerate() {
            let rounds = u32::try_from(turn).unwrap_or(u32::MAX) / AT_ONCE;
            after = after.max(SYNC_WAIT_MAX.saturating_mul(rounds));
            self.world.schedule(now + after, ClusterEvent::Submit(at));
        }
    }

    /// Lets the adapter begin with a Service.
    pub(super) fn begin(&mut self, at: usize) {
        let now = self.world.now();
        let Some(balancer) = self.balancers.get_mut(at) else { return };
        balancer.began = now;
        if balancer.joins {
            // The snapshot is recent enough, so no read is needed.
            return self.act(at);
        }
        self.awaited += 1;
        self.read_balancer(at, false);
    }

    /// Reads the state of a load balancer. `polls`: whether this read follows a write.
    pub(super) fn read_balancer(&mut self, at: usize, polls: bool) {
        if let Some((find, get)) = self.model.single_reads
            && self.is_worth_a_read(at)
        {
            let read = if polls { get } else { find };
            return self.send(at, read, Class::Interactive, ClusterEvent::Read(at));
        }
        let class = if polls { Class::Lifecycle } else { Class::Interactive };
        if let Some(caller) = self.caller(at, class) {
            self.read(Collection::LoadBalancers, self.world.now(), caller, Reader::Balancer(at));
        }
    }

    /// Whether reading this load balancer alone is cheaper than a listing: users wait for fewer load balancers than a listing has pages.
    fn is_worth_a_read(&self, at: usize) -> bool {
        let pages = self.listings.get(&Collection::LoadBalancers).map_or(0, |listing| listing.pages);
        let joins = self.balancers.get(at).is_some_and(|balancer| balancer.joins);
        !joins && pages > 1 && self.awaited < pages
    }

    /// Sends the next write of a load balancer, or finishes.
    pub(super) fn act(&mut self, at: usize) {
        let now = self.world.now();
        let earliest = Time::ZERO + self.model.creates_after;
        let poll = self.model.poll;
        let untouched = self.model.creation.len();
        let Some(balancer) = self.balancers.get_mut(at) else { return };
        if !balancer.joins && balancer.writes.len() == untouched && self.starts && now < earliest {
            return self.world.schedule(tick_after(earliest, poll), ClusterEvent::Poll(at));
        }
        let class = if balancer.joins { Class::Traffic } else { Class::Interactive };
        match balancer.writes.pop_front() {
            Some(write) => self.send(at, write, class, ClusterEvent::Written(at)),
            None => {
                balancer.ready = Some(now);
                self.awaited -= usize::from(!balancer.joins);
                self.out_of_sync -= 1;
                self.record_milestones();
            }
        }
    }

    /// After a write, schedules a poll at a time shared by the load balancers that wait.
    pub(super) fn written(&mut self, at: usize) {
        let (now, poll) = (self.world.now(), self.model.poll);
        let Some(balancer) = self.balancers.get(at) else { return };
        let done = self.model.creation.len() - balancer.writes.len().min(self.model.creation.len());
        if balancer.joins || done == 1 {
            self.stock.balancers += u32::from(!balancer.joins);
            self.stock.unread += u32::from(self.model.reads_members);
        }
        self.world.schedule(tick_after(now, poll), ClusterEvent::Poll(at));
    }

    fn send(&mut self, at: usize, operation: Operation, class: Class, answered: ClusterEvent) {
        if let Some(caller) = self.caller(at, class) {
            self.world.submit(Request { operation, caller, answered });
        }
    }

    fn caller(&self, at: usize, class: Class) -> Option<Caller> {
        let Balancer { object, user, .. } = self.balancers.get(at)?;
        Some(Caller {
            class,
            controller: "service-controller",
            object: Arc::clone(object),
            user: *user,
            periodic: false,
        })
    }
}
