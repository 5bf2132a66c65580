//! Tests that a hostile user of one namespace changes no object of other namespaces, see [`hostile`]. Writes are executed on the fake cloud
//! of `bench`. Between the attacker's writes, nodes join, load balancers break and are recreated, and the victims' Services are deleted and
//! created again.

mod wishes;

use std::{cell::RefCell, collections::BTreeSet, rc::Rc, sync::Arc};

use cloud_adapter::{
    Cluster, Grant, Grants, NextAction, Request,
    kit::testing::hostile::{self, EVIL, Players, Project as _, Service},
    next_action,
};
use cloud_api_proto::{
    AdapterError,
    v1alpha1::{Adoption, Recreate, load_balancer_spec::AddressRetention},
};
use serde_json::Value;
use test_support::{cases, chance::Chance};

use super::{adopted::by_hand, shared::sharer, *};
use crate::{
    OpenStackDriver,
    load_balancers::{settings::LoadBalancerOptions, tests::kept},
    ownership::Description,
    testing::FakeCloud,
};

/// The number of simulated projects (worlds) in each half of the test, and the number of changes or attacks (rounds) in each world.
const WORLDS: u32 = 30;
const ROUNDS: usize = 1_350;
/// The minimum number of the attacker's requests in each half of the test. Both halves together have 100,000.
const STEPS: usize = 50_000;
/// The minimum number of the attacker's writes in each half of the test. A test in which most requests are refused would prove little.
const WRITES: usize = 10_000;
const KEPT: usize = 2;
/// Minimum number of the attacker's writes on a load balancer whose owner shares it with the attacker for a while.
const GUEST_WRITES: usize = 200;

/// Values that the attacker requests although the operator has not granted them. No write may contain any of them.
const CLOSED: [&str; 5] = [
    "subnet-of-others",
    "members-of-others",
    "floating-of-others",
    "pool-of-others",
    "certificate-of-others",
];

/// A floating IP that a user reserved for the victims, and one that a user reserved for another namespace.
const GIVEN: &str = "198.51.100.7";
const SPARE: &str = "198.51.100.8";

struct World {
    bench: Bench,
    /// Cached until the project changes.
    listed: RefCell<Option<Rc<[Arc<Record>]>>>,
    driver: OpenStackDriver,
    grants: Grants,
    chance: Chance,
    players: Players,
    /// Keys of all Services that the attacker has had.
    evil: BTreeSet<String>,
    writes: usize,
    guest_writes: usize,
}

