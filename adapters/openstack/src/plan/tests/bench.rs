//! An in-memory fake of Octavia and Neutron. It executes steps, and lists the results as Octavia and Neutron do.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use cloud_adapter::{
    driver::{DesiredLoadBalancer, LoadBalancerRecord, VendorError},
    kit::{Part, testing::writer},
};
use cloud_api_proto::v1alpha1::LoadBalancerState;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    api::{
        requests::{Former, NewFloatingIp},
        responses::LiveBalancer,
        version::Version,
    },
    load_balancers::{
        Detail,
        settings::{LoadBalancerOptions, Site},
        tests::{Listings, kept, records},
    },
    ownership::{self, Claim, Description, GoNames},
    plan::{plan, plan_again, plan_deletion},
    step::Step,
};

pub(super) type Record = LoadBalancerRecord<Detail>;

/// The maximum number of writes. No plan in these tests needs more.
const WRITES_MAX: usize = 60;
pub(super) const PORT: &str = "port-of-the-vip";
pub(super) const NO_POOL: &str = "dzm";
/// A network that no router of the nodes reaches.
pub(super) const FAR: &str = "far";

pub(super) struct Bench {
    pub(super) cloud: Listings,
    pub(super) options: LoadBalancerOptions,
    pub(super) version: Version,
    pub(super) writes: Vec<String>,
    /// The last part of the address that the next load balancer gets.
    pub(super) next_address: usize,
    made: usize,
}

impl Bench {
    pub(super) fn new() -> Self {
        let id = |id: &str| Some(id.to_owned());
        let options = LoadBalancerOptions {
            subnet_id: id("subnet-4"),
            ipv6_subnet_id: id("subnet-6"),
            floating_network_id: id("public"),
            ..LoadBalancerOptions::default()
        };
        let cloud = Listings::default();
        Self { cloud, options, version: Version::v2(30), writes: Vec::new(), next_address: 9, made: 0 }
    }

