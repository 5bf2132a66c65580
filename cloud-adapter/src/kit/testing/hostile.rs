//! A hostile user of one namespace knows all IDs, names and addresses of the project. Whatever this user requests, objects of other users
//! must not change, and other users must get what they request.
//!
//! The requests pass the runtime's own checks and decisions. The driver's test executes the writes on a cloud of its own, and checks each
//! write of the attacker.

use std::{collections::BTreeMap, fmt, sync::Arc};

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{
        Adoption, DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, Known, LoadBalancerSpec, Recreate,
        VendorIds,
    },
};

use super::writer;
use crate::{NextAction, Request, driver::DesiredLoadBalancer};

/// The namespace of the attacker.
pub const EVIL: &str = "evil";
/// Maximum number of consecutive writes of the attacker.
const WRITES_MAX: u64 = 5;
/// Maximum number of writes until a victim has what it requests.
const SETTLED: usize = 80;

/// A Service and how it requests its load balancer.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields of a request")]
pub struct Service {
    pub cluster: &'static str,
    pub wish: DesiredLoadBalancer,
    pub adoption: Adoption,
    pub known: Option<String>,
    pub recreate: Recreate,
}

impl Service {
    /// Creates a Service with this UID.
    pub fn new(cluster: &'static str, uid: String, mut wish: DesiredLoadBalancer) -> Self {
        wish.key.cluster_id = cluster.to_owned();
        wish.key.owner_uid.clone_from(&uid);
        wish.owner.uid = uid;
        Self { cluster, wish, adoption: Adoption::Never, known: None, recreate: Recreate::IfError }
    }

    /// Returns the request for the load balancer.
    pub fn ensure(&self) -> Request {
        let ids = self.known.iter().map(|id| ("loadbalancer".to_owned(), id.clone())).collect();
        let request = EnsureLoadBalancerRequest {
            key: Some(self.wish.key.clone()),
            owner: Some(self.wish.owner.clone()),
            fence: Some(writer()),
            spec: Some(LoadBalancerSpec { backend_set_id: "set".to_owned(), ..self.wish.spec.clone() }),
            known: Some(Known { vendor_ids: Some(VendorIds { ids }), ..Known::default() }),
            adoption: self.adoption.into(),
            recreate: self.recreate.into(),
            ..EnsureLoadBalancerRequest::default()
        };
        Request::Ensure(request.into(), Arc::clone(&self.wish.backends))
    }

    /// Returns the request to delete the load balancer.
    pub fn delete(&self) -> Request {
        let request = DeleteLoadBalancerRequest {
            key: Some(self.wish.key.clone()),
            owner: Some(self.wish.owner.clone()),
            fence: Some(writer()),
            adoption: Adoption::IfUnowned.into(),
            ..DeleteLoadBalancerRequest::default()
        };
        Request::Delete(request.into())
    }
}

/// The Services of a project, and what the attacker has done.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "see the comment of the type")]
pub struct Players {
    pub victims: BTreeMap<&'static str, Service>,
    pub attackers: Vec<Service>,
    pub uids: u64,
    /// Number of requests of the attacker.
    pub tries: usize,
    /// The writes of the attacker.
    pub log: Vec<String>,
}

impl Players {
    /// Returns a new UID.
    pub fn uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    /// Returns the last writes of the attacker.
    pub fn last_writes(&self) -> String {
        let last: Vec<&str> = self.log.iter().rev().take(12).rev().map(String::as_str).collect();
        format!("after {} requests of the attacker; the last writes:\n{}", self.tries, last.join("\n"))
    }
}

/// A cloud in which victims and the attacker request load balancers.
pub trait Project {
    /// A write of the driver.
    type Step: fmt::Display;

    /// The Services.
    fn players(&mut self) -> &mut Players;
    /// Returns a random number below `n`.
    fn below(&mut self, n: u64) -> u64;
    /// Returns the next write for a request, as the runtime decides.
    fn next_write(
        &mut self,
        service: &Service,
        request: &Request,
    ) -> Result<NextAction<Self::Step>, AdapterError>;
    /// Executes a write of a victim.
    fn execute(&mut self, step: &Self::Step);
    /// Executes a write of the attacker, and checks that no object of other users has changed.
    fn execute_attack(&mut self, service: &Service, step: &Self::Step);
    /// Lets the cloud complete its pending changes.
    fn wait(&mut self);
    /// Returns a new Service of the attacker.
    fn attacker(&mut self) -> Service;
    /// Returns a random change of a Service of the attacker.
    fn another_wish(&mut self, service: &Service) -> Service;

    /// Returns true with a probability of 1/n.
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Repeats the request of a victim until the victim has what it requests. The attacker writes in between.
    #[track_caller]
    fn settles(&mut self, name: &str) {
        self.reaches(name, Service::ensure);
    }

    /// Repeats a request of a victim until nothing is left to do.
    #[track_caller]
    fn reaches(&mut self, name: &str, request: impl Fn(&Service) -> Request) {
        let mut last = String::new();
        for _ in 0..SETTLED {
            let service = self.players().victims.get(name).expect("a victim").clone();
            match self.next_write(&service, &request(&service)) {
                Ok(NextAction::Done) => return,
                Ok(NextAction::Wait) => self.wait(),
                Ok(NextAction::Write(step)) => {
                    last = step.to_string();
                    self.execute(&step);
                }
                Err(error) => last = error.to_string(),
            }
            if !self.players().attackers.is_empty() && self.one_in(2) {
                self.attack();
            }
        }
        panic!("{name} does not have what it requests: {last}\n{}", self.players().last_writes());
    }

    /// Makes a new request for a Service of the attacker or deletes such a Service, and executes some of the writes that follow.
    fn attack(&mut self) {
        let count = u64::try_from(self.players().attackers.len()).expect("few");
        let at = usize::try_from(self.below(count)).expect("few");
        let Some(mut service) = self.players().attackers.get(at).cloned() else { return };
        let goes = self.one_in(6);
        if !goes && !self.one_in(3) {
            service = self.another_wish(&service);
            self.replace(at, service.clone());
        }
        let request = if goes { service.delete() } else { service.ensure() };
        for _ in 0..=self.below(WRITES_MAX) {
            self.players().tries += 1;
            match self.next_write(&service, &request) {
                Ok(NextAction::Write(step)) => self.execute_attack(&service, &step),
                Ok(NextAction::Done) if goes => {
                    let new = self.attacker();
                    return self.replace(at, new);
                }
                Ok(NextAction::Done | NextAction::Wait) | Err(_) => return,
            }
        }
    }

    /// Replaces a Service of the attacker.
    fn replace(&mut self, at: usize, service: Service) {
        if let Some(old) = self.players().attackers.get_mut(at) {
            *old = service;
        }
    }
}