impl World {
    fn new(driver: OpenStackDriver, seed: u64) -> Self {
        let grants =
            ["shop:addresses=198.51.100.7", "ops:addresses=198.51.100.8", "ops:adopt=*", "evil:pool=dmz"];
        let grants: Vec<Grant> = grants.iter().map(|text| text.parse().expect("a grant")).collect();
        let mut world = Self {
            bench: Bench::new(),
            listed: RefCell::default(),
            driver,
            grants: grants.into(),
            chance: Chance::new(seed),
            players: Players::default(),
            evil: BTreeSet::new(),
            writes: 0,
            guest_writes: 0,
        };
        for (id, address) in [("given", GIVEN), ("spare", SPARE)] {
            let ip = json!({ "id": id, "floating_ip_address": address, "port_id": null, "description": "the mail gateway" });
            world.bench.cloud.floating_ips.push(ip);
        }
        by_hand(&mut world.bench);
        let public_of_hers = json!({ "id": "hers", "floating_ip_address": "198.51.100.9", "port_id": "port-of-hers", "fixed_ip_address": "10.0.0.77",
            "description": "hers" });
        world.bench.cloud.floating_ips.push(public_of_hers);
        let of_go = json!({ "id": "of-go", "name": "kube_service_prod_shop_old", "provisioning_status": "ACTIVE", "vip_port_id": "port-of-go",
            "vip_address": "10.0.0.78", "tags": ["kube_service_prod_shop_old"] });
        let legacy = json!({ "id": "legacy", "name": "a7c1ff02e0c8b4c6e9c39b1b1a0d0c00", "provisioning_status": "ACTIVE",
            "vip_port_id": "port-of-legacy", "vip_address": "10.0.0.79", "tags": [] });
        // Another cluster with the same cluster name has a namespace and a Service with the same names.
        let elsewhere = "kube_service_prod_evil_x";
        let of_go_elsewhere = json!({ "id": "of-go-elsewhere", "name": elsewhere, "provisioning_status": "ACTIVE",
            "vip_port_id": "port-of-go-elsewhere", "vip_address": "10.0.0.80", "tags": [elsewhere] });
        world.bench.cloud.balancers.extend([of_go, legacy, of_go_elsewhere]);
        let free_elsewhere = json!({ "id": "free-elsewhere", "floating_ip_address": "198.51.100.12", "port_id": null,
            "description": "Floating IP for Kubernetes external service evil/x from cluster prod" });
        world.bench.cloud.floating_ips.push(free_elsewhere);
        let public_of_go = json!({ "id": "of-go", "floating_ip_address": "198.51.100.10", "port_id": "port-of-go", "fixed_ip_address": "10.0.0.78",
            "description": "Floating IP for Kubernetes external service shop/old from cluster prod" });
        let free_of_go = json!({ "id": "free-of-go", "floating_ip_address": "198.51.100.11", "port_id": null,
            "description": "Floating IP for Kubernetes external service shop/older from cluster prod" });
        world.bench.cloud.floating_ips.push(free_of_go);
        world.bench.cloud.floating_ips.push(public_of_go);

        let named = |name: &str, wish: DesiredLoadBalancer| named("shop", name, wish);
        world.begin("web", "c-1", named("web", public([tcp(80), tcp(443)])));
        let web = world.id_of("web");
        world.begin("api", "c-1", named("api", sharer("api", &web, [tcp(8080)])));
        let given = with(public([tcp(25)]), |spec| spec.requested_addresses = vec![GIVEN.to_owned()]);
        world.begin("mail", "c-1", named("mail", given));
        let kept = with(public([tcp(1194)]), |spec| spec.address_retention = AddressRetention::Keep.into());
        world.begin("vpn", "c-1", named("vpn", kept));
        world.begin("twin", "c-2", named("web", public([tcp(80)])));
        let fixed = with(web_with_address("10.0.0.200"), |spec| spec.address_retention = 0);
        world.begin("db", "c-1", named("db", fixed));
        world.begin("lent", "c-1", named("lent", public([tcp(3306)])));
        world.person_listens();
        world.players.attackers = (0..3).map(|_| world.attacker()).collect();
        world
    }

    /// Adds a user's listener to the shared load balancer, unless it exists.
    fn person_listens(&mut self) {
        let lent = self.id_of("lent");
        let name = format!("by-a-person-on-{lent}");
        if !self.bench.cloud.listeners.iter().any(|one| one["name"] == name) {
            let listener = json!({ "name": name, "protocol": "TCP", "protocol_port": 9000 });
            self.change().create_listener(&lent, None, &listener);
        }
    }

    fn begin(&mut self, name: &'static str, cluster: &'static str, wish: DesiredLoadBalancer) {
        let uid = self.players.uid();
        self.players.victims.insert(name, Service::new(cluster, uid, wish));
        self.settles(name);
    }

    fn id_of(&self, name: &str) -> String {
        let key = &self.players.victims[name].wish.key;
        let records = self.records();
        let own = records.iter().find(|it| it.belongs_to(key) && it.detail.balancer.is_some());
        own.and_then(|it| it.detail.balancer.as_ref()).map(|it| it.id.clone()).unwrap_or_default()
    }

    fn addresses_of(&self, name: &str) -> Vec<String> {
        let key = &self.players.victims[name].wish.key;
        let records = self.records();
        records.iter().find(|it| it.belongs_to(key)).map(|it| addresses(it)).unwrap_or_default()
    }

