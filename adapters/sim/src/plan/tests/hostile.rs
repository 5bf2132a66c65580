//! A hostile user with permissions for one namespace and knowledge of all IDs, names and addresses of the project. Whatever this user
//! requests, load balancers of other namespaces must not change, and their Services must get what they request.
//!
//! Requests pass the runtime's own checks and decisions, and a simulated cloud executes the writes.

use std::{collections::BTreeMap, sync::Arc};

use cloud_adapter::{Foretold, Grants, Request, foretell};
use cloud_api_proto::{
    AdapterError,
    v1alpha1::{Adoption, DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, Known, Recreate, VendorIds},
};
use test_support::{cases, chance::Chance};

use super::*;
use crate::{
    driver::{ClientTokens, Settings, SimDriver},
    simcloud::{model::Scheme, requests::CreateLoadBalancer},
};

/// The namespace of the attacker.
const EVIL: &str = "evil";
/// Number of worlds, of rounds in each world, and of vendor writes per round.
const WORLDS: u32 = 20;
const TURNS: usize = 600;
const CUT: u64 = 5;
/// Minimum number of requests that the attacker makes in all worlds.
const STEPS: usize = 20_000;
/// Maximum number of writes until a victim's load balancer is in the desired state.
const SETTLED: usize = 80;
/// UID of the Service for which a former cloud controller manager created a load balancer, and UID of another such Service.
const OLD: &str = "7c1ff02e-0c8b-4c6e-9c39-b1b1a0d0c001";
const OLD_NAMES: [&str; 2] = ["a7c1ff02e0c8b4c6e9c39b1b1a0d0c00", "a8c1ff02e0c8b4c6e9c39b1b1a0d0c00"];

/// A Service and its grants.
#[derive(Clone)]
struct Service {
    cluster: &'static str,
    wish: DesiredLoadBalancer,
    adoption: Adoption,
    known: Option<String>,
    recreate: Recreate,
}

impl Service {
    fn new(cluster: &'static str, [namespace, name, uid]: [&str; 3], wish: DesiredLoadBalancer) -> Self {
        let key = LoadBalancerKey { cluster_id: cluster.to_owned(), owner_uid: uid.to_owned() };
        let [namespace, name, uid] = [namespace, name, uid].map(str::to_owned);
        let owner = Owner { kind: "Service".to_owned(), namespace, name, uid };
        let wish = DesiredLoadBalancer { key, owner, ..wish };
        Self { cluster, wish, adoption: Adoption::Never, known: None, recreate: Recreate::IfError }
    }