    pub(super) fn site(&self) -> Site<'_> {
        let kept = Arc::new(kept(&self.cloud));
        Site { options: &self.options, version: self.version, guards: None, kept }
    }

    pub(super) fn observe(&self) -> Option<Record> {
        let mut records = records(&self.cloud);
        assert!(records.len() <= 1, "a second load balancer: {records:#?}");
        records.pop().filter(|record| record.summary.state() != LoadBalancerState::Absent)
    }

    pub(super) fn records(&self) -> Vec<Record> {
        records(&self.cloud)
    }

    /// Returns the record that the runtime chooses for the key. It is the key's own load balancer, the one to share, or the one that the
    /// former cloud controller manager created.
    pub(super) fn seen(&self, desired: &DesiredLoadBalancer) -> Option<Record> {
        let there = |record: &Record| record.summary.state() != LoadBalancerState::Absent;
        let records: Vec<Record> = self.records().into_iter().filter(there).collect();
        let elsewhere = |record: &Record| desired.shares().is_some_and(|id| id != record.summary.vendor_id);
        let own = |record: &&Record| record.belongs_to(&desired.key) && !(record.left && elsewhere(record));
        let named = |record: &&Record| match desired.shares() {
            Some(id) => record.summary.vendor_id == id,
            None => {
                record.summary.key.is_none() && GoNames::of(&desired.adopter()).made(&record.summary.name)
            }
        };
        records.iter().find(own).or_else(|| records.iter().find(named)).cloned()
    }

    pub(super) fn plan(&self, desired: &DesiredLoadBalancer) -> Result<Vec<Step>, VendorError> {
        plan(desired, &writer(), self.seen(desired).as_ref(), &self.site())
    }

    /// Returns a plan. `None` if the load balancer to share does not exist, or no plan is possible.
    pub(super) fn plan_if_there(&self, desired: &DesiredLoadBalancer) -> Option<Vec<Step>> {
        let seen = self.seen(desired);
        let there = desired.shares().is_none() || seen.is_some();
        there.then(|| plan(desired, &writer(), seen.as_ref(), &self.site()).ok()).flatten()
    }

    /// Executes at most `most` steps, each as the first step of a new plan. Returns whether no step is left.
    pub(super) fn run(&mut self, desired: &DesiredLoadBalancer, most: usize) -> bool {
        for _ in 0..most {
            match self.plan(desired).expect("possible").first() {
                None => return true,
                Some(step) if self.refuses(step) => return false,
                Some(step) => self.execute(step),
            }
        }
        false
    }

    /// Returns whether the cloud would refuse a step. It refuses an address that the project does not have or that is in use. It also
    /// refuses a pool that does not exist or that the router does not reach.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the cloud accepts all other steps")]
    pub(super) fn refuses(&self, step: &Step) -> bool {
        let is_free = |address: &IpAddr| {
            let mut all = self.cloud.floating_ips.iter();
            all.any(|one| one["floating_ip_address"] == address.to_string() && one["port_id"].is_null())
        };
        if let Step::AttachReserved { address, claim, .. }
        | Step::DetachFloatingIp { for_reserved: Some((address, claim)), .. } = step
        {
            return !is_free(address) || self.claimed(address, claim).is_err();
        }
        if let Step::AttachFloatingIp { id: Part::Known(id), .. } = step {
            let mut all = self.cloud.floating_ips.iter();
            return all.any(|one| one["id"] == **id && one["floating_network_id"] == network_of(Some(FAR)));
        }
        match step {
            Step::CreateFloatingIp { new, .. } => [Some(NO_POOL), Some(FAR)].contains(&new.pool.as_deref()),
            Step::ReserveFloatingIp { new, .. } => new.pool.as_deref() == Some(NO_POOL),
            _ => false,
        }
    }

    fn claimed(&self, address: &IpAddr, claim: &Claim) -> Result<Description, String> {
        let mut all = self.cloud.floating_ips.iter();
        let ip = all.find(|one| one["floating_ip_address"] == address.to_string()).ok_or("missing")?;
        claim.of_one_that_says(ip["description"].as_str().unwrap_or_default())
    }

    pub(super) fn copy(&self) -> Self {
        let (cloud, options) = (self.cloud.clone(), self.options.clone());
        Self { cloud, options, writes: Vec::new(), ..*self }
    }

    /// Executes steps until none is left, and checks that the writes are those of the first plan. Returns the record and the writes.
    #[track_caller]
    pub(super) fn settled(&mut self, desired: &DesiredLoadBalancer) -> (Record, Vec<String>) {
        let planned: Vec<String> =
            self.plan(desired).expect("possible").iter().map(ToString::to_string).collect();
        self.writes.clear();
        assert!(self.run(desired, WRITES_MAX), "does not converge: {:#?}", self.writes);
        // The first plan did not know the address of a new floating IP; the write contains the address.
        let known = |(at, one): (usize, &String)| {
            let written = self.writes.get(at).filter(|written| {
                let (verb, rest) = one.split_once(" the new floating IP").unwrap_or_default();
                !verb.is_empty()
                    && written.starts_with(&format!("{verb} floating IP "))
                    && written.ends_with(rest)
            });
            written.unwrap_or(one).clone()
        };
        let planned: Vec<String> = planned.iter().enumerate().map(known).collect();
        assert_eq!(self.writes, planned);
        let record = self.seen(desired).expect("there");
        assert_eq!(record.summary.state(), LoadBalancerState::Active);
        assert_eq!(record.summary.applied_hash, desired.hash);
        (record, self.writes.clone())
    }

    /// Executes steps until planning fails. Returns the writes and the error.
    #[track_caller]
    pub(super) fn refused(&mut self, desired: &DesiredLoadBalancer) -> (Vec<String>, VendorError) {
        self.writes.clear();
        for _ in 0..WRITES_MAX {
            match self.plan(desired) {
                Ok(steps) => self.execute(steps.first().expect("the request is refused")),
                Err(error) => return (self.writes.clone(), error),
            }
        }
        panic!("does not converge: {:#?}", self.writes)
    }

    /// Recreates a deleted load balancer.
    pub(super) fn again(&mut self, desired: &DesiredLoadBalancer, former: &Record) -> Record {
        let steps = plan_again(desired, &writer(), former, &self.site()).expect("possible");
        self.execute(steps.first().expect("a create"));
        self.settled(desired).0
    }

    pub(super) fn deleted(&mut self) -> Vec<String> {
        self.writes.clear();
        for _ in 0..WRITES_MAX {
            let records = records(&self.cloud);
            let there = records.iter().filter(|record| !record.left);
            let Some(step) = there.flat_map(|record| plan_deletion(record, None)).next() else { break };
            self.execute(&step);
        }
        self.writes.clone()
    }

    /// Returns the next step in deleting the objects of a key. `None` if no objects are left.
    pub(super) fn next_of_removal(&self, desired: &DesiredLoadBalancer) -> Option<Step> {
        let records = self.records();
        let own = records.iter().filter(|record| record.belongs_to(&desired.key) && !record.left);
        own.flat_map(|record| plan_deletion(record, None)).next()
    }

    pub(super) fn gone(&mut self, desired: &DesiredLoadBalancer) -> Vec<String> {
        self.writes.clear();
        for _ in 0..WRITES_MAX {
            let Some(step) = self.next_of_removal(desired) else { break };
            self.execute(&step);
        }
        self.writes.clone()
    }

    fn live(&self, id: &str) -> LiveBalancer {
        let mut live = self.cloud.balancers.iter().find(|one| one["id"] == *id).expect("there").clone();
        let own = self.cloud.listeners.iter().filter(|one| one["loadbalancers"][0]["id"] == *id);
        live["listeners"] = own.map(|one| json!({ "id": one["id"] })).collect();
        serde_json::from_value(live).expect("a valid answer")
    }

    /// Executes a step that depends on the current users of the load balancer. Fails if the users have changed since the plan.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other step depends on the users")]
    pub(super) fn try_execute(&mut self, step: &Step) -> Result<(), VendorError> {
        match step {
            Step::AdoptLoadBalancer { id, tags }
            | Step::CompleteLoadBalancer { id: Part::Known(id), tags } => {
                let tags = ownership::beside_others(tags, &self.live(id))?;
                set(&mut self.cloud.balancers, id, &json!({ "tags": tags }));
            }
            Step::ShareLoadBalancer { id, sharing, .. } => {
                let tags = sharing.join(&self.live(id))?;
                set(&mut self.cloud.balancers, id, &json!({ "tags": tags }));
            }
            Step::LeaveLoadBalancer { id, whose } => {
                let tags = ownership::leave(&self.live(id), whose.as_ref())?;
                set(&mut self.cloud.balancers, id, &json!({ "tags": tags }));
            }
            Step::ReleaseLoadBalancer { id } => {
                let tags = ownership::released(&self.live(id).tags);
                set(&mut self.cloud.balancers, id, &json!({ "tags": tags }));
            }
            Step::DeleteLoadBalancer { id, whose, seen } => {
                ownership::may_go(&self.live(id), whose.as_ref(), seen)?;
                self.delete_load_balancer(id);
            }
            other => {
                self.execute(other);
                return Ok(());
            }
        }
        self.writes.push(step.to_string());
        Ok(())
    }

    #[expect(clippy::too_many_lines, reason = "the match has one arm for each step")]
    pub(super) fn execute(&mut self, step: &Step) {
        if matches!(
            step,
            Step::AdoptLoadBalancer { .. }
                | Step::CompleteLoadBalancer { .. }
                | Step::ShareLoadBalancer { .. }
                | Step::LeaveLoadBalancer { .. }
                | Step::ReleaseLoadBalancer { .. }
                | Step::DeleteLoadBalancer { .. }
        ) {
            return self.try_execute(step).expect("the users have not changed");
        }
        self.writes.push(step.to_string());
        match step {
            Step::ChangeRoutes(_) => panic!("not a step of a load balancer"),
            Step::OpenNodes(_) | Step::CloseNodes(_) => panic!("these tests do not manage security groups"),
            Step::CreateLoadBalancer(new) => self.create_load_balancer(&body(new)),
            Step::RenameLoadBalancer { id, name } => {
                set(&mut self.cloud.balancers, id, &json!({ "name": name }));
            }
            Step::AdoptLoadBalancer { .. }
            | Step::CompleteLoadBalancer { .. }
            | Step::ShareLoadBalancer { .. }
            | Step::LeaveLoadBalancer { .. }
            | Step::ReleaseLoadBalancer { .. }
            | Step::DeleteLoadBalancer { .. } => panic!("handled above"),
            Step::CreateListener { balancer, listener, pool, .. } => {
                let (balancer, pool) = (balancer.id().expect("there"), pool.id().expect("there"));
                self.create_listener(balancer, Some(pool), &body(listener));
            }
            Step::UpdateListener { id, change, pool, .. } => {
                let mut change = body(change);
                if let Some(pool) = pool {
                    change["default_pool_id"] = json!(pool.id().expect("there"));
                }
                set(&mut self.cloud.listeners, id, &change);
            }
            Step::DeleteListener { id, .. } => self.cloud.listeners.retain(|one| one["id"] != **id),
            Step::CreatePool { balancer, pool } => {
                let pool = body(pool);
                assert!(
                    pool.get("members").is_none() && pool.get("healthmonitor").is_none(),
                    "Octavia ignores this field"
                );
                self.create_pool(balancer.id().expect("there"), &pool);
            }
            Step::UpdatePool { id, change, .. } => set(&mut self.cloud.pools, id, &body(change)),
            Step::DeletePool { id, .. } => {
                assert!(
                    self.cloud.listeners.iter().all(|one| one["default_pool_id"] != **id),
                    "the pool is in use"
                );
                self.cloud.pools.retain(|one| one["id"] != **id);
                self.cloud.monitors.retain(|one| one["pools"][0]["id"] != **id);
                self.cloud.members.remove(id);
            }
            Step::SetMembers { pool, members, .. } => {
                self.cloud
                    .members
                    .insert(pool.id().expect("there").to_owned(), members.iter().map(body).collect());
            }
            Step::AddMembers { pool, members, .. } => self.add_members(pool.id().expect("there"), members),
            Step::CreateMonitor { pool, monitor, .. } => {
                self.create_monitor(pool.id().expect("there"), &body(monitor));
            }
            Step::UpdateMonitor { id, change, .. } => set(&mut self.cloud.monitors, id, &body(change)),
            Step::DeleteMonitor { id, .. } => self.cloud.monitors.retain(|one| one["id"] != **id),
            Step::CreateFloatingIp { new, target } => {
                let (mut ip, to) = (body(new), body(target.as_ref().expect("there")));
                assert!(
                    self.cloud.floating_ips.iter().all(|one| one["port_id"] != to["port_id"]),
                    "a second load balancer"
                );
                merge(&mut ip, &to);
                self.made += 1;
                merge(
                    &mut ip,
                    &json!({
                        "id": format!("fip-{}", self.made),
                        "floating_ip_address": floating_address(self.made),
                        "floating_network_id": network_of(new.pool.as_deref()),
                    }),
                );
                self.cloud.floating_ips.push(ip);
            }
            Step::ReserveFloatingIp { new, former } => self.reserve(new, former.as_ref()),
            Step::AttachFloatingIp { id, target, .. } => {
                let (id, to) = (id.id().expect("there"), body(target.as_ref().expect("there")));
                assert!(
                    self.cloud.floating_ips.iter().all(|one| one["port_id"] != to["port_id"]),
                    "a second listener"
                );
                set(&mut self.cloud.floating_ips, id, &to);
            }
            Step::AttachReserved { address, target, claim } => {
                let description = self.claimed(address, claim).expect("it belongs to no other load balancer");
                let ip = self
                    .cloud
                    .floating_ips
                    .iter()
                    .find(|one| one["floating_ip_address"] == address.to_string());
                let id = ip.expect("reserved")["id"].as_str().expect("text").to_owned();
                let to = body(target.as_ref().expect("there"));
                assert!(
                    self.cloud.floating_ips.iter().all(|one| one["port_id"] != to["port_id"]),
                    "a second monitor"
                );
                set(&mut self.cloud.floating_ips, &id, &to);
                let description = description.write().expect("short");
                set(&mut self.cloud.floating_ips, &id, &json!({ "description": description }));
            }
            Step::DescribeFloatingIp { id, description, .. } => {
                let id = id.id().expect("there");
                set(&mut self.cloud.floating_ips, id, &json!({ "description": description }));
            }
            Step::DetachFloatingIp { id, .. } => {
                set(&mut self.cloud.floating_ips, id, &json!({ "port_id": null, "fixed_ip_address": null }));
            }
            Step::DeleteFloatingIp { id, .. } => self.cloud.floating_ips.retain(|one| one["id"] != **id),
        }
    }

    fn reserve(&mut self, new: &NewFloatingIp, former: Option<&Former>) {
        let network = network_of(new.pool.as_deref());
        if let Some(same) = former.filter(|one| one.network_id == network) {
            set(&mut self.cloud.floating_ips, &same.id, &json!({ "description": same.description }));
            return;
        }
        let mut ip = body(new);
        self.made += 1;
        merge(
            &mut ip,
            &json!({
                "id": format!("fip-{}", self.made), "port_id": null, "floating_network_id": network,
                "floating_ip_address": floating_address(self.made),
            }),
        );
        self.cloud.floating_ips.push(ip);
    }

    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}", self.made)
    }

    fn create_load_balancer(&mut self, new: &Value) {
        let id = self.id("lb");
        let last = self.next_address;
        let (v4, v6) = (format!("10.0.0.{last}"), format!("fd00::{last}"));
        let port = if self.cloud.balancers.is_empty() { PORT.to_owned() } else { format!("port-of-{id}") };
        let mut balancer = json!({
            "id": id, "provisioning_status": "ACTIVE", "vip_port_id": port, "created_at": "2026-01-01T00:00:00",
            "vip_address": if new["vip_subnet_id"] == "subnet-6" { &v6 } else { &v4 },
        });
        merge(&mut balancer, new);
        for vip in balancer.get_mut("additional_vips").and_then(Value::as_array_mut).into_iter().flatten() {
            let address = if vip["subnet_id"] == "subnet-6" { &v6 } else { &v4 };
            vip["ip_address"] = vip.get("ip_address").cloned().unwrap_or_else(|| json!(address));
        }
        balancer.as_object_mut().expect("an object").remove("listeners");
        self.cloud.balancers.push(balancer);
        for listener in new["listeners"].as_array().into_iter().flatten() {
            let pool = &listener["default_pool"];
            let pool_id = self.create_pool(&id, pool);
            if pool["healthmonitor"].is_object() {
                self.create_monitor(&pool_id, &pool["healthmonitor"]);
            }
            let members = pool["members"].as_array().cloned().unwrap_or_default();
            self.cloud.members.insert(pool_id.clone(), members);
            self.create_listener(&id, Some(&pool_id), listener);
        }
    }

    fn delete_load_balancer(&mut self, id: &str) {
        let of = |one: &Value| one["loadbalancers"][0]["id"] == *id;
        let gone = self.cloud.balancers.iter().find(|one| one["id"] == *id).expect("there");
        let port = gone["vip_port_id"].clone();
        self.cloud.balancers.retain(|one| one["id"] != *id);
        self.cloud.listeners.retain(|one| !of(one));
        self.cloud.pools.retain(|one| !of(one));
        let pools: Vec<&Value> = self.cloud.pools.iter().map(|one| &one["id"]).collect();
        self.cloud.monitors.retain(|one| pools.contains(&&one["pools"][0]["id"]));
        for ip in &mut self.cloud.floating_ips {
            if ip["port_id"] == port {
                merge(ip, &json!({ "port_id": null, "fixed_ip_address": null }));
            }
        }
    }

    pub(super) fn create_listener(&mut self, balancer: &str, pool: Option<&str>, new: &Value) {
        let transport = |one: &Value| crate::port::Transport::of(one["protocol"].as_str().expect("text"));
        let clash = self
            .cloud
            .listeners
            .iter()
            .filter(|one| one["loadbalancers"][0]["id"] == *balancer)
            .any(|one| one["protocol_port"] == new["protocol_port"] && transport(one) == transport(new));
        assert!(!clash, "another listener is already using the port: {new}");
        let mut listener = json!({
            "id": self.id("listener"), "provisioning_status": "ACTIVE", "loadbalancers": [{ "id": balancer }],
            "connection_limit": -1, "timeout_client_data": 50_000, "timeout_member_connect": 5_000,
            "timeout_member_data": 50_000, "timeout_tcp_inspect": 0, "default_pool_id": pool,
        });
        merge(&mut listener, new);
        self.cloud.listeners.push(listener);
    }

    pub(super) fn create_pool(&mut self, balancer: &str, new: &Value) -> String {
        let id = self.id("pool");
        let mut pool = json!({
            "id": id, "provisioning_status": "ACTIVE", "loadbalancers": [{ "id": balancer }],
        });
        merge(&mut pool, new);
        for part in ["members", "healthmonitor"] {
            pool.as_object_mut().expect("an object").remove(part);
        }
        self.cloud.pools.push(pool);
        id
    }

    fn create_monitor(&mut self, pool: &str, new: &Value) {
        assert!(
            self.cloud.monitors.iter().all(|one| one["pools"][0]["id"] != *pool),
            "a pool has at most one monitor"
        );
        let mut monitor = json!({ "id": self.id("monitor"), "pools": [{ "id": pool }] });
        merge(&mut monitor, new);
        self.cloud.monitors.push(monitor);
    }

    fn add_members(&mut self, pool: &str, members: &[impl Serialize]) {
        let there = self.cloud.members.entry(pool.to_owned()).or_default();
        for member in members.iter().map(body) {
            let key = |one: &Value| (one["address"].clone(), one["protocol_port"].clone());
            there.retain(|one| key(one) != key(&member));
            there.push(member);
        }
    }
}

fn floating_address(made: usize) -> String {
    format!("203.0.{}.{}", 113 + made / 250, made % 250)
}

/// `dmz` is also known as `the-dmz`.
fn network_of(pool: Option<&str>) -> String {
    format!("net-{}", pool.unwrap_or("public").trim_start_matches("the-"))
}

pub(super) fn body(content: &impl Serialize) -> Value {
    serde_json::to_value(content).expect("writes")
}

pub(super) fn set(all: &mut [Value], id: &str, change: &Value) {
    merge(all.iter_mut().find(|one| one["id"] == *id).expect("there"), change);
}

fn merge(into: &mut Value, change: &Value) {
    let change: BTreeMap<String, Value> = serde_json::from_value(change.clone()).expect("an object");
    into.as_object_mut().expect("an object").extend(change);
}