    fn records(&self) -> Rc<[Arc<Record>]> {
        let mut listed = self.listed.borrow_mut();
        Rc::clone(listed.get_or_insert_with(|| {
            self.driver.balancers.kept.learn(kept(&self.bench.cloud), u64::MAX);
            self.bench.records().into_iter().map(Arc::new).collect()
        }))
    }

    /// Returns the fake cloud for changes, and discards the cached listing.
    fn change(&mut self) -> &mut Bench {
        self.listed.take();
        &mut self.bench
    }

    /// Executes a write. Returns whether the cloud accepted it. The cloud refuses addresses in use, and objects that changed since the
    /// plan.
    fn writes(&mut self, step: &Step) -> bool {
        let used = |cloud: &crate::load_balancers::tests::Listings, address: &IpAddr| {
            cloud.balancers.iter().any(|one| one["vip_address"] == address.to_string())
        };
        if let Step::CreateLoadBalancer(new) = step {
            if new.vip_address.as_ref().is_some_and(|address| used(&self.bench.cloud, address)) {
                return false;
            }
            self.bench.next_address = 10 + usize::try_from(self.chance.below(100)).expect("small");
            while used(
                &self.bench.cloud,
                &format!("10.0.0.{}", self.bench.next_address).parse().expect("an address"),
            ) {
                self.bench.next_address += 1;
            }
        }
        // The cloud fails one write in 20.
        if self.chance.one_in(20) {
            return false;
        }
        let bench = self.change();
        !bench.refuses(step) && bench.try_execute(step).is_ok()
    }

    /// Makes a random change to a victim's Service or load balancer.
    fn work(&mut self) {
        let all = ["web", "api", "mail", "vpn", "twin", "db", "lent", "lent"];
        let Some(name) = self.chance.of(&all) else { return };
        let before = self.addresses_of(name);
        let mut service = self.players.victims[name].clone();
        match self.chance.below(5) {
            0 => {
                let nodes = (1..=u8::try_from(1 + self.chance.below(4)).expect("few")).map(backend);
                service.wish.backends = nodes.collect();
                self.players.victims.insert(name, service);
            }
            1 if name != "api" => {
                // The load balancer breaks, and the runtime recreates it. For a moment its floating IP is unattached.
                let id = self.id_of(name);
                if name == "web" || name == "lent" {
                    return;
                }
                set(&mut self.change().cloud.balancers, &id, &json!({ "provisioning_status": "ERROR" }));
            }
            2 if ["vpn", "mail", "lent"].contains(&name) => {
                self.reaches(name, Service::delete);
                let uid = self.players.uid();
                service.wish.key.owner_uid.clone_from(&uid);
                service.wish.owner.uid = uid;
                if name == "vpn" {
                    service.wish.spec.requested_addresses.clone_from(&before);
                }
                service.wish = hashed(service.wish);
                self.players.victims.insert(name, service);
            }
            3 => {
                let id = self.id_of(name);
                set(
                    &mut self.change().cloud.balancers,
                    &id,
                    &json!({ "provisioning_status": "PENDING_UPDATE" }),
                );
            }
            4 if name == "lent" => {
                let shares = service.wish.spec.shared_with.is_empty();
                service.wish.spec.shared_with = shares.then(|| EVIL.to_owned()).into_iter().collect();
                service.wish = hashed(service.wish);
                self.players.victims.insert(name, service);
            }
            _ => (),
        }
        self.settles(name);
        if name == "lent" {
            self.person_listens();
        }
        // An internal load balancer gets another address when it is recreated after an error or created again. All other load balancers
        // keep their addresses.
        if name != "db" && name != "lent" {
            assert_eq!(self.addresses_of(name), before, "{name}: its address changed\n{}", self.log());
        }
    }