    fn ensure(&self) -> Request {
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

    fn delete(&self) -> Request {
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

/// A project with load balancers of several owners.
struct World {
    bench: Bench,
    driver: SimDriver,
    chance: Chance,
    victims: BTreeMap<&'static str, Service>,
    attackers: Vec<Service>,
    uids: u64,
    tries: usize,
    log: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let driver = SimDriver::new(Settings {
            endpoint: "http://127.0.0.1:1".parse().expect("a URI"),
            token: None,
            region: "sim-1".to_owned(),
            consistency_horizon: std::time::Duration::ZERO,
            create_horizon: std::time::Duration::ZERO,
            client_tokens: ClientTokens::Sent,
        });
        let mut world = Self {
            bench: Bench::new(),
            driver: driver.expect("no token"),
            chance: Chance::new(seed),
            victims: BTreeMap::new(),
            attackers: Vec::new(),
            uids: 0,
            tries: 0,
            log: Vec::new(),
        };
        for name in ["by-hand", OLD_NAMES[0], OLD_NAMES[1]] {
            world.by_hand(name);
        }
        let db = with(web([tcp(5432)]), |spec| {
            spec.set_scheme(load_balancer_spec::Scheme::Internal);
            spec.requested_addresses = vec!["10.128.0.200".to_owned()];
        });
        for (name, service) in [
            ("web", Service::new("c-1", ["shop", "web", "uid-web"], web([tcp(80), tcp(443)]))),
            ("db", Service::new("c-1", ["shop", "db", "uid-db"], db)),
            ("twin", Service::new("c-2", ["shop", "web", "uid-web"], web([tcp(80)]))),
        ] {
            world.victims.insert(name, service);
            world.settles(name);
        }
        world.attackers = (0..3).map(|_| world.attacker()).collect();
        world
    }

    fn by_hand(&mut self, name: &str) {
        let new = CreateLoadBalancer {
            name: name.to_owned(),
            scheme: Scheme::Internet,
            families: vec![IpFamily::Ipv4],
            vips: Vec::new(),
            placement: Placement::default(),
            tags: Tags::from([("team".to_owned(), "x".to_owned())]),
            client_token: None,
        };
        self.bench.execute(&Step::CreateLoadBalancer(new.into()));
    }

    fn records(&mut self) -> Vec<Arc<Record>> {
        let body = self.bench.send(&Call::new(Operation::ListLoadBalancers));
        let page: LoadBalancerPage = serde_json::from_value(body).expect("readable");
        assert!(page.next.is_none(), "the listing fits on one page");
        page.load_balancers.into_iter().map(|one| Arc::new(translate::load_balancer(one))).collect()
    }

    /// Returns the next write for a request, as the runtime decides it.
    fn foretold(&mut self, service: &Service, request: &Request) -> Result<Foretold<Step>, AdapterError> {
        let records = self.records();
        foretell(&self.driver, &Grants::default(), (service.cluster, "prod"), request, &records)
    }

    /// Makes the write, unless the cloud refuses it, and waits until the cloud has completed it.
    fn writes(&mut self, step: &Step) {
        let _refused = self.bench.cloud.handle(&call(step), self.bench.now);
        self.bench.now += Moment::from_millis(300);
    }

    #[track_caller]
    fn settles(&mut self, name: &str) {
        self.reaches(name, Service::ensure);
    }

    #[track_caller]
    fn reaches(&mut self, name: &str, request: impl Fn(&Service) -> Request) {
        let mut last = String::new();
        for _ in 0..SETTLED {
            let service = self.victims[name].clone();
            match self.foretold(&service, &request(&service)) {
                Ok(Foretold::Done) => return,
                Ok(Foretold::Wait) => self.bench.now += Moment::from_millis(300),
                Ok(Foretold::Write(step)) => {
                    last = step.to_string();
                    self.writes(&step);
                }
                Err(error) => last = error.to_string(),
            }
            if self.chance.one_in(2) {
                self.attack();
            }
        }
        panic!("{name} is not in the desired state: {last}\n{}", self.told());
    }

    fn attacker(&mut self) -> Service {
        self.uids += 1;
        Service::new("c-1", [EVIL, "x", &format!("uid-{}", self.uids)], web([tcp(80)]))
    }

    /// One round of the attacker: a changed request for one of its Services or the deletion of one, and some of the writes that follow.
    fn attack(&mut self) {
        let at = usize::try_from(self.chance.below(3)).expect("small");
        let Some(before) = self.attackers.get(at).cloned() else { return };
        let goes = self.chance.one_in(6);
        if !goes && !self.chance.one_in(3) {
            self.attackers[at] = self.another_wish(&before);
        }
        let service = self.attackers[at].clone();
        let request = if goes { service.delete() } else { service.ensure() };
        for _ in 0..=self.chance.below(CUT) {
            self.tries += 1;
            let step = match self.foretold(&service, &request) {
                Ok(Foretold::Write(step)) => step,
                Ok(Foretold::Done) if goes => {
                    self.attackers[at] = self.attacker();
                    return;
                }
                Ok(Foretold::Done | Foretold::Wait) | Err(_) => return,
            };
            let before = self.of_others();
            self.writes(&step);
            self.log.push(step.to_string());
            let after = self.of_others();
            assert!(
                before == after,
                "`{step}` of namespace evil changes\n{before}\nto\n{after}\n{}",
                self.told()
            );
        }
    }

    fn another_wish(&mut self, service: &Service) -> Service {
        let records = self.records();
        let ids: Vec<String> = records.iter().map(|one| one.summary.vendor_id.clone()).collect();
        let names: Vec<String> = records.iter().map(|one| one.summary.name.clone()).collect();
        let vips: Vec<String> =
            records.iter().flat_map(|one| &one.detail.vips).map(ToString::to_string).collect();
        let chance = &mut self.chance;
        let ports: Vec<_> = [80, 443, 5432].into_iter().filter(|_| chance.one_in(2)).map(tcp).collect();
        let wish = web(if ports.is_empty() { vec![tcp(443)] } else { ports });
        let mut wish = DesiredLoadBalancer { spec: wish.spec, ..service.wish.clone() };
        let mut service = Service { adoption: Adoption::Never, known: None, ..service.clone() };
        match chance.below(5) {
            0 => service.adoption = Adoption::IfUnowned,
            1 | 2 => (service.adoption, service.known) = (Adoption::ById, chance.of(&ids)),
            _ => (),
        }
        let spec = &mut wish.spec;
        if chance.one_in(2) {
            spec.set_scheme(load_balancer_spec::Scheme::Internal);
        }
        if chance.one_in(2) {
            spec.requested_addresses = chance.of(&vips).into_iter().collect();
        }
        if chance.one_in(3) {
            spec.name = chance.of(&names).unwrap_or_default();
        }
        if chance.one_in(4) {
            let tags =
                [("cloudadapter.dev/adopt", EVIL), ("cloudadapter.dev/owner-uid", "uid-web"), ("a", "b")];
            spec.tags.extend(chance.of(&tags).map(|(key, value)| (key.to_owned(), value.to_owned())));
        }
        let recreate = [Recreate::Never, Recreate::IfError, Recreate::IfImmutableChanged];
        service.recreate = chance.of(&recreate).unwrap_or_default();
        Service { wish: hashed(wish), ..service }
    }

    /// One round of a victim: its nodes change, or it adopts the load balancer that was created for it.
    fn work(&mut self) {
        let Some(name) = self.chance.of(&["web", "db", "twin"]) else { return };
        let nodes = 1 + u8::try_from(self.chance.below(4)).expect("few");
        if let Some(victim) = self.victims.get_mut(name) {
            victim.wish.backends = (1..=nodes).map(backend).collect();
        }
        self.settles(name);
    }

    /// All load balancers except those of namespace `evil`.
    fn of_others(&mut self) -> Value {
        let mut body = self.bench.send(&Call::new(Operation::ListLoadBalancers));
        let all = body["load_balancers"].as_array_mut().map(std::mem::take).unwrap_or_default();
        all.into_iter().filter(|one| one["tags"]["cloudadapter.dev/owner-namespace"] != EVIL).collect()
    }

    fn told(&self) -> String {
        let last: Vec<&str> = self.log.iter().rev().take(12).rev().map(String::as_str).collect();
        format!(
            "{:?}, after {} requests of the attacker; the last one:\n{}",
            self.chance,
            self.tries,
            last.join("\n")
        )
    }
}

#[test]
fn hostile_namespace_changes_no_objects_of_others() {
    let mut tries = 0;
    for seed in 0..u64::from(cases(WORLDS)) {
        let mut world = World::new(seed);
        for _ in 0..TURNS {
            if world.chance.one_in(8) {
                world.work();
            } else {
                world.attack();
            }
        }
        // The load balancer of the former cloud controller manager still belongs to its Service only.
        let old = Service::new("c-1", ["shop", "old", OLD], web([tcp(80)]));
        world.victims.insert("old", Service { adoption: Adoption::IfUnowned, ..old });
        world.settles("old");
        assert!(
            world.records().iter().any(|one| one.summary.name == OLD_NAMES[0] && one.summary.key.is_some())
        );
        tries += world.tries;
    }
    println!("{tries} requests of the attacker");
    assert!(tries >= STEPS, "{tries} requests of the attacker");
}
