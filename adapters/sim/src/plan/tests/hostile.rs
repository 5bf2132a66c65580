//! Tests that a hostile user of one namespace changes no load balancer of other namespaces, see [`hostile`]. A simulated cloud executes the
//! writes.

use std::sync::Arc;

use cloud_adapter::{
    Cluster, Grants, NextAction, Request,
    kit::testing::hostile::{self, EVIL, Players, Project as _, Service},
    next_action,
};
use cloud_api_proto::{
    AdapterError,
    v1alpha1::{Adoption, Recreate},
};
use test_support::{cases, chance::Chance};

use super::*;
use crate::{
    driver::{ClientTokens, Settings, SimDriver},
    simcloud::{model::Scheme, requests::CreateLoadBalancer},
};

/// The number of simulated projects (worlds), and the number of changes or attacks (rounds) in each.
const WORLDS: u32 = 20;
const ROUNDS: usize = 600;
/// Minimum number of requests that the attacker makes in all worlds.
const STEPS: usize = 20_000;
/// The UID of a Service for which the former cloud controller manager created a load balancer. `OLD_NAMES` contains the name of this load
/// balancer, and the name of a load balancer of another Service.
const OLD: &str = "7c1ff02e-0c8b-4c6e-9c39-b1b1a0d0c001";
const OLD_NAMES: [&str; 2] = ["a7c1ff02e0c8b4c6e9c39b1b1a0d0c00", "a8c1ff02e0c8b4c6e9c39b1b1a0d0c00"];

fn service(
    cluster: &'static str,
    [namespace, name, uid]: [&str; 3],
    mut wish: DesiredLoadBalancer,
) -> Service {
    (wish.owner.namespace, wish.owner.name) = (namespace.to_owned(), name.to_owned());
    Service::new(cluster, uid.to_owned(), wish)
}

struct World {
    bench: Bench,
    driver: SimDriver,
    chance: Chance,
    players: Players,
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
            players: Players::default(),
        };
        for name in ["by-hand", OLD_NAMES[0], OLD_NAMES[1]] {
            world.by_hand(name);
        }
        let db = with(web([tcp(5432)]), |spec| {
            spec.set_scheme(load_balancer_spec::Scheme::Internal);
            spec.requested_addresses = vec!["10.128.0.200".to_owned()];
        });
        for (name, service) in [
            ("web", service("c-1", ["shop", "web", "uid-web"], web([tcp(80), tcp(443)]))),
            ("db", service("c-1", ["shop", "db", "uid-db"], db)),
            ("twin", service("c-2", ["shop", "web", "uid-web"], web([tcp(80)]))),
        ] {
            world.players.victims.insert(name, service);
            world.settles(name);
        }
        world.players.attackers = (0..3).map(|_| world.attacker()).collect();
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

    /// Changes the nodes of a victim's Service.
    fn work(&mut self) {
        let Some(name) = self.chance.of(&["web", "db", "twin"]) else { return };
        let nodes = 1 + u8::try_from(self.chance.below(4)).expect("few");
        if let Some(victim) = self.players.victims.get_mut(name) {
            victim.wish.backends = (1..=nodes).map(backend).collect();
        }
        self.settles(name);
    }

    /// Returns all load balancers except those of namespace `evil`.
    fn of_others(&mut self) -> Value {
        let mut body = self.bench.send(&Call::new(Operation::ListLoadBalancers));
        let all = body["load_balancers"].as_array_mut().map(std::mem::take).unwrap_or_default();
        all.into_iter().filter(|one| one["tags"]["cloudadapter.dev/owner-namespace"] != EVIL).collect()
    }
}

impl hostile::Project for World {
    type Step = Step;

    fn players(&mut self) -> &mut Players {
        &mut self.players
    }

    fn below(&mut self, n: u64) -> u64 {
        self.chance.below(n)
    }

    fn next_write(&mut self, service: &Service, request: &Request) -> Result<NextAction<Step>, AdapterError> {
        let records = self.records();
        next_action(
            &self.driver,
            &Grants::default(),
            Cluster { id: service.cluster, name: "prod" },
            request,
            &records,
        )
    }

    /// Makes the write, unless the cloud refuses it, and waits until the cloud has completed it.
    fn execute(&mut self, step: &Step) {
        let _refused = self.bench.cloud.handle(&call(step), self.bench.now);
        self.wait();
    }

    fn execute_attack(&mut self, _: &Service, step: &Step) {
        let before = self.of_others();
        self.execute(step);
        self.players.log.push(step.to_string());
        let after = self.of_others();
        let seed = (&self.chance, self.players.last_writes());
        assert!(before == after, "`{step}` of namespace evil changes\n{before}\nto\n{after}\n{seed:?}");
    }

    fn wait(&mut self) {
        self.bench.now += Moment::from_millis(300);
    }

    fn attacker(&mut self) -> Service {
        let uid = self.players.uid();
        service("c-1", [EVIL, "x", &uid], web([tcp(80)]))
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
}

#[test]
fn hostile_namespace_changes_no_objects_of_others() {
    let mut tries = 0;
    for seed in 0..u64::from(cases(WORLDS)) {
        let mut world = World::new(seed);
        for _ in 0..ROUNDS {
            if world.one_in(8) {
                world.work();
            } else {
                world.attack();
            }
        }
        // The load balancer of the former cloud controller manager still belongs only to the Service for which it was created.
        let old = service("c-1", ["shop", "old", OLD], web([tcp(80)]));
        world.players.victims.insert("old", Service { adoption: Adoption::IfUnowned, ..old });
        world.settles("old");
        assert!(
            world.records().iter().any(|one| one.summary.name == OLD_NAMES[0] && one.summary.key.is_some())
        );
        tries += world.players.tries;
    }
    println!("{tries} requests of the attacker");
    assert!(tries >= STEPS, "{tries} requests of the attacker");
}