    /// Returns all objects that do not belong to the namespace `evil`: load balancers with their listeners and pools, and floating IPs.
    fn of_others(&self) -> Vec<Value> {
        let (cloud, lent) = (&self.bench.cloud, self.id_of("lent"));
        let tag = format!("cloudadapter.dev/owner-namespace={EVIL}");
        let is_evil = |one: &&Value| one["tags"].as_array().is_some_and(|tags| tags.contains(&json!(tag)));
        let evil: Vec<&Value> = cloud.balancers.iter().filter(is_evil).map(|one| &one["id"]).collect();
        let is_on_evil =
            |one: &&Value| evil.contains(&&one["loadbalancers"][0]["id"]) || self.is_guest(&lent, one);
        let pools: Vec<&Value> = cloud.pools.iter().filter(|one| !is_on_evil(one)).collect();
        let members =
            pools.iter().filter_map(|one| one["id"].as_str()).map(|id| json!(cloud.members.get(id)));
        let monitors =
            cloud.monitors.iter().filter(|one| pools.iter().any(|pool| pool["id"] == one["pools"][0]["id"]));
        let of_evil = |one: &&Value| {
            let there = one["description"].as_str().and_then(Description::read);
            there.is_some_and(|there| there.owner().namespace == EVIL)
        };
        let balancers =
            cloud.balancers.iter().filter(|one| !is_evil(one)).map(|one| self.without_guests(&lent, one));
        let parts = cloud.listeners.iter().filter(|one| !is_on_evil(one));
        let ips = cloud.floating_ips.iter().filter(|one| !of_evil(one));
        let parts = parts.chain(pools.iter().copied()).chain(monitors).chain(ips).cloned();
        balancers.chain(parts).chain(members).collect()
    }

    /// Returns whether the owner of `lent` shares it with the attacker, according to the cloud.
    fn is_lent(&self) -> bool {
        let id = self.id_of("lent");
        let tag = json!(format!("cloudadapter.dev/share={EVIL}"));
        let lent = self.bench.cloud.balancers.iter().find(|one| one["id"] == id);
        lent.and_then(|one| one["tags"].as_array()).is_some_and(|tags| tags.contains(&tag))
    }

    /// Returns whether a listener or pool on `lent` belongs to the attacker.
    fn is_guest(&self, lent: &str, part: &Value) -> bool {
        part["loadbalancers"][0]["id"] == lent
            && self.evil.iter().any(|uid| {
                let tag = json!(format!("cloudadapter.dev/owner-uid={uid}"));
                part["tags"].as_array().is_some_and(|tags| tags.contains(&tag))
            })
    }

    /// Returns the attacker's listeners on `lent`, and the attacker's pools with their members.
    fn guests(&self) -> BTreeSet<String> {
        let cloud = &self.bench.cloud;
        let lent = self.id_of("lent");
        let parts = cloud.listeners.iter().chain(&cloud.pools).filter(|one| self.is_guest(&lent, one));
        let members = |one: &Value| one["id"].as_str().and_then(|id| cloud.members.get(id)).cloned();
        parts.map(|one| format!("{one} {:?}", members(one))).collect()
    }

    /// Returns a load balancer. For `lent`, leaves out the attacker's tags and the fields that count listeners and pools.
    fn without_guests(&self, lent: &str, balancer: &Value) -> Value {
        let mut balancer = balancer.clone();
        if balancer["id"] == lent {
            let is_of_evil = |tag: &Value| {
                let rest = tag.as_str().and_then(|tag| tag.strip_prefix("cloudadapter.dev/sharer/"));
                rest.and_then(|rest| rest.split('/').next()).is_some_and(|uid| self.evil.contains(uid))
            };
            balancer["tags"].as_array_mut().into_iter().for_each(|tags| tags.retain(|tag| !is_of_evil(tag)));
            for key in ["listeners", "pools", "updated_at"] {
                balancer.as_object_mut().and_then(|fields| fields.remove(key));
            }
        }
        balancer
    }

    fn kept_by_evil(&self) -> usize {
        let texts = self.bench.cloud.floating_ips.iter().filter_map(|one| one["description"].as_str());
        let records = texts.filter_map(Description::read);
        records.filter(|one| one.keep && one.owner().namespace == EVIL).count()
    }

    fn log(&self) -> String {
        format!("{:?}, {}", self.chance, self.players.last_writes())
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
            &self.grants,
            Cluster { id: service.cluster, name: "prod" },
            request,
            &records,
        )
    }

    fn execute(&mut self, step: &Step) {
        self.writes(step);
    }

    fn execute_attack(&mut self, service: &Service, step: &Step) {
        let words = format!("{step:?}");
        let opened: Vec<&&str> = CLOSED.iter().filter(|word| words.contains(**word)).collect();
        assert!(opened.is_empty(), "`{words}` of namespace evil has {opened:?}\n{}", self.log());
        let (before, guests) = (self.of_others(), self.guests());
        if self.writes(step) {
            self.writes += 1;
            self.players.log.push(format!("{}: {step}", service.wish.key.owner_uid));
        }
        let after = self.of_others();
        assert!(
            before == after,
            "`{step}` of namespace evil changes\n{}\nto\n{}\n{}",
            shown(&before),
            shown(&after),
            self.log()
        );
        assert!(
            self.guests().is_subset(&guests) || self.is_lent(),
            "`{step}` of namespace evil uses a load balancer that is no longer shared with it\n{}",
            self.log()
        );
        self.guest_writes += usize::from(self.guests() != guests);
        let kept = self.kept_by_evil();
        assert!(kept <= KEPT, "{kept} addresses kept by namespace evil\n{}", self.log());
    }

    /// Lets Octavia complete its pending changes.
    fn wait(&mut self) {
        let is_busy = |one: &Value| one["provisioning_status"] == "PENDING_UPDATE";
        if self.bench.cloud.balancers.iter().any(is_busy) {
            for one in self.change().cloud.balancers.iter_mut().filter(|one| is_busy(one)) {
                one["provisioning_status"] = json!("ACTIVE");
            }
        }
    }

    fn attacker(&mut self) -> Service {
        let uid = self.players.uid();
        self.evil.insert(uid.clone());
        Service::new("c-1", uid, named(EVIL, "x", public([tcp(80)])))
    }

    fn another_wish(&mut self, service: &Service) -> Service {
        self.random_wish(service)
    }
}

fn named(namespace: &str, name: &str, mut wish: DesiredLoadBalancer) -> DesiredLoadBalancer {
    namespace.clone_into(&mut wish.owner.namespace);
    name.clone_into(&mut wish.owner.name);
    wish
}

fn web_with_address(address: &str) -> DesiredLoadBalancer {
    with(web([tcp(5432)]), |spec| spec.requested_addresses = vec![address.to_owned()])
}

fn shown(all: &[Value]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Simulates several projects, and checks that the attacker made enough requests and writes.
async fn played(first: u32) {
    let cloud = FakeCloud::start().await;
    let (mut writes, mut guest_writes, mut tries) = (0, 0, 0);
    for n in 0..cases(WORLDS) {
        let seed = u64::from(first) + 2 * u64::from(n);
        let options = LoadBalancerOptions {
            kept_addresses_per_namespace: u32::try_from(KEPT).ok(),
            ..LoadBalancerOptions::default()
        };
        let mut world = World::new(cloud.driver_with(options), seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
        for _ in 0..ROUNDS {
            if world.one_in(8) {
                world.work();
            } else {
                world.attack();
            }
            world.wait();
        }
        writes += world.writes;
        guest_writes += world.guest_writes;
        tries += world.players.tries;
    }
    let counted = format!("{tries} requests of the attacker, {writes} writes, {guest_writes} as a guest");
    println!("{counted}");
    assert!(tries >= STEPS && writes >= WRITES && guest_writes >= GUEST_WRITES, "{counted}");
}

#[tokio::test]
async fn hostile_namespace_changes_no_objects_of_others() {
    played(0).await;
}

/// Runs the second half of the simulation, so that the two halves run on two processors.
#[tokio::test]
async fn hostile_namespace_changes_no_objects_of_others_second_half() {
    played(1).await;
}
